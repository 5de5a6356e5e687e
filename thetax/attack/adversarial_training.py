r"""Adversarial training (§13.2):
$\min_\theta E \max_{\|\eta\| \le \varepsilon} \ell(f[\theta](x + \eta), y)$.

An attack approximates the maximum. By Danskin's theorem the gradient in $\theta$ of the maximum is
the gradient at the maximiser, so the attack itself is not differentiated. Each function returns an
objective, which can be trained, evaluated and combined like any other.
"""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, PRNGKeyArray

from ..check import suggest
from ..core import Batch, Model, Objective, Scalar, predict, upcast
from ..serialise import recorded
from ..threat.ball import Linf
from ..threat.inputs import Box, check_input, expect_single_array
from ..train.objectives.loss import log_loss
from ..train.objectives.regularise import check_strength
from .base import Attack
from .gradient.pgd import PGD
from .perturb import attack_examples


@recorded
def adversarial_objective(objective: Objective, attack: Attack) -> Objective:
    """Adversarial training: the objective on adversarial examples (§13.2; Madry et al. 2018); of a
    metric such as `error_rate`, the error under attack.

    With a key each example gets a key of its own, and the attack starts at random points of the
    ball.

    Departs: the notes print the problem without the mean over examples.

    >>> from thetax.attack import margin_loss
    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[0.0], [1.0]]), jnp.zeros(2))
    >>> xs, ys = jnp.array([[-1.0], [-0.1]]), jnp.zeros(2, int)
    >>> from thetax.train import error_rate
    >>> attack = PGD(margin_loss, Linf(0.2), step_size=0.2, steps=1)
    >>> (
    ...     error_rate(line, (xs, ys)).item(),
    ...     adversarial_objective(error_rate, attack)(line, (xs, ys)).item(),
    ... )
    (0.0, 0.5)
    """

    def adversarial(model: Model, batch: Batch, *, key: PRNGKeyArray | None = None) -> Scalar:
        xs, ys = _check_batch("adversarial_objective", model, batch, attack)
        key_attack, key_objective = _split(key)
        worst = _adversarial_inputs(attack, model, xs, ys, _example_keys(key_attack, xs))
        return objective(model, (worst, ys), key=key_objective)

    return adversarial


@recorded
def trades(attack: Attack, *, strength: float | Scalar) -> Objective:
    r"""TRADES, $\ell(f(x), y) + \beta \max_\eta \mathrm{KL}(p(x) \,\|\, p(x + \eta))$ with $p =
    \mathrm{softmax} \circ f$: cross-entropy on clean inputs, and a penalty for predictions that
    change within the ball, whatever the label (Zhang et al. 2019). `strength` is $\beta$.

    The attack gets the probabilities $p(x)$ in place of a label; use `PGD(log_loss, ...)`. It
    starts at a random point of the ball, since the gradient of the divergence is 0 at x itself;
    without a key always at the same one.

    >>> from thetax.layers import Linear
    >>> from thetax.train import cross_entropy
    >>> line = Linear(jnp.array([[0.0], [1.0]]), jnp.zeros(2))
    >>> objective = trades(
    ...     PGD(log_loss, Linf(0.2), step_size=0.1, steps=4, output="last"), strength=6.0
    ... )
    >>> batch = jnp.zeros((3, 1)), jnp.zeros(3, int)
    >>> # 6 KL(1/2 | sigma(0.2))
    >>> round(objective(line, batch).item() - cross_entropy(line, batch).item(), 3)
    0.03
    """
    check_strength("trades", strength)

    def objective(model: Model, batch: Batch, *, key: PRNGKeyArray | None = None) -> Scalar:
        xs, ys = _check_batch("trades", model, batch, attack)
        key_attack, key_model = _split(key)
        keys = (
            jnp.broadcast_to(jr.key(0), len(xs)) if key is None else jr.split(key_attack, len(xs))
        )
        probabilities = jax.lax.stop_gradient(jax.nn.softmax(upcast(predict(model, xs)), axis=-1))
        worst = _adversarial_inputs(attack, model, xs, probabilities, keys)
        clean_logits, adversarial_logits = (
            upcast(predict(model, inputs, key=key_model)) for inputs in (xs, worst)
        )
        divergence = jax.vmap(_kl_divergence)(clean_logits, adversarial_logits).mean()
        return jax.vmap(log_loss)(clean_logits, ys).mean() + strength * divergence

    return objective


@recorded
def logit_pairing(attack: Attack, *, strength: float | Scalar) -> Objective:
    r"""Adversarial logit pairing, $\ell(f(x'), y) + \frac\lambda2 \|f(x) - f(x')\|^2$ with $x'$ the
    adversarial example (Kannan et al. 2018). `strength` is $\lambda$.

    Its robustness was later found to come from gradient masking more than from distance to the
    decision boundary: evaluate it with `robustness`.

    >>> from thetax.layers import Linear
    >>> from thetax.train import cross_entropy
    >>> line = Linear(jnp.array([[0.0], [1.0]]), jnp.zeros(2))
    >>> attack = PGD(log_loss, Linf(0.2), step_size=0.2, steps=1)
    >>> batch = (jnp.zeros((3, 1)), jnp.zeros(3, int))
    >>> paired = logit_pairing(attack, strength=0.5)(line, batch) - adversarial_objective(
    ...     cross_entropy, attack
    ... )(line, batch)
    >>> round(paired.item(), 4)  # 0.5 / 2 * 0.2^2
    0.01
    """
    check_strength("logit_pairing", strength)

    def objective(model: Model, batch: Batch, *, key: PRNGKeyArray | None = None) -> Scalar:
        xs, ys = _check_batch("logit_pairing", model, batch, attack)
        key_attack, key_model = _split(key)
        worst = _adversarial_inputs(attack, model, xs, ys, _example_keys(key_attack, xs))
        clean_logits, adversarial_logits = (
            upcast(predict(model, inputs, key=key_model)) for inputs in (xs, worst)
        )
        distance = jnp.square(clean_logits - adversarial_logits).sum(axis=-1).mean() / 2
        return jax.vmap(log_loss)(adversarial_logits, ys).mean() + strength * distance

    return objective


def random_start_fgsm(ball: Linf, *, box: Box | None = None) -> PGD:
    r"""FGSM with random start, for fast adversarial training: one step of $\frac54 \varepsilon$
    from a random point of the ball (with a key). Two passes a batch, and as good as multi-step
    training until catastrophic overfitting sets in (Wong, Rice & Kolter 2020); watch the metric
    `catastrophic_overfitting`.

    >>> random_start_fgsm(Linf(0.4)).step_size
    0.5
    """
    return PGD(log_loss, ball, step_size=1.25 * ball.radius, steps=1, box=box, output="last")


@recorded
def catastrophic_overfitting(single_step: Attack, multi_step: Attack) -> Objective:
    """Metric of catastrophic overfitting: the fraction of examples on which a single-step attack
    fails but a multi-step attack succeeds.

    It is small while the loss is nearly linear in the ball; when single-step training has made the
    loss so curved that single steps mislead, it jumps towards 1. `MetricAlert` prints a note when
    that happens.

    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[0.0], [1.0]]), jnp.zeros(2))
    >>> steps = [PGD(log_loss, Linf(0.2), step_size=size, steps=5) for size in (0.01, 0.2)]
    >>> catastrophic_overfitting(*steps)(
    ...     line, (jnp.array([[-0.1], [-1.0]]), jnp.zeros(2, int))
    ... ).item()
    0.5
    """

    def gap(model: Model, batch: Batch, *, key: PRNGKeyArray | None = None) -> Scalar:
        xs, ys = _check_batch("catastrophic_overfitting", model, batch, single_step, multi_step)

        def is_right(attack):
            worst = _adversarial_inputs(attack, model, xs, ys, _example_keys(key, xs))
            return jnp.argmax(predict(model, worst), axis=-1) == ys

        return (is_right(single_step) & ~is_right(multi_step)).astype(float).mean()

    return gap


class MetricAlert:
    """Progress display that forwards everything to `progress`, and adds a note once, in the first
    epoch in which the metric `name` is larger than `above`.

    >>> from thetax.train import Silent
    >>> alert = MetricAlert(Silent(), "valid overfitting", above=0.3)
    >>> alert.epoch({"epoch": 3, "valid overfitting": 0.8})
    >>> alert.alert_epoch
    3
    """

    def __init__(self, progress: Any, name: str, *, above: float):
        self.progress, self.name, self.above = progress, name, above
        self.alert_epoch: int | None = None

    def start(self, epochs: int, steps: int | None, size: int) -> None:
        self.progress.start(epochs, steps, size)

    def update(self, epoch: int, step: int, loss: float) -> None:
        self.progress.update(epoch, step, loss)

    def epoch(self, row: dict[str, Any]) -> None:
        self.progress.epoch(row)
        if self.name not in row:
            raise ValueError(
                f"MetricAlert: no metric {self.name!r} in the epoch's row; "
                f"{suggest(self.name, row)}it has {', '.join(row)}."
            )
        if self.alert_epoch is None and row[self.name] > self.above:
            self.alert_epoch = row["epoch"]
            self.note(
                f"epoch {row['epoch']}: {self.name} is {row[self.name]:.2f}: catastrophic "
                "overfitting, single-step attacks no longer find what multi-step attacks find. "
                "Stop earlier, or train with more steps."
            )

    def note(self, text: str) -> None:
        self.progress.note(text)

    def close(self) -> None:
        self.progress.close()


def _check_batch(name: str, model: Model, batch: Any, *attacks: Attack) -> tuple[Array, Array]:
    """Examples and labels; raises `ValueError` unless they suit the attacks and their boxes."""
    if not (isinstance(batch, tuple) and len(batch) == 2):
        raise ValueError(f"{name}: expected a batch (xs, ys), got {type(batch).__name__}.")
    expect_single_array(name, batch[0])
    xs = jnp.asarray(batch[0])
    ys = jnp.asarray(batch[1])
    for attack in attacks:
        check_input(name, model, xs, jnp.zeros(0), getattr(attack, "box", None))
    return xs, ys


def _split(key: PRNGKeyArray | None) -> Any:
    return (None, None) if key is None else tuple(jr.split(key))


def _example_keys(key: PRNGKeyArray | None, xs: Array) -> Any:
    return None if key is None else jr.split(key, len(xs))


def _adversarial_inputs(attack: Attack, model: Model, xs: Array, ys: Array, keys: Any) -> Array:
    """The attack's outputs as constants: nothing is differentiated through the attack."""
    model = jax.lax.stop_gradient(model)
    return jax.lax.stop_gradient(attack_examples(attack, model, xs, ys, keys))


def _kl_divergence(logits: Array, other_logits: Array) -> Scalar:
    r"""$\mathrm{KL}(\mathrm{softmax}(a) \,\|\, \mathrm{softmax}(b))$."""
    log_p = jax.nn.log_softmax(logits)
    return jnp.vdot(jnp.exp(log_p), log_p - jax.nn.log_softmax(other_logits))

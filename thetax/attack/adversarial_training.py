r"""Training that looks at the worst input nearby (§13.2):
$\min_\theta E \max_{\|\eta\| \le \varepsilon} \ell(f[\theta](x + \eta), y)$.

An attack stands for the maximum, and by Danskin's theorem the gradient in $\theta$ of the maximum
is the gradient at the maximiser, so nothing is differentiated through the attack. Each function
here makes an objective; it trains, judges and composes as every other one.
"""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, PRNGKeyArray

from ..core import Batch, Model, Objective, Scalar, predict, wide
from ..threat.ball import Linf
from ..threat.inputs import Range, check_input, check_one_array
from ..train.objectives.loss import log_loss
from ..train.objectives.regularise import check_strength
from .base import Attack
from .gradient.pgd import PGD
from .perturb import answers


def adversarial_objective(objective: Objective, attack: Attack) -> Objective:
    """The objective on the answers of an attack (§13.2; Madry et al. 2018); as a metric, the error
    under attack.

    With a key each example has a key of its own, and the attack begins anywhere in the ball.

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

    def hardened(model: Model, batch: Batch, *, key: PRNGKeyArray | None = None) -> Scalar:
        xs, ys = _pair("robust", model, batch, attack)
        key_attack, key_objective = _split(key)
        return objective(
            model, (_worst(attack, model, xs, ys, _each(key_attack, xs)), ys), key=key_objective
        )

    return hardened


def trades(attack: Attack, *, strength: float | Scalar) -> Objective:
    r"""$\ell(f(x), y) + \beta \max_\eta \mathrm{KL}(p(x) \,\|\, p(x + \eta))$,
    $p = \mathrm{softmax} \circ f$: right where the data are, and the same all around them, whatever
    the label (Zhang et al. 2019).

    The attack is given $p(x)$ in place of a label, as in `PGD(log_loss, ...)`. It begins away from
    x, where the divergence has no slope; without a key at the same place every time.

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

    def smoothed(model: Model, batch: Batch, *, key: PRNGKeyArray | None = None) -> Scalar:
        xs, ys = _pair("trades", model, batch, attack)
        key_attack, key_model = _split(key)
        keys = (
            jnp.broadcast_to(jr.key(0), len(xs)) if key is None else jr.split(key_attack, len(xs))
        )
        certain = jax.nn.softmax(wide(predict(model, xs)), axis=-1)
        worst = _worst(attack, model, xs, jax.lax.stop_gradient(certain), keys)
        near, far = (wide(predict(model, inputs, key=key_model)) for inputs in (xs, worst))
        divergence = jax.vmap(_divergence)(near, far).mean()
        return jax.vmap(log_loss)(near, ys).mean() + strength * divergence

    return smoothed


def logit_pairing(attack: Attack, *, strength: float | Scalar) -> Objective:
    r"""$\ell(f(x'), y) + \frac\lambda2 \|f(x) - f(x')\|^2$ with $x'$ the answer of the attack
    (Kannan et al. 2018).

    Its robustness was once found to be hidden gradients more than distance: judge it with
    `robustness`.

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
    check_strength("pair_logits", strength)

    def paired(model: Model, batch: Batch, *, key: PRNGKeyArray | None = None) -> Scalar:
        xs, ys = _pair("pair_logits", model, batch, attack)
        key_attack, key_model = _split(key)
        worst = _worst(attack, model, xs, ys, _each(key_attack, xs))
        near, far = (wide(predict(model, inputs, key=key_model)) for inputs in (xs, worst))
        distance = jnp.square(near - far).sum(axis=-1).mean() / 2
        return jax.vmap(log_loss)(far, ys).mean() + strength * distance

    return paired


def random_start_fgsm(ball: Linf, *, box: Range | None = None) -> PGD:
    r"""One step of $\frac54 \varepsilon$ from anywhere in the ball: as good as many for training,
    at two passes instead of many, until it suddenly is not (Wong, Rice & Kolter 2020). Watch
    `catastrophic_overfitting` with it.

    >>> random_start_fgsm(Linf(0.4)).step_size
    0.5
    """
    return PGD(log_loss, ball, step_size=1.25 * ball.radius, steps=1, box=box, output="last")


def catastrophic_overfitting(single: Attack, many: Attack) -> Objective:
    """A metric: the share of examples that withstand a single step, but not many.

    Small as long as the loss is nearly linear in the ball; when training on single steps has bent
    it so that they lead nowhere, it leaps towards 1. `MetricAlert` says so when it happens.

    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[0.0], [1.0]]), jnp.zeros(2))
    >>> steps = [PGD(log_loss, Linf(0.2), step_size=rate, steps=5) for rate in (0.01, 0.2)]
    >>> catastrophic_overfitting(*steps)(
    ...     line, (jnp.array([[-0.1], [-1.0]]), jnp.zeros(2, int))
    ... ).item()
    0.5
    """

    def gap(model: Model, batch: Batch, *, key: PRNGKeyArray | None = None) -> Scalar:
        xs, ys = _pair("overfitting", model, batch, single, many)
        right = lambda attack: (
            jnp.argmax(predict(model, _worst(attack, model, xs, ys, _each(key, xs))), axis=-1) == ys
        )
        return (right(single) & ~right(many)).astype(float).mean()

    return gap


class MetricAlert:
    """A progress that passes everything on, and says once when a number of an epoch is above a
    bound.

    >>> from thetax.train import Silent
    >>> alarm = MetricAlert(Silent(), "valid overfitting", above=0.3)
    >>> alarm.epoch({"epoch": 3, "valid overfitting": 0.8})
    >>> alarm.rung
    3
    """

    def __init__(self, progress: Any, name: str, *, above: float):
        self.progress, self.name, self.above = progress, name, above
        self.rung: int | None = None

    def start(self, epochs: int, steps: int | None, size: int) -> None:
        self.progress.start(epochs, steps, size)

    def update(self, epoch: int, step: int, loss: float) -> None:
        self.progress.update(epoch, step, loss)

    def epoch(self, row: dict[str, Any]) -> None:
        self.progress.epoch(row)
        if self.name not in row:
            raise ValueError(
                f"Alarm: no number {self.name!r} in an epoch's; it has {', '.join(row)}."
            )
        if self.rung is None and row[self.name] > self.above:
            self.rung = row["epoch"]
            self.note(
                f"epoch {row['epoch']}: {self.name} is {row[self.name]:.2f}: catastrophic "
                "overfitting; a single step "
                "no longer finds what several find. Stop earlier, or train on more steps."
            )

    def note(self, text: str) -> None:
        self.progress.note(text)

    def close(self) -> None:
        self.progress.close()


def _pair(name: str, model: Model, batch: Any, *attacks: Attack) -> tuple[Array, Array]:
    """The examples and labels, in the range that the attacks know."""
    if not (isinstance(batch, tuple) and len(batch) == 2):
        raise ValueError(f"{name}: expected a batch (xs, ys), got {type(batch).__name__}.")
    check_one_array(name, batch[0])
    xs = jnp.asarray(batch[0])
    ys = jnp.asarray(batch[1])
    for attack in attacks:
        check_input(name, model, xs, jnp.zeros(0), getattr(attack, "box", None))
    return xs, ys


def _split(key: PRNGKeyArray | None) -> Any:
    return (None, None) if key is None else tuple(jr.split(key))


def _each(key: PRNGKeyArray | None, xs: Array) -> Any:
    return None if key is None else jr.split(key, len(xs))


def _worst(attack: Attack, model: Model, xs: Array, ys: Array, keys: Any) -> Array:
    """The attack's answers, as data: nothing is differentiated through them."""
    return jax.lax.stop_gradient(answers(attack, jax.lax.stop_gradient(model), xs, ys, keys))


def _divergence(near: Array, far: Array) -> Scalar:
    r"""$\mathrm{KL}(\mathrm{softmax}(a) \,\|\, \mathrm{softmax}(b))$."""
    p = jax.nn.log_softmax(near)
    return jnp.vdot(jnp.exp(p), p - jax.nn.log_softmax(far))

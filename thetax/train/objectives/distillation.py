r"""Distillation (§8.9): a student learns what a teacher believes, not only what the labels say.

With the logits $F$ of the teacher, $G$ of the student and a temperature $T$,
$\ell = -\sum_y \mathrm{softmax}(F/T)_y \log \mathrm{softmax}(G/T)_y$, of gradient
$\partial \ell / \partial G = \frac1T (\mathrm{softmax}(G/T) - \mathrm{softmax}(F/T))$. No label is
needed, so the inputs may be drawn or made up. Hinton, Vinyals & Dean 2015.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ...core import Batch, Model, Objective, Scalar, predict, wide
from ...layers import has_batch_norm
from .loss import log_loss


def tempered_loss(
    logits: Float[Array, " k"], teacher: Float[Array, " l"], *, temperature: float | Scalar
) -> Scalar:
    r"""$-\sum_y \mathrm{softmax}(F/T)_y \log \mathrm{softmax}(G/T)_y$ of student $G$ and teacher
    $F$ (§8.9).

    Its least value is the entropy of $\mathrm{softmax}(F/T)$, at $G = F$ up to a constant. It is a
    loss like any other: `average(partial(tempered_loss, temperature=4.0))` is the objective over
    batches `(xs, logits)` of a teacher who was asked once.

    Departs: the notes print it without the minus sign, under which the student flees the teacher
    without end.

    >>> F = jnp.array([2.0, 1.0, 0.0])
    >>> loss = lambda G: round(float(tempered_loss(G, F, temperature=2.0)), 3)
    >>> loss(F), loss(F + 5), loss(-F)
    (1.02, 1.02, 1.34)
    """
    _check_temperature("tempered_loss", temperature)
    _check_classes("tempered_loss", logits, teacher)
    soft = jax.nn.softmax(wide(teacher) / temperature)
    return -jnp.vdot(soft, jax.nn.log_softmax(wide(logits) / temperature))


def distil(
    teacher: Model, *, temperature: float | Scalar = 1.0, labels: float | Scalar = 0.0
) -> Objective:
    r"""The mean tempered loss to a teacher, on batches `xs`, or `(xs, ...)` of which only `xs` is
    read (§8.9).

    The teacher is any model that gives logits, an `Ensemble` too: pooled by `mean` its logits are
    the average ones, pooled by `mixture` the logarithms of the average probabilities. It is asked
    without a key, so its dropout is off, and its weights get no gradient; fold its batch norms
    first.

    With `labels` $= \lambda > 0$ the batch is `(xs, ys)` and the objective
    $\lambda \cdot \text{cross-entropy} + (1 - \lambda)\, T^2 \ell$: the gradient of $\ell$ shrinks
    as $1/T^2$, and the factor keeps the share of the two terms when $T$ changes. With `labels=0` it
    is $\ell$ itself, as in the course.

    >>> import jax.random as jr
    >>> import optax
    >>> from thetax.core import run
    >>> from thetax.layers import Linear
    >>> from thetax.train import descend
    >>> teacher, student = Linear.init(2, 3, key=jr.key(0)), Linear(jnp.zeros((3, 2)), jnp.zeros(3))
    >>> xs = jr.normal(jr.key(1), (200, 32, 2))  # inputs without labels
    >>> found, _ = run(
    ...     descend(distil(teacher, temperature=2.0), optax.sgd(2.0)), student, xs, key=jr.key(2)
    ... )
    >>> centred = lambda W: W - W.mean(axis=0)[None]
    >>> bool(jnp.allclose(centred(found.model.W), centred(teacher.W), atol=0.02))
    True
    """
    _check_temperature("distil", temperature)
    if isinstance(labels, int | float) and not 0 <= labels <= 1:
        raise ValueError(
            f"distil: labels is the weight of the true labels, from 0 to 1; got {labels}."
        )
    if not callable(teacher):
        kind = type(teacher).__name__
        raise ValueError(
            f"distil: the teacher must be a model, got {kind}; for logits known before, see "
            "tempered_loss."
        )
    if has_batch_norm(teacher):
        raise ValueError(
            "distil: the teacher has batch norms, so its answers change with the batch; fold it "
            "first."
        )
    fixed = jax.tree.map(lambda a: jax.lax.stop_gradient(a) if eqx.is_array(a) else a, teacher)
    needs_labels = not (isinstance(labels, int | float) and labels == 0)

    def objective(model: Model, batch: Batch, *, key: PRNGKeyArray | None = None) -> Scalar:
        if needs_labels and not (isinstance(batch, tuple) and len(batch) == 2):
            raise ValueError(
                f"distil: labels={labels} needs batches (xs, ys), got {type(batch).__name__}."
            )
        xs = batch[0] if isinstance(batch, tuple) else batch
        F = predict(fixed, xs)
        G = predict(model, xs, key=key)
        _check_classes("distil", G[0], F[0])
        soft = _mean(lambda g, f: tempered_loss(g, f, temperature=temperature), G, F)
        if not needs_labels:
            return soft
        return labels * _mean(log_loss, G, batch[1]) + (1 - labels) * temperature**2 * soft

    return objective


def _mean(loss: Callable[..., Scalar], predictions: Any, targets: Any) -> Scalar:
    return jax.vmap(loss)(predictions, targets).mean()


def _check_temperature(name: str, temperature: float | Scalar) -> None:
    if isinstance(temperature, int | float) and not 0 < temperature < float("inf"):
        raise ValueError(f"{name}: temperature must be positive and finite; got {temperature}.")


def _check_classes(name: str, student: Array, teacher: Array) -> None:
    for who, logits in {"teacher": teacher, "student": student}.items():
        if logits.ndim != 1 or len(logits) < 2:
            raise ValueError(
                f"{name}: expected two or more logits of one example from the {who}, got shape "
                f"{logits.shape}; "
                "a network with one output says as much with two, of which the first is 0."
            )
    if len(student) != len(teacher):
        raise ValueError(
            f"{name}: the teacher has {len(teacher)} classes and the student {len(student)}; give "
            "both the same."
        )

r"""Knowledge distillation (§8.9): a student learns the class probabilities of a teacher.

With the logits $F$ of the teacher, $G$ of the student and a temperature $T$,
$\ell = -\sum_y \mathrm{softmax}(F/T)_y \log \mathrm{softmax}(G/T)_y$, of gradient
$\partial \ell / \partial G = \frac1T (\mathrm{softmax}(G/T) - \mathrm{softmax}(F/T))$. No
labels are needed, so the inputs may be unlabelled or synthetic. Hinton, Vinyals & Dean 2015.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ...core import Batch, Model, Objective, Scalar, predict, upcast
from ...layers import has_batch_norm
from ...serialise import recorded
from .loss import log_loss


def distillation_loss(
    logits: Float[Array, " k"], teacher: Float[Array, " l"], *, temperature: float | Scalar
) -> Scalar:
    r"""Cross-entropy of student logits $G$ to teacher logits $F$ at temperature $T$,
    $-\sum_y \mathrm{softmax}(F/T)_y \log \mathrm{softmax}(G/T)_y$ (§8.9).

    Its minimum is the entropy of $\mathrm{softmax}(F/T)$, at $G = F$ up to a constant. With logits
    of the teacher computed once, `batch_mean(partial(distillation_loss, temperature=4.0))` is the
    objective over batches `(xs, logits)`.

    Departs: the notes print it without the minus sign, whose minimisation has no solution and moves
    the student away from the teacher.

    >>> F = jnp.array([2.0, 1.0, 0.0])
    >>> loss = lambda G: round(float(distillation_loss(G, F, temperature=2.0)), 3)
    >>> loss(F), loss(F + 5), loss(-F)
    (1.02, 1.02, 1.34)
    """
    _check_temperature("distillation_loss", temperature)
    _check_classes("distillation_loss", logits, teacher)
    probabilities = jax.nn.softmax(upcast(teacher) / temperature)
    return -jnp.vdot(probabilities, jax.nn.log_softmax(upcast(logits) / temperature))


@recorded
def distil(
    teacher: Model, *, temperature: float | Scalar = 1.0, label_weight: float | Scalar = 0.0
) -> Objective:
    r"""The mean distillation loss to a teacher as an objective (§8.9).

    Batches are `xs`, or tuples `(xs, ...)` of which only `xs` is used. The teacher is any model
    that returns logits, also an `Ensemble`: pooled by `mean` its logits are the average ones,
    pooled by `mixture` the logarithms of the average probabilities. It is
    called without a key, so its dropout is off, and its weights get no gradient; fold its batch
    norms first.

    With `label_weight` $= \lambda > 0$ the batch is `(xs, ys)` and the objective
    $\lambda \cdot \text{cross-entropy} + (1 - \lambda)\, T^2 \ell$: the gradient of $\ell$ shrinks
    as $1/T^2$, and the factor keeps the balance of the two terms when $T$ changes. With
    `label_weight=0` it is $\ell$ itself, as in the course.

    >>> import jax.random as jr
    >>> import optax
    >>> from thetax.core import run
    >>> from thetax.layers import Linear
    >>> from thetax.train import descend
    >>> teacher, student = Linear.init(2, 3, key=jr.key(0)), Linear(jnp.zeros((3, 2)), jnp.zeros(3))
    >>> xs = jr.normal(jr.key(1), (200, 32, 2))  # inputs without labels
    >>> state, _ = run(
    ...     descend(distil(teacher, temperature=2.0), optax.sgd(2.0)), student, xs, key=jr.key(2)
    ... )
    >>> centred = lambda W: W - W.mean(axis=0)[None]
    >>> bool(jnp.allclose(centred(state.model.W), centred(teacher.W), atol=0.02))
    True
    """
    _check_temperature("distil", temperature)
    if isinstance(label_weight, int | float) and not 0 <= label_weight <= 1:
        raise ValueError(
            "distil: label_weight, the weight of the labels, must be in [0, 1]; got "
            f"{label_weight}."
        )
    if not callable(teacher):
        kind = type(teacher).__name__
        raise ValueError(
            f"distil: the teacher must be a model; got {kind}. For logits computed before, use "
            "distillation_loss."
        )
    if has_batch_norm(teacher):
        raise ValueError(
            "distil: the teacher has batch norms, so its outputs depend on the batch. Fold them "
            "first."
        )
    fixed = jax.tree.map(lambda a: jax.lax.stop_gradient(a) if eqx.is_array(a) else a, teacher)
    needs_labels = not (isinstance(label_weight, int | float) and label_weight == 0)

    def objective(model: Model, batch: Batch, *, key: PRNGKeyArray | None = None) -> Scalar:
        if needs_labels and not (isinstance(batch, tuple) and len(batch) == 2):
            raise ValueError(
                f"distil: label_weight={label_weight} needs batches (xs, ys); got "
                f"{type(batch).__name__}."
            )
        xs = batch[0] if isinstance(batch, tuple) else batch
        F = predict(fixed, xs)
        G = predict(model, xs, key=key)
        _check_classes("distil", G[0], F[0])
        soft = _mean(lambda g, f: distillation_loss(g, f, temperature=temperature), G, F)
        if not needs_labels:
            return soft
        label_loss = _mean(log_loss, G, batch[1])
        return label_weight * label_loss + (1 - label_weight) * temperature**2 * soft

    return objective


def _mean(loss: Callable[..., Scalar], predictions: Any, targets: Any) -> Scalar:
    return jax.vmap(loss)(predictions, targets).mean()


def _check_temperature(name: str, temperature: float | Scalar) -> None:
    if isinstance(temperature, int | float) and not 0 < temperature < float("inf"):
        raise ValueError(f"{name}: temperature must be > 0 and finite; got {temperature}.")


def _check_classes(name: str, student: Array, teacher: Array) -> None:
    for role, logits in {"teacher": teacher, "student": student}.items():
        if logits.ndim != 1 or len(logits) < 2:
            raise ValueError(
                f"{name}: the {role} must return two or more logits for an example; got shape "
                f"{logits.shape}. A network with one logit z is equivalent to one with logits "
                "(0, z)."
            )
    if len(student) != len(teacher):
        raise ValueError(
            f"{name}: teacher and student must have the same number of classes; got "
            f"{len(teacher)} and {len(student)}."
        )

r"""Regularisation of objectives (§8): weight decay, lasso, label smoothing, data augmentation,
mixed precision.

Each function takes an objective and returns one, so they compose:
`weight_decay(smooth_labels(cross_entropy, 10, strength=0.1), strength=1e-4)`. Decoupled weight
decay is Optax's (`optax.adamw`): it changes the step, not the objective.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from ... import tree
from ...core import Objective, Scalar
from ...serialise import recorded


def check_strength(name: str, strength: float | Scalar) -> None:
    """Raises `ValueError` if the strength of a penalty is negative."""
    if isinstance(strength, int | float) and strength < 0:
        raise ValueError(
            f"{name}: strength must be >= 0; got {strength}. A negative strength would reward what "
            "the penalty is meant to reduce."
        )


@recorded
def weight_decay(objective: Objective, *, strength: float | Scalar) -> Objective:
    r"""Weight decay (L2 penalty): $\ell_\mu(\theta) = \ell(\theta) + \frac{\mu}{2} \|\theta\|^2$
    (§8.2).

    A gradient step is $\theta \leftarrow (1 - \eta\mu)\theta - \eta \nabla \ell$.
    Departs: the notes print $-\mu\theta$ in the step, and omit $\eta$ before the gradient.

    >>> loss = weight_decay(lambda model, batch, key=None: jnp.zeros(()), strength=0.5)
    >>> float(loss(jnp.array([2.0, 0.0]), None))
    1.0
    """
    check_strength("weight_decay", strength)

    def decayed(model, batch, *, key=None):
        return objective(model, batch, key=key) + strength / 2 * tree.dot(model, model)

    return decayed


@recorded
def lasso(objective: Objective, *, strength: float | Scalar) -> Objective:
    r"""Lasso (L1 penalty): $\ell(\theta) + \mu \|\theta\|_1$, whose minimisers have exact zeros
    (Tibshirani 1996).

    >>> loss = lasso(lambda model, batch, key=None: jnp.zeros(()), strength=0.5)
    >>> float(loss(jnp.array([2.0, -1.0]), None))
    1.5
    """
    check_strength("lasso", strength)

    def sparse(model, batch, *, key=None):
        # leaf · sign(leaf) has gradient 0 at 0; that of jnp.abs is 1.
        l1_norm = sum(jnp.vdot(leaf, jnp.sign(leaf)) for leaf in jax.tree.leaves(model))
        return objective(model, batch, key=key) + strength * l1_norm

    return sparse


@recorded
def soften_labels(objective: Objective, confusion: Float[Array | np.ndarray, "k k"]) -> Objective:
    r"""Soft labels: trains on the distribution $\Pi e_y$, column $y$ of a confusion matrix, in
    place of the label $y$ (§8.8).

    The columns of $\Pi$ are probability distributions, for instance a known model of label noise.
    $\Pi = I$ changes nothing. `smooth_labels` is a special case.

    >>> from thetax.train import cross_entropy
    >>> batch = jnp.zeros((4, 2)), jnp.array([0, 1, 1, 0])
    >>> loss = soften_labels(cross_entropy, jnp.array([[0.9, 0.2], [0.1, 0.8]]))
    >>> round(float(loss(lambda x: x, batch)), 4)
    0.6931
    """
    if confusion.ndim != 2 or confusion.shape[0] != confusion.shape[1]:
        raise ValueError(
            f"soften_labels: confusion must be a square matrix (k, k); got shape {confusion.shape}."
        )
    if not isinstance(confusion, Tracer):
        _check_columns(np.asarray(confusion))
    return _with_soft_labels(objective, jnp.asarray(confusion))


def _check_columns(columns: Float[np.ndarray, "k k"]) -> None:
    right = (columns >= 0).all(axis=0) & np.isclose(
        columns.sum(axis=0), 1.0, atol=1e-5
    )  # NaN is not
    if not right.all():
        first = int(np.argmin(right))
        raise ValueError(
            "soften_labels: every column of confusion must be a probability distribution, >= 0 and "
            f"with sum 1; got {columns[:, first].tolist()} in column {first}."
        )


def _with_soft_labels(objective: Objective, columns: Float[Array, "k k"]) -> Objective:
    def softened(model, batch, *, key=None):
        xs, ys = batch
        soft = columns.T[ys] if jnp.issubdtype(ys.dtype, jnp.integer) else ys @ columns.T
        return objective(model, (xs, soft), key=key)

    return softened


@recorded
def smooth_labels(objective: Objective, classes: int, *, strength: float | Scalar) -> Objective:
    r"""Label smoothing: `soften_labels` with $\Pi = (1 - \epsilon) I + \frac{\epsilon}{k} 11^\top$
    (§8.8; Szegedy et al. 2016).

    >>> from thetax.train import cross_entropy
    >>> batch = jnp.array([[5.0, 0.0]]), jnp.array([0])
    >>> float(smooth_labels(cross_entropy, 2, strength=0.2)(lambda x: x, batch)) > 0.5
    True
    """
    if isinstance(strength, int | float) and not 0 <= strength <= 1:
        raise ValueError(f"smooth_labels: strength must be in [0, 1]; got {strength}.")
    if classes < 2:
        raise ValueError(f"smooth_labels: classes must be an integer >= 2; got {classes}.")
    return _with_soft_labels(objective, (1 - strength) * jnp.eye(classes) + strength / classes)


@recorded
def with_augmentation(objective: Objective, augment: Callable[..., Array]) -> Objective:
    """Data augmentation: the objective on examples `augment(x, key=key)` (§8.7).

    Without a key, as in validation, the examples are not augmented.

    >>> from thetax.train import squared_error
    >>> shifted = with_augmentation(squared_error, lambda x, key: x + 1)
    >>> batch = jnp.zeros((3, 1)), jnp.zeros(3)
    >>> float(shifted(lambda x: x, batch, key=jr.key(0))), float(shifted(lambda x: x, batch))
    (0.5, 0.0)
    """

    def with_augmented_inputs(model, batch, *, key: PRNGKeyArray | None = None):
        if key is None:
            return objective(model, batch)
        xs, ys = batch
        key_augment, key = jr.split(key)
        xs = jax.vmap(lambda x, key: augment(x, key=key))(xs, jr.split(key_augment, len(ys)))
        return objective(model, (xs, ys), key=key)

    return with_augmented_inputs


@recorded
def mixed_precision(objective: Objective, *, dtype: DTypeLike = jnp.bfloat16) -> Objective:
    """Mixed precision: forward and backward pass in `dtype`; weights, gradients and losses stay
    float32.

    >>> from thetax.layers import Linear
    >>> from thetax.train import squared_error
    >>> batch = jnp.ones((4, 3)), jnp.zeros(4)
    >>> model = Linear(jnp.ones((1, 3)), jnp.zeros(1))
    >>> grad = jax.grad(mixed_precision(squared_error))(model, batch)
    >>> grad.W.dtype.name
    'float32'
    """

    def to_low_precision(leaf):
        return leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    def mixed(model, batch, *, key=None):
        xs, ys = batch
        low_model = jax.tree.map(to_low_precision, model)
        low_batch = jax.tree.map(to_low_precision, xs), ys
        return objective(low_model, low_batch, key=key).astype(jnp.float32)

    return mixed

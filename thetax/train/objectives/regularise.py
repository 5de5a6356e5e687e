r"""Functions from objectives to objectives (§8): penalties, softened labels, augmentation,
precision.

They compose: `weight_decay(smooth_labels(cross_entropy, 10, strength=0.1), strength=1e-4)`.
Decoupled decay is Optax's (`optax.adamw`); it acts on the step, not on the objective.
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


def check_strength(name: str, strength: float | Scalar) -> None:
    """Refuses a negative strength of a penalty."""
    if isinstance(strength, int | float) and strength < 0:
        raise ValueError(
            f"{name}: strength must not be negative; got {strength}. A negative one rewards size."
        )


def weight_decay(objective: Objective, *, strength: float | Scalar) -> Objective:
    r"""$\ell_\mu(\theta) = \ell(\theta) + \frac{\mu}{2} \|\theta\|^2$ (§8.2).

    A gradient step is $\theta \leftarrow (1 - \eta\mu)\theta - \eta \nabla \ell$.
    Departs: the notes print $-\mu\theta$ in the step, and lose $\eta$ before the gradient.

    >>> loss = weight_decay(lambda model, batch, key=None: jnp.zeros(()), strength=0.5)
    >>> float(loss(jnp.array([2.0, 0.0]), None))
    1.0
    """
    check_strength("weight_decay", strength)

    def decayed(model, batch, *, key=None):
        return objective(model, batch, key=key) + strength / 2 * tree.dot(model, model)

    return decayed


def lasso(objective: Objective, *, strength: float | Scalar) -> Objective:
    r"""$\ell(\theta) + \mu \|\theta\|_1$, whose minimisers have zeros (Tibshirani 1996).

    >>> loss = lasso(lambda model, batch, key=None: jnp.zeros(()), strength=0.5)
    >>> float(loss(jnp.array([2.0, -1.0]), None))
    1.5
    """
    check_strength("lasso", strength)

    def sparse(model, batch, *, key=None):
        size = sum(
            jnp.vdot(leaf, jnp.sign(leaf)) for leaf in jax.tree.leaves(model)
        )  # slope 0 at 0; that of abs is 1
        return objective(model, batch, key=key) + strength * size

    return sparse


def confuse_labels(objective: Objective, confusion: Float[Array | np.ndarray, "k k"]) -> Objective:
    r"""Trains on $\Pi e_y$ in place of the label $y$; the columns of $\Pi$ are distributions
    (§8.8).

    $\Pi$ may be the known law of wrong labels. $\Pi = I$ changes nothing.

    >>> from thetax.train import cross_entropy
    >>> batch = jnp.zeros((4, 2)), jnp.array([0, 1, 1, 0])
    >>> loss = confuse_labels(cross_entropy, jnp.array([[0.9, 0.2], [0.1, 0.8]]))
    >>> round(float(loss(lambda x: x, batch)), 4)
    0.6931
    """
    if confusion.ndim != 2 or confusion.shape[0] != confusion.shape[1]:
        raise ValueError(
            f"confuse_labels: the confusion matrix must be square (k, k); got {confusion.shape}."
        )
    if not isinstance(confusion, Tracer):  # its numbers are known
        _check_columns(np.asarray(confusion))
    return _confused(objective, jnp.asarray(confusion))


def _check_columns(columns: Float[np.ndarray, "k k"]) -> None:
    right = (columns >= 0).all(axis=0) & np.isclose(
        columns.sum(axis=0), 1.0, atol=1e-5
    )  # NaN is not
    if not right.all():
        first = int(np.argmin(right))
        raise ValueError(
            "confuse_labels: every column must be a distribution, not negative and of sum 1, but "
            "column "
            f"{first} is {columns[:, first].tolist()}; column y tells what the label y becomes."
        )


def _confused(objective: Objective, columns: Float[Array, "k k"]) -> Objective:
    def confused(model, batch, *, key=None):
        xs, ys = batch
        soft = columns.T[ys] if jnp.issubdtype(ys.dtype, jnp.integer) else ys @ columns.T
        return objective(model, (xs, soft), key=key)

    return confused


def smooth_labels(objective: Objective, classes: int, *, strength: float | Scalar) -> Objective:
    r"""`confuse_labels` with $\Pi = (1 - \epsilon) I + \frac{\epsilon}{k} 11^\top$ (§8.8; Szegedy
    et al. 2016).

    >>> from thetax.train import cross_entropy
    >>> batch = jnp.array([[5.0, 0.0]]), jnp.array([0])
    >>> float(smooth_labels(cross_entropy, 2, strength=0.2)(lambda x: x, batch)) > 0.5
    True
    """
    if isinstance(strength, int | float) and not 0 <= strength <= 1:
        raise ValueError(f"smooth_labels: strength is a probability in [0, 1]; got {strength}.")
    if classes < 2:
        raise ValueError(
            f"smooth_labels: labels are smoothed over two or more classes; got {classes}."
        )
    return _confused(objective, (1 - strength) * jnp.eye(classes) + strength / classes)


def augmented(objective: Objective, augment: Callable[..., Array]) -> Objective:
    """Every example is changed by `augment(x, key=key)` before it is judged (§8.7); without a key,
    none is.

    >>> from thetax.train import squared_error
    >>> shifted = augmented(squared_error, lambda x, key: x + 1)
    >>> batch = jnp.zeros((3, 1)), jnp.zeros(3)
    >>> float(shifted(lambda x: x, batch, key=jr.key(0))), float(shifted(lambda x: x, batch))
    (0.5, 0.0)
    """

    def changed(model, batch, *, key: PRNGKeyArray | None = None):
        if key is None:
            return objective(model, batch)
        xs, ys = batch
        key_augment, key = jr.split(key)
        xs = jax.vmap(lambda x, key: augment(x, key=key))(xs, jr.split(key_augment, len(ys)))
        return objective(model, (xs, ys), key=key)

    return changed


def mixed_precision(objective: Objective, *, dtype: DTypeLike = jnp.bfloat16) -> Objective:
    """Computes the forward and backward pass in `dtype` while weights, gradients and losses stay
    float32.

    >>> from thetax.layers import Linear
    >>> from thetax.train import squared_error
    >>> batch = jnp.ones((4, 3)), jnp.zeros(4)
    >>> model = Linear(jnp.ones((1, 3)), jnp.zeros(1))
    >>> grad = jax.grad(mixed_precision(squared_error))(model, batch)
    >>> grad.W.dtype.name
    'float32'
    """

    def narrow(leaf):
        return leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    def mixed(model, batch, *, key=None):
        xs, ys = batch
        narrowed = jax.tree.map(narrow, model), (jax.tree.map(narrow, xs), ys)
        return objective(*narrowed, key=key).astype(jnp.float32)

    return mixed

r"""Class probabilities of a classifier, whatever the layout of its logits.

A network with $k \ge 2$ outputs gives logits, $P(y = j \mid x) = \mathrm{softmax}_j(z)$. One with a
single output gives log-odds, which are the two logits $(0, z)$: $P(y = 1 \mid x) = \sigma(z)$.
Every classification lens uses these functions.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from ..core import Batch, Model, predict
from ..layers import has_batch_norm

MAX_BATCH_SIZE = 2048  # examples evaluated at once


@jax.jit
def _outputs(model: Any, xs: Batch) -> Any:
    """$f(x_i)$ for each example, batch by batch unless a batch norm couples the examples."""
    if len(jax.tree.leaves(xs)[0]) <= MAX_BATCH_SIZE or has_batch_norm(model):
        return predict(model, xs)
    return jax.lax.map(lambda x: model(x), xs, batch_size=MAX_BATCH_SIZE)


def log_probabilities(model: Model, xs: Batch) -> Float[Array, "n k"]:
    r"""Log-probabilities $\log P(y = j \mid x_i)$ of all classes for each example (§2.1, §2.2).

    >>> from thetax.layers import Linear
    >>> model = Linear(jnp.array([[1.0]]), jnp.zeros(1))
    >>> jnp.exp(log_probabilities(model, jnp.array([[0.0], [jnp.log(3.0)]]))).round(2).tolist()
    [[0.5, 0.5], [0.25, 0.75]]
    """
    z = _outputs(model, xs)
    if z.ndim > 2:
        raise ValueError(
            f"log_probabilities: expected logits (k,) for each example, got {z.shape[1:]}; is the "
            "model a classifier?"
        )
    z = z.astype(jnp.promote_types(z.dtype, jnp.float32)).reshape(len(z), -1)
    logits = jnp.concatenate([jnp.zeros_like(z), z], axis=1) if z.shape[1] == 1 else z
    return jax.nn.log_softmax(logits)


def integer_labels(ys: Shaped[Array | np.ndarray, "n ..."], k: int) -> Int[np.ndarray, " n"]:
    r"""Labels as integers $0, \dots, k - 1$; a soft label counts as its most probable class.

    >>> integer_labels(np.array([0.0, 1.0]), 2).tolist()
    [0, 1]
    >>> integer_labels(np.array([[0.1, 0.9]]), 2).tolist()
    [1]
    """
    ys = np.asarray(ys)
    if not (np.issubdtype(ys.dtype, np.number) or ys.dtype == bool):
        raise ValueError(
            f"labels: expected integers from 0 to {k - 1}, but the dtype is {ys.dtype}; encode the "
            "classes as integers, for "
            "instance with np.unique(labels, return_inverse=True), and pass their names as classes."
        )
    is_integer = np.issubdtype(ys.dtype, np.integer) or ys.dtype == bool
    is_soft = not is_integer and ys.ndim == 2 and ys.shape[1] == k
    labels = ys.argmax(axis=1) if is_soft else ys.reshape(len(ys), -1)[:, 0]
    bad = (labels < 0) | (labels >= k) | (labels != np.round(labels))
    if bad.any():
        raise ValueError(
            f"labels: expected integers from 0 to {k - 1}, got {labels[bad][0]}; "
            "this lens is for classifiers, and a regression has no classes."
        )
    return labels.astype(np.int64)

r"""What a classifier believes: class probabilities, whichever way its logits are laid out.

A network of $k \ge 2$ outputs gives logits, $P(y = j \mid x) = \mathrm{softmax}_j(z)$. One of a
single output gives log-odds, which are the two logits $(0, z)$: $P(y = 1 \mid x) = \sigma(z)$.
Every classification lens looks through here.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from ..core import Batch, Model, predict
from ..layers import has_batch_norm

BLOCK = 2048  # examples in memory at once


@jax.jit
def _outputs(model: Any, xs: Batch) -> Any:
    """$f(x_i)$ for each example, block by block where the examples do not depend on one another."""
    if len(jax.tree.leaves(xs)[0]) <= BLOCK or has_batch_norm(model):
        return predict(model, xs)
    return jax.lax.map(lambda x: model(x), xs, batch_size=BLOCK)


def belief(model: Model, xs: Batch) -> Float[Array, "n k"]:
    r"""$\log P(y = j \mid x_i)$ as the network has it (§2.1, §2.2).

    >>> from thetax.layers import Linear
    >>> one = Linear(jnp.array([[1.0]]), jnp.zeros(1))
    >>> jnp.exp(belief(one, jnp.array([[0.0], [jnp.log(3.0)]]))).round(2).tolist()
    [[0.5, 0.5], [0.25, 0.75]]
    """
    z = _outputs(model, xs)
    if z.ndim > 2:
        raise ValueError(
            f"belief: expected logits (k,) for each example, got {z.shape[1:]}; is it a classifier?"
        )
    z = z.astype(jnp.promote_types(z.dtype, jnp.float32)).reshape(len(z), -1)
    return jax.nn.log_softmax(
        jnp.concatenate([jnp.zeros_like(z), z], axis=1) if z.shape[1] == 1 else z
    )


def truth(ys: Shaped[Array | np.ndarray, "n ..."], k: int) -> Int[np.ndarray, " n"]:
    r"""The labels as integers $0, \dots, k - 1$; a soft label counts as its most probable class.

    >>> truth(np.array([0.0, 1.0]), 2).tolist(), truth(np.array([[0.1, 0.9]]), 2).tolist()
    ([0, 1], [1])
    """
    ys = np.asarray(ys)
    if not (np.issubdtype(ys.dtype, np.number) or ys.dtype == bool):
        raise ValueError(
            f"labels: expected integers from 0 to {k - 1}, but the dtype is {ys.dtype}; number "
            "the classes, for "
            "instance with np.unique(labels, return_inverse=True), and give their names as classes."
        )
    whole = np.issubdtype(ys.dtype, np.integer) or ys.dtype == bool
    labels = (
        ys
        if whole
        else ys.argmax(axis=1)
        if ys.ndim == 2 and ys.shape[1] == k
        else ys.reshape(len(ys), -1)[:, 0]
    )
    labels = labels.reshape(len(ys), -1)[:, 0]
    bad = (labels < 0) | (labels >= k) | (labels != np.round(labels))
    if bad.any():
        raise ValueError(
            f"labels: expected integers from 0 to {k - 1}, got {labels[bad][0]}; "
            "this lens is for classifiers, and a regression has no classes."
        )
    return labels.astype(np.int64)

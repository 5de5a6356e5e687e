r"""Scaled dot-product attention (§6.1; Vaswani et al. 2017): each query returns the mean of the
values, weighted by a softmax of the scores of query and keys.

$$A = \mathrm{softmax}_j\!\left(\frac{q_i^\top k_j}{\sqrt{d}}\right), \qquad \xi_i = \sum_j A_{ij}
v_j$$

Several heads of queries may share one head of keys and values (grouped-query attention). There are
three implementations. On a GPU in half precision it is cuDNN's flash attention, which does not
store the table of scores. Elsewhere the whole table is computed if it is small, and otherwise a
block of rows at a time, recomputed in the backward pass: memory for $t$ queries and $s$ keys is
then that of `MAX_PAIRS` scores a head and not of $ts$.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ...core import upcast
from ..dropout import Dropout
from .mask import FULL, Mask

MAX_PAIRS = 2**20  # scores held at once for each head
_HALF_PRECISION = (jnp.bfloat16, jnp.float16)


def dot_product_attention(
    q: Float[Array, "t h d"],
    k: Float[Array, "s g d"],
    v: Float[Array, "s g e"],
    mask: Mask = FULL,
    *,
    dropout: float = 0.0,
    key: PRNGKeyArray | None = None,
) -> Float[Array, "t h e"]:
    r"""Scaled dot-product attention $\xi_i = \sum_j A_{ij} v_j$ for all heads.

    With `h` heads of queries and `g` of keys and values, query head $i$ uses key head
    $\lfloor i g / h \rfloor$. With a key, attention dropout: each weight $A_{ij}$ is set to 0 with
    probability `dropout` and otherwise divided by 1 - `dropout`.

    A query whose keys are all masked returns 0, the empty sum, with derivative 0. The softmax of no
    scores is undefined, and PyTorch returns NaN there; but such a query is usually padding, which
    no loss counts, and 0 times the NaN of its derivative would make all gradients NaN. NaN in a
    visible key or value propagates.

    >>> v = jnp.array([[[1.0]], [[3.0]]])
    >>> dot_product_attention(jnp.zeros((1, 1, 2)), jnp.zeros((2, 1, 2)), v).ravel().tolist()
    [2.0]
    >>> causal = Mask(after=0)
    >>> dot_product_attention(
    ...     jnp.zeros((2, 1, 2)), jnp.zeros((2, 1, 2)), v, causal
    ... ).ravel().tolist()
    [1.0, 2.0]
    """
    check_attention("dot_product_attention", q, k, v, mask)
    t = len(q)
    s = len(k)
    key = key if dropout else None
    if key is None and _flash_supports(q, v, mask):
        return _flash(q, k, v, mask)
    drop = lambda e, index: Dropout(dropout)(e, key=None if key is None else jr.fold_in(key, index))
    if t * s <= MAX_PAIRS:
        return _attend_rows(q, k, v, mask, jnp.arange(t), jnp.arange(s), lambda e: drop(e, 0))
    return _attend_in_blocks(q, k, v, mask, max(MAX_PAIRS // s, 16), drop)


def attention_weights(
    q: Float[Array, "t h d"], k: Float[Array, "s g d"], mask: Mask = FULL
) -> Float[Array, "h t s"]:
    r"""The attention weights $A$ of every head. Rows are non-negative and sum to 1, or are 0 where
    all keys are masked.

    >>> attention_weights(jnp.zeros((1, 1, 2)), jnp.zeros((2, 1, 2))).tolist()
    [[[0.5, 0.5]]]
    """
    check_attention("attention_weights", q, k, k, mask)
    e, z = _exponentials(q, k, mask, jnp.arange(len(q)), jnp.arange(len(k)))
    return (e / z).reshape(q.shape[1], len(q), len(k)).astype(q.dtype)


def masked_softmax(
    scores: Float[Array, " t"], mask: Bool[Array, " t"] | None
) -> Float[Array, " t"]:
    r"""Softmax over the entries where the mask is true; the others are 0, and all are 0 if the mask
    is false everywhere.

    >>> masked_softmax(jnp.array([1.0, 1.0, 9.0]), jnp.array([True, True, False])).tolist()
    [0.5, 0.5, 0.0]
    """
    e, z = _masked_exponentials(upcast(scores), mask)
    return (e / z).astype(scores.dtype)


def check_attention(name: str, q: Array, k: Array, v: Array, mask: Mask) -> None:
    """Raises `ValueError` unless the shapes of queries, keys, values and mask fit together."""
    if q.ndim != 3 or k.ndim != 3 or v.ndim != 3:
        raise ValueError(
            f"{name}: expected queries (t, h, d), keys (s, g, d) and values (s, g, e) of one "
            f"example; got {q.shape}, {k.shape} and {v.shape}; map over a batch with jax.vmap."
        )
    if q.shape[2] != k.shape[2] or k.shape[:2] != v.shape[:2] or q.shape[1] % k.shape[1]:
        raise ValueError(
            f"{name}: queries and keys must have the same width, keys and values the same number "
            "of positions and heads, and the query heads must be a multiple of the key heads; got "
            f"{q.shape}, {k.shape} and {v.shape}."
        )
    mask.check_shape(name, len(q), len(k))
    if mask.slopes is not None and mask.slopes.shape != q.shape[1:2]:
        raise ValueError(
            f"{name}: mask.slopes must have one entry for each of the {q.shape[1]} heads; got "
            f"shape {mask.slopes.shape}."
        )


def _flash_supports(q: Array, v: Array, mask: Mask) -> bool:
    """Whether cuDNN's flash attention covers this case: half precision, a head width divisible by
    8, a causal or no mask, no offset.
    """
    return (
        jax.default_backend() == "gpu"
        and q.dtype in _HALF_PRECISION
        and q.shape[2] == v.shape[2]
        and q.shape[2] % 8 == 0
        and q.shape[2] <= 128
        and len(q) > 1
        and mask.allowed is None
        and mask.slopes is None
        and mask.offset is None
        and (mask.after == 0 or (mask.after is None and mask.before is None))
    )


def _flash(q: Array, k: Array, v: Array, mask: Mask) -> Array:
    # cuDNN needs at least one key; a length of 0 is handled after the call.
    lengths = None if mask.length is None else jnp.maximum(mask.length, 1)[None].astype(jnp.int32)
    result = jax.nn.dot_product_attention(
        q[None],
        k[None],
        v[None],
        is_causal=mask.after == 0,
        local_window_size=None if mask.before is None else (mask.before, 0),
        key_value_seq_lengths=lengths,
        query_seq_lengths=None if lengths is None else jnp.full(1, len(q), jnp.int32),
        implementation="cudnn",
    )[0]
    return result if mask.length is None else jnp.where(mask.length > 0, result, 0)


def _attend_rows(
    q: Array,
    k: Array,
    v: Array,
    mask: Mask,
    i: Int[Array, " t"],
    j: Int[Array, " s"],
    drop: Callable[[Array], Array],
) -> Array:
    """Attention of the queries at positions `i` to the keys and values at positions `j`.

    `drop` is applied to the unnormalised weights, after their sums are taken.

    Dividing by the softmax denominator after the product with `v` saves a pass over the scores.
    """
    t, h, _ = q.shape
    e, z = _exponentials(q, k, mask, i, j)
    e = drop(e)
    out = jnp.matmul(e.astype(v.dtype), v.swapaxes(0, 1), preferred_element_type=e.dtype) / z
    return out.astype(v.dtype).reshape(h, t, -1).swapaxes(0, 1)


def _exponentials(q: Array, k: Array, mask: Mask, i: Array, j: Array) -> tuple[Array, Array]:
    """$e^{s - \\max s}$ and its row sums; query heads that share a key head are stacked along the
    row axis.
    """
    t, h, d = q.shape
    g = k.shape[1]
    grouped = (q / jnp.asarray(math.sqrt(d), q.dtype)).swapaxes(0, 1).reshape(g, h // g * t, d)
    dtype = upcast(q).dtype
    scores = jnp.matmul(grouped, k.transpose(1, 2, 0), preferred_element_type=dtype)
    bias = mask.bias(i[:, None], j[None])
    if bias is not None:
        scores = scores + bias.astype(dtype).reshape(scores.shape)
    if mask.allows_all:
        return _masked_exponentials(scores, None)
    visible = mask.allows(i[:, None], j[None])
    visible = jnp.broadcast_to(visible, (g, h // g, t, len(j))).reshape(scores.shape)
    return _masked_exponentials(scores, visible)


def _masked_exponentials(
    scores: Float[Array, "*s n"], mask: Bool[Array, "*s n"] | None
) -> tuple[Array, Array]:
    masked = scores if mask is None else jnp.where(mask, scores, -jnp.inf)
    largest = jax.lax.stop_gradient(masked.max(axis=-1, keepdims=True))
    # A row without visible keys has the maximum -inf, and -inf - (-inf) would be NaN.
    e = jnp.exp(masked - jnp.where(jnp.isfinite(largest), largest, 0))
    z = e.sum(axis=-1, keepdims=True)
    return e, z if mask is None else jnp.where(z > 0, z, 1)


def _attend_in_blocks(
    q: Array,
    k: Array,
    v: Array,
    mask: Mask,
    block_size: int,
    drop: Callable[[Array, Any], Array],
) -> Array:
    """`block_size` queries at a time, each block against the keys that its window can reach; the
    backward pass recomputes the scores.
    """
    t = len(q)
    s = len(k)
    n_blocks = -(-t // block_size)
    padding = n_blocks * block_size - t
    blocks = jnp.pad(q, ((0, padding), (0, 0), (0, 0)))
    blocks = blocks.reshape(n_blocks, block_size, *q.shape[1:])
    before, after = (
        (s, s) if mask.before is None or mask.after is None else (mask.before, mask.after)
    )
    n_keys = min(s, block_size + before + after)

    @jax.checkpoint
    def attend_block(index, q):
        i = jnp.minimum(index * block_size + jnp.arange(block_size), t - 1)
        start = (
            0
            if n_keys == s
            else jnp.clip(mask.position(index * block_size) - before, 0, s - n_keys)
        )
        window = lambda a: jax.lax.dynamic_slice_in_dim(a, start, n_keys)
        j = start + jnp.arange(n_keys)
        return _attend_rows(q, window(k), window(v), mask, i, j, lambda e: drop(e, index))

    result = jax.lax.map(lambda item: attend_block(*item), (jnp.arange(n_blocks), blocks))
    return result.reshape(n_blocks * block_size, *result.shape[2:])[:t]

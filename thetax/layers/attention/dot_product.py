r"""Scaled dot-product attention (§6.1; Vaswani et al. 2017): each query takes the mean of the
values, weighed by how well their keys match it.

$$A = \mathrm{softmax}_j\!\left(\frac{q_i^\top k_j}{\sqrt{d}}\right), \qquad \xi_i = \sum_j A_{ij}
v_j$$

Every head has its own; several heads of queries may share one of keys and values. One function,
three ways to compute it. On a GPU in half precision it is cuDNN's flash attention, which keeps no
table of pairs. Elsewhere the table is made whole if it is small, and otherwise some rows at a time,
again on the way back: memory for $t$ queries and $s$ keys is then that of `TABLE` pairs and not
$ts$.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ...core import wide
from .mask import ALL, Mask

TABLE = 2**20  # pairs held at once for each head
_HALF = (jnp.bfloat16, jnp.float16)


def attend(
    q: Float[Array, "t h d"], k: Float[Array, "s g d"], v: Float[Array, "s g e"], mask: Mask = ALL
) -> Float[Array, "t h e"]:
    r"""$\xi_i = \sum_j A_{ij} v_j$ for all heads; head $h$ of the queries looks at the keys of head
    $hg/H$.

    A query that may look at nothing gets 0, the empty sum, and its derivatives are 0. The softmax
    of no scores is not defined, and PyTorch gives NaN there; but such a query is padding as a rule,
    which no loss counts, and 0 times the NaN of its derivative would make all gradients NaN. NaN
    among what may be seen is passed on.

    >>> v = jnp.array([[[1.0]], [[3.0]]])
    >>> attend(jnp.zeros((1, 1, 2)), jnp.zeros((2, 1, 2)), v).ravel().tolist()
    [2.0]
    >>> attend(jnp.zeros((2, 1, 2)), jnp.zeros((2, 1, 2)), v, Mask(after=0)).ravel().tolist()
    [1.0, 2.0]
    """
    check_attention("attend", q, k, v, mask)
    t = len(q)
    s = len(k)
    if _flash_can(q, v, mask):
        return _flash(q, k, v, mask)
    if t * s <= TABLE:
        return _rows(q, k, v, mask, jnp.arange(t), jnp.arange(s))
    return _by_rows(q, k, v, mask, max(TABLE // s, 16))


def attention_weights(
    q: Float[Array, "t h d"], k: Float[Array, "s g d"], mask: Mask = ALL
) -> Float[Array, "h t s"]:
    r"""$A$ itself, for who wants to see it: rows are not negative and sum to 1, or are 0 where
    nothing may be seen.

    >>> attention_weights(jnp.zeros((1, 1, 2)), jnp.zeros((2, 1, 2))).tolist()
    [[[0.5, 0.5]]]
    """
    check_attention("attend", q, k, k, mask)
    e, z = _exponentials(q, k, mask, jnp.arange(len(q)), jnp.arange(len(k)))
    return (e / z).reshape(q.shape[1], len(q), len(k)).astype(q.dtype)


def masked_softmax(
    scores: Float[Array, " t"], mask: Bool[Array, " t"] | None
) -> Float[Array, " t"]:
    r"""Softmax over the places where the mask is true; 0 elsewhere, and everywhere if it is true
    nowhere.

    >>> masked_softmax(jnp.array([1.0, 1.0, 9.0]), jnp.array([True, True, False])).tolist()
    [0.5, 0.5, 0.0]
    """
    e, z = _masked_exponentials(wide(scores), mask)
    return (e / z).astype(scores.dtype)


def check_attention(name: str, q: Array, k: Array, v: Array, mask: Mask) -> None:
    """Refuses queries, keys, values and a mask that do not belong together, for the kernel of this
    name.
    """
    if q.ndim != 3 or k.ndim != 3 or v.ndim != 3:
        raise ValueError(
            f"{name}: expected queries (t, h, d), keys (s, g, d) and values (s, g, e) of one "
            f"example; got {q.shape}, {k.shape} and {v.shape}; map over a batch with jax.vmap."
        )
    if q.shape[2] != k.shape[2] or k.shape[:2] != v.shape[:2] or q.shape[1] % k.shape[1]:
        raise ValueError(
            f"{name}: queries and keys must have one size, keys and values as many places and "
            "heads, and the heads of "
            f"the queries must be a multiple of theirs; got {q.shape}, {k.shape} and {v.shape}."
        )
    mask.expect(name, len(q), len(k))
    if mask.fade is not None and mask.fade.shape != q.shape[1:2]:
        raise ValueError(
            f"{name}: fade must be one number for each of {q.shape[1]} heads; got "
            f"{mask.fade.shape}."
        )


def _flash_can(q: Array, v: Array, mask: Mask) -> bool:
    """Whether cuDNN has this case: half precision, heads of even size, a causal window or none,
    queries from 0.
    """
    return (
        jax.default_backend() == "gpu"
        and q.dtype in _HALF
        and q.shape[2] == v.shape[2]
        and q.shape[2] % 8 == 0
        and q.shape[2] <= 128
        and len(q) > 1
        and mask.there is None
        and mask.fade is None
        and mask.first is None
        and (mask.after == 0 or (mask.after is None and mask.before is None))
    )


def _flash(q: Array, k: Array, v: Array, mask: Mask) -> Array:
    lengths = None if mask.length is None else jnp.maximum(mask.length, 1)[None].astype(jnp.int32)
    found = jax.nn.dot_product_attention(
        q[None],
        k[None],
        v[None],
        is_causal=mask.after == 0,
        local_window_size=None if mask.before is None else (mask.before, 0),
        key_value_seq_lengths=lengths,
        query_seq_lengths=None if lengths is None else jnp.full(1, len(q), jnp.int32),
        implementation="cudnn",
    )[0]
    return found if mask.length is None else jnp.where(mask.length > 0, found, 0)


def _rows(
    q: Array, k: Array, v: Array, mask: Mask, i: Int[Array, " t"], j: Int[Array, " s"]
) -> Array:
    """For the queries at the places `i`, all of `k` and `v` being at `j`; dividing last spares a
    pass.
    """
    t, h, _ = q.shape
    e, z = _exponentials(q, k, mask, i, j)
    out = jnp.matmul(e.astype(v.dtype), v.swapaxes(0, 1), preferred_element_type=e.dtype) / z
    return out.astype(v.dtype).reshape(h, t, -1).swapaxes(0, 1)


def _exponentials(q: Array, k: Array, mask: Mask, i: Array, j: Array) -> tuple[Array, Array]:
    """$e^{s - \\max s}$ and its sums; heads that share their keys lie one below the other."""
    t, h, d = q.shape
    g = k.shape[1]
    together = (q / jnp.asarray(math.sqrt(d), q.dtype)).swapaxes(0, 1).reshape(g, h // g * t, d)
    kind = wide(q).dtype
    scores = jnp.matmul(together, k.transpose(1, 2, 0), preferred_element_type=kind)
    bias = mask.bias(i[:, None], j[None])
    if bias is not None:
        scores = scores + bias.astype(kind).reshape(scores.shape)
    if mask.open:
        return _masked_exponentials(scores, None)
    seen = jnp.broadcast_to(mask.allows(i[:, None], j[None]), (g, h // g, t, len(j))).reshape(
        scores.shape
    )
    return _masked_exponentials(scores, seen)


def _masked_exponentials(
    scores: Float[Array, "*s n"], mask: Bool[Array, "*s n"] | None
) -> tuple[Array, Array]:
    low = scores if mask is None else jnp.where(mask, scores, -jnp.inf)
    top = jax.lax.stop_gradient(low.max(axis=-1, keepdims=True))
    e = jnp.exp(low - jnp.where(jnp.isfinite(top), top, 0))
    z = e.sum(axis=-1, keepdims=True)
    return e, z if mask is None else jnp.where(z > 0, z, 1)


def _by_rows(q: Array, k: Array, v: Array, mask: Mask, many: int) -> Array:
    """So many queries at a time, each against the keys that its window can hold; nothing is kept
    for the way back.
    """
    t = len(q)
    s = len(k)
    count = -(-t // many)
    parts = jnp.pad(q, ((0, count * many - t), (0, 0), (0, 0))).reshape(count, many, *q.shape[1:])
    before, after = (
        (s, s) if mask.before is None or mask.after is None else (mask.before, mask.after)
    )
    reach = min(s, many + before + after)

    @jax.checkpoint
    def part(at, q):
        i = jnp.minimum(at * many + jnp.arange(many), t - 1)
        begin = 0 if reach == s else jnp.clip(mask.place(at * many) - before, 0, s - reach)
        cut = lambda a: jax.lax.dynamic_slice_in_dim(a, begin, reach)
        return _rows(q, cut(k), cut(v), mask, i, begin + jnp.arange(reach))

    found = jax.lax.map(lambda item: part(*item), (jnp.arange(count), parts))
    return found.reshape(count * many, *found.shape[2:])[:t]

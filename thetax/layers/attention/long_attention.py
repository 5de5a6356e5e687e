r"""Attention for long sequences (§6.2, L10 §A) at less than the cost $O(T^2)$ of all pairs.

| kernel | attends to | cost |
|---|---|---|
| `linear_attention` | all keys, with factorised scores $\varphi(q)^\top \varphi(k)$ | $Td^2$ |
| `sparse_attention` | a few blocks of keys, exactly | $T \times$ keys per query |
| `hierarchical_attention` | the own block of $b$ tokens, and block averages | $Tb + (T/b)^2$ |

Each is a `kernel` of `Attention`: a function of queries (t, h, d), keys (s, g, d), values (s, g, e)
and a mask that returns (t, h, e).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...check import expect_count
from ...core import upcast
from .dot_product import check_attention, dot_product_attention
from .mask import FULL, Mask

MIN_CHUNK_SIZE = 64  # tokens that causal linear attention processes together

Pairs = tuple[tuple[int, int], ...]


def linear_attention(
    q: Float[Array, "t h d"], k: Float[Array, "s g d"], v: Float[Array, "s g e"], mask: Mask = FULL
) -> Float[Array, "t h e"]:
    r"""Linear attention with features $\varphi = \mathrm{elu} + 1$,
    $\xi_i = \dfrac{\varphi(q_i)^\top \sum_j \varphi(k_j) v_j^\top}{\varphi(q_i)^\top \sum_j
    \varphi(k_j)}$; the sums over $j$ are shared by all queries (Katharopoulos et al. 2020).

    With a causal mask they are running sums: a recurrence whose state is a $d \times e$ matrix. It
    is computed in chunks of tokens, which the backward pass recomputes, so the states of single
    tokens are not stored. Of the mask it supports `after=0`, `length` and `offset`. The output is 0
    where the denominator underflows.

    >>> v = jnp.array([[[1.0]], [[3.0]]])
    >>> linear_attention(
    ...     jnp.zeros((2, 1, 2)), jnp.zeros((2, 1, 2)), v, Mask(after=0)
    ... ).ravel().tolist()
    [1.0, 2.0]
    """
    _check_no_pair_scores("linear_attention", q, k, v, mask)
    if mask.offset is not None:
        return _with_offset(linear_attention, q, k, v, mask)
    t, h, _ = q.shape
    s, g, e = v.shape
    is_key = Mask(length=mask.length).table(1, s)[0]
    K = jnp.where(is_key[:, None, None], _features(k, 0), 0)
    Q = _features(q, jnp.max(_log_features(q), axis=2, keepdims=True)).reshape(t, g, h // g, -1)
    # The last column of ones gives the denominator.
    V = jnp.concatenate([upcast(v), jnp.ones((s, g, 1), K.dtype)], axis=2)
    if mask.after == 0:
        sums = _causal_sums(Q, K, V)
    else:
        sums = jnp.einsum("tgrd,gde->tgre", Q, jnp.einsum("sgd,sge->gde", K, V))
    numerator = sums[..., :-1]
    denominator = sums[..., -1:]
    # The gradient divides by the square of the denominator, which must not underflow.
    smallest = math.sqrt(jnp.finfo(denominator.dtype).tiny)
    valid = denominator > smallest
    result = jnp.where(valid, numerator / jnp.where(valid, denominator, 1), 0)
    return result.reshape(t, h, e).astype(v.dtype)


def _log_features(x: Array) -> Array:
    r"""$\log \varphi(x)$, which stays finite where $\varphi$ underflows."""
    x = upcast(x)
    return jnp.where(x > 0, jnp.log1p(jnp.maximum(x, 0)), x)


def _features(x: Array, scale: Any) -> Array:
    r"""$\varphi(x) / e^\text{scale}$; the scale of a query cancels between numerator and
    denominator.
    """
    return jnp.exp(_log_features(x) - jax.lax.stop_gradient(scale))


def _causal_sums(
    Q: Float[Array, "t g r d"], K: Float[Array, "s g d"], V: Float[Array, "s g e"]
) -> Float[Array, "t g r e"]:
    r"""$\sum_{j \le i} (Q_i^\top K_j) V_j$: all pairs within a chunk, and a state carried from
    chunk to chunk.
    """
    t = len(Q)
    d = Q.shape[-1]
    chunk = min(max(MIN_CHUNK_SIZE, d), t)
    n_chunks = -(-t // chunk)

    def split(a):
        padding = n_chunks * chunk - len(a[:t])
        padded = jnp.pad(a[:t], ((0, padding), *[(0, 0)] * (a.ndim - 1)))
        return padded.reshape(n_chunks, chunk, *a.shape[1:])

    causal = jnp.tri(chunk, dtype=bool)[None, None]

    @jax.checkpoint
    def step(state, part):
        Q, K, V = part
        scores = jnp.where(causal, jnp.einsum("igrd,jgd->grij", Q, K), 0)
        out = jnp.einsum("grij,jge->igre", scores, V) + jnp.einsum("igrd,gde->igre", Q, state)
        return state + jnp.einsum("jgd,jge->gde", K, V), out

    start = jnp.zeros((K.shape[1], d, V.shape[2]), V.dtype)
    out = jax.lax.scan(step, start, (split(Q), split(K), split(V)))[1]
    return out.reshape(n_chunks * chunk, *out.shape[2:])[:t]


def block_pairs(
    n_blocks: int,
    *,
    window: int = 0,
    global_blocks: int = 0,
    random_blocks: int = 0,
    seed: int = 0,
) -> Pairs:
    r"""A block-sparse attention pattern, as pairs (block of queries, block of keys).

    Each block attends to the blocks at most `window` away; the first `global_blocks` blocks attend
    to all blocks, and all to them (Longformer, Beltagy et al. 2020); each block attends to
    `random_blocks` more (BigBird, Zaheer et al. 2020).

    Of $n$ blocks with $m = n - \text{global}$ others and $w < m$, these are
    $n^2 - m^2 + m(2w + 1) - w(w + 1)$ pairs and the random ones.

    >>> block_pairs(3, global_blocks=1)
    ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 2))
    """
    if n_blocks < 1 or min(window, global_blocks, random_blocks) < 0:
        raise ValueError(
            "block_pairs: n_blocks must be >= 1 and the other numbers >= 0; got "
            f"n_blocks={n_blocks}, window={window}, global_blocks={global_blocks}, "
            f"random_blocks={random_blocks}."
        )
    i, j = np.indices((n_blocks, n_blocks))
    linked = (abs(i - j) <= window) | (np.minimum(i, j) < global_blocks)
    rng = np.random.default_rng(seed)
    for row in linked:
        unlinked = np.flatnonzero(~row)
        row[rng.choice(unlinked, min(random_blocks, len(unlinked)), replace=False)] = True
    return tuple((int(a), int(b)) for a, b in zip(*np.nonzero(linked)))


def sparse_attention(pairs: Iterable[tuple[int, int]], block_size: int) -> "SparseAttention":
    r"""Block-sparse attention: `dot_product_attention` restricted to the given pairs (block of
    queries, block of keys), of `block_size` tokens each.

    The result equals that of a mask that forbids all other pairs; a mask can be given besides. Only
    $|\text{pairs}| \cdot \text{block\_size}^2$ scores are computed. Sequences may be shorter than
    the pairs cover, not longer.

    >>> kernel = sparse_attention(block_pairs(4, window=1, global_blocks=1), block_size=2)
    >>> kernel(jnp.ones((7, 1, 2)), jnp.ones((7, 1, 2)), jnp.ones((7, 1, 3))).shape
    (7, 1, 3)
    >>> len(kernel.pairs) * kernel.block_size**2
    56
    """
    ordered = tuple(sorted({(int(a), int(b)) for a, b in pairs}))
    if block_size < 1 or not ordered or min(min(pair) for pair in ordered) < 0:
        raise ValueError(
            "sparse_attention: expected pairs of block indices >= 0 and block_size >= 1; got "
            f"{len(ordered)} pairs and block_size={block_size}."
        )
    return SparseAttention(ordered, block_size)


@dataclass(frozen=True)
class SparseAttention:
    """The kernel that `sparse_attention` returns."""

    pairs: Pairs
    block_size: int

    def __call__(
        self,
        q: Float[Array, "t h d"],
        k: Float[Array, "s g d"],
        v: Float[Array, "s g e"],
        mask: Mask = FULL,
    ) -> Float[Array, "t h e"]:
        check_attention("sparse_attention", q, k, v, mask)
        if mask.offset is not None:
            return _with_offset(self, q, k, v, mask)
        n_rows, rows, columns = self._present_pairs(len(q), len(k))
        Q = _split_blocks(q, self.block_size)[rows]
        K = _split_blocks(k, self.block_size)[columns]
        V = _split_blocks(v, self.block_size)[columns]
        scores = self._scores(Q, K, mask, rows, columns, len(k))
        # Softmax over all blocks of a row: the maximum and the sums are segment reductions.
        largest = jax.ops.segment_max(
            jax.lax.stop_gradient(scores).max(axis=-1), rows, n_rows, indices_are_sorted=True
        )
        e = jnp.exp(scores - jnp.where(jnp.isfinite(largest), largest, 0)[rows][..., None])
        sum_rows = partial(
            jax.ops.segment_sum, segment_ids=rows, num_segments=n_rows, indices_are_sorted=True
        )
        z = sum_rows(e.sum(axis=-1))[..., None]
        out = sum_rows(jnp.einsum("pgrij,pjge->pgrie", e, upcast(V))) / jnp.where(z > 0, z, 1)
        out = out.transpose(0, 3, 1, 2, 4).reshape(-1, q.shape[1], v.shape[2])
        return out[: len(q)].astype(v.dtype)

    def _present_pairs(self, t: int, s: int) -> tuple[int, Any, Any]:
        """The number of query blocks, and the pairs of blocks within the sequences."""
        n_rows = -(-t // self.block_size)
        n_columns = -(-s // self.block_size)
        size = [1 + max(indices) for indices in zip(*self.pairs)]
        if n_rows > size[0] or n_columns > size[1]:
            raise ValueError(
                f"sparse_attention: the pairs cover {size[0]} by {size[1]} blocks of "
                f"{self.block_size}, but {t} queries and {s} keys are {n_rows} by {n_columns} "
                "blocks; make pairs with more blocks."
            )
        present = [pair for pair in self.pairs if pair[0] < n_rows and pair[1] < n_columns]
        rows, columns = np.array(present, np.int32).reshape(-1, 2).T
        return n_rows, rows, columns

    def _scores(self, q: Array, k: Array, mask: Mask, rows: Any, columns: Any, s: int) -> Array:
        """Scores (pairs, kv_heads, heads / kv_heads, block_size, block_size); -inf if masked."""
        p, b, h, d = q.shape
        g = k.shape[2]
        grouped = (upcast(q) / math.sqrt(d)).reshape(p, b, g, h // g, d)
        scores = jnp.einsum("pigrd,pjgd->pgrij", grouped, upcast(k))
        within = np.arange(b, dtype=np.int32)
        i, j = (jnp.asarray(block[:, None] * b + within) for block in (rows, columns))
        i = i[:, :, None]
        j = j[:, None]
        bias = mask.bias(i, j)
        if bias is not None:
            scores = scores + bias.astype(scores.dtype).swapaxes(0, 1).reshape(scores.shape)
        return jnp.where((mask.allows(i, j) & (j < s))[:, None, None], scores, -jnp.inf)


def hierarchical_attention(block_size: int) -> "HierarchicalAttention":
    r"""Hierarchical attention: tokens attend within their block of `block_size` tokens, and blocks,
    each represented by the mean of its tokens, to the other blocks (after Yang et al. 2016):
    $\xi_i = \mathrm{attend}_{B(i)}(q_i) + \mathrm{attend}_{C \ne B(i)}(\bar q_{B(i)}, \bar k_C,
    \bar v_C)$.

    The second term is 0 if there is one block only, which is then full attention. With a causal
    mask only earlier blocks are visible, and a block is represented by its first query, the only
    one that all its tokens may know. Of the mask it supports `after=0` and `length`; it is for
    self-attention without a KV cache.

    Departs: the notes name the idea and give no form.

    >>> kernel = hierarchical_attention(2)
    >>> v = jnp.array([1.0, 3.0, 10.0])[:, None, None]
    >>> kernel(jnp.zeros((3, 1, 2)), jnp.zeros((3, 1, 2)), v).ravel().tolist()
    [12.0, 12.0, 12.0]
    """
    expect_count("hierarchical_attention", block_size=block_size)
    return HierarchicalAttention(block_size)


@dataclass(frozen=True)
class HierarchicalAttention:
    """The kernel that `hierarchical_attention` returns."""

    block_size: int

    def __call__(
        self,
        q: Float[Array, "t h d"],
        k: Float[Array, "t g d"],
        v: Float[Array, "t g e"],
        mask: Mask = FULL,
    ) -> Float[Array, "t h e"]:
        _check_no_pair_scores("hierarchical_attention", q, k, v, mask)
        t = len(q)
        if t != len(k) or mask.offset is not None:
            raise ValueError(
                "hierarchical_attention: it is self-attention of a whole sequence; got "
                f"{t} queries and {len(k)} keys{'' if mask.offset is None else ', and an offset'}. "
                "Use dot_product_attention for cross-attention or with a KV cache."
            )
        Q, K, V = (_split_blocks(a, self.block_size) for a in (q, k, v))
        n = len(Q)
        length = jnp.asarray(t, jnp.int32) if mask.length is None else jnp.minimum(mask.length, t)
        starts = self.block_size * jnp.arange(n, dtype=length.dtype)
        counts = jnp.clip(length - starts, 0, self.block_size)  # tokens in each block
        attend_in_block = lambda q, k, v, count: dot_product_attention(
            q, k, v, Mask(after=mask.after, length=count)
        )
        near = jax.vmap(attend_in_block)(Q, K, V, counts)
        others = jnp.tri(n, k=-1, dtype=bool) if mask.after == 0 else ~jnp.eye(n, dtype=bool)
        others = others & (counts > 0)[None]
        queries = Q[:, 0] if mask.after == 0 else _block_means(Q, counts)
        far = dot_product_attention(
            queries, _block_means(K, counts), _block_means(V, counts), Mask(allowed=others)
        )
        return (near + far[:, None]).reshape(-1, *near.shape[2:])[:t]


def _block_means(x: Float[Array, "n b *s"], counts: Array) -> Float[Array, "n *s"]:
    """The mean of the first `counts[i]` tokens of each block `i`."""
    is_token = jnp.arange(x.shape[1], dtype=counts.dtype)[None] < counts[:, None]
    total = jnp.where(is_token[..., None, None], upcast(x), 0).sum(axis=1)
    return (total / jnp.maximum(counts, 1).astype(total.dtype)[:, None, None]).astype(x.dtype)


def _split_blocks(x: Float[Array, "t *s"], block_size: int) -> Float[Array, "n b *s"]:
    """The sequence in blocks, the last padded with zeros."""
    n = -(-len(x) // block_size)
    padded = jnp.pad(x, ((0, n * block_size - len(x)), (0, 0), (0, 0)))
    return padded.reshape(n, block_size, *x.shape[1:])


def _with_offset(kernel: Any, q: Array, k: Array, v: Array, mask: Mask) -> Array:
    """Runs a kernel that has no `offset`: the queries are written at `mask.offset` into an array as
    long as the keys.
    """
    if len(q) > len(k):
        raise ValueError(
            "attention with an offset: the queries must not outnumber the keys; got "
            f"{len(q)} queries and {len(k)} keys. Use a longer KV cache."
        )
    offset: Any = mask.offset
    padded = jnp.zeros((len(k), *q.shape[1:]), q.dtype)
    allowed = mask.allowed
    if allowed is not None and allowed.ndim == 2:
        allowed = jax.lax.dynamic_update_slice_in_dim(
            jnp.zeros((len(k), len(k)), bool), allowed, offset, 0
        )
    whole = Mask(mask.before, mask.after, mask.length, allowed, mask.slopes)
    result = kernel(jax.lax.dynamic_update_slice_in_dim(padded, q, offset, 0), k, v, whole)
    return jax.lax.dynamic_slice_in_dim(result, offset, len(q))


def _check_no_pair_scores(name: str, q: Array, k: Array, v: Array, mask: Mask) -> None:
    """Raises `ValueError` if the mask needs scores of single pairs, which these kernels lack."""
    check_attention(name, q, k, v, mask)
    if (
        mask.before is not None
        or mask.after not in (None, 0)
        or mask.allowed is not None
        or mask.slopes is not None
    ):
        given = lambda value: "given" if value is not None else "not given"
        raise ValueError(
            f"{name}: the mask may be causal (after=0) and have a length, but no window, allowed "
            f"or slopes, since single pairs have no scores here; got before={mask.before}, "
            f"after={mask.after}, allowed {given(mask.allowed)}, slopes {given(mask.slopes)}. Use "
            "dot_product_attention."
        )

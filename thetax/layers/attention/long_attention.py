r"""Attention to long sequences (§6.2, L10 §A): $T$ tokens need not make $T^2$ pairs.

- `linear_attention`: who looks at whom all at all, with scores $\varphi(q)^\top \varphi(k)$ that
  come apart; entries $Td^2$
- `sparse_attention`: who looks at whom blocks at a few other blocks, exactly; entries $T$ times
  what a token sees
- `hierarchical_attention`: who looks at whom tokens at their block, blocks at blocks; entries $Tb +
  (T/b)^2$

Each is a `kernel` of `Attention`: queries $(t, h, d)$, keys $(s, g, d)$, values $(s, g, e)$ and a
mask to $(t, h, e)$.
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

from ...core import wide
from .dot_product import attend, check_attention
from .mask import ALL, Mask

CHUNK = 64  # tokens of a causal linear attention that are done at once

Pairs = tuple[tuple[int, int], ...]


def linear_attention(
    q: Float[Array, "t h d"], k: Float[Array, "s g d"], v: Float[Array, "s g e"], mask: Mask = ALL
) -> Float[Array, "t h e"]:
    r"""$\xi_i = \dfrac{\varphi(q_i)^\top \sum_j \varphi(k_j) v_j^\top}{\varphi(q_i)^\top \sum_j
    \varphi(k_j)}$
    with $\varphi = \mathrm{elu} + 1$: the sums over $j$ are made once for all queries
    (Katharopoulos et al. 2020).

    Causal, they run along with $i$: a recurrence whose state is a matrix $(d, e)$. It goes a chunk
    of tokens at a time, and what happens inside of one is computed again on the way back, so that
    no state of every token is kept. Of the mask it honours `after=0`, `length` and `first`. Where
    no feature of a key meets the query it gives 0.

    >>> v = jnp.array([[[1.0]], [[3.0]]])
    >>> linear_attention(
    ...     jnp.zeros((2, 1, 2)), jnp.zeros((2, 1, 2)), v, Mask(after=0)
    ... ).ravel().tolist()
    [1.0, 2.0]
    """
    _check("linear_attention", q, k, v, mask)
    if mask.first is not None:
        return _placed(linear_attention, q, k, v, mask)
    t, h, _ = q.shape
    s, g, e = v.shape
    there = Mask(length=mask.length).table(1, s)[0]
    K = jnp.where(there[:, None, None], _features(k, 0), 0)
    Q = _features(q, jnp.max(_log_features(q), axis=2, keepdims=True)).reshape(t, g, h // g, -1)
    V = jnp.concatenate(
        [wide(v), jnp.ones((s, g, 1), K.dtype)], axis=2
    )  # the last column makes the sum below
    both = (
        _running(Q, K, V)
        if mask.after == 0
        else jnp.einsum("tgrd,gde->tgre", Q, jnp.einsum("sgd,sge->gde", K, V))
    )
    above = both[..., :-1]
    below = both[..., -1:]
    least = math.sqrt(
        jnp.finfo(below.dtype).tiny
    )  # its square, which a gradient divides by, is still a number
    found = jnp.where(below > least, above / jnp.where(below > least, below, 1), 0)
    return found.reshape(t, h, e).astype(v.dtype)


def _log_features(x: Array) -> Array:
    r"""$\log \varphi(x)$, which does not vanish where $\varphi$ does."""
    x = wide(x)
    return jnp.where(x > 0, jnp.log1p(jnp.maximum(x, 0)), x)


def _features(x: Array, scale: Any) -> Array:
    r"""$\varphi(x) / e^\text{scale}$: a query's own factor stands above and below, and may be
    any.
    """
    return jnp.exp(_log_features(x) - jax.lax.stop_gradient(scale))


def _running(
    Q: Float[Array, "t g r d"], K: Float[Array, "s g d"], V: Float[Array, "s g e"]
) -> Float[Array, "t g r e"]:
    r"""$\sum_{j \le i} (Q_i^\top K_j) V_j$: pairs within a chunk, a state from chunk to chunk."""
    t = len(Q)
    d = Q.shape[-1]
    chunk = min(max(CHUNK, d), t)
    count = -(-t // chunk)
    fit = lambda a: jnp.pad(a[:t], ((0, count * chunk - len(a[:t])), *[(0, 0)] * (a.ndim - 1)))
    parts = [fit(a).reshape(count, chunk, *a.shape[1:]) for a in (Q, K, V)]
    past = jnp.tri(chunk, dtype=bool)[None, None]

    @jax.checkpoint
    def step(state, part):
        Q, K, V = part
        scores = jnp.where(past, jnp.einsum("igrd,jgd->grij", Q, K), 0)
        out = jnp.einsum("grij,jge->igre", scores, V) + jnp.einsum("igrd,gde->igre", Q, state)
        return state + jnp.einsum("jgd,jge->gde", K, V), out

    start = jnp.zeros((K.shape[1], d, V.shape[2]), V.dtype)
    out = jax.lax.scan(step, start, tuple(parts))[1]
    return out.reshape(count * chunk, *out.shape[2:])[:t]


def block_pairs(
    blocks: int, *, window: int = 0, everywhere: int = 0, random: int = 0, seed: int = 0
) -> Pairs:
    r"""Which block looks at which: those at most `window` away, the first `everywhere` blocks at
    all and all at them (Longformer, Beltagy et al. 2020), and from every other block `random` more
    (BigBird, Zaheer et al. 2020).

    Of $n$ blocks, with $m = n - \text{everywhere}$ that are not seen everywhere and $w < m$, these
    are $n^2 - m^2 + m(2w + 1) - w(w + 1)$ pairs and the random ones.

    >>> block_pairs(3, everywhere=1)
    ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 2))
    """
    if blocks < 1 or min(window, everywhere, random) < 0:
        raise ValueError(
            f"block_pairs: there must be a block, and no count is negative; got blocks={blocks}, "
            f"window={window}, everywhere={everywhere}, random={random}."
        )
    i, j = np.indices((blocks, blocks))
    linked = (abs(i - j) <= window) | (np.minimum(i, j) < everywhere)
    draw = np.random.default_rng(seed)
    for row in linked:
        free = np.flatnonzero(~row)
        row[draw.choice(free, min(random, len(free)), replace=False)] = True
    return tuple((int(a), int(b)) for a, b in zip(*np.nonzero(linked)))


def sparse_attention(pairs: Iterable[tuple[int, int]], size: int) -> "Sparse":
    r"""The kernel of `attend` where only these pairs (block of queries, block of keys) exist, of
    `size` tokens each.

    It is the same as a mask that forbids all else, and honours a mask besides, but makes no other
    scores: $|\text{pairs}| \cdot \text{size}^2$ of them. Sequences may be shorter than the pairs
    reach, not longer.

    >>> kernel = sparse_attention(block_pairs(4, window=1, everywhere=1), size=2)
    >>> kernel(jnp.ones((7, 1, 2)), jnp.ones((7, 1, 2)), jnp.ones((7, 1, 3))).shape
    (7, 1, 3)
    >>> len(kernel.pairs) * kernel.size**2
    56
    """
    ordered = tuple(sorted({(int(a), int(b)) for a, b in pairs}))
    if size < 1 or not ordered or min(min(pair) for pair in ordered) < 0:
        raise ValueError(
            "sparse_attention: expected pairs of blocks, counted from 0, and a size of at least 1; "
            f"got {len(ordered)} pairs and size={size}."
        )
    return Sparse(ordered, size)


@dataclass(frozen=True)
class Sparse:
    """What `sparse_attention` gives."""

    pairs: Pairs
    size: int

    def __call__(
        self,
        q: Float[Array, "t h d"],
        k: Float[Array, "s g d"],
        v: Float[Array, "s g e"],
        mask: Mask = ALL,
    ) -> Float[Array, "t h e"]:
        check_attention("sparse_attention", q, k, v, mask)
        if mask.first is not None:
            return _placed(self, q, k, v, mask)
        n, rows, columns = self._blocks(len(q), len(k))
        parts = [_cut(a, self.size)[at] for a, at in ((q, rows), (k, columns), (v, columns))]
        scores = self._scores(parts[0], parts[1], mask, rows, columns, len(k))
        tops = jax.ops.segment_max(
            jax.lax.stop_gradient(scores).max(axis=-1), rows, n, indices_are_sorted=True
        )
        e = jnp.exp(scores - jnp.where(jnp.isfinite(tops), tops, 0)[rows][..., None])
        add = partial(
            jax.ops.segment_sum, segment_ids=rows, num_segments=n, indices_are_sorted=True
        )
        z = add(e.sum(axis=-1))[..., None]
        out = add(jnp.einsum("pgrij,pjge->pgrie", e, wide(parts[2]))) / jnp.where(z > 0, z, 1)
        return (
            out.transpose(0, 3, 1, 2, 4)
            .reshape(-1, q.shape[1], v.shape[2])[: len(q)]
            .astype(v.dtype)
        )

    def _blocks(self, t: int, s: int) -> tuple[int, Any, Any]:
        """How many blocks of queries there are, and the pairs of those that are there."""
        n = -(-t // self.size)
        m = -(-s // self.size)
        reach = [1 + max(at) for at in zip(*self.pairs)]
        if n > reach[0] or m > reach[1]:
            raise ValueError(
                f"sparse_attention: the pairs are of {reach[0]} by {reach[1]} blocks of "
                f"{self.size}, but {t} queries "
                f"and {s} keys are {n} by {m}; make pairs of more blocks."
            )
        there = [pair for pair in self.pairs if pair[0] < n and pair[1] < m]
        rows, columns = np.array(there, np.int32).reshape(-1, 2).T
        return n, rows, columns

    def _scores(self, q: Array, k: Array, mask: Mask, rows: Any, columns: Any, s: int) -> Array:
        """(pairs, groups, heads of a group, size, size), minus infinity where nothing may be
        seen.
        """
        p, b, h, d = q.shape
        g = k.shape[2]
        apart = (wide(q) / math.sqrt(d)).reshape(p, b, g, h // g, d)
        scores = jnp.einsum("pigrd,pjgd->pgrij", apart, wide(k))
        within = np.arange(b, dtype=np.int32)
        i, j = (jnp.asarray(at[:, None] * b + within) for at in (rows, columns))
        i = i[:, :, None]
        j = j[:, None]
        bias = mask.bias(i, j)
        if bias is not None:
            scores = scores + bias.astype(scores.dtype).swapaxes(0, 1).reshape(scores.shape)
        return jnp.where((mask.allows(i, j) & (j < s))[:, None, None], scores, -jnp.inf)


def hierarchical_attention(size: int) -> "Hierarchical":
    r"""The kernel in which tokens attend within their block of `size`, and blocks, each as the mean
    of its tokens, to the other blocks (after Yang et al. 2016):
    $\xi_i = \mathrm{attend}_{B(i)}(q_i) + \mathrm{attend}_{C \ne B(i)}(\bar q_{B(i)}, \bar k_C,
    \bar v_C)$.

    The second part is 0 where there is no other block, so that one block of all tokens is full
    attention. With the mask causal only earlier blocks are seen, and a block asks by its first
    query, the only one that all its tokens may know. Of the mask it honours `after=0` and `length`,
    and only for tokens that look at one another.

    Departs: the notes name the idea and give no form.

    >>> kernel = hierarchical_attention(2)
    >>> v = jnp.array([1.0, 3.0, 10.0])[:, None, None]
    >>> kernel(jnp.zeros((3, 1, 2)), jnp.zeros((3, 1, 2)), v).ravel().tolist()
    [12.0, 12.0, 12.0]
    """
    if size < 1:
        raise ValueError(
            f"hierarchical_attention: size counts the tokens of a block, at least 1; got {size}."
        )
    return Hierarchical(size)


@dataclass(frozen=True)
class Hierarchical:
    """What `hierarchical_attention` gives."""

    size: int

    def __call__(
        self,
        q: Float[Array, "t h d"],
        k: Float[Array, "t g d"],
        v: Float[Array, "t g e"],
        mask: Mask = ALL,
    ) -> Float[Array, "t h e"]:
        _check("hierarchical_attention", q, k, v, mask)
        t = len(q)
        if t != len(k) or mask.first is not None:
            raise ValueError(
                f"hierarchical_attention: tokens look at one another, all at once; got {t} queries "
                f"and {len(k)} keys{'' if mask.first is None else ' of a past'}. Use attend for a "
                "memory, or to go on from a past."
            )
        Q, K, V = (_cut(a, self.size) for a in (q, k, v))
        n = len(Q)
        length = jnp.asarray(t, jnp.int32) if mask.length is None else jnp.minimum(mask.length, t)
        counts = jnp.clip(length - self.size * jnp.arange(n, dtype=length.dtype), 0, self.size)
        near = jax.vmap(
            lambda q, k, v, count: attend(q, k, v, Mask(after=mask.after, length=count))
        )(Q, K, V, counts)
        others = (jnp.tri(n, k=-1, dtype=bool) if mask.after == 0 else ~jnp.eye(n, dtype=bool)) & (
            counts > 0
        )[None]
        asked = Q[:, 0] if mask.after == 0 else _mean(Q, counts)
        far = attend(asked, _mean(K, counts), _mean(V, counts), Mask(there=others))
        return (near + far[:, None]).reshape(-1, *near.shape[2:])[:t]


def _mean(x: Float[Array, "n b *s"], counts: Array) -> Float[Array, "n *s"]:
    """Of the first so many tokens of each block."""
    there = jnp.arange(x.shape[1], dtype=counts.dtype)[None] < counts[:, None]
    total = jnp.where(there[..., None, None], wide(x), 0).sum(axis=1)
    return (total / jnp.maximum(counts, 1).astype(total.dtype)[:, None, None]).astype(x.dtype)


def _cut(x: Float[Array, "t *s"], size: int) -> Float[Array, "n b *s"]:
    """Blocks, the last filled up with zeros."""
    n = -(-len(x) // size)
    return jnp.pad(x, ((0, n * size - len(x)), (0, 0), (0, 0))).reshape(n, size, *x.shape[1:])


def _placed(kernel: Any, q: Array, k: Array, v: Array, mask: Mask) -> Array:
    """Queries that stand at `mask.first` and after, among as many as there are keys."""
    if len(q) > len(k):
        raise ValueError(
            f"attention from a past: there is no room for {len(q)} queries among {len(k)} keys."
        )
    first: Any = mask.first
    many = jnp.zeros((len(k), *q.shape[1:]), q.dtype)
    there = mask.there
    if there is not None and there.ndim == 2:
        there = jax.lax.dynamic_update_slice_in_dim(
            jnp.zeros((len(k), len(k)), bool), there, first, 0
        )
    whole = Mask(mask.before, mask.after, mask.length, there, mask.fade)
    found = kernel(jax.lax.dynamic_update_slice_in_dim(many, q, first, 0), k, v, whole)
    return jax.lax.dynamic_slice_in_dim(found, first, len(q))


def _check(name: str, q: Array, k: Array, v: Array, mask: Mask) -> None:
    """Refuses what needs scores of single pairs."""
    check_attention(name, q, k, v, mask)
    if (
        mask.before is not None
        or mask.after not in (None, 0)
        or mask.there is not None
        or mask.fade is not None
    ):
        raise ValueError(
            f"{name}: it has no scores of single pairs, so a mask may be causal (after=0) and have "
            f"a length, and no window, there or fade; got before={mask.before}, "
            f"after={mask.after}, there {'given' if mask.there is not None else 'not given'}, fade "
            f"{'given' if mask.fade is not None else 'not given'}. Use attend."
        )

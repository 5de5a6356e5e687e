r"""Batches of sequences of similar length, so that little is computed on what only fills up.

A batch is cut to one of a few lengths, since a program is compiled for each: those with the fewest
places to fill up, $\min_{\ell_1 < \dots < \ell_k} \sum_i (\min\{\ell_j \ge |x_i|\} - |x_i|)$, found
exactly.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Int, PRNGKeyArray

from .words import NOTHING, filled

CANDIDATES = 512  # lengths that are compared with one another


def fill_rows(rows: Iterable[Any]) -> Int[np.ndarray, "n t"]:
    """Rows of tokens of different length as a matrix, filled up at the end with -1.

    >>> fill_rows([[1, 2, 3], [4]]).tolist()
    [[1, 2, 3], [4, -1, -1]]
    """
    listed = [np.asarray(row).tolist() for row in rows]
    return filled(listed, max(map(len, listed), default=0))


def bucket_lengths(
    lengths: Int[np.ndarray, " n"], *, count: int, multiple: int = 8
) -> tuple[int, ...]:
    r"""At most `count` lengths, multiples of `multiple`, that leave the least to fill up; the last
    holds the longest.

    Dynamic programming over the candidates $c_1 < \dots < c_m$:
    $C_k(j) = \min_{i < j} C_{k-1}(i) + c_j\, n_{(i, j]}$.

    >>> bucket_lengths(np.array([3, 3, 4, 9, 10, 30]), count=2, multiple=1)
    (10, 30)
    """
    if count < 1 or multiple < 1 or not len(lengths):
        raise ValueError(
            "bucket_lengths: count and multiple must be at least 1 and there must be lengths; got "
            f"count={count}, multiple={multiple} and {len(lengths)} lengths."
        )
    c, n = _candidates(lengths, multiple)
    below = np.concatenate([[0], np.cumsum(n)])  # rows shorter than each candidate
    cost = np.where(
        np.tri(len(c), dtype=bool), c[:, None] * (below[1:, None] - below[None, :-1]), np.inf
    )
    best = cost[:, 0]
    cuts = []
    for _ in range(1, min(count, len(c))):
        total = cost + np.concatenate([[0], best[:-1]])[None]
        cuts.append(total.argmin(axis=1))  # of equals the fewest lengths
        best = total.min(axis=1)
    chosen = []
    j = len(c) - 1
    for cut in [*reversed(cuts), np.zeros(len(c), int)]:
        if j >= 0:
            chosen.append(int(c[j]))
            j = int(cut[j]) - 1
    return tuple(sorted(chosen))


def _candidates(lengths: np.ndarray, multiple: int) -> tuple[np.ndarray, np.ndarray]:
    """The lengths rounded up, and how many rows have each; coarser where there are too many to
    compare.
    """
    rounded = np.maximum(-(-np.asarray(lengths, np.int64) // multiple), 1) * multiple
    c, n = np.unique(rounded, return_counts=True)
    return (c, n) if len(c) <= CANDIDATES else _candidates(lengths, 2 * multiple)


def by_length(
    data: Any, *, batch_size: int, count: int = 4, multiple: int = 8, key: PRNGKeyArray
) -> Callable[[int], Iterator[Any]]:
    """A stream for `fit`: batches of `batch_size` examples of similar length, cut to one of `count`
    lengths.

    `data` is a tree of arrays with the examples along the first axis. The first is a matrix of
    tokens, filled up with -1; it and all others of the same second axis are cut. Every example
    comes once an epoch, in an order that is a function of the key and the epoch. Those that fill no
    batch of their length travel on with the next longer ones; what is left at the very end is one
    smaller batch, the last. So there are `count` + 1 shapes at most.

    >>> xs = fill_rows([[1], [2], [3, 3, 3, 3], [4, 4, 4]])
    >>> stream = by_length((xs, np.arange(4)), batch_size=2, count=2, multiple=1, key=jr.key(0))
    >>> sorted((xs.shape, sorted(ys.tolist())) for xs, ys in stream(0))
    [((2, 1), [0, 1]), ((2, 4), [2, 3])]
    """
    data = jax.tree.map(np.asarray, data)
    widest, lengths = _lengths(data, batch_size)
    steps = bucket_lengths(lengths, count=count, multiple=multiple)
    place = np.searchsorted(steps, lengths)
    groups = [np.flatnonzero(place == i) for i in range(len(steps))]
    seed = np.asarray(jr.key_data(key)).ravel().tolist()

    def cut(rows: np.ndarray, length: int) -> Any:
        return jax.tree.map(
            lambda a: a[rows, :length] if a.ndim > 1 and a.shape[1] == widest else a[rows], data
        )

    def stream(epoch: int) -> Iterator[Any]:
        draw = np.random.Generator(np.random.Philox(seed=[*seed, epoch]))
        batches = []
        rest = np.zeros(0, np.int64)
        for length, group in zip(steps, groups):
            rows = draw.permutation(np.concatenate([rest, group]))
            whole = len(rows) // batch_size * batch_size
            batches += [(part, length) for part in rows[:whole].reshape(-1, batch_size)]
            rest = rows[whole:]
        for i in draw.permutation(len(batches)):
            yield cut(*batches[i])
        if len(rest):
            yield cut(rest, steps[-1])

    return stream


def _lengths(data: Any, batch_size: int) -> tuple[int, np.ndarray]:
    """The width of the tokens, and the length of each row: where the last of its tokens or targets
    ends.
    """
    leaves = jax.tree.leaves(data)
    if (
        not leaves
        or leaves[0].ndim != 2
        or not np.issubdtype(leaves[0].dtype, np.integer)
        or not leaves[0].size
    ):
        came = f"{leaves[0].dtype}{leaves[0].shape}" if leaves else "nothing"
        raise ValueError(
            f"by_length: the first array must be tokens (n, t), filled up with -1; got {came}."
        )
    if len({len(leaf) for leaf in leaves}) > 1:
        raise ValueError(
            f"by_length: expected arrays of one length, got {[len(leaf) for leaf in leaves]}."
        )
    if batch_size < 1:
        raise ValueError(f"by_length: batch_size must be at least 1; got {batch_size}.")
    whole = [
        leaf
        for leaf in leaves
        if leaf.shape == leaves[0].shape and np.issubdtype(leaf.dtype, np.integer)
    ]
    there = np.any([leaf != NOTHING for leaf in whole], axis=0)
    widest = there.shape[1]
    return widest, np.where(there, np.arange(1, widest + 1)[None], 0).max(axis=1)

r"""Bucketing: batches of sequences of similar length, to compute little on padding.

A batch is cut to one of a few lengths, since a program is compiled for each length. The lengths
minimise the padding exactly:
$\min_{\ell_1 < \dots < \ell_k} \sum_i (\min\{\ell_j \ge |x_i|\} - |x_i|)$.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Int, PRNGKeyArray

from ...check import expect_count
from .words import PADDING, pad_to

MAX_CANDIDATES = 512  # candidate lengths in the dynamic program


def pad_rows(rows: Iterable[Any]) -> Int[np.ndarray, "n t"]:
    """Rows of tokens of different length as a matrix, padded at the end with -1.

    >>> pad_rows([[1, 2, 3], [4]]).tolist()
    [[1, 2, 3], [4, -1, -1]]
    """
    lists = [np.asarray(row).tolist() for row in rows]
    return pad_to(lists, max(map(len, lists), default=0))


def bucket_lengths(
    lengths: Int[np.ndarray, " n"], *, n_buckets: int, multiple_of: int = 8
) -> tuple[int, ...]:
    r"""At most `n_buckets` lengths, multiples of `multiple_of`, that minimise the padding.

    The largest holds the longest row. The minimum is found by dynamic programming over the
    candidates $c_1 < \dots < c_m$: $C_k(j) = \min_{i < j} C_{k-1}(i) + c_j\, n_{(i, j]}$.

    >>> bucket_lengths(np.array([3, 3, 4, 9, 10, 30]), n_buckets=2, multiple_of=1)
    (10, 30)
    """
    expect_count("bucket_lengths", n_buckets=n_buckets, multiple_of=multiple_of)
    if not len(lengths):
        raise ValueError("bucket_lengths: expected at least one length; got 0 lengths.")
    c, n = _candidates(lengths, multiple_of)
    below = np.concatenate([[0], np.cumsum(n)])  # rows shorter than each candidate
    # cost[j, i]: total length of the rows in (c[i - 1], c[j]] once padded to c[j]
    cost = np.where(
        np.tri(len(c), dtype=bool), c[:, None] * (below[1:, None] - below[None, :-1]), np.inf
    )
    best = cost[:, 0]
    cuts = []
    for _ in range(1, min(n_buckets, len(c))):
        total = cost + np.concatenate([[0], best[:-1]])[None]
        cuts.append(total.argmin(axis=1))  # on a tie the fewest lengths
        best = total.min(axis=1)
    selected = []
    j = len(c) - 1
    for cut in [*reversed(cuts), np.zeros(len(c), int)]:
        if j >= 0:
            selected.append(int(c[j]))
            j = int(cut[j]) - 1
    return tuple(sorted(selected))


def _candidates(lengths: np.ndarray, multiple_of: int) -> tuple[np.ndarray, np.ndarray]:
    """Lengths rounded up to a multiple, and the number of rows of each.

    The multiple is doubled until there are at most `MAX_CANDIDATES` candidates.
    """
    rounded = np.maximum(-(-np.asarray(lengths, np.int64) // multiple_of), 1) * multiple_of
    c, n = np.unique(rounded, return_counts=True)
    return (c, n) if len(c) <= MAX_CANDIDATES else _candidates(lengths, 2 * multiple_of)


def batches_by_length(
    data: Any, *, batch_size: int, n_buckets: int = 4, multiple_of: int = 8, key: PRNGKeyArray
) -> Callable[[int], Iterator[Any]]:
    """A stream of batches for `fit`: examples of similar length, cut to one of `n_buckets` lengths.

    `data` is a tree of arrays with the examples along the first axis. The first array is a matrix
    of tokens padded with -1; it and all others with the same second axis are cut. Every example is
    visited once per epoch, in an order that is a function of the key and the epoch. Examples that
    do not fill a batch of their length join the next longer bucket; those left over at the end form
    one smaller batch, the last. So there are at most `n_buckets` + 1 shapes.

    >>> xs = pad_rows([[1], [2], [3, 3, 3, 3], [4, 4, 4]])
    >>> stream = batches_by_length(
    ...     (xs, np.arange(4)), batch_size=2, n_buckets=2, multiple_of=1, key=jr.key(0)
    ... )
    >>> sorted((xs.shape, sorted(ys.tolist())) for xs, ys in stream(0))
    [((2, 1), [0, 1]), ((2, 4), [2, 3])]
    """
    data = jax.tree.map(np.asarray, data)
    widest, lengths = _lengths(data, batch_size)
    buckets = bucket_lengths(lengths, n_buckets=n_buckets, multiple_of=multiple_of)
    bucket_of_row = np.searchsorted(buckets, lengths)
    rows_by_bucket = [np.flatnonzero(bucket_of_row == i) for i in range(len(buckets))]
    seed = np.asarray(jr.key_data(key)).ravel().tolist()

    def cut(rows: np.ndarray, length: int) -> Any:
        return jax.tree.map(
            lambda a: a[rows, :length] if a.ndim > 1 and a.shape[1] == widest else a[rows], data
        )

    def stream(epoch: int) -> Iterator[Any]:
        rng = np.random.Generator(np.random.Philox(seed=[*seed, epoch]))
        batches = []
        leftover = np.zeros(0, np.int64)
        for length, bucket_rows in zip(buckets, rows_by_bucket):
            rows = rng.permutation(np.concatenate([leftover, bucket_rows]))
            n_full = len(rows) // batch_size * batch_size
            batches += [(batch, length) for batch in rows[:n_full].reshape(-1, batch_size)]
            leftover = rows[n_full:]
        for i in rng.permutation(len(batches)):
            yield cut(*batches[i])
        if len(leftover):
            yield cut(leftover, buckets[-1])

    return stream


def _lengths(data: Any, batch_size: int) -> tuple[int, np.ndarray]:
    """The width of the token matrix, and the length of each row up to its last token or target."""
    leaves = jax.tree.leaves(data)
    if (
        not leaves
        or leaves[0].ndim != 2
        or not np.issubdtype(leaves[0].dtype, np.integer)
        or not leaves[0].size
    ):
        given = f"{leaves[0].dtype}{leaves[0].shape}" if leaves else "no array"
        raise ValueError(
            "batches_by_length: the first array must be an integer matrix of tokens (n, t), padded "
            f"with -1; got {given}."
        )
    if len({len(leaf) for leaf in leaves}) > 1:
        raise ValueError(
            "batches_by_length: all arrays must have the same number of examples; got "
            f"{[len(leaf) for leaf in leaves]}."
        )
    expect_count("batches_by_length", batch_size=batch_size)
    token_arrays = [
        leaf
        for leaf in leaves
        if leaf.shape == leaves[0].shape and np.issubdtype(leaf.dtype, np.integer)
    ]
    is_token = np.any([leaf != PADDING for leaf in token_arrays], axis=0)
    widest = is_token.shape[1]
    return widest, np.where(is_token, np.arange(1, widest + 1)[None], 0).max(axis=1)

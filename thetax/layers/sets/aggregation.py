r"""Permutation-invariant aggregations of the elements of a set: sum, mean, max, min and logsumexp
(§7.2).
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...check import suggest
from ...core import upcast
from .inputs import Elements, split_set

# The names of the aggregations over a set.
SET_AGGREGATIONS = ("sum", "mean", "max", "min", "logsumexp")


def aggregate_set(x: Elements, how: str | Sequence[str] = "sum") -> Float[Array, " m"]:
    r"""The sum, mean, maximum, minimum or logsumexp of every feature over the elements of a set
    (§7.2; Zaheer et al. 2017). Several aggregations are concatenated.

    The sum distinguishes multisets by their multiplicities, the mean only up to a common factor,
    and maximum and minimum see only which elements occur. The aggregation of an empty set is 0.

    >>> x = jnp.array([[1.0, 5.0], [3.0, 1.0]])
    >>> [aggregate_set(x, how).tolist() for how in ("sum", "mean", "max", "min")]
    [[4.0, 6.0], [2.0, 3.0], [3.0, 5.0], [1.0, 1.0]]
    """
    points, mask = split_set("aggregate_set", x)
    if not isinstance(how, str):
        return jnp.concatenate([aggregate_set(x, one) for one in how])
    check_aggregation("aggregate_set", how)
    if not len(points):
        return jnp.zeros(points.shape[1], points.dtype)
    if how == "sum":
        return _sum(points, mask)
    if how == "mean":
        if mask is None:
            return points.mean(axis=0)
        return _sum(points, mask) / jnp.maximum(mask.sum(), 1).astype(points.dtype)
    if how == "max":
        return _max(points, mask)
    if how == "min":
        return -_max(-points, mask)
    wide = upcast(points)
    largest = _max(wide, mask)
    # logsumexp is the shift plus the logarithm of terms of which one is 1
    total = _sum(jnp.exp(jnp.where(_visible(mask), wide - largest[None], 0)), mask)
    return (largest + jnp.log(jnp.where(total > 0, total, 1))).astype(points.dtype)


@jax.custom_jvp
def largest(points: Float[Array, "n d"]) -> Float[Array, " d"]:
    """The maximum of every column, whose gradient goes to the first row that attains it.

    The derivative of `jnp.max` compares the entries with the maximum. After fusion a compiler may
    compute an entry twice with different rounding, and then no entry is equal; an index is safe.

    >>> jax.grad(lambda x: largest(x).sum())(jnp.array([[1.0], [3.0], [3.0]])).ravel().tolist()
    [0.0, 1.0, 0.0]
    """
    return points.max(axis=0)


@largest.defjvp
def _largest_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (points,), (slopes,) = primals, tangents
    is_first = jnp.arange(len(points))[:, None] == jnp.argmax(points, axis=0)[None]
    return largest(points), jnp.where(is_first, slopes, 0).sum(axis=0)


def check_aggregation(name: str, how: str | Sequence[str]) -> None:
    """Raises `ValueError` unless `how` is an aggregation, or a sequence of them.

    >>> check_aggregation("DeepSets", "avg")
    Traceback (most recent call last):
    ValueError: DeepSets: aggregations are sum, mean, max, min, logsumexp; got 'avg'.
    """
    for one in [how] if isinstance(how, str) else how:
        if one not in SET_AGGREGATIONS:
            raise ValueError(
                f"{name}: {suggest(one, SET_AGGREGATIONS)}aggregations are "
                f"{', '.join(SET_AGGREGATIONS)}; got {one!r}."
            )


def _visible(mask: Bool[Array, " n"] | None) -> Any:
    return True if mask is None else mask[:, None]


def _sum(points: Float[Array, "n d"], mask: Bool[Array, " n"] | None) -> Float[Array, " d"]:
    return (points if mask is None else jnp.where(mask[:, None], points, 0)).sum(axis=0)


def _max(points: Float[Array, "n d"], mask: Bool[Array, " n"] | None) -> Float[Array, " d"]:
    if mask is None:
        return largest(points)
    of_elements = largest(jnp.where(mask[:, None], points, -jnp.inf))
    return jnp.where(jnp.isneginf(of_elements), 0, of_elements)

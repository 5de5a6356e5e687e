"""The set that a layer is given: an array (n, d), or a `PointSet` with a mask."""

from typing import Any, TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...data.sets import PointSet
from ..normalisation import has_batch_norm

# A set of n elements: an array with a row for each, or rows with a mask.
Elements: TypeAlias = Float[Array, "n d"] | PointSet


def split_set(
    name: str, x: Any, d: int | None = None
) -> tuple[Float[Array, "n d"], Bool[Array, " n"] | None]:
    """The rows of a set, and its mask, None for an array; raises `ValueError` unless the elements
    are `d` floats each.

    >>> split_set("DeepSets", jnp.zeros((4, 2)), 3)
    Traceback (most recent call last):
    ValueError: DeepSets: expected a set of shape (n, 3), a row for each element; got (4, 2).
    """
    points, mask = (x.points, x.mask) if isinstance(x, PointSet) else (x, None)
    shape = f"(n, {'d' if d is None else d})"
    if points.ndim == 3 and d in (None, points.shape[2]):
        raise ValueError(
            f"{name}: expected one set of shape {shape}; got a batch of shape {points.shape}. Map "
            "over it with thetax.core.predict(model, xs)."
        )
    if points.ndim != 2 or (d is not None and points.shape[1] != d):
        raise ValueError(
            f"{name}: expected a set of shape {shape}, a row for each element; got {points.shape}."
        )
    if not jnp.issubdtype(points.dtype, jnp.floating):
        raise ValueError(
            f"{name}: elements are floats; got {points.dtype}. Convert them, or encode classes by "
            "jax.nn.one_hot."
        )
    return points, mask


def join_set(x: Any, points: Float[Array, "n d"]) -> Any:
    """New rows for the elements of `x`: an array if `x` is one, and otherwise a `PointSet` with its
    mask and zeros as padding.

    >>> x = PointSet.pad(jnp.ones((1, 2)), size=2)
    >>> join_set(x, jnp.ones((2, 1))).points.tolist()
    [[1.0], [0.0]]
    """
    return x.with_points(points) if isinstance(x, PointSet) else points


def expect_no_batch_norm(name: str, model: Any) -> None:
    """Raises `ValueError` if a network of single elements contains a `BatchNorm`, which would use
    other statistics for every row.

    >>> expect_no_batch_norm("DeepSets: phi", jnp.tanh)
    """
    if has_batch_norm(model):
        raise ValueError(
            f"{name}: batch normalisation inside a network of single elements would compute the "
            "mean of every row by itself. Use LayerNorm, or SharedMLP for the whole set."
        )

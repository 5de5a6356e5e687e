r"""Sets as data: an array with a row for each element, or a padded array with a mask (§7.1).

A set of $n$ elements of $\mathbb{R}^d$ is an array of shape (n, d), in any order of the rows. All
layers and models for sets take such an array. Sets of different sizes become examples of one shape
as `PointSet`: padded rows, and a mask that tells which rows are elements.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Shaped

from ...check import check_numbers


class PointSet(eqx.Module):
    r"""A set with padding: `points` has shape (n, d), and `mask`, of shape (n,), is true for the
    rows that are elements.

    It is one example, wherever models take examples: `stack_sets` makes a batch, `predict` and
    `jax.vmap` map over it. The values of padded rows have no effect on what is computed for the
    elements. Without padding an array (n, d) does the same, and it can be attacked and explained
    directly. For a padded set fix the mask: `attack(lambda points: model(x.with_points(points)),
    x.points, y)`.

    >>> x = PointSet.pad(np.array([[1.0, 2.0], [3.0, 4.0]]), size=3)
    >>> x.points.tolist(), x.mask.tolist()
    ([[1.0, 2.0], [3.0, 4.0], [0.0, 0.0]], [True, True, False])
    """

    points: Shaped[Array, "*b n d"]
    mask: Bool[Array, "*b n"]

    @classmethod
    def pad(cls, points: Any, *, size: int | None = None) -> "PointSet":
        """The set with rows of zeros up to `size` rows.

        >>> PointSet.pad(np.ones((3, 2)), size=2)
        Traceback (most recent call last):
        ValueError: PointSet.pad: 3 elements do not fit into size=2. Use a larger size, or ...
        """
        points = _check_elements("PointSet.pad", points)
        n = len(points)
        size = n if size is None else size
        if size < n:
            raise ValueError(
                f"PointSet.pad: {n} elements do not fit into size={size}. Use a larger size, or "
                "choose some of the elements."
            )
        return cls(jnp.pad(jnp.asarray(points), ((0, size - n), (0, 0))), jnp.arange(size) < n)

    def with_points(self, points: Shaped[Array, "n e"]) -> "PointSet":
        """The same mask with other rows, what a layer returns; padded rows become 0."""
        if points.shape[:1] != self.points.shape[:1]:
            raise ValueError(
                f"with_points: expected a row for each of the {len(self.points)} rows, got shape "
                f"{points.shape}."
            )
        return PointSet(jnp.where(self.mask[:, None], points, 0), self.mask)


def stack_sets(sets: Sequence[Any], *, size: int | None = None) -> PointSet:
    """Sets of different sizes as examples: padded to the same size, by default that of the largest,
    and stacked along a new first axis.

    >>> xs = stack_sets([np.ones((2, 3)), np.ones((5, 3))])
    >>> xs.points.shape, xs.mask.sum(axis=1).tolist()
    ((2, 5, 3), [2, 5])
    """
    if not len(sets):
        raise ValueError("stack_sets: expected at least one set, got an empty sequence.")
    arrays = [_check_elements(f"stack_sets: set {i}", points) for i, points in enumerate(sets)]
    widths = {points.shape[1] for points in arrays}
    if len(widths) > 1:
        raise ValueError(
            "stack_sets: all elements must have the same number of features; got "
            f"{' and '.join(map(str, sorted(widths)))}."
        )
    largest = max(len(points) for points in arrays)
    size = largest if size is None else size
    if size < largest:
        raise ValueError(
            f"stack_sets: the largest set has {largest} elements and does not fit into size={size}."
        )
    dtype = np.result_type(*(points.dtype for points in arrays))
    rows = np.zeros((len(arrays), size, widths.pop()), dtype)
    for row, points in zip(rows, arrays):
        row[: len(points)] = points
    sizes = np.array([len(points) for points in arrays])
    return PointSet(jnp.asarray(rows), jnp.asarray(np.arange(size) < sizes[:, None]))


def _check_elements(name: str, points: Any) -> Any:
    if np.ndim(points) != 2:
        raise ValueError(
            f"{name}: expected shape (n, d), a row for each element; got {np.shape(points)}. A set "
            "of numbers has the shape (n, 1)."
        )
    return check_numbers(points, name=name) if len(points) else np.asarray(points)

"""Points with labels -1 and +1 that a known hyperplane separates."""

from typing import Any

import numpy as np


def separable_points(
    rng: np.random.Generator, *shape: int, gap: float, step: float | None = None
) -> tuple[Any, Any, Any]:
    r"""Gaussian points of shape (..., n, d), moved away from a random hyperplane through 0 by
    `gap`; their labels; the unit normals of the hyperplanes.

    With a `step`, coordinates are rounded to its multiples (a power of two makes their sums exact),
    and the gap holds only approximately.
    """
    xs = rng.normal(size=shape)
    u = rng.normal(size=(*shape[:-2], shape[-1]))
    u /= np.linalg.norm(u, axis=-1, keepdims=True)
    side = np.einsum("...nd,...d->...n", xs, u)
    xs = xs + gap * np.sign(side)[..., None] * u[..., None, :]
    return (xs if step is None else np.round(xs / step) * step), np.sign(side), u

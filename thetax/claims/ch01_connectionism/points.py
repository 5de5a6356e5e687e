"""Points with labels -1 and +1 that a known hyperplane separates."""

from typing import Any

import numpy as np


def planted(
    rng: np.random.Generator, *shape: int, gap: float, step: float | None = None
) -> tuple[Any, Any, Any]:
    r"""Normal points of shape (..., n, d), pushed away from a random plane through 0 by `gap`;
    labels; unit normals.

    With a step, coordinates are rounded to its multiples (a power of two makes sums of them exact),
    so that the gap is only nearly kept.
    """
    xs = rng.normal(size=shape)
    u = rng.normal(size=(*shape[:-2], shape[-1]))
    u /= np.linalg.norm(u, axis=-1, keepdims=True)
    side = np.einsum("...nd,...d->...n", xs, u)
    xs = xs + gap * np.sign(side)[..., None] * u[..., None, :]
    return (xs if step is None else np.round(xs / step) * step), np.sign(side), u

r"""Point clouds of meshes: points drawn uniformly by area (§7.3).

A mesh is an array (t, 3, 3): the three corners of $t$ triangles.
"""

import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ...check import check_numbers, expect_count

Triangles = Float[np.ndarray, "t 3 3"]


def mesh_areas(triangles: Triangles) -> Float[np.ndarray, " t"]:
    r"""The areas of the triangles, $\frac{1}{2} \|(b - a) \times (c - a)\|$.

    >>> mesh_areas(np.array([[[0.0, 0, 0], [2, 0, 0], [0, 1, 0]]])).tolist()
    [1.0]
    """
    corners = np.asarray(triangles, np.float64)
    sides = corners[:, 1:] - corners[:, :1]
    return np.linalg.norm(np.cross(sides[:, 0], sides[:, 1]), axis=1) / 2


def sample_mesh(
    triangles: Triangles, n: int, *, key: PRNGKeyArray
) -> tuple[Float[np.ndarray, "n 3"], np.ndarray]:
    """Draws `n` points uniformly by area from a mesh; returns them and the triangle of each.

    It runs in NumPy, so that meshes of different sizes need no compilation.

    >>> square = np.array([[[0.0, 0, 0], [1, 0, 0], [1, 1, 0]], [[0, 0, 0], [1, 1, 0], [0, 1, 0]]])
    >>> points, chosen = sample_mesh(square, 1000, key=jr.key(0))
    >>> points.shape, bool(points.min() >= 0), bool(abs(chosen.mean() - 0.5) < 0.1)
    ((1000, 3), True, True)
    """
    expect_count("sample_mesh", n=n)
    triangles = check_numbers(triangles, name="sample_mesh: triangles")
    if triangles.ndim != 3 or triangles.shape[1:] != (3, 3):
        raise ValueError(
            "sample_mesh: triangles: expected shape (t, 3, 3), three corners of each triangle; got "
            f"{triangles.shape}."
        )
    areas = mesh_areas(triangles)
    total = areas.sum()
    if not total > 0:
        raise ValueError("sample_mesh: the mesh has the area 0, so no point can be drawn.")
    rng = np.random.default_rng(np.asarray(jr.key_data(key)).ravel())
    chosen = rng.choice(len(areas), size=n, p=areas / total)
    root, share = np.sqrt(rng.random(n)), rng.random(n)
    weights = np.stack([1 - root, root * (1 - share), root * share], axis=1)
    points = np.einsum("nk,nkd->nd", weights, triangles[chosen])
    return points.astype(triangles.dtype), chosen

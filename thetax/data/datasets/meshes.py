"""Labelled meshes by name, and point clouds drawn from them."""

from pathlib import Path
from typing import NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import Float32, Int32, PRNGKeyArray

from ...check import expect_count
from ..sets.mesh import sample_mesh
from .point_clouds import CAD_PARTS, KICAD_CLASSES, YCB_OBJECTS
from .store import load_arrays

_MESHES = {"ycb": (YCB_OBJECTS, ()), "cad": (KICAD_CLASSES, CAD_PARTS)}


class Meshes(NamedTuple):
    """Labelled meshes."""

    triangles: list[np.ndarray]  # float32 (t, 3, 3), the corners of the triangles of each mesh
    parts: list[np.ndarray]  # int32 (t,), the part of each triangle, an index into `part_names`
    labels: Int32[np.ndarray, " n"]  # indices into `classes`
    classes: tuple[str, ...]
    part_names: tuple[str, ...]  # empty if the parts are not known

    def select(self, index: np.ndarray) -> "Meshes":
        """A subset of the meshes, given by integer indices.

        >>> cube = np.zeros((12, 3, 3), np.float32)
        >>> meshes = Meshes([cube, cube], [], np.zeros(2, np.int32), ("cube",), ())
        >>> len(meshes.select(np.array([1])).triangles)
        1
        """
        rows = np.asarray(index).tolist()
        return self._replace(
            triangles=[self.triangles[row] for row in rows],
            parts=[self.parts[row] for row in rows] if self.parts else [],
            labels=self.labels[rows],
        )


def load_meshes(name: str, *, folder: str | Path | None = None) -> Meshes:
    """The meshes `"ycb"` (78 household objects, in metres, each a class of its own) or `"cad"` (600
    models of electronic parts in 10 classes, with the parts body and metal).

    In `"cad"` several models of a class differ only in the number of pins or in a length.
    """
    if name not in _MESHES:
        raise ValueError(f"load_meshes: name is 'ycb' or 'cad'; got {name!r}.")
    classes, part_names = _MESHES[name]
    arrays = load_arrays(name, folder=folder)
    cuts = arrays["ends"][:-1]
    labels = arrays.get("labels", np.arange(len(arrays["ends"])))
    parts = arrays.get("parts")
    return Meshes(
        np.split(arrays["triangles"], cuts),
        [] if parts is None else np.split(parts.astype(np.int32), cuts),
        labels.astype(np.int32),
        classes,
        part_names,
    )


class MeshClouds(NamedTuple):
    """Point clouds drawn from meshes."""

    points: Float32[np.ndarray, "n p 3"]
    labels: Int32[np.ndarray, " n"]
    parts: Int32[np.ndarray, "n p"] | None  # of every point, if the meshes have parts


def mesh_clouds(
    meshes: Meshes, *, n_points: int = 256, per_mesh: int = 1, key: PRNGKeyArray
) -> MeshClouds:
    """Draws `per_mesh` clouds of `n_points` points uniformly by area from each mesh.

    The clouds of a mesh follow one another, in the mesh's own coordinates.

    >>> square = np.array([[[0.0, 0, 0], [1, 0, 0], [1, 1, 0]], [[0, 0, 0], [1, 1, 0], [0, 1, 0]]])
    >>> meshes = Meshes([square.astype(np.float32)], [], np.zeros(1, np.int32), ("square",), ())
    >>> mesh_clouds(meshes, n_points=5, per_mesh=2, key=jr.key(0)).points.shape
    (2, 5, 3)
    """
    expect_count("mesh_clouds", n_points=n_points, per_mesh=per_mesh)
    n = len(meshes.triangles)
    points = np.empty((n, per_mesh, n_points, 3), np.float32)
    parts = np.empty((n, per_mesh, n_points), np.int32)
    for i, (mesh_key, triangles) in enumerate(zip(jr.split(key, n), meshes.triangles)):
        drawn, chosen = sample_mesh(triangles, per_mesh * n_points, key=mesh_key)
        points[i] = drawn.reshape(per_mesh, n_points, 3)
        if meshes.parts:
            parts[i] = meshes.parts[i][chosen].reshape(per_mesh, n_points)
    return MeshClouds(
        points.reshape(-1, n_points, 3),
        np.repeat(meshes.labels, per_mesh),
        parts.reshape(-1, n_points) if meshes.parts else None,
    )

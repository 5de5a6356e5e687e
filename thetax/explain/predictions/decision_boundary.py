r"""Decision boundary of a classifier on a plane of inputs (§2.6).

A piecewise linear network has logits $A_i s + c_i$ on each linear region, so the boundary between
two classes is a line there, $\{s : z_j(s) = z_l(s)\}$, where no third logit is larger: the boundary
is a set of segments, computed exactly. For any classifier the predicted class is evaluated on a
grid.
"""

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ...core import Batch, Model, as_floats
from ...layers import Chain, Linear
from ...models import MLP
from ..class_probabilities import integer_labels, log_probabilities
from ..linear_regions.piecewise import NotPiecewiseLinear
from ..linear_regions.polygons import TooManyRegions
from ..linear_regions.regions import InputPlane, LinearRegions, enumerate_regions
from .version_space import hyperplane


@dataclass(frozen=True)
class DecisionBoundary:
    """The predicted class at each point of a grid and, for a piecewise linear network, its linear
    regions and the exact boundary.
    """

    image: Int[np.ndarray, "g g"]  # predicted classes, rows from the bottom up
    plane: InputPlane
    regions: LinearRegions | None
    segments: Float[np.ndarray, "s 2 2"]  # both ends of each segment of the boundary
    pairs: Int[np.ndarray, "s 2"]  # the classes on both sides of each segment
    reason: str  # why there are no regions
    points: Float[np.ndarray, "n 2"]  # examples, projected onto the plane
    labels: Int[np.ndarray, " n"]
    distances: Float[np.ndarray, " n"]  # of the examples from the plane
    classes: tuple[str, ...]


def decision_boundary(
    model: Model,
    plane: InputPlane,
    *,
    examples: Batch | None = None,
    classes: tuple[str, ...] = (),
    grid: int = 200,
    max_regions: int = 50_000,
) -> DecisionBoundary:
    """Decision boundary of any classifier on a plane of inputs, with labelled `examples` projected
    onto it.

    If the rectangle has more than `max_regions` linear regions, it is halved about its centre until
    it has not. For a network that is not piecewise linear only the `grid` x `grid` image is
    computed, and `reason` says why; for a perceptron the boundary is exact.

    >>> from thetax.layers import Linear
    >>> from thetax.explain import input_plane
    >>> model = Linear(jnp.array([[2.0, 0.0]]), jnp.array([-1.0]))
    >>> result = decision_boundary(model, input_plane(-1.0, 1.0), grid=4)
    >>> result.segments.tolist(), result.image[0].tolist()
    ([[[0.5, -1.0], [0.5, 1.0]]], [0, 0, 0, 1])
    """
    if grid < 2:
        raise ValueError(f"decision_boundary: grid must be at least 2; got {grid}.")
    regions, reason = None, ""
    while regions is None and not reason:
        try:
            regions = enumerate_regions(model, plane, max_regions=max_regions)
        except TooManyRegions:
            plane = plane.zoom(0.5)
        except NotPiecewiseLinear as error:
            reason = error.reason
    image, k = _classes_on(model, plane, grid)
    segments, pairs = _segments(regions if regions is not None else _half_planes(model, plane))
    names = classes or tuple(str(j) for j in range(k))
    points, labels, distances = _project_examples(plane, examples, k)
    return DecisionBoundary(
        image, plane, regions, segments, pairs, reason, points, labels, distances, names
    )


def _project_examples(
    plane: InputPlane, examples: Batch | None, k: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if examples is None:
        return np.zeros((0, 2)), np.zeros(0, np.int64), np.zeros(0)
    xs, ys = (np.asarray(part) for part in examples)
    points = plane.coordinates(xs)
    residuals = (xs - plane.inputs(points)).reshape(len(xs), -1)
    return points, integer_labels(ys, k), np.linalg.norm(residuals, axis=1)


def _classes_on(model: Any, plane: InputPlane, grid: int) -> tuple[Int[np.ndarray, "g g"], int]:
    """The predicted class at the centre of each grid square, row by row, and the number of
    classes.
    """
    centres = (np.arange(grid) + 0.5) / grid
    across, up = (low + centres * (high - low) for low, high in zip(plane.low, plane.high))
    span = [
        jnp.asarray(part, jnp.result_type(float)) for part in (plane.origin, plane.axes, across, up)
    ]
    best, k = _rows(model, *span)
    return np.asarray(best), int(k.shape[0])


@jax.jit
def _rows(model: Any, origin: Array, axes: Array, across: Array, up: Array) -> tuple[Array, Array]:
    def row(height):
        shift = across.reshape(-1, *(1,) * origin.ndim) * axes[:1] + (height * axes[1])[None]
        return log_probabilities(model, origin[None] + shift)

    log_p = jax.eval_shape(row, up[0])
    return jax.lax.map(lambda height: row(height).argmax(axis=1), up), jnp.zeros(log_p.shape[1])


def _half_planes(model: Model, plane: InputPlane) -> LinearRegions | None:
    """The linear score of a classifier with a hyperplane (a perceptron outputs only its sign), as
    linear regions.
    """
    separator = hyperplane(model)
    if separator is None:
        return None
    row = lambda part: as_floats("decision_boundary", part)[None]
    score = Linear(row(separator.w), None if separator.b is None else row(separator.b))
    return enumerate_regions(MLP(Chain(score)), plane)


def _segments(
    regions: LinearRegions | None,
) -> tuple[Float[np.ndarray, "s 2 2"], Int[np.ndarray, "s 2"]]:
    """The boundary segments of all regions, and the two classes of each."""
    if regions is None:
        return np.zeros((0, 2, 2)), np.zeros((0, 2), np.int64)
    A, c = regions.A, regions.c
    if A.shape[1] == 1:  # log-odds z are the logits (0, z)
        A = np.concatenate([0 * A, A], axis=1)
        c = np.concatenate([0 * c, c], axis=1)
    logits = np.einsum("pkd,pmd->pkm", regions.corners, A) + c[:, None]
    best = logits.argmax(axis=2)
    # Logits are affine on a region: if all corners have one class, no boundary crosses it.
    mixed = np.flatnonzero((best != best[:, :1]).any(axis=1))
    corners, logits, A, c = (part[mixed] for part in (regions.corners, logits, A, c))
    segments = [np.zeros((0, 2, 2))]
    pairs = [np.zeros((0, 2), np.int64)]
    for j, l in combinations(range(A.shape[1]), 2):
        ends = _segments_between(corners, logits, A, c, j, l)
        segments.append(ends)
        pairs.append(np.tile([[j, l]], (len(ends), 1)))
    return np.concatenate(segments), np.concatenate(pairs)


def _segments_between(
    corners: np.ndarray, logits: np.ndarray, A: np.ndarray, c: np.ndarray, j: int, l: int
) -> np.ndarray:
    """The segment of each region on which logits $j$ and $l$ are equal and no other is larger, for
    the regions that have one.
    """
    gap = logits[..., j] - logits[..., l]
    next_gap = np.roll(gap, -1, axis=1)
    changes = (gap >= 0) != (next_gap >= 0)  # edges of the polygon that the line crosses
    crossed = np.flatnonzero(changes.sum(axis=1) == 2)
    first = changes[crossed].argmax(axis=1)
    second = changes.shape[1] - 1 - changes[crossed, ::-1].argmax(axis=1)
    ends = np.stack(
        [_zero_on_edge(corners[crossed], gap[crossed], edge) for edge in (first, second)], axis=1
    )
    z = np.einsum("ped,pmd->pem", ends, A[crossed]) + c[crossed][:, None]
    # By how much the two logits exceed every other one, at both ends: affine along the segment.
    lead = np.maximum(z[..., j], z[..., l])[..., None] - z
    lead[..., [j, l]] = 0.0
    start = lead[:, 0]
    stop = lead[:, 1]
    zero = np.divide(start, start - stop, out=np.zeros_like(start), where=start != stop)
    enters = np.where((start < 0) & (stop >= 0), zero, np.where(start < 0, 1.0, 0.0)).max(axis=1)
    leaves = np.where((start >= 0) & (stop < 0), zero, np.where(stop < 0, 0.0, 1.0)).min(axis=1)
    nonempty = leaves > enters
    t = np.stack([enters, leaves], axis=1)[nonempty][..., None]
    return ends[nonempty, :1] + t * (ends[nonempty, 1:] - ends[nonempty, :1])


def _zero_on_edge(corners: np.ndarray, gap: np.ndarray, edge: np.ndarray) -> np.ndarray:
    """The zero of an affine function on one edge of each polygon; edge $i$ begins at corner $i$."""
    row = np.arange(len(gap))
    after = (edge + 1) % gap.shape[1]
    a = gap[row, edge]
    b = gap[row, after]
    return corners[row, edge] + (a / (a - b))[:, None] * (corners[row, after] - corners[row, edge])

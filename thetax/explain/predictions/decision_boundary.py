r"""Where a classifier changes its mind, on a window of a plane of inputs (§2.6).

A piecewise linear network has logits $A_i s + c_i$ on each cell, so that the border between two
classes is a line there, $\{s : z_j(s) = z_l(s)\}$, as far as no third logit is larger: the boundary
is a set of segments, computed and not sampled. Of any classifier there is a picture of the class at
each point of a grid.
"""

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ...core import Batch, Model, floats
from ...layers import Chain, Linear
from ...models import MLP
from ..class_probabilities import belief, truth
from ..linear_regions.piecewise import NotPiecewiseLinear
from ..linear_regions.polygons import TooMany
from ..linear_regions.regions import Regions, Window, regions
from .version_space import hyperplane


@dataclass(frozen=True)
class Boundary:
    """The class at each point of a grid, and, for a piecewise linear network, its cells and its
    exact borders.
    """

    image: Int[np.ndarray, "g g"]  # rows from the bottom up
    window: Window
    regions: Regions | None
    segments: Float[np.ndarray, "s 2 2"]  # both ends of each piece of border
    pairs: Int[np.ndarray, "s 2"]  # the classes on its two sides
    reason: str  # why there are no cells
    places: Float[np.ndarray, "n 2"]  # examples, projected onto the plane
    labels: Int[np.ndarray, " n"]
    distances: Float[np.ndarray, " n"]  # of the examples from the plane
    classes: tuple[str, ...]


def boundary(
    model: Model,
    window: Window,
    *,
    examples: Batch | None = None,
    classes: tuple[str, ...] = (),
    grid: int = 200,
    most: int = 50_000,
) -> Boundary:
    """The decision boundary of any classifier on a window, with the labelled `examples` beside it.

    Where there are more than `most` cells the window is halved about its centre until there are
    not. A network that is not piecewise linear is seen on the grid alone, and `reason` says why; of
    a perceptron the border is exact.

    >>> from thetax.layers import Linear
    >>> from thetax.explain import window
    >>> found = boundary(
    ...     Linear(jnp.array([[2.0, 0.0]]), jnp.array([-1.0])), window(-1.0, 1.0), grid=4
    ... )
    >>> found.segments.tolist(), found.image[0].tolist()
    ([[[0.5, -1.0], [0.5, 1.0]]], [0, 0, 0, 1])
    """
    if grid < 2:
        raise ValueError(f"boundary: the grid needs at least 2 points a side; got {grid}.")
    found, reason = None, ""
    while found is None and not reason:
        try:
            found = regions(model, window, most=most)
        except TooMany:
            window = window.zoomed(0.5)
        except NotPiecewiseLinear as refusal:
            reason = refusal.reason
    image, k = _classes_on(model, window, grid)
    segments, pairs = _borders(found if found is not None else _sides(model, window))
    names = classes or tuple(str(j) for j in range(k))
    return Boundary(
        image, window, found, segments, pairs, reason, *_seen_from(window, examples, k), names
    )


def _seen_from(
    window: Window, examples: Batch | None, k: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if examples is None:
        return np.zeros((0, 2)), np.zeros(0, np.int64), np.zeros(0)
    xs, ys = (np.asarray(part) for part in examples)
    places = window.places(xs)
    away = (xs - window.inputs(places)).reshape(len(xs), -1)
    return places, truth(ys, k), np.linalg.norm(away, axis=1)


def _classes_on(model: Any, window: Window, grid: int) -> tuple[Int[np.ndarray, "g g"], int]:
    """The class at the middle of each of the grid's squares, row by row, and how many classes there
    are.
    """
    shares = (np.arange(grid) + 0.5) / grid
    across, up = (low + shares * (high - low) for low, high in zip(window.low, window.high))
    span = [
        jnp.asarray(part, jnp.result_type(float))
        for part in (window.origin, window.axes, across, up)
    ]
    best, k = _rows(model, *span)
    return np.asarray(best), int(k.shape[0])


@jax.jit
def _rows(model: Any, origin: Array, axes: Array, across: Array, up: Array) -> tuple[Array, Array]:
    def row(height):
        shift = across.reshape(-1, *(1,) * origin.ndim) * axes[:1] + (height * axes[1])[None]
        return belief(model, origin[None] + shift)

    log_p = jax.eval_shape(row, up[0])
    return jax.lax.map(lambda height: row(height).argmax(axis=1), up), jnp.zeros(log_p.shape[1])


def _sides(model: Model, window: Window) -> Regions | None:
    """The score of a classifier with a hyperplane, whatever it makes of its sign; its border is a
    line as well.
    """
    plane = hyperplane(model)
    if plane is None:
        return None
    row = lambda part: floats("boundary", part)[None]
    return regions(
        MLP(Chain(Linear(row(plane.w), None if plane.b is None else row(plane.b)))), window
    )


def _borders(found: Regions | None) -> tuple[Float[np.ndarray, "s 2 2"], Int[np.ndarray, "s 2"]]:
    """The pieces of border in the cells in which not all corners are of one class; in the others
    there are none.
    """
    if found is None:
        return np.zeros((0, 2, 2)), np.zeros((0, 2), np.int64)
    A, c = found.A, found.c
    if A.shape[1] == 1:  # log-odds z are the logits (0, z)
        A = np.concatenate([0 * A, A], axis=1)
        c = np.concatenate([0 * c, c], axis=1)
    logits = np.einsum("pkd,pmd->pkm", found.corners, A) + c[:, None]
    best = logits.argmax(axis=2)
    mixed = np.flatnonzero((best != best[:, :1]).any(axis=1))
    corners, logits, A, c = (part[mixed] for part in (found.corners, logits, A, c))
    segments = [np.zeros((0, 2, 2))]
    pairs = [np.zeros((0, 2), np.int64)]
    for j, l in combinations(range(A.shape[1]), 2):
        ends = _border(corners, logits, A, c, j, l)
        segments.append(ends)
        pairs.append(np.tile([[j, l]], (len(ends), 1)))
    return np.concatenate(segments), np.concatenate(pairs)


def _border(
    corners: np.ndarray, logits: np.ndarray, A: np.ndarray, c: np.ndarray, j: int, l: int
) -> np.ndarray:
    """Where logits $j$ and $l$ are equal and no other is larger: both ends, in each cell that has
    such places.
    """
    gap = logits[..., j] - logits[..., l]
    after = np.roll(gap, -1, axis=1)
    meets = (gap >= 0) != (after >= 0)
    crossed = np.flatnonzero(meets.sum(axis=1) == 2)
    first = meets[crossed].argmax(axis=1)
    second = meets.shape[1] - 1 - meets[crossed, ::-1].argmax(axis=1)
    ends = np.stack(
        [_zero(corners[crossed], gap[crossed], place) for place in (first, second)], axis=1
    )
    z = np.einsum("ped,pmd->pem", ends, A[crossed]) + c[crossed][:, None]
    ahead = np.maximum(z[..., j], z[..., l])[..., None] - z  # of every class, at both ends
    ahead[..., [j, l]] = 0.0
    start = ahead[:, 0]
    stop = ahead[:, 1]
    share = np.divide(start, start - stop, out=np.zeros_like(start), where=start != stop)
    enters = np.where((start < 0) & (stop >= 0), share, np.where(start < 0, 1.0, 0.0)).max(axis=1)
    leaves = np.where((start >= 0) & (stop < 0), share, np.where(stop < 0, 0.0, 1.0)).min(axis=1)
    real = leaves > enters
    at = np.stack([enters, leaves], axis=1)[real][..., None]
    return ends[real, :1] + at * (ends[real, 1:] - ends[real, :1])


def _zero(corners: np.ndarray, gap: np.ndarray, place: np.ndarray) -> np.ndarray:
    """The zero of an affine function on the side of each polygon that begins at the given
    corner.
    """
    row = np.arange(len(gap))
    after = (place + 1) % gap.shape[1]
    a = gap[row, place]
    b = gap[row, after]
    return corners[row, place] + (a / (a - b))[:, None] * (
        corners[row, after] - corners[row, place]
    )

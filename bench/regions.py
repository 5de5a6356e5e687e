"""Exact enumeration of the linear regions of a ReLU network in a square, against a fine grid.

The number of activation patterns on a grid is a lower bound. For the check, the grid is refined
where several units change, until it finds every region.
"""

import time
from collections.abc import Callable
from functools import cache, partial

import jax
import jax.random as jr
import numpy as np

from thetax.certify import region_upper_bound
from thetax.explain import enumerate_regions, input_plane
from thetax.models import MLP

from .row import Row

SIDE = 2000  # grid points per side
HALF = 3.0  # half the side of the square
BLOCK = 20_000


@cache
def network(*sizes: int) -> MLP:
    """A random network with non-zero biases, so that the lines do not all meet."""
    leaves, structure = jax.tree.flatten(MLP.init(*sizes, key=jr.key(0)))
    leaves = [
        leaf if leaf.ndim > 1 else jr.normal(jr.fold_in(jr.key(1), i), leaf.shape) / 2
        for i, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(structure, leaves)


def exact(*sizes: int) -> int:
    """The number of regions in the square."""
    return enumerate_regions(network(*sizes), input_plane(-HALF, HALF)).n_regions


def patterns(model: MLP, xs: np.ndarray) -> np.ndarray:
    """The active units at each point, in NumPy."""
    active = []
    for layer in model.body.layers[:-1:2]:
        z = xs @ np.asarray(layer.W, np.float64).T + np.asarray(layer.b, np.float64)
        active.append(z > 0)
        xs = np.maximum(z, 0.0)
    return np.concatenate(active, axis=1)


def hashes(model: MLP, xs: np.ndarray) -> np.ndarray:
    """A hash of the pattern at each point; two patterns collide with probability 2^-45."""
    return np.concatenate(
        [_hash(patterns(model, part)) for part in np.array_split(xs, len(xs) // BLOCK + 1)]
    )


def _hash(active: np.ndarray) -> np.ndarray:
    return active.astype(np.float64) @ _codes(active.shape[1])  # integers, exact below 2^53


@cache
def _codes(units: int) -> np.ndarray:
    return np.random.default_rng(0).integers(1, 2**45, units).astype(np.float64)


def on_grid(*sizes: int, side: int = SIDE) -> np.ndarray:
    """The patterns on a regular grid."""
    t = np.linspace(-HALF, HALF, side)
    rows = [
        hashes(network(*sizes), np.stack(np.meshgrid(t, part), axis=-1).reshape(-1, 2))
        for part in np.split(t, 20)
    ]
    return np.unique(np.concatenate([np.unique(row) for row in rows]))


def on_refined_grid(*sizes: int, side: int = 512, levels: int = 12) -> np.ndarray:
    """The patterns on a grid that is refined where two or more units change."""
    model = network(*sizes)
    step = 2 * HALF / side
    t = (np.arange(side) + 0.5) * step - HALF
    pixels = np.stack(np.meshgrid(t, t), axis=-1).reshape(-1, 2)  # their centres
    around = np.array([[-1, -1], [1, -1], [-1, 1], [1, 1]])
    found = []
    for _ in range(levels):
        refine = np.zeros(len(pixels), bool)
        for part in np.array_split(np.arange(len(pixels)), len(pixels) // BLOCK + 1):
            corners = np.clip(pixels[part, None] + step * around, -HALF, HALF)  # of twice the pixel
            active = patterns(model, corners.reshape(-1, 2))
            found.append(np.unique(_hash(active)))
            active = active.reshape(len(part), 4, -1)
            refine[part] = (active.any(axis=1) & ~active.all(axis=1)).sum(axis=1) >= 2
        step /= 2
        pixels = (pixels[refine][:, None] + step / 2 * around).reshape(-1, 2)
    return np.unique(np.concatenate(found))


def agree(*sizes: int) -> None:
    """Raises unless the regions agree with both grids and with the upper bound."""
    model = network(*sizes)
    regions = enumerate_regions(model, input_plane(-HALF, HALF))
    ours = np.unique(hashes(model, regions.centres))
    assert len(ours) == regions.n_regions, "two regions have the same pattern"
    assert np.isin(on_grid(*sizes), ours).all(), "the grid has a region that was not found"
    assert np.array_equal(on_refined_grid(*sizes), ours), "the refined grid has other regions"
    assert abs(regions.areas.sum() / (2 * HALF) ** 2 - 1) < 1e-9, (
        "the regions do not fill the square"
    )
    assert regions.n_regions <= region_upper_bound(*sizes[1:-1], inputs=sizes[0]), (
        "more regions than the upper bound"
    )


def _milliseconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - start)


def _row(*sizes: int) -> Row:
    name = f"regions of {'-'.join(map(str, sizes))}"
    ours = partial(_milliseconds, partial(exact, *sizes))
    grid = partial(_milliseconds, partial(on_grid, *sizes))
    remark = lambda result: (
        f"{exact(*sizes):,} regions, {len(on_grid(*sizes)):,} of them on the grid; "
        f"upper bound {region_upper_bound(*sizes[1:-1], inputs=sizes[0]):,}"
    )
    peer = f"grid of {SIDE:,}²"
    return Row(
        name, peer, ours, grid, "ms", partial(agree, *sizes), pairs=3, target=1.0, remark=remark
    )


def describe() -> str:
    """A description of the work."""
    return (
        f"The linear regions of random ReLU networks in a square of side {2 * HALF:g} as polygons, "
        f"against the activation patterns at {SIDE**2:,} grid points, which miss some."
    )


def rows() -> list[Row]:
    """A deep and a wide network."""
    return [_row(2, 16, 16, 16, 1), _row(2, 64, 64, 1)]

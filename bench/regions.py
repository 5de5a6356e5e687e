"""Counting the linear regions of a ReLU network in a window: exactly, against the patterns seen on
a fine grid.

A grid can only miss cells, so its count is a lower bound. For the check its pixels are halved again
and again where several units change, which is where small cells hide; so refined it finds every
cell, and the two counts are the same.
"""

import time
from collections.abc import Callable
from functools import cache, partial

import jax
import jax.random as jr
import numpy as np

from thetax.certify import region_upper_bound
from thetax.explain import regions, window
from thetax.models import MLP

from .row import Row

SIDE = 2000  # points a side of the plain grid
HALF = 3.0  # the window is the square of twice this side about the origin
BLOCK = 20_000


@cache
def network(*sizes: int) -> MLP:
    """Weights as they are drawn for training, but biases that are not zero, so that the lines do
    not all meet.
    """
    leaves, structure = jax.tree.flatten(MLP.init(*sizes, key=jr.key(0)))
    drawn = [
        leaf if leaf.ndim > 1 else jr.normal(jr.fold_in(jr.key(1), i), leaf.shape) / 2
        for i, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(structure, drawn)


def exact(*sizes: int) -> int:
    """Every cell that meets the window."""
    return regions(network(*sizes), window(-HALF, HALF)).count


def patterns(model: MLP, xs: np.ndarray) -> np.ndarray:
    """Which units are on at each point, by the products of the layers."""
    on = []
    for layer in model.body.layers[:-1:2]:
        z = xs @ np.asarray(layer.W, np.float64).T + np.asarray(layer.b, np.float64)
        on.append(z > 0)
        xs = np.maximum(z, 0.0)
    return np.concatenate(on, axis=1)


def hashes(model: MLP, xs: np.ndarray) -> np.ndarray:
    """A number for the pattern at each point; two patterns have the same with a chance of 2^-45."""
    return np.concatenate(
        [_hashed(patterns(model, part)) for part in np.array_split(xs, len(xs) // BLOCK + 1)]
    )


def _hashed(on: np.ndarray) -> np.ndarray:
    return on.astype(np.float64) @ _words(on.shape[1])  # whole numbers, exact below 2^53


@cache
def _words(units: int) -> np.ndarray:
    return np.random.default_rng(0).integers(1, 2**45, units).astype(np.float64)


def on_grid(*sizes: int, side: int = SIDE) -> np.ndarray:
    """The patterns at the points of a plain grid."""
    t = np.linspace(-HALF, HALF, side)
    rows = [
        hashes(network(*sizes), np.stack(np.meshgrid(t, part), axis=-1).reshape(-1, 2))
        for part in np.split(t, 20)
    ]
    return np.unique(np.concatenate([np.unique(row) for row in rows]))


def on_refined_grid(*sizes: int, side: int = 512, levels: int = 12) -> np.ndarray:
    """The patterns at the corners of pixels, which are halved where two units or more change
    nearby.
    """
    model = network(*sizes)
    step = 2 * HALF / side
    t = (np.arange(side) + 0.5) * step - HALF
    pixels = np.stack(np.meshgrid(t, t), axis=-1).reshape(-1, 2)  # their middles
    around = np.array([[-1, -1], [1, -1], [-1, 1], [1, 1]])
    seen = []
    for _ in range(levels):
        busy = np.zeros(len(pixels), bool)
        for part in np.array_split(np.arange(len(pixels)), len(pixels) // BLOCK + 1):
            near = np.clip(pixels[part, None] + step * around, -HALF, HALF)  # twice the pixel
            on = patterns(model, near.reshape(-1, 2))
            seen.append(np.unique(_hashed(on)))
            on = on.reshape(len(part), 4, -1)
            busy[part] = (on.any(axis=1) & ~on.all(axis=1)).sum(axis=1) >= 2
        step /= 2
        pixels = (pixels[busy][:, None] + step / 2 * around).reshape(-1, 2)
    return np.unique(np.concatenate(seen))


def agree(*sizes: int) -> None:
    """Raises unless every grid sees only cells that were found, the refined one all of them, and
    theory allows it.
    """
    model = network(*sizes)
    found = regions(model, window(-HALF, HALF))
    ours = np.unique(hashes(model, found.centres))
    assert len(ours) == found.count, "two cells have one pattern"
    assert np.isin(on_grid(*sizes), ours).all(), "the grid sees a cell that was not found"
    assert np.array_equal(on_refined_grid(*sizes), ours), "the refined grid sees other cells"
    assert abs(found.areas.sum() / (2 * HALF) ** 2 - 1) < 1e-9, "the cells do not fill the window"
    assert found.count <= region_upper_bound(*sizes[1:-1], inputs=sizes[0]), (
        "there are more cells than there can be"
    )


def _milliseconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - began)


def _row(*sizes: int) -> Row:
    name = f"regions of {'-'.join(map(str, sizes))}"
    ours = partial(_milliseconds, partial(exact, *sizes))
    grid = partial(_milliseconds, partial(on_grid, *sizes))
    told = lambda result: (
        f"{exact(*sizes):,} cells; the grid sees {len(on_grid(*sizes)):,} of them, "
        f"and theory allows {region_upper_bound(*sizes[1:-1], inputs=sizes[0]):,}"
    )
    peer = f"grid of {SIDE:,}²"
    return Row(
        name, peer, ours, grid, "ms", partial(agree, *sizes), pairs=3, target=1.0, remark=told
    )


def count() -> str:
    """What is measured."""
    return (
        f"The linear regions of random ReLU networks in the square of side {2 * HALF:g}: every "
        f"cell as a polygon, against the patterns at {SIDE**2:,} points, which miss some."
    )


def rows() -> list[Row]:
    """A deep network and a wide one."""
    return [_row(2, 16, 16, 16, 1), _row(2, 64, 64, 1)]

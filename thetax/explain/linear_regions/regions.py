r"""The linear regions of a network (§2.6): the cells on which it is one affine map, enumerated and
not sampled.

`regions`         every cell that meets a window of a plane, as a polygon with its affine map
`count_regions`   how many cells there are in a box, or in the whole space, of few dimensions
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Int8, Shaped

from ...core import Model
from ...layers import Affine, Linear, WeightNorm
from ..modules import modules
from .affine_cells import begin
from .arrangement import deepest
from .piecewise import follow
from .polygons import square
from .polyhedra import Polyhedra

Numbers = Shaped[np.ndarray, "..."] | float | int | tuple[float, ...]


@dataclass(frozen=True)
class Window:
    r"""A rectangle of a plane of inputs: $x = o + s_1 a_1 + s_2 a_2$ for $l \le s \le h$."""

    origin: Float[np.ndarray, "*s"]
    axes: Float[np.ndarray, "2 *s"]
    low: Float[np.ndarray, " 2"]
    high: Float[np.ndarray, " 2"]

    def __post_init__(self):
        if not (np.isfinite([self.low, self.high]).all() and (self.low < self.high).all()):
            raise ValueError(
                f"Window: low must be below high, both finite; got {self.low} and {self.high}."
            )

    def inputs(self, places: Float[np.ndarray, "*p 2"]) -> Float[np.ndarray, "..."]:
        """The inputs at these places of the plane."""
        return self.origin + np.tensordot(places, self.axes, axes=1)

    def places(self, xs: Shaped[np.ndarray, "n ..."]) -> Float[np.ndarray, "n 2"]:
        """Where on the plane the nearest point to each input lies."""
        flat = (np.asarray(xs, np.float64) - self.origin).reshape(len(xs), -1)
        return flat @ np.linalg.pinv(self.axes.reshape(2, -1))

    def zoomed(self, factor: float) -> "Window":
        """The same window about the same centre, its sides multiplied by the factor."""
        centre = (self.high + self.low) / 2
        half = factor * (self.high - self.low) / 2
        return Window(self.origin, self.axes, centre - half, centre + half)


def window(low: Numbers, high: Numbers) -> Window:
    """A window on inputs of two numbers: the plane itself.

    >>> window(-1.0, 1.0).inputs(np.array([0.5, 0.25])).tolist()
    [0.5, 0.25]
    """
    corner = lambda values: np.broadcast_to(np.asarray(values, np.float64), (2,)).copy()
    return Window(np.zeros(2), np.eye(2), corner(low), corner(high))


def window_around(xs: Shaped[np.ndarray, "n 2"], *, margin: float = 0.15) -> Window:
    """The window on the plane that holds all the examples, with a margin in shares of its sides."""
    xs = np.asarray(xs, np.float64)
    if xs.ndim != 2 or xs.shape[1] != 2 or not len(xs):
        raise ValueError(
            f"window_around: expected examples of two numbers, (n, 2); got {xs.shape}."
        )
    low = xs.min(axis=0)
    high = xs.max(axis=0)
    room = margin * (high - low) + np.where(high > low, 0.0, 1.0)
    return window(low - room, high + room)


def window_through(xs: Shaped[np.ndarray, "3 ..."], *, margin: float = 0.25) -> Window:
    """A window on the plane through three examples, whose coordinates measure distances between
    inputs.

    The first example is the origin and the second lies on the first axis.

    >>> window_through(
    ...     np.array([[0.0, 0.0, 0.0], [2.0, 0.0, 0.0], [1.0, 0.0, 5.0]]), margin=0.0
    ... ).high.tolist()
    [2.0, 5.0]
    """
    xs = np.asarray(xs, np.float64)
    sides = (xs[1:] - xs[:1]).reshape(2, -1) if len(xs) == 3 else np.zeros((2, 0))
    if not np.linalg.matrix_rank(sides) == 2:
        raise ValueError(
            f"window_through: needs three examples that do not lie on a line; got {xs.shape}."
        )
    Q, R = np.linalg.qr(sides.T)
    Q = Q * np.sign(np.diag(R))[None]
    places = np.vstack([np.zeros(2), sides @ Q])
    low = places.min(axis=0)
    high = places.max(axis=0)
    room = margin * (high - low).max()
    return Window(xs[0], Q.T.reshape(2, *xs.shape[1:]), low - room, high + room)


@dataclass(frozen=True)
class Regions:
    r"""The cells that meet a window: on cell $i$ the network is $s \mapsto A_i s + c_i$, $s$ the
    place on the plane.
    """

    count: int
    maps: int  # how many different affine maps there are among them
    corners: Float[
        np.ndarray, "p k 2"
    ]  # anticlockwise; beyond its sides a polygon repeats its last corner
    sides: Int[np.ndarray, " p"]
    patterns: Int8[np.ndarray, "p u"]
    A: Float[np.ndarray, "p m 2"]
    c: Float[np.ndarray, "p m"]
    window: Window

    @property
    def areas(self) -> Float[np.ndarray, " p"]:
        """The area of each polygon."""
        x, y = np.moveaxis(self.corners - self.corners[:, :1], 2, 0)
        return (x[:, :-1] * y[:, 1:] - x[:, 1:] * y[:, :-1]).sum(axis=1) / 2

    @property
    def centres(self) -> Float[np.ndarray, "p 2"]:
        """A place inside each polygon: the mean of its corners."""
        real = np.arange(self.corners.shape[1])[None] < self.sides[:, None]
        return (self.corners * real[..., None]).sum(axis=1) / self.sides[:, None]

    @property
    def polygons(self) -> list[Float[np.ndarray, "k 2"]]:
        """The corners of each polygon by themselves."""
        return [corners[:sides] for corners, sides in zip(self.corners, self.sides)]


def regions(model: Model, window: Window, *, most: int = 200_000) -> Regions:
    r"""Every cell of a piecewise linear network that meets the window, by cutting polygons layer by
    layer (§2.6).

    Within a cell of the layers before, a unit is an affine function, and its zero line cuts the
    polygons it crosses in two. Cells thinner than $10^{-10}$ of the window are lost. The patterns
    of the units in one cell are the same and those of two cells are not. Networks that are not
    piecewise linear are refused (Serra et al. 2018; Humayun et al. 2023).

    >>> import jax, jax.numpy as jnp
    >>> from thetax.layers import Chain, Linear
    >>> three_lines = Linear(
    ...     jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), jnp.array([0.0, 0.0, -0.5])
    ... )
    >>> found = regions(Chain(three_lines, jax.nn.relu), window(-1.0, 1.0))
    >>> found.count, round(float(found.areas.sum()), 9)
    (7, 4.0)
    """
    centre = (window.high + window.low) / 2
    half = (window.high - window.low) / 2
    steps = half.reshape(2, *(1,) * window.origin.ndim)
    F = np.concatenate([window.axes * steps, window.inputs(centre)[None]])
    sheet = follow(model, begin(square(most), F[None]), name="regions")
    A = np.moveaxis(sheet.F[:, :2].reshape(len(sheet.F), 2, -1), 1, 2)
    at_centre = sheet.F[:, 2].reshape(len(A), -1)
    polygons = sheet.cells
    return Regions(
        count=len(A),
        maps=_different(np.concatenate([A.reshape(len(A), -1), at_centre], axis=1)),
        corners=polygons.corners * half + centre,  # type: ignore[attr-defined]
        sides=polygons.sides,  # type: ignore[attr-defined]
        patterns=sheet.patterns,
        A=A / half,
        c=at_centre - A / half @ centre,
        window=window,
    )


def _different(rows: Float[np.ndarray, "p q"]) -> int:
    """How many rows differ by more than rounding, told apart by their places along one random
    direction.
    """
    along = np.sort(rows @ np.random.default_rng(0).standard_normal(rows.shape[1]))
    return 1 + int((np.diff(along) > 1e-11 * (np.abs(rows).max(initial=0.0) or 1.0)).sum())


def count_regions(model: Model, low: Numbers, high: Numbers) -> int:
    r"""How many cells meet the open box $\prod_j (l_j, h_j)$; its sides may be infinite (§2.6).

    One number stands for all inputs. Each cell is a polyhedron in $\mathbb{R}^d$, and a linear
    program decides for each unit whether it crosses the cell: some hundred cells of thirty units
    take a second, so this is for few dimensions and some thousand cells; on a plane `regions` is a
    hundred times as fast.

    >>> import jax, jax.numpy as jnp
    >>> from thetax.layers import Chain, Linear
    >>> planes = Chain(Linear(jnp.eye(3), jnp.zeros(3)), jax.nn.relu)
    >>> count_regions(planes, -np.inf, np.inf)
    8
    """
    low, high = (np.asarray(side, np.float64) for side in (low, high))
    d = max([len(side) for side in (low, high) if side.ndim] or [_inputs(model)])
    if {low.shape, high.shape} <= {(), (d,)}:
        low = np.broadcast_to(low, d)
        high = np.broadcast_to(high, d)
    if low.shape != high.shape or low.ndim != 1 or not (low < high).all():
        raise ValueError(
            f"count_regions: needs low below high, a number for each input; got {low} and {high}."
        )
    W = np.vstack([np.eye(d), -np.eye(d)])
    b = np.concatenate([-low, high])
    walls = W[np.isfinite(b)], b[np.isfinite(b)]
    start = Polyhedra((walls,), deepest(*walls).point[None])
    box = begin(start, np.vstack([np.eye(d), np.zeros((1, d))])[None])
    return len(follow(model, box, name="count_regions").F)


def _inputs(model: Model) -> int:
    """How many numbers the network reads, by its first affine map."""
    for _, part in modules(model):
        match part:
            case Linear() | WeightNorm():
                return part.W.shape[1]
            case Affine():
                return len(part.gamma)
    raise ValueError(
        "count_regions: the model does not tell how many inputs it has; give low and high for each."
    )

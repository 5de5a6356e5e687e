r"""Linear regions of a network (§2.6): the cells on which it is one affine map, enumerated exactly,
not sampled.

`enumerate_regions`   every cell that meets a plane of inputs, as a polygon with its affine map
`count_regions`       number of cells in a box, or in the whole space, of few dimensions
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Int8, Shaped

from ...core import Model
from ...layers import Affine, Linear, WeightNorm
from ..modules import named_modules
from .affine_cells import start_propagation
from .arrangement import chebyshev_centre
from .piecewise import propagate_network
from .polygons import square
from .polyhedra import Polyhedra

Numbers = Shaped[np.ndarray, "..."] | float | int | tuple[float, ...]


@dataclass(frozen=True)
class InputPlane:
    r"""A rectangle in a plane of input space: $x = o + s_1 a_1 + s_2 a_2$ for $l \le s \le h$."""

    origin: Float[np.ndarray, "*s"]
    axes: Float[np.ndarray, "2 *s"]
    low: Float[np.ndarray, " 2"]
    high: Float[np.ndarray, " 2"]

    def __post_init__(self):
        if not (np.isfinite([self.low, self.high]).all() and (self.low < self.high).all()):
            raise ValueError(
                f"InputPlane: low must be below high, both finite; got {self.low} and {self.high}."
            )

    def inputs(self, coordinates: Float[np.ndarray, "*p 2"]) -> Float[np.ndarray, "..."]:
        """The inputs at coordinates $s$ of the plane."""
        return self.origin + np.tensordot(coordinates, self.axes, axes=1)

    def coordinates(self, xs: Shaped[np.ndarray, "n ..."]) -> Float[np.ndarray, "n 2"]:
        """The coordinates $s$ of each input's orthogonal projection onto the plane."""
        flat = (np.asarray(xs, np.float64) - self.origin).reshape(len(xs), -1)
        return flat @ np.linalg.pinv(self.axes.reshape(2, -1))

    def zoom(self, factor: float) -> "InputPlane":
        """The rectangle about the same centre with its sides multiplied by the factor."""
        centre = (self.high + self.low) / 2
        half = factor * (self.high - self.low) / 2
        return InputPlane(self.origin, self.axes, centre - half, centre + half)


def input_plane(low: Numbers, high: Numbers) -> InputPlane:
    """The rectangle from `low` to `high` in a two-dimensional input space.

    >>> input_plane(-1.0, 1.0).inputs(np.array([0.5, 0.25])).tolist()
    [0.5, 0.25]
    """
    corner = lambda values: np.broadcast_to(np.asarray(values, np.float64), (2,)).copy()
    return InputPlane(np.zeros(2), np.eye(2), corner(low), corner(high))


def input_plane_around(xs: Shaped[np.ndarray, "n 2"], *, margin: float = 0.15) -> InputPlane:
    """The smallest rectangle that contains all two-dimensional examples, plus a margin as a
    fraction of its sides.
    """
    xs = np.asarray(xs, np.float64)
    if xs.ndim != 2 or xs.shape[1] != 2 or not len(xs):
        raise ValueError(
            f"window_around: expected examples of two numbers, (n, 2); got {xs.shape}."
        )
    low = xs.min(axis=0)
    high = xs.max(axis=0)
    padding = margin * (high - low) + np.where(high > low, 0.0, 1.0)
    return input_plane(low - padding, high + padding)


def input_plane_through(xs: Shaped[np.ndarray, "3 ..."], *, margin: float = 0.25) -> InputPlane:
    """A rectangle in the plane through three examples, with orthonormal axes.

    The first example is the origin and the second lies on the first axis.

    >>> input_plane_through(
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
    coordinates = np.vstack([np.zeros(2), sides @ Q])
    low = coordinates.min(axis=0)
    high = coordinates.max(axis=0)
    padding = margin * (high - low).max()
    return InputPlane(xs[0], Q.T.reshape(2, *xs.shape[1:]), low - padding, high + padding)


@dataclass(frozen=True)
class LinearRegions:
    r"""The cells that meet an input plane: on cell $i$ the network is $s \mapsto A_i s + c_i$ in
    the coordinates $s$ of the plane.
    """

    n_regions: int
    n_affine_maps: int  # number of different affine maps among them
    corners: Float[np.ndarray, "p k 2"]  # anticlockwise, padded with the last corner
    n_corners: Int[np.ndarray, " p"]
    patterns: Int8[np.ndarray, "p u"]
    A: Float[np.ndarray, "p m 2"]
    c: Float[np.ndarray, "p m"]
    plane: InputPlane

    @property
    def areas(self) -> Float[np.ndarray, " p"]:
        """The area of each polygon."""
        x, y = np.moveaxis(self.corners - self.corners[:, :1], 2, 0)
        return (x[:, :-1] * y[:, 1:] - x[:, 1:] * y[:, :-1]).sum(axis=1) / 2

    @property
    def centres(self) -> Float[np.ndarray, "p 2"]:
        """A point inside each polygon: the mean of its corners."""
        real = np.arange(self.corners.shape[1])[None] < self.n_corners[:, None]
        return (self.corners * real[..., None]).sum(axis=1) / self.n_corners[:, None]

    @property
    def polygons(self) -> list[Float[np.ndarray, "k 2"]]:
        """The corners of each polygon, without padding."""
        return [corners[:n] for corners, n in zip(self.corners, self.n_corners)]


def enumerate_regions(
    model: Model, plane: InputPlane, *, max_regions: int = 200_000
) -> LinearRegions:
    r"""Enumerates the linear regions of a piecewise linear network on an input plane, by splitting
    polygons layer by layer (§2.6).

    Within a cell of the previous layers a unit is an affine function, and its zero line splits the
    polygons that it crosses. Cells thinner than $10^{-10}$ of the rectangle are lost. Each cell has
    one activation pattern, and different cells have different patterns. Raises `NotPiecewiseLinear`
    for other networks, and `TooManyRegions` beyond `max_regions` (Serra et al. 2018; Humayun et al.
    2023).

    >>> import jax, jax.numpy as jnp
    >>> from thetax.layers import Chain, Linear
    >>> three_lines = Linear(
    ...     jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), jnp.array([0.0, 0.0, -0.5])
    ... )
    >>> result = enumerate_regions(Chain(three_lines, jax.nn.relu), input_plane(-1.0, 1.0))
    >>> result.n_regions, round(float(result.areas.sum()), 9)
    (7, 4.0)
    """
    centre = (plane.high + plane.low) / 2
    half = (plane.high - plane.low) / 2
    steps = half.reshape(2, *(1,) * plane.origin.ndim)
    F = np.concatenate([plane.axes * steps, plane.inputs(centre)[None]])
    state = propagate_network(
        model, start_propagation(square(max_regions), F[None]), name="enumerate_regions"
    )
    A = np.moveaxis(state.F[:, :2].reshape(len(state.F), 2, -1), 1, 2)
    at_centre = state.F[:, 2].reshape(len(A), -1)
    polygons = state.geometry
    return LinearRegions(
        n_regions=len(A),
        n_affine_maps=_count_distinct(np.concatenate([A.reshape(len(A), -1), at_centre], axis=1)),
        corners=polygons.corners * half + centre,  # type: ignore[attr-defined]
        n_corners=polygons.n_corners,  # type: ignore[attr-defined]
        patterns=state.patterns,
        A=A / half,
        c=at_centre - A / half @ centre,
        plane=plane,
    )


def _count_distinct(rows: Float[np.ndarray, "p q"]) -> int:
    """Number of rows that differ by more than rounding, by their projections onto one random
    direction.
    """
    projections = np.sort(rows @ np.random.default_rng(0).standard_normal(rows.shape[1]))
    return 1 + int((np.diff(projections) > 1e-11 * (np.abs(rows).max(initial=0.0) or 1.0)).sum())


def count_regions(model: Model, low: Numbers, high: Numbers) -> int:
    r"""Counts the linear regions that meet the open box $\prod_j (l_j, h_j)$, which may be
    unbounded (§2.6).

    A scalar `low` or `high` applies to all inputs. Each cell is a polyhedron in $\mathbb{R}^d$, and
    a linear program decides for each unit whether it crosses the cell: a few hundred cells of
    thirty units take a second, so this is for few dimensions and a few thousand cells; on a plane
    `enumerate_regions` is a hundred times as fast.

    >>> import jax, jax.numpy as jnp
    >>> from thetax.layers import Chain, Linear
    >>> planes = Chain(Linear(jnp.eye(3), jnp.zeros(3)), jax.nn.relu)
    >>> count_regions(planes, -np.inf, np.inf)
    8
    """
    low, high = (np.asarray(side, np.float64) for side in (low, high))
    d = max([len(side) for side in (low, high) if side.ndim] or [_n_inputs(model)])
    if {low.shape, high.shape} <= {(), (d,)}:
        low = np.broadcast_to(low, d)
        high = np.broadcast_to(high, d)
    if low.shape != high.shape or low.ndim != 1 or not (low < high).all():
        raise ValueError(
            "count_regions: low must be below high, each a scalar or one value per input; got "
            f"{low} and {high}."
        )
    W = np.vstack([np.eye(d), -np.eye(d)])
    b = np.concatenate([-low, high])
    walls = W[np.isfinite(b)], b[np.isfinite(b)]
    start = Polyhedra((walls,), chebyshev_centre(*walls).point[None])
    box = start_propagation(start, np.vstack([np.eye(d), np.zeros((1, d))])[None])
    return len(propagate_network(model, box, name="count_regions").F)


def _n_inputs(model: Model) -> int:
    """Number of inputs of the network, from its first affine layer."""
    for _, part in named_modules(model):
        match part:
            case Linear() | WeightNorm():
                return part.W.shape[1]
            case Affine():
                return len(part.gamma)
    raise ValueError(
        "count_regions: cannot infer the number of inputs of the model; give low and high as "
        "arrays with one value per input."
    )

"""§2.6: piecewise linear functions as ReLU networks, and how well they approximate."""

from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy.ndimage import maximum_filter1d, minimum_filter1d
from scipy.optimize import linprog, minimize_scalar

from ... import explain, layers, models
from ...plot import Panel
from ..engine.check import at_least, at_most, between, close, decreasing, equal, refuted
from ..engine.claim import Verdict, claim, erratum


def _evaluate(net, x):
    """The outputs of a network of one hidden layer, from its weights, without compiling for each
    width.
    """
    hidden, _, output = net.body.layers
    h = np.maximum(x[:, None] * np.asarray(hidden.W)[:, 0] + np.asarray(hidden.b), 0)
    return h @ np.asarray(output.W)[0] + np.asarray(output.b)[0]


def _polygon(x, knots, values):
    """The piecewise linear function: interpolated between the knots, extended linearly beyond."""
    first, last = np.diff(values)[[0, -1]] / np.diff(knots)[[0, -1]]
    y = np.interp(x, knots, values)
    y = np.where(x < knots[0], values[0] + first * (x - knots[0]), y)
    return np.where(x > knots[-1], values[-1] + last * (x - knots[-1]), y)


def _random_polygon(rng, m):
    """A piecewise linear function of m pieces: m + 1 well separated knots, m - 1 of them kinks."""
    return np.cumsum(rng.uniform(0.2, 1.0, m + 1)) - m / 4, rng.normal(size=m + 1)


def _features(x, kinks):
    return np.concatenate(
        [x[:, None], np.ones((len(x), 1)), np.maximum(x[:, None] - kinks, 0)], axis=1
    )


@claim(
    "2.6-lebesgue",
    title="Piecewise linear functions are ReLU networks",
    kind="identity",
    of=("models.interpolating_network", "explain.breakpoints_1d"),
    cites="Lebesgue 1898; Shekhtman 1982",
)
def lebesgue(rng):
    r"""A continuous piecewise linear function with $m$ pieces and kinks $x_1 < \dots < x_{m-1}$ is
    $g(x) = ax + b + \sum_{i=1}^{m-1} c_i (x - x_i)_+$, with $a$ its first slope and $c_i$ the
    change of slope at $x_i$; the representation is unique.
    """
    errors = []
    network_errors = []
    ranks = []
    coefficient_errors = []
    pieces = []
    for m in range(1, 21):
        knots, values = _random_polygon(rng, m)
        x = rng.uniform(knots[0] - 2, knots[-1] + 2, 10_000)
        y = _polygon(x, knots, values)
        slopes = np.diff(values) / np.diff(knots)
        c = np.concatenate([slopes[:1], [values[0] - slopes[0] * knots[0]], np.diff(slopes)])
        errors.append(np.abs(_features(x, knots[1:-1]) @ c - y).max())
        net = models.interpolating_network(knots, values)
        network_errors.append(np.abs(_evaluate(net, x) - y).max())
        pieces.append(explain.breakpoints_1d(net, exact=False).n_pieces)
        coefficients, _, rank, _ = np.linalg.lstsq(_features(x, knots[1:-1]), y)
        ranks.append(rank)
        coefficient_errors.append(np.abs(coefficients - c).max())
    last_net = models.interpolating_network(knots, values)
    direct = np.asarray(jax.vmap(last_net)(jnp.asarray(x[:100])[:, None]))[:, 0]
    m = np.arange(1, 21)
    return Verdict(
        close("the formula, against the function", errors, np.zeros(20), tolerance=1e-10),
        close("the network, against the function", network_errors, np.zeros(20), tolerance=1e-10),
        close(
            "the network called as a model",
            direct,
            _polygon(x[:100], knots, values),
            tolerance=1e-10,
        ),
        equal("pieces of the network", pieces, m, method="exact"),
        equal("rank of 1, x and the units on random points", ranks, m + 1, method="brute force"),
        close(
            "coefficients found by least squares",
            coefficient_errors,
            np.zeros(20),
            tolerance=1e-8,
            method="brute force",
        ),
    )


@erratum(
    "2.6-lebesgue",
    title="Lebesgue's lemma needs continuity and an affine part",
    printed=r"\text{any piecewise linear function with } m \text{ pieces is a sum of } m - 1 "
    r"\text{ ReLUs}",
    corrected=r"\text{any continuous one is } ax + b \text{ plus a sum of } m - 1 \text{ ReLUs}",
    of=("models.interpolating_network",),
    cites="Lebesgue 1898",
    slip=True,
)
def lebesgue_needs_more(key):
    r"""The formula of the theorem has the affine part $ax + b$; the sentence after it does not
    mention it, and the word "continuous" is missing in both. A step has two pieces, but no
    continuous function is nearer to it than half its jump; and $g(x) = x$, of one piece, is not a
    sum of zero units: it needs the affine part, or two units, $x = (x)_+ - (-x)_+$. One unit, with
    any kink and direction, is not enough for two pieces."""
    x = np.concatenate([np.linspace(-1, 1, 201), [0.0]])
    step = np.where(np.arange(202) < 100, 0.0, 1.0)
    step[-1] = 0.0  # at 0, both one-sided limits
    tent = np.interp(x, [-1.0, 0.0, 1.0], [0.5, 1.0, -1.0])
    distance = lambda columns, y: _minimax(columns, y)
    shifted = x[:, None] - np.linspace(-2, 2, 41)
    units = np.maximum(np.concatenate([shifted, -shifted], axis=1), 0)  # (x − t)_+ and (t − x)_+
    best_single_unit = lambda y: min(distance(unit[:, None], y) for unit in units.T)
    one_kink = _features(x, np.zeros(1))
    all_columns = np.concatenate([one_kink, units], axis=1)
    no_units = np.zeros((202, 1))  # a sum of zero units
    two = models.interpolating_network(np.array([-1.0, 1.0]), np.array([-1.0, 1.0]))
    return Verdict(
        at_most(
            "a continuous function of two pieces, with the affine part",
            distance(one_kink, tent),
            1e-9,
        ),
        close("x, by two units", _evaluate(two, x), x),
        close(
            "least distance to a step: half its jump",
            distance(all_columns, step),
            0.5,
            tolerance=1e-9,
        ),
        printed=[
            at_most("a step of two pieces, by the best of 82 units", best_single_unit(step), 1e-9),
            at_most("a step, by all of them and an affine part", distance(all_columns, step), 1e-9),
            at_most(
                "a continuous function of two pieces, by the best of 82 units",
                best_single_unit(tent),
                1e-9,
            ),
            at_most("x, by zero units", distance(no_units, x), 1e-9),
        ],
    )


def _minimax(columns, y):
    """The minimax error of linear combinations of the columns, by a linear programme."""
    n, k = columns.shape
    one = np.ones((n, 1))
    A = np.block([[columns, -one], [-columns, -one]])
    free = [(None, None)] * k + [(0, None)]
    return linprog(np.append(np.zeros(k), 1.0), A_ub=A, b_ub=np.append(y, -y), bounds=free).fun


SMOOTH_FUNCTIONS = {
    "sin 2πx": (lambda x: np.sin(2 * np.pi * x), 4 * np.pi**2),
    "exp x": (np.exp, np.e),
}


@claim(
    "2.6-pl-rate",
    title="The rate of piecewise linear interpolation",
    kind="identity",
    of=("models.interpolating_network",),
    cites="de Boor 1978",
)
def interpolation_rate(key):
    r"""Interpolating $f \in C^2[0, 1]$ at $m + 1$ equidistant knots, which takes $m - 1$ ReLUs and
    an affine part, errs by at most $\max |f''| / (8 m^2)$.
    """
    widths = np.arange(2, 129)
    x = np.linspace(0, 1, 4001)
    errors = {}
    bounds = {}
    slopes = {}
    for name, (f, max_second) in SMOOTH_FUNCTIONS.items():
        knots = [np.linspace(0, 1, m + 1) for m in widths]
        errors[name] = np.array(
            [
                np.abs(_evaluate(models.interpolating_network(t, f(t)), x) - f(x)).max()
                for t in knots
            ]
        )
        bounds[name] = max_second / (8.0 * widths**2)
        slopes[name] = np.polyfit(np.log(widths), np.log(errors[name]), 1)[0]
    join = lambda by_name: np.concatenate(list(by_name.values()))
    return Verdict(
        at_most(
            "error of sin and exp, m = 2 to 128, against the bound",
            join(errors),
            join(bounds),
            slack=1e-12,
        ),
        *[
            between(f"slope of log error, {name}, m = 2 to 128", slope, -2.05, -1.95)
            for name, slope in slopes.items()
        ],
        at_least("error of exp, against half the bound", errors["exp x"], bounds["exp x"] / 2),
        refuted(at_most("half the bound for sin", errors["sin 2πx"], bounds["sin 2πx"] / 2)),
        figure=Panel(
            "pieces",
            "largest error",
            log="xy",
            lines={name: (widths, errors[name]) for name in SMOOTH_FUNCTIONS},
            bounds={f"bound for {name}": (widths, bounds[name]) for name in SMOOTH_FUNCTIONS},
        ),
    )


def _weierstrass(x):
    k = np.arange(12)
    return (0.5**k * np.cos(3.0**k * np.pi * x[:, None])).sum(axis=1)


@claim(
    "2.6-shekhtman",
    title="Piecewise linear functions are dense",
    kind="theorem",
    of=("models.interpolating_network",),
    cites="Shekhtman 1982",
)
def dense(key):
    r"""On a compact interval every continuous $f$ is a uniform limit of continuous piecewise linear
    functions: the one through $m + 1$ equidistant points errs by at most $\omega(f, 1/m)$, the
    largest difference of $f$ over a distance of $1/m$, which tends to 0 for every continuous $f$.
    """
    x = np.linspace(0, 1, 2**12 + 1)
    widths = 2 ** np.arange(1, 10)
    functions = {
        "root": lambda x: np.sqrt(np.abs(x - 1 / 3)),
        "sine": lambda x: np.sin(7 * x),
        "Weierstrass": _weierstrass,
    }
    errors = {}
    bounds = {}
    for name, f in functions.items():
        y = f(x)
        reach = 2 * (len(x) - 1) // widths + 1  # a window of width 1/m on either side
        bounds[name] = np.array(
            [
                max((maximum_filter1d(y, r) - y).max(), (y - minimum_filter1d(y, r)).max())
                for r in reach
            ]
        )
        knots = [np.linspace(0, 1, m + 1) for m in widths]
        errors[name] = np.array(
            [np.abs(_evaluate(models.interpolating_network(t, f(t)), x) - y).max() for t in knots]
        )
    join = lambda by_name: np.concatenate(list(by_name.values()))
    return Verdict(
        at_most(
            "error of three functions, against ω(f, 1/m)", join(errors), join(bounds), slack=1e-9
        ),
        *[
            decreasing(f"error, {name}, each time with 4 times the pieces", error[::2])
            for name, error in errors.items()
        ],
        at_most(
            "error of 512 pieces over error of 2",
            [error[-1] / error[0] for error in errors.values()],
            0.1,
        ),
        refuted(
            at_most(
                "error of the Weierstrass function, against m^-2",
                errors["Weierstrass"],
                1.0 / widths**2,
            )
        ),
        assumed=("the largest difference is taken over a grid of 4,097 points",),
        figure=Panel(
            "pieces",
            "largest error",
            log="xy",
            lines={name: (widths, errors[name]) for name in functions},
            bounds={"ω(f, 1/m), Weierstrass": (widths, bounds["Weierstrass"])},
        ),
    )


@claim(
    "2.6-relu-universal",
    title="ReLU networks are universal",
    kind="theorem",
    of=("models.ridge_network", "models.interpolating_network"),
    cites="Leshno, Lin, Pinkus & Schocken 1993",
)
def universal(key, scale):
    r"""ReLU networks with one hidden layer approximate every continuous function on a compact set
    of $\mathbb{R}^n$ uniformly: on the line by interpolation, in the plane by sums of ridge
    functions $(w^\top x + b)_+$.
    """
    key_t, *keys = jr.split(key, 4)
    side, widths, limit = (
        (45, (20, 100, 500), 0.005) if scale == "full" else (35, (20, 70, 200), 0.015)
    )
    xs = jnp.stack(jnp.meshgrid(*[jnp.linspace(-1, 1, side)] * 2), axis=-1).reshape(-1, 2)
    test_xs = jr.uniform(key_t, (1000, 2), minval=-1.0, maxval=1.0)
    bump = lambda xs: jnp.exp(-(xs**2).sum(axis=1))

    @partial(jax.jit, static_argnums=0)
    def test_error(width, key, test_xs):
        net = models.ridge_network(xs, bump(xs), width=width, activation=layers.relu, key=key)
        return jnp.abs(jax.vmap(net)(test_xs).reshape(-1) - bump(test_xs)).max()

    errors = [np.median([test_error(K, k, test_xs) for k in keys]) for K in widths]
    x = np.linspace(-1, 1, 4001)
    interpolants = [
        _evaluate(models.interpolating_network(t, np.exp(-(t**2))), x)
        for t in (np.linspace(-1, 1, m + 1) for m in (4, 16, 64))
    ]
    line_errors = [np.abs(y - np.exp(-(x**2))).max() for y in interpolants]
    return Verdict(
        decreasing(
            f"largest error on 1,000 test points, {widths} units, median of three networks", errors
        ),
        at_most(f"largest error of {widths[-1]} units", errors[-1], limit),
        at_most("on the line, against max|f''| h²/8", line_errors, [1 / m**2 for m in (4, 16, 64)]),
        refuted(at_most("largest error of 20 units", errors[0], limit)),
        figure=Panel(
            "units", "largest error", points={"random ReLU units": (widths, errors)}, log="xy"
        ),
    )


@claim(
    "2.6-fig2.2",
    title="A curve and its polygon",
    kind="figure",
    of=("models.interpolating_network",),
)
def curve_and_polygon(key):
    r"""A continuous curve and the piecewise linear function through ten of its points: their
    largest gap is at most $\max |f''| / (8 m^2)$.
    """
    f = lambda x: np.sin(2 * np.pi * x) + 0.4 * np.sin(6 * np.pi * x)
    max_second = 4 * np.pi**2 + 0.4 * 36 * np.pi**2
    t = np.linspace(0, 1, 10)
    net = models.interpolating_network(t, f(t))
    x = np.linspace(0, 1, 4001)
    polygon = _evaluate(net, x)
    gap = lambda x: -abs(f(x) - np.interp(x, t, f(t)))
    minimise = partial(minimize_scalar, gap, method="bounded", options={"xatol": 1e-10})
    peak = lambda a, b: -minimise(bounds=(a, b)).fun  # type: ignore[attr-defined]
    largest = max(peak(a, b) for a, b in pairwise(t))
    lines = {"curve": (x, f(x)), "polygon of 9 pieces": (x, polygon)}
    return Verdict(
        close(
            "largest gap on the grid of the figure, against the largest gap of each piece",
            np.abs(polygon - f(x)).max(),
            largest,
            tolerance=1e-5,
        ),
        at_most("largest gap, against the bound", largest, max_second / (8 * 9**2)),
        close("through the points", _evaluate(net, t), f(t)),
        figure=Panel("x", "f(x)", lines=lines, points={"knots": (t, f(t))}),
    )

"""§2.5: uniform distance, universal approximation, and which activations are universal."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from scipy import special, stats

from ... import explain, layers, models
from ...core import predict
from ...plot import Chart, Panel
from ..engine.check import at_least, at_most, close, decreasing, equal, refuted
from ..engine.claim import Verdict, claim

PREDICT = jax.jit(predict)
WIDTHS = (5, 20, 80, 320)
GRID = np.linspace(-2, 2, 401)
FINE = np.linspace(-2, 2, 1601)


def target(x):
    r"""$\sin 3x + |x|$, continuous with a kink."""
    return jnp.sin(3 * x) + jnp.abs(x)


def cube(z):
    """A polynomial activation, hence not universal."""
    return z**3


def _fits(key, activation, *, spread=4.0, points=401):
    """Least squares with random units on [−2, 2]: the network of each width, its outputs on a finer
    grid, and its largest error there.
    """
    xs = jnp.linspace(-2, 2, points)
    ys = target(xs)
    nets = [
        models.ridge_network(
            xs[:, None], ys, width=m, activation=activation, spread=spread, key=jr.fold_in(key, m)
        )
        for m in WIDTHS
    ]
    curves = [_along(net, FINE) for net in nets]
    return (
        nets,
        curves,
        np.array([np.abs(curve - np.asarray(target(FINE))).max() for curve in curves]),
    )


def _weights(net):
    first = net.body.layers[0]
    return np.asarray(first.W)[:, 0], np.asarray(first.b)


@claim(
    "2.5-dK",
    title="Uniform distance on a compact set",
    kind="definition",
    of=("explain.uniform_distance",),
)
def uniform_distance(rng):
    r"""$d_K(f, g) = \sup_{x \in K} |f(x) - g(x)|$ is a metric on the continuous functions on $K$.
    On a grid it is known up to the Lipschitz constant of $f - g$ times half the width of a cell.
    """
    waves = explain.uniform_distance(jnp.sin, jnp.cos, low=0.0, high=2 * np.pi, lipschitz=2.0)
    polys = [Polynomial(rng.normal(size=5)) for _ in range(4)]
    as_function = lambda p: lambda x: jnp.polyval(jnp.asarray(p.coef[::-1]), x)
    low = np.zeros((4, 4))
    high = np.zeros((4, 4))
    exact = np.zeros((4, 4))
    for i, p in enumerate(polys):
        for j, q in enumerate(polys):
            steepest = np.abs((p - q).deriv()(_extrema((p - q).deriv()))).max()
            distance = explain.uniform_distance(
                as_function(p), as_function(q), low=-1.0, high=1.0, n_points=401, lipschitz=steepest
            )
            low[i, j], high[i, j] = distance.value, distance.value + distance.margin
            exact[i, j] = np.abs((p - q)(_extrema(p - q))).max()
    via_third = (low[:, :, None] + low[None]).min(axis=1)
    off_diagonal = low[~np.eye(4, dtype=bool)]
    line = _cone(rng, 1)
    plane = _cone(rng, 2)
    return Verdict(
        at_most(
            "sin and cos on [0, 2π], distance from √2", abs(waves.value - np.sqrt(2)), waves.margin
        ),
        at_most("the margin", waves.margin, 0.01),
        at_most("polynomials: grid below the exact supremum", low, exact, slack=1e-12),
        at_least("polynomials: grid plus margin above it", high, exact, slack=1e-12),
        equal("d(f, f)", np.diag(low), np.zeros(4)),
        at_least("d(f, g) for f ≠ g", off_diagonal, 1e-3),
        equal("d(f, g) and d(g, f)", low, low.T),
        at_most("d(f, h) against d(f, g) + d(g, h)", low, via_third, slack=1e-12),
        close(
            "cones of height 1, on a line and a plane: grid plus margin",
            [line.value + line.margin, plane.value + plane.margin],
            np.ones(2),
        ),
        refuted(at_least("grid without margin, cone on a line", line.value, 1 - 1e-12)),
        refuted(at_least("grid without margin, cone on a plane", plane.value, 1 - 1e-12)),
    )


def _cone(rng, d):
    """The worst case of a grid: the distance to 0 of a cone of slope 1 and height 1 with its tip in
    the middle of a cell.
    """
    cell = rng.uniform(0.1, 0.2, d)
    tip = (rng.integers(0, 10, d) + 0.5) * cell
    cone = lambda x: jnp.maximum(1 - jnp.linalg.norm(x - jnp.asarray(tip)), 0)
    return explain.uniform_distance(
        cone, lambda x: 0.0, low=np.zeros(d), high=10 * cell, n_points=11, lipschitz=1.0
    )


def _extrema(p):
    """The possible extrema of a polynomial on [−1, 1]: the ends and the zeros of its slope."""
    roots = p.deriv().roots()
    inner = roots.real[(np.abs(roots.imag) < 1e-9) & (np.abs(roots.real) <= 1)]
    return np.concatenate([[-1.0, 1.0], inner])


@claim(
    "2.5-dK-class",
    title="Distance from a class of functions",
    kind="definition",
    of=("explain.minimax_approximation",),
    cites="Chebyshev 1854",
)
def distance_from_a_class(key):
    r"""$d_K(f, G) = \inf_{g \in G} d_K(f, g)$. From $x^{n+1}$ to the polynomials of degree $n$ on
    $[-1, 1]$ it is $2^{-n}$; for $x^2$ and the affine functions $\frac12$. The error of the best
    approximation alternates between its two bounds.
    """
    best_fits = {}
    for n in (1, 2, 3):
        basis = lambda x, n=n: jnp.stack([x**k for k in range(n + 1)])
        power = lambda x, n=n: x ** (n + 1)
        best_fits[n] = explain.minimax_approximation(power, basis, low=-1.0, high=1.0, n_points=401)
    alternations = {n: _alternations(best) for n, best in best_fits.items()}
    x = np.linspace(-1, 1, 10001)
    nearby = [
        np.abs(x**2 - a - b * x).max()
        for a in np.linspace(0.3, 0.7, 21)
        for b in np.linspace(-0.2, 0.2, 21)
    ]
    values = np.array([best.value for best in best_fits.values()])
    return Verdict(
        close("x² and affine functions", best_fits[1].value, 0.5, tolerance=1e-3),
        close("degrees 1, 2, 3", values, 0.5 ** np.arange(1, 4), tolerance=1e-3),
        at_least(
            "least error of nearby affine functions", np.min(nearby), best_fits[1].value, slack=1e-9
        ),
        at_least(
            "alternations of the error, degrees 1, 2, 3",
            [alternations[n] for n in best_fits],
            [3, 4, 5],
        ),
        close(
            "best affine function", best_fits[1].coefficients, np.array([0.5, 0.0]), tolerance=1e-3
        ),
        refuted(
            close("least squares instead", np.abs(x**2 - np.mean(x**2)).max(), 0.5, tolerance=1e-3)
        ),
        figure=best_fits[3],
    )


def _alternations(best):
    """How many times in succession the error reaches its bound with alternating sign."""
    error = best.target - best.approximation
    peaks = np.sign(error[np.abs(error) > 0.999 * best.value])
    return 1 + int((np.diff(peaks) != 0).sum())


@claim(
    "2.5-universal",
    title="Universal approximation",
    kind="definition",
    of=("models.step_network", "models.ridge_network", "explain.minimax_approximation"),
    cites="Cybenko 1989; Hornik, Stinchcombe & White 1989",
)
def universal(key):
    r"""A class $G$ approximates $F$ on $K$ if $d_K(f, G) = 0$ for all $f \in F$, and universally if
    on all compact $K$: for every tolerance some member is that close. Step networks and random tanh
    units reach any tolerance as the width grows; polynomials of one fixed degree do not.
    """
    tolerances = np.array([1.0, 0.1, 0.01])
    edge = 1 + 1e-9  # evaluates both sides of every step
    staircase_errors = []
    for tolerance in tolerances:
        width = int(
            np.ceil(4 * 4 / (2 * tolerance))
        )  # slope ≤ 4: an error of at most 4 h / 2 for steps of length h
        net = models.step_network(target, low=-2.0, high=2.0, width=width)
        breakpoints = np.linspace(-2, 2, width + 2)
        x = np.sort(np.clip(np.concatenate([FINE, breakpoints * edge, breakpoints / edge]), -2, 2))
        staircase_errors.append(np.abs(_along(net, x) - np.asarray(target(x))).max())
    _, _, errors = _fits(key, layers.tanh)
    shifted_xs = np.linspace(1, 3, 401)
    net = models.ridge_network(
        shifted_xs[:, None], np.asarray(target(shifted_xs)), width=80, spread=4.0, key=key
    )
    w, b = _weights(net)
    shifted_fine = np.linspace(1, 3, 1601)
    shifted_error = np.abs(_along(net, shifted_fine) - np.asarray(target(shifted_fine))).max()
    cubics = explain.minimax_approximation(
        target, lambda x: jnp.stack([x**k for k in range(4)]), low=-2.0, high=2.0
    )
    steps = models.step_network(target, low=-2.0, high=2.0, width=16)
    sigmoids = models.step_network(target, low=-2.0, high=2.0, width=16, steepness=40.0)
    lines = {
        "function": (FINE, np.asarray(target(FINE))),
        "16 steps": (FINE, _along(steps, FINE)),
        "16 steep sigmoids": (FINE, _along(sigmoids, FINE)),
    }
    edges = np.linspace(-2, 2, 18)
    middles = (edges[1:] + edges[:-1]) / 2
    return Verdict(
        at_most(
            "error of step networks for tolerances 1, 0.1 and 0.01", staircase_errors, tolerances
        ),
        at_most("error of 20, 80, 320 random tanh units", errors[1:], [0.5, 0.1, 0.02]),
        at_most("error of 80 random tanh units on [1, 3]", shifted_error, 0.02),
        at_most(
            "distance of their zeros from the middle of [1, 3]", np.abs(-b / w - 2), 1.0, slack=1e-9
        ),
        at_least("error of the best cubic", cubics.value, 0.8),
        close("16 steps, at the middles of their cells", _along(steps, middles), target(middles)),
        close(
            "16 steep sigmoids, at the middles of their cells",
            _along(sigmoids, middles),
            target(middles),
            tolerance=0.05,
        ),
        figure=Panel("x", "value", lines=lines),
    )


def _along(net, x):
    """The outputs of a network of one input and one output, as an array."""
    return np.asarray(PREDICT(net, jnp.asarray(x)[:, None]))[:, 0]


def _bernstein(f, n):
    r"""$B_n f(x) = \sum_k f(k/n) \binom nk x^k (1 - x)^{n-k}$, the mean of $f$ at a binomial
    proportion.
    """
    k = np.arange(n + 1)
    log_binomial = jnp.asarray(
        special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
    )
    values = jnp.asarray(f(k / n))
    powers = lambda x: jax.scipy.special.xlogy(k, x) + jax.scipy.special.xlog1py(n - k, -x)
    return lambda x: jnp.vdot(values, jnp.exp(log_binomial + powers(x)))


@claim(
    "2.5-weierstrass",
    title="Weierstrass: polynomials are dense",
    kind="theorem",
    of=("explain.uniform_distance",),
    cites="Weierstrass 1885; Bernstein 1912",
)
def weierstrass(key):
    r"""Every continuous function on a compact interval is a uniform limit of polynomials.
    Bernstein's polynomial of degree $n$ of a function with Lipschitz constant 1 on $[0, 1]$ errs by
    at most $\frac12 n^{-1/2}$.
    """
    degrees = np.array([10, 40, 160, 640])
    kink = lambda x: abs(x - 0.5)
    distances = [
        explain.uniform_distance(
            kink, _bernstein(kink, n), low=0.0, high=1.0, n_points=401, lipschitz=2.0
        )
        for n in degrees
    ]
    errors = np.array([d.value for d in distances])
    at_middle = [stats.binom(n, 0.5).expect(lambda k, n=n: abs(k / n - 0.5)) for n in degrees]
    runge = lambda x: 1 / (1 + 25 * x**2)
    series = Chebyshev.interpolate(runge, 100)
    k = np.arange(101)
    fit = lambda x: jnp.vdot(jnp.asarray(series.coef), jnp.cos(k * jnp.arccos(x)))
    smooth = explain.uniform_distance(runge, fit, low=-1.0, high=1.0, lipschitz=0.0)
    xs = np.linspace(0, 1, 401)
    lines = {
        f"degree {n}": (xs, np.asarray(jax.vmap(_bernstein(kink, n))(jnp.asarray(xs))))
        for n in degrees[:3]
    }
    return Verdict(
        at_most("error, degrees 10, 40, 160, 640", errors, 0.5 / np.sqrt(degrees)),
        close(
            "errors, against 0.123, 0.063, 0.031, 0.016",
            errors,
            [0.123, 0.063, 0.031, 0.016],
            tolerance=6e-4,
        ),
        close("error at ½, against a binomial mean", errors, at_middle, tolerance=1e-9),
        at_most("Runge's function, Chebyshev polynomial of degree 100", smooth.value, 1e-6),
        refuted(
            at_most(
                "Runge's function, interpolated at equidistant points",
                _equidistant_error(runge),
                1e-6,
            )
        ),
        assumptions=[
            at_most("slope of the kink", np.abs(np.diff(kink(xs)) / np.diff(xs)), 1.0, slack=1e-9)
        ],
        figure=Chart(
            Panel("x", "value", lines={"|x − ½|": (xs, kink(xs)), **lines}),
            Panel(
                "degree",
                "largest error",
                points={"Bernstein": (degrees, errors)},
                bounds={"½ n^(−½)": (degrees, 0.5 / np.sqrt(degrees))},
                log="xy",
            ),
        ),
    )


def _equidistant_error(f):
    """The error of interpolation at 21 equidistant points, which diverges for Runge's function."""
    nodes = np.linspace(-1, 1, 21)
    x = np.linspace(-1, 1, 2001)
    return np.abs(Polynomial.fit(nodes, f(nodes), 20)(x) - f(x)).max()


@claim(
    "2.5-leshno",
    "2.5-poly-fails",
    title="Which activations are universal",
    kind="theorem",
    of=("models.ridge_network",),
    cites="Leshno, Lin, Pinkus & Schocken 1993",
)
def leshno(key):
    r"""If $\varphi$ is smooth and not a polynomial, the span of $\varphi(ax + b)$ is dense in the
    continuous functions on every compact interval. If it is a polynomial of degree $k$, the span
    has dimension at most $k + 1$ and is not dense.
    """
    nets, curves, errors = _fits(key, layers.tanh)
    cubic_nets, cubic_curves, cubic_errors = _fits(key, cube, spread=1.0, points=801)
    rank = lambda net, phi: np.linalg.matrix_rank(
        phi(GRID[::8, None] * _weights(net)[0] + _weights(net)[1]), rtol=1e-10
    )
    ranks = [rank(net, cube) for net in cubic_nets]
    tanh_ranks = [rank(net, np.tanh) for net in nets]
    lines = {
        "function": (FINE, np.asarray(target(FINE))),
        "5 units tanh": (FINE, curves[0]),
        "20 units tanh": (FINE, curves[1]),
        "320 units z³": (FINE, cubic_curves[-1]),
    }
    even = np.linspace(-2, 2, 801)
    best = Polynomial.fit(even, np.asarray(target(even)), 3)
    cubic_error = np.abs(best(FINE) - np.asarray(target(FINE))).max()
    return Verdict(
        decreasing("largest error of 5, 20, 80, 320 tanh units", errors),
        at_most("largest error of 320 tanh units", errors[-1], 0.02),
        equal("dimension of the span of 5, 20, 80, 320 units z³", ranks, [4, 4, 4, 4]),
        at_least(
            "dimension of the span of 5, 20, 80, 320 units tanh z", tanh_ranks, [5, 15, 15, 15]
        ),
        close(
            "error of units z³, against the least-squares cubic",
            cubic_errors,
            np.full(4, cubic_error),
            tolerance=1e-6,
        ),
        close("error of units z³", cubic_errors, np.full(4, 1.4142), tolerance=1e-4),
        figure=Chart(
            Panel("x", "value", lines=lines),
            Panel(
                "units",
                "largest error",
                points={"tanh": (WIDTHS, errors), "z³": (WIDTHS, cubic_errors)},
                log="xy",
            ),
        ),
    )


@claim(
    "2.5-lifting",
    title="Universality carries over from the line to any dimension",
    kind="theorem",
    of=("models.ridge_network",),
    cites="Leshno, Lin, Pinkus & Schocken 1993",
)
def lifting(key):
    r"""If the span of $\varphi(ax + b)$ is dense on the line, the span of $\varphi(w^\top x + b)$
    is dense in $\mathbb{R}^n$, on compact sets: polynomials are sums of ridge functions, as in
    $x_1 x_2 = \frac14 [(x_1 + x_2)^2 - (x_1 - x_2)^2]$.
    """
    square = lambda points: np.stack(
        np.meshgrid(*[np.linspace(-1, 1, points)] * 2), axis=-1
    ).reshape(-1, 2)
    xs = square(28)
    finer_grid = square(41)
    functions = {
        "exp(−‖x‖²)": lambda x: np.exp(-(x**2).sum(axis=1)),
        "x₁x₂": lambda x: x[:, 0] * x[:, 1],
    }
    widths = (10, 30, 100)
    errors = {}
    for name, f in functions.items():
        errors[name] = []
        for m in widths:
            net = models.ridge_network(
                jnp.asarray(xs), jnp.asarray(f(xs)), width=m, spread=1.5, key=jr.fold_in(key, m)
            )
            errors[name].append(
                np.abs(
                    np.asarray(PREDICT(net, jnp.asarray(finer_grid)))[:, 0] - f(finer_grid)
                ).max()
            )
    a, b = finer_grid.T
    points = {name: (widths, e) for name, e in errors.items()}
    return Verdict(
        *[
            decreasing(f"largest error for {name}, 10, 30, 100 units", e)
            for name, e in errors.items()
        ],
        *[
            at_most(f"largest error for {name}, 100 units", e[-1], 5e-3)
            for name, e in errors.items()
        ],
        close(
            "x₁x₂ as a sum of two ridge functions",
            ((a + b) ** 2 - (a - b) ** 2) / 4,
            a * b,
            tolerance=1e-14,
        ),
        figure=Panel("units", "largest error on a finer grid", points=points, log="xy"),
    )

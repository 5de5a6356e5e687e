"""§2.5: uniform distance, universal approximation, and which activations have it."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from scipy import special, stats

from ... import explain, layers, models
from ...core import predict
from ...plot import Chart, Panel
from ..engine.chance import chance
from ..engine.check import at_least, at_most, close, equal, falls, refuted
from ..engine.claim import Verdict, claim

COMPILED = jax.jit(predict)
WIDTHS = (5, 20, 80, 320)
GRID = np.linspace(-2, 2, 401)
FINE = np.linspace(-2, 2, 1601)


def target(x):
    r"""$\sin 3x + |x|$, continuous with a kink."""
    return jnp.sin(3 * x) + jnp.abs(x)


def cube(z):
    """A polynomial, which is no good as an activation."""
    return z**3


def _fits(key, activation, *, spread=4.0, points=401):
    """Least squares with random units on [−2, 2]: the network of each width, and its largest error
    on a finer grid.
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
    "2.5-dK", title="Uniform distance on a compact set", kind="definition", of=("explain.distance",)
)
def uniform_distance(key):
    r"""$d_K(f, g) = \sup_{x \in K} |f(x) - g(x)|$ is a metric on the continuous functions on $K$.
    On a grid it is known up to the Lipschitz constant of $f - g$ times half the width of a cell.
    """
    rng = chance(key)
    waves = explain.distance(jnp.sin, jnp.cos, low=0.0, high=2 * np.pi, lipschitz=2.0)
    polys = [Polynomial(rng.normal(size=5)) for _ in range(4)]
    as_function = lambda p: lambda x: jnp.polyval(jnp.asarray(p.coef[::-1]), x)
    low = np.zeros((4, 4))
    high = np.zeros((4, 4))
    exact = np.zeros((4, 4))
    for i, p in enumerate(polys):
        for j, q in enumerate(polys):
            steepest = np.abs((p - q).deriv()(_extrema((p - q).deriv()))).max()
            found = explain.distance(
                as_function(p), as_function(q), low=-1.0, high=1.0, points=401, lipschitz=steepest
            )
            low[i, j], high[i, j] = found.value, found.value + found.margin
            exact[i, j] = np.abs((p - q)(_extrema(p - q))).max()
    detours = (low[:, :, None] + low[None]).min(axis=1)
    apart = low[~np.eye(4, dtype=bool)]
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
        at_least("d(f, g) for f ≠ g", apart, 1e-3),
        equal("d(f, g) and d(g, f)", low, low.T),
        at_most("d(f, h) against d(f, g) + d(g, h)", low, detours, slack=1e-12),
        close(
            "cones of height 1, on a line and a plane: grid plus margin",
            [line.value + line.margin, plane.value + plane.margin],
            np.ones(2),
            tolerance=1e-12,
        ),
        refuted(at_least("grid without margin, cone on a line", line.value, 1 - 1e-12)),
        refuted(at_least("grid without margin, cone on a plane", plane.value, 1 - 1e-12)),
    )


def _cone(rng, d):
    """The worst a grid can do: a cone of slope 1 and height 1 with its tip in the middle of a cell,
    against 0.
    """
    cell = rng.uniform(0.1, 0.2, d)
    tip = (rng.integers(0, 10, d) + 0.5) * cell
    cone = lambda x: jnp.maximum(1 - jnp.linalg.norm(x - jnp.asarray(tip)), 0)
    return explain.distance(
        cone, lambda x: 0.0, low=np.zeros(d), high=10 * cell, points=11, lipschitz=1.0
    )


def _extrema(p):
    """Where a polynomial can be largest on [−1, 1]: the ends, and the zeros of its slope."""
    roots = p.deriv().roots()
    inner = roots.real[(np.abs(roots.imag) < 1e-9) & (np.abs(roots.real) <= 1)]
    return np.concatenate([[-1.0, 1.0], inner])


@claim(
    "2.5-dK-class",
    title="Distance from a class of functions",
    kind="definition",
    of=("explain.minimax",),
    cites="Chebyshev 1854",
)
def distance_from_a_class(key):
    r"""$d_K(f, G) = \inf_{g \in G} d_K(f, g)$. From $x^{n+1}$ to the polynomials of degree $n$ on
    $[-1, 1]$ it is $2^{-n}$; for $x^2$ and the affine functions $\frac12$. The best approximation
    errs as much in one direction as in the other, in turn.
    """
    found = {}
    for n in (1, 2, 3):
        basis = lambda x, n=n: jnp.stack([x**k for k in range(n + 1)])
        power = lambda x, n=n: x ** (n + 1)
        found[n] = explain.minimax(power, basis, low=-1.0, high=1.0, points=401)
    turns = {n: _turns(best) for n, best in found.items()}
    x = np.linspace(-1, 1, 10001)
    nearby = [
        np.abs(x**2 - a - b * x).max()
        for a in np.linspace(0.3, 0.7, 21)
        for b in np.linspace(-0.2, 0.2, 21)
    ]
    values = np.array([best.value for best in found.values()])
    return Verdict(
        close("x² and affine functions", found[1].value, 0.5, tolerance=1e-3),
        close("degrees 1, 2, 3", values, 0.5 ** np.arange(1, 4), tolerance=1e-3),
        at_least(
            "no affine function nearby does better", np.min(nearby), found[1].value, slack=1e-9
        ),
        at_least(
            "alternations of the error, degrees 1, 2, 3", [turns[n] for n in found], [3, 4, 5]
        ),
        close("best affine function", found[1].coefficients, np.array([0.5, 0.0]), tolerance=1e-3),
        refuted(
            close("least squares instead", np.abs(x**2 - np.mean(x**2)).max(), 0.5, tolerance=1e-3)
        ),
        figure=found[3],
    )


def _turns(best):
    """How often the error reaches its bound with the sign changed, plus one."""
    error = best.target - best.approximation
    peaks = np.sign(error[np.abs(error) > 0.999 * best.value])
    return 1 + int((np.diff(peaks) != 0).sum())


@claim(
    "2.5-universal",
    title="Universal approximation",
    kind="definition",
    of=("models.step_network", "models.ridge_network", "explain.minimax"),
    cites="Cybenko 1989; Hornik, Stinchcombe & White 1989",
)
def universal(key):
    r"""A class $G$ approximates $F$ on $K$ if $d_K(f, G) = 0$ for all $f \in F$, and universally if
    on all compact $K$: whatever the tolerance, some member comes as near. Staircases and random
    tanh units do so as they grow wide; polynomials of one fixed degree do not.
    """
    tolerances = np.array([1.0, 0.1, 0.01])
    edge = 1 + 1e-9  # so that both sides of every stair are seen
    stairs = []
    for tolerance in tolerances:
        width = int(
            np.ceil(4 * 4 / (2 * tolerance))
        )  # slope ≤ 4: an error of at most 4 h / 2 for stairs of length h
        net = models.step_network(target, low=-2.0, high=2.0, width=width)
        places = np.linspace(-2, 2, width + 2)
        x = np.sort(np.clip(np.concatenate([FINE, places * edge, places / edge]), -2, 2))
        stairs.append(np.abs(_along(net, x) - np.asarray(target(x))).max())
    _, _, errors = _fits(key, layers.tanh)
    beside = np.linspace(1, 3, 401)
    net = models.ridge_network(
        beside[:, None], np.asarray(target(beside)), width=80, spread=4.0, key=key
    )
    w, b = _weights(net)
    between = np.linspace(1, 3, 1601)
    elsewhere = np.abs(_along(net, between) - np.asarray(target(between))).max()
    cubics = explain.minimax(
        target, lambda x: jnp.stack([x**k for k in range(4)]), low=-2.0, high=2.0
    )
    steps = models.step_network(target, low=-2.0, high=2.0, width=16)
    rounded = models.step_network(target, low=-2.0, high=2.0, width=16, steepness=40.0)
    lines = {
        "function": (FINE, np.asarray(target(FINE))),
        "16 steps": (FINE, _along(steps, FINE)),
        "16 steep sigmoids": (FINE, _along(rounded, FINE)),
    }
    edges = np.linspace(-2, 2, 18)
    middles = (edges[1:] + edges[:-1]) / 2
    return Verdict(
        at_most("error of staircases made for 1, 0.1 and 0.01", stairs, tolerances),
        at_most("error of 20, 80, 320 random tanh units", errors[1:], [0.5, 0.1, 0.02]),
        at_most("error of 80 random tanh units on [1, 3]", elsewhere, 0.02),
        at_most(
            "where they vanish, from the middle of [1, 3]", np.abs(-b / w - 2), 1.0, slack=1e-9
        ),
        at_least("error of the best cubic, whatever its coefficients", cubics.value, 0.8),
        close(
            "16 steps, at the middles of their cells",
            _along(steps, middles),
            target(middles),
            tolerance=1e-12,
        ),
        close("16 steep sigmoids there", _along(rounded, middles), target(middles), tolerance=0.05),
        figure=Chart(Panel("x", "value", lines=lines)),
    )


def _along(net, x):
    """A network on an interval, as an array of numbers."""
    return np.asarray(COMPILED(net, jnp.asarray(x)[:, None]))[:, 0]


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
    of=("explain.distance",),
    cites="Weierstrass 1885; Bernstein 1912",
)
def weierstrass(key):
    r"""Every continuous function on a compact interval is a uniform limit of polynomials.
    Bernstein's polynomial of degree $n$ of a function with Lipschitz constant 1 on $[0, 1]$ errs by
    at most $\frac12 n^{-1/2}$.
    """
    degrees = np.array([10, 40, 160, 640])
    kink = lambda x: abs(x - 0.5)
    found = [
        explain.distance(kink, _bernstein(kink, n), low=0.0, high=1.0, points=401, lipschitz=2.0)
        for n in degrees
    ]
    errors = np.array([d.value for d in found])
    at_middle = [stats.binom(n, 0.5).expect(lambda k, n=n: abs(k / n - 0.5)) for n in degrees]
    runge = lambda x: 1 / (1 + 25 * x**2)
    series = Chebyshev.interpolate(runge, 100)
    k = np.arange(101)
    fit = lambda x: jnp.vdot(jnp.asarray(series.coef), jnp.cos(k * jnp.arccos(x)))
    smooth = explain.distance(runge, fit, low=-1.0, high=1.0, lipschitz=0.0)
    at = np.linspace(0, 1, 401)
    lines = {
        f"degree {n}": (at, np.asarray(jax.vmap(_bernstein(kink, n))(jnp.asarray(at))))
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
        close("error at ½, as a binomial mean", errors, at_middle, tolerance=1e-9),
        at_most("Runge's function, Chebyshev polynomial of degree 100", smooth.value, 1e-6),
        refuted(at_most("its interpolant at even points", _even_runge(runge), 1e-6)),
        assumptions=[
            at_most("slope of the kink", np.abs(np.diff(kink(at)) / np.diff(at)), 1.0, slack=1e-9)
        ],
        figure=Chart(
            Panel("x", "value", lines={"|x − ½|": (at, kink(at)), **lines}),
            Panel(
                "degree",
                "largest error",
                points={"Bernstein": (degrees, errors)},
                bounds={"½ n^(−½)": (degrees, 0.5 / np.sqrt(degrees))},
                log="xy",
            ),
        ),
    )


def _even_runge(f):
    """Runge's warning: interpolation at even points diverges."""
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
    has dimension at most $k + 1$ and is not.
    """
    nets, curves, errors = _fits(key, layers.tanh)
    cubic_nets, cubic_curves, cubic_errors = _fits(key, cube, spread=1.0, points=801)
    rank = lambda net, phi: np.linalg.matrix_rank(
        phi(GRID[::8, None] * _weights(net)[0] + _weights(net)[1]), rtol=1e-10
    )
    ranks = [rank(net, cube) for net in cubic_nets]
    free = [rank(net, np.tanh) for net in nets]
    lines = {
        "function": (FINE, np.asarray(target(FINE))),
        "5 units tanh": (FINE, curves[0]),
        "20 units tanh": (FINE, curves[1]),
        "320 units z³": (FINE, cubic_curves[-1]),
    }
    even = np.linspace(-2, 2, 801)
    best = Polynomial.fit(even, np.asarray(target(even)), 3)
    frozen = np.abs(best(FINE) - np.asarray(target(FINE))).max()
    return Verdict(
        falls("largest error of 5, 20, 80, 320 tanh units", errors),
        at_most("at 320", errors[-1], 0.02),
        equal("dimension of the span of 5, 20, 80, 320 units z³", ranks, [4, 4, 4, 4]),
        at_least("dimension of the span of 5, 20, 80, 320 units tanh z", free, [5, 15, 15, 15]),
        close(
            "error of units z³, against the least-squares cubic",
            cubic_errors,
            np.full(4, frozen),
            tolerance=1e-6,
        ),
        close("those errors", cubic_errors, np.full(4, 1.4142), tolerance=1e-4),
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
    title="From the line to any dimension",
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
    fresh = square(41)
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
                np.abs(np.asarray(COMPILED(net, jnp.asarray(fresh)))[:, 0] - f(fresh)).max()
            )
    a, b = fresh.T
    points = {name: (widths, e) for name, e in errors.items()}
    return Verdict(
        *[falls(f"largest error for {name}, 10, 30, 100 units", e) for name, e in errors.items()],
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
        figure=Chart(Panel("units", "largest error on a finer grid", points=points, log="xy")),
    )

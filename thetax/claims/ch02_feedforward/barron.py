"""§2.5: Barron's theorem, Maurey's sampling in its proof, and the effect of the dimension."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy import integrate, special, stats

from ... import models, tree
from ...models import MLP
from ...plot import Chart, Panel
from ..engine.check import at_least, at_most, between, close, equal, within
from ..engine.claim import Verdict, claim
from ..engine.numpy_rng import numpy_rng

DRAWS, RADIUS = 200, 1.0
WIDTHS = np.array([1, 4, 16, 64, 256])
DIMENSIONS = (2, 5, 10, 20)


def _ball(rng, n, points):
    """A random sample of points from the uniform distribution on the ball."""
    u = rng.normal(size=(points, n))
    return (
        RADIUS
        * rng.uniform(size=(points, 1)) ** (1 / n)
        * u
        / np.linalg.norm(u, axis=1, keepdims=True)
    )


def _outputs(key, waves, n, *, steepness=np.inf, points=50):
    """The outputs of networks of each width, shape (draws, points, widths), the points, and the
    largest difference from the model's outputs at full width.

    The units of a network are independent and identically distributed, so the first m of 256, with
    weights 256/m times as large, are a network of m units. The outputs are summed in NumPy.
    """
    xs = _ball(numpy_rng(key), n, points)
    max_width = int(WIDTHS[-1])
    draw_network = lambda key: models.barron_network(
        waves, radius=RADIUS, width=max_width, steepness=steepness, key=key
    )
    draw = jax.jit(
        jax.vmap(
            lambda key, xs: (net := draw_network(key), jax.vmap(net)(xs)[:, 0]), in_axes=(0, None)
        )
    )
    nets, model_outputs = draw(jr.split(key, DRAWS), jnp.asarray(xs))
    first, _, last = nets.body.layers
    W, b, v, c = (np.asarray(a) for a in (first.W, first.b, last.W[:, 0], last.b[:, 0]))
    z = xs @ W.transpose(0, 2, 1) + b[:, None]
    terms = v[:, None] * (z >= 0 if np.isinf(steepness) else special.expit(z))
    sums = np.add.reduceat(terms, [0, *WIDTHS[:-1]], axis=2).cumsum(axis=2) * (max_width / WIDTHS)
    outputs = c[:, None, None] + sums
    return outputs, xs, np.abs(outputs[:, :, -1] - model_outputs).max()


def _bell(xs):
    return np.exp(-np.square(xs).sum(axis=1) / 2)


def _four_waves(rng, n):
    r"""$f(x) = \sum_k a_k \cos(\omega_k^\top x + \varphi_k)$, as a `CosineMixture` and as a
    function.

    $C_f = \sum_k a_k \|\omega_k\|$, and wave $k$ is sampled in proportion to $a_k \|\omega_k\|$.
    """
    omega = rng.normal(size=(4, n))
    phase = rng.uniform(0.5, 2.5, 4)
    a = rng.uniform(0.5, 1.0, 4)
    share = a * np.linalg.norm(omega, axis=1)

    def draw(key):
        k = jr.categorical(key, jnp.log(jnp.asarray(share)))
        return jnp.asarray(omega)[k], jnp.asarray(phase)[k]

    return models.CosineMixture(
        (a * np.cos(phase)).sum(), share.sum(), draw
    ), lambda xs: np.cos(xs @ omega.T + phase) @ a


def _slope(widths, errors):
    return np.polyfit(np.log(widths), np.log(errors), 1)[0]


def _grid_error(n, k):
    """The least mean square error of a function constant on each of k^n equal cells of [−1, 1]^n,
    for the Gaussian bell.

    The Gaussian bell is a product, so the integrals of its square and of its cell means are n-th
    powers.
    """
    edges = np.linspace(-1, 1, k + 1)
    means = np.sqrt(np.pi / 2) * np.diff(special.erf(edges / np.sqrt(2))) / (2 / k)
    square_integral = np.sqrt(np.pi) / 2 * 2 * special.erf(1.0)
    return (square_integral**n - (2 / k * (means**2).sum()) ** n) / 2**n


def _moments(outputs):
    return outputs.mean(axis=0), outputs.std(axis=0, ddof=1) / np.sqrt(DRAWS)


def _waves_with_phases(key):
    waves, function = _four_waves(numpy_rng(key), 3)
    outputs, xs, _ = _outputs(jr.fold_in(key, 1), waves, 3)
    f, (mean, error) = function(xs), _moments(outputs[:, :, -1])
    shares = (
        np.square(outputs - f[None, :, None]).mean(axis=(0, 1))
        * WIDTHS
        / (2 * RADIUS * waves.constant) ** 2
    )
    return [
        within("four waves with phases, n=3: mean of the networks", mean, f, error=error),
        at_most("four waves with phases, n=3: mean error over the bound", shares, 1.0),
    ]


@claim(
    "2.5-barron",
    "2.5-barron-dim",
    title="Barron's theorem, in any dimension",
    kind="theorem",
    of=("models.barron_network", "models.gaussian_bell", "models.CosineMixture"),
    cites="Barron 1993",
)
def barron(key):
    r"""If $C_f = \int \|\omega\| |\hat f(\omega)| d\omega < \infty$, then for every $m$ and every
    probability $\mu$ on the ball of radius $r$ a network $g_m$ of $m$ sigmoids and a constant has
    $\int (f - g_m)^2 d\mu \le (2 r C_f)^2 / m$. The rate $1/m$ does not depend on the dimension
    $n$, whereas $m$ cells of a grid achieve $m^{-2/n}$. Here $f(x) = e^{-\|x\|^2 / 2}$ with
    $C_f = \sqrt 2\, \Gamma(\frac{n+1}{2}) / \Gamma(\frac n2)$, or a sum of four waves, and $g_m$ is
    sampled.
    """
    checks = []
    shares = []
    errors = {}
    bounds = {}
    for n in DIMENSIONS:
        outputs, xs, gap = _outputs(jr.fold_in(key, n), models.gaussian_bell(n), n)
        f, (mean, error) = _bell(xs), _moments(outputs[:, :, -1])
        errors[n] = np.square(outputs - f[None, :, None]).mean(axis=(0, 1))
        bounds[n] = (2 * RADIUS * stats.chi(n).mean()) ** 2 / WIDTHS
        shares.append((errors[n] / bounds[n]).mean())
        checks += [
            close(
                f"n={n}: C_f, against the mean of the χ distribution",
                models.gaussian_bell(n).constant,
                stats.chi(n).mean(),
                tolerance=1e-9,
            ),
            at_most(f"n={n}: the model's outputs, less the sum of its units", gap, 1e-9),
            within(f"n={n}: mean of the networks", mean, f, error=error),
            at_most(f"n={n}: mean error over the bound, m=1..256", errors[n] / bounds[n], 1.0),
            between(f"n={n}: slope of the error in m", _slope(WIDTHS, errors[n]), -1.1, -0.9),
        ]
    sigmoid_outputs, xs, _ = _outputs(jr.fold_in(key, 0), models.gaussian_bell(5), 5, steepness=1e3)
    sigmoid_errors = np.square(sigmoid_outputs - _bell(xs)[None, :, None]).mean(axis=(0, 1))
    cells = {n: np.array([_grid_error(n, k) for k in (4, 8, 16, 32)]) for n in (1, 2, 4)}
    n_cells = {n: np.array([4.0, 8.0, 16.0, 32.0]) ** n for n in cells}
    checks += [
        at_most(
            "n=5, sigmoids of slope 1,000: mean error over the bound",
            sigmoid_errors / bounds[5],
            1.0,
        ),
        between(
            "n=5, sigmoids of slope 1,000: slope of the error in m",
            _slope(WIDTHS, sigmoid_errors),
            -1.1,
            -0.9,
        ),
        *_waves_with_phases(key),
        at_most(
            "largest over smallest ratio of error to bound, n=2..20", max(shares) / min(shares), 2.0
        ),
        *[
            between(
                f"cells, n={n}: slope, near −2/n",
                _slope(n_cells[n], cells[n]),
                -2.15 / n,
                -1.85 / n,
            )
            for n in cells
        ],
        close(
            "grid of 16 cells, n=2, by quadrature",
            _grid_error(2, 4),
            _cells_by_quadrature(),
            tolerance=1e-9,
        ),
    ]
    points = {f"{n} inputs": (WIDTHS, errors[n]) for n in (2, 5, 20)}
    return Verdict(
        *checks,
        figure=Chart(
            Panel(
                "units m",
                "mean square error",
                points=points,
                bounds={"bound for 2": (WIDTHS, bounds[2])},
                log="xy",
                title="sampled networks",
            ),
            Panel(
                "cells m",
                "mean square error",
                log="xy",
                title="a grid of cells",
                lines={f"{n} input{'s' if n > 1 else ''}": (n_cells[n], cells[n]) for n in cells},
            ),
        ),
    )


def _cells_by_quadrature():
    f = lambda y, x: np.exp(-(x * x + y * y) / 2)
    total = 0.0
    for a in (-1.0, -0.5, 0.0, 0.5):
        for b in (-1.0, -0.5, 0.0, 0.5):
            mean = integrate.dblquad(f, a, a + 0.5, b, b + 0.5)[0] / 0.25
            total += integrate.dblquad(
                lambda y, x, mean=mean: (f(y, x) - mean) ** 2, a, a + 0.5, b, b + 0.5
            )[0]
    return total / 4


def _best_units(units, f, steps):
    """Tests every unit at every step by least squares on it, the network so far and a constant."""
    g = np.zeros_like(f)
    best = []
    min_errors = []
    for _ in range(steps):
        columns = [np.stack([np.ones_like(f), g, unit], axis=1) for unit in units.T]
        fits = [X @ np.linalg.lstsq(X, f)[0] for X in columns]
        errors = [np.square(f - fit).mean() for fit in fits]
        best.append(int(np.argmin(errors)))
        min_errors.append(min(errors))
        g = fits[best[-1]]
    return best, min_errors


@claim(
    "2.5-barron-maurey",
    title="Maurey's sampling, and greedy selection of units",
    kind="identity",
    of=("models.sample_units", "models.greedy_network"),
    cites="Pisier 1981; Jones 1992; Barron 1993",
)
def maurey(key):
    r"""If $f = \mathbb{E}\,u$ is a mixture of units, the mean $g_m$ of $m$ independent draws has
    $\mathbb{E}\|f - g_m\|^2 = \mathrm{Var}(u) / m$, exactly. For $f = \sum_j v_j \varphi_j$, the
    greedy choice, which adds to a multiple of $g_{m-1}$ and a constant the unit that leaves the
    least error, has $\|f - g_m\|^2 \le (b^2 - \|f - \bar f\|^2) / m$ with certainty, where
    $b = \sum_j |v_j| \cdot \max_j \|\varphi_j - \bar\varphi_j\|$ and bars are means over the data.
    """
    net = MLP.init(3, 400, 1, activation=jax.nn.sigmoid, key=key)
    net = models.scale_network(
        tree.axpy(1.0, tree.normal_like(jr.fold_in(key, 1), net), net), 1 / 400
    )
    xs = jr.normal(jr.fold_in(key, 2), (100, 3))
    first, _, last = net.body.layers
    units = special.expit(np.asarray(xs) @ np.asarray(first.W).T + np.asarray(first.b))
    v = np.asarray(last.W)[0]
    c = np.asarray(last.b)[0]
    f = units @ v
    weight = np.abs(v).sum()
    variance = weight * (np.abs(v) * np.square(units).mean(axis=0)).sum() - np.square(f).mean()
    widths = (1, 4, 16, 64)
    means = []
    errors = []
    for m in widths:
        sample = lambda key, net, xs, m=m: jax.vmap(models.sample_units(net, width=m, key=key))(xs)[
            :, 0
        ]
        draw = jax.jit(jax.vmap(sample, in_axes=(0, None, None)))
        gaps = np.square(np.asarray(draw(jr.split(jr.fold_in(key, m), 500), net, xs)) - c - f).mean(
            axis=1
        )
        means.append(m * gaps.mean())
        errors.append(m * gaps.std(ddof=1) / np.sqrt(500))
    greedy = models.greedy_network(xs, jnp.asarray(f), first, width=64)
    centred_units = units - units.mean(axis=0)
    centred_target = f - f.mean()
    b = weight * np.sqrt(np.square(centred_units).mean(axis=0).max())
    ms = np.arange(1, 65)
    bound = (b**2 - np.square(centred_target).mean()) / ms
    best, min_errors = _best_units(units, f, 8)
    direct = np.square(np.asarray(jax.vmap(greedy.model)(xs))[:, 0] - f).mean()
    return Verdict(
        within(
            "m times the error of m = 1, 4, 16, 64 draws",
            means,
            [variance] * 4,
            error=errors,
            false_alarm=6e-5,
        ),
        equal(
            "greedy: the first 8 units, against trying all 400",
            greedy.chosen[:8],
            best,
            method="brute force",
        ),
        close(
            "greedy: log error of the first 8",
            np.log(greedy.errors[:8]),
            np.log(min_errors),
            tolerance=1e-6,
            method="brute force",
        ),
        at_most("greedy: error over the bound, m = 1..64", np.asarray(greedy.errors) / bound, 1.0),
        close(
            "greedy: its last error, against the error of its network",
            greedy.errors[-1],
            direct,
            tolerance=1e-6,
            relative=True,
        ),
        at_least(
            "error of sampling over error of greedy selection, m = 64",
            means[-1] / 64 / float(greedy.errors[-1]),
            10.0,
        ),
        figure=Panel(
            "units m",
            "mean square error",
            log="xy",
            points={"sampled": (widths, np.array(means) / widths)},
            lines={"greedy": (ms, np.asarray(greedy.errors))},
            bounds={
                "Var / m": (ms, variance / ms),
                "(b² − ‖f − mean‖²) / m": (ms, bound),
            },
        ),
    )

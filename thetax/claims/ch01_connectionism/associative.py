"""§1.4, after Hopfield: steeper energies, real states, and attention."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy.special import softmax
from scipy.stats import norm

from ... import explain, layers, models
from ...plot import Panel
from ..engine.check import at_least, at_most, close, close_derivative, equal
from ..engine.claim import Verdict, claim
from .hopfield import each, random_patterns


def brute_field(F, X, x):
    """Half the difference of the energies with each site at -1 and at +1, from the definition."""
    rest = (X @ x)[:, None] - X * x[None]  # the overlaps without site i
    return (F(rest + X) - F(rest - X)).sum(axis=0) / 2


def flip_rate(memory, count):
    """The share of sites of the first `count` patterns that one update flips."""
    starts = memory.patterns[:count]
    return float(
        np.mean(
            each(lambda x: models.synchronous_recall(memory, x, max_steps=1).x, starts)
            != np.asarray(starts)
        )
    )


def degree_checks(p, X, starts):
    """Checks of the field against its definition, and of the energy along six sweeps."""
    memory = models.DenseMemory(X, p)
    sites = jnp.tile(jnp.arange(X.shape[1]), 6)
    energies = each(lambda x: models.update_sites(memory, x, sites).energies, starts)
    X = np.asarray(X)
    starts = np.asarray(starts)
    before = -((starts @ X.T) ** p).sum(axis=1)
    fields = [brute_field(lambda z: z**p, X, x) for x in starts]
    return [
        at_most(
            f"degree {p}: greatest change of energy",
            np.diff(np.c_[before, energies]),
            0.0,
            slack=1e-9,
        ),
        close(
            f"degree {p}: field",
            each(memory.field, starts),
            fields,
            tolerance=1e-9,
            method="brute force",
        ),
    ]


@claim(
    "1.4-dense-poly",
    title="Dense associative memory, polynomial",
    kind="model",
    of=("models.DenseMemory", "explain.flip_probability"),
    cites="Krotov & Hopfield 2016",
)
def polynomial(key):
    r"""With $E(x) = -\sum_{t=1}^K (x_t^\top x)^p$ and each $x_i$ set to the sign of lower energy,
    the energy never rises; $p = 2$ is Hopfield's network. A site of one of $K$ random patterns
    flips with probability about $Q(\sqrt{d^{p-1} / (K (2p-3)!!)})$, $Q$ being the normal tail. The
    rate is measured for $p = 3$ on $d = 100$ sites only; that the capacity grows like $d^{p-1}$ is
    read off the formula.
    """
    keys = jr.split(key, 4)
    d = 24
    sizes = (1000, 2000)
    X = random_patterns(keys[0], 40, d)
    starts = random_patterns(keys[1], 1000, d)
    updates = each(
        lambda x: models.synchronous_recall(models.DenseMemory(X, 2), x, max_steps=1).x, starts
    )
    hopfield_fields = np.asarray(starts) @ (np.asarray(X).T @ np.asarray(X) - 40 * np.eye(d))
    rates = []
    for K in sizes:
        pattern_sets = [random_patterns(jr.fold_in(keys[2], K + k), K, 100) for k in range(20)]
        rates.append(
            np.mean([flip_rate(models.DenseMemory(patterns, 3), 500) for patterns in pattern_sets])
        )
    patterns_200 = random_patterns(keys[3], 200, 100)
    cubic_rate, square_rate = (flip_rate(models.DenseMemory(patterns_200, p), 200) for p in (3, 2))
    formula = norm.sf(np.sqrt(100**2 / (np.array(sizes) * 3)))
    return Verdict(
        *[check for p in (2, 3, 4) for check in degree_checks(p, X, starts[:50])],
        equal(
            "degree 2: 24,000 updates, against Hopfield's network",
            updates,
            np.where(hopfield_fields >= 0, 1.0, -1.0),
        ),
        close(
            "flip probability", explain.flip_probability(np.array(sizes), 100, degree=3), formula
        ),
        *[
            close(
                f"degree 3, d = 100, K = {K:,}: flip rate",
                rate,
                q,
                tolerance=0.15,
                relative=True,
                method="trend",
            )
            for K, rate, q in zip(sizes, rates, formula)
        ],
        at_most("degree 3, d = 100, K = 200: flip rate", cubic_rate, 1e-3, method="trend"),
        at_least("degree 2 on the same patterns: flip rate", square_rate, 0.1, method="trend"),
        assumed=("signs independent and fair",),
        figure=flip_figure(
            {"measured, degree 2": ([200], [square_rate]), "measured, degree 3": (sizes, rates)}
        ),
    )


def flip_figure(points):
    """The flip probability by the number of patterns, for three degrees."""
    grid = np.geomspace(10, 1e6, 300)
    curves = {p: np.asarray(explain.flip_probability(grid, 100, degree=p)) for p in (2, 3, 4)}
    lines = {f"degree {p}": (grid[q > 1e-5], q[q > 1e-5]) for p, q in curves.items()}
    return Panel(
        "patterns stored on 100 sites",
        "probability that a site flips",
        lines=lines,
        points=points,
        log="xy",
    )


@claim(
    "1.4-dense-exp",
    title="Dense associative memory, exponential",
    kind="model",
    of=("models.ExponentialMemory",),
    cites="Demircigil et al. 2017",
)
def exponential(key):
    r"""With $E(x) = -\sum_{t=1}^K e^{x_t^\top x}$, of which we compute $-\log(-E)$ with the same
    minima, 40 sites hold 8,192 patterns, two hundred times their own number; under the quadratic
    energy about half of the signs flip. The capacity grows like $2^{d/2}$: with that many
    patterns, the share of sites that flip decreases from 12 to 24 sites.
    """
    X = random_patterns(key, 2**13, 40)
    exponential_rate = flip_rate(models.ExponentialMemory(X), 200)
    quadratic_rate = flip_rate(models.Hebbian(X), 200)
    stored = np.asarray(X[:300])
    small_memory = models.ExponentialMemory(X[:300])
    sites = (12, 16, 20, 24)
    pattern_sets = {d: random_patterns(jr.fold_in(key, d), 2 ** (d // 2), d) for d in sites}
    rates = [flip_rate(models.ExponentialMemory(pattern_sets[d]), 1000) for d in sites]
    starts = np.asarray(random_patterns(jr.fold_in(key, 1), 20, 40))
    fields = []
    for x in starts:
        up, down = (
            stored @ np.where(np.eye(40, dtype=bool), s, x).T for s in (1.0, -1.0)
        )  # (300, 40): site i set
        fields.append((np.logaddexp.reduce(up) - np.logaddexp.reduce(down)) / 2)
    trace = jax.vmap(lambda x: models.update_sites(small_memory, x, jnp.tile(jnp.arange(40), 4)))(
        starts
    )
    before = -np.logaddexp.reduce(starts @ stored.T, axis=1)
    return Verdict(
        at_most("flip rate of 200 of the 8,192 patterns", exponential_rate, 1e-3, method="trend"),
        at_least("flip rate of the quadratic energy", quadratic_rate, 0.3, method="trend"),
        at_most(
            "flip rate of 2^(d/2) patterns, d = 12, 16, 20, 24, times 2^(d/2)",
            rates * 2.0 ** (np.array(sites) / 2),
            2.0,
            method="trend",
        ),
        at_least(
            "the same, quadratic energy: flip rate",
            [flip_rate(models.Hebbian(pattern_sets[d]), 1000) for d in sites],
            0.3,
            method="trend",
        ),
        close(
            "field, against both sums", each(small_memory.field, starts), fields, tolerance=1e-10
        ),
        at_most(
            "greatest change of energy at a visit",
            np.diff(np.c_[before, trace.energies]),
            0.0,
            slack=1e-12,
        ),
        close(
            "last energies",
            trace.energies[:, -1],
            -np.logaddexp.reduce(np.asarray(trace.x) @ stored.T, axis=1),
        ),
        assumed=("signs independent and fair",),
    )


def _modern_energy(x, xi, beta):
    """The energy from its definition; patterns are the rows of x."""
    log_sum = np.logaddexp.reduce(beta * xi @ x.T, axis=-1) / beta
    max_squared_norm = np.square(x).sum(axis=1).max()
    return (
        -log_sum + 0.5 * np.square(xi).sum(axis=-1) + np.log(len(x)) / beta + 0.5 * max_squared_norm
    )


@claim(
    "1.4-modern-hopfield",
    title="The modern Hopfield network",
    kind="model",
    of=("layers.ModernHopfield",),
    cites="Ramsauer et al. 2021",
)
def modern(key):
    r"""With patterns as the columns of $X$ and $M = \max_t \|x_t\|$, the energy of a real state,
    $E(\xi) = -\frac1\beta \log \sum_t e^{\beta x_t^\top \xi} + \frac12 \|\xi\|^2 + \frac1\beta \log
    n + \frac12 M^2$, decreases under $\xi \leftarrow \xi - \nabla E(\xi) = X
    \,\mathrm{softmax}(\beta X^\top \xi)$. In the convex hull of the patterns $0 \le E \le 2M^2$,
    and for large $\beta$ one step reaches the nearest pattern.
    """
    key_X, key_start, key_far = jr.split(key, 3)
    n, d, beta = 12, 6, 2.0
    X = jr.normal(key_X, (n, d))
    memory = layers.ModernHopfield(X, beta)
    x = np.asarray(X)
    M2 = np.square(x).sum(axis=1).max()

    energy = lambda xi: _modern_energy(x, xi, beta)
    starts = np.asarray(2 * jr.normal(key_start, (30, d)))
    step = 1e-5
    slope = np.stack(
        [(energy(starts + step * e) - energy(starts - step * e)) / (2 * step) for e in np.eye(d)],
        axis=1,
    )
    path = [starts]
    for _ in range(20):
        path.append(each(memory.update, path[-1]))
    energies = np.stack([each(memory.energy, points) for points in path])
    hull = np.random.default_rng(0).dirichlet(np.full(n, 0.3), 2000) @ x
    hull_energies = each(memory.energy, hull)
    patterns = jr.normal(key_far, (10, 64))
    noisy = patterns + 0.1 * jr.normal(jr.fold_in(key_far, 1), patterns.shape)
    twenty_steps = layers.ModernHopfield(X, beta, steps=20)
    sharp_memory = layers.ModernHopfield(patterns, beta=10.0)
    return Verdict(
        close("energy", energies, energy(np.array(path))),
        close_derivative("one update is a gradient step of length 1", path[1], starts - slope),
        at_most(
            "greatest change of energy in 20 steps", np.diff(energies, axis=0), 0.0, slack=1e-12
        ),
        close("20 steps in one call", each(twenty_steps, starts), path[-1]),
        at_least("least energy in the hull", hull_energies.min(), 0.0),
        at_most("greatest energy in the hull", hull_energies.max(), 2 * M2),
        close(
            "one step at β = 10, d = 64, from noisy patterns",
            each(sharp_memory, noisy),
            patterns,
            tolerance=1e-6,
        ),
        figure=_energy_figure(energies[:9, :4], f"{n} patterns in {d} dimensions, β = {beta:g}"),
    )


def _energy_figure(energies, title) -> Panel:
    lines = {
        f"start {k + 1}": (np.arange(len(energies)), column) for k, column in enumerate(energies.T)
    }
    return Panel("steps", "energy", title=title, lines=lines)


@claim(
    "1.4-hopfield-attention",
    title="One step of the modern Hopfield network is attention",
    kind="identity",
    of=("layers.ModernHopfield", "layers.Linear"),
    cites="Ramsauer et al. 2021; Vaswani et al. 2017",
)
def attention(key):
    r"""For queries $Q$ and stored patterns $K$ as rows, one step gives
    $\mathrm{softmax}(\beta QK^\top) K$: attention with $\beta = 1/\sqrt{d_k}$ and the values
    $V = K$; a linear map $W_V$ after it gives $V = KW_V$.
    """
    key_Q, key_K, key_V = jr.split(key, 3)
    t, s, d, e = 9, 14, 16, 5
    Q = jr.normal(key_Q, (t, d))
    K = jr.normal(key_K, (s, d))
    W_V = jr.normal(key_V, (d, e))
    memory = layers.ModernHopfield(K, beta=d**-0.5)
    outputs = each(memory, Q)
    outputs_with_values = each(layers.Chain(memory, layers.Linear(W_V.T)), Q)
    jax_outputs = jax.nn.dot_product_attention(Q[:, None], K[:, None], K[:, None])[:, 0]
    weights = softmax(np.asarray(Q @ K.T) / np.sqrt(d), axis=1)
    return Verdict(
        close(
            "against JAX's attention, which computes the softmax in single precision",
            outputs,
            jax_outputs,
            tolerance=1e-6,
        ),
        close("against softmax(QKᵀ/√d) K", outputs, weights @ np.asarray(K)),
        close(
            "with values, softmax(QKᵀ/√d) K W_V", outputs_with_values, weights @ np.asarray(K @ W_V)
        ),
    )

"""Lecture 10, §1.6 and §2.2: what shallow networks and deep narrow networks can represent."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from scipy.special import expit

from .... import layers, models, train, tree
from ....core import predict, run
from ....plot import Chart, Panel
from ...engine.check import at_least, at_most, close, decreasing, equal, refuted
from ...engine.claim import Verdict, claim


def on_grid(net, x):
    """A network with one input, evaluated on a grid."""
    return np.asarray(_values(net, jnp.asarray(x, float)[:, None]))[:, 0]


_values = jax.jit(predict)


@claim(
    "L10-1.6-uat",
    title="Universal approximation",
    kind="theorem",
    of=("models.step_network", "models.ridge_network"),
    cites="Cybenko 1989; Hornik, Stinchcombe & White 1989",
)
def uat(key):
    r"""For a continuous $\sigma$ with limits 0 and 1, any continuous $f^*$ on a compact set and any
    $\epsilon > 0$ some finite shallow network is within $\epsilon$ everywhere. On an interval
    $f^*(c_0) + \sum_i (f^*(c_i) - f^*(c_{i-1}))\, \sigma(k(x - t_i))$ with steep units is such a
    network, with error $O(1/N)$.
    """
    widths = (50, 100, 200, 400)
    curves = {}
    checks = []
    cases = {
        "sin 2πx": (
            lambda x: jnp.sin(2 * jnp.pi * x),
            lambda x: np.sin(2 * np.pi * x),
            0.0,
            2 * np.pi,
        ),
        "|x|": (jnp.abs, np.abs, -1.0, 1.0),
    }
    for name, (f, by_numpy, low, slope) in cases.items():
        x = np.linspace(low, 1, 10_001)
        k = 1e5
        nets = [models.step_network(f, low=low, high=1.0, width=N, steepness=k) for N in widths]
        error = np.array([np.abs(on_grid(net, x) - by_numpy(x)).max() for net in nets])
        t = np.linspace(low, 1, widths[0] + 2)
        c = by_numpy((t[1:] + t[:-1]) / 2)
        formula = c[0] + expit(k * (x[:, None] - t[1:-1])) @ np.diff(c)
        h = (1 - low) / (np.array(widths) + 1)
        curves[name] = np.array(widths), error
        checks += [
            close(f"{name}, N = 50: unit by unit", on_grid(nets[0], x), formula),
            at_most(f"{name}, N = 400: largest error on 10,001 points", error[-1], 1e-2),
            decreasing(f"{name}: error by N", error),
            close(
                f"{name}: error over slope × half a cell",
                error / (slope * h / 2),
                1.0,
                tolerance=0.1,
                method="trend",
            ),
        ]
    square = lambda t: np.stack(np.meshgrid(t, t), axis=-1).reshape(-1, 2)
    xs, new = (
        square(np.linspace(-1, 1, 40)),
        square((np.arange(39) - 19) / 19.5),
    )  # the midpoints of the cells
    g = lambda x: np.sin(6 * x[:, 0]) * np.cos(5 * x[:, 1])
    fits = [
        models.ridge_network(xs, g(xs), width=M, activation=layers.sigmoid, spread=4.0, key=key)
        for M in (50, 200, 800)
    ]
    miss = [
        np.sqrt(np.mean((np.asarray(_values(net, jnp.asarray(new)))[:, 0] - g(new)) ** 2))
        for net in fits
    ]
    return Verdict(
        *checks,
        decreasing("two inputs, M = 50, 200, 800 random units: error on new points", miss),
        assumed=("σ is continuous, or at least bounded and measurable",),
        figure=Chart(
            Panel(
                "units N",
                "largest error",
                points=curves,
                log="xy",
                bounds={"π/N": (np.array(widths), np.pi / np.array(widths))},
            ),
            Panel(
                "units M",
                "typical error, two inputs",
                points={"sigmoid": ((50, 200, 800), miss)},
                log="xy",
            ),
        ),
    )


@claim(
    "L10-1.6-uat-control",
    title="Polynomial activations do not suffice",
    kind="theorem",
    of=("models.ridge_network",),
    cites="Leshno, Lin, Pinkus & Schocken 1993",
)
def uat_control(key):
    r"""If $\sigma$ is a polynomial of degree $k$, so is every network, whatever its width: with
    $\sigma(z) = z^2$ the best fit of $|x|$ is the best parabola for $M = 10$, 100 and 1000.
    """
    x = np.linspace(-1, 1, 201)
    parabola = np.polyval(np.polyfit(x, np.abs(x), 2), x)
    fit = lambda M, phi: models.ridge_network(
        x[:, None], np.abs(x), width=M, activation=phi, spread=2.0, key=key
    )
    squares = [on_grid(fit(M, jnp.square), x) for M in (10, 100, 1000)]
    miss = lambda y: np.sqrt(np.mean((y - np.abs(x)) ** 2))
    sigmoids = [miss(on_grid(fit(M, layers.sigmoid), x)) for M in (10, 100)]
    return Verdict(
        *[
            close(
                f"M = {M}: the network and the best parabola",
                y,
                parabola,
                tolerance=1e-8,
                method="brute force",
            )
            for M, y in zip((10, 100, 1000), squares)
        ],
        close(
            "the errors of all three", [miss(y) for y in squares], miss(parabola), tolerance=1e-8
        ),
        refuted(
            at_least("sigmoids: their error, against the parabola's", min(sigmoids), miss(parabola))
        ),
        figure=Panel(
            "x",
            "f(x)",
            lines={
                "|x|": (x, np.abs(x)),
                "1000 squares": (x, squares[-1]),
                "100 sigmoids": (x, on_grid(fit(100, layers.sigmoid), x)),
            },
        ),
    )


@claim(
    "L10-2.2-product",
    title="Products from squares",
    kind="identity",
    of=("models.product_network",),
)
def product(rng):
    r"""$x_1 x_2 = \frac14 [(x_1 + x_2)^2 - (x_1 - x_2)^2]$, and products of more factors follow by
    a tree; with ReLU networks for the squares, each product is a ReLU network.
    """
    integers = rng.integers(-9, 10, size=(1000, 8)).astype(float)
    gate = lambda a, b: ((a + b) ** 2 - (a - b) ** 2) / 4

    def by_tree(factors):
        while factors.shape[1] > 1:
            factors = np.c_[
                gate(factors[:, :-1:2], factors[:, 1::2]), factors[:, 2 * (factors.shape[1] // 2) :]
            ]
        return factors[:, 0]

    checks = []
    m = 7
    M = 1.5
    for k in (2, 3, 5):
        net = models.product_network(k, depth=m, bound=M)
        xs = rng.uniform(-M, M, size=(4000, k))
        bound = (2 ** int(np.ceil(np.log2(k))) - 1) * M**k * 4.0 ** -(m + 1)
        error = np.abs(np.asarray(_values(net, jnp.asarray(xs)))[:, 0] - np.prod(xs, axis=1))
        checks.append(at_most(f"network of {k} factors: error over its bound", error / bound, 1.0))
    return Verdict(
        equal(
            "1000 products of two integers",
            gate(integers[:, 0], integers[:, 1]),
            integers[:, 0] * integers[:, 1],
        ),
        *[
            equal(
                f"by a tree, {k} factors",
                by_tree(integers[:, :k]),
                np.prod(integers[:, :k], axis=1),
            )
            for k in (3, 5, 8)
        ],
        refuted(
            equal(
                "with a half instead of the quarter",
                2 * gate(integers[:, 0], integers[:, 1]),
                integers[:, 0] * integers[:, 1],
            )
        ),
        *checks,
    )


@claim(
    "L10-2.2-squaring",
    title="Squares by a deep ReLU network",
    kind="model",
    of=("models.square_network", "models.product_network"),
    cites="Yarotsky 2017",
)
def squaring(key):
    r"""With $g(x) = \min(2x, 2 - 2x)$, $x - \sum_{s=1}^m g^{\circ s}(x) / 4^s$ is a ReLU network of
    $O(m)$ units whose largest error from $x^2$ on $[0, 1]$ is exactly $4^{-(m+1)}$. So $x_1 x_2$ on
    $[-M, M]^2$ has an error of at most $M^2\, 4^{-(m+1)}$.
    """
    depths = np.arange(1, 7)
    x = np.arange(2**9 + 1) / 2**9
    nets = [models.square_network(int(m)) for m in depths]
    values = np.stack([on_grid(net, x) for net in nets])
    folded = [x]
    sums = x
    z = x
    for s in depths:
        z = np.minimum(2 * z, 2 - 2 * z)
        sums = sums - z / 4.0**s
        folded.append(sums)
    error = np.abs(values - x**2).max(axis=1)
    units = [sum(len(part.W) for part in net.body.layers[:-1:2]) for net in nets]
    a = np.linspace(-2.5, 2.5, 161)
    pairs = np.stack(np.meshgrid(a, a), axis=-1).reshape(-1, 2)
    gates = [models.product_network(depth=int(m), bound=2.5) for m in (1, 3, 5)]
    off = [
        np.abs(np.asarray(_values(net, jnp.asarray(pairs)))[:, 0] - np.prod(pairs, axis=1)).max()
        for net in gates
    ]
    return Verdict(
        close("the network and the sum, m = 1 to 6", values, np.stack(folded[1:]), tolerance=1e-14),
        close(
            "largest error on a grid, over 4^−(m+1)",
            error * 4.0 ** (depths + 1),
            1.0,
            tolerance=1e-9,
        ),
        refuted(close("over 4^−m", error * 4.0**depths, 1.0, tolerance=1e-9)),
        equal("hidden units", units, 3 * depths),
        at_most(
            "product on [−2.5, 2.5]², m = 1, 3, 5: largest error, against M² 4^−(m+1)",
            off,
            2.5**2 * 4.0 ** -np.array([2, 4, 6]),
            slack=1e-12,
        ),
        figure=Chart(
            Panel(
                "x",
                "approximation minus x²",
                lines={f"m = {m}": (x, values[m - 1] - x**2) for m in (1, 2, 3)},
            ),
            Panel(
                "hidden layers m",
                "largest error",
                points={"measured": (depths, error)},
                bounds={"4^−(m+1)": (depths, 4.0 ** -(depths + 1))},
                log="y",
            ),
        ),
    )


@claim(
    "L10-2.2-narrow-uat",
    title="Deep and narrow: width d + 1 suffices, d does not",
    kind="theorem",
    of=("models.max_affine_network", "models.scale_network", "train.descend"),
    cites="Hanin 2019; Johnson 2019",
)
def narrow(key, rng):
    r"""A ReLU network of width $d + 1$ is exactly $\max_j (a_j^\top x + b_j)$ on $[0, 1]^d$ with a
    layer for each affine form, and so approximates every convex function. With width $d$ it cannot:
    its superlevel set at the value of the centre reaches the border, so its error from
    $1 - \|x\|^2$ on $[-1, 1]^2$ is at least $\frac12$.
    """
    checks = []
    for d in (2, 3):
        A = rng.normal(size=(9, d))
        b = rng.normal(size=9)
        xs = rng.uniform(size=(10_000, d))
        net = models.max_affine_network(A, b)
        got = np.asarray(_values(net, jnp.asarray(xs)))[:, 0]
        checks += [
            close(f"d = {d}: nine affine forms at 10,000 points", got, (xs @ A.T + b).max(axis=1)),
            equal(
                f"d = {d}: widths of the hidden layers",
                [len(part.W) for part in net.body.layers[:-1:2]],
                [d + 1] * 8,
            ),
        ]
    side = np.linspace(-1, 1, 21)
    xs = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    ys = 1 - np.sum(xs**2, axis=1)
    spots = np.stack(np.meshgrid(*[np.linspace(-0.8, 0.8, 5)] * 2), axis=-1).reshape(-1, 2)
    tangent = lambda spots: models.scale_network(
        models.max_affine_network(2 * spots, -np.sum(spots**2, axis=1) - 1, low=-1.0), -1.0
    )
    written = np.abs(np.asarray(_values(tangent(spots), jnp.asarray(xs)))[:, 0] - ys).max()
    few = np.array([[0.5, 0.0], [-0.5, 0.0], [0.0, 0.5], [0.0, -0.5], [0.0, 0.0]])
    shake = lambda key: tree.axpy(0.05, tree.normal_like(key, tangent(few)), tangent(few))
    keys = jr.split(key, 5)
    thin = jax.vmap(lambda key: models.MLP.init(2, 2, 2, 2, 2, 1, key=key))(
        jr.split(jr.fold_in(key, 1), 40)
    )
    two = _trained(thin, jnp.asarray(xs), jnp.asarray(ys)).reshape(5, 8).min(axis=1)
    three = _trained(jax.vmap(shake)(keys), jnp.asarray(xs), jnp.asarray(ys))
    seeds = np.arange(1, 6)
    return Verdict(
        *checks,
        at_most("width 3, 25 tangent planes: largest error", written, 0.1),
        at_least(
            "width 2, trained, the best of 8 starts for each of 5 seeds: largest error",
            two,
            0.5,
            slack=1e-9,
        ),
        at_most("width 3, trained from five planes with noise, 5 seeds", three, 0.45),
        figure=Panel(
            "seed",
            "largest error on [−1, 1]²",
            points={"width 2": (seeds, two), "width 3": (seeds, three)},
            bounds={"lower bound for width 2": (seeds, np.full(5, 0.5))},
        ),
    )


@jax.jit
def _trained(nets, xs, ys):
    """The largest error of each network, the smallest during training."""
    step = train.descend(
        lambda net, batch, key: train.squared_error(net, (xs, ys)), optax.adam(0.01)
    )
    worst = lambda state: jnp.abs(predict(state.model, xs)[:, 0] - ys).max()
    learn = lambda net: run(step, net, jnp.zeros(400), key=jr.key(0), record=worst)[1][0].min()
    return jax.vmap(learn)(nets)

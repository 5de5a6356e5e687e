"""Lecture 10, §2: networks with several hidden layers, and the benefit of depth."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from matplotlib.collections import LineCollection, PathCollection

from .... import explain, layers, models, train, tree
from ....core import predict, run
from ....layers import Chain, Linear
from ....plot import Chart, Panel, draw
from ...engine.check import at_least, at_most, close, equal, refuted
from ...engine.claim import Verdict, claim
from .shallow import shallow


def deep(rng, sizes, activation=layers.tanh):
    r"""$W_\ell$ and $b_\ell$ of all hidden layers, $\beta$, and the library's network with these
    weights.
    """
    Ws = [rng.normal(size=(m, n)) / np.sqrt(n) for n, m in pairwise(sizes)]
    bs = [rng.normal(size=len(W)) for W in Ws]
    beta = rng.normal(size=sizes[-1])
    parts = [
        part
        for W, b in zip(Ws, bs)
        for part in (Linear(jnp.asarray(W), jnp.asarray(b)), activation)
    ]
    return Ws, bs, beta, models.MLP(Chain(*parts, Linear(jnp.asarray(beta)[None])))


@claim(
    "L10-2.2-mlp",
    title="A deep network",
    kind="model",
    of=("models.MLP", "models.merge_linear_layers"),
)
def mlp(rng):
    r"""$f_0 = x$, $f_{\ell+1} = \sigma(W_\ell f_\ell + b_\ell)$ for $\ell = 0, \dots, L - 1$ and
    $f = \beta^\top f_L$, with $\sigma$ entry by entry. It has
    $\sum_\ell d_{\ell+1} (d_\ell + 1) + d_L$ parameters; $L = 1$ is the shallow network, and with a
    linear $\sigma$ the network is one matrix.
    """
    sizes = (3, 5, 4, 6)
    Ws, bs, beta, net = deep(rng, sizes)
    x = rng.normal(size=3)
    f = list(x)
    for W, b in zip(Ws, bs):
        f = [np.tanh(sum(W[i, j] * f[j] for j in range(len(f))) + b[i]) for i in range(len(b))]
    by_hand = sum(beta[i] * f[i] for i in range(6))
    (W,), (b,), v, one = deep(rng, (3, 5))
    same = shallow(W, b, v, layers.tanh)
    at = jnp.asarray(x)
    *_, flat = deep(rng, sizes, layers.identity)
    maps = [
        (np.asarray(part.W), 0 if part.b is None else np.asarray(part.b))
        for part in flat.body.layers[::2]
    ]
    matrix = np.eye(3)
    offset = np.zeros(3)
    for W, b in maps:
        matrix = W @ matrix
        offset = W @ offset + b
    affine = models.merge_linear_layers(flat)
    return Verdict(
        close("three hidden layers, unit by unit", net(at).item(), by_hand, tolerance=1e-13),
        equal("L = 1: the shallow network", one(at), same(at)),
        equal("parameters", tree.size(net), 5 * 4 + 4 * 6 + 6 * 5 + 6),
        equal(
            "the same by the formula",
            tree.size(net),
            sum(m * (n + 1) for n, m in pairwise(sizes)) + sizes[-1],
        ),
        close("linear σ: the matrix", affine.W, matrix, tolerance=1e-13),
        close("linear σ: the offset", affine.b, offset, tolerance=1e-13),
        close(
            "linear σ: the network is this affine map",
            flat(at),
            matrix @ x + offset,
            tolerance=1e-13,
        ),
        refuted(
            close(
                "tanh: the network is additive", net(at) + net(-at), 2 * net(0 * at), tolerance=1e-3
            )
        ),
    )


def sawtooth(depth):
    r"""$g^{\circ k}$ with $g(x) = (2x)_+ - 2(2x - 1)_+ + (2x - 2)_+$, a hat over $[0, 1]$: width
    3.
    """
    read = np.ones((1, 1))
    hat = np.array([[1.0, -2.0, 1.0]])
    parts = []
    for _ in range(depth):
        parts += [
            Linear(jnp.asarray(2 * np.ones((3, 1)) @ read), jnp.asarray([0.0, -1.0, -2.0])),
            layers.relu,
        ]
        read = hat
    return models.MLP(Chain(*parts, Linear(jnp.asarray(hat), jnp.zeros(1))))


@claim(
    "L10-2.1-depth-width",
    title="Depth can beat width, but need not",
    kind="experiment",
    of=("models.MLP", "explain.breakpoints_1d", "models.least_squares", "train.descend"),
    cites="Telgarsky 2016",
)
def depth_and_width(key, rng):
    r"""Six layers of three ReLU units make a sawtooth of $2^6$ pieces exactly; a single layer of
    $M$ units has at most $M + 1$ pieces, so with $M \le 31$ one of them spans three of the 65
    extrema and its error is at least $\frac12$. On a few noisy examples of a linear function eight
    layers do worse than one.
    """
    net = sawtooth(6)
    x = np.r_[np.arange(1025) / 1024, rng.uniform(size=2000)]
    wave = 1 - np.abs(1 - (64 * x) % 2)
    got = np.asarray(predict(net, jnp.asarray(x)[:, None]))[:, 0]
    result = explain.breakpoints_1d(net, 0.0, 1.0, exact=True)
    wide = [
        shallow(rng.normal(size=(31, 1)), rng.normal(size=31), rng.normal(size=31), layers.relu)
        for _ in range(5)
    ]
    grid = np.arange(1025) / 1024
    tooth = 1 - np.abs(1 - (64 * grid) % 2)
    worst = [_hinges(grid, tooth, np.sort(rng.uniform(size=31))) for _ in range(60)]
    even = _hinges(grid, tooth, np.arange(1, 32) / 32)
    enough = _hinges(grid, tooth, np.arange(64) / 64)
    one, eight = depth_errors(key)
    seeds = np.arange(1, 11)
    return Verdict(
        close("the deep network and the sawtooth", got, wave),
        equal("its pieces on [0, 1]", result.n_pieces, 64),
        at_most(
            "pieces of 31 random units in one layer",
            [explain.breakpoints_1d(f).n_pieces for f in wide],
            32,
        ),
        at_least("31 units at 60 random sets of knots, least squares: largest error", worst, 0.5),
        at_least("31 equidistant units", even, 0.5),
        at_most("64 units at the extrema", enough, 1e-9),
        at_least(
            "noisy linear data: seeds of 10 with one layer no worse than eight",
            int((one <= eight).sum()),
            8,
            method="trend",
        ),
        figure=Chart(
            Panel("x", "f(x)", lines={"6 layers of 3": (grid[:257], got[:257])}),
            Panel(
                "seed",
                "test error, 30 noisy linear examples",
                points={"1 hidden layer": (seeds, one), "8 hidden layers": (seeds, eight)},
            ),
        ),
    )


def _hinges(x, y, knots):
    """The largest error of a least-squares fit by ReLU units with these kinks and an affine
    part.
    """
    features = jnp.asarray(np.c_[x, np.maximum(x[:, None] - knots, 0)])
    fit = models.least_squares(features, jnp.asarray(y))
    return float(np.abs(np.asarray(features) @ np.asarray(fit.W)[0] + np.asarray(fit.b) - y).max())


def depth_errors(key, n=30, d=2, width=16):
    """Test errors with one and with eight hidden layers, trained in the same way on 30 noisy
    examples of a linear function.
    """

    def errors(hidden):
        def trial(key):
            key_w, key_x, key_y, key_net = jr.split(key, 4)
            w = jr.normal(key_w, (d,)) / np.sqrt(d)
            xs = jr.normal(key_x, (n + 500, d))
            noisy = xs[:n] @ w + jr.normal(key_y, (n,))
            net = models.MLP.init(
                d,
                *[width] * hidden,
                1,
                activation=layers.tanh,
                initialiser=layers.glorot,
                key=key_net,
            )
            step = train.descend(
                lambda net, batch, key: train.squared_error(net, (xs[:n], noisy)), optax.adam(0.003)
            )
            net = run(step, net, jnp.zeros(500), key=key)[0].model
            return 2 * train.squared_error(net, (xs[n:], xs[n:] @ w))

        return np.asarray(jax.jit(jax.vmap(trial))(jr.split(key, 10)))

    return errors(1), errors(8)


@claim(
    "L10-2.3-fig-mlp",
    title="Diagram of a network",
    kind="figure",
    of=("explain.network_graph", "models.MLP"),
)
def fig_mlp(key):
    r"""The units of a network as $\sum_\ell d_\ell$ nodes and its weights as
    $\sum_\ell d_\ell d_{\ell+1}$ edges, drawn from the network itself; a wide layer is drawn in
    part but counted in full.
    """
    sizes = (4, 6, 5, 3)
    shape = lambda *sizes: jax.eval_shape(lambda: models.MLP.init(*sizes, key=key))
    small = explain.network_graph(shape(*sizes))
    large = explain.network_graph(shape(784, 256, 128, 10))
    nodes, edges = _drawn(small)
    some, _ = _drawn(large)
    pairs = sum(1 for n, m in pairwise(sizes) for _ in range(n) for _ in range(m))
    return Verdict(
        equal("nodes drawn", nodes, sum(sizes)),
        equal("edges drawn", edges, pairs),
        equal("reported nodes and edges", [small.nodes, small.edges], [18, 69]),
        equal(
            "784-256-128-10: reported nodes and edges",
            [large.nodes, large.edges],
            [1178, 784 * 256 + 256 * 128 + 1280],
        ),
        at_most("784-256-128-10: nodes drawn", some, 4 * 12),
        figure=small,
    )


def _drawn(result):
    """Circles and lines in the figure."""
    things = draw(result).axes[0].collections
    circles = sum(
        len(np.asarray(thing.get_offsets()))
        for thing in things
        if isinstance(thing, PathCollection)
    )
    return circles, sum(
        len(thing.get_segments()) for thing in things if isinstance(thing, LineCollection)
    )

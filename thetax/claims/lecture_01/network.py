"""Lecture 1: the network with one hidden layer, its gradients by formula and in matrix form, and
stochastic gradient descent.
"""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from scipy.special import expit

from ... import layers, models, train
from ...core import run
from ...layers import Initialiser, Linear
from ...plot import Chart, Panel
from ..engine.check import at_least, at_most, close, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian

UNIFORM_INITIALISER = Initialiser(
    lambda key, shape: jr.uniform(key, shape, minval=-1 / shape[1], maxval=1 / shape[1])
)  # U(−1/n, 1/n)


def three_layers(n, m, *, key, initialiser=UNIFORM_INITIALISER):
    """The library's network of n inputs, m sigmoid units and one output, without biases."""
    return models.MLP.init(
        n,
        m,
        1,
        activation=layers.sigmoid,
        affine=partial(Linear.init, bias=False),
        initialiser=initialiser,
        key=key,
    )


def weights(net):
    """The rows w_j and the β_j."""
    first, _, last = net.body.layers
    return np.asarray(first.W), np.asarray(last.W)[0]


def _loss(net, x, y):
    return train.squared_loss(net(jnp.asarray(x))[0], jnp.asarray(y))


def _by_hand(w, beta, x, y):
    """Output, and the gradients by β_j and w_ji, in loops over units and inputs."""
    hidden = [1 / (1 + np.exp(-sum(w[j, i] * x[i] for i in range(len(x))))) for j in range(len(w))]
    out = sum(beta[j] * hidden[j] for j in range(len(w)))
    by_beta = np.array([(out - y) * h for h in hidden])
    slope = [(out - y) * beta[j] * hidden[j] * (1 - hidden[j]) for j in range(len(w))]
    return (
        out,
        by_beta,
        np.array([[slope[j] * x[i] for i in range(len(x))] for j in range(len(w))]),
        hidden,
    )


@claim(
    "L1-mlp",
    "L1-mlp-grad-beta",
    "L1-mlp-grad-w",
    title="One hidden layer of sigmoids, and its gradients",
    kind="model",
    of=("models.MLP", "train.backpropagate", "train.squared_loss"),
)
def mlp(key, rng):
    r"""$f(x) = \sum_{j=1}^m \beta_j \sigma(w_j \cdot x)$. For the loss $\frac12 (f(x) - y)^2$ the
    gradients are $\frac{\partial}{\partial \beta_j} = (f - y)\,\sigma(w_j \cdot x)$ and
    $\frac{\partial}{\partial w_{ji}} = (f - y)\,\beta_j\, \sigma(w_j \cdot x)\,\sigma(-w_j \cdot
    x)\,x_i$.
    """
    n, m = 3, 5
    net = three_layers(n, m, key=key, initialiser=layers.gaussian(1.0))
    (w, beta), x, y = weights(net), rng.normal(size=n), rng.normal()
    out, by_beta, by_w, hidden = _by_hand(w, beta, x, y)
    squares = lambda prediction, y: train.squared_loss(prediction[0], y)
    result = train.backpropagate(net.body, squares, jnp.asarray(x), jnp.asarray(y))
    first, _, last = result.gradient.layers
    with_ = lambda w, beta: models.MLP(
        layers.Chain(Linear(jnp.asarray(w)), layers.sigmoid, Linear(beta[None]))
    )
    fd = {"tolerance": 1e-9, "method": "finite differences"}
    slope_beta = jacobian(lambda beta: _loss(with_(w, beta), x, y), beta)
    slope_w = jacobian(lambda w: _loss(with_(w, jnp.asarray(beta)), x, y), w)
    return Verdict(
        close("the network, against loops", net(jnp.asarray(x))[0], out, tolerance=1e-13),
        close("hidden activities", result.activations[2], hidden, tolerance=1e-14),
        at_least(
            "smallest hidden activity, above 0", np.min(result.activations[2]), np.nextafter(0, 1)
        ),
        at_most(
            "largest hidden activity, below 1", np.max(result.activations[2]), np.nextafter(1, 0)
        ),
        equal("number of parameters: m n + m", w.size + beta.size, m * n + m),
        close("by β, backpropagated", last.W[0], by_beta, tolerance=1e-13),
        close("by β, by differences", slope_beta, by_beta, **fd),
        close("by w, backpropagated", first.W, by_w, tolerance=1e-13),
        close("by w, by differences", slope_w, by_w, **fd),
        refuted(close("by w without β", slope_w, by_w / beta[:, None], **fd)),
    )


STEPS = 100_000


def _fits(keys):
    """Networks of 20 units after 100,000 SGD steps on examples of the sine, and their values on a
    grid.
    """
    step = train.descend(train.squared_error, optax.sgd(0.05))
    grid = jnp.linspace(-jnp.pi, jnp.pi, 201)
    padded = lambda t: jnp.stack([t, jnp.ones_like(t)], axis=1)

    def go(key):
        key_net, key_data = jr.split(key)
        net = three_layers(2, 20, key=key_net)
        net = models.MLP(
            layers.Chain(Linear(layers.gaussian(2.0)(key_net, (20, 2))), *net.body.layers[1:])
        )
        t = jr.uniform(key_data, (STEPS,), minval=-jnp.pi, maxval=jnp.pi)
        state, (_, info) = run(step, net, (padded(t)[:, None], jnp.sin(t)[:, None]), key=key)
        return jax.vmap(state.model)(padded(grid))[:, 0], info.loss.reshape(100, -1).mean(axis=1)

    return grid, *jax.jit(jax.vmap(go))(keys)


@claim(
    "L1-mlp-sgd",
    title="Stochastic gradient descent on one hidden layer",
    kind="algorithm",
    of=("train.descend", "models.MLP"),
    cites="Robbins & Monro 1951",
)
def sgd(key, rng):
    r"""$w \leftarrow w - \eta \frac{\partial}{\partial w} \frac12 (f(x) - y)^2$ for
    $w \in \{\beta_j, w_{ji}\}$, one example at a time, fits $\sin$ on $[-\pi, \pi]$ by 20 units.
    """
    eta = 0.05
    net = three_layers(3, 5, key=key)
    (w, beta), x, y = weights(net), rng.normal(size=3), rng.normal()
    step = train.descend(train.squared_error, optax.sgd(eta))
    once = step.step(step.init(net), (jnp.asarray(x)[None], jnp.asarray([y])), key=key)[0].model
    _, by_beta, by_w, _ = _by_hand(w, beta, x, y)
    new_w, new_beta = weights(once)
    grid, values, losses = (np.asarray(a) for a in _fits(jr.split(key, 3)))
    return Verdict(
        close("one step, of β", new_beta, beta - eta * by_beta, tolerance=1e-15),
        close("one step, of w", new_w, w - eta * by_w, tolerance=1e-15),
        refuted(close("one step up, of w", new_w, w + eta * by_w, tolerance=1e-6)),
        at_most(
            "mean squared error after 100,000 examples, 3 starts",
            np.square(values - np.sin(grid)).mean(axis=1),
            5e-3,
        ),
        figure=Chart(
            Panel(
                "x",
                "output",
                lines={"network": (grid, values[0])},
                bounds={"sin x": (grid, np.sin(grid))},
            ),
            Panel(
                "thousand examples",
                "mean loss of the last 1,000",
                lines={f"start {i + 1}": (np.arange(1, 101), losses[i]) for i in range(3)},
                log="y",
            ),
        ),
    )


class MLP3:
    """The lecture's network in NumPy: the examples are columns, gradients are sums over them."""

    def __init__(self, rng, n, m):
        self.theta, self.beta = (
            rng.uniform(-1 / n, 1 / n, (m, n)),
            rng.uniform(-1 / m, 1 / m, (1, m)),
        )

    def forward(self, x):
        """Hidden activities (m × s) and outputs (1 × s)."""
        hid = expit(self.theta @ x)
        return hid, self.beta @ hid

    def gradient(self, x, y):
        """By β (1 × m) and by θ (m × n)."""
        hid, out = self.forward(x)
        delta = out - y
        return delta @ hid.T, (self.beta.T @ delta * (hid - hid * hid)) @ x.T

    def network(self):
        """The same weights in the library."""
        return models.MLP(
            layers.Chain(
                Linear(jnp.asarray(self.theta)), layers.sigmoid, Linear(jnp.asarray(self.beta))
            )
        )


@claim(
    "L1-mlp3-code",
    title="The network in matrices, for several examples",
    kind="algorithm",
    of=("models.MLP", "train.squared_error"),
)
def mlp3(key, rng):
    r"""For examples as columns of $x \in \mathbb{R}^{n \times s}$: $h = \sigma(\theta x)$ and
    $o = \beta h$; with $\delta = o - y$ the gradients are $g_\beta = \delta h^\top$ and
    $g_\theta = ((\beta^\top \delta) \odot (h - h \odot h))\, x^\top$, sums over the examples. The
    weights are initialised uniformly, $\theta$ within $\pm 1/n$ and $\beta$ within $\pm 1/m$.
    """
    n, m, s = 3, 4, 5
    hand = MLP3(rng, n, m)
    x = rng.normal(size=(n, s))
    y = rng.normal(size=(1, s))
    net = hand.network()
    batch = (jnp.asarray(x.T), jnp.asarray(y[0]))
    by_beta, by_theta = hand.gradient(x, y)
    total = lambda net: s * train.squared_error(net, batch)
    auto_w, auto_beta = weights(jax.grad(total)(net))
    initial = three_layers(50, 40, key=key)
    with_ = lambda theta, beta: models.MLP(
        layers.Chain(Linear(theta), layers.sigmoid, Linear(beta))
    )
    single = [hand.gradient(x[:, [i]], y[:, [i]]) for i in range(s)]
    fd = {"tolerance": 1e-9, "method": "finite differences"}
    bounds = [np.abs(a).max() * size for a, size in zip(weights(initial), (50, 40))]
    slope_theta = jacobian(lambda theta: total(with_(theta, jnp.asarray(hand.beta))), hand.theta)
    return Verdict(
        close(
            "outputs, by hand and by the library",
            hand.forward(x)[1][0],
            jax.vmap(net)(batch[0])[:, 0],
            tolerance=1e-14,
        ),
        close("g_β, against jax.grad", by_beta[0], auto_beta, tolerance=1e-13),
        close("g_θ, against jax.grad", by_theta, auto_w, tolerance=1e-13),
        close(
            "g_β, by differences",
            by_beta,
            jacobian(lambda beta: total(with_(jnp.asarray(hand.theta), beta)), hand.beta),
            **fd,
        ),
        close("g_θ, by differences", by_theta, slope_theta, **fd),
        close(
            "g_β, against the sum over examples",
            by_beta,
            sum(b for b, _ in single),
            tolerance=1e-13,
        ),
        close(
            "g_θ, against the sum over examples",
            by_theta,
            sum(t for _, t in single),
            tolerance=1e-13,
        ),
        at_most("largest first weight × n, and output weight × m", bounds, 1.0),
        at_least("and the bound is nearly attained", bounds, 0.9),
        refuted(
            close(
                "g_θ without the sensitivities",
                (hand.beta.T @ (hand.forward(x)[1] - y)) @ x.T,
                slope_theta,
                **fd,
            )
        ),
    )


LISTING = """
class Network:
    def __init__(self, theta, beta):
        self.theta, self.beta = theta, beta
    def forward(self, x):
        {f}
        f['hid'] = expit(np.dot(self.theta, x))
        f['out'] = np.dot(self.beta, f['hid'])
        return f
    def gradient(self, f, x, y):
        {g}
        delta = f['out'] - y
        g['bet'] = np.dot(delta, f['hid'].T)
        g['tet'] = np.dot(np.outer(self.beta.T, delta) * (f['hid'] - f['hid'] * f['hid']), x.T)
        return g
"""


def _run_listing(f, g, hand, x, y):
    """The result of the listing with these two lines: the gradient with respect to θ, or the
    undefined name.
    """
    names = {"np": np, "expit": expit}
    exec(LISTING.format(f=f, g=g), names)
    net = names["Network"](hand.theta, hand.beta)
    try:
        return net.gradient(net.forward(x), x, y)["tet"]
    except NameError as error:
        return error.name


@erratum(
    "L1-mlp3-code",
    title="Dictionaries that are never created",
    printed=r"f_{\mathrm{hid}} := \sigma(\theta x),\; \theta x : m \times n \cdot n \times m",
    corrected=r"f, g := \{\};\; f_{\mathrm{hid}} := \sigma(\theta x),\; \theta x : m \times n "
    r"\cdot n \times s",
    of=("models.MLP",),
)
def mlp3_printed(rng):
    r"""The printed class writes into dictionaries $f$ and $g$ that it never creates, and annotates
    the product $\theta x$ as $m \times n \cdot n \times m$; the input is $n \times s$, a column for
    each example.
    """
    n, m, s = 3, 4, 5
    hand = MLP3(rng, n, m)
    x = rng.normal(size=(n, s))
    y = rng.normal(size=(1, s))
    first = hand.network()
    batch = (jnp.asarray(x.T), jnp.asarray(y[0]))
    expected = weights(jax.grad(lambda net: s * train.squared_error(net, batch))(first))[0]
    works = lambda name, f, g: equal(
        f"{name}: the listing runs", not isinstance(_run_listing(f, g, hand, x, y), str), True
    )
    shape = lambda name, columns: equal(
        f"θx is m × {name}: columns", (hand.theta @ x).shape[1], columns
    )
    return Verdict(
        works("with f and g created", "f = {}", "g = {}"),
        close(
            "and gives the gradient by θ",
            _run_listing("f = {}", "g = {}", hand, x, y),
            expected,
            tolerance=1e-13,
        ),
        shape("s", s),
        printed=[
            works("as printed", "pass", "pass"),
            works("with only f created", "f = {}", "pass"),
            shape("m", m),
        ],
    )

"""Lecture 1: a network of two inputs, two hidden units and one output, differentiated by hand."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from ... import layers, train
from ...core import iterate
from ...layers import Chain, Linear
from ...plot import Chart, Panel
from ..engine.check import at_least, at_most, close, refuted
from ..engine.claim import Verdict, claim
from ..engine.differences import jacobian

NAMES = ("w11", "w21", "w12", "w22", "w31", "w32")
LOG = np.log
EXAMPLE = {
    "w": np.array([LOG(3), 0, LOG(3), -LOG(3), LOG(4), LOG(4)]),
    "x": np.array([1.0, 2.0]),
    "y": 0.5,
}
# σ(±ln 3) = 3/4 and 1/4, σ(ln 4) = 4/5: the whole pass can be done on paper


def network(w):
    """The library's network with the six weights, in the order of NAMES."""
    w = jnp.asarray(w)
    return Chain(Linear(w[:4].reshape(2, 2)), layers.sigmoid, Linear(w[4:][None]), layers.sigmoid)


def sigma(z):
    """The logistic function, by NumPy."""
    return 1 / (1 + np.exp(-z))


def forward(w, x):
    """The hidden inputs, hidden values, the output's input, and the output."""
    w11, w21, w12, w22, w31, w32 = w
    net = np.array([w11 * x[0] + w21 * x[1], w12 * x[0] + w22 * x[1]])
    h = sigma(net)
    net_o = w31 * h[0] + w32 * h[1]
    return net, h, net_o, sigma(net_o)


def backward(w, x, y):
    """The gradients with respect to the weights, in the order of NAMES, and to the two hidden
    values, by the chain rule on paper.
    """
    *_, w31, w32 = w
    net, h, net_o, out = forward(w, x)
    slope = lambda z: sigma(z) * (1 - sigma(z))
    at_output = (out - y) * slope(net_o)
    by_h = np.array([at_output * w31, at_output * w32])
    through = by_h * slope(net)
    return np.array([*(through[0] * x), *(through[1] * x), *(at_output * h)]), by_h


def library_backward(w, x, y):
    """The library's backpropagation through the network."""
    squares = lambda prediction, y: train.squared_loss(prediction[0], y)
    return train.backpropagate(network(w), squares, jnp.asarray(x), jnp.asarray(y))


def flatten(gradient):
    """A gradient in the order of NAMES."""
    return np.concatenate([np.asarray(gradient.layers[i].W).ravel() for i in (0, 2)])


@claim(
    "L1-bp-forward",
    title="Forward pass of a small network",
    kind="model",
    of=("layers.Chain", "train.backpropagate"),
)
def forwards(rng):
    r"""$h_1 = \sigma(w_{11} x_1 + w_{21} x_2)$, $h_2 = \sigma(w_{12} x_1 + w_{22} x_2)$ and
    $\hat y = \sigma(w_{31} h_1 + w_{32} h_2)$: the first matrix is
    $\begin{pmatrix} w_{11} & w_{21} \\ w_{12} & w_{22} \end{pmatrix}$, with a row for each hidden
    unit.
    """
    result = library_backward(**EXAMPLE)
    w = rng.normal(size=6)
    xs = rng.normal(size=(20, 2))
    paper = np.array([forward(w, x)[3] for x in xs])
    values = lambda w: np.asarray(jax.vmap(network(w))(jnp.asarray(xs)))[:, 0]
    return Verdict(
        close("net_h on paper: ln 3 and −ln 3", result.activations[1], [LOG(3), -LOG(3)]),
        close("h on paper: 3/4 and 1/4", result.activations[2], [0.75, 0.25]),
        close("net_o on paper: ln 4", result.activations[3][0], LOG(4)),
        close("ŷ on paper: 4/5", result.activations[4][0], 0.8),
        close("random weights, 20 inputs", values(w), paper, tolerance=1e-14),
        refuted(
            close(
                "with the first matrix transposed",
                values(w[[0, 2, 1, 3, 4, 5]]),
                paper,
                tolerance=1e-3,
            )
        ),
    )


@claim(
    "L1-bp-loss",
    "L1-bp-output-weights",
    "L1-bp-hidden",
    "L1-bp-input-weights",
    title="Backward pass of a small network",
    kind="identity",
    of=("train.backpropagate", "train.squared_loss"),
    cites="Rumelhart, Hinton & Williams 1986",
)
def backwards(rng):
    r"""With $L = \frac12 (y - \hat y)^2$: $\frac{\partial L}{\partial \hat y} = \hat y - y$,
    $\frac{\partial L}{\partial w_{3j}} = (\hat y - y)\,\sigma'(\mathrm{net}_o)\,h_j$,
    $\frac{\partial L}{\partial h_j} = (\hat y - y)\,\sigma'(\mathrm{net}_o)\,w_{3j}$ and
    $\frac{\partial L}{\partial w_{ij}} = \frac{\partial L}{\partial
    h_j}\,\sigma'(\mathrm{net}_{h_j})\,x_i$.
    """
    w = rng.normal(size=6)
    x = rng.normal(size=2)
    y = rng.uniform()
    result, (by_w, by_h) = library_backward(w, x, y), backward(w, x, y)
    _, h, _, out = forward(w, x)
    loss = lambda w: train.squared_loss(network(w)(jnp.asarray(x))[0], jnp.asarray(y))
    onward = lambda h: train.squared_loss(
        layers.sigmoid(jnp.vdot(jnp.asarray(w[4:]), h)), jnp.asarray(y)
    )
    numeric = jacobian(loss, w)
    fd = {"tolerance": 1e-10, "method": "finite differences"}
    tight = {"tolerance": 1e-13, "method": "closed form"}
    paper = 0.009 * LOG(4) * np.array([1, 2, 1, 2])
    checks = [
        close(f"∂L/∂{name}, by differences", numeric[i], by_w[i], **fd)
        for i, name in enumerate(NAMES)
    ]
    return Verdict(
        close("L", result.loss, (y - out) ** 2 / 2, **tight),
        close("∂L/∂ŷ, backpropagated", result.deltas[4][0], out - y, **tight),
        close(
            "∂L/∂ŷ, by differences",
            jacobian(lambda p: train.squared_loss(p[0], jnp.asarray(y)), [out])[0],
            out - y,
            **fd,
        ),
        *checks,
        close("all six, backpropagated", flatten(result.gradient), by_w, **tight),
        close("∂L/∂h, backpropagated", result.deltas[2], by_h, **tight),
        close("∂L/∂h, by differences", jacobian(onward, h), by_h, **fd),
        close(
            "on paper: ∂L/∂w31 and ∂L/∂w32",
            flatten(library_backward(**EXAMPLE).gradient)[4:],
            [0.036, 0.012],
        ),
        close(
            "on paper: the first layer", flatten(library_backward(**EXAMPLE).gradient)[:4], paper
        ),
        refuted(close("∂L/∂ŷ as y − ŷ", result.deltas[4][0], y - out, **tight)),
        refuted(
            close(
                "the first layer without σ'(net_h)",
                numeric[:4],
                np.repeat(by_h, 2) * np.tile(x, 2),
                **fd,
            )
        ),
    )


def _descent(start, batch, learning_rate, steps):
    descent = train.descend(
        lambda model, _, key: train.squared_error(model, batch), optax.sgd(learning_rate)
    )
    state, (_, info) = iterate(descent, network(start), steps)
    return state.model, info.loss


@claim(
    "L1-bp-update",
    title="Gradient descent on a small network",
    kind="algorithm",
    of=("train.descend",),
    cites="Rumelhart, Hinton & Williams 1986",
)
def update(key, rng):
    r"""$w := w - \eta \frac{\partial L}{\partial w}$, repeated until the loss converges. On one
    example the loss never rises and goes to 0. On XOR this network, which has no biases, reaches
    different losses from different starts, and from many of them does not solve the task.
    """
    eta = 0.5
    starts = rng.uniform(-1, 1, size=(5, 6))
    x = rng.uniform(size=2)
    y = 0.8
    one = jnp.asarray(x)[None], jnp.asarray([y])
    table = (
        jnp.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]),
        jnp.array([0.0, 1.0, 1.0, 0.0]),
    )
    _, losses = jax.jit(jax.vmap(lambda w: _descent(w, one, eta, 5000)))(jnp.asarray(starts))
    _, xor = jax.jit(jax.vmap(lambda w: _descent(w, table, 4 * eta, 3000)))(jr.normal(key, (40, 6)))
    losses = np.asarray(losses)
    xor = np.asarray(xor)
    once = train.descend(lambda model, _, key: train.squared_error(model, one), optax.sgd(eta))
    updated = once.step(once.init(network(starts[0])), jnp.zeros(()), key=key)[0].model
    t = np.unique(np.geomspace(1, 3000, 150).astype(int))
    order = np.argsort(xor[:, -1])
    return Verdict(
        close(
            "one step, against the formula",
            flatten(updated),
            starts[0] - eta * backward(starts[0], x, y)[0],
            tolerance=1e-13,
        ),
        at_most(
            "one example: largest rise in 5,000 steps from 5 starts",
            np.diff(losses, axis=1),
            0.0,
            slack=1e-15,
        ),
        at_most("one example: loss at step 500", losses[:, 500], 1e-4),
        at_most("XOR: final losses of 40 starts, against the initial ones", xor[:, -1], xor[:, 0]),
        at_least("XOR: the largest of 40 final losses", xor[:, -1].max(), 0.04),
        at_least(
            "XOR: distinct final losses, 0.01 apart",
            1 + int((np.diff(np.sort(xor[:, -1])) > 0.01).sum()),
            2,
        ),
        figure=Chart(
            Panel(
                "step",
                "loss of one example",
                log="xy",
                lines={
                    f"start {i + 1}": (t, np.maximum(losses[i, t - 1], 1e-16)) for i in range(4)
                },
            ),
            Panel(
                "step",
                "mean loss on XOR",
                log="x",
                lines={
                    name: (t, xor[order[i], t - 1])
                    for name, i in (("best", 0), ("median", 20), ("worst", 39))
                },
            ),
        ),
    )

"""Lecture 10, exercise 2: what the threshold, the logistic unit and the rectifier do to a
gradient.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from ... import explain, layers, models, train
from ...core import run
from ...plot import Chart, Panel
from ..engine.chance import chance
from ..engine.check import at_least, at_most, between, close, equal, refuted, within
from ..engine.claim import Verdict, claim

N, D, M = 6, 2, 3


def unit_net(activation, W, b, beta) -> layers.Chain:
    """One hidden layer and a linear readout without offset."""
    return layers.Chain(layers.Linear(W, b), activation, layers.Linear(beta))


@claim(
    "L10-ex2a-threshold",
    title="A threshold stops the gradient",
    kind="exercise",
    of=("layers.heaviside", "train.descend"),
)
def threshold(key):
    r"""The derivative of $1\{z \ge 0\}$ is 0 wherever it exists, so by the chain rule the gradient
    of every weight before a threshold unit is 0: training moves the readout and nothing else.
    """
    rng = chance(key)
    data = jnp.asarray(rng.normal(size=(N, D))), jnp.asarray(rng.normal(size=N))
    parts = [jnp.asarray(rng.normal(size=(1000, *shape))) for shape in ((M, D), (M,), (1, M))]

    def risk(activation, hidden, b, beta):
        return train.squared_error(unit_net(activation, hidden, b, beta), data)

    def slopes(activation, step):
        units = step * jnp.eye(M * D).reshape(-1, M, D)
        rise = lambda W, b, beta, unit: (
            risk(activation, W + unit, b, beta) - risk(activation, W - unit, b, beta)
        )
        each = jax.vmap(lambda W, b, beta: jax.vmap(lambda unit: rise(W, b, beta, unit))(units))
        return np.asarray(jax.jit(each)(*parts)) / (2 * step)

    exact = jax.jit(jax.vmap(jax.grad(lambda W, b, beta: risk(layers.heaviside, W, b, beta))))
    W, beta, none = (
        parts[0][0],
        parts[2][0],
        jnp.zeros(M),
    )  # without offsets no unit is off on all the data
    start = unit_net(layers.heaviside, W, none, beta)
    after = _trained(start, data)
    smooth = _trained(unit_net(layers.sigmoid, W, none, beta), data)
    moved = lambda a, b: float(jnp.abs(a.W - b.W).max())
    return Verdict(
        equal(
            "∂R/∂W₀ by differences at 1,000 places",
            slopes(layers.heaviside, 1e-9),
            np.zeros((1000, M * D)),
            method="finite differences",
        ),
        equal("by automatic differentiation", exact(*parts), np.zeros((1000, M, D))),
        equal("W₀ after 200 steps, moved by", moved(after.layers[0], start.layers[0]), 0.0),
        at_least("the readout, moved by", moved(after.layers[2], start.layers[2]), 0.01),
        at_least(
            "with logistic units, W₀ moved by", moved(smooth.layers[0], start.layers[0]), 0.01
        ),
        at_least(
            "and |∂R/∂W₀| by differences, on average",
            np.abs(slopes(layers.sigmoid, 1e-5)).mean(),
            1e-3,
        ),
    )


def _trained(net: layers.Chain, data) -> layers.Chain:
    step = train.descend(lambda model, batch, key: train.squared_error(model, data), optax.sgd(0.1))
    return jax.jit(lambda net: run(step, net, jnp.zeros(200), key=jr.key(0))[0].model)(net)


@claim(
    "L10-ex2b-logistic",
    title="A logistic unit saturates",
    kind="exercise",
    of=("layers.sigmoid", "train.squared_loss", "train.binary_log_loss", "train.descend"),
)
def logistic(key):
    r"""$\sigma'(z) = \sigma(z)\sigma(-z) \le e^{-|z|}$. So under the squared loss a unit that is
    wrong by a logit $-a$ takes $T(a) = e^a - 1 + 3a + 3(1 - e^{-a}) + \frac12 (1 - e^{-2a})$ of
    time, a factor of about $e^2$ for every 2 more, to change its mind; under the cross-entropy its
    gradient is $\sigma(z) - y$ and does not vanish.
    """
    z = np.linspace(-40, 40, 4001)
    slope = np.asarray(jax.vmap(jax.grad(layers.sigmoid))(jnp.asarray(z)))
    closed = 1 / (np.exp(z / 2) + np.exp(-z / 2)) ** 2
    depth = np.array([4.0, 6.0, 8.0])
    path = np.asarray(_logits(jnp.asarray(-depth), 4000))
    steps = (path < 0).sum(axis=1)
    time = np.exp(depth) - 1 + 3 * depth + 3 * (1 - np.exp(-depth)) + (1 - np.exp(-2 * depth)) / 2
    grad = jax.vmap(jax.grad(lambda z: train.binary_log_loss(z[None], jnp.array(1))))(
        jnp.asarray(-depth)
    )
    square = jax.vmap(jax.grad(lambda z: train.squared_loss(layers.sigmoid(z), jnp.ones(()))))(
        jnp.asarray(-depth)
    )
    shown = np.unique(np.geomspace(1, 4000, 200).astype(int))
    return Verdict(
        at_most("σ'(z), against e^−|z| on [−40, 40]", slope, np.exp(-np.abs(z)), slack=1e-15),
        refuted(at_most("against e^−|z| / 2", slope, np.exp(-np.abs(z)) / 2)),
        close("σ'(z), against its closed form", slope, closed, tolerance=1e-15),
        close(
            "steps to the right side from −4, −6, −8 with η = 1, over T(a)",
            steps / time,
            np.ones(3),
            tolerance=0.04,
            method="closed form",
        ),
        refuted(close("over e^a alone", steps / np.exp(depth), np.ones(3), tolerance=0.04)),
        between(
            "ratio of steps, −8 over −6", steps[2] / steps[1], 0.85 * np.exp(2), 1.15 * np.exp(2)
        ),
        at_least("and −6 over −4, where 3a still counts", steps[1] / steps[0], 0.8 * np.exp(2)),
        close(
            "gradient of the cross-entropy there, σ(z) − y",
            grad,
            -1 / (1 + np.exp(-depth)),
            tolerance=1e-12,
        ),
        at_least("its size", np.abs(grad), 0.98),
        at_most("size of the squared loss's", np.abs(square), np.exp(-depth)),
        figure=Chart(
            Panel(
                "z",
                "slope",
                lines={"σ'(z)": (z[1500:2501], slope[1500:2501])},
                bounds={"e^−|z|": (z[1500:2501], np.exp(-np.abs(z[1500:2501])))},
            ),
            Panel(
                "step",
                "logit",
                log="x",
                lines={f"from −{a:g}": (shown, path[i, shown - 1]) for i, a in enumerate(depth)},
            ),
        ),
    )


def _logits(starts, steps: int):
    """Descent on the squared loss of one logistic unit whose input and target are 1: its logit at
    every step.
    """
    ones = jnp.ones((1, 1)), jnp.ones(1)
    step = train.descend(lambda model, batch, key: train.squared_error(model, ones), optax.sgd(1.0))
    unit = lambda z: layers.Chain(layers.Linear(z[None, None]), layers.sigmoid)
    keep = lambda state: state.model.layers[0].W[0, 0]
    walk = lambda z: run(step, unit(z), jnp.zeros(steps), key=jr.key(0), record=keep)[1][0]
    return jnp.concatenate([starts[:, None], jax.jit(jax.vmap(walk))(starts)], axis=1)


@claim(
    "L10-ex2c-relu",
    title="What a rectifier gives, and what it takes",
    kind="exercise",
    of=("layers.relu", "explain.activations", "explain.gradients"),
    cites="Glorot, Bordes & Bengio 2011",
)
def rectifier(key):
    r"""$\max(0, z)$ has slope 1 wherever it is active, so gradients keep their size through depth,
    and at the initialisation half of the units are 0. Its price: it is unbounded, it has a kink at
    0, and a unit whose pre-activations are all negative has no gradient and never comes back.
    """
    rng = chance(key)
    z = rng.normal(size=1000)
    slope = np.asarray(jax.vmap(jax.grad(layers.relu))(jnp.asarray(z)))
    sides = [
        float((layers.relu(jnp.array(h)) - layers.relu(jnp.array(0.0))) / h) for h in (1e-6, -1e-6)
    ]
    wide = layers.Chain(layers.Linear.init(20, 2000, key=key), layers.relu)
    xs = jnp.asarray(rng.normal(size=(50, 20)))
    each = (np.asarray(xs) @ np.asarray(wide.layers[0].W).T <= 0).mean(
        axis=0
    )  # of each unit, which are independent
    zeros = explain.activations(wide, xs).zeros[1]
    depth = _through_depth(key)
    dead, start, alive = _dead(rng)
    layer = np.arange(1, 1 + len(depth["relu"]))
    return Verdict(
        equal("slope at 1,000 places", slope, (z > 0).astype(float)),
        close("quotients at 0 from either side", sides, [1.0, 0.0], tolerance=1e-12),
        equal(
            "unbounded: at 10⁶, and σ there",
            [float(f(jnp.array(1e6))) for f in (layers.relu, layers.sigmoid)],
            [1e6, 1.0],
        ),
        within(
            "share of 2,000 units that are 0 under He's law",
            zeros,
            0.5,
            error=each.std(ddof=1) / np.sqrt(2000),
        ),
        between(
            "‖∂L/∂h₁‖ over ‖∂L/∂h₈‖, rectifiers", depth["relu"][0] / depth["relu"][-1], 0.1, 10.0
        ),
        at_most("the same, logistic units", depth["sigmoid"][0] / depth["sigmoid"][-1], 1e-3),
        equal("share of dead units, of 4", explain.activations(start, dead.xs).dead[1], 0.25),
        equal("the dead unit's gradient", dead.slope, np.zeros(4)),
        equal("the dead unit's weights after 200 steps", dead.after, dead.before),
        at_least("the others moved by", alive, 1e-3),
        figure=Chart(
            Panel(
                "hidden layer",
                "length of the gradient",
                log="y",
                lines={name: (layer, size) for name, size in depth.items()},
            ),
        ),
    )


def _through_depth(key) -> dict[str, np.ndarray]:
    """The size of the gradient at each of eight hidden layers of 64 units, the one kind under He's
    law, the other under Glorot's.
    """
    xs = jr.normal(key, (32, 64))
    ys = jnp.zeros(32)
    kinds = {"relu": (layers.relu, layers.he), "sigmoid": (layers.sigmoid, layers.glorot)}
    found = {}
    for name, (activation, initialiser) in kinds.items():
        net = models.MLP.init(
            64, *[64] * 8, 1, activation=activation, initialiser=initialiser, key=key
        )
        found[name] = explain.gradients(train.squared_error, net, (xs, ys + 1)).outputs[1:-1:2]
    return found


class Dead(NamedTuple):
    """A unit below its threshold on all the data: its gradient, and its weights before and after
    training.
    """

    xs: Any
    slope: np.ndarray
    before: np.ndarray
    after: np.ndarray


def _dead(rng: np.random.Generator) -> tuple[Dead, layers.Chain, float]:
    xs = jnp.asarray(rng.uniform(-1, 1, size=(N, D)))
    ys = jnp.asarray(rng.normal(size=N))
    b = jnp.array([-10.0, 0.5, 0.5, 0.5])
    net = unit_net(
        layers.relu, jnp.asarray(rng.normal(size=(4, D))), b, jnp.asarray(rng.normal(size=(1, 4)))
    )
    slope = jax.grad(train.squared_error)(net, (xs, ys))
    after = _trained(net, (xs, ys))
    own = lambda chain: np.array(
        [*chain.layers[0].W[0], chain.layers[0].b[0], chain.layers[2].W[0, 0]]
    )
    alive = float(jnp.abs(after.layers[0].W - net.layers[0].W)[1:].max())
    return Dead(xs, own(slope), own(net), own(after)), net, alive

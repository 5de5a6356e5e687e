"""Lecture 10, exercise 2: how threshold, logistic and ReLU units affect the gradient."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from .... import explain, layers, models, train
from ....core import iterate, run
from ....plot import Chart, Panel
from ...engine.check import at_least, at_most, between, close, equal, refuted, within
from ...engine.claim import Verdict, claim

N, D, M = 6, 2, 3


def unit_net(activation, W, b, beta) -> layers.Chain:
    """One hidden layer and a linear readout without bias."""
    return layers.Chain(layers.Linear(W, b), activation, layers.Linear(beta))


@claim(
    "L10-ex2a-threshold",
    title="A threshold stops the gradient",
    kind="exercise",
    of=("layers.heaviside", "train.descend"),
)
def threshold(rng):
    r"""The derivative of $1\{z \ge 0\}$ is 0 wherever it exists, so by the chain rule the gradient
    of every weight before a threshold unit is 0: training changes the readout alone.
    """
    data = jnp.asarray(rng.normal(size=(N, D))), jnp.asarray(rng.normal(size=N))
    parts = [jnp.asarray(rng.normal(size=(1000, *shape))) for shape in ((M, D), (M,), (1, M))]

    def risk(activation, hidden, b, beta):
        return train.squared_error(unit_net(activation, hidden, b, beta), data)

    def slopes(activation, step):
        units = step * jnp.eye(M * D).reshape(-1, M, D)
        W, b, beta = parts
        # one compiled program for both sides, so that equal outputs give bitwise equal risks
        each = jax.jit(
            jax.vmap(jax.vmap(lambda W, b, beta: risk(activation, W, b, beta), (0, None, None)))
        )
        right, left = (
            np.asarray(each(W[:, None] + sign * units[None], b, beta)) for sign in (1, -1)
        )
        return (right - left) / (2 * step)

    exact = jax.jit(jax.vmap(jax.grad(lambda W, b, beta: risk(layers.heaviside, W, b, beta))))
    W, beta, none = (
        parts[0][0],
        parts[2][0],
        jnp.zeros(M),
    )  # without biases no unit is inactive on all the data
    start = unit_net(layers.heaviside, W, none, beta)
    after = _trained(start, data)
    smooth = _trained(unit_net(layers.sigmoid, W, none, beta), data)
    change = lambda a, b: float(jnp.abs(a.W - b.W).max())
    return Verdict(
        equal(
            "∂R/∂W₀ by differences at 1,000 points",
            slopes(layers.heaviside, 1e-9),
            np.zeros((1000, M * D)),
            method="finite differences",
        ),
        equal("by automatic differentiation", exact(*parts), np.zeros((1000, M, D))),
        equal("change of W₀ in 200 steps", change(after.layers[0], start.layers[0]), 0.0),
        at_least("change of the readout", change(after.layers[2], start.layers[2]), 0.01),
        at_least(
            "change of W₀ with logistic units", change(smooth.layers[0], start.layers[0]), 0.01
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
    r"""$\sigma'(z) = \sigma(z)\sigma(-z) \le e^{-|z|}$. So under the squared loss a unit with the
    wrong logit $-a$ takes $T(a) = e^a - 1 + 3a + 3(1 - e^{-a}) + \frac12 (1 - e^{-2a})$ of time to
    change its prediction, a factor of about $e^2$ for every 2 more; under the cross-entropy its
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
    indices = np.unique(np.geomspace(1, 4000, 200).astype(int))
    return Verdict(
        at_most("σ'(z), against e^−|z| on [−40, 40]", slope, np.exp(-np.abs(z)), slack=1e-15),
        refuted(at_most("against e^−|z| / 2", slope, np.exp(-np.abs(z)) / 2)),
        close("σ'(z), against its closed form", slope, closed, tolerance=1e-15),
        close(
            "steps to the correct sign from −4, −6, −8 with η = 1, over T(a)",
            steps / time,
            np.ones(3),
            tolerance=0.04,
            method="closed form",
        ),
        refuted(close("over e^a", steps / np.exp(depth), np.ones(3), tolerance=0.04)),
        between(
            "ratio of steps, −8 over −6", steps[2] / steps[1], 0.85 * np.exp(2), 1.15 * np.exp(2)
        ),
        at_least(
            "and −6 over −4, where the term 3a still matters", steps[1] / steps[0], 0.8 * np.exp(2)
        ),
        close(
            "gradient of the cross-entropy at these logits, σ(z) − y",
            grad,
            -1 / (1 + np.exp(-depth)),
        ),
        at_least("its absolute value", np.abs(grad), 0.98),
        at_most(
            "absolute value of the gradient of the squared loss", np.abs(square), np.exp(-depth)
        ),
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
                lines={
                    f"from −{a:g}": (indices, path[i, indices - 1]) for i, a in enumerate(depth)
                },
            ),
        ),
    )


def _logits(starts, steps: int):
    """Gradient descent on the squared loss of one logistic unit with input and target 1: the logit
    at every step.
    """
    ones = jnp.ones((1, 1)), jnp.ones(1)
    step = train.descend(lambda model, batch, key: train.squared_error(model, ones), optax.sgd(1.0))
    unit = lambda z: layers.Chain(layers.Linear(z[None, None]), layers.sigmoid)
    keep = lambda state: state.model.layers[0].W[0, 0]
    walk = lambda z: iterate(step, unit(z), steps, record=keep)[1][0]
    return jnp.concatenate([starts[:, None], jax.jit(jax.vmap(walk))(starts)], axis=1)


@claim(
    "L10-ex2c-relu",
    title="Advantages and drawbacks of ReLU",
    kind="exercise",
    of=("layers.relu", "explain.activation_statistics", "explain.gradient_norms"),
    cites="Glorot, Bordes & Bengio 2011",
)
def rectifier(key, rng):
    r"""$\max(0, z)$ has slope 1 where it is active, so gradients keep their size through depth, and
    at initialisation half of the units are 0. Drawbacks: it is unbounded, it has a kink at 0, and a
    unit whose pre-activations are all negative has gradient 0 and stays dead.
    """
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
    zeros = explain.activation_statistics(wide, xs).zeros[1]
    depth = _through_depth(key)
    dead, start, alive = _dead_unit(rng)
    layer = np.arange(1, 1 + len(depth["relu"]))
    return Verdict(
        equal("slope at 1,000 points", slope, (z > 0).astype(float)),
        close("difference quotients at 0 from either side", sides, [1.0, 0.0]),
        equal(
            "unbounded: its value at 10⁶, and that of σ",
            [float(f(jnp.array(1e6))) for f in (layers.relu, layers.sigmoid)],
            [1e6, 1.0],
        ),
        within(
            "share of 2,000 units that are 0 under He initialisation",
            zeros,
            0.5,
            error=each.std(ddof=1) / np.sqrt(2000),
        ),
        between("‖∂L/∂h₁‖ over ‖∂L/∂h₈‖, ReLU", depth["relu"][0] / depth["relu"][-1], 0.1, 10.0),
        at_most("the same, logistic units", depth["sigmoid"][0] / depth["sigmoid"][-1], 1e-3),
        equal(
            "share of dead units, of 4", explain.activation_statistics(start, dead.xs).dead[1], 0.25
        ),
        equal("the dead unit's gradient", dead.slope, np.zeros(4)),
        equal("the dead unit's weights after 200 steps", dead.after, dead.before),
        at_least("change of the other units", alive, 1e-3),
        figure=Panel(
            "hidden layer",
            "norm of the gradient",
            log="y",
            lines={name: (layer, size) for name, size in depth.items()},
        ),
    )


def _through_depth(key) -> dict[str, np.ndarray]:
    """The norm of the gradient at each of eight hidden layers of 64 units: ReLU with He
    initialisation, logistic with Glorot's.
    """
    xs = jr.normal(key, (32, 64))
    ys = jnp.zeros(32)
    kinds = {"relu": (layers.relu, layers.he), "sigmoid": (layers.sigmoid, layers.glorot)}
    results = {}
    for name, (activation, initialiser) in kinds.items():
        net = models.MLP.init(
            64, *[64] * 8, 1, activation=activation, initialiser=initialiser, key=key
        )
        results[name] = explain.gradient_norms(train.squared_error, net, (xs, ys + 1)).outputs[
            1:-1:2
        ]
    return results


class DeadUnit(NamedTuple):
    """A unit that is inactive on all the data: its gradient, and its weights before and after
    training.
    """

    xs: Any
    slope: np.ndarray
    before: np.ndarray
    after: np.ndarray


def _dead_unit(rng: np.random.Generator) -> tuple[DeadUnit, layers.Chain, float]:
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
    return DeadUnit(xs, own(slope), own(net), own(after)), net, alive

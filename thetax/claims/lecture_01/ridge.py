"""Lecture 1: ridge functions and layers, and threshold units."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy import special

from ... import layers, models, train, tree
from ...layers import Chain, Linear
from ...plot import Chart, Panel
from ..engine.check import at_least, close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim
from ..engine.differences import jacobian

SHAPES = {  # activation, the same by NumPy, and its derivative
    "sigmoid": (layers.sigmoid, special.expit, lambda z: special.expit(z) * special.expit(-z)),
    "tanh": (layers.tanh, np.tanh, lambda z: 1 / np.cosh(z) ** 2),
    "ReLU": (layers.relu, lambda z: np.maximum(z, 0), lambda z: (z > 0).astype(float)),
    "sine": (jnp.sin, np.sin, np.cos),
}


def unit(theta, phi):
    """A ridge unit φ(x·θ) with a scalar output."""
    net = Chain(Linear(jnp.asarray(theta)[None]), phi)
    return lambda x: net(x)[0]


@claim(
    "L1-ridge-unit",
    "L1-rate-of-change",
    title="Ridge functions",
    kind="model",
    of=("layers.Chain", "layers.Linear"),
)
def ridge_unit(rng):
    r"""$f(x; \theta) = \varphi(x \cdot \theta)$ is constant on every hyperplane
    $x \cdot \theta = c$, and changes at the rate
    $\|\nabla_x f\| = |\varphi'(x \cdot \theta)|\, \|\theta\|$, which depends on $x$ unless
    $\varphi$ is linear.
    """
    checks = []
    theta = rng.normal(size=3)
    xs = rng.normal(size=(12, 3))
    xs = xs[np.abs(xs @ theta) > 0.02]  # away from ReLU's kink
    length = np.linalg.norm(theta)
    z = xs @ theta
    across = rng.normal(size=xs.shape)
    across -= np.outer(across @ theta, theta) / length**2
    for name, (phi, by_numpy, slope) in SHAPES.items():
        f = jax.vmap(unit(theta, phi))
        displaced = f(jnp.asarray(xs + 5 * across))
        here = f(jnp.asarray(xs))
        rate = np.array([np.linalg.norm(jacobian(unit(theta, phi), x)) for x in xs])
        checks += [
            close(f"{name}: the unit, against NumPy", here, by_numpy(z), tolerance=1e-14),
            close(f"{name}: change within the hyperplane", displaced, here),
            close_derivative(f"{name}: ‖∇f‖, against |φ'|‖θ‖", rate, np.abs(slope(z)) * length),
        ]
    along = f(jnp.asarray(xs + theta))
    side = np.linspace(-3, 3, 121)
    sweep = np.linspace(-2, 2, 2)
    levels = {}
    for c in (-2.0, 0.0, 2.0):  # points of the plane with x·(2, 1) = c
        levels[f"x·θ = {c:g}"] = ((c - sweep) / 2, sweep)
    return Verdict(
        *checks,
        refuted(close("sine: change along θ", along, here, tolerance=1e-3)),
        refuted(close("sine: the rate is one", rate, rate[0], tolerance=1e-3)),
        figure=Chart(
            Panel(
                "x₁",
                "x₂",
                lines=levels,
                bounds={"θ": ([0, 2], [0, 1])},
                equal_aspect=True,
                title="Level sets",
            ),
            Panel(
                "x·θ",
                "rate of change over ‖θ‖",
                lines={name: (side, np.abs(slope(side))) for name, (_, _, slope) in SHAPES.items()},
            ),
        ),
    )


@claim(
    "L1-ridge-layer",
    "L1-parameter-gradient",
    title="Ridge layers, and gradients along the input",
    kind="layer",
    of=("layers.Chain", "layers.Linear", "train.binary_log_loss", "train.squared_loss"),
)
def ridge_layer(rng):
    r"""A ridge layer is $F(x; \Theta) = \varphi(\Theta x)$, one unit a row. For any loss
    $\nabla_\theta (\ell \circ \varphi)(x \cdot \theta) = (\ell \circ \varphi)'(x \cdot \theta)\,
    x$:
    the gradient of a unit is always parallel to its input.
    """
    checks = []
    Theta = rng.normal(size=(4, 3))
    x = rng.normal(size=3)
    for name, (phi, by_numpy, slope) in SHAPES.items():
        layer = Chain(Linear(jnp.asarray(Theta)), phi)
        stacked = np.array([float(unit(row, phi)(jnp.asarray(x))) for row in Theta])
        checks += [
            close(
                f"{name}: the layer, against its units",
                layer(jnp.asarray(x)),
                stacked,
                tolerance=1e-14,
            ),
            close(f"{name}: and against NumPy", stacked, by_numpy(Theta @ x), tolerance=1e-14),
            close_derivative(
                f"{name}: its Jacobian, against φ'(Θx)Θ",
                jacobian(layer, x),
                slope(Theta @ x)[:, None] * Theta,
            ),
        ]
    theta = rng.normal(size=3)
    xs = rng.normal(size=(30, 3))
    ys = rng.uniform(size=30)
    losses = {
        "squared": lambda z, y: train.squared_loss(layers.tanh(z), y),
        "logistic": lambda z, y: train.binary_log_loss(z, y),
    }
    z = xs @ theta
    slopes = {"squared": (np.tanh(z) - ys) / np.cosh(z) ** 2, "logistic": special.expit(z) - ys}
    for name, loss in losses.items():
        of = lambda theta, x, y, loss=loss: loss(Linear(theta[None])(x)[0], y)
        result = np.asarray(
            jax.vmap(jax.grad(of), in_axes=(None, 0, 0))(*map(jnp.asarray, (theta, xs, ys)))
        )
        numeric = jacobian(
            lambda theta, of=of: of(theta, jnp.asarray(xs[0]), jnp.asarray(ys[0])), theta
        )
        cosine = (
            np.sum(result * xs, axis=1)
            / np.linalg.norm(result, axis=1)
            / np.linalg.norm(xs, axis=1)
        )
        checks += [
            close(
                f"{name} loss: |cosine| of gradient and input",
                np.abs(cosine),
                np.ones(30),
                tolerance=1e-10,
            ),
            close(
                f"{name} loss: the gradients, against (ℓ∘φ)'(x·θ) x",
                result,
                slopes[name][:, None] * xs,
            ),
            close_derivative(f"{name} loss: by differences", numeric, slopes[name][0] * xs[0]),
        ]
    total = result.sum(axis=0)
    aside = np.linalg.norm(np.cross(total, xs[0])) / np.linalg.norm(total) / np.linalg.norm(xs[0])
    return Verdict(
        *checks,
        refuted(
            close("the sum of 30 gradients is parallel to one input", aside, 0.0, tolerance=1e-6)
        ),
    )


@claim(
    "L1-threshold-unit",
    "L1-sign-unit",
    title="Threshold and sign units",
    kind="model",
    of=("layers.heaviside", "layers.spin", "layers.sign", "models.McCullochPitts"),
    cites="McCulloch & Pitts 1943",
)
def threshold(rng):
    r"""The threshold unit $H(x \cdot \theta)$ has $H(z) = 1$ if $z \ge 0$ and else 0; the sign unit
    has values in $\{-1, 1\}$ and is $2H - 1$. At 0 this requires $\mathrm{sign}(0) = 1$, but the
    three-valued sign is 0 there.
    """
    z = np.r_[-2.0, -1e-300, 0.0, 1e-300, 3.0]
    step, two, three = (
        np.asarray(f(jnp.asarray(z))) for f in (layers.heaviside, layers.spin, layers.sign)
    )
    sigma = np.sign(rng.normal(size=(1, 4)))
    xs = rng.integers(0, 2, (16, 4)).astype(float)
    old = jax.vmap(models.McCullochPitts(jnp.asarray(sigma), jnp.zeros(1)))(jnp.asarray(xs))
    new = jax.vmap(Chain(Linear(jnp.asarray(sigma)), layers.heaviside))(jnp.asarray(xs))
    theta = rng.normal(size=3)
    points = rng.normal(size=(40, 3))
    fires = jax.vmap(unit(theta, layers.heaviside))(jnp.asarray(points))
    side = np.linspace(-2, 2, 401)
    return Verdict(
        equal("H at −2, −1e-300, 0, 1e-300, 3", step, [0.0, 0.0, 1.0, 1.0, 1.0]),
        equal("H(x·θ) at 40 points", fires, [float(sum(x * theta) >= 0) for x in points]),
        equal("the neuron of McCulloch and Pitts with threshold 0", new, old),
        equal("the sign unit, against 2H − 1", two, 2 * step - 1),
        equal("the three-valued sign off 0", three[z != 0], (2 * step - 1)[z != 0]),
        refuted(equal("the three-valued sign at 0", three[z == 0], (2 * step - 1)[z == 0])),
        figure=Panel(
            "z",
            "output",
            lines={
                "threshold H": (side, np.asarray(layers.heaviside(jnp.asarray(side)))),
                "sign": (side, np.asarray(layers.spin(jnp.asarray(side)))),
            },
        ),
    )


@claim(
    "L1-threshold-no-gradient",
    title="Threshold units have gradient zero",
    kind="identity",
    of=("layers.heaviside",),
)
def no_gradient(key, rng):
    r"""$H' = 0$ away from 0 and does not exist at 0: the loss of a network of threshold units has
    gradient 0 almost everywhere in its parameters, though it is not constant.
    """
    xs = jnp.asarray(rng.normal(size=(20, 2)))
    ys = jnp.asarray(rng.integers(0, 2, 20).astype(float))
    shape = Chain(
        Linear.init(2, 3, key=key), layers.heaviside, Linear.init(3, 1, key=key), layers.heaviside
    )
    theta, back = tree.ravel(shape)
    draws = jr.normal(key, (1000, len(theta)))
    h = 1e-10
    loss = jax.jit(jax.vmap(lambda theta: train.squared_error(back(theta), (xs, ys))))
    here = np.asarray(loss(draws))
    steps = jnp.concatenate([h * jnp.eye(len(theta)), -h * jnp.eye(len(theta))])
    near = np.asarray(jax.lax.map(lambda step: loss(draws + step[None]), steps))
    slopes = jax.jit(jax.vmap(jax.grad(lambda theta: train.squared_error(back(theta), (xs, ys)))))(
        draws
    )
    return Verdict(
        equal(
            "change of the loss by a step of 1e-10 along each parameter, at 1,000 draws",
            near,
            np.tile(here, (len(steps), 1)),
        ),
        equal("automatic derivative there: 0", slopes, np.zeros((1000, len(theta)))),
        at_least("distinct losses among the draws", len(np.unique(here)), 5),
        refuted(equal("change by a step of 1 along each", loss(draws + 1.0), here)),
    )

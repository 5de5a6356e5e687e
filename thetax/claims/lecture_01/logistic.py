"""Lecture 1: the logistic function, its derivatives, its inverse, and the hyperbolic tangent."""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.polynomial import Polynomial
from scipy import special

from ... import layers
from ...layers import Chain, Linear
from ...plot import Panel
from ..engine.check import at_least, at_most, close, decreasing, equal, refuted
from ..engine.claim import Verdict, claim

GRID = np.linspace(-8, 8, 161)


def _library(f, z):
    return np.asarray(f(jnp.asarray(z)))


@claim(
    "L1-logistic-unit",
    title="The logistic unit",
    kind="model",
    of=("layers.sigmoid", "layers.heaviside"),
)
def logistic_unit(rng):
    r"""$\sigma(x \cdot \theta) = 1 / (1 + e^{-x \cdot \theta})$ rises from 0 to 1 smoothly and
    strictly, and tends to a threshold when its input is scaled: $\sigma(\beta z) \to H(z)$ as
    $\beta \to \infty$, for $z \ne 0$.
    """
    theta = rng.normal(size=3)
    xs = rng.normal(size=(30, 3))
    net = Chain(Linear(jnp.asarray(theta)[None]), layers.sigmoid)
    formula = 1 / (1 + np.exp(-xs @ theta))
    z = np.r_[np.linspace(-3, -0.01, 50), np.linspace(0.01, 3, 50)]
    betas = np.array([1.0, 10.0, 100.0, 1000.0, 10_000.0])
    gaps = [
        np.abs(_library(layers.sigmoid, beta * z) - _library(layers.heaviside, z)).max()
        for beta in betas
    ]
    sides = np.linspace(-4, 4, 321)
    return Verdict(
        close(
            "the unit, against the formula",
            jax.vmap(net)(jnp.asarray(xs))[:, 0],
            formula,
            tolerance=1e-15,
        ),
        close(
            "σ(−40) and σ(40)",
            _library(layers.sigmoid, np.array([-40.0, 40.0])),
            [0.0, 1.0],
            tolerance=1e-17,
        ),
        at_least(
            "smallest increase from one point of a grid on [−30, 30] to the next",
            np.diff(_library(layers.sigmoid, np.linspace(-30, 30, 601))),
            np.nextafter(0, 1),
        ),
        decreasing("largest distance from H on 0.01 ≤ |z| ≤ 3, β from 1 to 10,000", gaps),
        at_most("and at β = 10,000", gaps[-1], 1e-40),
        figure=Panel(
            "z",
            "σ(βz)",
            lines={f"β = {beta:g}": (sides, special.expit(beta * sides)) for beta in (1, 3, 10)},
            bounds={"H": (sides, (sides >= 0).astype(float))},
        ),
    )


@claim(
    "L1-logistic-derivative",
    title="The derivative of the logistic function",
    kind="identity",
    of=("layers.sigmoid",),
)
def logistic_derivative(key):
    r"""$\sigma'(z) = \sigma(z)(1 - \sigma(z)) = \sigma(z)\sigma(-z) = e^{-z}(1 + e^{-z})^{-2}$."""
    result = _library(jax.vmap(jax.grad(layers.sigmoid)), GRID)
    h = 1e-30
    complex_step = np.imag(1 / (1 + np.exp(-(GRID + 1j * h)))) / h
    s = _library(layers.sigmoid, GRID)
    minus = _library(layers.sigmoid, -GRID)
    tight = {"tolerance": 1e-15, "method": "closed form"}
    return Verdict(
        close("differentiated, against the complex step", result, complex_step, **tight),
        close("σ(1 − σ)", s * (1 - s), complex_step, **tight),
        close("σ(z)σ(−z)", s * minus, complex_step, **tight),
        close(
            "e^(−z) (1 + e^(−z))^(−2)",
            np.exp(-GRID) * (1 + np.exp(-GRID)) ** -2,
            complex_step,
            **tight,
        ),
        refuted(close("σ(1 + σ)", s * (1 + s), complex_step, tolerance=1e-3)),
    )


def _polynomials(order):
    """p_0 = s and p_{k+1} = p_k' s (1 − s)."""
    results = [Polynomial([0, 1])]
    for _ in range(order):
        results.append(results[-1].deriv() * Polynomial([0, 1, -1]))
    return results


def _by_contour(z, order, radius=1.5, nodes=128):
    """The derivatives of the logistic function by Cauchy's integral on a circle that avoids its
    poles ±iπ.
    """
    angle = 2 * np.pi * np.arange(nodes) / nodes
    values = 1 / (1 + np.exp(-(z[:, None] + radius * np.exp(1j * angle))))
    coefficients = np.fft.fft(values, axis=1).real / nodes
    return [special.factorial(k) / radius**k * coefficients[:, k] for k in range(order + 1)]


@claim(
    "L1-logistic-smooth",
    title="Every derivative is a polynomial in σ",
    kind="theorem",
    of=("layers.sigmoid",),
)
def logistic_smooth(key):
    r"""$\sigma^{(k)} = p_k(\sigma)$ with $p_0(s) = s$ and $p_{k+1}(s) = p_k'(s)\, s(1 - s)$, so
    that $\sigma \in C^\infty$: $p_1 = s - s^2$, $p_2 = s - 3s^2 + 2s^3$,
    $p_3 = s - 7s^2 + 12s^3 - 6s^4$.
    """
    z = np.linspace(-4, 4, 33)
    order = 6
    p = _polynomials(order)
    contour = _by_contour(z, order)
    f = layers.sigmoid
    checks = []
    s = special.expit(z)
    for k in range(1, order + 1):
        f = jax.grad(f)
        checks += [
            close(
                f"order {k}, by contour", contour[k], p[k](s), tolerance=1e-6, method="closed form"
            )
        ]
        checks += [
            close(f"order {k}, differentiated", _library(jax.vmap(f), z), p[k](s), tolerance=1e-6)
        ]
    coefficients = {1: [0, 1, -1], 2: [0, 1, -3, 2], 3: [0, 1, -7, 12, -6]}
    wide = np.linspace(-6, 6, 241)
    return Verdict(
        *checks,
        *[
            equal(f"coefficients of p_{k}", p[k].coef, np.array(c, float))
            for k, c in coefficients.items()
        ],
        refuted(close("p_2 without the cubic term", contour[2], s - 3 * s**2, tolerance=1e-3)),
        figure=Panel(
            "z",
            "derivative of σ",
            lines={f"order {k}": (wide, p[k](special.expit(wide))) for k in (1, 2, 3)},
        ),
    )


@claim(
    "L1-tanh", title="The hyperbolic tangent", kind="identity", of=("layers.tanh", "layers.sigmoid")
)
def tanh(key):
    r"""$\tanh z = \frac{e^z - e^{-z}}{e^z + e^{-z}} = 2\sigma(2z) - 1$ is odd, has values in
    $(-1, 1)$ and the derivative $1 - \tanh^2 z$.
    """
    t = _library(layers.tanh, GRID)
    ratio = (np.exp(GRID) - np.exp(-GRID)) / (np.exp(GRID) + np.exp(-GRID))
    slope = _library(jax.vmap(jax.grad(layers.tanh)), GRID)
    h = 1e-30
    complex_step = np.imag(np.tanh(GRID + 1j * h)) / h
    tight = {"tolerance": 1e-15, "method": "closed form"}
    return Verdict(
        close("against the ratio of exponentials", t, ratio, **tight),
        close("2σ(2z) − 1", 2 * _library(layers.sigmoid, 2 * GRID) - 1, ratio, **tight),
        equal("tanh(−z) + tanh z", _library(layers.tanh, -GRID) + t, np.zeros_like(t)),
        at_most("largest |tanh| for |z| ≤ 8, below 1", np.abs(t).max(), np.nextafter(1, 0)),
        close("derivative, against 1 − tanh²", slope, 1 - ratio**2, **tight),
        close("derivative, against the complex step", slope, complex_step, **tight),
        refuted(close("2σ(z) − 1", 2 * _library(layers.sigmoid, GRID) - 1, ratio, tolerance=1e-3)),
        figure=Panel(
            "z", "output", lines={"tanh": (GRID, t), "logistic": (GRID, special.expit(GRID))}
        ),
    )


@claim(
    "L1-logit",
    title="The inverse of the logistic function",
    kind="identity",
    of=("layers.sigmoid",),
)
def logit(rng):
    r"""$\sigma^{-1}(t) = \ln \frac{t}{1 - t}$ for $t \in (0, 1)$: probabilities and log-odds
    determine one another.
    """
    t = rng.uniform(1e-6, 1 - 1e-6, 200)
    z = np.linspace(-30, 30, 601)
    logit = lambda t: np.log(t / (1 - t))
    back = logit(_library(layers.sigmoid, z))
    loss = np.finfo(float).eps / special.expit(-np.abs(z))  # the digits that 1 − t has left
    return Verdict(
        close("σ(logit t)", _library(layers.sigmoid, logit(t)), t),
        at_most(
            "|logit(σ(z)) − z|, |z| ≤ 30, in units of the rounding error",
            np.abs(back - z) / loss,
            2.0,
        ),
        close("logit σ(z) where t is small", back[z < 0], z[z < 0]),
        close("the formula, against scipy", logit(t), special.logit(t)),
        refuted(close("σ(ln t)", _library(layers.sigmoid, np.log(t)), t, tolerance=1e-3)),
    )

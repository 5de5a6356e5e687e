"""Lecture 1: a network with hand-written gradients, and linear networks in closed form.

Expected results: the gradients agree with `jax.grad` up to rounding, the network approximates the
sine, and the linear network learns its modes in order of their strength. `python lecture_1.py
FOLDER` saves the figures there, by default in a temporary folder.
"""

import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from thetax import models, train
from thetax.layers import Chain, Linear, sigmoid
from thetax.plot import Chart, Panel, draw


def forward(theta, beta, x):
    """Hidden units h = σ(θx), and the output f = β·h."""
    h = sigmoid(theta @ x)
    return h, beta @ h


def gradient(theta, beta, x, y):
    """The gradient of ½(f − y)² with respect to θ and β, by the chain rule."""
    h, f = forward(theta, beta, x)
    df = f - y
    dbeta = df * h
    dh = df * beta
    dtheta = jnp.outer(dh * (h - h * h), x)  # σ' = σ − σ²
    return dtheta, dbeta


def main(folder: str | None = None, *, n_examples: int = 100_000) -> dict[str, float]:
    results = {}
    key_theta, key_beta, key_data, key_pca, key_net = jr.split(jr.key(0), 5)
    n, m, learning_rate = 2, 20, 0.05
    theta = 2 * jr.normal(key_theta, (m, n))
    beta = jr.uniform(key_beta, (m,), minval=-1 / m, maxval=1 / m)

    # the same network in the library, differentiated by JAX
    x = jnp.array([0.7, 1.0])
    y = jnp.sin(0.7)
    dtheta, dbeta = gradient(theta, beta, x, y)
    net = Chain(Linear(theta), sigmoid, Linear(beta[None]))
    exact = jax.grad(lambda net: train.squared_loss(net(x)[0], y))(net)
    results["gradient"] = float(
        jnp.maximum(abs(dtheta - exact.layers[0].W).max(), abs(dbeta - exact.layers[2].W[0]).max())
    )
    print(f"hand-written gradients and jax.grad: difference {results['gradient']:.0e}")

    # stochastic gradient descent with these gradients, one example at a time; the second input is
    # constant
    def step(weights, t):
        theta, beta = weights
        dtheta, dbeta = gradient(theta, beta, jnp.stack([t, jnp.ones_like(t)]), jnp.sin(t))
        return (theta - learning_rate * dtheta, beta - learning_rate * dbeta), None

    ts = jr.uniform(key_data, (n_examples,), minval=-jnp.pi, maxval=jnp.pi)
    (theta, beta), _ = jax.jit(lambda weights: jax.lax.scan(step, weights, ts))((theta, beta))
    grid = jnp.linspace(-jnp.pi, jnp.pi, 201)
    fit = jax.vmap(lambda t: forward(theta, beta, jnp.stack([t, jnp.ones_like(t)]))[1])(grid)
    results["sine"] = float(jnp.square(fit - jnp.sin(grid)).mean())
    print(
        f"{m} units after {n_examples:,} examples of the sine: mean squared error "
        f"{results['sine']:.0e}"
    )

    # the linear autoencoder has a closed form: the principal components
    xs = jr.normal(key_pca, (200, 6)) * jnp.array([3.0, 2.0, 0.5, 0.4, 0.3, 0.2])[None]
    coder = models.principal_components(xs, n_components=2)
    results["explained"] = float(coder.explained_variance_ratio[:2].sum())
    print(
        f"explained variance of two of six principal components: {100 * results['explained']:.0f} %"
    )

    # a deep linear network: gradients from correlations, and the growth of its modes
    inputs = jnp.eye(4)
    strengths = np.array([3.0, 1.5, 0.6])
    start = 0.003
    targets = inputs[:, :3] * jnp.asarray(strengths)[None]
    linear = models.deep_linear(4, 3, 3, key=key_net)
    closed_form = models.deep_linear_gradient(linear, models.second_moments(inputs, targets))
    gradients = jax.grad(lambda net: 4 * train.squared_error(net, (inputs, targets)))(linear)
    results["correlations"] = float(
        max(abs(a.W - b.W).max() for a, b in zip(closed_form.layers, gradients.layers))
    )
    print(f"gradients from correlations and jax.grad: difference {results['correlations']:.0e}")

    times = np.linspace(0.02, 7, 71)
    objective = lambda net, batch: 4 * train.squared_error(net, batch)
    small = models.balanced_factorisation(start * jnp.eye(3, 4), depth=2)
    flow = train.gradient_flow(objective, small, (inputs, targets), times=times)
    modes = np.einsum("tih,thi->ti", flow.models.layers[1].W, flow.models.layers[0].W[:, :, :3])
    theory = np.asarray(models.mode_growth(times, strengths=strengths, start=np.full(3, start)))
    results["modes"] = float(np.abs(modes - theory).max())
    print(f"modes of the linear network and their closed form: difference {results['modes']:.0e}")

    output = Path(folder or tempfile.mkdtemp())
    sine = Panel(
        "x", "output", lines={"network": (grid, fit)}, bounds={"sine": (grid, jnp.sin(grid))}
    )
    draw(Chart(sine)).savefig(output / "sine.png", dpi=150)
    lines = {f"closed form, s = {s:g}": (times, theory[:, i]) for i, s in enumerate(strengths)}
    points = {"gradient flow": (np.tile(times[::3], 3), modes[::3].T.ravel())}
    draw(Chart(Panel("time", "strength", lines=lines, points=points))).savefig(
        output / "modes.png", dpi=150
    )
    print(f"figures in {output}: sine.png and modes.png")
    return results


if __name__ == "__main__":
    main(*sys.argv[1:2])

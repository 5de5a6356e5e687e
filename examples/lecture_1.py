"""Lecture 1 in a page: a network whose gradients are written by hand, and linear ones with a
formula for everything.

Expect the gradients written out to agree with `jax.grad` to the last digits, the network to follow
the sine, and the modes of the linear network to be learnt one after another, the strong ones first.
`python lecture_1.py FOLDER` keeps the pictures there, otherwise they go to a temporary folder.
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
    """Hidden activities h = σ(θx), and the output f = β·h."""
    h = sigmoid(theta @ x)
    return h, beta @ h


def gradient(theta, beta, x, y):
    """Of ½(f − y)² by θ and β: the chain rule, factor by factor."""
    h, f = forward(theta, beta, x)
    delta = f - y  # by the output
    by_beta = delta * h
    by_h = delta * beta
    by_theta = jnp.outer(by_h * (h - h * h), x)  # σ' = σ − σ²
    return by_theta, by_beta


def main(folder: str | None = None, examples: int = 100_000) -> dict[str, float]:
    found = {}
    key_theta, key_beta, key_data, key_cloud, key_net = jr.split(jr.key(0), 5)
    n, m, rate = 2, 20, 0.05
    theta = 2 * jr.normal(key_theta, (m, n))
    beta = jr.uniform(key_beta, (m,), minval=-1 / m, maxval=1 / m)

    # by hand and by machine: the same network in the library, differentiated by JAX
    x = jnp.array([0.7, 1.0])
    y = jnp.sin(0.7)
    by_theta, by_beta = gradient(theta, beta, x, y)
    net = Chain(Linear(theta), sigmoid, Linear(beta[None]))
    exact = jax.grad(lambda net: train.squared_loss(net(x)[0], y))(net)
    found["gradient"] = float(
        jnp.maximum(
            abs(by_theta - exact.layers[0].W).max(), abs(by_beta - exact.layers[2].W[0]).max()
        )
    )
    print(f"gradients by hand and by jax.grad differ by {found['gradient']:.0e}")

    # stochastic descent with the gradients by hand, one example at a time; the second input is
    # constant
    def step(weights, t):
        slopes = gradient(*weights, jnp.stack([t, jnp.ones_like(t)]), jnp.sin(t))
        return tuple(w - rate * g for w, g in zip(weights, slopes)), None

    ts = jr.uniform(key_data, (examples,), minval=-jnp.pi, maxval=jnp.pi)
    (theta, beta), _ = jax.jit(lambda weights: jax.lax.scan(step, weights, ts))((theta, beta))
    grid = jnp.linspace(-jnp.pi, jnp.pi, 201)
    fit = jax.vmap(lambda t: forward(theta, beta, jnp.stack([t, jnp.ones_like(t)]))[1])(grid)
    found["sine"] = float(jnp.square(fit - jnp.sin(grid)).mean())
    print(
        f"{m} units after {examples:,} examples of the sine: mean squared error {found['sine']:.0e}"
    )

    # the linear autoencoder has a closed form: the principal components
    xs = jr.normal(key_cloud, (200, 6)) * jnp.array([3.0, 2.0, 0.5, 0.4, 0.3, 0.2])[None]
    coder = models.principal_components(xs, width=2)
    found["kept"] = float(coder.shares[:2].sum())
    print(f"a code of 2 numbers for 6 keeps {100 * found['kept']:.0f} % of the data's square")

    # a deep linear network: gradients from correlations, what gradient flow keeps, and when each
    # mode is learnt
    inputs = jnp.eye(4)
    strengths = np.array([3.0, 1.5, 0.6])
    start = 0.003
    targets = inputs[:, :3] * jnp.asarray(strengths)[None]
    drawn = models.deep_linear(4, 3, 3, key=key_net)
    closed = models.deep_linear_gradient(drawn, models.correlations(inputs, targets))
    slopes = jax.grad(lambda net: 4 * train.squared_error(net, (inputs, targets)))(drawn)
    found["correlations"] = float(
        max(abs(a.W - b.W).max() for a, b in zip(closed.layers, slopes.layers))
    )
    print(f"gradients from correlations and by jax.grad differ by {found['correlations']:.0e}")

    times = np.linspace(0.02, 7, 71)
    summed = lambda net, batch: 4 * train.squared_error(net, batch)
    small = models.factorise(start * jnp.eye(3, 4), depth=2)
    way = train.gradient_flow(summed, small, (inputs, targets), times=times)
    modes = np.einsum("tih,thi->ti", way.models.layers[1].W, way.models.layers[0].W[:, :, :3])
    theory = np.asarray(models.mode_growth(times, strengths=strengths, start=np.full(3, start)))
    found["modes"] = float(np.abs(modes - theory).max())
    print(f"modes of the linear network differ from their closed form by {found['modes']:.0e}")

    place = Path(folder or tempfile.mkdtemp())
    sine = Panel(
        "x", "output", lines={"network": (grid, fit)}, bounds={"sine": (grid, jnp.sin(grid))}
    )
    draw(Chart(sine)).savefig(place / "sine.png", dpi=150)
    lines = {f"closed form, s = {s:g}": (times, theory[:, i]) for i, s in enumerate(strengths)}
    points = {"gradient flow": (np.tile(times[::3], 3), modes[::3].T.ravel())}
    draw(Chart(Panel("time", "strength", lines=lines, points=points))).savefig(
        place / "modes.png", dpi=150
    )
    print(f"drawn in {place}: sine.png and modes.png")
    return found


if __name__ == "__main__":
    main(*sys.argv[1:2])

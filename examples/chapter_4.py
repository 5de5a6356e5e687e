"""Chapter 4: a convolution in its four forms, and a network of them that does not mind where a
digit lies.

Expect the direct sum, the matrix and the Fourier transform to agree, each layer to move with its
input, and a network with a global mean to know shifted digits that a perceptron of many times its
size does not. `python chapter_4.py FOLDER` keeps the pictures there, otherwise they go to a
temporary folder.
"""

import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import optax

from thetax import data, explain, layers, train, tree
from thetax.core import run
from thetax.models import MLP, ResNet
from thetax.plot import draw


def learn(model, batch, *, steps, key):
    """Adam on the whole batch, as one program."""
    step = train.descend(lambda model, _, key: train.cross_entropy(model, batch), optax.adam(1e-2))
    return jax.jit(lambda model: run(step, model, jnp.zeros(steps), key=key)[0].model)(model)


def shifted(xs, by):
    """Digits of 8 by 8 in a field of 14 by 14, pushed to the right and down."""
    return jnp.pad(xs, [(0, 0), (3 + by, 3 - by), (3 + by, 3 - by)])[:, None]


def main(folder: str | None = None, steps: int = 60) -> dict[str, float]:
    key_x, key_W, key_split, key_net, key_fit = jr.split(jr.key(0), 5)
    found = {}

    # §4.1: one operation, three ways
    W = jr.normal(key_W, (1, 1, 5))
    x = jr.normal(key_x, (1, 40))
    direct = layers.convolve(W, x, boundary="full")
    by_matrix = layers.toeplitz(W[0, 0], 40) @ x[0]
    by_fourier = layers.fft_convolve(W, x, boundary="full")
    found["forms"] = float(
        max(jnp.abs(direct[0] - by_matrix).max(), jnp.abs(direct - by_fourier).max())
    )
    print(
        f"sum, matrix of {by_matrix.size} by 40 and Fourier transform differ by "
        f"{found['forms']:.0e}"
    )

    # §4.2: what is learnt in the middle is known elsewhere
    xs, ys = data.load("digits").train
    some, rest = data.split((jnp.asarray(xs), jnp.asarray(ys)), 600 / len(ys), key=key_split, by=ys)
    keys = jr.split(key_net, 4)
    network = layers.Chain(
        layers.Convolution.init(1, 16, (3, 3), key=keys[0]),
        layers.relu,
        layers.MaxPool((2, 2)),
        layers.Convolution.init(16, 32, (3, 3), key=keys[1]),
        layers.relu,
        layers.global_max,
        layers.Linear.init(32, 10, key=keys[2]),
    )
    perceptron = MLP.init(14 * 14, 256, 10, key=keys[3])
    middle = shifted(some[0], 0), some[1]
    for name, model in {"convolutions": network, "perceptron": perceptron}.items():
        model = learn(model, middle, steps=steps, key=key_fit)
        for by in (0, 2):
            batch = shifted(rest[0], by), rest[1]
            found[f"{name} {by}"] = (
                100 * train.evaluate(model, batch, {"error": train.error_rate})["error"]
            )
        here = found[f"{name} 0"]
        there = found[f"{name} 2"]
        print(
            f"{name:>12}, {tree.size(model):,} parameters: {here:.1f} % wrong, {there:.1f} % two "
            "pixels further"
        )
        network = model if name == "convolutions" else network

    # §4.2: layers move with their input, and say what they look at
    moved = explain.equivariance(network, shifted(rest[0][:50], 0), shifts=(1, 2))
    found["inside"] = float(jnp.nanmax(moved.inside[:, 1]))
    print(f"shifted by 2, the layers' outputs move along but for {100 * found['inside']:.2g} %")
    pictures = Path(folder or tempfile.mkdtemp())
    lenses = {
        "filters": explain.filters(network),
        "saliency": explain.saliency(network, shifted(rest[0][:6], 0)),
    }
    for name, result in lenses.items():
        draw(result).savefig(pictures / f"{name}.png")

    # §4.2, L10: fifty layers, counted without drawing a weight
    found["parameters"] = tree.size(
        jax.eval_shape(lambda: ResNet.init(50, classes=1000, key=jr.key(0)))
    )
    print(f"a ResNet-50 has {found['parameters']:,} parameters")
    print(f"drawn in {pictures}")
    return found


if __name__ == "__main__":
    main(*sys.argv[1:2])

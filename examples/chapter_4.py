"""Chapter 4: convolution in three forms, and a translation-invariant convolutional network.

Expected results: the direct sum, the Toeplitz matrix and the Fourier transform agree, each layer is
equivariant, and a network with global pooling classifies shifted digits that a perceptron of many
times its size does not. `python chapter_4.py FOLDER` saves the figures there, by default in a
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
    """Full-batch Adam, compiled as one program."""
    step = train.descend(lambda model, _, key: train.cross_entropy(model, batch), optax.adam(1e-2))
    return jax.jit(lambda model: run(step, model, jnp.zeros(steps), key=key)[0].model)(model)


def shifted(xs, pixels):
    """Digits of 8 by 8 in an image of 14 by 14, shifted to the right and down."""
    return jnp.pad(xs, [(0, 0), *[(3 + pixels, 3 - pixels)] * 2])[:, None]


def main(folder: str | None = None, *, steps: int = 60) -> dict[str, float]:
    key_x, key_W, key_split, key_net, key_fit = jr.split(jr.key(0), 5)
    results = {}

    # §4.1: three forms of a convolution
    W = jr.normal(key_W, (1, 1, 5))
    x = jr.normal(key_x, (1, 40))
    direct = layers.convolve(W, x, boundary="full")
    by_matrix = layers.toeplitz(W[0, 0], 40) @ x[0]
    by_fourier = layers.fft_convolve(W, x, boundary="full")
    results["forms"] = float(
        max(jnp.abs(direct[0] - by_matrix).max(), jnp.abs(direct - by_fourier).max())
    )
    print(
        f"sum, matrix of {by_matrix.size} by 40 and Fourier transform: difference "
        f"{results['forms']:.0e}"
    )

    # §4.2: training on centred digits, testing on shifted ones
    xs, ys = data.load("digits").train
    digits = jnp.asarray(xs), jnp.asarray(ys)
    train_set, test_set = data.split(digits, 600 / len(ys), key=key_split, stratify=ys)
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
    centred = shifted(train_set[0], 0), train_set[1]
    for name, model in {"CNN": network, "perceptron": perceptron}.items():
        model = learn(model, centred, steps=steps, key=key_fit)
        for pixels in (0, 2):
            batch = shifted(test_set[0], pixels), test_set[1]
            results[f"{name} {pixels}"] = (
                100 * train.evaluate(model, batch, {"error": train.error_rate})["error"]
            )
        print(
            f"{name:>10}, {tree.size(model):,} parameters: test error "
            f"{results[f'{name} 0']:.1f} %, {results[f'{name} 2']:.1f} % if shifted by two pixels"
        )
        network = model if name == "CNN" else network

    # §4.2: equivariance of the layers, filters and saliency
    equivariance = explain.equivariance(network, shifted(test_set[0][:50], 0), shifts=(1, 2))
    results["equivariance"] = float(jnp.nanmax(equivariance.interior[:, 1]))
    print(f"equivariance error for a shift by 2: {100 * results['equivariance']:.2g} %")
    output = Path(folder or tempfile.mkdtemp())
    figures = {
        "filters": explain.filters(network),
        "saliency": explain.saliency(network, shifted(test_set[0][:6], 0)),
    }
    for name, result in figures.items():
        draw(result).savefig(output / f"{name}.png")

    # §4.2, L10: the number of parameters of fifty layers, without initialising them
    results["parameters"] = tree.size(
        jax.eval_shape(lambda: ResNet.init(50, classes=1000, key=jr.key(0)))
    )
    print(f"a ResNet-50 has {results['parameters']:,} parameters")
    print(f"figures in {output}")
    return results


if __name__ == "__main__":
    main(*sys.argv[1:2])

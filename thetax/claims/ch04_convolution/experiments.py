"""§4.2, lecture 10 A.1: what convolutions gain over dense layers on images."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from ... import data, layers, models, train, tree
from ...core import predict
from ...plot import Panel
from ..engine.check import at_least, at_most, close
from ..engine.claim import Verdict, claim
from ..engine.numpy_rng import numpy_rng

GLYPHS = np.array(
    [
        ["X...X", ".X.X.", "..X..", ".X.X.", "X...X"],
        ["..X..", "..X..", "XXXXX", "..X..", "..X.."],
        ["XXXXX", "X...X", "X...X", "X...X", "XXXXX"],
    ]
)
GLYPH_PIXELS = np.array(
    [[[letter == "X" for letter in row] for row in glyph] for glyph in GLYPHS], np.float32
)
DESCENT = train.descend(train.cross_entropy, optax.adam(1e-2))


def to_float32(model: Any) -> Any:
    """The model in single precision."""
    return jax.tree.map(lambda a: a.astype(jnp.float32), model)


def glyph_images(rng: np.random.Generator, n: int, *, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy 12 by 12 images with a glyph, its left edge in the column `first` or the next."""
    ys = rng.integers(3, size=n)
    xs = rng.normal(0, 0.2, size=(n, 1, 12, 12)).astype(np.float32)
    for x, y in zip(xs, ys):
        i = rng.integers(8)
        j = first + rng.integers(2)
        x[0, i : i + 5, j : j + 5] += GLYPH_PIXELS[y]
    return xs, ys.astype(np.int32)


@claim(
    "4.2-cnn-experiment",
    title="A convolutional network generalises from the left to the right",
    kind="experiment",
    of=("layers.Convolution", "layers.global_max", "models.MLP", "train.fit", "train.descend"),
)
def left_and_right(key, scale):
    r"""Three glyphs in images of 12 by 12, 200 training examples, all in the left half. A
    convolution of eight filters with a global maximum recognises at least 95 % of glyphs in the
    right half; a dense network of ten times its size recognises glyphs in the left half and is at
    least 20 points worse on the right.
    """
    seeds = 5 if scale == "full" else 2
    accuracies = np.array(
        [_left_right_accuracies(k) for k in jr.split(key, seeds)]
    )  # seed, network, left or right
    cnn = accuracies[:, 0]
    mlp = accuracies[:, 1]
    sizes = [tree.size(net) for net in _networks(key)]
    seed_numbers = np.arange(seeds)
    return Verdict(
        at_least("accuracy of the convolution on the right", cnn[:, 1], 0.95),
        at_least(
            "accuracy of the convolution minus that of the dense network, on the right",
            cnn[:, 1] - mlp[:, 1],
            0.2,
        ),
        at_least("accuracy of the dense network on the left", mlp[:, 0], 0.8),
        at_least(
            "size of the dense network over that of the convolution", sizes[1] / sizes[0], 1.0
        ),
        figure=Panel(
            "seed",
            "test accuracy",
            points={
                "convolution, left": (seed_numbers, cnn[:, 0]),
                "convolution, right": (seed_numbers, cnn[:, 1]),
                "dense, left": (seed_numbers, mlp[:, 0]),
                "dense, right": (seed_numbers, mlp[:, 1]),
            },
        ),
    )


def _networks(key: Any) -> tuple[Any, Any]:
    """A convolution with a global max pool, and a dense network."""
    key_conv, key_last, key_mlp = jr.split(key, 3)
    conv = layers.Convolution.init(1, 8, (5, 5), key=key_conv)
    cnn = layers.Chain(conv, layers.relu, layers.global_max, layers.Linear.init(8, 3, key=key_last))
    return to_float32(cnn), to_float32(models.MLP.init(144, 16, 3, key=key_mlp))


def _left_right_accuracies(key: Any) -> list[list[float]]:
    """The accuracies of both networks on new images, on the left and on the right."""
    rng = numpy_rng(key)
    train_set = glyph_images(rng, 200, first=0)
    left = glyph_images(rng, 300, first=0)
    right = glyph_images(rng, 300, first=6)
    accuracies = []
    for net in _networks(key):
        fitted = train.fit(
            DESCENT, net, train_set, epochs=40, batch_size=50, key=key, progress=train.Silent()
        ).model
        accuracies.append([1 - float(train.error_rate(fitted, test)) for test in (left, right)])
    return accuracies


@claim(
    "L10-A1-flatten",
    title="Dense networks ignore the order of the pixels, convolutional ones use it",
    kind="experiment",
    of=("models.MLP", "layers.Convolution", "layers.global_mean", "train.descend", "data.load"),
)
def flatten(key, rng, scale):
    r"""A dense network does not depend on the order of the pixels: if the columns of its first
    matrix are permuted in the same way, its outputs and gradients are the same, hence its whole
    training. A convolutional network loses at least 3 points of accuracy if it is trained and
    tested on digits whose pixels are shuffled by one permutation.
    """
    xs, ys = data.load("digits").train
    order = rng.permutation(64)
    net = models.MLP.init(64, 16, 10, activation=layers.tanh, key=key)
    flat = jnp.asarray(xs[:50].reshape(50, 64), float)
    batch, permuted_batch = ((a, jnp.asarray(ys[:50])) for a in (flat, flat[:, order]))
    permuted_net = _permute_inputs(net, order)
    gradient = jax.jit(lambda net, batch: jax.grad(train.cross_entropy)(net, batch))
    seeds = 6 if scale == "full" else 3
    accuracies_of = lambda key: _accuracies(key, jnp.asarray(xs), jnp.asarray(ys))
    accuracy = np.asarray(
        jax.jit(lambda keys: jax.lax.map(accuracies_of, keys))(jr.split(key, seeds)), np.float64
    )
    max_difference = lambda a, b: max(
        float(jnp.abs(p - q).max()) for p, q in zip(jax.tree.leaves(a), jax.tree.leaves(b))
    )
    return Verdict(
        close(
            "outputs of the dense network",
            predict(permuted_net, permuted_batch[0]),
            predict(net, batch[0]),
        ),
        at_most(
            "difference of its gradients from the permuted gradients",
            max_difference(
                gradient(permuted_net, permuted_batch), _permute_inputs(gradient(net, batch), order)
            ),
            1e-12,
        ),
        at_least(
            "accuracy lost by a convolutional network, mean of the seeds",
            (accuracy[:, 0] - accuracy[:, 1]).mean(),
            0.03,
        ),
        at_least(
            "its accuracy on the original digits, mean of the seeds", accuracy[:, 0].mean(), 0.7
        ),
        figure=Panel(
            "seed",
            "test accuracy",
            points={
                "original": (np.arange(seeds), accuracy[:, 0]),
                "pixels shuffled": (np.arange(seeds), accuracy[:, 1]),
            },
        ),
    )


def _permute_inputs(net: models.MLP, order: np.ndarray) -> models.MLP:
    """The network (or its gradient) with the columns of its first matrix in another order."""
    first, *rest = net.body.layers
    return models.MLP(layers.Chain(layers.Linear(first.W[:, order], first.b), *rest))


def _accuracies(key: Any, xs: Any, ys: Any, n_train: int = 600, steps: int = 200) -> Any:
    """The test accuracies of a convolutional network on the original digits and on digits with
    permuted pixels.
    """
    key_rows, key_net, key_batch, key_order = jr.split(key, 4)
    rows = jr.permutation(key_rows, len(xs))
    xs = xs[rows].reshape(len(xs), 64)
    ys = ys[rows]
    batches = jr.randint(key_batch, (steps, 32), 0, n_train)
    first, second, last = jr.split(key_net, 3)
    net = to_float32(
        layers.Chain(
            layers.Convolution.init(1, 8, (3, 3), key=first),
            layers.relu,
            layers.MaxPool((2, 2)),
            layers.Convolution.init(8, 24, (3, 3), key=second),
            layers.relu,
            layers.global_mean,
            layers.Linear.init(24, 10, initialiser=layers.lecun, key=last),
        )
    )

    def accuracy(order):
        images = xs[:, order].reshape(-1, 1, 8, 8)
        step = lambda state, rows: DESCENT.step(state, (images[rows], ys[rows]), key=key)
        trained = jax.lax.scan(step, DESCENT.init(net), batches)[0].model
        return 1 - train.error_rate(trained, (images[n_train:], ys[n_train:]))

    return jax.lax.map(accuracy, jnp.stack([jnp.arange(64), jr.permutation(key_order, 64)]))

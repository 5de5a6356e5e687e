"""§4.2, lecture 10 A.1: what a network gains by knowing that its input is an image."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from ... import data, layers, models, train, tree
from ...core import predict
from ...plot import Chart, Panel
from ..engine.chance import chance
from ..engine.check import at_least, at_most, close
from ..engine.claim import Verdict, claim

GLYPHS = np.array(
    [
        ["X...X", ".X.X.", "..X..", ".X.X.", "X...X"],
        ["..X..", "..X..", "XXXXX", "..X..", "..X.."],
        ["XXXXX", "X...X", "X...X", "X...X", "XXXXX"],
    ]
)
PICTURES = np.array(
    [[[letter == "X" for letter in row] for row in glyph] for glyph in GLYPHS], np.float32
)
DESCENT = train.descend(train.cross_entropy, optax.adam(1e-2))


def single(model: Any) -> Any:
    """The model in single precision."""
    return jax.tree.map(lambda a: a.astype(jnp.float32), model)


def scenes(rng: np.random.Generator, n: int, *, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Images of 12 by 12 with a glyph somewhere, its left edge at the column `first` or the next,
    and noise.
    """
    ys = rng.integers(3, size=n)
    xs = rng.normal(0, 0.2, size=(n, 1, 12, 12)).astype(np.float32)
    for x, y in zip(xs, ys):
        i = rng.integers(8)
        j = first + rng.integers(2)
        x[0, i : i + 5, j : j + 5] += PICTURES[y]
    return xs, ys.astype(np.int32)


@claim(
    "4.2-cnn-experiment",
    title="What was learned on the left is known on the right",
    kind="experiment",
    of=("layers.Convolution", "layers.global_max", "models.MLP", "train.fit", "train.descend"),
)
def left_and_right(key, scale):
    r"""Three glyphs in images of 12 by 12, 200 examples, all in the left half. A convolution of
    eight filters with a maximum over all places knows at least 95 % of those in the right half; a
    dense network of ten times its size knows the left half and is at least 20 points worse on the
    right.
    """
    seeds = 5 if scale == "full" else 2
    found = np.array([_both(k) for k in jr.split(key, seeds)])  # seed, network, left or right
    cnn = found[:, 0]
    mlp = found[:, 1]
    sizes = [tree.size(net) for net in _networks(key)]
    shown = np.arange(seeds)
    return Verdict(
        at_least("the convolution, on the right", cnn[:, 1], 0.95),
        at_least("how much worse the dense network is there", cnn[:, 1] - mlp[:, 1], 0.2),
        at_least("the dense network, on the left", mlp[:, 0], 0.8),
        at_least("its size, over that of the convolution", sizes[1] / sizes[0], 1.0),
        figure=Chart(
            Panel(
                "seed",
                "test accuracy",
                points={
                    "convolution, left": (shown, cnn[:, 0]),
                    "convolution, right": (shown, cnn[:, 1]),
                    "dense, left": (shown, mlp[:, 0]),
                    "dense, right": (shown, mlp[:, 1]),
                },
            )
        ),
    )


def _networks(key: Any) -> tuple[Any, Any]:
    """A convolution with a pool over all places, and a dense network."""
    key_conv, key_last, key_mlp = jr.split(key, 3)
    conv = layers.Convolution.init(1, 8, (5, 5), key=key_conv)
    cnn = layers.Chain(conv, layers.relu, layers.global_max, layers.Linear.init(8, 3, key=key_last))
    return single(cnn), single(models.MLP.init(144, 16, 3, key=key_mlp))


def _both(key: Any) -> list[list[float]]:
    """The accuracies of both networks on new images, on the left and on the right."""
    rng = chance(key)
    learn = scenes(rng, 200, first=0)
    left = scenes(rng, 300, first=0)
    right = scenes(rng, 300, first=6)
    accuracies = []
    for net in _networks(key):
        fitted = train.fit(
            DESCENT, net, learn, epochs=40, batch_size=50, key=key, progress=train.Silent()
        ).model
        accuracies.append([1 - float(train.error_rate(fitted, test)) for test in (left, right)])
    return accuracies


@claim(
    "L10-A1-flatten",
    title="What flattening loses",
    kind="experiment",
    of=("models.MLP", "layers.Convolution", "layers.global_mean", "train.descend", "data.load"),
)
def flatten(key, scale):
    r"""A dense network does not care in which order the pixels come: with the columns of its first
    matrix in the same order its outputs are the same, and so are its gradients, hence all of its
    training. A convolutional network loses at least 3 points of accuracy if it is trained and
    tested on digits whose pixels are shuffled, all alike.
    """
    xs, ys = data.load("digits").train
    order = chance(key).permutation(64)
    net = models.MLP.init(64, 16, 10, activation=layers.tanh, key=key)
    flat = jnp.asarray(xs[:50].reshape(50, 64), float)
    batch, mixed = ((a, jnp.asarray(ys[:50])) for a in (flat, flat[:, order]))
    turned = _reordered(net, order)
    slope = jax.jit(lambda net, batch: jax.grad(train.cross_entropy)(net, batch))
    seeds = 6 if scale == "full" else 3
    one = lambda key: _accuracies(key, jnp.asarray(xs), jnp.asarray(ys))
    accuracy = np.asarray(
        jax.jit(lambda keys: jax.lax.map(one, keys))(jr.split(key, seeds)), np.float64
    )
    gap = lambda a, b: max(
        float(jnp.abs(p - q).max()) for p, q in zip(jax.tree.leaves(a), jax.tree.leaves(b))
    )
    return Verdict(
        close(
            "outputs of the dense network",
            predict(turned, mixed[0]),
            predict(net, batch[0]),
            tolerance=1e-12,
        ),
        at_most(
            "its gradients, in the new order",
            gap(slope(turned, mixed), _reordered(slope(net, batch), order)),
            1e-12,
        ),
        at_least(
            "accuracy that a convolutional network loses, mean of the seeds",
            (accuracy[:, 0] - accuracy[:, 1]).mean(),
            0.03,
        ),
        at_least("its accuracy on digits as they are, mean", accuracy[:, 0].mean(), 0.7),
        figure=Chart(
            Panel(
                "seed",
                "test accuracy",
                points={
                    "as they are": (np.arange(seeds), accuracy[:, 0]),
                    "pixels shuffled": (np.arange(seeds), accuracy[:, 1]),
                },
            )
        ),
    )


def _reordered(net: models.MLP, order: np.ndarray) -> models.MLP:
    """The network (or its gradient) with the columns of its first matrix in another order."""
    first, *rest = net.body.layers
    return models.MLP(layers.Chain(layers.Linear(first.W[:, order], first.b), *rest))


def _accuracies(key: Any, xs: Any, ys: Any, learn: int = 600, steps: int = 200) -> Any:
    """The test accuracy of a convolutional network on digits as they are, and shuffled by one
    permutation.
    """
    key_rows, key_net, key_batch, key_order = jr.split(key, 4)
    rows = jr.permutation(key_rows, len(xs))
    xs = xs[rows].reshape(len(xs), 64)
    ys = ys[rows]
    batches = jr.randint(key_batch, (steps, 32), 0, learn)
    first, second, last = jr.split(key_net, 3)
    net = single(
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
        end = jax.lax.scan(step, DESCENT.init(net), batches)[0].model
        return 1 - train.error_rate(end, (images[learn:], ys[learn:]))

    return jax.lax.map(accuracy, jnp.stack([jnp.arange(64), jr.permutation(key_order, 64)]))

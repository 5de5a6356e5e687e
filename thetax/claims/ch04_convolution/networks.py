"""§4.2, lecture 10 A.1, A.2, A.12 and A.13: convolutional networks, their shapes, receptive fields
and parameters.
"""

from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from ... import data, explain, layers, models, train, tree
from ...plot import Panel
from ..engine.check import (
    at_least,
    at_most,
    between,
    close,
    close_derivative,
    decreasing,
    equal,
    increasing,
    refuted,
)
from ..engine.claim import Verdict, claim

init_convolution = layers.Convolution.init


def pyramid(key: Any, *channels: int, classes: int, phi: Any = layers.relu) -> layers.Chain:
    """Convolutions, each with an activation and a pool of 2 by 2, until one pixel is left; then a
    linear layer.
    """
    *keys, key_last = jr.split(key, len(channels))
    parts: list[Any] = []
    for c, m, k in zip(channels, channels[1:], keys):
        parts += [init_convolution(c, m, (3, 3), key=k), phi, layers.MaxPool((2, 2))]
    return layers.Chain(
        *parts,
        jnp.ravel,
        layers.Linear.init(channels[-1], classes, initialiser=layers.lecun, key=key_last),
    )


def output_shapes(chain: layers.Chain, x: Any) -> list[tuple[int, ...]]:
    """The shapes of the input and of the output of each part of a chain, without computing them."""
    sizes = [x]
    for part in chain.layers:
        sizes.append(jax.eval_shape(lambda x, part=part: part(x), sizes[-1]))
    return [size.shape for size in sizes]


def parameter_gradients(net: Any, x: Any, label: int) -> tuple[np.ndarray, np.ndarray]:
    """The gradient of the loss by all parameters, by autodiff and by finite differences."""
    flat, back = tree.ravel(net)
    value = jax.jit(lambda theta: train.log_loss(back(theta)(x), jnp.asarray(label)))
    shifted_values = lambda step: np.array(
        [value(theta) for theta in np.asarray(flat) + step * np.eye(len(flat))]
    )
    return np.asarray(jax.jit(jax.grad(value))(flat)), (
        shifted_values(1e-5) - shifted_values(-1e-5)
    ) / 2e-5


@claim(
    "4.2-pyramid",
    title="A pyramid: more channels, fewer pixels",
    kind="model",
    of=(
        "layers.Convolution",
        "layers.MaxPool",
        "layers.Chain",
        "layers.global_mean",
        "train.log_loss",
    ),
    cites="LeCun et al. 1998",
)
def a_pyramid(key):
    r"""A convolutional network alternates convolutions with an activation and pools; from layer to
    layer there are more channels and fewer pixels, until $C \times 1 \times 1$ is left, a vector
    for a dense classifier. With a global pool instead, on a torus, the features are invariant under
    translations.
    """
    key_net, key_x, *keys = jr.split(key, 4)
    net = pyramid(key_net, 1, 2, 3, 4, classes=3, phi=layers.tanh)
    x = jr.normal(key_x, (1, 8, 8))
    sizes = output_shapes(net, x)
    pixels = [h * w for c, h, w in [size for size in sizes if len(size) == 3][::3]]
    gradient, numeric = parameter_gradients(net, x, 1)
    conv = lambda c, m, key: init_convolution(c, m, (3, 3), boundary="circular", key=key)
    features = layers.Chain(
        conv(1, 4, keys[0]), layers.relu, conv(4, 5, keys[1]), layers.relu, layers.global_mean
    )
    shifted = jnp.asarray(np.stack([np.roll(x, by, (1, 2)) for by in np.ndindex(8, 8)]))
    shifted_features = jax.jit(jax.vmap(lambda x: features(x)))(shifted)
    return Verdict(
        equal("the last image", sizes[-3], [4, 1, 1]),
        equal("sizes of the vector and of the logits", [*sizes[-2], *sizes[-1]], [4, 3]),
        increasing("channels", [size[0] for size in sizes if len(size) == 3][::3]),
        decreasing("pixels", pixels),
        close_derivative("the gradient by every parameter", gradient, numeric, tolerance=1e-7),
        close(
            "features of 64 translations, against those of the first",
            shifted_features,
            np.tile(shifted_features[0], (64, 1)),
            tolerance=1e-10,
        ),
    )


@claim(
    "L10-A12-cnn",
    title="A convolutional network classifies digits",
    kind="experiment",
    of=("layers.Convolution", "layers.MaxPool", "layers.Linear", "train.fit", "train.descend"),
)
def reads_digits(key, scale):
    r"""$x^{t+1} = T_{mp} T_{conv} x^t$ for $t = 0, \dots, T - 1$ and $f = T_{fc} x^T$, the
    activation inside $T_{conv}$, trained by stochastic gradients on 1,400 digits of 8 by 8,
    classifies at least 95 % of the other 397 correctly.
    """
    (key_net, key_fit, key_split), epochs = jr.split(key, 3), 30 if scale == "full" else 7
    xs, ys = data.load("digits").train
    train_set, test_set = data.split((xs[:, None], ys), 1400 / len(xs), key=key_split)
    to_float32 = lambda net: jax.tree.map(lambda a: a.astype(jnp.float32), net)
    net = to_float32(
        layers.Chain(
            init_convolution(1, 16, (3, 3), key=jr.fold_in(key_net, 0)),
            layers.relu,
            layers.MaxPool((2, 2)),
            init_convolution(16, 32, (3, 3), key=jr.fold_in(key_net, 1)),
            layers.relu,
            layers.MaxPool((2, 2)),
            jnp.ravel,
            layers.Linear.init(128, 10, initialiser=layers.lecun, key=jr.fold_in(key_net, 2)),
        )
    )
    fit = train.fit(
        train.descend(
            train.cross_entropy, optax.adam(optax.cosine_decay_schedule(1e-2, 28 * epochs))
        ),
        net,
        train_set,
        epochs=epochs,
        batch_size=50,
        validation=test_set,
        metrics={"error": train.error_rate},
        key=key_fit,
        progress=train.Silent(),
    )
    small = pyramid(key_net, 1, 2, 3, 4, classes=10, phi=layers.tanh)
    gradient, numeric = parameter_gradients(small, jnp.asarray(xs[0], float)[None], int(ys[0]))
    error = fit.history["valid error"]
    return Verdict(
        equal(
            "shapes of x⁰, x¹, x² and f",
            sum(output_shapes(net, jnp.zeros((1, 8, 8), jnp.float32))[:7:3], ()) + (10,),
            [1, 8, 8, 16, 4, 4, 32, 2, 2, 10],
        ),
        at_least("test accuracy", 1 - error[-1], 0.95),
        close_derivative(
            "the gradient of a small network, on a digit", gradient, numeric, tolerance=1e-7
        ),
        figure=Panel(
            "epoch",
            "error",
            log="y",
            lines={"test": (1 + np.arange(len(error)), error)},
            bounds={"accuracy 95 %": ([1, len(error)], [0.05, 0.05])},
        ),
    )


def receptive_field_size(windows: Any, strides: Any) -> int:
    r"""$1 + \sum_l (m_l - 1) \prod_{j < l} s_j$."""
    steps = accumulate([1, *strides[:-1]], lambda a, b: a * b)
    return 1 + sum((m - 1) * step for m, step in zip(windows, steps))


@claim(
    "L10-A2-receptive-field",
    title="The receptive field grows with depth",
    kind="identity",
    of=("layers.Convolution", "layers.AveragePool", "layers.MaxPool", "layers.matrix_of"),
)
def receptive_field(rng):
    r"""The receptive field of a feature of layer $L$ has size
    $1 + \sum_l (m_l - 1) \prod_{j < l} s_j$, for windows $m_l$ and strides $s_l$: it grows with
    every layer, but without strides only linearly in the depth, so that long contexts need deep
    stacks.
    """
    n = 70
    checks = []
    for trial in range(4):
        depth = 2 + trial
        windows = rng.integers(1, 4, size=depth).tolist()
        strides = rng.integers(1, 3, size=depth).tolist()
        parts = [
            _part(rng, m, s, pool=l % 3 == 2) for l, (m, s) in enumerate(zip(windows, strides))
        ]
        A = np.asarray(jax.jit(lambda chain: layers.matrix_of(chain, (1, n)))(layers.Chain(*parts)))
        jump = int(np.prod(strides))
        rows = [np.flatnonzero(row) for row in A]
        name = f"windows {windows}, strides {strides}"
        checks += [
            equal(
                f"{name}: receptive field sizes",
                [np.ptp(row) + 1 for row in rows],
                np.full(len(A), receptive_field_size(windows, strides)),
            ),
            equal(f"{name}: first positions", [row[0] for row in rows], jump * np.arange(len(A))),
        ]
    largest = layers.Chain(
        _part(rng, 3, 1, pool=False),
        layers.relu,
        layers.MaxPool((2,)),
        _part(rng, 3, 1, pool=False),
    )
    slopes = jax.jit(jax.vmap(jax.jacobian(lambda x: largest(x)[0, 0])))(
        jnp.asarray(rng.normal(size=(200, 1, 16)))
    )
    influence = np.flatnonzero(np.abs(np.asarray(slopes)).max(axis=(0, 1)))
    depths = np.arange(1, 9)
    return Verdict(
        *checks,
        equal(
            "with a rectifier and a max pool: size over 200 inputs",
            np.ptp(influence) + 1,
            receptive_field_size([3, 2, 3], [1, 2, 1]),
        ),
        figure=Panel(
            "layers",
            "receptive field size",
            log="y",
            lines={
                "windows of 3": (
                    depths,
                    [receptive_field_size([3] * d, [1] * d) for d in depths],
                ),
                "windows of 3, strides of 2": (
                    depths,
                    [receptive_field_size([3] * d, [2] * d) for d in depths],
                ),
            },
        ),
    )


def _part(rng: np.random.Generator, m: int, s: int, *, pool: bool) -> Any:
    """An average pool or a convolution with positive weights, of one channel."""
    if pool:
        return layers.AveragePool((m,), (s,))
    return layers.Convolution(jnp.asarray(1 + rng.random((1, 1, m))), boundary="valid", stride=s)


@claim(
    "L10-A1-param-explosion",
    title="The number of weights of a dense layer on an image",
    kind="identity",
    of=("layers.Linear", "layers.Convolution", "tree.size"),
)
def explosion(key):
    r"""An image of 1000 by 1000 has $10^6$ inputs; one hidden layer of 1000 units already has
    $10^9$ weights. A filter of 3 by 3 has 9, for every image size.
    """
    dense = jax.eval_shape(
        lambda key: layers.Linear.init(1000 * 1000, 1000, bias=False, key=key), key
    )
    conv = jax.eval_shape(lambda key: init_convolution(1, 1000, (3, 3), bias=False, key=key), key)
    image = jax.ShapeDtypeStruct((1, 1000, 1000), float)
    maps = jax.eval_shape(lambda conv, x: conv(x), conv, image)
    return Verdict(
        equal("inputs", image.size, 10**6),
        equal("weights of the dense layer", tree.size(dense), 10**9),
        equal("weights of each of 1000 filters", tree.size(conv) / 1000, 9),
        equal("shape of their output", maps.shape, [1000, 1000, 1000]),
        refuted(
            equal(
                "weights of the filters, against the dense layer", tree.size(conv), tree.size(dense)
            )
        ),
    )


def resnet50_size() -> int:
    """The number of parameters of ResNet-50, block by block: convolutions have no bias, norms two
    parameters per channel.
    """
    conv = lambda c, m, k: c * m * k * k + 2 * m
    total = conv(3, 64, 7)
    before = 64
    for inner, blocks in zip((64, 128, 256, 512), (3, 4, 6, 3)):
        for block in range(blocks):
            total += conv(before, inner, 1) + conv(inner, inner, 3) + conv(inner, 4 * inner, 1)
            total += conv(before, 4 * inner, 1) if block == 0 else 0  # skip connection
            before = 4 * inner
    return total + before * 1000 + 1000


@claim(
    "L10-A13-resnet50",
    title="The parameters of ResNet-50",
    kind="identity",
    of=("models.ResNet", "tree.size"),
    cites="He et al. 2016",
)
def resnet50(key):
    r"""The main path has $1 + 3 \cdot (3 + 4 + 6 + 3) + 1 = 50$ layers with weights. With widths
    from 64 to 512, four times that at the end of each block, norms and 1000 classes there are
    25,557,032 parameters.
    """
    net = jax.eval_shape(lambda key: models.ResNet.init(50, classes=1000, key=key), key)
    weighted = [
        part
        for _, part in explain.named_modules(net)
        if isinstance(part, layers.Convolution | layers.Linear)
    ]
    blocks = [len(stage.layers) for stage in net.stages]
    skips = sum(block.layers[0].skip is not None for stage in net.stages for block in stage.layers)
    resnet34 = jax.eval_shape(lambda key: models.ResNet.init(34, classes=1000, key=key), key)
    return Verdict(
        equal("blocks of the stages", blocks, [3, 4, 6, 3]),
        equal(
            "layers with weights, without the skip connections",
            len(weighted) - skips,
            1 + 3 * sum(blocks) + 1,
        ),
        equal("depth", 1 + 3 * sum(blocks) + 1, 50),
        equal("parameters", tree.size(net), 25_557_032),
        equal("parameters, counted block by block", resnet50_size(), 25_557_032),
        refuted(equal("parameters of ResNet-34", tree.size(resnet34), 25_557_032)),
    )


DEPTH = 50


@claim(
    "L10-A13-residual",
    title="Gradients survive fifty residual blocks",
    kind="layer",
    of=("layers.Residual", "layers.Convolution", "models.ResNet"),
    cites="He et al. 2016",
)
def residual(key):
    r"""A block $x + F(x)$ is the identity if $F = 0$. Backpropagated through 50 random blocks, $F$
    scaled by $\frac{1}{\sqrt{50}}$, a gradient keeps its norm within a factor of 10; through 50
    plain layers with LeCun initialisation it vanishes. From stage to stage of a residual network
    there are more channels and fewer pixels.
    """
    key_x, key_d, key_F = jr.split(key, 3)
    x = jr.normal(key_x, (6, 8, 8))
    d = jr.normal(key_d, (6, 8, 8))
    init_all = lambda initialiser: jax.vmap(
        lambda key: init_convolution(6, 6, (3, 3), bias=False, initialiser=initialiser, key=key)
    )(jr.split(key_F, DEPTH))
    plain = lambda conv: layers.Chain(conv, layers.relu)
    block = lambda conv: layers.Residual(
        layers.Chain(conv, layers.relu, lambda h: h / np.sqrt(DEPTH))
    )
    plain_lengths = _gradient_lengths(plain, init_all(layers.lecun), x, d)
    residual_lengths = _gradient_lengths(block, init_all(layers.he), x, d)
    zero = block(layers.Convolution(jnp.zeros((6, 6, 3, 3))))
    net = jax.eval_shape(
        lambda key: models.ResNet.init(50, classes=1000, normalise=_scale, key=key), key
    )
    sizes = []
    image = jax.eval_shape(
        lambda part, x: part(x), net.stem, jax.ShapeDtypeStruct((3, 64, 64), float)
    )
    for stage in net.stages:
        image = jax.eval_shape(lambda part, x: part(x), stage, image)
        sizes.append(image.shape)
    ell = np.arange(DEPTH + 1)
    return Verdict(
        equal("a block with F = 0", zero(x), x),
        between(
            "gradient norm through 50 blocks, relative to the output gradient",
            residual_lengths[-1],
            0.1,
            10.0,
        ),
        at_most("gradient norm through 50 plain layers", plain_lengths[-1], 1e-3),
        increasing("channels of the stages", [c for c, _, _ in sizes]),
        decreasing("pixels of the stages", [h * w for _, h, w in sizes]),
        figure=Panel(
            "number of layers",
            "norm of the gradient",
            log="y",
            lines={"residual": (ell, residual_lengths), "plain": (ell, plain_lengths)},
        ),
    )


def _scale(channels: int) -> layers.Affine:
    """An affine layer instead of a norm, which needs a batch; the shapes are the same."""
    return layers.Affine(jnp.ones(channels), jnp.zeros(channels))


def _gradient_lengths(make: Any, convs: Any, x: Any, d: Any) -> np.ndarray:
    """The norm of the gradient after each layer of the backward pass, relative to the output
    gradient.
    """

    def lengths(convs, x, d):
        _, inputs = jax.lax.scan(lambda h, conv: (make(conv)(h), h), x, convs)
        pull = lambda d, item: (jax.vjp(lambda h: make(item[0])(h), item[1])[1](d)[0],) * 2
        _, back = jax.lax.scan(pull, d, (convs, inputs), reverse=True)
        return jnp.sqrt(jnp.sum(back**2, axis=(1, 2, 3)) / jnp.sum(d**2))

    return np.append(1.0, np.asarray(jax.jit(lengths)(convs, x, d))[::-1])

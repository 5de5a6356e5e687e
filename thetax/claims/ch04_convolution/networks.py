"""§4.2, lecture 10 A.1, A.2, A.12 and A.13: layers made into networks, their shapes, fields and
parameters.
"""

from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from ... import data, explain, layers, models, train, tree
from ...plot import Chart, Panel
from ..engine.chance import chance
from ..engine.check import at_least, at_most, between, close, equal, falls, refuted, rises
from ..engine.claim import Verdict, claim

draw = layers.Convolution.init


def pyramid(key: Any, *channels: int, classes: int, phi: Any = layers.relu) -> layers.Chain:
    """Convolutions, each with an activation and a pool of 2 by 2, until one place is left; then a
    linear layer.
    """
    *keys, key_last = jr.split(key, len(channels))
    parts: list[Any] = []
    for c, m, k in zip(channels, channels[1:], keys):
        parts += [draw(c, m, (3, 3), key=k), phi, layers.MaxPool((2, 2))]
    return layers.Chain(
        *parts,
        jnp.ravel,
        layers.Linear.init(channels[-1], classes, initialiser=layers.lecun, key=key_last),
    )


def shapes(chain: layers.Chain, x: Any) -> list[tuple[int, ...]]:
    """What each part of a chain makes of its input, by shape; nothing is computed."""
    sizes = [x]
    for part in chain.layers:
        sizes.append(jax.eval_shape(lambda x, part=part: part(x), sizes[-1]))
    return [size.shape for size in sizes]


def theta_slopes(net: Any, x: Any, label: int) -> tuple[np.ndarray, np.ndarray]:
    """The gradient of the loss in all parameters, by the library and by differences."""
    flat, back = tree.ravel(net)
    value = jax.jit(lambda theta: train.log_loss(back(theta)(x), jnp.asarray(label)))
    moved = lambda step: np.array(
        [value(theta) for theta in np.asarray(flat) + step * np.eye(len(flat))]
    )
    return np.asarray(jax.jit(jax.grad(value))(flat)), (moved(1e-5) - moved(-1e-5)) / 2e-5


@claim(
    "4.2-pyramid",
    title="A pyramid: channels up, places down",
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
    r"""A convolutional network alternates convolutions with an activation and pools; there are ever
    more channels and ever fewer places until $C \times 1 \times 1$ is left, a vector for a dense
    classifier. With a pool over all places instead, on a torus, the features do not notice
    translations.
    """
    key_net, key_x, *keys = jr.split(key, 4)
    net = pyramid(key_net, 1, 2, 3, 4, classes=3, phi=layers.tanh)
    x = jr.normal(key_x, (1, 8, 8))
    sizes = shapes(net, x)
    places = [h * w for c, h, w in [size for size in sizes if len(size) == 3][::3]]
    ours, differences = theta_slopes(net, x, 1)
    conv = lambda c, m, key: draw(c, m, (3, 3), boundary="circular", key=key)
    features = layers.Chain(
        conv(1, 4, keys[0]), layers.relu, conv(4, 5, keys[1]), layers.relu, layers.global_mean
    )
    moved = jnp.asarray(np.stack([np.roll(x, by, (1, 2)) for by in np.ndindex(8, 8)]))
    seen = jax.jit(jax.vmap(lambda x: features(x)))(moved)
    return Verdict(
        equal("the last image", sizes[-3], [4, 1, 1]),
        equal("the vector, and the classes", [*sizes[-2], *sizes[-1]], [4, 3]),
        rises("channels", [size[0] for size in sizes if len(size) == 3][::3]),
        falls("places", places),
        close(
            "the gradient in every parameter",
            ours,
            differences,
            tolerance=1e-7,
            method="finite differences",
        ),
        close(
            "features of 64 translations, against the first",
            seen,
            np.tile(seen[0], (64, 1)),
            tolerance=1e-10,
        ),
    )


@claim(
    "L10-A12-cnn",
    title="A convolutional network reads digits",
    kind="experiment",
    of=("layers.Convolution", "layers.MaxPool", "layers.Linear", "train.fit", "train.descend"),
)
def reads_digits(key, scale):
    r"""$x^{t+1} = T_{mp} T_{conv} x^t$ for $t = 0, \dots, T - 1$ and $f = T_{fc} x^T$, the
    activation inside $T_{conv}$, trained by stochastic gradients: from 1,400 digits of 8 by 8 it
    reads at least 95 % of the other 397.
    """
    (key_net, key_fit, key_split), epochs = jr.split(key, 3), 30 if scale == "full" else 7
    xs, ys = data.load("digits").train
    learn, test = data.split((xs[:, None], ys), 1400 / len(xs), key=key_split)
    single = lambda net: jax.tree.map(lambda a: a.astype(jnp.float32), net)
    net = single(
        layers.Chain(
            draw(1, 16, (3, 3), key=jr.fold_in(key_net, 0)),
            layers.relu,
            layers.MaxPool((2, 2)),
            draw(16, 32, (3, 3), key=jr.fold_in(key_net, 1)),
            layers.relu,
            layers.MaxPool((2, 2)),
            jnp.ravel,
            layers.Linear.init(128, 10, initialiser=layers.lecun, key=jr.fold_in(key_net, 2)),
        )
    )
    found = train.fit(
        train.descend(
            train.cross_entropy, optax.adam(optax.cosine_decay_schedule(1e-2, 28 * epochs))
        ),
        net,
        learn,
        epochs=epochs,
        batch_size=50,
        validation=test,
        metrics={"error": train.error_rate},
        key=key_fit,
        progress=train.Silent(),
    )
    small = pyramid(key_net, 1, 2, 3, 4, classes=10, phi=layers.tanh)
    ours, differences = theta_slopes(small, jnp.asarray(xs[0], float)[None], int(ys[0]))
    error = found.history["valid error"]
    return Verdict(
        equal(
            "shapes of x⁰, x¹, x² and f",
            sum(shapes(net, jnp.zeros((1, 8, 8), jnp.float32))[:7:3], ()) + (10,),
            [1, 8, 8, 16, 4, 4, 32, 2, 2, 10],
        ),
        at_least("test accuracy", 1 - error[-1], 0.95),
        close(
            "the gradient of a small one, on a digit",
            ours,
            differences,
            tolerance=1e-7,
            method="finite differences",
        ),
        figure=Chart(
            Panel(
                "epoch",
                "error",
                log="y",
                lines={"test": (1 + np.arange(len(error)), error)},
                bounds={"95 % read": ([1, len(error)], [0.05, 0.05])},
            )
        ),
    )


def field(windows: Any, strides: Any) -> int:
    r"""$1 + \sum_l (m_l - 1) \prod_{j < l} s_j$."""
    steps = accumulate([1, *strides[:-1]], lambda a, b: a * b)
    return 1 + sum((m - 1) * step for m, step in zip(windows, steps))


@claim(
    "L10-A2-receptive-field",
    title="Deeper features see more",
    kind="identity",
    of=("layers.Convolution", "layers.AveragePool", "layers.MaxPool", "layers.matrix_of"),
)
def receptive_field(key):
    r"""A feature of layer $L$ sees $1 + \sum_l (m_l - 1) \prod_{j < l} s_j$ places, for windows
    $m_l$ and strides $s_l$: more with every layer, but only in proportion to depth without strides,
    so that long contexts need deep stacks.
    """
    rng = chance(key)
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
        said = f"windows {windows}, strides {strides}"
        checks += [
            equal(
                f"{said}: places seen",
                [np.ptp(row) + 1 for row in rows],
                np.full(len(A), field(windows, strides)),
            ),
            equal(f"{said}: where they begin", [row[0] for row in rows], jump * np.arange(len(A))),
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
    seen = np.flatnonzero(np.abs(np.asarray(slopes)).max(axis=(0, 1)))
    depths = np.arange(1, 9)
    return Verdict(
        *checks,
        equal(
            "through a rectifier and a maximum, over 200 inputs",
            np.ptp(seen) + 1,
            field([3, 2, 3], [1, 2, 1]),
        ),
        figure=Chart(
            Panel(
                "layers",
                "places seen",
                log="y",
                lines={
                    "windows of 3": (depths, [field([3] * d, [1] * d) for d in depths]),
                    "windows of 3, strides of 2": (
                        depths,
                        [field([3] * d, [2] * d) for d in depths],
                    ),
                },
            )
        ),
    )


def _part(rng: np.random.Generator, m: int, s: int, *, pool: bool) -> Any:
    """A pool or a convolution of one channel."""
    if pool:
        return layers.AveragePool((m,), (s,))
    return layers.Convolution(jnp.asarray(1 + rng.random((1, 1, m))), boundary="valid", stride=s)


@claim(
    "L10-A1-param-explosion",
    title="A dense layer on an image",
    kind="identity",
    of=("layers.Linear", "layers.Convolution", "tree.size"),
)
def explosion(key):
    r"""An image of 1000 by 1000 has $10^6$ inputs; one hidden layer of 1000 units already has
    $10^9$ weights. A filter of 3 by 3 has 9, whatever the image.
    """
    dense = jax.eval_shape(
        lambda key: layers.Linear.init(1000 * 1000, 1000, bias=False, key=key), key
    )
    conv = jax.eval_shape(lambda key: draw(1, 1000, (3, 3), bias=False, key=key), key)
    image = jax.ShapeDtypeStruct((1, 1000, 1000), float)
    maps = jax.eval_shape(lambda conv, x: conv(x), conv, image)
    return Verdict(
        equal("inputs", image.size, 10**6),
        equal("weights of the dense layer", tree.size(dense), 10**9),
        equal("weights of 1000 filters, for each", tree.size(conv) / 1000, 9),
        equal("what they put out", maps.shape, [1000, 1000, 1000]),
        refuted(equal("as many weights", tree.size(conv), tree.size(dense))),
    )


def resnet_by_hand() -> int:
    """The parameters of a residual network of depth 50, block by block: a convolution has no offset
    but a norm has two numbers a channel.
    """
    conv = lambda c, m, k: c * m * k * k + 2 * m
    total = conv(3, 64, 7)
    before = 64
    for inner, blocks in zip((64, 128, 256, 512), (3, 4, 6, 3)):
        for block in range(blocks):
            total += conv(before, inner, 1) + conv(inner, inner, 3) + conv(inner, 4 * inner, 1)
            total += conv(before, 4 * inner, 1) if block == 0 else 0  # the skip
            before = 4 * inner
    return total + before * 1000 + 1000


@claim(
    "L10-A13-resnet50",
    title="ResNet-50, counted",
    kind="identity",
    of=("models.ResNet", "tree.size"),
    cites="He, Zhang, Ren & Sun 2016",
)
def resnet50(key):
    r"""The layers with weights on the way through: $1 + 3 \cdot (3 + 4 + 6 + 3) + 1 = 50$. With
    widths from 64 to 512, four times that at the end of each block, norms and 1000 classes there
    are 25,557,032 parameters.
    """
    net = jax.eval_shape(lambda key: models.ResNet.init(50, classes=1000, key=key), key)
    weighted = [
        part
        for _, part in explain.modules(net)
        if isinstance(part, layers.Convolution | layers.Linear)
    ]
    blocks = [len(stage.layers) for stage in net.stages]
    skips = sum(block.layers[0].skip is not None for stage in net.stages for block in stage.layers)
    thin = jax.eval_shape(lambda key: models.ResNet.init(34, classes=1000, key=key), key)
    return Verdict(
        equal("blocks of the stages", blocks, [3, 4, 6, 3]),
        equal(
            "layers with weights, the skips apart", len(weighted) - skips, 1 + 3 * sum(blocks) + 1
        ),
        equal("which is", 1 + 3 * sum(blocks) + 1, 50),
        equal("parameters", tree.size(net), 25_557_032),
        equal("by hand", resnet_by_hand(), 25_557_032),
        refuted(equal("those of the one of depth 34", tree.size(thin), 25_557_032)),
    )


DEPTH = 50


@claim(
    "L10-A13-residual",
    title="Residual blocks let a network be deep",
    kind="layer",
    of=("layers.Residual", "layers.Convolution", "models.ResNet"),
    cites="He, Zhang, Ren & Sun 2016",
)
def residual(key):
    r"""A block $x + F(x)$ is the identity where $F = 0$. Back through 50 random blocks, $F$ scaled
    by $\frac{1}{\sqrt{50}}$, a gradient keeps its length within a factor of 10; through 50 plain
    layers with LeCun's start it is lost. From stage to stage of a residual network there are more
    channels and fewer places.
    """
    key_x, key_d, key_F = jr.split(key, 3)
    x = jr.normal(key_x, (6, 8, 8))
    d = jr.normal(key_d, (6, 8, 8))
    many = lambda initialiser: jax.vmap(
        lambda key: draw(6, 6, (3, 3), bias=False, initialiser=initialiser, key=key)
    )(jr.split(key_F, DEPTH))
    plain = lambda conv: layers.Chain(conv, layers.relu)
    block = lambda conv: layers.Residual(
        layers.Chain(conv, layers.relu, lambda h: h / np.sqrt(DEPTH))
    )
    straight = _back(plain, many(layers.lecun), x, d)
    bent = _back(block, many(layers.he), x, d)
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
        between("gradient through 50 blocks, its length over that before", bent[-1], 0.1, 10.0),
        at_most("through 50 plain layers", straight[-1], 1e-3),
        rises("channels of the stages", [c for c, _, _ in sizes]),
        falls("places of the stages", [h * w for _, h, w in sizes]),
        figure=Chart(
            Panel(
                "layers behind it",
                "length of the gradient",
                log="y",
                lines={"residual": (ell, bent), "plain": (ell, straight)},
            )
        ),
    )


def _scale(channels: int) -> layers.Affine:
    """In place of a norm, which needs a batch: shapes are the same."""
    return layers.Affine(jnp.ones(channels), jnp.zeros(channels))


def _back(make: Any, convs: Any, x: Any, d: Any) -> np.ndarray:
    """The length of what comes back through ever more of the layers, over its length at the
    start.
    """

    def lengths(convs, x, d):
        _, inputs = jax.lax.scan(lambda h, conv: (make(conv)(h), h), x, convs)
        pull = lambda d, item: (jax.vjp(lambda h: make(item[0])(h), item[1])[1](d)[0],) * 2
        _, back = jax.lax.scan(pull, d, (convs, inputs), reverse=True)
        return jnp.sqrt(jnp.sum(back**2, axis=(1, 2, 3)) / jnp.sum(d**2))

    return np.append(1.0, np.asarray(jax.jit(lengths)(convs, x, d))[::-1])

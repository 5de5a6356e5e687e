"""§6.6, lecture 10 A.2: vision transformers on image patches, and the MLP-Mixer."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from scipy.signal import correlate2d
from scipy.special import erf

from ... import data, layers, train, tree
from ...layers import Convolution
from ...models import Mixer, MixerBlock, ViT
from ...plot import Panel
from ..engine.check import at_least, at_most, close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim
from ..engine.numpy_rng import numpy_rng
from .by_loop import EXACT, dependence, norm, perturbed, single_precision, slopes


def split_patches(x: np.ndarray, P: int) -> np.ndarray:
    """The patches of an image, row by row, each flattened to a vector."""
    _, h, w = x.shape
    return np.array(
        [x[:, i : i + P, j : j + P].ravel() for i in range(0, h, P) for j in range(0, w, P)]
    )


def join_patches(patches: np.ndarray, shape: tuple[int, ...], P: int) -> np.ndarray:
    """The image with these patches."""
    (c, _, w), x = shape, np.zeros(shape)
    for n, patch in enumerate(patches):
        i = P * (n // (w // P))
        j = P * (n % (w // P))
        x[:, i : i + P, j : j + P] = patch.reshape(c, P, P)
    return x


def small_transformer(key: Any, **options: Any) -> Any:
    """A vision transformer for images of 2 channels, 6 by 4, in patches of 2 by 2."""
    net = ViT.init(
        3,
        image_size=(6, 4),
        channels=2,
        patch_size=2,
        d=4,
        depth=1,
        heads=2,
        hidden=6,
        key=key,
        **options,
    )
    return perturbed(net, key, 0.4)


@claim(
    "6.6-patch-embed",
    title="Patch embedding",
    kind="layer",
    of=("models.ViT", "layers.Convolution"),
    cites="Dosovitskiy et al. 2021",
)
def patches(key, rng):
    r"""An image of $H \times W$ with $C$ channels is split into $N = HW/P^2$ patches, each a vector
    of $P^2 C$ numbers, and a linear map turns it into a token: a convolution with kernel size and
    stride $P$. For $224 \times 224$ and $P = 16$ there are 196.
    """
    P = 2
    net = small_transformer(key)
    x = rng.normal(size=(2, 6, 4))
    W = np.asarray(net.stem.W)
    b = np.asarray(net.stem.b)
    result = np.asarray(net.patches(jnp.asarray(x)))
    everywhere = np.array(
        [sum(correlate2d(plane, w, "valid") for plane, w in zip(x, of)) for of in W]
    )
    window = everywhere[:, ::P, ::P].reshape(len(W), -1).T + b
    unit = Convolution(jnp.eye(8).reshape(8, 2, P, P), boundary="valid", stride=P)
    same = ViT(unit, jnp.zeros(8), net.trunk, net.head, image_size=(6, 4))
    large = jax.eval_shape(lambda key: ViT.init(10, key=key), key)
    tokens = jax.eval_shape(
        lambda net, x: net.patches(x), large, jax.ShapeDtypeStruct((3, 224, 224), float)
    )
    return Verdict(
        close(
            "patch by patch, in a loop",
            result,
            split_patches(x, P) @ W.reshape(len(W), -1).T + b,
            **EXACT,
        ),
        close("every second position of SciPy's convolution", result, window, **EXACT),
        refuted(close("patches in the opposite order", result, window[::-1], tolerance=1e-3)),
        equal("split and joined again", join_patches(split_patches(x, P), x.shape, P), x),
        equal("W = I: the patches themselves", same.patches(jnp.asarray(x)), split_patches(x, P)),
        equal("224 × 224, patches of 16: tokens and their width", tokens.shape, (196, 768)),
    )


@claim(
    "6.6-vit",
    title="The vision transformer",
    kind="model",
    of=("models.ViT",),
    cites="Dosovitskiy et al. 2021",
)
def vision_transformer(key, rng):
    r"""The class token is prepended to the patches, positions are added, an encoder follows, and
    the class is predicted from the first position. Without positions the patches may be shuffled:
    the logits are the same.
    """
    net = small_transformer(key)
    x = jnp.asarray(rng.normal(size=(2, 6, 4)))
    tokens = np.concatenate([np.asarray(net.class_token)[None], np.asarray(net.patches(x))])
    read = net.head(net.trunk(jnp.asarray(tokens + np.asarray(net.positions.P)))[0])
    pull, differences = slopes(lambda net: net(x), net, rng.normal(size=3))
    orders = [rng.permutation(6) for _ in range(20)]
    images = jnp.asarray(
        [join_patches(split_patches(np.asarray(x), 2)[order], x.shape, 2) for order in orders]
    )
    off = {}
    for placed in (True, False):
        some = small_transformer(key, positions=placed)
        logits = jax.jit(jax.vmap(lambda x, some=some: some(x)))(jnp.concatenate([x[None], images]))
        off[placed] = np.abs(np.asarray(logits[1:] - logits[:1])).max(axis=1)
    return Verdict(
        close("class token, patches, positions, encoder, first position", net(x), read, **EXACT),
        equal("one token for each patch, and one more", net.last_hidden(x).shape, (7, 4)),
        close_derivative(
            f"the derivative by all {len(pull)} parameters", pull, differences, tolerance=1e-7
        ),
        at_most("without positions, patches shuffled 20 times: logits", off[False].max(), 1e-12),
        at_least("with positions: largest change of the logits", off[True].max(), 1e-2),
        refuted(at_most("with positions: largest change of the logits", off[True].max(), 1e-12)),
    )


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
SIZES = (100, 2000)
STEPS = 300
DESCENT = train.descend(train.cross_entropy, optax.adam(optax.cosine_decay_schedule(7e-3, STEPS)))


def scenes(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy images of 16 by 16 with one of three glyphs at a random place."""
    ys = rng.integers(3, size=n)
    xs = rng.normal(0, 0.2, size=(n, 1, 16, 16)).astype(np.float32)
    for x, y, i, j in zip(xs, ys, *rng.integers(12, size=(2, n))):
        x[0, i : i + 5, j : j + 5] += PICTURES[y]
    return xs, ys.astype(np.int32)


def classifiers(key: Any) -> dict[str, Any]:
    """A convolutional network, and a vision transformer with patches of 4 by 4."""
    key_conv, key_last, key_vit = jr.split(key, 3)
    conv = Convolution.init(1, 8, (5, 5), key=key_conv)
    cnn = layers.Chain(conv, layers.relu, layers.global_max, layers.Linear.init(8, 3, key=key_last))
    vit = ViT.init(
        3,
        image_size=(16, 16),
        channels=1,
        patch_size=4,
        d=24,
        depth=1,
        heads=2,
        hidden=48,
        initialiser=layers.glorot,
        key=key_vit,
    )
    return {"convolution": single_precision(cnn), "transformer": single_precision(vit)}


@jax.jit
def accuracy(net: Any, learn: Any, test: Any, key: Any) -> Any:
    """Test accuracy after a number of steps that does not depend on the number of training
    images.
    """
    rows = jr.randint(key, (STEPS, 32), 0, len(learn[1]))
    step = lambda state, rows: DESCENT.step(state, jax.tree.map(lambda a: a[rows], learn), key=key)
    return 1 - train.error_rate(jax.lax.scan(step, DESCENT.init(net), rows)[0].model, test)


@claim(
    "6.6-vit-experiment",
    title="Weaker inductive bias",
    kind="experiment",
    of=("models.ViT", "layers.Convolution", "layers.global_max", "train.descend"),
    cites="Dosovitskiy et al. 2021",
)
def needs_data(key, scale):
    r"""A vision transformer has neither locality nor translation equivariance built in: from 100
    images of three glyphs it learns less than a small convolutional network; from 2000 much of the
    gap has closed.
    """
    seeds = 5 if scale == "full" else 3
    results = {name: np.zeros((seeds, len(SIZES))) for name in ("convolution", "transformer")}
    for at, k in enumerate(jr.split(key, seeds)):
        rng = numpy_rng(k)
        test = scenes(rng, 400)
        most = scenes(rng, SIZES[-1])
        for name, net in classifiers(k).items():
            results[name][at] = [
                float(accuracy(net, jax.tree.map(lambda a, n=n: a[:n], most), test, k))
                for n in SIZES
            ]
    gap = (results["convolution"] - results["transformer"]).mean(axis=0)
    return Verdict(
        at_least("100 images: gain of the convolutional network, mean", gap[0], 0.3),
        at_most("2000 images: the gap, over that at 100", gap[1] / gap[0], 0.3),
        at_least(
            "2000 images: accuracy of the transformer, mean",
            results["transformer"][:, 1].mean(),
            0.85,
        ),
        figure=Panel(
            "images",
            "test accuracy, mean",
            log="x",
            lines={name: (SIZES, way.mean(axis=0)) for name, way in results.items()},
        ),
    )


def gelu(z: np.ndarray) -> np.ndarray:
    """GELU by the error function."""
    return z * (1 + erf(z / np.sqrt(2))) / 2


def mlp(net: Any, column: np.ndarray) -> np.ndarray:
    """One hidden layer, for one vector."""
    first, _, last = net.body.layers
    hidden = gelu(np.asarray(first.W) @ column + np.asarray(first.b))
    return np.asarray(last.W) @ hidden + np.asarray(last.b)


def without_token_mixing(block: MixerBlock) -> MixerBlock:
    """The block whose token-mixing network is 0."""
    last = block.tokens.body.layers[2]
    silent = jax.tree.map(jnp.zeros_like, last)
    return jax.tree.map(lambda a: silent if a is last else a, block, is_leaf=lambda a: a is last)


@claim(
    "L10-A2-mlp-mixer",
    title="The MLP-Mixer: no attention",
    kind="model",
    of=("models.Mixer", "models.MixerBlock"),
    cites="Tolstikhin et al. 2021",
)
def mixer(key, rng):
    r"""$U = X + W_2\, \mathrm{GELU}(W_1\, \mathrm{LN}(X))$ mixes the patches, the same for every
    channel, and $Y = U + \mathrm{GELU}(\mathrm{LN}(U)\, W_3)\, W_4$ the channels, the same for
    every patch: patches interact only in the first. Mixer-B/16 has 59,880,472 parameters; a small
    one classifies at least 90 % of new digits correctly.
    """
    S, C = 4, 3
    block = perturbed(MixerBlock.init(S, C, hidden=(5, 6), key=key), key, 0.3)
    X = rng.normal(size=(S, C))
    U = X + np.stack([mlp(block.tokens, column) for column in norm(block.norm_tokens, X).T], axis=1)
    Y = U + np.stack([mlp(block.channels, row) for row in norm(block.norm_channels, U)])
    full = jax.eval_shape(lambda key: Mixer.init(classes=1000, key=key), key)
    key_split, key_net, key_fit = jr.split(key, 3)
    xs, ys = data.load("digits").train
    learn, test = data.split((xs[:, None], ys), 0.8, key=key_split, stratify=ys)
    net = single_precision(
        Mixer.init(
            1,
            classes=10,
            image_size=(8, 8),
            channels=1,
            patch_size=2,
            width=24,
            hidden=(24, 48),
            key=key_net,
        )
    )
    result = train.fit(
        train.descend(train.cross_entropy, optax.adam(5e-3)),
        net,
        learn,
        epochs=10,
        batch_size=64,
        validation=test,
        metrics={"error": train.error_rate},
        key=key_fit,
        progress=train.Silent(),
    )
    error = np.asarray(result.history["valid error"])
    met = dependence(block, X)
    alone = dependence(without_token_mixing(block), X)
    return Verdict(
        close("a block, by loops over channels and patches", block(jnp.asarray(X)), Y, **EXACT),
        at_least("∂y_i/∂x_j, all patches i and j", met, 1e-6),
        equal("without token mixing: dependence between patches", alone > 0, np.eye(S, dtype=bool)),
        equal("parameters of Mixer-B/16", tree.size(full), 59_880_472),
        at_least("test accuracy on digits", 1 - error[-1], 0.9),
        figure=Panel(
            "epoch", "test error", lines={"mixer": (1 + np.arange(len(error)), error)}, log="y"
        ),
    )

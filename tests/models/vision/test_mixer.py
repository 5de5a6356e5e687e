"""The MLP-Mixer: its equations by loops, who speaks to whom, its published size, what it learns and
refuses.
"""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from scipy.special import erf

from thetax import tree
from thetax.data import load, split
from thetax.models import Mixer, MixerBlock
from thetax.train import Silent, cross_entropy, descend, error_rate, fit

gelu = lambda z: z * (1 + erf(z / np.sqrt(2))) / 2


def normal(rows: np.ndarray, norm) -> np.ndarray:
    centred = rows - rows.mean(axis=1, keepdims=True)
    return np.asarray(norm.mu) + np.asarray(norm.gamma) * centred / np.sqrt(
        rows.var(axis=1, keepdims=True) + 1e-6
    )


def weights(net):
    first, _, last = net.body.layers
    return [np.asarray(a, np.float64) for a in (first.W, first.b, last.W, last.b)]


@jax.jit
def random_block() -> MixerBlock:
    block = MixerBlock.init(4, 3, hidden=(5, 6), key=jr.key(0))
    return tree.axpy(
        0.3, tree.normal_like(jr.key(1), block), block
    )  # so that norms and offsets are not plain


def test_a_block_of_given_weights_is_its_equations():
    """As below, compiled, and drawn by NumPy."""
    rng = np.random.default_rng(1)
    like = jax.eval_shape(lambda: MixerBlock.init(4, 3, hidden=(5, 6), key=jr.key(0)))
    block = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), jnp.float32), like)
    expect_the_equations(block, jax.jit(lambda block, X: block(X)))


def test_a_block_is_its_equations():
    expect_the_equations(random_block(), lambda block, X: block(X))


def expect_the_equations(block, call):
    """Column by column, then row by row."""
    X = np.random.default_rng(0).normal(size=(4, 3))
    W1, b1, W2, b2 = weights(block.tokens)
    V1, c1, V2, c2 = weights(block.channels)
    U = X.copy()
    high = normal(X, block.norm_tokens)
    for channel in range(3):
        U[:, channel] += W2 @ gelu(W1 @ high[:, channel] + b1) + b2
    Y = U.copy()
    high = normal(U, block.norm_channels)
    for token in range(4):
        Y[token] += V2 @ gelu(V1 @ high[token] + c1) + c2
    np.testing.assert_allclose(call(block, jnp.asarray(X, jnp.float32)), Y, rtol=1e-5, atol=1e-5)


def test_patches_speak_by_the_first_map_only():
    """Without it the derivative of one patch's output in another patch is 0; with it, none is."""
    block = random_block()
    X = jr.normal(jr.key(2), (4, 3))
    across = jax.jit(
        lambda block: jnp.abs(jax.jacobian(block)(X)).sum(axis=(1, 3))
    )  # token by token
    assert bool((across(block) > 1e-6).all())
    last = block.tokens.body.layers[2]
    silent = jax.tree.map(jnp.zeros_like, last)
    deaf = jax.tree.map(lambda a: silent if a is last else a, block, is_leaf=lambda a: a is last)
    assert bool((across(deaf) * (1 - jnp.eye(4)) == 0).all())
    assert bool((jnp.diag(across(deaf)) > 1e-3).all())


@pytest.mark.slow
def test_a_network_is_its_blocks_in_turn():
    net = Mixer.init(
        3,
        classes=2,
        image_size=(4, 6),
        channels=2,
        patch_size=2,
        width=5,
        hidden=(3, 4),
        key=jr.key(0),
    )
    x = jr.normal(jr.key(1), (2, 4, 6))
    patches = (
        x.reshape(2, 2, 2, 3, 2).transpose(1, 3, 0, 2, 4).reshape(6, 8)
    )  # row by row, each c a b
    X = patches @ net.stem.W.reshape(5, 8).T + net.stem.b[None]
    for depth in range(3):
        X = MixerBlock.__call__(jax.tree.map(lambda leaf: leaf[depth], net.blocks.layers), X)  # noqa: B023
    np.testing.assert_allclose(net(x), net.head(jax.vmap(net.last)(X).mean(axis=0)), atol=1e-5)


def test_parameters_are_the_published_ones():
    """Mixer-B/16."""
    net = jax.eval_shape(partial(Mixer.init, classes=1000), key=jr.key(0))
    assert tree.size(net) == 59_880_472


@pytest.mark.slow
def test_it_reads_digits():
    xs, ys = load("digits").train
    train, test = split((xs[:, None], ys), 0.8, key=jr.key(0), stratify=ys)
    net = Mixer.init(
        2,
        classes=10,
        image_size=(8, 8),
        channels=1,
        patch_size=2,
        width=32,
        hidden=(32, 64),
        key=jr.key(0),
    )
    found = fit(
        descend(cross_entropy, optax.adam(3e-3)),
        net,
        train,
        epochs=12,
        batch_size=64,
        key=jr.key(1),
        progress=Silent(),
    )
    assert float(error_rate(found.model, jax.tree.map(jnp.asarray, test))) < 0.1


@pytest.mark.parametrize("given", [{"image_size": (224, 225)}, {"depth": 0}, {"patch_size": 0}])
def test_what_cannot_be_meant_is_refused(given):
    with pytest.raises(ValueError, match="patch_size must divide the image_size; got"):
        Mixer.init(classes=2, key=jr.key(0), **given)


@pytest.mark.usefixtures("unchecked")
def test_what_is_no_image_is_told():
    with pytest.raises(ValueError, match="all sizes must be >= 1; got classes=0"):
        Mixer.init(classes=0, key=jr.key(0))
    net = Mixer.init(
        1,
        classes=2,
        image_size=(4, 6),
        channels=1,
        patch_size=2,
        width=3,
        hidden=(3, 4),
        key=jr.key(0),
    )
    for shape, says in (
        ((4, 6), r"x\[None\]"),
        ((4, 6, 1), "channels come first"),
        ((5, 1, 4, 6), "jax.vmap"),
    ):
        with pytest.raises(ValueError, match=rf"Mixer: .*shape \(1, 4, 6\), got .*{says}"):
            net(jnp.ones(shape))

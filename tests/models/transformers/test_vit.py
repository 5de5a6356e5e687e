"""The vision transformer: patches by hand, and who knows where they lie."""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import close, normal, same_bits

from thetax.core import predict
from thetax.models import ViT

make = partial(
    ViT.init, 3, image_size=(6, 4), channels=2, patch_size=2, d=4, depth=1, heads=2, eps=1e-5
)


def loud(model):
    return jax.tree.map(lambda a: 20 * a if a.ndim > 1 else a, model)


@pytest.mark.usefixtures("x64", "strict")
def test_patches_are_squares_in_reading_order():
    net = loud(make(key=jr.key(0)))
    x = normal(0, 2, 6, 4)
    W = np.asarray(net.stem.W).reshape(4, -1)
    b = np.asarray(net.stem.b).ravel()
    squares = [np.asarray(x)[:, r : r + 2, c : c + 2].ravel() for r in (0, 2, 4) for c in (0, 2)]
    expected = np.stack([W @ square + b for square in squares])
    np.testing.assert_allclose(net.patches(x), expected, atol=1e-12)
    tokens = np.concatenate([np.asarray(net.class_token)[None], expected]) + np.asarray(
        net.positions.P
    )
    np.testing.assert_allclose(net.input_embeddings(x), tokens, atol=1e-12)
    last = np.asarray(net.trunk(jnp.asarray(tokens)))
    np.testing.assert_allclose(
        net(x), np.asarray(net.head.W) @ last[0] + np.asarray(net.head.b), atol=1e-12
    )


def swapped(x):
    """The first and the last patch change places."""
    return x.at[:, :2, :2].set(x[:, 4:, 2:]).at[:, 4:, 2:].set(x[:, :2, :2])


def test_without_places_the_order_is_not_known():
    x = normal(0, 2, 6, 4)
    blind = loud(make(positions=False, key=jr.key(0)))
    net = loud(make(key=jr.key(0)))
    assert blind.positions is None
    np.testing.assert_allclose(blind(swapped(x)), blind(x), atol=1e-4)
    assert not close(net(swapped(x)), net(x), rtol=1e-2, atol=1e-2)


@pytest.mark.slow
def test_weights_and_batches():
    net = loud(make(key=jr.key(0)))
    xs = normal(0, 3, 2, 6, 4)
    A = net.attention_weights(xs[0])
    assert A.shape == (1, 2, 7, 7)
    np.testing.assert_allclose(A.sum(axis=3), 1, atol=1e-6)
    np.testing.assert_allclose(predict(net, xs)[1], net(xs[1]), rtol=1e-5, atol=1e-5)


def test_dropout_draws_by_the_key():
    net = make(dropout=0.5, key=jr.key(0))
    x = normal(0, 2, 6, 4)
    f = jax.jit(lambda key: net.last_hidden(x, key=key))
    assert same_bits(f(jr.key(0)), f(jr.key(0)))
    assert not close(f(jr.key(0)), f(jr.key(1)), atol=1e-2)
    assert same_bits(net(x), make(key=jr.key(0))(x))


def test_sizes_of_the_base_model():
    """ViT-B/16 on a thousand classes, as published: 86 567 656."""
    net = jax.eval_shape(lambda: ViT.init(1000, key=jr.key(0)))
    assert sum(leaf.size for leaf in jax.tree.leaves(net)) == 86_567_656


@pytest.mark.usefixtures("unchecked")
def test_bad_images():
    with pytest.raises(
        ValueError,
        match=r"patch_size must divide the image_size; got patch_size=4, image_size=\(6, 4\)",
    ):
        make(patch_size=4, key=jr.key(0))
    net = make(key=jr.key(0))
    with pytest.raises(
        ValueError, match=r"ViT: expected one example of shape \(2, 6, 4\), got \(2, 4, 6\)"
    ):
        net(jnp.ones((2, 4, 6)))
    with pytest.raises(ValueError, match="ViT"):
        net(jnp.ones((2, 6, 4), jnp.int32))

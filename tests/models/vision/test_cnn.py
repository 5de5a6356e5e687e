"""Networks for small images: their sizes, their layers by hand, what they learn and what they
refuse.
"""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from thetax import tree
from thetax.core import predict
from thetax.layers import BatchNorm, fold_batch_norm
from thetax.models import CNN, LeNet
from thetax.train import Silent, cross_entropy, descend, error_rate, fit


@pytest.mark.slow
def test_a_network_is_its_equation():
    """Convolutions as sums over windows, maxima of 2 by 2, the mean: all by NumPy."""
    net = CNN.init((2, 3), classes=4, channels=2, pool_size=1, key=jr.key(0))
    x = np.random.default_rng(0).normal(size=(2, 8, 8)).astype(np.float32)
    y = x
    for stage in net.stages:
        W = np.asarray(stage.layers[0].W)
        windows = np.lib.stride_tricks.sliding_window_view(
            np.pad(y, [(0, 0), (1, 1), (1, 1)]), (3, 3), axis=(1, 2)
        )
        y = np.maximum(
            np.einsum("mcab,chwab->mhw", W, windows) + np.asarray(stage.layers[0].b)[:, None, None],
            0,
        )
        y = y.reshape(len(y), y.shape[1] // 2, 2, y.shape[2] // 2, 2).max(axis=(2, 4))
    read = net.head.layers[1]
    np.testing.assert_allclose(
        net(jnp.asarray(x)), read.W @ y.mean(axis=(1, 2)) + read.b, atol=1e-5
    )


@pytest.mark.parametrize("side", [28, 32])
@pytest.mark.parametrize("widths", [(4, 8), (4, 8, 8)])
def test_digits_and_photographs_fit(side, widths):
    make = partial(CNN.init, widths, classes=10, channels=3, depth=2)
    net, y = jax.eval_shape(
        lambda key: (net := make(key=key), net(jnp.ones((3, side, side)))), jr.key(0)
    )
    assert y.shape == (10,)
    assert (
        tree.size(net)
        == sum(9 * c * m + m for c, m in zip((3, *np.repeat(widths, 2)), np.repeat(widths, 2)))
        + 730
    )


@pytest.mark.slow
def test_norms_fold_and_dropout_draws():
    net = CNN.init((3,), classes=2, normalise=BatchNorm.init, dropout=0.5, key=jr.key(0))
    xs = jr.normal(jr.key(1), (6, 1, 6, 6))
    one = jax.jit(fold_batch_norm)(net, xs)
    np.testing.assert_allclose(jax.jit(predict)(net, xs), jax.jit(predict)(one, xs), atol=1e-5)
    assert net.stages[0].layers[0].b is None  # the norm has the offset
    assert not jnp.allclose(one(xs[0], key=jr.key(0)), one(xs[0], key=jr.key(1)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "side"), [(partial(CNN.init, (4,)), 12), (LeNet.init, 28)], ids=["CNN", "LeNet"]
)
def test_it_tells_bars_apart(make, side):
    """Upright from lying, wherever they are."""
    key = jr.key(0)
    place = jr.randint(key, (64,), 0, side)
    upright = jnp.arange(side)[None, None, :] == place[:, None, None]
    xs = jnp.broadcast_to(upright, (64, side, side)).astype(jnp.float32)
    xs = jnp.concatenate([xs, xs.swapaxes(1, 2)])[:, None]
    ys = jnp.repeat(jnp.arange(2, dtype=jnp.int32), 64)
    step = descend(cross_entropy, optax.adam(1e-2))
    found = fit(
        step,
        make(classes=2, key=key),
        (xs, ys),
        epochs=15,
        batch_size=32,
        key=key,
        progress=Silent(),
    )
    assert float(error_rate(found.model, (xs, ys))) < 0.05


def test_lenet_has_the_known_number_of_parameters():
    assert tree.size(jax.eval_shape(partial(LeNet.init, classes=10), key=jr.key(0))) == 61_706
    other = partial(LeNet.init, classes=10, channels=3, image_size=32)
    assert jax.eval_shape(lambda key: other(key=key)(jnp.ones((3, 32, 32))), jr.key(0)).shape == (
        10,
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: CNN.init((), classes=2, key=jr.key(0)),
        lambda: CNN.init((4,), classes=0, key=jr.key(0)),
        lambda: CNN.init((4,), classes=2, pool_size=0, key=jr.key(0)),
        lambda: CNN.init((4, 4), classes=2, key=jr.key(0))(jnp.ones((1, 8, 8))),
        lambda: LeNet.init(classes=2, image_size=30, key=jr.key(0)),
        lambda: LeNet.init(classes=2, key=jr.key(0))(jnp.ones((1, 32, 32))),
        lambda: LeNet.init(classes=0, key=jr.key(0)),
    ],
)
def test_what_cannot_be_meant_is_refused(make):
    with pytest.raises(ValueError, match=r"got "):
        make()


@pytest.mark.slow
def test_too_many_halvings_are_counted():
    """Up to as many as there are, the network runs."""
    net = lambda stages, places: CNN.init((2,) * stages, classes=2, pool_size=places, key=jr.key(0))
    x = jnp.ones((1, 28, 20))
    with pytest.raises(ValueError, match="20 pixels can be halved 4 times, but there are 6 stages"):
        net(6, 1)(x)
    with pytest.raises(
        ValueError,
        match="expected at least pool_size=3 pixels after the stages; got 2, 20 halved 3 times",
    ):
        net(3, 3)(x)
    assert net(4, 1)(x).shape == (2,)

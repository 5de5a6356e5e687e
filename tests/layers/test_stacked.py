"""`Stacked` against a loop over its layers."""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import close, normal

from thetax.layers import Chain, Dropout, FeedForward, Linear, Stacked, tanh

make = partial(FeedForward.init, 3, 4, activation=tanh)


def layer_of(net, at):
    return jax.tree.map(lambda a: a[at], net.layers)


DEPTHS = pytest.mark.parametrize("depth", [3, 6], ids=["written out", "scanned"])


@pytest.mark.slow
@DEPTHS
@pytest.mark.usefixtures("x64", "strict")
def test_equals_the_loop(depth):
    net = Stacked.init(make, depth, key=jr.key(0))
    x = normal(0, 2, 3)
    y = x
    for at, key in enumerate(jr.split(jr.key(0), depth)):
        assert close(layer_of(net, at), make(key=key), rtol=1e-12)
        y = layer_of(net, at)(y)
    np.testing.assert_allclose(net(x), y, atol=1e-12)
    assert len(net) == depth


@pytest.mark.slow
@DEPTHS
def test_remat_recomputes_activations(depth):
    net = Stacked.init(make, depth, key=jr.key(0))
    x = normal(0, 2, 3)
    again = Stacked(net.layers, remat=True)
    slope = lambda net: jax.grad(
        lambda layers, x: jnp.square(Stacked(layers, net.remat)(x)).sum(), argnums=(0, 1)
    )
    assert close(slope(net)(net.layers, x), slope(again)(net.layers, x))
    inside = lambda net: str(jax.make_jaxpr(slope(net))(net.layers, x))
    assert "checkpoint" in inside(again) or "remat" in inside(again)
    assert "remat" not in inside(net)


def test_key_is_split():
    net = Stacked.init(
        lambda key: Chain(Linear.init(64, 64, key=key), Dropout(0.5)), 2, key=jr.key(0)
    )
    net = jax.tree.map(
        lambda a: jnp.zeros_like(a) if a.ndim == 2 else jnp.stack([jnp.eye(64)] * 2), net
    )
    found = net(jnp.ones(64), key=jr.key(1))
    keys = jr.split(jr.key(1), 2)
    y = jnp.ones(64)
    for at, key in enumerate(keys):
        y = layer_of(net, at)(y, key=key)
    np.testing.assert_array_equal(found, y)
    assert 0.1 < (found > 0).mean() < 0.4  # a quarter: the two draws are not the same
    assert (net(jnp.ones(64)) == 1).all()


@DEPTHS
def test_scan_with_items_and_outputs(depth):
    net = Stacked.init(partial(Linear.init, 2, 2), depth, key=jr.key(0))
    items = jnp.arange(float(depth))
    last, out = net.scan(lambda layer, x, item: (layer(x) + item, x.sum()), jnp.ones(2), items)
    y = jnp.ones(2)
    expected = []
    for at in range(depth):
        expected.append(y.sum())
        y = layer_of(net, at)(y) + items[at]
    np.testing.assert_allclose(last, y, atol=1e-6)
    np.testing.assert_allclose(out, expected, atol=1e-6)


def test_deep_stacks_compile_one_layer(monkeypatch):
    """On a CPU; on an accelerator, and up to `MAX_UNROLLED_LAYERS`, the layers are unrolled."""
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    size = lambda depth: len(
        str(
            jax.make_jaxpr(lambda net, x: net(x))(
                Stacked.init(make, depth, key=jr.key(0)), jnp.ones((2, 3))
            )
        )
    )
    assert abs(size(9) - size(6)) < 10


def test_depth_zero_raises():
    with pytest.raises(ValueError, match="Stacked: depth must be an integer >= 1; got 0"):
        Stacked.init(make, 0, key=jr.key(0))

"""`tap` observes the layers of a network and changes the output only if the visitor does."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest
from contracts import normal

from thetax.layers import Chain, Dropout, Linear, Residual, tap

pytestmark = pytest.mark.usefixtures("strict")


def network():
    inner = Chain(Linear(normal(0, 3, 3), normal(1, 3)), jnp.tanh)
    return Chain(Residual(inner), Linear(normal(2, 2, 3), normal(3, 2)))


def is_linear(node):
    return isinstance(node, Linear)


def test_visitor_receives_selected_layers_by_name():
    """Names are tree paths, inputs are those of the layer, and the output is unchanged."""
    net = network()
    x = normal(4, 3)
    seen = {}

    def visit(name, layer, call, x):
        assert isinstance(layer, Linear)
        seen[name] = x
        return call(x)

    assert jnp.array_equal(tap(net, select=is_linear, visit=visit)(x), net(x))
    assert sorted(seen) == ["layers.0.inner.layers.0", "layers.1"]
    assert jnp.array_equal(seen["layers.0.inner.layers.0"], x)
    assert jnp.array_equal(seen["layers.1"], net.layers[0](x))


def test_visitor_replaces_the_output():
    """Ablating a layer is one line, under jit, vmap and grad."""
    net = network()
    xs = normal(5, 4, 3)
    ablated = lambda net, x: tap(
        net, select=is_linear, visit=lambda name, layer, call, x: 0 * call(x)
    )(x)
    assert jnp.array_equal(jax.jit(jax.vmap(ablated, (None, 0)))(net, xs), jnp.zeros((4, 2)))
    grad = jax.grad(lambda net: ablated(net, xs[0]).sum())(net)
    assert jax.tree.structure(grad) == jax.tree.structure(net)


def test_keys_are_passed_on():
    """A tapped random layer gives the same output for the same key."""
    net = Chain(Dropout(0.5), jnp.tanh)
    x = jnp.ones(50)
    tapped = tap(
        net, select=lambda m: isinstance(m, Dropout), visit=lambda name, layer, call, x: call(x)
    )
    assert jnp.array_equal(tapped(x, key=jr.key(0)), net(x, key=jr.key(0)))
    assert not jnp.array_equal(tapped(x, key=jr.key(0)), net(x))


def test_tied_weights_of_a_tapped_layer():
    """A model that reads the weights of a layer by name works with the layer tapped."""

    class Tied(eqx.Module):
        encode: Linear

        def __call__(self, x):
            return self.encode.W.T @ self.encode(x)

    net = Tied(Linear(normal(6, 2, 3), normal(7, 2)))
    x = normal(8, 3)
    tapped = tap(net, select=is_linear, visit=lambda name, layer, call, x: call(x))
    assert jnp.array_equal(tapped(x), net(x))

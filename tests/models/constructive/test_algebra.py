"""Networks as one map, in another activation, summed and multiplied (§2.3, §2.5)."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import normal

from thetax import tree
from thetax.core import predict
from thetax.layers import (
    Affine,
    Chain,
    Concat,
    Dropout,
    LayerNorm,
    Linear,
    Residual,
    WeightNorm,
    identity,
    ntk_parametrisation,
    relu,
    sigmoid,
    softmax,
    tanh,
)
from thetax.models import MLP, add_networks, as_sigmoid, as_tanh, merge_linear_layers, scale_network

pytestmark = pytest.mark.usefixtures("x64", "strict")


def net_with(*sizes, seed=0, **options):
    net = MLP.init(*sizes, key=jr.key(seed), **options)
    return tree.axpy(0.5, tree.normal_like(jr.key(seed + 1), net), net)


def same(a, b, tolerance=1e-12):
    xs = normal(3, 8, 3)
    return bool(jnp.allclose(predict(a, xs), predict(b, xs), rtol=0, atol=tolerance))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"initialiser": ntk_parametrisation(bias=0.3)},
        {"affine": WeightNorm.init},
        {"connect": Residual},
    ],
)
def test_linear_networks_collapse(options):
    net = net_with(3, 5, 5, 2, activation=identity, **options) if "connect" not in options else None
    net = net or MLP(
        Chain(
            Linear(normal(0, 3, 3)),
            Residual(Linear(normal(1, 3, 3), normal(2, 3))),
            Residual(Linear(normal(3, 2, 3)), Linear(normal(4, 2, 3))),
        )
    )
    one = merge_linear_layers(net)
    assert isinstance(one, Linear)
    assert one.W.shape == (2, 3)
    assert same(one, net)
    assert np.allclose(one.b, net(jnp.zeros(3)), atol=1e-12)
    assert np.allclose(one.W[:, 0], net(jnp.array([1.0, 0.0, 0.0])) - one.b, atol=1e-12)


def test_affine_and_chains_in_chains_collapse():
    net = Chain(
        Chain(Linear(normal(0, 4, 3)), Affine(normal(1, 4), normal(2, 4))),
        identity,
        Linear(normal(3, 2, 4)),
    )
    assert same(merge_linear_layers(net), net)


@pytest.mark.parametrize(
    ("part", "name"), [(tanh, "tanh"), (Dropout(0.5), "Dropout"), (LayerNorm.init(4), "LayerNorm")]
)
def test_what_is_not_affine_does_not_collapse(part, name):
    with pytest.raises(ValueError, match=f"{name} is not an affine map"):
        merge_linear_layers(Chain(Linear(normal(0, 4, 3)), part, Linear(normal(1, 1, 4))))
    with pytest.raises(ValueError, match="not an affine map"):
        merge_linear_layers(Chain(identity))
    with pytest.raises(ValueError, match=r"use layers.identity for no activation"):
        merge_linear_layers(Chain(Linear(normal(0, 4, 3)), lambda x: x))


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "options", [{}, {"initialiser": ntk_parametrisation()}, {"affine": WeightNorm.init}]
)
@pytest.mark.parametrize("sizes", [(3, 6, 1), (3, 4, 5, 2)])
def test_one_activation_for_the_other(sizes, options):
    net = net_with(*sizes, activation=tanh, **options)
    other = as_sigmoid(net)
    assert same(net, other)
    assert same(as_tanh(other), net)
    assert [part.activation for part in other.body.layers[1::2]] == [sigmoid] * (len(sizes) - 2)
    bare = Chain(Linear(normal(0, 4, 3)), sigmoid, Linear(normal(1, 1, 4)))
    assert same(bare, as_tanh(bare))
    assert isinstance(as_tanh(bare), Chain)


def test_activations_elsewhere_are_refused():
    for net in (
        Chain(Linear(normal(0, 4, 3)), tanh),
        Chain(tanh, Linear(normal(0, 4, 3))),
        Chain(Linear(normal(0, 4, 3)), LayerNorm.init(4), tanh, Linear(normal(1, 1, 4))),
        Chain(Linear(normal(0, 4, 3)), relu, Linear(normal(1, 1, 4))),
    ):
        with pytest.raises(ValueError, match="tanh between affine maps"):
            as_sigmoid(net)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("hidden", [((4,), (7,)), ((4, 5), (2, 3)), ((2, 2, 2), (3, 1, 4))])
@pytest.mark.parametrize(
    "options", [{}, {"initialiser": ntk_parametrisation()}, {"affine": WeightNorm.init}]
)
def test_sums_are_networks(hidden, options):
    f, g = (net_with(3, *h, 2, activation=tanh, seed=i, **options) for i, h in enumerate(hidden))
    both = add_networks(f, g)
    xs = normal(3, 8, 3)
    assert jnp.allclose(predict(both, xs), predict(f, xs) + predict(g, xs), atol=1e-12)
    assert isinstance(both, MLP)
    assert [len(part.W) for part in both.body.layers[:-1:2]] == [a + b for a, b in zip(*hidden)]


@pytest.mark.slow
def test_networks_that_do_not_add_are_refused():
    f = net_with(3, 4, 1)
    others = [
        net_with(3, 4, 4, 1),
        net_with(3, 4, 1, activation=tanh),
        net_with(3, 4, 1, connect=Concat),
    ]
    others += [net_with(3, 4, 1, normalise=LayerNorm.init), MLP(Chain(*f.body.layers, relu))]
    for g in others:
        with pytest.raises(ValueError, match="two networks of equal depth"):
            add_networks(f, g)
    for g in others[2:]:  # nor with themselves
        with pytest.raises(ValueError, match="two networks of equal depth"):
            add_networks(g, g)
    with pytest.raises(ValueError, match="softmax mixes the units"):
        add_networks(net_with(3, 4, 1, activation=softmax), net_with(3, 4, 1, activation=softmax))


@pytest.mark.parametrize("factor", [2.0, -0.5, 0.0])
def test_multiples_are_networks(factor):
    for net in (
        net_with(3, 4, 2),
        net_with(3, 4, 4, 2, connect=Residual),
        net_with(3, 4, 2, affine=WeightNorm.init),
    ):
        xs = normal(3, 8, 3)
        assert jnp.allclose(
            predict(scale_network(net, factor), xs), factor * predict(net, xs), atol=1e-12
        )
    with pytest.raises(ValueError, match="ends with Pointwise"):
        scale_network(Chain(Linear(normal(0, 2, 3)), relu), factor)

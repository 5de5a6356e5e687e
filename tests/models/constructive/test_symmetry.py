"""Different weights, the same function (§2.2, §2.5)."""

from itertools import permutations

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import normal
from hypothesis import given
from hypothesis import strategies as st

from thetax import tree
from thetax.core import predict
from thetax.layers import (
    Affine,
    BatchNorm,
    Chain,
    Concat,
    Dropout,
    LayerNorm,
    Linear,
    Residual,
    WeightNorm,
    centred,
    identity,
    leaky_relu,
    ntk_parametrisation,
    relu,
    sigmoid,
    softmax,
    tanh,
)
from thetax.models import MLP, permute_units, rescale_units, widen

pytestmark = pytest.mark.usefixtures("x64", "strict")


def bumped(net, seed=5):
    """The network at a point of no symmetry."""
    return tree.axpy(0.5, tree.normal_like(jr.key(seed), net), net)


def net_with(seed=0, **options):
    return bumped(MLP.init(3, 4, 5, 2, key=jr.key(seed), **options))


def same(a, b, xs=None, tolerance=1e-12):
    xs = normal(3, 8, 3) if xs is None else xs
    return bool(jnp.allclose(predict(a, xs), predict(b, xs), rtol=0, atol=tolerance))


OPTIONS = {
    "plain": {},
    "sigmoid": {"activation": sigmoid},
    "softmax": {"activation": softmax},
    "layer norm": {"normalise": LayerNorm.init},
    "batch norm": {"normalise": BatchNorm.init},
    "weight norm": {"affine": WeightNorm.init},
    "tangent": {"initialiser": ntk_parametrisation(bias=0.3)},
    "dropout": {"dropout": 0.5},
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", OPTIONS)
def test_permuted_units_are_the_same_network(name):
    net = net_with(**OPTIONS[name])
    for layer, width in ((0, 4), (1, 5)):
        order = np.random.default_rng(layer).permutation(width)
        other = permute_units(net, layer, order)
        assert same(net, other)
        assert type(other) is MLP
        assert not np.array_equal(tree.ravel(net)[0], tree.ravel(other)[0])
        assert same(permute_units(other, layer, np.argsort(order)), net)
        back = permute_units(other, layer, np.argsort(order))
        assert np.array_equal(tree.ravel(back)[0], tree.ravel(net)[0])


def test_permutation_by_hand():
    net = Chain(
        Linear(jnp.array([[1.0], [2.0]]), jnp.array([3.0, 4.0])),
        tanh,
        Linear(jnp.array([[5.0, 6.0]])),
    )
    first, _, last = permute_units(net, 0, (1, 0)).layers
    assert first.W.tolist() == [[2.0], [1.0]]
    assert first.b.tolist() == [4.0, 3.0]
    assert last.W.tolist() == [[6.0, 5.0]]


def test_all_orders_of_a_layer_differ():
    net = Chain(Linear(normal(0, 4, 2), normal(1, 4)), relu, Linear(normal(2, 1, 4)))
    twins = [permute_units(net, 0, order) for order in permutations(range(4))]
    assert len({tuple(np.asarray(tree.ravel(twin)[0]).tolist()) for twin in twins}) == 24
    assert all(same(net, twin, normal(4, 5, 2)) for twin in twins)


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 1, 2, 2), (0, 1, 2, 4), (0.5, 1, 2, 3)])
@pytest.mark.usefixtures("unchecked")
def test_what_is_no_permutation_is_refused(order):
    with pytest.raises(ValueError, match=r"each of 0\.\.3 once"):
        permute_units(net_with(), 0, order)


def test_functions_of_place_are_refused():
    with pytest.raises(ValueError, match="cumsum depends on the order of units"):
        permute_units(
            Chain(Linear(normal(0, 3, 2)), jnp.cumsum, Linear(normal(1, 1, 3))), 0, [2, 1, 0]
        )


@pytest.mark.parametrize("layer", [-1, 2, 7])
def test_layers_that_are_not_there_are_refused(layer):
    with pytest.raises(ValueError, match="has 2 hidden layers"):
        permute_units(net_with(), layer, range(4))


@pytest.mark.parametrize("connect", [Residual, Concat])
def test_blocks_are_refused_with_a_reason(connect):
    """A chain of blocks has no hidden layer of its own; a block between two maps reads the units in
    their order.
    """
    with pytest.raises(ValueError, match="inner chain"):
        permute_units(MLP.init(3, 4, 2, connect=connect, key=jr.key(0)), 0, range(4))
    inner = Chain(Linear(normal(0, 4, 4)), centred(relu))
    net = Chain(
        Linear(normal(1, 4, 3)),
        connect(inner),
        Linear(normal(2, 1, 4 if connect is Residual else 8)),
    )
    for change in (
        lambda: permute_units(net, 0, range(4)),
        lambda: rescale_units(net, 0, np.ones(4)),
    ):
        with pytest.raises(ValueError, match=f"{connect.__name__} follows layer 0"):
            change()


@pytest.mark.slow
@given(seed=st.integers(0, 10**6))
def test_rectifiers_scale(seed):
    """(cz)₊ = c(z)₊ for c > 0, for leaky rectifiers too."""
    with jax.enable_x64(True):
        scales = np.exp(np.random.default_rng(seed).normal(size=4))
        for activation in (relu, leaky_relu, centred(relu)):
            net = net_with(activation=activation)
            other = rescale_units(net, 0, scales)
            assert same(net, other, tolerance=1e-10)
            assert same(rescale_units(other, 0, 1 / scales), net, tolerance=1e-10)


@pytest.mark.parametrize(
    "options",
    [{"affine": WeightNorm.init}, {"initialiser": ntk_parametrisation(bias=0.3)}, {"dropout": 0.5}],
)
def test_scaling_with_other_parts(options):
    net = net_with(**options)
    for layer, scales in (
        (0, np.array([0.5, 2.0, 3.0, 0.1])),
        (1, np.array([1.0, 2.0, 3.0, 4.0, 5.0])),
    ):
        other = rescale_units(net, layer, scales)
        assert same(net, other, tolerance=1e-10)
        kinds = [[type(part) for part in model.body.layers] for model in (net, other)]
        assert kinds[0] == kinds[1]


def test_signs_of_odd_functions():
    net = net_with(activation=tanh, affine=WeightNorm.init)
    assert same(net, rescale_units(net, 0, np.array([1.0, -1.0, -1.0, 1.0])))
    linear = net_with(activation=identity)
    assert same(linear, rescale_units(linear, 1, np.array([-3.0, 0.2, 1.0, 7.0, -1.0])))


def test_scaling_through_an_affine_layer():
    middle = Affine(normal(2, 4), normal(3, 4))
    net = Chain(Linear(normal(0, 4, 3), normal(1, 4)), middle, relu, Linear(normal(4, 1, 4)))
    assert same(net, rescale_units(net, 0, np.array([0.5, 2.0, 3.0, 4.0])))


def test_scaling_by_hand():
    net = Chain(Linear(jnp.array([[1.0]]), jnp.array([3.0])), relu, Linear(jnp.array([[8.0]])))
    first, _, last = rescale_units(net, 0, np.array([2.0])).layers
    assert (first.W.item(), first.b.item(), last.W.item()) == (2.0, 6.0, 4.0)


@pytest.mark.parametrize(
    ("options", "scales", "words"),
    [
        (
            {"activation": sigmoid},
            [2.0, 1.0, 1.0, 1.0],
            "sigmoid does not commute with these scales",
        ),
        ({"activation": sigmoid}, [-1.0, 1.0, 1.0, 1.0], "does not commute with these scales"),
        ({"activation": tanh}, [2.0, 1.0, 1.0, 1.0], "does not commute with these scales"),
        ({}, [-1.0, 1.0, 1.0, 1.0], "does not commute with these scales"),
        ({}, [0.0, 1.0, 1.0, 1.0], "expected 4 finite non-zero scales"),
        ({}, [np.inf, 1.0, 1.0, 1.0], "expected 4 finite non-zero scales"),
        ({}, [1.0, 1.0], "expected 4 finite non-zero scales"),
        ({"normalise": LayerNorm.init}, [2.0] * 4, "LayerNorm follows"),
        ({"normalise": BatchNorm.init}, [2.0] * 4, "BatchNorm follows"),
    ],
)
def test_what_does_not_scale_is_refused(options, scales, words):
    with pytest.raises(ValueError, match=words):
        rescale_units(net_with(**options), 0, np.array(scales))


def test_a_clipped_rectifier_is_found_out():
    """Homogeneous near 0 and not beyond: the numbers tried reach far."""
    net = Chain(Linear(normal(0, 2, 3)), lambda z: jnp.clip(z, 0.0, 6.0), Linear(normal(1, 1, 2)))
    with pytest.raises(ValueError, match="does not commute"):
        rescale_units(net, 0, np.array([2.0, 1.0]))


@pytest.mark.parametrize("layer", [0, 1])
def test_wider_networks(layer):
    net = net_with(dropout=0.3)
    reads = (3, 4)[layer]
    wide = widen(net, layer, Linear.init(reads, 6, key=jr.key(1)))
    assert same(net, wide, tolerance=1e-13)
    assert type(wide) is MLP
    assert tree.size(wide) == tree.size(net) + 6 * (reads + 1) + 6 * (5, 2)[layer]
    bare = Chain(Linear(normal(0, 2, 3)), relu, Linear(normal(1, 1, 2)))
    assert same(bare, widen(bare, 0, Linear(normal(2, 1, 3), normal(3, 1))))


def test_what_cannot_be_widened_is_refused():
    unit = Linear.init(3, 1, key=jr.key(0))
    with pytest.raises(ValueError, match="LayerNorm follows"):
        widen(net_with(normalise=LayerNorm.init), 0, unit)
    with pytest.raises(ValueError, match="softmax mixes the units"):
        widen(net_with(activation=softmax), 0, unit)
    with pytest.raises(ValueError, match="have 3 inputs, the layer has 4"):
        widen(net_with(), 1, unit)


def test_dropout_commutes_with_scaling():
    """With a key the same units are dropped, and the outputs agree."""
    net = Chain(Linear(normal(0, 8, 3)), relu, Dropout(0.5), Linear(normal(1, 1, 8)))
    other = rescale_units(net, 0, np.linspace(0.5, 4, 8))
    x = normal(2, 3)
    assert jnp.allclose(net(x, key=jr.key(3)), other(x, key=jr.key(3)), atol=1e-12)

"""A network as nodes and edges."""

import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from thetax.explain import network_graph
from thetax.layers import Chain, LayerNorm, Linear, Residual, WeightNorm, relu, tanh
from thetax.models import MLP


def test_counts_are_those_of_the_weights():
    net = MLP.init(4, 6, 5, 3, activation=tanh, key=jr.key(0))
    found = network_graph(net)
    assert found.edges == sum(leaf.size for leaf in jax.tree.leaves(net) if leaf.ndim == 2)
    assert found.nodes == 4 + sum(leaf.size for leaf in jax.tree.leaves(net) if leaf.ndim == 1)
    assert found.names == ("input", "tanh", "tanh", "output")


@pytest.mark.slow
def test_layers_without_units_add_no_nodes():
    net = MLP.init(
        3, 4, 2, dropout=0.5, normalise=LayerNorm.init, affine=WeightNorm.init, key=jr.key(0)
    )
    assert network_graph(net).widths == (3, 4, 2)
    assert network_graph(Linear(jnp.ones((2, 3)))).names == ("input", "output")
    two = Chain(Linear(jnp.ones((4, 3))), Linear(jnp.ones((1, 4))), relu)
    assert network_graph(two).names == ("input", "linear", "output")


def test_shapes_are_enough():
    assert (
        network_graph(jax.eval_shape(lambda: MLP.init(784, 256, 128, 10, key=jr.key(0)))).edges
        == 234752
    )


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: MLP.init(3, 3, 3, 1, connect=Residual, key=jr.key(0)), "Residual"),
        (lambda: Chain(relu), "expected a chain of affine maps and activations"),
        (lambda: Residual(Linear(jnp.eye(2))), "Residual"),
    ],
)
def test_models_that_are_not_chains_are_rejected(make, words, unchecked):
    with pytest.raises(ValueError, match=words):
        network_graph(make())

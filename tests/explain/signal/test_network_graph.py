"""A network as nodes and edges."""

import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from thetax.explain import wiring
from thetax.layers import Chain, LayerNorm, Linear, Residual, WeightNorm, relu, tanh
from thetax.models import MLP


def test_counts_are_those_of_the_weights():
    net = MLP.init(4, 6, 5, 3, activation=tanh, key=jr.key(0))
    found = wiring(net)
    assert found.edges == sum(leaf.size for leaf in jax.tree.leaves(net) if leaf.ndim == 2)
    assert found.nodes == 4 + sum(leaf.size for leaf in jax.tree.leaves(net) if leaf.ndim == 1)
    assert found.names == ("input", "tanh", "tanh", "output")


@pytest.mark.slow
def test_what_adds_no_unit_adds_no_node():
    net = MLP.init(
        3, 4, 2, dropout=0.5, normalise=LayerNorm.init, affine=WeightNorm.init, key=jr.key(0)
    )
    assert wiring(net).widths == (3, 4, 2)
    assert wiring(Linear(jnp.ones((2, 3)))).names == ("input", "output")
    two = Chain(Linear(jnp.ones((4, 3))), Linear(jnp.ones((1, 4))), relu)
    assert wiring(two).names == ("input", "linear", "output")


def test_shapes_suffice():
    assert (
        wiring(jax.eval_shape(lambda: MLP.init(784, 256, 128, 10, key=jr.key(0)))).edges == 234752
    )


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: MLP.init(3, 3, 3, 1, connect=Residual, key=jr.key(0)), "Residual"),
        (lambda: Chain(relu), "no map"),
        (lambda: Residual(Linear(jnp.eye(2))), "Residual"),
    ],
)
def test_what_is_no_chain_of_maps_is_refused(make, words, unchecked):
    with pytest.raises(ValueError, match=words):
        wiring(make())

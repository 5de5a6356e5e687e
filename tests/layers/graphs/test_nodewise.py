"""A layer of vectors at every node, and random ones with a key for each."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from graphs_by_loop import random_graph

from thetax.data.graphs import Graph
from thetax.layers import GCN, BatchNorm, Chain, Dropout, LayerNorm, Linear, Nodewise


def test_layers_of_vectors():
    graph = random_graph(0)
    linear = Linear.init(3, 4, key=jr.key(0))
    assert np.allclose(Nodewise(linear)(graph).nodes, [linear(x) for x in graph.nodes], atol=1e-6)
    assert Nodewise(jnp.abs)(graph).nodes.tolist() == jnp.abs(graph.nodes).tolist()
    net = Chain(GCN.init(3, 4, key=jr.key(1)), Nodewise(LayerNorm.init(4)), Nodewise(jax.nn.relu))
    assert net(graph).nodes.shape == (6, 4)


def test_dropout_at_every_node():
    graph = Graph.from_nodes(np.ones((50, 20)))
    for layer in (Dropout(0.5), Chain(Dropout(0.5))):
        nodewise = Nodewise(layer)
        assert nodewise(graph).nodes.tolist() == graph.nodes.tolist()
        drawn = np.asarray(nodewise(graph, key=jr.key(0)).nodes)
        assert set(drawn.ravel()) == {0, 2}
        assert abs(drawn.mean() - 1) < 0.1
        assert len({tuple(row) for row in drawn}) == 50


@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused():
    for wrong in (BatchNorm.init(3), Chain(Linear.init(3, 4, key=jr.key(0)), BatchNorm.init(4))):
        with pytest.raises(ValueError, match="BatchNorm would see each node by itself"):
            Nodewise(wrong)
    with pytest.raises(ValueError, match=r"Nodewise: expected a thetax.data.Graph, got list"):
        Nodewise(jnp.abs)([1.0])


def test_leaves_are_parameters():
    assert jax.tree.leaves(Nodewise(jax.nn.relu)) == []
    assert len(jax.tree.leaves(Nodewise(Linear.init(3, 4, key=jr.key(0))))) == 2

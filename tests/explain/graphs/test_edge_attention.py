"""Attention on edges: sums to 1, uniform weights, the order of layers and the perplexity."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import networkx as nx
import numpy as np
import pytest

from thetax.data import Graph
from thetax.explain import edge_attention
from thetax.layers import GAT, Chain, GATv2, Nodewise
from thetax.models import GNN

CLUB = nx.karate_club_graph()
KARATE = Graph.from_edges(
    list(CLUB.edges), np.random.default_rng(0).normal(size=(34, 4)).astype(np.float32)
)
DEGREES = np.array([len(CLUB[i]) for i in range(34)])


def test_the_weights_of_two_layers():
    first = GAT.init(4, 6, n_heads=2, key=jr.key(0))
    last = GATv2.init(6, 3, self_loops=False, key=jr.key(1))
    result = edge_attention(Chain(first, Nodewise(jnp.tanh), last), KARATE)
    assert result.layers == ("GAT 1", "GATv2 1")
    hidden = KARATE.with_nodes(jnp.tanh(first(KARATE).nodes))
    np.testing.assert_allclose(result.edges[0], first.attention(KARATE).edges, atol=1e-6)
    np.testing.assert_allclose(result.edges[1], last.attention(hidden).edges, atol=1e-6)
    np.testing.assert_array_equal(result.loops[1], 0)
    for q, own in zip(result.edges, result.loops):
        total = own.copy()
        np.add.at(total, result.receivers, q)
        np.testing.assert_allclose(total, 1, atol=1e-5)
    np.testing.assert_array_equal(result.degrees, DEGREES)


def test_uniform_attention_has_the_number_of_neighbours_as_perplexity():
    layer = GAT.init(4, 6, n_heads=2, key=jr.key(0))
    uniform = eqx.tree_at(
        lambda layer: (layer.u_receiver, layer.u_sender), layer, (jnp.zeros((2, 3)),) * 2
    )
    result = edge_attention(uniform, KARATE)
    np.testing.assert_allclose(
        result.perplexity[0], np.repeat(DEGREES[:, None] + 1, 2, axis=1), rtol=1e-5
    )
    drawn = edge_attention(layer, KARATE).perplexity[0]
    assert (drawn <= DEGREES[:, None] + 1 + 1e-4).all()
    q = edge_attention(layer, KARATE)
    own, at_node = q.loops[0][5, 1], q.edges[0][q.receivers == 5, 1]
    weights = np.append(at_node, own)
    np.testing.assert_allclose(drawn[5, 1], np.exp(-np.sum(weights * np.log(weights))), rtol=1e-6)


def test_the_layers_of_a_gnn_and_a_model_without():
    net = GNN.init(4, 6, 2, depth=3, layer="gat", readout="mean", key=jr.key(0))
    assert edge_attention(net, KARATE).layers == ("GAT 1", "GAT 2", "GAT 3")
    with pytest.raises(ValueError, match="found no graph attention layer"):
        edge_attention(GNN.init(4, 6, 2, key=jr.key(0)), KARATE)

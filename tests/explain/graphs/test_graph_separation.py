"""Pairs that a network and the Weisfeiler-Leman test tell apart, or do not."""

import jax.numpy as jnp
import jax.random as jr
import networkx as nx
import numpy as np
import pytest

from thetax.data import Graph, append_features, random_walk_encoding
from thetax.data.graphs import stack_graphs
from thetax.explain import graph_separation
from thetax.models import GNN


def of(graph: nx.Graph) -> Graph:
    return Graph.from_edges(list(graph.edges), n_nodes=len(graph))


HEXAGON = of(nx.cycle_graph(6))
TRIANGLES = of(nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3)))
PATH = of(nx.path_graph(6))
GRAPHS = [HEXAGON, TRIANGLES, PATH]


def net(layer: str, readout: str = "sum", d: int = 1, **options) -> GNN:
    return GNN.init(
        d, 8, 3, layer=layer, readout=readout, activation=jnp.tanh, key=jr.key(0), **options
    )


def test_sums_see_what_the_test_sees_and_means_do_not():
    by_sum = graph_separation(net("gin"), GRAPHS)
    assert by_sum.same == [(0, 1)]
    assert by_sum.missed == by_sum.beyond_wl == []
    by_mean = graph_separation(net("gat"), GRAPHS)
    assert by_mean.missed == [(0, 2), (1, 2)]
    assert by_mean.same == [(0, 1)]


def test_a_stronger_test_finds_more_that_the_network_misses():
    result = graph_separation(net("gin"), GRAPHS, test="2-FWL")
    assert result.missed == [(0, 1)]
    assert result.test == "2-FWL"


def test_encodings_are_seen_by_both_and_weights_by_the_network_alone():
    encoded = [append_features(graph, random_walk_encoding(graph, 3)) for graph in GRAPHS]
    result = graph_separation(net("gin", d=4), encoded)
    assert result.by_model.sum() == result.by_wl.sum() == 6
    light, heavy = (
        Graph.from_edges([(0, 1), (1, 2)], weights=np.full(2, w, np.float32)) for w in (1.0, 2.0)
    )
    assert graph_separation(net("gin"), [light, heavy]).beyond_wl == [(0, 1)]


def test_distances_are_those_of_the_outputs():
    model = net("gin")
    y = np.stack([np.asarray(model(graph)) for graph in GRAPHS])
    expected = np.abs(y[:, None] - y[None]).max(axis=2) / np.abs(y).max()
    result = graph_separation(model, GRAPHS, names=["C6", "2 C3", "P6"])
    np.testing.assert_allclose(result.distance, expected, atol=1e-6)
    assert result.names == ("C6", "2 C3", "P6")
    stacked = graph_separation(model, stack_graphs(GRAPHS))
    np.testing.assert_allclose(stacked.distance, expected, atol=1e-6)
    np.testing.assert_array_equal(stacked.by_wl, result.by_wl)


def test_bad_input():
    with pytest.raises(ValueError, match="at least two graphs, got 1"):
        graph_separation(net("gin"), GRAPHS[:1])
    with pytest.raises(ValueError, match="from stack_graphs; got one"):
        graph_separation(net("gin"), HEXAGON)
    with pytest.raises(ValueError, match="2 names for 3 graphs"):
        graph_separation(net("gin"), GRAPHS, names=["a", "b"])
    with pytest.raises(ValueError, match="Give a model with a readout"):
        graph_separation(GNN.init(1, 4, 2, key=jr.key(0)), GRAPHS)

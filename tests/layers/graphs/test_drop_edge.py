"""DropEdge leaves out a fixed number of edges, both directions together."""

import jax
import jax.random as jr
import numpy as np
import pytest
from graphs_by_loop import random_graph

from thetax.layers import DropEdge


@pytest.mark.parametrize("p", [0.2, 0.5, 0.9])
def test_a_subgraph_with_symmetric_edges(p):
    graph = random_graph(0, n_nodes=12, n_pairs=20, undirected=True)
    before = {
        (int(j), int(i), *map(float, e))
        for j, i, e in zip(graph.senders, graph.receivers, graph.edges)
    }
    for seed in range(5):
        smaller = DropEdge(p)(graph, key=jr.key(seed))
        assert smaller.n_edges == graph.n_edges - int(p * graph.n_edges)
        after = list(zip(smaller.senders, smaller.receivers, smaller.edges))
        assert {(int(j), int(i), *map(float, e)) for j, i, e in after} <= before
        assert np.all(np.diff(np.asarray(smaller.receivers)) >= 0)
        A = np.asarray(smaller.adjacency())
        assert np.abs(A - A.T).sum() <= 4  # one pair, doubled perhaps, did not fit


def test_every_edge_is_dropped_equally_often():
    graph = random_graph(0, n_nodes=12, n_pairs=20)
    n = 2000
    drop = DropEdge(0.4)

    def kept(key):
        marked = graph.with_nodes(graph.nodes)
        smaller = drop(jax.tree.map(lambda a: a, marked), key=key)
        return smaller.edges[:, 0]

    values = np.asarray(jax.vmap(kept)(jr.split(jr.key(0), n)))
    unique, counts = np.unique(values, return_counts=True)
    pairs = set(zip(graph.senders.tolist(), graph.receivers.tolist()))
    assert len(unique) == graph.n_edges
    assert len(pairs) < graph.n_edges  # some are doubled
    assert np.abs(counts / n - values.shape[1] / graph.n_edges).max() < 0.06


def test_without_a_key_it_is_the_identity():
    graph = random_graph(0)
    assert DropEdge(0.5)(graph) is graph
    assert DropEdge(0.0)(graph, key=jr.key(0)) is graph


@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused():
    with pytest.raises(ValueError, match=r"in \[0, 1\); got 1.5"):
        DropEdge(1.5)

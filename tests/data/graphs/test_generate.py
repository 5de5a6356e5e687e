"""Generated graphs: functions of their key, with the structure that their names say."""

from collections import Counter

import jax.random as jr
import networkx as nx
import numpy as np
import pytest

from thetax.data import (
    complete_graph,
    cycle_graph,
    erdos_renyi,
    grid_graph,
    path_graph,
    random_regular_graph,
    random_tree,
    star_graph,
    stochastic_block_model,
    to_networkx,
)
from thetax.data.graphs import generate

STANDARD = {
    "path": (path_graph, nx.path_graph),
    "cycle": (cycle_graph, nx.cycle_graph),
    "complete": (complete_graph, nx.complete_graph),
    "star": (star_graph, lambda n: nx.star_graph(n - 1)),
}


@pytest.mark.parametrize("name", STANDARD)
@pytest.mark.parametrize("n", [3, 4, 7])
def test_standard_graphs_are_those_of_networkx(name, n):
    ours, theirs = STANDARD[name]
    assert set(to_networkx(ours(n), undirected=True).edges) == {
        tuple(sorted(edge)) for edge in theirs(n).edges
    }


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (3, 4)])
def test_grid(shape):
    ours = to_networkx(grid_graph(*shape), undirected=True)
    theirs = nx.convert_node_labels_to_integers(nx.grid_2d_graph(*shape))
    assert set(ours.edges) == set(theirs.edges)


def test_one_node_has_no_edges():
    assert path_graph(1).n_edges == star_graph(1).n_edges == complete_graph(1).n_edges == 0
    assert random_tree(1, key=jr.key(0)).n_edges == 0


@pytest.mark.parametrize("n", [2, 3, 5, 40])
@pytest.mark.parametrize("seed", range(3))
def test_a_tree_is_a_tree(n, seed):
    tree = to_networkx(random_tree(n, key=jr.key(seed)), undirected=True)
    assert nx.is_tree(tree)
    assert tree.number_of_nodes() == n


def test_all_sixteen_trees_of_four_nodes_are_equally_probable():
    counts = Counter(
        tuple(sorted(to_networkx(random_tree(4, key=key), undirected=True).edges))
        for key in jr.split(jr.key(0), 1600)
    )
    assert len(counts) == 16
    # chi-squared with 15 degrees of freedom is above 37.7 with probability 0.001
    assert sum((count - 100) ** 2 / 100 for count in counts.values()) < 37.7


def test_a_tree_of_a_pruefer_code_is_that_of_networkx(monkeypatch):
    code = np.array([3, 3, 0, 5, 3])

    class Fixed:
        def integers(self, n, size):
            return code

    monkeypatch.setattr(generate, "_generator", lambda key: Fixed())
    ours = to_networkx(random_tree(7, key=jr.key(0)), undirected=True)
    theirs = nx.from_prufer_sequence(code.tolist())
    assert set(ours.edges) == {tuple(sorted(edge)) for edge in theirs.edges}


@pytest.mark.parametrize("seed", range(3))
def test_a_regular_graph_is_regular_and_simple(seed):
    graph = to_networkx(random_regular_graph(12, 3, key=jr.key(seed)), undirected=True)
    assert not graph.is_multigraph()
    assert set(dict(graph.degree).values()) == {3}


@pytest.mark.parametrize("p", [0.0, 0.05, 0.5, 1.0])
def test_the_number_of_random_edges(p):
    n = 200
    total = n * (n - 1) / 2
    counts = [erdos_renyi(n, p, key=jr.key(seed)).n_edges / 2 for seed in range(5)]
    error = 4 * np.sqrt(total * p * (1 - p) / 5)
    assert abs(np.mean(counts) - total * p) <= error


@pytest.mark.parametrize("n", [2, 3, 5, 9])
def test_every_pair_within_a_block_has_its_number(n):
    """The number of a pair in a triangle and back, for all pairs."""
    pairs = generate._random_block(0, n, 0, n, 1.0, np.random.default_rng(0))
    assert sorted(map(tuple, pairs.tolist())) == [(i, j) for i in range(n) for j in range(i + 1, n)]


def test_pairs_are_equally_probable():
    graphs = [erdos_renyi(5, 0.3, key=key) for key in jr.split(jr.key(0), 400)]
    frequency = np.mean([graph.adjacency() for graph in graphs], axis=0)
    off = frequency[~np.eye(5, dtype=bool)]
    assert np.abs(off - 0.3).max() < 4.5 * np.sqrt(0.3 * 0.7 / 400)
    assert not np.diag(frequency).any()


def test_a_block_model_has_its_densities():
    sizes = (60, 40, 50)
    graph, labels = stochastic_block_model(sizes, p_in=0.3, p_out=0.05, key=jr.key(0))
    assert np.bincount(labels).tolist() == list(sizes)
    A = np.asarray(graph.adjacency())
    np.testing.assert_array_equal(A, A.T)
    assert A.max() == 1
    for a in range(3):
        for b in range(3):
            block = A[np.ix_(labels == a, labels == b)]
            p = 0.3 if a == b else 0.05
            pairs = sizes[a] * (sizes[b] - 1) / 2 if a == b else sizes[a] * sizes[b]
            mean = block.sum() / (sizes[a] * (sizes[b] - (a == b)))
            assert abs(mean - p) < 4.5 * np.sqrt(p * (1 - p) / pairs)


@pytest.mark.parametrize(
    "make",
    [
        lambda key: random_tree(20, key=key),
        lambda key: random_regular_graph(10, 3, key=key),
        lambda key: erdos_renyi(20, 0.3, key=key),
        lambda key: stochastic_block_model((10, 10), p_in=0.5, p_out=0.1, key=key)[0],
    ],
)
def test_a_function_of_the_key(make):
    same = [make(jr.key(0)).senders.tolist() for _ in range(2)]
    assert same[0] == same[1]
    assert make(jr.key(1)).senders.tolist() != same[0]


def test_a_large_sparse_graph_takes_no_matrix():
    """A matrix of 100,000 nodes would have 10 billion entries."""
    graph = erdos_renyi(100_000, 5e-5, key=jr.key(0))
    assert abs(graph.n_edges / 2 - 250_000) < 5 * np.sqrt(250_000)


BAD = [
    (lambda: path_graph(0), "n must be an integer >= 1"),
    (lambda: cycle_graph(2), "n must be at least 3; got 2. Use path_graph"),
    (lambda: erdos_renyi(5, 1.5, key=jr.key(0)), "p is a probability, from 0 to 1; got 1.5"),
    (lambda: random_regular_graph(5, 3, key=jr.key(0)), "n \\* degree even"),
    (lambda: random_regular_graph(3, 4, key=jr.key(0)), "degree must be less than n"),
    (
        lambda: stochastic_block_model((), p_in=0.5, p_out=0.5, key=jr.key(0)),
        "sizes: expected at least one",
    ),
    (
        lambda: stochastic_block_model((2, 2), p_in=-0.5, p_out=0.5, key=jr.key(0)),
        "p_in is a probability",
    ),
]


@pytest.mark.parametrize("bad", range(len(BAD)))
def test_bad_input(bad):
    make, message = BAD[bad]
    with pytest.raises(ValueError, match=message):
        make()

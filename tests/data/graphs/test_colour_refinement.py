"""1-WL and 2-FWL against tuples, networkx, and pairs of graphs that they cannot tell apart."""

from itertools import combinations

import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

from thetax.data import (
    Graph,
    batch_graphs,
    colour_refinement,
    distinguishable,
    pad_graph,
    pair_refinement,
    permute_nodes,
)

HEXAGON = nx.cycle_graph(6)
TRIANGLES = nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3))
ROOK = nx.convert_node_labels_to_integers(nx.line_graph(nx.complete_bipartite_graph(4, 4)))
SHRIKHANDE = nx.convert_node_labels_to_integers(
    nx.Graph(
        ((i, j), ((i + a) % 4, (j + b) % 4))
        for i in range(4)
        for j in range(4)
        for a, b in ((0, 1), (1, 0), (1, 1))
    )
)


def of(graph: nx.Graph, **features) -> Graph:
    if not graph.number_of_edges():
        return Graph.from_nodes(np.ones((len(graph), 1)))
    return Graph.from_edges(list(graph.edges), n_nodes=len(graph), **features)


def partition(colours) -> set[frozenset[int]]:
    """The classes of equal colours, so that names do not matter."""
    return {frozenset(np.flatnonzero(colours == c).tolist()) for c in np.unique(colours)}


def by_dictionaries(graph: nx.Graph, labels: dict, rounds: int) -> dict:
    """Colours as nested tuples, without names."""
    colours = dict(labels)
    for _ in range(rounds):
        colours = {
            v: (colours[v], tuple(sorted((colours[u] for u in graph[v]), key=repr))) for v in graph
        }
    return colours


def by_loops_over_pairs(graph: nx.Graph) -> np.ndarray:
    """2-FWL with tuples, to stability."""
    n = len(graph)
    colours = {(i, j): (i == j, graph.has_edge(i, j)) for i in range(n) for j in range(n)}
    for _ in range(n * n):
        named = {c: k for k, c in enumerate(sorted(set(colours.values()), key=repr))}
        names = {pair: named[c] for pair, c in colours.items()}
        colours = {
            (i, j): (names[i, j], tuple(sorted((names[i, k], names[k, j]) for k in range(n))))
            for i, j in colours
        }
        if len(set(colours.values())) == len(named):
            break
    return np.array([names[i, j] for i in range(n) for j in range(n)])


@pytest.mark.parametrize("seed", range(4))
def test_every_round_equals_dictionaries(seed):
    graph = nx.gnp_random_graph(12, 0.2, seed=seed)
    labels = dict(enumerate(np.random.default_rng(seed).integers(0, 2, 12).tolist()))
    ours = of(graph).with_nodes(jnp.array([[float(labels[v])] for v in range(12)]))
    refinement = colour_refinement(ours, node_features=True)
    for t in range(refinement.rounds + 2):
        expected = by_dictionaries(graph, labels, t)
        names = {c: k for k, c in enumerate(set(expected.values()))}
        row = refinement.colours[min(t, refinement.rounds)]
        assert partition(row) == partition(np.array([names[expected[v]] for v in range(12)]))
    assert (np.diff(refinement.n_colours) > 0).all()


@pytest.mark.parametrize("seed", range(3))
def test_pairs_equal_loops(seed):
    graph = nx.gnp_random_graph(7, 0.4, seed=seed)
    assert partition(pair_refinement(of(graph)).colours[-1]) == partition(
        by_loops_over_pairs(graph)
    )


def test_graphs_are_comparable_and_names_do_not_depend_on_node_numbers():
    rng = np.random.default_rng(0)
    graphs = [of(nx.gnp_random_graph(9, 0.3, seed=s)) for s in range(10)]
    relabelled = [permute_nodes(graph, rng.permutation(9)) for graph in graphs]
    for refine in (colour_refinement, pair_refinement):
        histograms = refine([*graphs, *relabelled]).histogram()
        np.testing.assert_array_equal(histograms[:10], histograms[10:])
        assert len(np.unique(histograms, axis=0)) > 5


def test_all_trees_are_told_apart():
    trees = [tree for n in range(2, 9) for tree in nx.nonisomorphic_trees(n)]
    told = distinguishable([of(tree) for tree in trees])
    np.testing.assert_array_equal(told, ~np.eye(len(trees), dtype=bool))


def test_the_same_decisions_as_networkx():
    """On all pairs of graphs with five nodes and of random graphs with the same degrees."""
    graphs = [graph for graph in nx.graph_atlas_g() if len(graph) == 5]
    graphs += [nx.random_regular_graph(3, 8, seed=s) for s in range(3)]
    for graph in graphs:
        nx.set_node_attributes(graph, "same", "colour")
    hashes = [
        nx.weisfeiler_lehman_graph_hash(graph, iterations=8, node_attr="colour") for graph in graphs
    ]
    expected = np.array([[a != b for b in hashes] for a in hashes])
    np.testing.assert_array_equal(distinguishable([of(graph) for graph in graphs]), expected)


def test_pairs_that_the_tests_cannot_tell_apart():
    pairs = {"hexagon": (HEXAGON, TRIANGLES), "rook": (ROOK, SHRIKHANDE)}
    told = {
        (name, test): bool(distinguishable([of(a), of(b)], test)[0, 1])
        for name, (a, b) in pairs.items()
        for test in ("1-WL", "2-FWL")
    }
    assert not any(nx.is_isomorphic(a, b) for a, b in pairs.values())
    assert [pair for pair, apart in told.items() if apart] == [("hexagon", "2-FWL")]


def test_the_stronger_test_tells_apart_what_the_weaker_does():
    graphs = [of(graph) for graph in nx.graph_atlas_g() if len(graph) in (5, 6)]
    weak, strong = distinguishable(graphs), distinguishable(graphs, "2-FWL")
    assert not (weak & ~strong).any()
    np.testing.assert_array_equal(strong, ~np.eye(len(graphs), dtype=bool))
    assert (~weak & strong).sum() > 0


def test_edge_features_directions_and_doubled_edges_count():
    bonds = [
        Graph.from_edges([(0, 1), (1, 2), (2, 0)], edges=np.array(e))
        for e in ([1, 1, 2], [1, 2, 2])
    ]
    assert not distinguishable(bonds)[0, 1]
    assert distinguishable(bonds, edge_features=True)[0, 1]
    assert distinguishable(bonds, "2-FWL", edge_features=True)[0, 1]
    out = Graph.from_edges([(0, 1), (0, 2)], undirected=False)
    into = Graph.from_edges([(1, 0), (2, 0)], undirected=False)
    assert distinguishable([out, into])[0, 1]
    assert distinguishable([out, into], "2-FWL")[0, 1]
    once, twice = Graph.from_edges([(0, 1)]), Graph.from_edges([(0, 1), (0, 1)])
    assert distinguishable([once, twice])[0, 1]
    assert distinguishable([once, twice], "2-FWL")[0, 1]


def test_a_pair_knows_the_edges_both_ways_from_the_start():
    arrow = Graph.from_edges([(0, 1)], n_nodes=3, undirected=False)
    colours = pair_refinement(arrow, rounds=0).colours[0].reshape(3, 3)
    assert len({colours[0, 0], colours[1, 0], colours[0, 1], colours[0, 2]}) == 4
    assert colours[0, 2] == colours[2, 1]


def test_node_features_start_the_colours():
    plain, marked = (
        of(HEXAGON).with_nodes(jnp.array(x)[:, None]) for x in ([0.0] * 6, [1.0] + [0.0] * 5)
    )
    assert not distinguishable([plain, marked])[0, 1]
    for test in ("1-WL", "2-FWL"):
        assert distinguishable([plain, marked], test, node_features=True)[0, 1]


def test_batches_and_padding():
    graphs = [of(nx.path_graph(4)), of(nx.star_graph(3)), of(nx.empty_graph(2))]
    expected = colour_refinement(graphs)
    batch = batch_graphs(graphs[:2], n_nodes=12, n_edges=20)
    padded = pad_graph(graphs[2], n_nodes=4, n_edges=3)
    for refine in (colour_refinement, pair_refinement):
        expected, joined = refine(graphs), refine([batch, padded])
        np.testing.assert_array_equal(joined.colours, expected.colours)
        np.testing.assert_array_equal(joined.graph_ids, expected.graph_ids)
    assert expected.n_graphs == 3
    assert colour_refinement(graphs, rounds=5).rounds == 5


def test_no_collision_among_many_small_graphs():
    graphs = [graph for graph in nx.graph_atlas_g() if len(graph) == 4]
    same = distinguishable([of(graph) for graph in graphs], "2-FWL")
    for i, j in combinations(range(len(graphs)), 2):
        assert same[i, j] == (not nx.is_isomorphic(graphs[i], graphs[j]))


@pytest.mark.usefixtures("unchecked")
def test_bad_input():
    with pytest.raises(ValueError, match="at least one graph"):
        colour_refinement([])
    with pytest.raises(ValueError, match="test is one of 1-WL, 2-FWL; got"):
        distinguishable([of(HEXAGON)], "1WL")
    with pytest.raises(ValueError, match="has no `edges`"):
        colour_refinement(of(HEXAGON), edge_features=True)
    with pytest.raises(ValueError, match="same number of features"):
        colour_refinement(
            [of(HEXAGON), of(HEXAGON).with_nodes(np.ones((6, 2)))], node_features=True
        )
    with pytest.raises(ValueError, match="triples"):
        pair_refinement(Graph.from_nodes(np.ones((600, 1))))

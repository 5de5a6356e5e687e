"""The subtree kernel against dictionaries, in a support vector machine and a Gaussian process."""

from collections import Counter

import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from sklearn.svm import SVC

from thetax.bayes import GaussianProcess, linear_kernel
from thetax.data import Graph
from thetax.models import wl_features, wl_kernel


def of(graph: nx.Graph) -> Graph:
    labels = [[float(graph.nodes[v].get("label", 0))] for v in graph]
    return Graph.from_edges(list(graph.edges), np.array(labels, np.float32))


def random_graphs(n: int, seed: int = 0) -> list[nx.Graph]:
    rng = np.random.default_rng(seed)
    graphs = [nx.gnm_random_graph(7, 9, seed=seed + s) for s in range(n)]
    for graph in graphs:
        nx.set_node_attributes(graph, dict(enumerate(rng.integers(0, 2, 7).tolist())), "label")
    return graphs


def subtrees(graph: nx.Graph, rounds: int) -> Counter:
    """How often each colour occurs in each round, with nested tuples as colours."""
    colours = {v: graph.nodes[v]["label"] for v in graph}
    counts = Counter((0, c) for c in colours.values())
    for t in range(rounds):
        colours = {
            v: (colours[v], tuple(sorted((colours[u] for u in graph[v]), key=repr))) for v in graph
        }
        counts.update((t + 1, c) for c in colours.values())
    return counts


@pytest.mark.parametrize("rounds", [1, 3])
def test_the_gram_matrix_counts_common_colours(rounds):
    graphs = random_graphs(8)
    counts = [subtrees(graph, rounds) for graph in graphs]
    expected = [[sum(a[c] * b[c] for c in a) for b in counts] for a in counts]
    ours = [of(graph) for graph in graphs]
    K = wl_kernel(ours, rounds=rounds, node_features=True)
    np.testing.assert_array_equal(K, expected)
    np.testing.assert_array_equal(
        wl_kernel(ours[:3], ours[3:], rounds=rounds, node_features=True), K[:3, 3:]
    )
    features = wl_features(ours, rounds=rounds, node_features=True)
    np.testing.assert_array_equal((features @ features.T).toarray(), K)
    assert features.sum(axis=1).tolist() == [7.0 * (rounds + 1)] * 8
    unit = wl_kernel(ours, rounds=rounds, node_features=True, normalise=True)
    d = np.sqrt(np.diag(K))
    np.testing.assert_allclose(unit, K / np.outer(d, d), atol=1e-12)


def test_graphs_that_the_test_cannot_tell_apart_have_the_same_features():
    hexagon = of(nx.cycle_graph(6))
    triangles = of(nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3)))
    path = of(nx.path_graph(6))
    features = wl_features([hexagon, triangles, path]).toarray()
    np.testing.assert_array_equal(features[0], features[1])
    assert (features[0] != features[2]).any()


def cycles_and_trees() -> tuple[list[Graph], np.ndarray]:
    """Graphs with one cycle, and trees, of different sizes."""
    graphs, has_cycle = [], []
    for seed in range(30):
        tree = nx.random_labeled_tree(6 + seed % 4, seed=seed)
        graphs.append(tree)
        has_cycle.append(0)
        ring = nx.cycle_graph(4 + seed % 3)
        ring.add_edges_from([(0, len(ring)), (seed % 4, len(ring) + 1)])
        graphs.append(ring)
        has_cycle.append(1)
    return [of(graph) for graph in graphs], np.array(has_cycle)


def test_in_a_support_vector_machine():
    graphs, labels = cycles_and_trees()
    K = wl_kernel(graphs, rounds=3, normalise=True)
    machine = SVC(kernel="precomputed", C=10).fit(K[:40, :40], labels[:40])
    assert machine.score(K[40:, :40], labels[40:]) >= 0.9


def test_in_a_gaussian_process():
    """On the features with the linear kernel: its mean is that of kernel ridge regression."""
    graphs, labels = cycles_and_trees()
    features = jnp.asarray(wl_features(graphs, rounds=3, normalise=True).toarray())
    y = 2.0 * labels - 1
    K = wl_kernel(graphs, rounds=3, normalise=True)
    posterior = GaussianProcess.init(linear_kernel(), noise=0.1).condition(
        features[:40], jnp.asarray(y[:40])
    )
    mean = np.asarray(posterior.mean(features[40:]))
    expected = K[40:, :40] @ np.linalg.solve(K[:40, :40] + 0.1 * np.eye(40), y[:40])
    np.testing.assert_allclose(mean, expected, atol=1e-4)
    assert (np.sign(mean) == y[40:]).mean() >= 0.9


def test_bad_input():
    with pytest.raises(ValueError, match="rounds must be an integer >= 1"):
        wl_features([of(nx.path_graph(3))], rounds=0)
    with pytest.raises(ValueError, match="at least one graph"):
        wl_kernel([])

"""Sampled neighbourhoods and clusters: exact where the fan-out takes all, static in shape."""

import tracemalloc

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.data import (
    Graph,
    cluster_batches,
    cluster_nodes,
    erdos_renyi,
    neighbour_table,
    path_graph,
    sample_neighbours,
    star_graph,
    stochastic_block_model,
)
from thetax.layers import Chain, GraphSAGE, Nodewise


def whole_graph(n: int = 40, seed: int = 0) -> Graph:
    graph = erdos_renyi(n, 0.12, key=jr.key(seed))
    rng = np.random.default_rng(seed)
    pairs = np.stack([graph.senders, graph.receivers], axis=1)
    return Graph.from_edges(
        pairs,
        rng.normal(size=(n, 3)).astype(np.float32),
        undirected=False,
        edges=rng.normal(size=(len(pairs), 2)).astype(np.float32),
        weights=rng.uniform(1, 2, size=len(pairs)).astype(np.float32),
    )


def edges_of(graph: Graph, numbers: np.ndarray) -> dict:
    """The features and weight of each edge that is not padding, by the numbers of its ends."""
    real = np.asarray(graph.edge_mask)
    return {
        (int(numbers[s]), int(numbers[r])): (tuple(np.asarray(e).tolist()), float(w))
        for s, r, e, w, keep in zip(
            graph.senders, graph.receivers, graph.edges, graph.weights, real
        )
        if keep
    }


def test_an_unlimited_fan_out_gives_the_output_of_the_whole_graph():
    graph = whole_graph()
    k1, k2 = jr.split(jr.key(0))
    net = Chain(GraphSAGE.init(3, 4, key=k1), Nodewise(jax.nn.relu), GraphSAGE.init(4, 2, key=k2))
    seeds = np.array([7, 3, 31])
    part = sample_neighbours(graph, seeds, fan_out=(40, 40), key=jr.key(1))
    np.testing.assert_allclose(
        net(part.graph).nodes[:3], net(graph).nodes[seeds], rtol=1e-5, atol=1e-6
    )


def test_edges_keep_their_features_and_ends():
    graph = whole_graph()
    whole = edges_of(graph, np.arange(40))
    part = sample_neighbours(graph, [0, 5, 9], fan_out=(3, 2), key=jr.key(0))
    inside = edges_of(part.graph, part.nodes)
    assert inside
    assert inside.items() <= whole.items()
    real = part.nodes >= 0
    np.testing.assert_array_equal(part.graph.node_mask, real)
    np.testing.assert_array_equal(part.graph.nodes[: real.sum()], graph.nodes[part.nodes[real]])
    assert len(np.unique(part.nodes[real])) == real.sum()


def test_each_node_of_a_layer_has_at_most_its_fan_out():
    graph = star_graph(100)
    part = sample_neighbours(graph, [0], fan_out=(5,), key=jr.key(0))
    assert int(part.graph.edge_mask.sum()) == 5
    degrees = np.bincount(np.asarray(part.graph.receivers)[np.asarray(part.graph.edge_mask)])
    assert degrees[0] == 5


def test_neighbours_are_drawn_without_replacement_and_equally_often():
    table = neighbour_table(star_graph(11))
    counts = np.zeros(11)
    for key in jr.split(jr.key(0), 500):
        part = sample_neighbours(table, [0], fan_out=(3,), key=key)
        drawn = part.nodes[1:][part.nodes[1:] >= 0]
        assert len(set(drawn.tolist())) == 3
        counts[drawn] += 1
    assert np.abs(counts[1:] / 500 - 0.3).max() < 4.5 * np.sqrt(0.3 * 0.7 / 500)


def test_shapes_depend_on_the_fan_out_only():
    table = neighbour_table(whole_graph())
    traces = 0

    @jax.jit
    def embed(graph):
        nonlocal traces
        traces += 1
        return GraphSAGE.init(3, 2, key=jr.key(0))(graph).nodes[:4]

    for seed in range(4):
        seeds = np.random.default_rng(seed).choice(40, 4, replace=False)
        part = sample_neighbours(table, seeds, fan_out=(3, 2), key=jr.key(seed))
        assert part.graph.nodes.shape == (4 * (1 + 3 + 6) + 1, 3)
        assert part.graph.senders.shape == (4 * (3 + 6),)
        assert jnp.isfinite(embed(part.graph)).all()
    assert traces == 1


def test_a_sample_is_a_function_of_its_key():
    graph = whole_graph()
    draw = lambda seed: sample_neighbours(graph, [1, 2], fan_out=(2, 2), key=jr.key(seed)).nodes
    np.testing.assert_array_equal(draw(0), draw(0))
    assert not np.array_equal(draw(0), draw(1))


def test_isolated_nodes_are_seeds_too():
    graph = Graph.from_edges([(0, 1)], np.ones((3, 1)))
    part = sample_neighbours(graph, [2], fan_out=(2,), key=jr.key(0))
    assert part.nodes.tolist() == [2, -1, -1, -1]
    assert not part.graph.edge_mask.any()


@pytest.mark.parametrize("n_clusters", [1, 4, 7])
def test_clusters_are_balanced(n_clusters):
    graph, _ = stochastic_block_model((30,) * 4, p_in=0.3, p_out=0.02, key=jr.key(0))
    sizes = np.bincount(cluster_nodes(graph, n_clusters, key=jr.key(1)), minlength=n_clusters)
    assert sizes.sum() == 120
    assert sizes.max() <= np.ceil(1.1 * 120 / n_clusters)


def test_clusters_cut_fewer_edges_than_random_ones():
    graph, _ = stochastic_block_model((50,) * 4, p_in=0.2, p_out=0.01, key=jr.key(0))
    cut = lambda c: np.mean(c[np.asarray(graph.senders)] != c[np.asarray(graph.receivers)])
    clusters = cluster_nodes(graph, 4, key=jr.key(1))
    shuffled = np.random.default_rng(0).permutation(clusters)
    assert cut(clusters) < 0.6 * cut(shuffled)


def test_batches_of_clusters_have_all_nodes_and_all_edges_inside():
    graph = whole_graph()
    whole = edges_of(graph, np.arange(40))
    clusters = cluster_nodes(graph, 6, key=jr.key(0))
    seen, shapes = [], set()
    for batch in cluster_batches(graph, clusters, clusters_per_batch=2, key=jr.key(1)):
        nodes = batch.nodes[batch.nodes >= 0]
        seen += nodes.tolist()
        expected = {ends for ends in whole if set(ends) <= set(nodes.tolist())}
        inside = edges_of(batch.graph, batch.nodes)
        assert set(inside) == expected
        assert inside.items() <= whole.items()
        shapes.add((batch.graph.n_nodes, batch.graph.n_edges))
    assert sorted(seen) == list(range(40))
    assert len(shapes) == 1


def test_memory_is_that_of_nodes_and_edges():
    graph = erdos_renyi(50_000, 2e-4, key=jr.key(0))  # 500,000 directed edges
    tracemalloc.start()
    table = neighbour_table(graph)
    sample_neighbours(table, np.arange(512), fan_out=(10, 5), key=jr.key(0))
    _, sampled = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    cluster_nodes(table, 50, key=jr.key(0))
    _, clustered = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    size = graph.n_nodes + graph.n_edges
    assert sampled < 32 * size
    assert clustered < 128 * size  # the square of the number of nodes is 4,500 times as large


BAD = [
    (lambda g: sample_neighbours(g, [40], fan_out=(2,), key=jr.key(0)), "different nodes from 0"),
    (lambda g: sample_neighbours(g, [1, 1], fan_out=(2,), key=jr.key(0)), "1 of 2 different"),
    (lambda g: sample_neighbours(g, [0.5], fan_out=(2,), key=jr.key(0)), "got float64"),
    (lambda g: sample_neighbours(g, [0], fan_out=(), key=jr.key(0)), "a number for each layer"),
    (lambda g: sample_neighbours(g, [0], fan_out=(0,), key=jr.key(0)), "fan_out\\[0\\] must be"),
    (lambda g: cluster_nodes(g, 41, key=jr.key(0)), "n_clusters=41 clusters of 40 nodes"),
    (
        lambda g: next(cluster_batches(g, np.zeros(3, int), key=jr.key(0))),
        "for each of the 40 nodes",
    ),
    (
        lambda g: neighbour_table(jax.tree.map(lambda a: a[None], path_graph(3))),
        "one graph without padding",
    ),
]


@pytest.mark.parametrize("bad", range(len(BAD)))
def test_bad_input(bad):
    make, message = BAD[bad]
    with pytest.raises(ValueError, match=message):
        make(whole_graph())

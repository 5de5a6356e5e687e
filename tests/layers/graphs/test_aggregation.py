"""Aggregations: dense and segment paths, weights as multiplicities, ties, padding, dtypes."""

import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs_by_loop import AGGREGATE, collect, random_graph

from thetax.data.graphs import Graph, pad_graph, stack_graphs
from thetax.layers.graphs import (
    AGGREGATIONS,
    aggregate,
    edge_softmax,
    edge_softmax_with_loops,
    gather_receivers,
    gather_senders,
    in_degrees,
    propagate,
)

each = pytest.mark.parametrize("how", AGGREGATIONS)


def messages(graph, seed=1):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(graph.n_edges, 3)))


@pytest.mark.usefixtures("x64", "strict")
@each
def test_aggregation_is_a_loop(how):
    graph = random_graph(0)
    m = messages(graph)
    expected = collect(graph, lambda i, j, k: np.asarray(m[k]), how, 3)
    assert np.allclose(aggregate(graph, m, how), expected, atol=1e-14)
    assert np.abs(expected[0]).max() > 0
    assert np.all(np.asarray(aggregate(graph, m, how))[-1] == 0)


@pytest.mark.usefixtures("x64", "strict")
@each
def test_weight_two_is_an_edge_listed_twice(how):
    """And weight 0 is an edge that is not there, for values and gradients of messages."""
    weights = np.array([2.0, 1.0, 0.0, 3.0])
    pairs = np.array([(1, 0), (2, 0), (3, 0), (0, 1)])
    weighted = Graph.from_edges(pairs, np.ones((5, 1)), undirected=False, weights=weights)
    listed = np.repeat(np.arange(4), weights.astype(int))
    doubled = Graph.from_edges(pairs[listed], np.ones((5, 1)), undirected=False)
    values = np.random.default_rng(2).normal(size=(5, 3))
    f = lambda graph, x: aggregate(graph, gather_senders(graph, x), how)
    x = jnp.asarray(values)
    assert np.allclose(f(weighted, x), f(doubled, x), atol=1e-14)
    slope = lambda graph: jax.grad(lambda x: jnp.sin(f(graph, x)).sum())(x)
    assert np.allclose(slope(weighted), slope(doubled), atol=1e-14)


@pytest.mark.usefixtures("x64", "strict")
def test_weighted_softmax_of_scores_is_that_of_listed_edges():
    graph = random_graph(3, weighted=True)
    scores = messages(graph)
    q = np.asarray(edge_softmax(graph, scores))
    e = np.exp(np.asarray(scores)) * np.asarray(graph.weights)[:, None]
    receivers = np.asarray(graph.receivers)
    totals = np.stack([e[receivers == i].sum(axis=0) for i in receivers])
    assert np.allclose(q, e / totals, atol=1e-14)
    loops = jnp.asarray(np.random.default_rng(4).normal(size=(graph.n_nodes, 3)))
    q, own = edge_softmax_with_loops(graph, scores, loops)
    with_loop = totals + np.exp(np.asarray(loops))[receivers]
    assert np.allclose(q, e / with_loop, atol=1e-14)
    sums = np.asarray(aggregate(graph, q, "sum", weights=jnp.ones(graph.n_edges))) + np.asarray(own)
    assert np.allclose(sums, 1, atol=1e-14)


@pytest.mark.usefixtures("strict")
def test_softmax_of_large_scores():
    graph = Graph.from_edges([(1, 0), (2, 0)], np.ones((3, 1)), undirected=False)
    assert np.allclose(edge_softmax(graph, jnp.array([1e4, 1e4 - 1])), [0.731059, 0.268941])
    assert edge_softmax(graph, jnp.array([-jnp.inf, -jnp.inf])).tolist() == [0, 0]
    q, own = edge_softmax_with_loops(graph, jnp.array([-1e4, -1e4]), jnp.array([1e4, 0.0, 0.0]))
    assert (q.tolist(), own.tolist()) == ([0, 0], [1, 1, 1])


@pytest.mark.usefixtures("x64", "strict")
@pytest.mark.parametrize("weighted", [False, True])
def test_dense_and_segment_paths_agree(weighted):
    """Values and gradients, of one graph and of stacked graphs with padding."""
    graphs = [random_graph(seed, n_nodes=4 + seed, weighted=weighted) for seed in range(3)]
    xs = stack_graphs(graphs, n_nodes=8, n_edges=12)
    f = lambda graph, dense: propagate(graph, graph.nodes, dense=dense)
    both = [jax.vmap(partial(f, dense=dense))(xs) for dense in (True, False)]
    assert np.allclose(*both, atol=1e-14)
    for graph, row in zip(graphs, both[0]):
        A = np.asarray(graph.adjacency())
        assert np.allclose(row[: graph.n_nodes], A @ np.asarray(graph.nodes), atol=1e-14)
        assert np.all(np.asarray(row[graph.n_nodes :]) == 0)
    slopes = [
        jax.grad(lambda x, dense: jnp.sin(propagate(graphs[0], x, dense=dense)).sum())(
            graphs[0].nodes, dense
        )
        for dense in (True, False)
    ]
    assert np.allclose(*slopes, atol=1e-14)


@pytest.mark.usefixtures("strict")
@each
def test_padding_changes_no_bit_and_receives_nothing(how):
    graph = random_graph(1)
    graph = graph.with_nodes(graph.nodes.astype("float32"))
    padded = pad_graph(graph, n_nodes=9, n_edges=20)
    m = messages(graph).astype("float32")
    more = jnp.concatenate([m, 1e30 * jnp.ones((20 - len(m), 3))])
    small = np.asarray(aggregate(graph, m, how))
    large = np.asarray(aggregate(padded, more, how))
    assert small.tobytes() == large[: graph.n_nodes].tobytes()
    assert np.all(large[graph.n_nodes :] == 0)
    assert np.asarray(in_degrees(padded))[graph.n_nodes :].tolist() == [0, 0, 0]


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("dense", [True, False])
def test_sums_at_padding_do_not_grow_from_layer_to_layer(dense):
    """1,000 padded edges lead to one node: without care, its features overflow after 13 layers, and
    a gradient of a weight is 0 times infinity.
    """
    graph = pad_graph(Graph.from_edges([(0, 1)]), n_nodes=4, n_edges=1002)

    def f(w):
        x = jnp.ones((4, 1))
        for _ in range(20):
            x = propagate(graph, x, dense=dense) * w + 1
        return jnp.where(graph.node_mask[:, None], x, 0).sum()

    assert bool(jnp.isfinite(jax.grad(f)(0.1)))


@each
def test_half_precision_is_summed_in_float32(how):
    """In bfloat16, 300 ones add up to 256."""
    n = 300
    pairs = np.stack([np.arange(1, n + 1), np.zeros(n, int)], axis=1)
    graph = Graph.from_edges(pairs, np.ones((n + 1, 1)), undirected=False)
    for dtype in ("bfloat16", "float16"):
        m = jnp.asarray(np.random.default_rng(0).uniform(0.5, 1.5, (n, 1)), dtype)
        found = aggregate(graph, m, how)
        exact = AGGREGATE[how](np.asarray(m, np.float64))
        assert found.dtype == m.dtype
        assert np.allclose(np.asarray(found[0], np.float64), exact, rtol=5e-3)
    x = jnp.ones((n + 1, 1), "bfloat16")
    for path in (True, False):
        assert abs(float(propagate(graph, x, dense=path)[0, 0]) - n) <= 1


def test_gradient_at_ties():
    """The maximum divides its gradient equally; the standard deviation of equal messages has
    gradient 0.
    """
    graph = Graph.from_edges([(1, 0), (2, 0), (3, 0)], np.ones((4, 1)), undirected=False)
    m = jnp.array([[2.0], [2.0], [1.0]])
    slope = lambda how, m: jax.grad(lambda m: aggregate(graph, m, how).sum())(m).ravel().tolist()
    assert slope("max", m) == [0.5, 0.5, 0]
    assert slope("min", -m) == [0.5, 0.5, 0]
    assert slope("std", jnp.ones((3, 1))) == [0, 0, 0]
    assert np.allclose(slope("mean", m), 1 / 3)


@each
def test_graph_without_edges(how):
    graph = Graph.from_nodes(np.ones((3, 2)))
    assert aggregate(graph, jnp.zeros((0, 2)), how).tolist() == [[0, 0]] * 3
    assert gather_receivers(graph, graph.nodes).shape == (0, 2)
    for path in (None, True, False):
        assert propagate(graph, jnp.ones((3, 2)), dense=path).tolist() == [[0, 0]] * 3


@pytest.mark.usefixtures("unchecked")
def test_integer_weights():
    """Are as good as floats."""
    graph = Graph.from_edges([(0, 1)], weights=np.array([2]))
    assert in_degrees(graph).tolist() == [2, 2]
    assert propagate(graph, jnp.array([1.0, 10.0])).tolist() == [20, 2]
    assert aggregate(graph, jnp.ones((2, 1)), "mean").ravel().tolist() == [1, 1]


def test_several_aggregations_are_concatenated():
    graph = random_graph(5)
    m = messages(graph)
    both = aggregate(graph, m, ("mean", "std"))
    assert (
        both.tolist()
        == jnp.concatenate(
            [aggregate(graph, m, "mean"), aggregate(graph, m, "std")], axis=1
        ).tolist()
    )


@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused():
    graph = random_graph(0)
    with pytest.raises(ValueError, match=r"did you mean mean .* one of sum, mean"):
        aggregate(graph, messages(graph), "maen")
    with pytest.raises(ValueError, match=r"one of sum, mean.* got \(\)"):
        aggregate(graph, messages(graph), ())
    with pytest.raises(ValueError, match=r"a message for each of the 9 edges, got shape \(6, 3\)"):
        aggregate(graph, graph.nodes)


@pytest.mark.parametrize("weighted", [False, True])
def test_messages_in_parts_give_the_same_sums(weighted, monkeypatch):
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 20, (203, 2))
    weights = rng.normal(size=203) if weighted else None
    graph = Graph.from_edges(pairs, np.ones((20, 1)), undirected=False, weights=weights)
    x = jnp.asarray(rng.normal(size=(20, 3)), jnp.float32)
    loss = lambda x: jnp.square(propagate(graph, x, dense=False)).sum()
    expected = propagate(graph, x, dense=False), jax.grad(loss)(x)
    module = sys.modules["thetax.layers.graphs.aggregation"]
    monkeypatch.setattr(module, "MAX_MESSAGE_BYTES", 0)
    assert "scan" in str(jax.make_jaxpr(lambda x: propagate(graph, x, dense=False))(x))
    found = propagate(graph, x, dense=False), jax.grad(loss)(x)
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)

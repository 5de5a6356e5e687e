"""GraphSAGE equals a loop over edges."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from graphs_by_loop import collect, dense, jittered, random_graph

from thetax.layers import GraphSAGE


@pytest.mark.usefixtures("x64", "strict")
@pytest.mark.parametrize("how", ["mean", "sum", "max"])
@pytest.mark.parametrize(("m", "pool", "normalise"), [(2, False, True), (5, True, False)])
def test_graphsage_is_a_loop(how, m, pool, normalise):
    graph = random_graph(0)
    layer = jittered(
        GraphSAGE.init(3, m, aggregation=how, pool=pool, normalise=normalise, key=jr.key(0))
    )
    x = np.asarray(graph.nodes)
    sent = np.maximum(dense(layer.pool, x), 0) if pool else x
    collected = collect(graph, lambda i, j, k: sent[j], how, 3)
    expected = dense(layer.own, x) + dense(layer.neighbours, collected)
    if normalise:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert np.allclose(layer(graph).nodes, expected, atol=1e-14)


@pytest.mark.usefixtures("x64", "strict")
def test_weighted_mean():
    graph = random_graph(1, weighted=True)
    layer = jittered(GraphSAGE.init(3, 2, key=jr.key(0)))
    x, w = np.asarray(graph.nodes), np.asarray(graph.weights)
    total = collect(graph, lambda i, j, k: w[k] * x[j], "sum", 3)
    count = collect(graph, lambda i, j, k: w[k : k + 1], "sum", 1)
    mean = np.where(count > 0, total / np.where(count > 0, count, 1), 0)
    expected = dense(layer.own, x) + dense(layer.neighbours, mean)
    assert np.allclose(layer(graph).nodes, expected, atol=1e-14)


def test_gradient_of_the_norm_at_zero():
    graph = random_graph(0)
    layer = GraphSAGE.init(3, 2, normalise=True, key=jr.key(0))
    zero = jax.tree.map(jnp.zeros_like, layer)
    slopes = jax.grad(lambda layer: layer(graph).nodes.sum())(zero)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(slopes))


@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused():
    with pytest.raises(ValueError, match=r"must be mean, sum or max; got 'std'"):
        GraphSAGE.init(3, 2, aggregation="std", key=jr.key(0))
    with pytest.raises(ValueError, match="expected 4 features for each node"):
        GraphSAGE.init(4, 2, key=jr.key(0))(random_graph(0))

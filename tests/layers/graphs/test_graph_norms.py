"""PairNorm and GraphNorm against loops over the graphs of a padded batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs_by_loop import jittered, random_graph

from thetax.data.graphs import Graph, batch_graphs
from thetax.layers import GCN, GraphNorm, PairNorm


def pair_norm(layer, x):
    centred = x - x.mean(axis=0)
    return layer.scale * centred / np.sqrt((centred**2).sum(axis=1).mean() + layer.eps)


def graph_norm(layer, x):
    gamma, beta, alpha = (np.asarray(a) for a in (layer.gamma, layer.beta, layer.alpha))
    shifted = x - alpha * x.mean(axis=0)
    return gamma * shifted / np.sqrt((shifted**2).mean(axis=0) + layer.eps) + beta


@pytest.mark.usefixtures("x64", "strict")
@pytest.mark.parametrize(
    ("layer", "by_loop"), [(PairNorm(1.5), pair_norm), (GraphNorm.init(3), graph_norm)]
)
def test_each_graph_by_itself(layer, by_loop):
    layer = jittered(jax.tree.map(lambda a: a.astype(float), layer))
    graphs = [random_graph(seed, n_nodes=3 + seed) for seed in range(3)]
    found = np.asarray(layer(batch_graphs(graphs, n_nodes=15, n_edges=40)).nodes)
    expected = np.concatenate([by_loop(layer, np.asarray(graph.nodes)) for graph in graphs])
    assert np.allclose(found[:12], expected, atol=1e-13)
    assert np.isfinite(found).all()
    assert np.allclose(layer(graphs[0]).nodes, expected[:3], atol=1e-13)


@pytest.mark.usefixtures("x64")
def test_distances_stay_under_pair_norm():
    """The mean squared distance of two nodes is 2, also where without it 60 layers leave 0."""
    graph = random_graph(0, n_nodes=8, n_pairs=12, undirected=True)
    apart = lambda x: np.mean(np.sum((x[:, None] - x[None]) ** 2, axis=-1))
    layer = jax.jit(GCN.__call__)
    identity = GCN.init(3, 3, bias=False, key=jax.random.key(0))
    identity = jax.tree.map(lambda W: jnp.eye(3), identity)
    plain = normed = graph
    for _ in range(60):
        plain = layer(identity, plain)
        normed = PairNorm()(layer(identity, normed))
    assert np.isclose(apart(np.asarray(normed.nodes)), 2, rtol=1e-3)
    assert apart(np.asarray(plain.nodes)) < 1


def test_equal_nodes():
    graph = Graph.from_edges([(0, 1)], np.ones((2, 3)))
    assert np.all(np.asarray(PairNorm()(graph).nodes) == 0)
    slope = jax.grad(lambda x: GraphNorm.init(3)(PairNorm()(graph.with_nodes(x))).nodes.sum())
    assert bool(jnp.isfinite(slope(graph.nodes)).all())


@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="expected 4 features for each node"):
        GraphNorm.init(4)(random_graph(0))
    with pytest.raises(ValueError, match=r"PairNorm: expected a thetax.data.Graph, got ndarray"):
        PairNorm()(np.ones((3, 2)))

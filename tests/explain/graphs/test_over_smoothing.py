"""Energy and cosine by layer against loops over pairs, and the collapse of a linear GCN."""

from itertools import combinations

import jax
import jax.numpy as jnp
import jax.random as jr
import networkx as nx
import numpy as np
import pytest

from thetax.data import Graph, batch_graphs, pad_graph
from thetax.explain import feature_smoothness
from thetax.layers import GCN, Chain, GraphResidual, Nodewise, gcn_propagate
from thetax.models import GNN, MLP

KARATE = Graph.from_edges(
    list(nx.karate_club_graph().edges),
    np.random.default_rng(0).normal(size=(34, 4)).astype(np.float32),
)


def by_loops(x: np.ndarray) -> tuple[float, float]:
    """Relative energy of the graph with self-loops, and the mean cosine of all pairs of rows."""
    d = np.array([len(nx.karate_club_graph()[i]) for i in range(34)]) + 1.0
    energy = sum(
        np.sum((x[i] / np.sqrt(d[i]) - x[j] / np.sqrt(d[j])) ** 2)
        for i, j in nx.karate_club_graph().edges
    )
    cosines = [
        x[i] @ x[j] / np.linalg.norm(x[i]) / np.linalg.norm(x[j])
        for i, j in combinations(range(34), 2)
    ]
    return energy / np.sum(x**2), float(np.mean(cosines))


def test_every_layer_by_loops():
    first, last = GCN.init(4, 5, key=jr.key(0)), GCN.init(5, 3, key=jr.key(1))
    result = feature_smoothness(Chain(first, Nodewise(jax.nn.relu), last), KARATE)
    hidden = first(KARATE).nodes
    features = [KARATE.nodes, hidden, last(KARATE.with_nodes(jax.nn.relu(hidden))).nodes]
    expected = np.array([by_loops(np.asarray(x, np.float64)) for x in features])
    assert result.layers == ("input", "GCN 1", "GCN 2")
    np.testing.assert_allclose(result.energy, expected[:, 0], rtol=1e-4)
    np.testing.assert_allclose(result.cosine, expected[:, 1], atol=1e-5)


def test_a_deep_linear_gcn_collapses():
    layers = [GCN.init(4, 4, bias=False, key=key) for key in jr.split(jr.key(0), 24)]
    result = feature_smoothness(Chain(*layers), KARATE)
    assert result.energy[-1] < 0.05 * result.energy[0]
    x = KARATE.nodes
    for _ in range(200):
        x = gcn_propagate(KARATE, x)
    collapsed = feature_smoothness(Chain(GCN(layers[0].linear)), KARATE.with_nodes(x))
    assert collapsed.energy[0] < 1e-6
    assert collapsed.cosine[0] > 0.999


@pytest.mark.sampled(3)
@pytest.mark.parametrize("layer", ["gcn", "gat", "gin", "sage", "chebyshev"])
def test_the_layers_of_a_gnn(layer):
    net = GNN.init(4, 6, 2, depth=3, layer=layer, norm="graph", dropout=0.5, key=jr.key(0))
    result = feature_smoothness(net, KARATE)
    kind = type(GNN.init(4, 6, 2, layer=layer, key=jr.key(0)).body.layers[0].layers[0]).__name__
    assert [name for name in result.layers if name.startswith(f"{kind} ")] == [
        f"{kind} {i}" for i in (1, 2, 3)
    ]
    assert (result.energy >= 0).all()
    assert (result.energy < 2).all()


def test_a_residual_block_is_one_layer_and_dropped_edges_none():
    net = GNN.init(4, 4, 4, depth=3, residual=True, drop_edge=0.5, head=(), key=jr.key(0))
    assert feature_smoothness(net, KARATE).layers == (
        "input",
        *(f"GraphResidual {i}" for i in (1, 2, 3)),
    )
    assert isinstance(net.body.layers[1].layers[0], GraphResidual)


def test_zero_features_are_counted_out():
    x = jnp.zeros((34, 4)).at[:2].set(jnp.eye(4)[:2])
    result = feature_smoothness(Chain(GCN.init(4, 2, key=jr.key(0))), KARATE.with_nodes(x))
    assert result.cosine[0] == 0
    silent = feature_smoothness(
        Chain(GCN.init(4, 2, key=jr.key(0))), KARATE.with_nodes(jnp.zeros((34, 4)))
    )
    assert silent.energy.tolist() == [0.0, 0.0]


def test_padding_is_left_out():
    net = GNN.init(4, 6, 2, key=jr.key(0))
    padded = feature_smoothness(net, pad_graph(KARATE, n_nodes=40, n_edges=200))
    np.testing.assert_allclose(padded.cosine, feature_smoothness(net, KARATE).cosine, atol=1e-6)


@pytest.mark.usefixtures("unchecked")
def test_bad_input():
    net = GNN.init(4, 6, 2, key=jr.key(0))
    with pytest.raises(ValueError, match="got a batch of 1"):
        feature_smoothness(net, batch_graphs([KARATE]))
    with pytest.raises(ValueError, match=r"expected one thetax\.data\.Graph, got"):
        feature_smoothness(net, KARATE.nodes)
    with pytest.raises(ValueError, match="found no graph layer in Nodewise"):
        feature_smoothness(Nodewise(MLP.init(4, 3, key=jr.key(0))), KARATE)

"""Every graph layer and model: renumbered nodes give renumbered outputs, or the same output with a
readout; padding changes nothing at real nodes. All 120 orders of 5 nodes, and some of 50.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from graphs_by_loop import jittered, permutations, permuted_stack, random_graph

from thetax.core import predict
from thetax.data.graphs import Graph, batch_graphs, pad_graph
from thetax.layers import (
    GAT,
    GCN,
    GIN,
    AttentionReadout,
    ChebyshevFilter,
    DropEdge,
    EdgeConditioned,
    GATv2,
    GraphNorm,
    GraphResidual,
    GraphSAGE,
    GraphTransformer,
    InteractionNetwork,
    JumpingKnowledge,
    LayerNorm,
    MessagePassing,
    Nodewise,
    PairNorm,
    PolynomialFilter,
    Readout,
    VirtualNode,
)
from thetax.models import GNN

Make = Callable[..., Any]


def residual(*, key):
    return GraphResidual.init(GCN.init(3, 4, key=key), 3, 4, key=key)


def jumping(*, key):
    return JumpingKnowledge(GCN.init(3, 4, key=key), GIN.init(4, 2, key=key))


def transformer(*, key):
    local = GCN.init(3, 3, key=key)
    return GraphTransformer.init(3, n_heads=1, local=local, key=key)


NODES: dict[str, Make] = {
    "GCN": partial(GCN.init, 3, 4),
    "GraphSAGE": partial(GraphSAGE.init, 3, 4),
    "GraphSAGE max": partial(GraphSAGE.init, 3, 4, aggregation="max", pool=True, normalise=True),
    "GIN": partial(GIN.init, 3, 4, edge_features=2),
    "GAT": partial(GAT.init, 3, 4, n_heads=2, edge_features=2),
    "GATv2": partial(GATv2.init, 3, 4, n_heads=2, edge_features=2, self_loops=False),
    "MessagePassing": partial(
        MessagePassing.init, 3, 4, edge_features=2, aggregation=("mean", "std", "min", "softmax")
    ),
    "EdgeConditioned": partial(EdgeConditioned.init, 3, 4, edge_features=2),
    "InteractionNetwork": partial(InteractionNetwork.init, 3, 4, edge_features=2),
    "ChebyshevFilter": partial(ChebyshevFilter.init, 3, 4, order=2),
    "PolynomialFilter": partial(PolynomialFilter.init, 3, 4, order=2),
    "GraphTransformer": transformer,
    "VirtualNode": partial(VirtualNode.init, 3),
    "GraphResidual": residual,
    "JumpingKnowledge": jumping,
    "PairNorm": lambda key: PairNorm(),
    "GraphNorm": lambda key: GraphNorm.init(3),
    "Nodewise": lambda key: Nodewise(LayerNorm.init(3)),
    "DropEdge": lambda key: DropEdge(0.5),
    "GNN": partial(GNN.init, 3, 4, 2, layer="gat", norm="pair", residual=True),
}
GRAPHS: dict[str, Make] = {
    "Readout": lambda key: Readout(("sum", "mean", "max")),
    "AttentionReadout": partial(AttentionReadout.init, 3, 4),
    "GNN": partial(GNN.init, 3, 4, 2, layer="gin", norm="graph", jumping="max", readout="mean"),
    "GNN attention": partial(GNN.init, 3, 4, 2, layer="sage", readout="attention", head=(3,)),
}


def model_of(make: Make) -> Any:
    made = make(key=jr.key(0))
    return jittered(jax.tree.map(lambda a: a.astype(jnp.zeros(()).dtype), made))


def output(model: Any, graph: Graph) -> Any:
    result = model(graph)
    return result.nodes if isinstance(result, Graph) else result


def graph_of(n: int) -> Graph:
    """Undirected, because the Laplacians of the filters are symmetric."""
    return random_graph(3, n_nodes=n, n_pairs=n, undirected=True)


@pytest.mark.sampled(5)
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("n", [5, pytest.param(50, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", list(NODES))
def test_nodes_are_renumbered(name, n):
    model, graph, orders = model_of(NODES[name]), graph_of(n), permutations(n)
    stacked = permuted_stack(graph, orders)
    found = np.asarray(jax.jit(lambda xs: predict(partial(output, model), xs))(stacked))
    expected = np.asarray(output(model, graph))
    assert np.allclose(found, np.stack([expected[order] for order in orders]), atol=1e-11)
    moved = np.abs(found - expected[None]).max()
    assert moved > 1e-3


@pytest.mark.sampled(5)
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("n", [5, pytest.param(50, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", list(GRAPHS))
def test_graphs_are_invariant(name, n):
    model, graph, orders = model_of(GRAPHS[name]), graph_of(n), permutations(n)
    stacked = permuted_stack(graph, orders)
    found = np.asarray(jax.jit(lambda xs: predict(model, xs))(stacked))
    assert np.allclose(found, np.asarray(model(graph))[None], atol=1e-11)
    other = graph.with_nodes(graph.nodes + 1)
    assert np.abs(np.asarray(model(other)) - found[0]).max() > 1e-3


def test_the_check_can_fail():
    """Reversed rows, and features times the number of the node, are not equivariant."""
    graph, orders = graph_of(5), permutations(5)
    stacked = permuted_stack(graph, orders)
    for wrong in (
        lambda graph: graph.nodes[::-1],
        lambda graph: graph.nodes * jnp.arange(5.0)[:, None],
    ):
        found = np.asarray(predict(wrong, stacked))
        expected = np.asarray(wrong(graph))
        assert not np.allclose(found, np.stack([expected[order] for order in orders]), atol=1e-3)


@pytest.mark.sampled(6)
@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", [*NODES, *(f"{name} of graphs" for name in GRAPHS)])
def test_half_precision(name, dtype):
    """Goes in and comes out, close to single precision."""
    make = NODES[name] if name in NODES else GRAPHS[name.removesuffix(" of graphs")]
    model, graph = model_of(make), graph_of(5)
    floats = lambda a: jnp.issubdtype(a.dtype, jnp.floating)
    half = lambda t: jax.tree.map(lambda a: a.astype(dtype) if floats(a) else a, t)
    single = np.asarray(output(model, graph))
    found = output(half(model), half(graph))
    assert found.dtype == dtype
    error = np.abs(np.asarray(found, np.float32) - single).max() / np.abs(single).max()
    assert error < {"bfloat16": 4e-2, "float16": 5e-3}[dtype]


@pytest.mark.sampled(5)
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", list(NODES))
def test_padding_and_other_graphs_change_nothing_at_real_nodes(name):
    model, graph = model_of(NODES[name]), graph_of(5)
    expected = np.asarray(output(model, graph))
    other = random_graph(8, n_nodes=4, undirected=True)
    larger = [
        pad_graph(graph, n_nodes=6, n_edges=graph.n_edges + 1),
        pad_graph(graph, n_nodes=23, n_edges=graph.n_edges + 40),
        batch_graphs([graph, other], n_nodes=12, n_edges=50),
    ]
    for padded in larger:
        found = np.asarray(output(model, padded))
        assert np.isfinite(found).all()
        assert np.allclose(found[:5], expected, atol=1e-13)


@pytest.mark.sampled(5)
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", list(GRAPHS))
def test_padding_and_batches_change_nothing_of_a_graph(name):
    model, graph = model_of(GRAPHS[name]), graph_of(5)
    expected = np.asarray(model(graph))
    other = random_graph(8, n_nodes=4, undirected=True)
    batch = batch_graphs([other, graph], n_nodes=12, n_edges=50)
    assert np.allclose(model(pad_graph(graph, n_nodes=23, n_edges=60)), expected, atol=1e-13)
    assert np.allclose(model(batch)[1], expected, atol=1e-13)

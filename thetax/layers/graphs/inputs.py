"""Checks of the graph that a layer is given."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...data.graphs import Graph


def expect_graph(name: str, graph: Any) -> Graph:
    """The graph; raises `ValueError` unless it is one graph whose nodes have vectors of floats.

    >>> expect_graph("PairNorm", jnp.zeros((3, 2)))
    Traceback (most recent call last):
    ValueError: PairNorm: expected a thetax.data.Graph, got ArrayImpl. Make one: Graph.from_edges...
    """
    if not isinstance(graph, Graph):
        raise ValueError(
            f"{name}: expected a thetax.data.Graph, got {type(graph).__name__}. Make one: "
            "Graph.from_edges(pairs, nodes)."
        )
    x = graph.nodes
    if graph.senders.ndim != 1:
        raise ValueError(
            f"{name}: expected one graph, got stacked graphs, nodes of shape {x.shape}; map over "
            "them with thetax.core.predict(model, xs), or use batch_graphs."
        )
    if x.ndim != 2:
        raise ValueError(
            f"{name}: expected a vector of features for each node, shape ({graph.n_nodes}, d); got "
            f"nodes of shape {x.shape}. Reshape them: graph.with_nodes(x.reshape(len(x), -1))."
        )
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(
            f"{name}: expected floats as node features, got {x.dtype}. Convert them, or encode "
            "classes by jax.nn.one_hot."
        )
    return graph


def expect_features(name: str, graph: Any, d: int) -> Float[Array, "v d"]:
    """The node features; raises `ValueError` unless there are `d` floats for each node.

    >>> expect_features("GCN", Graph.from_edges([(0, 1)]), 3)
    Traceback (most recent call last):
    ValueError: GCN: expected 3 features for each node, got nodes of shape (2, 1). ...
    """
    x = expect_graph(name, graph).nodes
    if x.shape[1] != d:
        raise ValueError(
            f"{name}: expected {d} features for each node, got nodes of shape {x.shape}. "
            f"Initialise the layer for {x.shape[1]} features, or give the graph others by "
            "with_nodes."
        )
    return x


def expect_edge_features(name: str, graph: Graph, c: int) -> Float[Array, "e c"]:
    """The edge features; raises `ValueError` unless there are `c` floats for each edge.

    >>> expect_edge_features("GAT", Graph.from_edges([(0, 1)]), 3)
    Traceback (most recent call last):
    ValueError: GAT: expected 3 features for each edge, but the graph has none. Give them: ...
    """
    edges = graph.edges
    if edges is None:
        raise ValueError(
            f"{name}: expected {c} features for each edge, but the graph has none. Give them: "
            "Graph.from_edges(pairs, nodes, edges=...)."
        )
    if edges.ndim != 2 or edges.shape[1] != c or not jnp.issubdtype(edges.dtype, jnp.floating):
        raise ValueError(
            f"{name}: expected {c} floats for each edge, got edges of shape {edges.shape} and type "
            f"{edges.dtype}. Initialise the layer for these, or give the graph others."
        )
    return edges

"""Checks of the graph that a layer is given."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...data.graphs import Graph


def expect_features(name: str, graph: Any, d: int) -> Float[Array, "v d"]:
    """The node features; raises `ValueError` unless there are `d` floats for each node.

    >>> expect_features("GCN", Graph.from_edges([(0, 1)]), 3)
    Traceback (most recent call last):
    ValueError: GCN: expected 3 features for each node, got nodes of shape (2, 1).
    """
    if not isinstance(graph, Graph):
        raise ValueError(
            f"{name}: expected a thetax.data.Graph, got {type(graph).__name__}. Make one: "
            "Graph.from_edges(pairs, nodes)."
        )
    x = graph.nodes
    if x.ndim == 3 and x.shape[2:] == (d,):
        raise ValueError(
            f"{name}: got stacked graphs, nodes of shape {x.shape}; map over them with "
            "thetax.core.predict(model, xs), or use batch_graphs."
        )
    if x.ndim != 2 or x.shape[1] != d:
        raise ValueError(
            f"{name}: expected {d} features for each node, got nodes of shape {x.shape}."
        )
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(
            f"{name}: node features are floats; got {x.dtype}. Convert them, or encode classes by "
            "jax.nn.one_hot."
        )
    return x

"""The outputs of the graph layers of a model, in the order of computation."""

import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ...core import apply
from ...data.graphs import Graph
from ...layers import JumpingKnowledge, Nodewise, tap
from ..modules import module_names


def is_graph_layer(node: Any) -> bool:
    """Whether a module maps a graph to a graph, by the annotation of its `__call__`; a `Nodewise`
    layer and a `JumpingKnowledge` stack do not count.

    >>> import jax.random as jr
    >>> from thetax.layers import GCN, Linear
    >>> (
    ...     is_graph_layer(GCN.init(3, 2, key=jr.key(0))),
    ...     is_graph_layer(Linear.init(3, 2, key=jr.key(0))),
    ... )
    (True, False)
    """
    if not isinstance(node, eqx.Module) or isinstance(node, Nodewise | JumpingKnowledge):
        return False
    return callable(node) and inspect.signature(node).return_annotation is Graph


def record_layers(
    name: str,
    model: Any,
    graph: Graph,
    record: Callable[[Any, Graph, Graph], Any],
    *,
    select: Callable[[Any], bool] = is_graph_layer,
    what: str = "graph layer",
) -> tuple[tuple[str, ...], list[Any]]:
    """The names of the selected layers and `record(layer, input, output)` of each, from one
    compiled call of the model.
    """
    graph = single_graph(name, graph)
    names = module_names(model)
    paths: list[str] = []

    def forward(model, graph):
        records = []
        paths.clear()

        def visit(path, layer, call, x):
            y = call(x)
            kept = record(layer, x, y)
            if kept is not None:
                paths.append(path)
                records.append(kept)
            return y

        apply(tap(model, select=select, visit=visit), graph)
        return records

    records = jax.jit(forward)(model, graph)
    if not records:
        raise ValueError(
            f"{name}: found no {what} in {type(model).__name__}. Give a model such as "
            "thetax.models.GNN, whose layers map a Graph to a Graph."
        )
    return tuple(names.get(path, path) for path in paths), records


def single_graph(name: str, graph: Any) -> Graph:
    """The graph without its padding; raises `ValueError` unless it is one graph, not a batch.

    >>> from thetax.data.graphs import pad_graph
    >>> single_graph("example", pad_graph(Graph.from_edges([(0, 1)]), n_nodes=4, n_edges=9)).n_nodes
    2
    """
    if not isinstance(graph, Graph) or graph.senders.ndim != 1:
        raise ValueError(
            f"{name}: expected one thetax.data.Graph, got {type(graph).__name__}; of stacked "
            "graphs take one: jax.tree.map(lambda a: a[0], graphs)."
        )
    if graph.n_graphs is not None:
        raise ValueError(
            f"{name}: expected one graph, got a batch of {graph.n_graphs}. Give the graphs one by "
            "one, as they were before batch_graphs."
        )
    nodes, edges = np.asarray(graph.node_mask), np.asarray(graph.edge_mask)
    if nodes.all():
        return graph
    keep = lambda values, mask: None if values is None else values[mask]
    return Graph(
        graph.nodes[nodes],
        graph.senders[edges],
        graph.receivers[edges],
        keep(graph.edges, edges),
        keep(graph.weights, edges),
        graph.graph_ids[nodes],
    )

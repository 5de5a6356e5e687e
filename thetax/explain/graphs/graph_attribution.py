r"""Attribution of an output to the nodes and edges of a graph (§7.4).

For an output $z$, a logit of the graph or of one node, the contribution of a node $j$ and of an
edge $e$ is

- by **gradient × input** $\sum_c x_{jc}\, \partial z / \partial x_{jc}$ and
  $w_e\, \partial z / \partial w_e$,
- by **occlusion** the difference of $z$ if $x_j$ becomes 0, or if $w_e$ does,

with the weights $w_e$ of the edges, 1 if the graph has none; a weight of 0 leaves the edge out. The
first is the linear estimate of the second. An undirected edge is two edges, which are attributed
together or, with `pairs=False`, one by one.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ...check import expect_count
from ...core import apply
from ...data.graphs import Graph
from .layer_outputs import single_graph

MAX_OCCLUDED = 256  # nodes, and edges
MAX_BATCH = 64  # graphs with one node or edge occluded at a time
MAX_BATCH_BYTES = 2**27  # of their node features


@dataclass(frozen=True)
class GraphAttribution:
    """Contributions of the nodes and edges to one output; edges as they are in the graph."""

    node_gradient: Float[np.ndarray, " v"]  # gradient × input
    node_occlusion: Float[np.ndarray, " v"]  # NaN where it was not computed
    edge_gradient: Float[np.ndarray, " e"]
    edge_occlusion: Float[np.ndarray, " e"]
    senders: Int[np.ndarray, " e"]
    receivers: Int[np.ndarray, " e"]
    output: int  # which output of the model
    node: int | None  # whose output it is; None for the graph
    value: float


def graph_attribution(
    model: Any,
    graph: Graph,
    *,
    node: int | None = None,
    output: int | None = None,
    pairs: bool = True,
    max_occluded: int = MAX_OCCLUDED,
) -> GraphAttribution:
    """Gradient × input and occlusion of every node and edge, for one output of the model: of the
    graph, or of one `node` if the model has a row of outputs for each.

    `output` is by default the largest, the predicted class. With `pairs`, the two directions of an
    edge are occluded together, and both get the contribution of the pair. At most `max_occluded`
    nodes and as many edges are occluded, those whose gradient × input is largest in size; the
    occlusion of the others is NaN.

    >>> from thetax.layers import Chain, MessagePassing, Readout
    >>> graph = Graph.from_edges([(0, 1), (1, 2)], np.array([[1.0], [2.0], [4.0]]))
    >>> result = graph_attribution(Chain(MessagePassing(), Readout("sum")), graph)
    >>> result.value, result.node_occlusion.tolist(), result.edge_occlusion.tolist()
    (9.0, [1.0, 4.0, 4.0], [3.0, 3.0, 6.0, 6.0])
    """
    graph = single_graph("graph_attribution", graph)
    if not jnp.issubdtype(graph.nodes.dtype, jnp.floating):
        raise ValueError(
            f"graph_attribution: node features must be floats, which have gradients; got "
            f"{graph.nodes.dtype}."
        )
    y = _outputs(model, graph)
    if node is None and y.ndim != 1:
        raise ValueError(
            f"graph_attribution: the output has shape {y.shape}, a row for each node; say whose "
            "output is to be explained: node=0."
        )
    if node is not None and (y.ndim != 2 or not 0 <= node < graph.n_nodes):
        raise ValueError(
            f"graph_attribution: node={node}, but the output has shape {y.shape}. Give a node from "
            f"0 to {graph.n_nodes - 1} of a model with a row for each node, or leave it out."
        )
    row = y if node is None else y[node]
    output = int(jnp.argmax(row)) if output is None else output
    if not 0 <= output < len(row):
        raise ValueError(
            f"graph_attribution: output={output}, but the model has {len(row)} outputs, 0 to "
            f"{len(row) - 1}."
        )
    expect_count("graph_attribution", max_occluded=max_occluded)
    partner = reverse_edges(graph) if pairs else np.arange(graph.n_edges)
    weights = jnp.ones(graph.n_edges) if graph.weights is None else graph.weights
    gradients = _gradients(model, graph, weights, node, output)
    by_node, by_edge = (np.asarray(values, np.float64) for values in gradients)
    by_edge = by_edge + np.where(partner != np.arange(len(partner)), by_edge[partner], 0)
    nodes, edges = (
        np.sort(np.argsort(-np.abs(values), kind="stable")[:max_occluded])
        for values in (by_node, by_edge)
    )
    occlusions = _occlusions(
        model, graph, weights, nodes, np.stack([edges, partner[edges]]), node, output
    )
    of_nodes, of_edges = (np.full(len(values), np.nan) for values in (by_node, by_edge))
    of_nodes[nodes], of_edges[edges] = occlusions
    return GraphAttribution(
        by_node,
        of_nodes,
        by_edge,
        of_edges,
        np.asarray(graph.senders),
        np.asarray(graph.receivers),
        output,
        node,
        float(row[output]),
    )


def reverse_edges(graph: Graph) -> Int[np.ndarray, " e"]:
    """For each edge the number of the edge between the same nodes in the other direction; its own
    number if there is none. Doubled edges are matched in order.

    >>> reverse_edges(Graph.from_edges([(0, 1), (1, 2)])).tolist()
    [1, 0, 3, 2]
    """
    senders, receivers = np.asarray(graph.senders), np.asarray(graph.receivers)
    forward = np.lexsort((senders, receivers))
    backward = np.lexsort((receivers, senders))
    here = np.stack([receivers[forward], senders[forward]])
    there = np.stack([senders[backward], receivers[backward]])
    if here.shape == there.shape and (here == there).all():
        partner = np.empty(len(senders), np.int64)
        partner[forward] = backward
        return partner
    return _reverse_of_directed(senders, receivers)


def _reverse_of_directed(senders: np.ndarray, receivers: np.ndarray) -> np.ndarray:
    waiting: dict[tuple[int, int], list[int]] = {}
    partner = np.arange(len(senders))
    for k, (u, v) in enumerate(zip(senders.tolist(), receivers.tolist())):
        if waiting.get((v, u)):
            other = waiting[v, u].pop(0)
            partner[k], partner[other] = other, k
        else:
            waiting.setdefault((u, v), []).append(k)
    return partner


def _outputs(model: Any, graph: Graph) -> Any:
    y = apply(model, graph)
    return y.nodes if isinstance(y, Graph) else y


def _value(model: Any, graph: Graph, x: Any, w: Any, node: int | None, output: int) -> Any:
    weighted = eqx.tree_at(
        lambda g: g.weights, graph.with_nodes(x), w, is_leaf=lambda leaf: leaf is None
    )
    y = _outputs(model, weighted)
    return y[output] if node is None else y[node, output]


@eqx.filter_jit
def _gradients(model: Any, graph: Graph, weights: Any, node: Any, output: Any) -> tuple[Any, Any]:
    value = lambda x, w: _value(model, graph, x, w, node, output)
    by_x, by_w = jax.grad(value, argnums=(0, 1))(graph.nodes, weights)
    return (graph.nodes * by_x).reshape(graph.n_nodes, -1).sum(axis=1), weights * by_w


@eqx.filter_jit
def _occlusions(
    model: Any, graph: Graph, weights: Any, nodes: Any, edges: Any, node: Any, output: Any
) -> tuple[Any, Any]:
    value = lambda x, w: _value(model, graph, x, w, node, output)
    x = graph.nodes
    z = value(x, weights)
    batch = max(1, min(MAX_BATCH, MAX_BATCH_BYTES // max(x.nbytes, 1)))
    occlude = lambda f, at: jax.lax.map(f, at, batch_size=batch) if len(at) else jnp.zeros(0)
    return (
        occlude(lambda j: z - value(x.at[j].set(0), weights), jnp.asarray(nodes)),
        occlude(lambda pair: z - value(x, weights.at[pair].set(0)), jnp.asarray(edges).T),
    )

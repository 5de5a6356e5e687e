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

from ...core import apply
from ...data.graphs import Graph
from .layer_outputs import check_single_graph

BATCH = 64  # graphs with one node or edge occluded at a time


@dataclass(frozen=True)
class GraphAttribution:
    """Contributions of the nodes and edges to one output; edges as they are in the graph."""

    node_gradient: Float[np.ndarray, " v"]  # gradient × input
    node_occlusion: Float[np.ndarray, " v"]
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
) -> GraphAttribution:
    """Gradient × input and occlusion of every node and edge, for one output of the model: of the
    graph, or of one `node` if the model has a row of outputs for each.

    `output` is by default the largest, the predicted class. With `pairs`, the two directions of an
    edge are occluded together, and both get the contribution of the pair.

    >>> from thetax.layers import Chain, MessagePassing, Readout
    >>> graph = Graph.from_edges([(0, 1), (1, 2)], np.array([[1.0], [2.0], [4.0]]))
    >>> result = graph_attribution(Chain(MessagePassing(), Readout("sum")), graph)
    >>> result.value, result.node_occlusion.tolist(), result.edge_occlusion.tolist()
    (9.0, [1.0, 4.0, 4.0], [3.0, 3.0, 6.0, 6.0])
    """
    check_single_graph("graph_attribution", graph)
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
    partner = reverse_edges(graph) if pairs else np.arange(graph.n_edges)
    weights = jnp.ones(graph.n_edges) if graph.weights is None else graph.weights
    by_node, by_edge, occluded_nodes, occluded_edges = (
        np.asarray(values, np.float64)
        for values in _attribute(model, graph, weights, jnp.asarray(partner), node, output)
    )
    with_partner = by_edge + np.where(partner != np.arange(len(partner)), by_edge[partner], 0)
    return GraphAttribution(
        by_node,
        occluded_nodes,
        with_partner,
        occluded_edges,
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


@eqx.filter_jit
def _attribute(
    model: Any, graph: Graph, weights: Any, partner: Any, node: int | None, output: int
) -> tuple[Any, Any, Any, Any]:
    def value(x, w):
        weighted = eqx.tree_at(
            lambda g: g.weights, graph.with_nodes(x), w, is_leaf=lambda leaf: leaf is None
        )
        y = _outputs(model, weighted)
        return y[output] if node is None else y[node, output]

    x = graph.nodes
    z, (by_x, by_w) = jax.value_and_grad(value, argnums=(0, 1))(x, weights)
    without_node = lambda j: z - value(x.at[j].set(0), weights)
    without_edge = lambda k: z - value(x, weights.at[k].set(0).at[partner[k]].set(0))
    occlude = lambda f, n: jax.lax.map(f, jnp.arange(n), batch_size=BATCH) if n else jnp.zeros(0)
    return (
        (x * by_x).reshape(graph.n_nodes, -1).sum(axis=1),
        weights * by_w,
        occlude(without_node, graph.n_nodes),
        occlude(without_edge, graph.n_edges),
    )

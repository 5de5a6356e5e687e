"""Lenses on graph networks: predictions on the graph, over-smoothing, influence by distance,
attention on edges, attribution, graphs that the network cannot tell apart.
"""

from typing import Any

import jax
import numpy as np

from ... import explain
from ...core import predict
from ...data import Graph
from ...explain.graphs import (
    EdgeAttentionMaps,
    FeatureSmoothness,
    GraphAttribution,
    GraphSeparation,
    NodeInfluence,
    NodePredictions,
)
from ...explain.graphs.layer_outputs import is_graph_layer
from ...explain.modules import named_modules
from ...layers import GAT, GATv2
from ...models.graphs import NodeModel
from ...recipes.engine.outcome import Outcome
from ..registry import format_percent, lens

MAX_GRAPHS = 60  # test graphs whose pairs are compared
MAX_INFLUENCED_NODES = 32  # nodes whose outputs are differentiated


def has_one_graph(outcome: Outcome) -> bool:
    """Whether the outcome is a network with graph layers on the nodes of one graph."""
    return isinstance(outcome.model, NodeModel) and any(
        is_graph_layer(module) for _, module in named_modules(outcome.model.model)
    )


def has_graph_attention(outcome: Outcome) -> bool:
    """Whether this network has graph attention layers."""
    return has_one_graph(outcome) and any(
        isinstance(module, GAT | GATv2) for _, module in named_modules(outcome.model.model)
    )


def classifies_graphs(outcome: Outcome) -> bool:
    """Whether the examples are graphs, and the model has a vector of outputs for each."""
    graphs = outcome.test[0]
    if not isinstance(graphs, Graph) or graphs.senders.ndim != 2:
        return False
    return jax.eval_shape(predict, outcome.model, graphs).ndim == 2


def _prediction_metrics(result: NodePredictions) -> dict[str, str]:
    metrics = {"accuracy on the test nodes": format_percent(result.accuracy)}
    if np.isfinite(result.homophily):
        metrics["edges between test nodes of the same class"] = format_percent(result.homophily)
    return metrics


@lens(
    "Predictions on the graph",
    description="The graph with the predicted class of every node as its colour, and the mistakes "
    "among the test nodes ringed; of a large graph, mistakes and nodes with many edges are drawn. "
    "Right, the first two principal components of the features before the last graph layer.",
    applies=lambda outcome: has_one_graph(outcome) and len(outcome.classes) > 1,
    metrics=_prediction_metrics,
)
def _predictions(outcome: Outcome) -> NodePredictions:
    graph = outcome.model.fixed.graph
    nodes, labels = (np.asarray(part) for part in outcome.test)
    known = np.full(graph.n_nodes, -1)
    known[nodes] = labels
    return explain.node_predictions(outcome.model.model, graph, known, classes=outcome.classes)


def _smoothness_metrics(result: FeatureSmoothness) -> dict[str, str]:
    return {
        "mean cosine of two nodes": f"{result.cosine[0]:.3g} in the input, {result.cosine[-1]:.3g} "
        f"after {result.layers[-1]}",
        "Dirichlet energy / ‖X‖²": f"{result.energy[0]:.3g} in the input, {result.energy[-1]:.3g} "
        f"after {result.layers[-1]}",
    }


@lens(
    "Smoothness of node features",
    description="How alike the features of the nodes are after each graph layer. The Dirichlet "
    "energy is the sum of squared differences along the edges, divided by the squared norm of the "
    "features; the cosine is the mean over all pairs of nodes. If the energy falls to 0 and the "
    "cosine rises to 1 with depth, the network over-smooths: nodes can no longer be told apart.",
    applies=has_one_graph,
    metrics=_smoothness_metrics,
)
def _smoothness(outcome: Outcome) -> FeatureSmoothness:
    return explain.feature_smoothness(outcome.model.model, outcome.model.fixed.graph)


def _influence_metrics(result: NodeInfluence) -> dict[str, str]:
    shares = result.share_by_hop
    reached = np.flatnonzero(shares > 0)
    return {
        "influence of the node itself": format_percent(float(shares[0])),
        "influence from more than one hop away": format_percent(float(shares[2:].sum())),
        "farthest influence": f"{reached.max(initial=0)} hops",
    }


@lens(
    "Influence by distance",
    description="How much the output at a node depends on the features of nodes at each distance: "
    "the norm of the block of the Jacobian. Left, the mean over the nodes at a distance; a steep "
    "fall is over-squashing. Right, the share of all nodes at that distance in the whole "
    "influence, the effective receptive field.",
    applies=has_one_graph,
    metrics=_influence_metrics,
)
def _influence(outcome: Outcome) -> NodeInfluence:
    model = outcome.model
    return explain.node_influence(model.model, model.fixed.graph, max_nodes=MAX_INFLUENCED_NODES)


def _attention_metrics(result: EdgeAttentionMaps) -> dict[str, str]:
    several = result.degrees > 1
    metrics = {}
    for name, perplexity, own in zip(result.layers, result.perplexity, result.loops):
        neighbours = result.degrees + (own > 0).any(axis=1)
        share = (perplexity.mean(axis=1) / np.maximum(neighbours, 1))[several]
        if len(share):
            metrics[f"{name}: effective share of the neighbours"] = format_percent(share.mean())
    return metrics


@lens(
    "Attention on edges",
    description="The attention weights of the network on the edges of the graph. Left, those of "
    "the last layer as the width of the edges. Right, for every node the effective number of "
    "neighbours to which it attends (the exponential of the entropy of its weights) against their "
    "number; on the dashed line attention is uniform.",
    applies=has_graph_attention,
    metrics=_attention_metrics,
)
def _attention(outcome: Outcome) -> EdgeAttentionMaps:
    return explain.edge_attention(outcome.model.model, outcome.model.fixed.graph)


def most_confident_mistake(outcome: Outcome) -> tuple[int, bool]:
    """The test node that is wrong with the largest probability, and True; without a mistake the
    first test node, and False.
    """
    nodes, labels = (np.asarray(part) for part in outcome.test)
    log_p = np.asarray(explain.log_probabilities(outcome.model, nodes))
    wrong = log_p.argmax(axis=1) != labels
    if not wrong.any():
        return int(nodes[0]), False
    return int(nodes[np.where(wrong, log_p.max(axis=1), -np.inf).argmax()]), True


def _attribution_metrics(result: GraphAttribution) -> dict[str, str]:
    strongest = np.nanargmax(np.abs(result.node_occlusion))
    metrics = {
        "output": f"{result.value:.3g}",
        "most important node": f"{strongest}: {result.node_occlusion[strongest]:+.3g} by its "
        "features",
    }
    if len(result.senders):
        edge = np.nanargmax(np.abs(result.edge_occlusion))
        metrics["most important edge"] = (
            f"{result.senders[edge]} – {result.receivers[edge]}: {result.edge_occlusion[edge]:+.3g}"
        )
    return metrics


@lens(
    "Attribution to nodes and edges",
    description="What the output at one test node (ringed) rests on: its predicted class, for the "
    "most confident mistake, or the first test node if there is none. Nodes by their features, "
    "edges by being there; left by gradient × input, right by leaving each out in turn. Of a large "
    "graph, the nodes that matter most are drawn.",
    applies=lambda outcome: has_one_graph(outcome) and len(outcome.classes) > 1,
    metrics=_attribution_metrics,
)
def _attribution(outcome: Outcome) -> GraphAttribution:
    node, _ = most_confident_mistake(outcome)
    model = outcome.model
    return explain.graph_attribution(model.model, model.fixed.graph, node=node)


def _separation_metrics(result: GraphSeparation) -> dict[str, str]:
    n = len(result.names)
    return {
        "pairs of graphs": f"{n * (n - 1) // 2:,}",
        f"told apart by {result.test} and not by the network": f"{len(result.missed):,}",
        "told apart by neither": f"{len(result.same):,}",
    }


@lens(
    "Graphs told apart",
    description="Which pairs of test graphs get different outputs, and which pairs the "
    "Weisfeiler-Leman test tells apart (with the features of the nodes as colours). A "
    "message-passing network cannot do more than the test; pairs that only the test separates show "
    "what its aggregation loses.",
    applies=classifies_graphs,
    metrics=_separation_metrics,
)
def _separation(outcome: Outcome) -> GraphSeparation:
    graphs: Any = jax.tree.map(lambda a: a[:MAX_GRAPHS], outcome.test[0])
    count = len(graphs.senders)
    names = tuple(f"{i}" for i in range(count))
    return explain.graph_separation(outcome.model, graphs, names=names)

r"""Predicted classes of the nodes of a graph, with mistakes and a map of their features (§7.4).

The map shows the first two principal components of what the last graph layer takes in, one point a
node. **Homophily** is the share of the edges between nodes of the same class: graph networks that
smooth features are helped by a high one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from ...core import apply
from ...data.graphs import Graph
from ..predictions.mistakes import class_names
from .layer_outputs import record_layers, single_graph


@dataclass(frozen=True)
class NodePredictions:
    """Predicted class and its probability for every node; `labels` are -1 where unknown."""

    predicted: Int[np.ndarray, " v"]
    labels: Int[np.ndarray, " v"]
    probability: Float[np.ndarray, " v"]
    points: Float[np.ndarray, "v 2"]  # the map of the features
    senders: Int[np.ndarray, " e"]
    receivers: Int[np.ndarray, " e"]
    classes: tuple[str, ...]

    @property
    def mistakes(self) -> Bool[np.ndarray, " v"]:
        """Which nodes with a known label are predicted wrongly."""
        return (self.labels >= 0) & (self.predicted != self.labels)

    @property
    def accuracy(self) -> float:
        """The share of the nodes with a known label that are predicted correctly."""
        known = self.labels >= 0
        return float(1 - self.mistakes.sum() / known.sum()) if known.any() else float("nan")

    @property
    def homophily(self) -> float:
        """The share of the edges between two known labels that are between equal ones."""
        ends = np.stack([self.labels[self.senders], self.labels[self.receivers]])
        known = (ends >= 0).all(axis=0) & (self.senders != self.receivers)
        return float((ends[0] == ends[1])[known].mean()) if known.any() else float("nan")


def node_predictions(
    model: Any, graph: Graph, labels: Any = None, *, classes: Sequence[str] = ()
) -> NodePredictions:
    """Predictions of a model with a row of logits for each node, beside the `labels`, integers, or
    -1 where unknown.

    >>> import jax.random as jr
    >>> from thetax.models import GNN
    >>> graph = Graph.from_edges([(0, 1), (1, 2)], np.eye(3))
    >>> result = node_predictions(GNN.init(3, 4, 2, key=jr.key(0)), graph, [0, 0, -1])
    >>> result.predicted.shape, result.points.shape, result.homophily
    ((3,), (3, 2), 1.0)
    """
    graph = single_graph("node_predictions", graph)
    n = graph.n_nodes
    labels = np.full(n, -1) if labels is None else np.asarray(labels)
    if labels.shape != (n,) or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"node_predictions: labels must be {n} integers, one for each node and -1 where it is "
            f"unknown; got shape {labels.shape} of {labels.dtype}."
        )
    logits = apply(model, graph)
    logits = logits.nodes if isinstance(logits, Graph) else logits
    if logits.ndim != 2 or len(logits) != n or logits.shape[1] < 2:
        raise ValueError(
            f"node_predictions: expected logits of shape ({n}, classes), got "
            f"{logits.shape}. Give a model that classifies "
            "nodes."
        )
    p = np.asarray(jax.nn.softmax(logits, axis=1), np.float64)
    _, inputs = record_layers("node_predictions", model, graph, lambda layer, x, y: x.nodes)
    return NodePredictions(
        p.argmax(axis=1),
        labels,
        p.max(axis=1),
        principal_points(np.asarray(inputs[-1], np.float64)),
        np.asarray(graph.senders),
        np.asarray(graph.receivers),
        class_names(classes, p.shape[1]),
    )


def principal_points(x: Float[np.ndarray, "v d"]) -> Float[np.ndarray, "v 2"]:
    """The coordinates of the rows in the first two principal components.

    >>> np.abs(principal_points(np.array([[1.0, 0.0], [3.0, 0.0]]))).round(6).tolist()
    [[1.0, 0.0], [1.0, 0.0]]
    """
    centred = x - x.mean(axis=0)
    U, s, _ = np.linalg.svd(centred, full_matrices=False)
    points = np.zeros((len(x), 2))
    k = min(2, len(s))
    points[:, :k] = U[:, :k] * s[:k]
    return points

r"""Attention weights $q_{ij}$ on the edges, of every graph attention layer and head (§7.4).

The **perplexity** of a head at a node is $e^H$ with the entropy $H = -\sum_j q_{ij} \log q_{ij}$:
the effective number of neighbours to which it attends. For uniform weights it is the number of
neighbours, with the node itself if the layer adds self-loops.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ...data.graphs import Graph
from ...layers import GAT, GATv2
from .layer_outputs import record_layers, single_graph


@dataclass(frozen=True)
class EdgeAttentionMaps:
    """Attention weights of each layer: `edges[l]` of shape `e h` on the edges, `loops[l]` of shape
    `v h` on the self-loops that the layer adds (zeros if it adds none).
    """

    layers: tuple[str, ...]
    edges: tuple[Float[np.ndarray, "e _"], ...]
    loops: tuple[Float[np.ndarray, "v _"], ...]
    senders: Int[np.ndarray, " e"]
    receivers: Int[np.ndarray, " e"]

    @property
    def perplexity(self) -> tuple[Float[np.ndarray, "v _"], ...]:
        """For each layer the effective number of neighbours of every node and head."""
        return tuple(self._perplexity(q, own) for q, own in zip(self.edges, self.loops))

    @property
    def degrees(self) -> Int[np.ndarray, " v"]:
        """How many edges lead to each node."""
        return np.bincount(self.receivers, minlength=len(self.loops[0]))

    def _perplexity(self, q: np.ndarray, own: np.ndarray) -> np.ndarray:
        surprise = lambda p: -p * np.log(np.maximum(p, 1e-30))
        entropy = surprise(own)
        np.add.at(entropy, self.receivers, surprise(q))
        return np.exp(entropy)


def edge_attention(model: Any, graph: Graph) -> EdgeAttentionMaps:
    """The attention weights of all `GAT` and `GATv2` layers of a model on a graph.

    >>> import jax.random as jr
    >>> graph = Graph.from_edges([(0, 1), (1, 2)], np.eye(3))
    >>> result = edge_attention(GAT.init(3, 4, n_heads=2, key=jr.key(0)), graph)
    >>> result.layers, result.edges[0].shape, bool((result.perplexity[0] <= 3).all())
    (('GAT 1',), (4, 2), True)
    """
    graph = single_graph("edge_attention", graph)

    def record(layer, x, y):
        q = layer.attention(x)
        return q.edges, q.loops

    names, records = record_layers(
        "edge_attention",
        model,
        graph,
        record,
        select=lambda node: isinstance(node, GAT | GATv2),
        what="graph attention layer (GAT, GATv2)",
    )
    edges = tuple(np.asarray(q, np.float64) for q, _ in records)
    loops = tuple(
        np.zeros((graph.n_nodes, q.shape[1])) if own is None else np.asarray(own, np.float64)
        for q, (_, own) in zip(edges, records)
    )
    return EdgeAttentionMaps(
        names, edges, loops, np.asarray(graph.senders), np.asarray(graph.receivers)
    )

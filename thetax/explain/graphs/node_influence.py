r"""The influence of nodes on one another by distance: effective receptive field and over-squashing
(§7.4).

The influence of node $j$ on node $i$ is the norm of a block of the Jacobian, $\|\partial y_i /
\partial x_j\|_F$ (Xu et al. 2018; Topping et al. 2022). Its sum over the nodes at distance $k$
shows from how far away an output really takes its information (effective receptive field); its mean
over them falls quickly with $k$ if messages from many nodes pass a bottleneck (over-squashing).
With $L$ layers it is 0 beyond distance $L$.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.sparse.csgraph import shortest_path

from ...check import expect_count
from ...core import apply
from ...data.graphs import Graph
from ...data.graphs.positional_encoding import sparse_adjacency
from .layer_outputs import single_graph

MAX_NODES = 64  # nodes whose outputs are differentiated


@dataclass(frozen=True)
class NodeInfluence:
    r"""$\|\partial y_i / \partial x_j\|_F$ for some nodes $i$ and all nodes $j$, with the distances
    along the edges.
    """

    influence: Float[np.ndarray, "m v"]
    distance: Int[np.ndarray, "m v"]  # -1 if there is no path from j to i
    nodes: Int[np.ndarray, " m"]

    @property
    def mean_by_hop(self) -> Float[np.ndarray, " h"]:
        """The mean influence of a node at distance 0, 1, 2, ...; NaN if there is none."""
        total, count = self._sums()
        return np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)

    @property
    def share_by_hop(self) -> Float[np.ndarray, " h"]:
        """The share of each distance in the influence of all nodes: the effective receptive field;
        it sums to 1.
        """
        total, _ = self._sums()
        return total / max(float(total.sum()), 1e-300)

    def _sums(self) -> tuple[np.ndarray, np.ndarray]:
        reached = self.distance >= 0
        hops = self.distance[reached]
        return np.bincount(hops, self.influence[reached]), np.bincount(hops).astype(float)


def node_influence(
    model: Any, graph: Graph, *, nodes: Any = None, max_nodes: int = MAX_NODES
) -> NodeInfluence:
    r"""Norms of the blocks $\partial y_i / \partial x_j$ of a model with an output for each node,
    for `nodes`, by default at most `max_nodes` evenly spaced ones.

    >>> from thetax.layers import gcn_propagate
    >>> graph = Graph.from_edges([(0, 1), (1, 2)], np.ones((3, 1)))
    >>> result = node_influence(lambda graph: gcn_propagate(graph, graph.nodes), graph)
    >>> result.influence.round(3).tolist()
    [[0.5, 0.408, 0.0], [0.408, 0.333, 0.408], [0.0, 0.408, 0.5]]
    >>> result.distance.tolist()[0], result.share_by_hop.tolist()[2]
    ([0, 1, 2], 0.0)
    """
    graph = single_graph("node_influence", graph)
    expect_count("node_influence", max_nodes=max_nodes)
    if nodes is None:
        count = min(graph.n_nodes, max_nodes)
        nodes = np.unique(np.linspace(0, graph.n_nodes - 1, count).round().astype(int))
    nodes = np.asarray(nodes)
    if nodes.ndim != 1 or not len(nodes) or nodes.min() < 0 or nodes.max() >= graph.n_nodes:
        raise ValueError(
            f"node_influence: nodes must be numbers from 0 to {graph.n_nodes - 1}; got "
            f"{nodes.tolist()}."
        )
    shape = eqx.filter_eval_shape(_rows, model, graph).shape
    if len(shape) != 2 or shape[0] != graph.n_nodes:
        raise ValueError(
            f"node_influence: expected a model with a row of outputs for each of the "
            f"{graph.n_nodes} nodes, but its output has shape {shape}. For a model with a readout "
            "give what stands before it, such as model.embed of a GNN."
        )
    hops = shortest_path(sparse_adjacency(graph) != 0, unweighted=True, indices=nodes)
    hops = np.where(np.isfinite(hops), hops, -1).astype(np.int64)
    norms = np.asarray(_block_norms(model, graph, jnp.asarray(nodes)), np.float64)
    return NodeInfluence(norms, hops, nodes)


def _rows(model: Any, graph: Graph) -> Any:
    y = apply(model, graph)
    return y.nodes if isinstance(y, Graph) else y


@eqx.filter_jit
def _block_norms(model: Any, graph: Graph, nodes: Any) -> Any:
    def norms(i):
        block = jax.jacrev(lambda x: _rows(model, graph.with_nodes(x))[i])(graph.nodes)
        return jnp.sqrt(jnp.square(block).reshape(len(block), graph.n_nodes, -1).sum(axis=(0, 2)))

    return jax.lax.map(norms, nodes)

r"""DropEdge: training on random subgraphs (Rong et al., ICLR 2020): `DropEdge`."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Int, PRNGKeyArray, UInt32

from ...data.graphs import Graph
from .inputs import expect_graph


class DropEdge(eqx.Module):
    r"""Leaves out $\lfloor p e \rfloor$ of the $e$ edges at random, so that layers after it work on
    a smaller graph (Rong et al. 2020). Without a key it is the identity.

    Degrees and means are those of the smaller graph; nothing is rescaled. The two directions of an
    undirected edge, and doubled edges, stay or go together, except for one edge if the number that
    stays would not fit. Edges that are padding are left out like others.

    >>> cycle = Graph.from_edges([(i, (i + 1) % 6) for i in range(6)])
    >>> DropEdge(0.5)(cycle) is cycle
    True
    >>> smaller = DropEdge(0.5)(cycle, key=jr.key(0))
    >>> smaller.n_edges, bool((smaller.adjacency() == smaller.adjacency().T).all())
    (6, True)
    """

    p: float = eqx.field(static=True)

    def __check_init__(self):
        if not 0 <= self.p < 1:
            raise ValueError(
                f"DropEdge: p is the fraction of edges to drop and must be in [0, 1); got {self.p}."
            )

    def __call__(self, graph: Graph, *, key: PRNGKeyArray | None = None) -> Graph:
        expect_graph("DropEdge", graph)
        kept = graph.n_edges - int(self.p * graph.n_edges)
        if key is None or kept == graph.n_edges:
            return graph
        order = jnp.argsort(_hash_pairs(graph, key), stable=True)
        return take_edges(graph, jnp.sort(order[:kept]))


def take_edges(graph: Graph, rows: Int[Array, " k"]) -> Graph:
    """The graph with some of its edges, given by ascending indices.

    >>> take_edges(Graph.from_edges([(0, 1), (1, 2)]), jnp.array([0, 3])).receivers.tolist()
    [0, 2]
    """
    take = lambda values: None if values is None else values[rows]
    return Graph(
        graph.nodes,
        graph.senders[rows],
        graph.receivers[rows],
        take(graph.edges),
        take(graph.weights),
        graph.graph_ids,
        graph.n_graphs,
    )


def _hash_pairs(graph: Graph, key: PRNGKeyArray) -> UInt32[Array, " e"]:
    """A random number for each pair of nodes that have an edge, the same for both directions."""
    bits = jr.bits(key, (graph.n_nodes,), jnp.uint32)
    pair = bits[graph.senders] + bits[graph.receivers]
    pair = (pair ^ (pair >> 16)) * jnp.uint32(0x85EBCA6B)
    pair = (pair ^ (pair >> 13)) * jnp.uint32(0xC2B2AE35)
    return pair ^ (pair >> 16)

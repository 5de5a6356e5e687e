r"""Sums over the neighbours of a node, on which all graph layers stand (§7.4).

A message is a value on an edge. `gather_senders` and `gather_receivers` take features of nodes to
the edges, `aggregate` takes messages to the nodes that receive them, and `propagate` does both for
weighted sums, $y_i = \sum_{j \to i} w_{ij} x_j$. Edges are sorted by receiver, so an aggregation is
one pass; memory is proportional to nodes and edges.
"""

from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from ...check import suggest
from ...core import upcast
from ...data.graphs import Graph

Aggregation = Literal["sum", "mean", "max", "min", "std", "softmax"]
AGGREGATIONS: tuple[Aggregation, ...] = ("sum", "mean", "max", "min", "std", "softmax")

# Below so many entries of the adjacency matrix per edge, a dense product is faster than a sum over
# edges (measured on two CPU cores with 16 features).
DENSE_ENTRIES_PER_EDGE = 64


def gather_senders(graph: Graph, x: Shaped[Array, "v *d"]) -> Shaped[Array, "e *d"]:
    r"""The feature $x_j$ of the sender, for each edge $j \to i$.

    >>> graph = Graph.from_edges([(0, 1)], undirected=False)
    >>> gather_senders(graph, jnp.array([5.0, 7.0])).tolist()
    [5.0]
    """
    return _take(x, graph.senders, in_order=False)


def gather_receivers(graph: Graph, x: Shaped[Array, "v *d"]) -> Shaped[Array, "e *d"]:
    r"""The feature $x_i$ of the receiver, for each edge $j \to i$.

    >>> graph = Graph.from_edges([(0, 1)], undirected=False)
    >>> gather_receivers(graph, jnp.array([5.0, 7.0])).tolist()
    [7.0]
    """
    return _take(x, graph.receivers, in_order=True)


def aggregate(
    graph: Graph, messages: Float[Array, "e *d"], how: Aggregation | Sequence[Aggregation] = "sum"
) -> Float[Array, "v *d"]:
    r"""$\bigoplus_{j \to i} m_{ij}$ for each node $i$, elementwise; 0 for a node without edges.

    `how` is the sum, mean, maximum, minimum, standard deviation, or `softmax`, the mean with the
    weights $\mathrm{softmax}_j(m_{ij})$. Several are concatenated along the last axis.

    >>> star = Graph.from_edges([(1, 0), (2, 0)], undirected=False)
    >>> m = jnp.array([[1.0], [3.0]])
    >>> [aggregate(star, m, how).ravel().tolist() for how in ("sum", "mean", "max", "std")]
    [[4.0, 0.0, 0.0], [2.0, 0.0, 0.0], [3.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    """
    if not isinstance(how, str):
        return jnp.concatenate([aggregate(graph, messages, one) for one in how], axis=-1)
    if how not in AGGREGATIONS:
        raise ValueError(
            f"aggregate: {suggest(how, AGGREGATIONS)}how is one of {', '.join(AGGREGATIONS)}, or a "
            f"sequence of them; got {how!r}."
        )
    if how == "sum":
        return _sum(graph, messages)
    if how == "mean":
        return _mean(graph, messages)
    if how == "max":
        return _max(graph, messages)
    if how == "min":
        return -_max(graph, -messages)
    if how == "softmax":
        return _sum(graph, edge_softmax(graph, messages) * messages)
    deviations = messages - gather_receivers(graph, _mean(graph, messages))
    variance = _mean(graph, jnp.square(deviations))
    positive = variance > 0  # the gradient of the root at 0 is 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, variance, 1)), 0)


def edge_softmax(graph: Graph, scores: Float[Array, "e *d"]) -> Float[Array, "e *d"]:
    r"""$q_{ij} = e^{s_{ij}} / \sum_{k \to i} e^{s_{ik}}$, the softmax over the edges to each node.

    >>> star = Graph.from_edges([(1, 0), (2, 0)], undirected=False)
    >>> edge_softmax(star, jnp.array([4.0, 4.0])).tolist()
    [0.5, 0.5]
    """
    wide = upcast(scores)
    e = jnp.exp(wide - gather_receivers(graph, jax.lax.stop_gradient(_max(graph, wide))))
    total = _sum(graph, e)
    return (e / gather_receivers(graph, jnp.where(total > 0, total, 1))).astype(scores.dtype)


def propagate(
    graph: Graph,
    x: Float[Array, "v *d"],
    weights: Float[Array, " e"] | None = None,
    *,
    dense: bool | None = None,
) -> Float[Array, "v *d"]:
    r"""$y_i = \sum_{j \to i} w_{ij} x_j$, the product $AX$ with the adjacency matrix.

    Weights are by default those of the graph. `dense` forms the matrix, which is faster for small
    graphs; by default the numbers of nodes and edges decide.

    >>> path = Graph.from_edges([(0, 1), (1, 2)])
    >>> propagate(path, jnp.array([1.0, 10.0, 100.0])).tolist()
    [10.0, 101.0, 10.0]
    """
    weights = graph.weights if weights is None else weights
    if dense is None:
        dense = graph.n_nodes**2 <= DENSE_ENTRIES_PER_EDGE * graph.n_edges
    if dense:
        entries = jnp.ones(graph.n_edges, x.dtype) if weights is None else weights.astype(x.dtype)
        A = jnp.zeros((graph.n_nodes, graph.n_nodes), x.dtype)
        A = A.at[graph.receivers, graph.senders].add(entries, indices_are_sorted=True)
        return jnp.tensordot(A, x, axes=1)
    messages = gather_senders(graph, x)
    if weights is not None:
        messages = messages * _broadcast(weights, messages).astype(x.dtype)
    return _sum(graph, messages)


def in_degrees(graph: Graph) -> Float[Array, " v"]:
    r"""$\sum_j a_{ij}$, the sum of the weights of the edges to each node.

    >>> in_degrees(Graph.from_edges([(0, 1), (1, 2)])).tolist()
    [1.0, 2.0, 1.0]
    """
    return _sum(graph, jnp.ones(graph.n_edges) if graph.weights is None else graph.weights)


def _take(x: Array, indices: Array, *, in_order: bool) -> Array:
    return x.at[indices].get(
        mode="promise_in_bounds", indices_are_sorted=in_order, wrap_negative_indices=False
    )


def _sum(graph: Graph, messages: Array) -> Array:
    return jax.ops.segment_sum(
        messages,
        graph.receivers,
        graph.n_nodes,
        indices_are_sorted=True,
        mode="promise_in_bounds",
    )


def _mean(graph: Graph, messages: Array) -> Array:
    counts = _sum(graph, jnp.ones(graph.n_edges, messages.dtype))
    total = _sum(graph, messages)
    return total / _broadcast(jnp.maximum(counts, 1), total)


def _max(graph: Graph, messages: Array) -> Array:
    largest = jax.ops.segment_max(
        messages,
        graph.receivers,
        graph.n_nodes,
        indices_are_sorted=True,
        mode="promise_in_bounds",
    )
    return jnp.where(jnp.isneginf(largest), 0, largest)


def _broadcast(values: Array, like: Any) -> Array:
    return values.reshape(values.shape + (1,) * (like.ndim - 1))

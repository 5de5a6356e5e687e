r"""Sums over the neighbours of a node, on which all graph layers stand (§7.4).

A message is a value on an edge. `gather_senders` and `gather_receivers` take features of nodes to
the edges, `aggregate` takes messages to the nodes that receive them, and `propagate` does both for
weighted sums, $y_i = \sum_{j \to i} w_{ij} x_j$. Edges are sorted by receiver, so an aggregation is
one pass; memory is proportional to nodes and edges.

Weights count how often an edge is there: an edge of weight 2 is the same as an edge listed twice,
and an edge of weight 0 is the same as none. This holds for every aggregation. Padding receives 0.
Half precision is summed in float32.
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
# The names of the aggregations, for `aggregate` and the layers.
AGGREGATIONS: tuple[Aggregation, ...] = ("sum", "mean", "max", "min", "std", "softmax")

# Largest number of entries of the adjacency matrix per edge for which the dense product is used.
DENSE_ENTRIES_PER_EDGE = 64

# On a CPU, messages of more bytes are computed and summed in `N_PARTS` parts of the edges, which
# need less memory and fit into the cache.
MAX_MESSAGE_BYTES = 2**20
N_PARTS = 16


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
    graph: Graph,
    messages: Float[Array, "e *d"],
    how: Aggregation | Sequence[Aggregation] = "sum",
    *,
    weights: Float[Array, " e"] | None = None,
) -> Float[Array, "v *m"]:
    r"""$\bigoplus_{j \to i} m_{ij}$ for each node $i$, elementwise; 0 for a node without edges.

    `how` is the sum, mean, maximum, minimum, standard deviation, or `softmax`, the mean with the
    weights $\mathrm{softmax}_j(m_{ij})$. Several are concatenated along the last axis. Weights are
    by default those of the graph. At ties the gradient of the maximum is divided equally, and that
    of the standard deviation is 0 where it is 0.

    >>> star = Graph.from_edges([(1, 0), (2, 0)], undirected=False)
    >>> m = jnp.array([[1.0], [3.0]])
    >>> [aggregate(star, m, how).ravel().tolist() for how in ("sum", "mean", "max", "std")]
    [[4.0, 0.0, 0.0], [2.0, 0.0, 0.0], [3.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    """
    check_aggregation("aggregate", how)
    if messages.shape[:1] != graph.senders.shape:
        raise ValueError(
            f"aggregate: expected a message for each of the {graph.n_edges} edges, got shape "
            f"{messages.shape}. gather_senders(graph, x) takes features of nodes to the edges."
        )
    if not isinstance(how, str):
        parts = [aggregate(graph, messages, one, weights=weights) for one in how]
        return jnp.concatenate(parts, axis=-1)
    weights = graph.weights if weights is None else weights
    wide = upcast(messages)
    if how == "sum":
        result = _weighted_sum(graph, wide, weights)
    elif how == "mean":
        result = _mean(graph, wide, weights)
    elif how == "max":
        result = _max(graph, wide, weights)
    elif how == "min":
        result = -_max(graph, -wide, weights)
    elif how == "softmax":
        result = _sum(graph, edge_softmax(graph, wide, weights=weights) * wide)
    else:
        deviations = wide - gather_receivers(graph, _mean(graph, wide, weights))
        variance = _mean(graph, jnp.square(deviations), weights)
        positive = variance > 0  # the gradient of the root at 0 is 0
        result = jnp.where(positive, jnp.sqrt(jnp.where(positive, variance, 1)), 0)
    return zero_padding(graph, result).astype(messages.dtype)


def check_aggregation(name: str, how: Any) -> None:
    """Raises `ValueError` unless `how` is an aggregation or a sequence of at least one.

    >>> check_aggregation("aggregate", "maen")
    Traceback (most recent call last):
    ValueError: aggregate: did you mean mean or min or max? the aggregation is one of sum, ...
    """
    several = (how,) if isinstance(how, str) else how
    unknown = [one for one in several if one not in AGGREGATIONS]
    if unknown or not several:
        hint = suggest(unknown[0], AGGREGATIONS) if unknown else ""
        raise ValueError(
            f"{name}: {hint}the aggregation is one of {', '.join(AGGREGATIONS)}, or a sequence of "
            f"them; got {how!r}."
        )


def edge_softmax(
    graph: Graph, scores: Float[Array, "e *d"], *, weights: Float[Array, " e"] | None = None
) -> Float[Array, "e *d"]:
    r"""$q_{ij} = e^{s_{ij}} / \sum_{k \to i} e^{s_{ik}}$, the softmax over the edges to each node.

    With weights, by default those of the graph, $q_{ij} = w_{ij} e^{s_{ij}} / \sum_{k \to i} w_{ik}
    e^{s_{ik}}$. Computed in float32 at least.

    >>> star = Graph.from_edges([(1, 0), (2, 0)], undirected=False)
    >>> edge_softmax(star, jnp.array([4.0, 4.0])).tolist()
    [0.5, 0.5]
    """
    wide = upcast(scores)
    weights = graph.weights if weights is None else weights
    e = _exponentials(graph, wide, weights, _finite(_largest(graph, wide, weights)))
    total = _sum(graph, e)
    return (e / gather_receivers(graph, _nonzero(total))).astype(scores.dtype)


def edge_softmax_with_loops(
    graph: Graph,
    scores: Float[Array, "e *d"],
    loops: Float[Array, "v *d"],
    *,
    weights: Float[Array, " e"] | None = None,
) -> tuple[Float[Array, "e *d"], Float[Array, "v *d"]]:
    r"""The softmax over the edges to each node and one more edge from the node to itself, of score
    `loops`: the values on the edges, and those on the self-loops.

    >>> star = Graph.from_edges([(1, 0), (2, 0)], undirected=False)
    >>> q, own = edge_softmax_with_loops(star, jnp.zeros(2), jnp.zeros(3))
    >>> float(q.sum() + own[0]), own[1:].tolist()
    (1.0, [1.0, 1.0])
    """
    wide = upcast(scores)
    own = upcast(loops)
    weights = graph.weights if weights is None else weights
    largest = _finite(jnp.maximum(_largest(graph, wide, weights), jax.lax.stop_gradient(own)))
    e = _exponentials(graph, wide, weights, largest)
    e_own = jnp.exp(own - largest)
    total = _sum(graph, e) + e_own
    q = e / gather_receivers(graph, total)
    return q.astype(scores.dtype), (e_own / total).astype(loops.dtype)


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
    wide = upcast(x)
    if dense is None:
        dense = graph.n_nodes**2 <= DENSE_ENTRIES_PER_EDGE * graph.n_edges
    if dense:
        entries = graph.edge_mask.astype(wide.dtype)
        if weights is not None:
            entries = entries * weights.astype(wide.dtype)
        A = jnp.zeros((graph.n_nodes, graph.n_nodes), wide.dtype)
        A = A.at[graph.receivers, graph.senders].add(entries, indices_are_sorted=True)
        return jnp.tensordot(A, wide, axes=1).astype(x.dtype)
    size = graph.n_edges * x[0].size * wide.dtype.itemsize
    n_parts = N_PARTS if size > MAX_MESSAGE_BYTES and jax.default_backend() == "cpu" else 1
    return zero_padding(graph, _sum_in_parts(graph, wide, weights, n_parts)).astype(x.dtype)


def _sum_in_parts(graph: Graph, x: Array, weights: Array | None, n_parts: int) -> Array:
    """The sum of the messages, which are computed for one part of the edges after the other."""
    size = graph.n_edges // n_parts

    def add(total: Array, edges: Any) -> tuple[Array, None]:
        senders, receivers, entries = edges
        messages = _take(x, senders, in_order=False)
        if entries is not None:
            messages = messages * _broadcast(entries, messages).astype(messages.dtype)
        total = total.at[receivers].add(messages, mode="promise_in_bounds", indices_are_sorted=True)
        return total, None

    edges = (graph.senders, graph.receivers, weights)
    rest = jax.tree.map(lambda a: a[n_parts * size :], edges)
    parts = jax.tree.map(lambda a: a[: n_parts * size].reshape(n_parts, size), edges)
    if n_parts == 1:
        return add(jnp.zeros_like(x), edges)[0]
    return jax.lax.scan(add, add(jnp.zeros_like(x), rest)[0], parts)[0]


def in_degrees(graph: Graph) -> Float[Array, " v"]:
    r"""$\sum_j a_{ij}$, the sum of the weights of the edges to each node.

    >>> in_degrees(Graph.from_edges([(0, 1), (1, 2)])).tolist()
    [1.0, 2.0, 1.0]
    """
    return zero_padding(graph, _counts(graph, graph.weights, jnp.zeros(()).dtype))


def zero_padding(graph: Graph, x: Float[Array, "v *d"]) -> Float[Array, "v *d"]:
    """`x`, and 0 at the nodes that are padding.

    The edges that are padding all lead to one node, whose sum would grow from layer to layer until
    it is no longer finite, and so would the gradient of the weights.

    >>> from thetax.data.graphs import pad_graph
    >>> zero_padding(
    ...     pad_graph(Graph.from_edges([(0, 1)]), n_nodes=3, n_edges=4), jnp.ones(3)
    ... ).tolist()
    [1.0, 1.0, 0.0]
    """
    return jnp.where(_broadcast(graph.node_mask, x), x, 0)


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


def _weighted_sum(graph: Graph, messages: Array, weights: Array | None) -> Array:
    if weights is not None:
        messages = messages * _broadcast(weights, messages).astype(messages.dtype)
    return _sum(graph, messages)


def _counts(graph: Graph, weights: Array | None, dtype: Any) -> Array:
    return _sum(graph, jnp.ones(graph.n_edges, dtype) if weights is None else weights.astype(dtype))


def _mean(graph: Graph, messages: Array, weights: Array | None) -> Array:
    total = _weighted_sum(graph, messages, weights)
    return total / _broadcast(_nonzero(_counts(graph, weights, total.dtype)), total)


def _max(graph: Graph, messages: Array, weights: Array | None) -> Array:
    """The maximum over the edges to a node, and 0 if there is none."""
    there = 1.0 if weights is None else (weights != 0).astype(messages.dtype)
    counts = _sum(graph, jnp.broadcast_to(jnp.asarray(there, messages.dtype), (graph.n_edges,)))
    largest = _segment_max(graph, _only_present(messages, weights))
    return jnp.where(_broadcast(counts > 0, largest), largest, 0)


def _largest(graph: Graph, scores: Array, weights: Array | None) -> Array:
    """The maximum without a gradient, for a softmax that does not overflow."""
    return _segment_max(graph, jax.lax.stop_gradient(_only_present(scores, weights)))


def _finite(largest: Array) -> Array:
    return jnp.where(jnp.isneginf(largest), 0, largest)


def _segment_max(graph: Graph, messages: Array) -> Array:
    return jax.ops.segment_max(
        messages,
        graph.receivers,
        graph.n_nodes,
        indices_are_sorted=True,
        mode="promise_in_bounds",
    )


def _only_present(messages: Array, weights: Array | None) -> Array:
    """The messages, and minus infinity on edges of weight 0."""
    if weights is None:
        return messages
    return jnp.where(_broadcast(weights != 0, messages), messages, -jnp.inf)


def _exponentials(graph: Graph, scores: Array, weights: Array | None, largest: Array) -> Array:
    shifted = _only_present(scores, weights) - gather_receivers(graph, largest)
    e = jnp.exp(shifted)
    return e if weights is None else e * _broadcast(weights, e).astype(e.dtype)


def _nonzero(x: Array) -> Array:
    return jnp.where(x == 0, 1, x)


def _broadcast(values: Array, like: Any) -> Array:
    return values.reshape(values.shape + (1,) * (like.ndim - 1))

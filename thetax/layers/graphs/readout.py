r"""Readouts: one vector for a graph from its nodes, invariant to their order (§7.4).

`Readout`            $\bigoplus_i x_i$, the sum, mean or maximum over the nodes
`AttentionReadout`   $\sum_i q_i\, F(x_i)$ with $q = \mathrm{softmax}_i\, g(x_i)$

The result is a vector for one graph (`n_graphs` None), and a row for each graph of a batch.
"""

from collections.abc import Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from ...check import suggest
from ...core import upcast
from ...data.graphs import Graph
from ..linear import Linear
from .inputs import expect_features, expect_graph
from .nodewise import apply_to_rows

# How a readout pools the features of the nodes.
Pooling = Literal["sum", "mean", "max"]
POOLINGS: tuple[Pooling, ...] = ("sum", "mean", "max")


class Readout(eqx.Module):
    r"""$\bigoplus_i x_i$ over the nodes of each graph (§7.4): the sum, mean or maximum, or several,
    concatenated.

    >>> from thetax.data.graphs import batch_graphs
    >>> graph = Graph.from_edges([(0, 1)], jnp.array([[1.0], [3.0]]))
    >>> Readout("mean")(graph).tolist()
    [2.0]
    >>> Readout(("sum", "max"))(batch_graphs([graph, graph])).tolist()
    [[4.0, 3.0], [4.0, 3.0]]
    """

    pooling: Pooling | tuple[Pooling, ...] = eqx.field(static=True, default="mean")

    def __check_init__(self):
        _check_pooling(self.pooling)

    def __call__(self, graph: Graph) -> Float[Array, "*g d"]:
        expect_graph("Readout", graph)
        return pool_nodes(graph, graph.nodes, self.pooling)


class AttentionReadout(eqx.Module):
    r"""$\sum_i q_i\, F(x_i)$ with $q = \mathrm{softmax}_i\, g(x_i)$ over the nodes of each graph
    (Li et al. 2016).

    `score` is $g$, a layer from a vector to one number, and `value` is $F$, the identity if None.

    >>> graph = Graph.from_edges([(0, 1)], jnp.eye(2))
    >>> AttentionReadout(Linear(jnp.zeros((1, 2))))(graph).tolist()
    [0.5, 0.5]
    """

    score: Any
    value: Any = None

    @classmethod
    def init(cls, d: int, m: int | None = None, *, key: PRNGKeyArray) -> "AttentionReadout":
        """Initialises linear maps from `d` features to the score and, if `m` is given, to `m`
        features.
        """
        key_score, key_value = jr.split(key)
        value = None if m is None else Linear.init(d, m, key=key_value)
        return cls(Linear.init(d, 1, bias=False, key=key_score), value)

    def attention(self, graph: Graph, *, key: PRNGKeyArray | None = None) -> Float[Array, " v"]:
        """The weight of every node; 0 for padding."""
        x = expect_graph("AttentionReadout", graph).nodes
        if isinstance(self.score, Linear):
            x = expect_features("AttentionReadout", graph, self.score.W.shape[1])
        s = upcast(apply_to_rows(self.score, x, key=key)[:, 0])
        largest = gather_graphs(graph, pool_nodes(graph, jax.lax.stop_gradient(s), "max"))
        e = jnp.where(graph.node_mask, jnp.exp(jnp.where(graph.node_mask, s - largest, 0)), 0)
        total = gather_graphs(graph, pool_nodes(graph, e, "sum"))
        return (e / jnp.where(graph.node_mask, total, 1)).astype(x.dtype)

    def __call__(self, graph: Graph, *, key: PRNGKeyArray | None = None) -> Float[Array, "*g d"]:
        key_score, key_value = (None, None) if key is None else jr.split(key)
        q = self.attention(graph, key=key_score)
        x = graph.nodes
        x = x if self.value is None else apply_to_rows(self.value, x, key=key_value)
        return pool_nodes(graph, q[:, None] * x, "sum")


def pool_nodes(
    graph: Graph, x: Float[Array, "v *d"], pooling: Pooling | Sequence[Pooling] = "sum"
) -> Float[Array, "*g"]:
    r"""$\bigoplus_i x_i$ over the nodes of each graph, shape `*d` for one graph and `g *d` for a
    batch; 0 for a graph without nodes. Padding does not count.

    >>> pool_nodes(Graph.from_edges([(0, 1)]), jnp.array([1.0, 3.0]), "max").tolist()
    3.0
    """
    _check_pooling(pooling)
    if not isinstance(pooling, str):
        return jnp.concatenate([pool_nodes(graph, x, one) for one in pooling], axis=-1)
    wide = upcast(x)
    if pooling == "max":
        reduced = _per_graph(jax.ops.segment_max, graph, wide)
        occupied = _counts(graph) > 0
        reduced = jnp.where(_like(occupied, reduced), reduced, 0)
    else:
        reduced = _per_graph(jax.ops.segment_sum, graph, wide)
    if pooling == "mean":
        reduced = reduced / _like(jnp.maximum(_counts(graph), 1).astype(wide.dtype), reduced)
    return (reduced[0] if graph.n_graphs is None else reduced).astype(x.dtype)


def gather_graphs(graph: Graph, y: Shaped[Array, "*g"]) -> Shaped[Array, "v ..."]:
    """A value of each graph, taken to its nodes; at padding it is that of the last graph.

    >>> gather_graphs(Graph.from_edges([(0, 1)]), jnp.array([7.0])).tolist()
    [[7.0], [7.0]]
    """
    rows = y[None] if graph.n_graphs is None else y
    return rows[jnp.minimum(graph.graph_ids, len(rows) - 1)]


def _per_graph(reduce, graph: Graph, x: Array) -> Array:
    n = 1 if graph.n_graphs is None else graph.n_graphs
    # The last segment is the padding.
    return reduce(x, graph.graph_ids, n + 1, indices_are_sorted=True)[:n]


def _counts(graph: Graph) -> Array:
    return _per_graph(jax.ops.segment_sum, graph, jnp.ones(graph.n_nodes))


def _like(values: Array, like: Array) -> Array:
    return values.reshape(values.shape + (1,) * (like.ndim - 1))


def _check_pooling(pooling: Any) -> None:
    several = (pooling,) if isinstance(pooling, str) else pooling
    wrong = [one for one in several if one not in POOLINGS]
    if wrong or not several:
        hint = suggest(wrong[0], POOLINGS) if wrong else ""
        raise ValueError(
            f"Readout: {hint}the pooling is one of {', '.join(POOLINGS)}, or a tuple of them; got "
            f"{pooling!r}."
        )

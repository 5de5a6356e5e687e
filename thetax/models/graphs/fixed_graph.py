r"""A model of graphs as a model of something smaller, with the graph fixed (§7.4).

`at_nodes`          node $i \mapsto f[\theta](G)_i$
`of_features`       node features $X \mapsto f[\theta](X, A)$
`of_edge_weights`   weights of the edges $w \mapsto f[\theta](X, A_w)$

So one graph with labelled nodes is a dataset of pairs (node, label): objectives, `fit`, `ntk`,
curvature, calibration and certificates take the result as any other model. Its leaves are those of
the model; the graph is no parameter.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...core import BATCH_AXIS, Model, apply
from ...data.graphs import Graph


@dataclass(frozen=True, eq=False)
class FixedGraph:
    """A graph as static data of a model.

    Two are equal if their arrays are, so that compiled functions are reused. Arrays are compared by
    a digest, which is computed once.
    """

    graph: Graph

    def __post_init__(self):
        if not isinstance(self.graph, Graph):
            raise ValueError(
                f"FixedGraph: expected a thetax.data.Graph, got {type(self.graph).__name__}."
            )
        if self.graph.senders.ndim != 1:
            raise ValueError(
                "FixedGraph: expected one graph, got stacked graphs, nodes of shape "
                f"{self.graph.nodes.shape}. Use batch_graphs, or take one of them."
            )
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(self.graph)):
            raise ValueError(
                "FixedGraph: the graph is an argument of a function that is being transformed "
                "(jit, grad or vmap), so it is not fixed. Fix it outside, or call the model itself "
                "on the graph."
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FixedGraph) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)

    @cached_property
    def _digest(self) -> bytes:
        leaves, structure = jax.tree.flatten(self.graph)
        digest = hashlib.blake2b(str(structure).encode())
        for leaf in map(np.asarray, leaves):
            digest.update(f"{leaf.dtype}{leaf.shape}".encode())
            digest.update(leaf.tobytes())
        return digest.digest()


class NodeModel(eqx.Module):
    r"""The model $i \mapsto f[\theta](G)_i$; see `at_nodes`."""

    model: Any
    fixed: FixedGraph = eqx.field(static=True)

    def __call__(
        self, node: Int[Array, ""] | int, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " k"]:
        graph = self.fixed.graph
        node = jnp.asarray(node)
        _check_node("at_nodes", node, graph)
        rows = _output(self.model, graph, _same_for_batch(key))
        return _at("at_nodes", rows, node, graph)


class FeatureModel(eqx.Module):
    r"""The model $X \mapsto f[\theta](X, A)$; see `of_features`."""

    model: Any
    fixed: FixedGraph = eqx.field(static=True)
    node: int | None = eqx.field(static=True, default=None)

    def __call__(
        self, x: Float[Array, "v *d"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "..."]:
        graph = self.fixed.graph
        output = _output(self.model, graph.with_nodes(x), key)
        return output if self.node is None else _at("of_features", output, self.node, graph)


class EdgeWeightModel(eqx.Module):
    r"""The model $w \mapsto f[\theta](X, A_w)$; see `of_edge_weights`."""

    model: Any
    fixed: FixedGraph = eqx.field(static=True)
    node: int | None = eqx.field(static=True, default=None)

    def __call__(
        self, weights: Float[Array, " e"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "..."]:
        graph = self.fixed.graph
        if weights.shape != graph.senders.shape:
            raise ValueError(
                f"of_edge_weights: expected a weight for each of the {graph.n_edges} edges, got "
                f"shape {weights.shape}; map over a batch with thetax.core.predict."
            )
        weighted = eqx.tree_at(
            lambda g: g.weights, graph, weights, is_leaf=lambda leaf: leaf is None
        )
        output = _output(self.model, weighted, key)
        return output if self.node is None else _at("of_edge_weights", output, self.node, graph)


def at_nodes(model: Model, graph: Graph) -> NodeModel:
    r"""The model that maps a node, given by its index, to the output of `model` at it (§7.4).

    In a batch the output of the whole graph is computed once. With a key, all nodes of a batch
    share the random numbers of one of them: one dropout mask, as in training on the full graph.

    >>> from thetax.core import predict
    >>> from thetax.models import GNN
    >>> from thetax.train import cross_entropy
    >>> graph = Graph.from_edges([(0, 1), (1, 2)], jnp.eye(3))
    >>> net = at_nodes(GNN.init(3, 8, 2, key=jr.key(0)), graph)
    >>> predict(net, jnp.array([0, 2])).shape
    (2, 2)
    >>> cross_entropy(net, (jnp.array([0, 2]), jnp.array([0, 1]))).shape
    ()
    """
    return NodeModel(model, FixedGraph(graph))


def of_features(model: Model, graph: Graph, *, node: int | None = None) -> FeatureModel:
    r"""The model that maps node features, shape `v d`, to the output of `model` with the edges of
    `graph`, or to its row at one `node`. For attacks, smoothing and attribution.

    >>> from thetax.models import GNN
    >>> graph = Graph.from_edges([(0, 1), (1, 2)], jnp.eye(3))
    >>> net = GNN.init(3, 8, 2, key=jr.key(0))
    >>> of_features(net, graph, node=1)(2 * jnp.eye(3)).shape
    (2,)
    """
    if node is not None:
        _check_node("of_features", jnp.asarray(node), graph)
    return FeatureModel(model, FixedGraph(graph), node)


def of_edge_weights(model: Model, graph: Graph, *, node: int | None = None) -> EdgeWeightModel:
    r"""The model that maps weights of the edges, shape `e`, to the output of `model`, or to its row
    at one `node`. Weight 1 is the edge as it is, and weight 0 leaves it out.

    >>> from thetax.layers import GCN
    >>> graph = Graph.from_edges([(0, 1)], jnp.eye(2))
    >>> net = of_edge_weights(GCN.init(2, 1, key=jr.key(0)), graph)
    >>> alone = net(jnp.zeros(2))
    >>> bool(jnp.allclose(alone, net.model(Graph.from_nodes(jnp.eye(2))).nodes))
    True
    """
    if node is not None:
        _check_node("of_edge_weights", jnp.asarray(node), graph)
    return EdgeWeightModel(model, FixedGraph(graph), node)


def _output(model: Model, graph: Graph, key: PRNGKeyArray | None) -> Any:
    output = apply(model, graph, key=key)
    return output.nodes if isinstance(output, Graph) else output


def _at(name: str, rows: Any, node: Any, graph: Graph) -> Any:
    if rows.ndim < 2 or len(rows) != graph.n_nodes:
        raise ValueError(
            f"{name}: expected a model with a row of outputs for each of the {graph.n_nodes} "
            f"nodes, got shape {rows.shape}. A model with a readout has no output at a node."
        )
    return rows[node]


def _check_node(name: str, node: Any, graph: Graph) -> None:
    if node.ndim or not jnp.issubdtype(node.dtype, jnp.integer):
        raise ValueError(
            f"{name}: expected the index of one node, an integer; got {node.dtype} of shape "
            f"{node.shape}. Map over several with thetax.core.predict(model, nodes)."
        )
    if not isinstance(node, Tracer) and not 0 <= int(node) < graph.n_nodes:
        raise ValueError(
            f"{name}: node {int(node)} is not in the graph, whose nodes are 0 to "
            f"{graph.n_nodes - 1}."
        )


def _same_for_batch(key: PRNGKeyArray | None) -> PRNGKeyArray | None:
    """The key of the first example of the batch, if there is a batch.

    `predict` gives every example its own key; with these, `vmap` would compute the graph anew for
    each.
    """
    if key is None:
        return None
    try:
        keys = jax.lax.all_gather(jr.key_data(key), BATCH_AXIS)
    except NameError:  # no batch: the axis is not bound
        return key
    return jr.wrap_key_data(keys[0], impl=jr.key_impl(key))

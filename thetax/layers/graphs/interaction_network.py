r"""The interaction network, a layer that updates edges and nodes (Battaglia et al., NeurIPS 2016):
`InteractionNetwork`.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import PRNGKeyArray

from ...data.graphs import Graph
from ..activation import Activation
from ..compose import Chain
from ..initialise import Initialiser, he
from ..linear import Linear
from .aggregation import (
    Aggregation,
    aggregate,
    check_aggregation,
    gather_receivers,
    gather_senders,
)
from .inputs import expect_edge_features, expect_features
from .nodewise import apply_to_rows


class InteractionNetwork(eqx.Module):
    r"""$\xi_{ij} = \psi([x_i, x_j, x_{ij}])$ on every edge, then
    $\xi_i = \varphi([x_i, \bigoplus_{j \to i} \xi_{ij}])$ at every node (Battaglia et al. 2016).

    The result has other edge features too, so layers can follow one another.

    >>> layer = InteractionNetwork.init(2, 3, edge_features=1, edge_outputs=4, key=jr.key(0))
    >>> result = layer(Graph.from_edges([(0, 1)], jnp.eye(2), edges=jnp.ones((1, 1))))
    >>> result.nodes.shape, result.edges.shape
    ((2, 3), (2, 4))
    """

    edge_net: Any
    node_net: Any
    sizes: tuple[int, int] = eqx.field(static=True)
    aggregation: Aggregation = eqx.field(static=True, default="sum")

    @classmethod
    def init(
        cls,
        d: int,
        m: int,
        *,
        edge_features: int,
        edge_outputs: int | None = None,
        hidden: int | None = None,
        aggregation: Aggregation = "sum",
        activation: Activation = jax.nn.relu,
        initialiser: Initialiser = he,
        key: PRNGKeyArray,
    ) -> "InteractionNetwork":
        """Initialises two networks of one hidden layer, for `d` features of a node in and `m` out,
        and `edge_features` of an edge in and `edge_outputs` out, by default as many.
        """
        out = edge_features if edge_outputs is None else edge_outputs
        hidden = m if hidden is None else hidden
        keys = jr.split(key, 4)
        linear = lambda n, m, key: Linear.init(n, m, initialiser=initialiser, key=key)
        edge_net = Chain(
            linear(2 * d + edge_features, hidden, keys[0]), activation, linear(hidden, out, keys[1])
        )
        node_net = Chain(linear(d + out, hidden, keys[2]), activation, linear(hidden, m, keys[3]))
        return cls(edge_net, node_net, (d, edge_features), aggregation)

    def __check_init__(self):
        check_aggregation("InteractionNetwork", self.aggregation)

    def __call__(self, graph: Graph, *, key: PRNGKeyArray | None = None) -> Graph:
        x = expect_features("InteractionNetwork", graph, self.sizes[0])
        edges = expect_edge_features("InteractionNetwork", graph, self.sizes[1])
        key_edges, key_nodes = (None, None) if key is None else jr.split(key)
        ends = [gather_receivers(graph, x), gather_senders(graph, x), edges]
        edges = apply_to_rows(self.edge_net, jnp.concatenate(ends, axis=1), key=key_edges)
        collected = aggregate(graph, edges, self.aggregation)
        both = jnp.concatenate([x, collected], axis=1)
        nodes = apply_to_rows(self.node_net, both, key=key_nodes)
        return eqx.tree_at(lambda g: (g.nodes, g.edges), graph, (nodes, edges))

r"""Edge-conditioned convolution (Simonovsky & Komodakis, CVPR 2017; Gilmer et al., ICML 2017):
`EdgeConditioned`.
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
from ..initialise import Initialiser, glorot
from ..linear import Linear
from .aggregation import Aggregation, aggregate, check_aggregation, gather_senders
from .inputs import expect_edge_features, expect_features
from .nodewise import apply_to_rows


class EdgeConditioned(eqx.Module):
    r"""$\xi_i = W x_i + \bigoplus_{j \to i} H(x_{ij})\, x_j + b$, where a network $H$ maps the
    features of an edge to an $m \times d$ matrix (NNConv).

    The matrices of all edges are in memory at once, $e\,m\,d$ numbers.

    >>> layer = EdgeConditioned.init(2, 3, edge_features=1, key=jr.key(0))
    >>> graph = Graph.from_edges([(0, 1)], jnp.eye(2), edges=jnp.ones((1, 1)))
    >>> layer(graph).nodes.shape
    (2, 3)
    """

    own: Linear
    matrix: Any
    edge_features: int = eqx.field(static=True)
    aggregation: Aggregation = eqx.field(static=True, default="sum")

    @classmethod
    def init(
        cls,
        d: int,
        m: int,
        *,
        edge_features: int,
        hidden: int = 16,
        aggregation: Aggregation = "sum",
        activation: Activation = jax.nn.relu,
        initialiser: Initialiser = glorot,
        key: PRNGKeyArray,
    ) -> "EdgeConditioned":
        """Initialises the layer for `d` features in and `m` out; the network of the edges has one
        hidden layer.
        """
        keys = jr.split(key, 3)
        linear = lambda n, m, key: Linear.init(n, m, initialiser=initialiser, key=key)
        net = Chain(
            linear(edge_features, hidden, keys[0]), activation, linear(hidden, m * d, keys[1])
        )
        return cls(linear(d, m, keys[2]), net, edge_features, aggregation)

    def __check_init__(self):
        check_aggregation("EdgeConditioned", self.aggregation)

    def __call__(self, graph: Graph, *, key: PRNGKeyArray | None = None) -> Graph:
        m, d = self.own.W.shape
        x = expect_features("EdgeConditioned", graph, d)
        edges = expect_edge_features("EdgeConditioned", graph, self.edge_features)
        matrices = apply_to_rows(self.matrix, edges, key=key).reshape(-1, m, d)
        messages = jnp.einsum("emd,ed->em", matrices, gather_senders(graph, x))
        collected = aggregate(graph, messages, self.aggregation)
        return graph.with_nodes(jax.vmap(self.own)(x) + collected)

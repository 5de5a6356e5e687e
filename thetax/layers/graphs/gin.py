r"""The graph isomorphism network (Xu et al., ICLR 2019), with edge features (Hu et al., ICLR 2020):
`GIN`.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ...data.graphs import Graph
from ..activation import Activation
from ..compose import Chain
from ..initialise import Initialiser, he
from ..linear import Linear
from .aggregation import aggregate, gather_senders, propagate
from .inputs import expect_edge_features, expect_features, expect_graph
from .nodewise import apply_to_rows


class GIN(eqx.Module):
    r"""$\xi_i = \varphi\big((1 + \varepsilon)\, x_i + \sum_{j \to i} x_j\big)$ with a network
    $\varphi$ (Xu et al. 2019).

    The sum tells multisets of neighbours apart, so the layer can be as powerful as the
    Weisfeiler-Leman test. $\varepsilon$ is a parameter if `eps` is an array, and fixed if it is
    None: then it is `fixed_eps`. With `edge`, a linear map $E$ of edge features, messages are
    $\mathrm{relu}(x_j + E x_{ij})$ (GINE). Weights of the graph count as in `aggregate`.

    >>> layer = GIN.init(3, 2, key=jr.key(0))
    >>> layer(Graph.from_edges([(0, 1), (1, 2)], jnp.eye(3))).nodes.shape
    (3, 2)
    """

    net: Any
    edge: Linear | None = None
    eps: Float[Array, ""] | None = None
    fixed_eps: float = eqx.field(static=True, default=0.0)

    @classmethod
    def init(
        cls,
        d: int,
        m: int,
        *,
        hidden: int | None = None,
        edge_features: int = 0,
        eps: float = 0.0,
        learn_eps: bool = True,
        activation: Activation = jax.nn.relu,
        initialiser: Initialiser = he,
        key: PRNGKeyArray,
    ) -> "GIN":
        r"""Initialises the layer for `d` features in and `m` out; $\varphi$ has one hidden layer of
        `hidden` units, by default `m`.
        """
        hidden = m if hidden is None else hidden
        keys = jr.split(key, 3)
        linear = lambda n, m, key: Linear.init(n, m, initialiser=initialiser, key=key)
        return cls(
            Chain(linear(d, hidden, keys[0]), activation, linear(hidden, m, keys[1])),
            linear(edge_features, d, keys[2]) if edge_features else None,
            jnp.asarray(eps, jnp.zeros(()).dtype) if learn_eps else None,
            eps,
        )

    def __call__(self, graph: Graph, *, key: PRNGKeyArray | None = None) -> Graph:
        x = expect_graph("GIN", graph).nodes
        first = self.net.layers[0] if isinstance(self.net, Chain) else self.net
        if isinstance(first, Linear):
            expect_features("GIN", graph, first.W.shape[1])
        if self.edge is None:
            collected = propagate(graph, x)
        else:
            m, c = self.edge.W.shape
            expect_features("GIN", graph, m)
            mapped = jax.vmap(self.edge)(expect_edge_features("GIN", graph, c))
            collected = aggregate(graph, jax.nn.relu(gather_senders(graph, x) + mapped), "sum")
        eps = self.fixed_eps if self.eps is None else self.eps.astype(x.dtype)
        return graph.with_nodes(apply_to_rows(self.net, (1 + eps) * x + collected, key=key))

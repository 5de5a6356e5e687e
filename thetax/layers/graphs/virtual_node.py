r"""The virtual node, through which all nodes of a graph communicate in one layer (Gilmer et al.,
ICML 2017): `VirtualNode`.
"""

from typing import Any

import equinox as eqx
import jax
import jax.random as jr
from jaxtyping import PRNGKeyArray

from ...core import apply
from ...data.graphs import Graph
from ..activation import Activation
from ..compose import Chain
from ..initialise import Initialiser, he
from ..linear import Linear
from .inputs import expect_features, expect_graph
from .readout import POOLINGS, Pooling, gather_graphs, pool_nodes


class VirtualNode(eqx.Module):
    r"""$\xi_i = x_i + F\big(\bigoplus_k x_k\big)$ over all nodes $k$ of the graph: a message of all
    nodes to a virtual node with the network $F$, and one back to all nodes.

    Stands between other layers, so that information of distant nodes needs one layer and not as
    many as their distance.

    >>> layer = VirtualNode(lambda total: 10 * total)
    >>> layer(Graph.from_edges([(0, 1)], jax.numpy.array([[1.0], [2.0]]))).nodes.ravel().tolist()
    [31.0, 32.0]
    """

    net: Any
    pooling: Pooling = eqx.field(static=True, default="sum")

    def __init__(self, net: Any, pooling: Pooling = "sum"):
        if pooling not in POOLINGS:
            raise ValueError(
                f"VirtualNode: the pooling is one of {', '.join(POOLINGS)}; got {pooling!r}."
            )
        self.net = net if isinstance(net, eqx.Module) else Chain(net)
        self.pooling = pooling

    @classmethod
    def init(
        cls,
        d: int,
        *,
        hidden: int | None = None,
        pooling: Pooling = "mean",
        activation: Activation = jax.nn.relu,
        initialiser: Initialiser = he,
        key: PRNGKeyArray,
    ) -> "VirtualNode":
        """Initialises a network $F$ of `d` features with one hidden layer, by default as wide."""
        hidden = d if hidden is None else hidden
        key_up, key_down = jr.split(key)
        linear = lambda n, m, key: Linear.init(n, m, initialiser=initialiser, key=key)
        return cls(
            Chain(linear(d, hidden, key_up), activation, linear(hidden, d, key_down)), pooling
        )

    def __call__(self, graph: Graph, *, key: PRNGKeyArray | None = None) -> Graph:
        x = expect_graph("VirtualNode", graph).nodes
        first = self.net.layers[0] if isinstance(self.net, Chain) else self.net
        if isinstance(first, Linear):
            expect_features("VirtualNode", graph, first.W.shape[1])
        pooled = pool_nodes(graph, x, self.pooling)
        net = lambda total: apply(self.net, total, key=key)
        answer = net(pooled) if graph.n_graphs is None else jax.vmap(net)(pooled)
        return graph.with_nodes(x + gather_graphs(graph, answer))

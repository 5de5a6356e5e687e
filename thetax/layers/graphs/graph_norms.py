r"""Normalisation over the nodes of each graph: `PairNorm` against over-smoothing, `GraphNorm` with
parameters. Padding does not count.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core import upcast
from ...data.graphs import Graph
from .inputs import expect_features, expect_graph
from .readout import gather_graphs, pool_nodes


class PairNorm(eqx.Module):
    r"""$\xi_i = s\, \tilde x_i \big/ \sqrt{\tfrac1n \sum_k \|\tilde x_k\|^2}$ with $\tilde x_i =
    x_i - \tfrac1n \sum_k x_k$ (Zhao & Akoglu, ICLR 2020).

    The mean squared distance between the nodes of a graph stays $2s^2$ at every depth, so the nodes
    cannot become equal. If they are equal already, the result is 0.

    >>> graph = Graph.from_edges([(0, 1)], jnp.array([[1.0], [5.0]]))
    >>> PairNorm()(graph).nodes.ravel().round(3).tolist()
    [-1.0, 1.0]
    """

    scale: float = eqx.field(static=True, default=1.0)
    eps: float = eqx.field(static=True, default=1e-6)

    def __call__(self, graph: Graph) -> Graph:
        x = upcast(expect_graph("PairNorm", graph).nodes)
        centred = x - gather_graphs(graph, pool_nodes(graph, x, "mean"))
        square = pool_nodes(graph, jnp.square(centred).sum(axis=1), "mean")
        length = gather_graphs(graph, jnp.sqrt(square + self.eps))
        return graph.with_nodes((self.scale * centred / length[:, None]).astype(graph.nodes.dtype))


class GraphNorm(eqx.Module):
    r"""$\xi_i = \gamma \odot (x_i - \alpha \odot \mu) / \sigma + \beta$ with the mean $\mu$ over
    the nodes of the graph and $\sigma^2$ the mean of $(x_i - \alpha \odot \mu)^2$ (Cai et al., ICML
    2021).

    Each feature has its own $\alpha$, how much of the mean is removed: the mean may tell the graph
    apart from others.

    >>> graph = Graph.from_edges([(0, 1)], jnp.array([[1.0], [5.0]]))
    >>> GraphNorm.init(1)(graph).nodes.ravel().round(3).tolist()
    [-1.0, 1.0]
    """

    gamma: Float[Array, " d"]
    beta: Float[Array, " d"]
    alpha: Float[Array, " d"]
    eps: float = eqx.field(static=True, default=1e-5)

    @classmethod
    def init(cls, d: int) -> "GraphNorm":
        r"""Initialises $\gamma = \alpha = 1$ and $\beta = 0$."""
        return cls(jnp.ones(d), jnp.zeros(d), jnp.ones(d))

    def __call__(self, graph: Graph) -> Graph:
        x = upcast(expect_features("GraphNorm", graph, len(self.gamma)))
        mu = gather_graphs(graph, pool_nodes(graph, x, "mean"))
        gamma, beta, alpha = (upcast(a)[None] for a in (self.gamma, self.beta, self.alpha))
        shifted = x - alpha * mu
        variance = gather_graphs(graph, pool_nodes(graph, jnp.square(shifted), "mean"))
        y = gamma * shifted / jnp.sqrt(variance + self.eps) + beta
        return graph.with_nodes(y.astype(graph.nodes.dtype))

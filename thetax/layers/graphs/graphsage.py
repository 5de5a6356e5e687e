r"""GraphSAGE (Hamilton, Ying & Leskovec, NeurIPS 2017): `GraphSAGE`."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import PRNGKeyArray

from ...data.graphs import Graph
from ..initialise import Initialiser, glorot
from ..linear import Linear
from .aggregation import aggregate, gather_senders, in_degrees, propagate
from .inputs import expect_features

SMALLEST_NORM = 1e-12


class GraphSAGE(eqx.Module):
    r"""$\xi_i = W x_i + U \bigoplus_{j \to i} x_j + b$ with the mean, the sum or the maximum over
    the neighbours (Hamilton et al. 2017).

    With `pool`, messages are $\mathrm{relu}(P x_j + p)$ in place of $x_j$, the paper's pooling
    aggregator if the aggregation is the maximum. With `normalise`, the output of each node is
    divided by its Euclidean norm. Weights of the graph count as in `aggregate`.

    >>> layer = GraphSAGE.init(3, 2, key=jr.key(0))
    >>> layer(Graph.from_edges([(0, 1), (1, 2)], jnp.eye(3))).nodes.shape
    (3, 2)
    """

    own: Linear
    neighbours: Linear
    pool: Linear | None = None
    aggregation: Literal["mean", "sum", "max"] = eqx.field(static=True, default="mean")
    normalise: bool = eqx.field(static=True, default=False)

    @classmethod
    def init(
        cls,
        d: int,
        m: int,
        *,
        aggregation: Literal["mean", "sum", "max"] = "mean",
        pool: bool = False,
        normalise: bool = False,
        initialiser: Initialiser = glorot,
        bias: bool = True,
        key: PRNGKeyArray,
    ) -> "GraphSAGE":
        """Initialises the layer for `d` features in and `m` out."""
        key_own, key_neighbours, key_pool = jr.split(key, 3)
        return cls(
            Linear.init(d, m, initialiser=initialiser, bias=bias, key=key_own),
            Linear.init(d, m, initialiser=initialiser, bias=False, key=key_neighbours),
            Linear.init(d, d, initialiser=initialiser, key=key_pool) if pool else None,
            aggregation,
            normalise,
        )

    def __check_init__(self):
        if self.aggregation not in ("mean", "sum", "max"):
            raise ValueError(
                f"GraphSAGE: aggregation must be mean, sum or max; got {self.aggregation!r}. "
                "MessagePassing takes any."
            )

    def __call__(self, graph: Graph) -> Graph:
        x = expect_features("GraphSAGE", graph, self.own.W.shape[1])
        sent = x if self.pool is None else jax.nn.relu(jax.vmap(self.pool)(x))
        m, d = self.neighbours.W.shape
        early = m < d and self.aggregation != "max"  # then U commutes with the aggregation
        sent = jax.vmap(self.neighbours)(sent) if early else sent
        if self.aggregation == "max":
            collected = aggregate(graph, gather_senders(graph, sent), "max")
        else:
            collected = propagate(graph, sent)
        if self.aggregation == "mean":
            degrees = in_degrees(graph).astype(collected.dtype)
            collected = collected / jnp.where(degrees == 0, 1, degrees)[:, None]
        collected = collected if early else jax.vmap(self.neighbours)(collected)
        y = jax.vmap(self.own)(x) + collected
        return graph.with_nodes(_unit_rows(y) if self.normalise else y)


def _unit_rows(y):
    square = jnp.square(y).sum(axis=1, keepdims=True)
    positive = square > SMALLEST_NORM**2  # the gradient of the root at 0 is 0
    return jnp.where(positive, y / jnp.sqrt(jnp.where(positive, square, 1)), y)

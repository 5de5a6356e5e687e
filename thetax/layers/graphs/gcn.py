r"""The graph convolutional network of Kipf & Welling (ICLR 2017): `GCN` (§7.4)."""

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from ...data.graphs import Graph
from ..initialise import Initialiser, glorot
from ..linear import Linear
from .aggregation import in_degrees, propagate
from .inputs import expect_features


def gcn_propagate(graph: Graph, x: Float[Array, "v *d"]) -> Float[Array, "v *d"]:
    r"""$\bar A X$ with the coupling matrix $\bar A = D^{-1/2} (A + I) D^{-1/2}$,
    $D = \mathrm{diag}(1 + \sum_j a_{ij})$.

    Departs: the notes call the result an average; rows of $\bar A$ add up to 1 only if all nodes of
    a component have the same degree.

    >>> gcn_propagate(Graph.from_edges([(0, 1)]), jax.numpy.array([1.0, 3.0])).round(3).tolist()
    [2.0, 2.0]
    """
    scale = jax.lax.rsqrt(1 + in_degrees(graph)).astype(x.dtype)
    scale = scale.reshape(scale.shape + (1,) * (x.ndim - 1))
    scaled = scale * x
    return scale * (propagate(graph, scaled) + scaled)


class GCN(eqx.Module):
    r"""Graph convolution $\Xi = \bar A X W^\top + b$ (§7.4), see `gcn_propagate`.

    $W \in \mathbb{R}^{m \times d}$ acts on features, $\bar A$ on nodes; the product with $\bar A$
    is computed on the smaller of the two sides.

    >>> layer = GCN.init(3, 2, key=jax.random.key(0))
    >>> layer(Graph.from_edges([(0, 1), (1, 2)], jax.numpy.eye(3))).nodes.shape
    (3, 2)
    """

    linear: Linear

    @classmethod
    def init(
        cls,
        d: int,
        m: int,
        *,
        initialiser: Initialiser = glorot,
        bias: bool = True,
        key: PRNGKeyArray,
    ) -> "GCN":
        """Initialises the layer for `d` features in and `m` out."""
        return cls(Linear.init(d, m, initialiser=initialiser, bias=bias, key=key))

    def __call__(self, graph: Graph) -> Graph:
        m, d = self.linear.W.shape
        x = expect_features("GCN", graph, d)
        map_rows = jax.vmap(Linear(self.linear.W, None, self.linear.scale_W))
        y = gcn_propagate(graph, map_rows(x)) if m < d else map_rows(gcn_propagate(graph, x))
        if self.linear.b is None:
            return graph.with_nodes(y)
        return graph.with_nodes(y + (self.linear.scale_b * self.linear.b)[None])

r"""Chebyshev graph filters of Defferrard, Bresson & Vandergheynst (NeurIPS 2016):
`ChebyshevFilter` (§7.5).
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ...data.graphs import Graph
from ...data.graphs.laplacian import LaplacianKind, check_kind, edge_weights, power_of_degrees
from ..initialise import Initialiser, glorot
from .aggregation import in_degrees, propagate
from .inputs import expect_features
from .polynomial_filter import check_coefficients, init_coefficients


def scaled_laplacian_propagate(
    graph: Graph,
    x: Float[Array, "v *d"],
    kind: LaplacianKind = "normalised",
    *,
    lambda_max: float | None = None,
) -> Float[Array, "v *d"]:
    r"""$\hat L X$ with $\hat L = \frac{2}{\lambda_{\max}} L - I$, whose eigenvalues lie in
    $[-1, 1]$.

    $\lambda_{\max}$ is by default a bound: 2 for $L = I - D^{-1/2} A D^{-1/2}$ and $L = I - D^{-1}
    A$, and twice the largest degree of the graph for $L = D - A$. As in the paper the graph has no
    self-loops: those that are there are left out. At an isolated node this $L$ is 1 (0 in
    `data.laplacian`). PyTorch Geometric's `ChebConv` does the same, but for the random walk it
    takes $A D^{-1}$.

    >>> graph = Graph.from_edges([(0, 1)])
    >>> scaled_laplacian_propagate(graph, jnp.array([1.0, 3.0])).tolist()
    [-3.0, -1.0]
    """
    check_kind("scaled_laplacian_propagate", kind)
    is_loop = graph.senders == graph.receivers
    weights = jnp.where(is_loop, 0, edge_weights(graph))
    graph = eqx.tree_at(lambda g: g.weights, graph, weights, is_leaf=lambda a: a is None)
    d = in_degrees(graph).astype(x.dtype)
    column = lambda scale: scale.reshape(scale.shape + (1,) * (x.ndim - 1))
    if kind == "combinatorial":
        largest = _largest_bound(graph, d) if lambda_max is None else jnp.full_like(d, lambda_max)
        shrink = column(2 / jnp.where(largest > 0, largest, 1))
        return shrink * (column(d) * x - propagate(graph, x)) - x
    shrink = 2 / (2.0 if lambda_max is None else lambda_max)
    if kind == "random walk":
        coupled = column(power_of_degrees(d, -1.0)) * propagate(graph, x)
    else:
        scale = column(power_of_degrees(d, -0.5))
        coupled = scale * propagate(graph, scale * x)
    return (shrink - 1) * x - shrink * coupled


def _largest_bound(graph: Graph, d: Any) -> Any:
    """Twice the largest degree of the graph to which a node belongs."""
    count = 1 if graph.n_graphs is None else graph.n_graphs
    return 2 * jax.ops.segment_max(d, graph.graph_ids, count + 1)[graph.graph_ids]


class ChebyshevFilter(eqx.Module):
    r"""The layer $\Xi = \sum_{k=0}^K T_k(\hat L) X \alpha_k^\top + b$ with the Chebyshev
    polynomials $T_k$, see `scaled_laplacian_propagate` for $\hat L$ (§7.5).

    $T_0 = 1$, $T_1(z) = z$ and $T_k(z) = 2 z T_{k-1}(z) - T_{k-2}(z)$ are bounded by 1 on $[-1,
    1]$, so high orders do not overflow as powers of $L$ do. $\alpha \in \mathbb{R}^{d' \times d
    \times (K + 1)}$; it takes $K$ sparse products, on the smaller of the two sides (Clenshaw's
    recurrence on the side of the output). PyTorch Geometric's `K` is `order + 1`.

    >>> layer = ChebyshevFilter.init(3, 2, order=2, key=jax.random.key(0))
    >>> layer(Graph.from_edges([(0, 1), (1, 2)], jnp.eye(3))).nodes.shape
    (3, 2)
    """

    alpha: Float[Array, "m d k"]
    b: Float[Array, " m"] | None = None
    kind: LaplacianKind = eqx.field(static=True, default="normalised")
    lambda_max: float | None = eqx.field(static=True, default=None)

    @classmethod
    def init(
        cls,
        d: int,
        m: int,
        *,
        order: int,
        kind: LaplacianKind = "normalised",
        lambda_max: float | None = None,
        initialiser: Initialiser = glorot,
        bias: bool = True,
        key: PRNGKeyArray,
    ) -> "ChebyshevFilter":
        """Initialises the layer for `d` features in, `m` out and polynomials of degree `order`."""
        alpha = init_coefficients("ChebyshevFilter", d, m, order, initialiser, key)
        return cls(alpha, jnp.zeros(m) if bias else None, kind, lambda_max)

    def __check_init__(self):
        check_kind("ChebyshevFilter", self.kind)
        check_coefficients("ChebyshevFilter", self.alpha, self.b)
        if self.lambda_max is not None and not self.lambda_max > 0:
            raise ValueError(
                f"ChebyshevFilter: lambda_max must be positive, got {self.lambda_max}. It is a "
                "bound of the eigenvalues of the Laplacian; leave it out for the default."
            )

    def __call__(self, graph: Graph) -> Graph:
        m, d, _ = self.alpha.shape
        x = expect_features("ChebyshevFilter", graph, d)
        L = lambda y: scaled_laplacian_propagate(graph, y, self.kind, lambda_max=self.lambda_max)
        y = _clenshaw(self.alpha, L, x) if m < d else _by_polynomials(self.alpha, L, x)
        return graph.with_nodes(y if self.b is None else y + self.b[None])


def _by_polynomials(alpha: Any, L: Callable[[Any], Any], x: Any) -> Any:
    r"""$\sum_k T_k(\hat L) X \alpha_k^\top$ by the recurrence of $T_k(\hat L) X$."""
    y = x @ alpha[:, :, 0].T
    last, now = x, None
    for k in range(1, alpha.shape[2]):
        last, now = (x, L(x)) if now is None else (now, 2 * L(now) - last)
        y = y + now @ alpha[:, :, k].T
    return y


def _clenshaw(alpha: Any, L: Callable[[Any], Any], x: Any) -> Any:
    r"""The same by Clenshaw's recurrence $B_k = X \alpha_k^\top + 2 \hat L B_{k+1} - B_{k+2}$,
    $\Xi = X \alpha_0^\top + \hat L B_1 - B_2$, with products of fewer columns.
    """
    y = x @ alpha[:, :, -1].T
    after = jnp.zeros_like(y)
    for k in reversed(range(alpha.shape[2] - 1)):
        doubled = 1 if k == 0 else 2
        y, after = x @ alpha[:, :, k].T + doubled * L(y) - after, y
    return y

r"""Polynomial graph filters (§7.5): `PolynomialFilter`, and the product with the Laplacian on which
they stand, `laplacian_propagate`.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ...check import expect_count
from ...data.graphs import Graph
from ...data.graphs.laplacian import LaplacianKind, check_kind, power_of_degrees
from ..initialise import Initialiser, glorot
from .aggregation import in_degrees, propagate
from .inputs import expect_features


def laplacian_propagate(
    graph: Graph,
    x: Float[Array, "v *d"],
    kind: LaplacianKind = "combinatorial",
    *,
    self_loops: bool = False,
) -> Float[Array, "v *d"]:
    r"""$LX$ by one pass over the edges, the product with `data.laplacian(graph, kind)`.

    >>> path = Graph.from_edges([(0, 1), (1, 2)])
    >>> laplacian_propagate(path, jnp.array([1.0, 10.0, 100.0])).tolist()
    [-9.0, -81.0, 90.0]
    """
    check_kind("laplacian_propagate", kind)
    d = in_degrees(graph).astype(x.dtype) + (1 if self_loops else 0)
    column = lambda scale: scale.reshape(scale.shape + (1,) * (x.ndim - 1))
    A = lambda x: propagate(graph, x) + (x if self_loops else 0)
    if kind == "combinatorial":
        return column(d) * x - A(x)
    present = column((d > 0).astype(x.dtype))
    if kind == "random walk":
        return present * x - column(power_of_degrees(d, -1.0)) * A(x)
    scale = column(power_of_degrees(d, -0.5))
    return present * x - scale * A(scale * x)


class PolynomialFilter(eqx.Module):
    r"""The layer $\xi_m = \sum_n p_{mn}(L) x_n + b_m \mathbf{1}$ with polynomials $p_{mn}(L) =
    \sum_{k=0}^K \alpha_{mnk} L^k$ (§7.5).

    $x_n \in \mathbb{R}^M$ is channel $n$ of the features of the $M$ nodes, and $\alpha \in
    \mathbb{R}^{d' \times d \times (K + 1)}$. It takes $K$ products with the sparse $L$, on the
    smaller of the two sides, and node $i$ sees nodes up to $K$ hops away. Powers of the normalised
    Laplacian, whose eigenvalues are at most 2, grow slower than those of $D - A$; for high orders
    use `ChebyshevFilter`.

    Departs: the notes sum over the nodes with $\alpha \in \mathbb{R}^{M \times M \times K}$ and
    bias $b_n$; the sum runs over channels, from $k = 0$ to $K$, and the bias is one for each
    output channel.

    >>> layer = PolynomialFilter.init(3, 2, order=4, key=jax.random.key(0))
    >>> layer.alpha.shape, layer(Graph.from_edges([(0, 1), (1, 2)], jnp.eye(3))).nodes.shape
    ((2, 3, 5), (3, 2))
    """

    alpha: Float[Array, "m d k"]
    b: Float[Array, " m"] | None = None
    kind: LaplacianKind = eqx.field(static=True, default="normalised")

    @classmethod
    def init(
        cls,
        d: int,
        m: int,
        *,
        order: int,
        kind: LaplacianKind = "normalised",
        initialiser: Initialiser = glorot,
        bias: bool = True,
        key: PRNGKeyArray,
    ) -> "PolynomialFilter":
        """Initialises the layer for `d` features in, `m` out and polynomials of degree `order`."""
        alpha = init_coefficients("PolynomialFilter", d, m, order, initialiser, key)
        return cls(alpha, jnp.zeros(m) if bias else None, kind)

    def __check_init__(self):
        check_kind("PolynomialFilter", self.kind)
        check_coefficients("PolynomialFilter", self.alpha, self.b)

    def __call__(self, graph: Graph) -> Graph:
        m, d, _ = self.alpha.shape
        x = expect_features("PolynomialFilter", graph, d)
        L = lambda y: laplacian_propagate(graph, y, self.kind)
        y = _horner(self.alpha, L, x) if m < d else _by_powers(self.alpha, L, x)
        return graph.with_nodes(y if self.b is None else y + self.b[None])


def _by_powers(alpha: Any, L: Callable[[Any], Any], x: Any) -> Any:
    r"""$\sum_k L^k X \alpha_k^\top$ from the powers $L^k X$."""
    y = x @ alpha[:, :, 0].T
    for k in range(1, alpha.shape[2]):
        x = L(x)
        y = y + x @ alpha[:, :, k].T
    return y


def _horner(alpha: Any, L: Callable[[Any], Any], x: Any) -> Any:
    r"""The same as $X \alpha_0^\top + L (X \alpha_1^\top + L (\dots))$, with products of fewer
    columns.
    """
    y = x @ alpha[:, :, -1].T
    for k in reversed(range(alpha.shape[2] - 1)):
        y = x @ alpha[:, :, k].T + L(y)
    return y


def init_coefficients(
    name: str, d: int, m: int, order: int, initialiser: Initialiser, key: PRNGKeyArray
) -> Float[Array, "m d k"]:
    """Draws $\\alpha$: `order + 1` matrices, each as the weights of a dense layer."""
    expect_count(name, d=d, m=m, order=order)
    draw = lambda key: initialiser(key, (m, d))
    return jnp.moveaxis(jax.vmap(draw)(jax.random.split(key, order + 1)), 0, -1)


def check_coefficients(name: str, alpha: Any, b: Any) -> None:
    """Raises `ValueError` unless $\\alpha$ is `(m, d, K + 1)` and $b$ is `(m,)`."""
    if alpha.ndim != 3 or not alpha.shape[2] or (b is not None and b.shape != alpha.shape[:1]):
        raise ValueError(
            f"{name}: alpha must be (m, d, K + 1) for m channels out, d in and order K, and b "
            f"(m,); got {alpha.shape} and {None if b is None else b.shape}."
        )

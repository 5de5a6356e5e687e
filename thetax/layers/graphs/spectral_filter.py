r"""Spectral graph filters (§7.5): `spectral_filter` with any function of the eigenvalues, and the
layer `SpectralFilter`, which learns one.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ...check import expect_count
from ...data.graphs import Graph
from ...data.graphs.laplacian import LaplacianKind, check_kind, laplacian
from ..initialise import Initialiser, glorot
from .inputs import expect_features


def spectral_filter(
    graph: Graph,
    x: Float[Array, "v *d"],
    g: Callable[[Float[Array, " v"]], Float[Array, " v"]],
    kind: LaplacianKind = "normalised",
) -> Float[Array, "v *d"]:
    r"""$g(L) X = U g(\Lambda) U^\top X$ for a function $g$ of the eigenvalues of an undirected
    graph, such as $g(\lambda) = e^{-t\lambda}$ (heat).

    As $g$ is a function of $\lambda$, the result does not depend on the eigenvectors that are
    chosen, and it is equivariant under permutations. It takes $O(M^3)$ operations for $M$ nodes.
    The graph is a constant for gradients.

    >>> path = Graph.from_edges([(0, 1), (1, 2)])
    >>> spectral_filter(path, jnp.array([1.0, 2.0, 4.0]), jnp.ones_like).round(3).tolist()
    [1.0, 2.0, 4.0]
    """
    eigenvalues, U = _eigenbasis("spectral_filter", graph, kind, x.dtype)
    response = g(eigenvalues)
    return jnp.tensordot(
        U, response.reshape(-1, *[1] * (x.ndim - 1)) * jnp.tensordot(U.T, x, axes=1), axes=1
    )


class SpectralFilter(eqx.Module):
    r"""The layer $\xi_m = \sum_n U g_{mn}(\Lambda) U^\top x_n + b_m \mathbf{1}$ with learned
    functions $g_{mn}$ of the eigenvalues (§7.5).

    $g_{mn}$ is piecewise linear on $[0, 2]$, the range of the eigenvalues of the normalised
    Laplacian, with the values $\theta_{mnk}$ at $K$ equidistant knots (Bruna et al. 2014 use
    splines). Departs: the notes have one parameter for each eigenvector, which means nothing on
    another graph, or on the same graph with its nodes renumbered. It takes an eigendecomposition,
    $O(M^3)$ for $M$ nodes; `PolynomialFilter` needs none.

    >>> layer = SpectralFilter.init(3, 2, knots=5, key=jax.random.key(0))
    >>> layer(Graph.from_edges([(0, 1), (1, 2)], jnp.eye(3))).nodes.shape
    (3, 2)
    """

    theta: Float[Array, "m d k"]
    b: Float[Array, " m"] | None = None

    @classmethod
    def init(
        cls,
        d: int,
        m: int,
        *,
        knots: int,
        initialiser: Initialiser = glorot,
        bias: bool = True,
        key: PRNGKeyArray,
    ) -> "SpectralFilter":
        """Initialises the layer for `d` features in and `m` out."""
        expect_count("SpectralFilter", d=d, m=m, knots=knots)
        draw = lambda key: initialiser(key, (m, d))
        theta = jnp.moveaxis(jax.vmap(draw)(jax.random.split(key, knots)), 0, -1)
        return cls(theta, jnp.zeros(m) if bias else None)

    def __check_init__(self):
        b = self.b
        if self.theta.ndim != 3 or self.theta.shape[2] < 2:
            raise ValueError(
                f"SpectralFilter: theta must be (m, d, knots) with at least 2 knots; got "
                f"{self.theta.shape}."
            )
        if b is not None and b.shape != self.theta.shape[:1]:
            raise ValueError(
                f"SpectralFilter: b must be ({len(self.theta)},), one for each channel out; got "
                f"{b.shape}."
            )

    def response(self, eigenvalues: Float[Array, " v"]) -> Float[Array, "v m d"]:
        r"""The matrices $g(\lambda) \in \mathbb{R}^{m \times d}$ at the eigenvalues."""
        return jnp.einsum("mdk,vk->vmd", self.theta, self._hats(eigenvalues))

    def __call__(self, graph: Graph) -> Graph:
        x = expect_features("SpectralFilter", graph, self.theta.shape[1])
        eigenvalues, U = _eigenbasis("SpectralFilter", graph, "normalised", x.dtype)
        y = U @ jnp.einsum("mdk,vk,vd->vm", self.theta, self._hats(eigenvalues), U.T @ x)
        return graph.with_nodes(y if self.b is None else y + self.b[None])

    def _hats(self, eigenvalues: Any) -> Any:
        r"""The basis of piecewise linear functions: 1 at its knot and 0 at the others."""
        position = jnp.clip(eigenvalues, 0, 2) * ((self.theta.shape[2] - 1) / 2)
        knots = jnp.arange(self.theta.shape[2], dtype=position.dtype)
        return jnp.maximum(0, 1 - jnp.abs(position[:, None] - knots[None, :]))


def _eigenbasis(name: str, graph: Graph, kind: LaplacianKind, dtype: Any) -> tuple[Any, Any]:
    check_kind(name, kind, allowed=("combinatorial", "normalised"))
    L = jax.lax.stop_gradient(laplacian(graph, kind).astype(dtype))
    return jnp.linalg.eigh(L)

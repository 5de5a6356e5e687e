r"""The graph Fourier transform: coordinates in the eigenvectors of the Laplacian (§7.5).

$L = U \Lambda U^\top$ of an undirected graph has orthonormal eigenvectors $u_i$ with eigenvalues
$\lambda_1 \le \lambda_2 \le \dots$, which act as frequencies: $u_i^\top L u_i = \lambda_i$ is the
Dirichlet energy of $u_i$. $\hat x = U^\top x$ is the transform of a signal $x$ on the nodes, and
$x = U \hat x$.

**The basis is not determined by the graph**: an eigenvector can change its sign, and within an
eigenspace of several dimensions any rotation is as good. Filters $g(L) = U g(\Lambda) U^\top$ do
not depend on the choice, but the graph convolution $x * y = U (\hat x \odot \hat y)$ does. Hence
the basis is fixed here by a rule that depends on the numbers of the nodes only: in every
eigenspace, the unit vectors of nodes 0, 1, 2, ... are projected onto the eigenspace and made
orthonormal in this order (Gram-Schmidt), and those that the earlier ones span are left out. For a
simple eigenvalue this is the eigenvector whose first entry that is not 0 is positive. Renumbering
the nodes changes the basis, and so $x * y$ is not equivariant under permutations.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .graph import Graph
from .laplacian import LaplacianKind, laplacian

SAME_EIGENVALUE = 1e-9  # relative to the largest eigenvalue
NEGLIGIBLE = 1e-6  # norm of a projected unit vector that counts as 0


class GraphFourier(eqx.Module):
    r"""Eigenvalues $\lambda_1 \le \dots \le \lambda_M$ of a Laplacian, and its eigenvectors $U$ as
    columns; see `graph_fourier`.

    >>> basis = graph_fourier(Graph.from_edges([(0, 1), (1, 2)]))
    >>> basis.eigenvalues.round(4).tolist()
    [0.0, 1.0, 3.0]
    >>> x = jnp.array([1.0, 2.0, 4.0])
    >>> bool(jnp.allclose(basis.inverse(basis.transform(x)), x, atol=1e-6))
    True
    """

    eigenvalues: Float[Array, " v"]
    vectors: Float[Array, "v v"]

    def transform(self, x: Float[Array, "v *d"]) -> Float[Array, "v *d"]:
        r"""The Fourier transform $\hat x = U^\top x$ of signals on the nodes."""
        return jnp.tensordot(self.vectors.T, self._checked("transform", x), axes=1)

    def inverse(self, x_hat: Float[Array, "v *d"]) -> Float[Array, "v *d"]:
        r"""The inverse transform $x = U \hat x$."""
        return jnp.tensordot(self.vectors, self._checked("inverse", x_hat), axes=1)

    def convolve(self, x: Float[Array, "v *d"], y: Float[Array, "v *d"]) -> Float[Array, "v *d"]:
        r"""Graph convolution $x * y = U (U^\top x \odot U^\top y)$.

        Commutative and bilinear, but it depends on the basis; the module documents which one is
        used.
        """
        return self.inverse(self.transform(x) * self.transform(y))

    def filter(self, g: Any, x: Float[Array, "v *d"]) -> Float[Array, "v *d"]:
        r"""$g(L) x = U g(\Lambda) U^\top x$ for a function $g$ of the eigenvalues; independent of
        the basis.
        """
        response = g(self.eigenvalues)
        return self.inverse(response.reshape(-1, *[1] * (x.ndim - 1)) * self.transform(x))

    def _checked(self, name: str, x: Any) -> Any:
        if x.shape[:1] != self.eigenvalues.shape:
            raise ValueError(
                f"GraphFourier.{name}: expected a row for each of the {len(self.eigenvalues)} "
                f"nodes, got shape {x.shape}."
            )
        return x


def graph_fourier(graph: Graph, kind: LaplacianKind = "combinatorial") -> GraphFourier:
    """The Fourier basis of an undirected graph, in the order of the eigenvalues and fixed by the
    rule of this module.

    It is computed on the host in double precision, in $O(M^3)$ operations for $M$ nodes. `kind` is
    the combinatorial or the normalised Laplacian, which are symmetric.

    >>> (graph_fourier(Graph.from_edges([(0, 1)])).vectors * 2**0.5).round(4).tolist()
    [[1.0, 1.0], [1.0, -1.0]]
    """
    L = symmetric_laplacian("graph_fourier", graph, kind)
    eigenvalues, vectors = np.linalg.eigh(L)
    vectors = canonical_basis(eigenvalues, vectors)
    return GraphFourier(jnp.asarray(eigenvalues), jnp.asarray(vectors))


def symmetric_laplacian(name: str, graph: Graph, kind: LaplacianKind) -> Float[np.ndarray, "v v"]:
    """The Laplacian on the host in double precision; raises `ValueError` unless it is symmetric."""
    if kind == "random walk":
        raise ValueError(
            f"{name}: the random-walk Laplacian is not symmetric. Use kind='normalised', which has "
            "the same eigenvalues."
        )
    with jax.enable_x64(True):
        exact = None if graph.weights is None else jnp.asarray(graph.weights, jnp.float64)
        graph = eqx.tree_at(lambda g: g.weights, graph, exact, is_leaf=lambda a: a is None)
        L = np.asarray(laplacian(graph, kind))
    if not np.allclose(L, L.T, rtol=0, atol=1e-12 * np.abs(L).max(initial=0)):
        raise ValueError(
            f"{name}: expected an undirected graph, whose edges point both ways with the same "
            "weight. Make it with Graph.from_edges(pairs, undirected=True)."
        )
    return L


def canonical_basis(
    eigenvalues: Float[np.ndarray, " k"], vectors: Float[np.ndarray, "v k"]
) -> Float[np.ndarray, "v k"]:
    """The basis of every eigenspace by the rule of this module, which depends on the eigenspace and
    the numbers of the nodes only.

    >>> canonical_basis(np.zeros(2), np.array([[0.6, 0.8], [0.8, -0.6]])).round(12) + 0.0
    array([[1., 0.],
           [0., 1.]])
    """
    tolerance = SAME_EIGENVALUE * max(1.0, float(np.abs(eigenvalues).max(initial=0)))
    starts = np.flatnonzero(np.diff(eigenvalues, prepend=-np.inf) > tolerance)
    spaces = np.split(vectors, starts[1:], axis=1)
    return np.concatenate([_orthonormal_in_order(space) for space in spaces], axis=1)


def _orthonormal_in_order(U: np.ndarray) -> np.ndarray:
    """Gram-Schmidt of the projections of the unit vectors onto the span of the columns of `U`.

    In the coordinates of `U` the projection of unit vector $i$ is row $i$ of `U`.
    """
    rows = U.copy()
    chosen = np.zeros((U.shape[1], U.shape[1]))
    for k in range(U.shape[1]):
        lengths = np.linalg.norm(rows, axis=1)
        first = int(np.argmax(lengths > NEGLIGIBLE))
        direction = rows[first] / lengths[first]
        direction -= chosen[:k].T @ (chosen[:k] @ direction)  # again, against rounding
        chosen[k] = direction / np.linalg.norm(direction)
        rows -= np.outer(rows @ chosen[k], chosen[k])
        rows[: first + 1] = 0
    return U @ chosen.T

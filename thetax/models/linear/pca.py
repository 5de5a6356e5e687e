r"""Principal component analysis (PCA) and low-rank approximation (Lecture 1).

PCA is the optimal linear autoencoder $x \mapsto DCx$ with code $z = Cx \in \mathbb{R}^m$, $m < d$.
As $\mathrm{rank}(DC) \le m$, the reconstructions form a matrix of rank $m$ at most, and the
truncated singular value decomposition is the nearest such matrix to the data (Eckart & Young 1936):
$C = U_m^\top$ and $D = U_m$ are optimal.

Rows are examples. Departs: the notes stack them as columns, $X = [x_1 \dots x_n]$, which is `xs.T`
here.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float, Num

from ...check import check
from ...core import Scalar, as_floats
from ...layers import Chain, Linear


class LowRank(NamedTuple):
    r"""The truncated SVD $X_r = U_r \Sigma_r V_r^\top$, and the discarded singular values."""

    matrix: Float[Array, "d n"]
    U: Float[Array, "d r"]
    s: Float[Array, " r"]
    Vt: Float[Array, "r n"]
    discarded: Float[Array, " q"]  # the singular values beyond the first r

    @property
    def error(self) -> Scalar:
        r"""Approximation error $\|X - X_r\|_F = \sqrt{\sum_{i > r} \sigma_i^2}$, the smallest of
        any matrix of this rank.
        """
        return jnp.linalg.norm(self.discarded)


def low_rank(X: Num[Any, "d n"], *, rank: int) -> LowRank:
    r"""Best approximation of rank $r$ by the truncated SVD, $\min_{\mathrm{rank}\, Y \le r}
    \|X - Y\|_F$ (Lecture 1).

    With $X = \sum_i \sigma_i u_i v_i^\top$, $\sigma_1 \ge \sigma_2 \ge \dots \ge 0$, it is
    $X_r = \sum_{i \le r} \sigma_i u_i v_i^\top$, which is unique iff $\sigma_r > \sigma_{r+1}$. It
    is also optimal in the spectral norm, with error $\sigma_{r+1}$. Eckart & Young 1936; Mirsky
    1960.

    >>> result = low_rank(jnp.array([[3.0, 0.0], [0.0, 4.0]]), rank=1)
    >>> result.matrix.round(4).tolist(), round(result.error.item(), 4)
    ([[0.0, 0.0], [0.0, 4.0]], 3.0)
    """
    X = as_matrix("low_rank", "X", X)
    expect_rank("low_rank", "rank", rank, min(X.shape))
    U, s, Vt = jnp.linalg.svd(X, full_matrices=False)
    U = U[:, :rank]
    Vt = Vt[:rank]
    return LowRank(U * s[None, :rank] @ Vt, U, s[:rank], Vt, s[rank:])


class PCA(NamedTuple):
    r"""Result of a principal component analysis: the optimal linear autoencoder, its mean loss (the
    value of `squared_error`), and all singular values of the data.
    """

    model: Chain  # encoder, decoder
    loss: Scalar
    singular_values: Float[Array, " q"]

    @property
    def explained_variance_ratio(self) -> Float[Array, " q"]:
        r"""Share of the variance along each component, $\sigma_i^2 / \sum_j \sigma_j^2$ (of the
        second moment, if the data were not centred).
        """
        return self.singular_values**2 / (self.singular_values**2).sum()


def principal_components(xs: Num[Any, "n d"], *, n_components: int, centred: bool = False) -> PCA:
    r"""Principal component analysis (PCA): the linear autoencoder with the smallest loss
    $\frac{1}{2n} \sum_i \|x_i - DCx_i\|^2$ and a code of $m$ = `n_components` numbers.

    $C = U_m^\top$ and $D = U_m$, where $u_1, \dots, u_m$ are the first left singular vectors of
    $X = [x_1 \dots x_n]$; the loss is $\frac{1}{2n} \sum_{i > m} \sigma_i^2$. Every optimum is
    $C = AU_m^\top$, $D = U_m A^{-1}$ with an invertible $A$, if $\sigma_m > \sigma_{m+1}$: gradient
    descent finds the subspace, not the directions. The lecture encodes $x$ itself. `centred=True`
    encodes $x - \bar x$, with a bias in each map: PCA as used in statistics, and the optimal affine
    autoencoder. (Lecture 1; Bourlard & Kamp 1988; Baldi & Hornik 1989.)

    >>> xs = jnp.array([[1.0, 2.0], [2.0, 4.0], [-3.0, -6.0]])
    >>> pca = principal_components(xs, n_components=1)
    >>> pca.model(jnp.array([5.0, 10.0])).round(3).tolist()
    [5.0, 10.0]
    >>> pca.explained_variance_ratio.round(3).tolist()
    [1.0, 0.0]
    """
    xs = as_matrix("principal_components", "xs", xs)
    expect_rank("principal_components", "n_components", n_components, min(xs.shape))
    centre = xs.mean(axis=0) if centred else jnp.zeros_like(xs[0])
    _, s, Ut = jnp.linalg.svd(xs - centre[None], full_matrices=False)
    C = Ut[:n_components]
    encoder, decoder = (
        (Linear(C, -C @ centre), Linear(C.T, centre)) if centred else (Linear(C), Linear(C.T))
    )
    loss = (s[n_components:] ** 2).sum() / (2 * len(xs))
    return PCA(Chain(encoder, decoder), loss, s)


def as_matrix(name: str, argument: str, X: Any) -> Float[Array, "d n"]:
    """Converts the argument to a matrix of floats; raises if it has another shape, is empty or, not
    being traced, holds NaN or infinity.
    """
    X = as_floats(f"{name}: {argument}", X)
    if X.ndim != 2 or not X.size:
        raise ValueError(
            f"{name}: {argument} must be a non-empty matrix with one example per row; got shape "
            f"{X.shape}. Flatten images with xs.reshape(len(xs), -1)."
        )
    if not isinstance(X, Tracer):
        with jax.ensure_compile_time_eval():
            check(X)
    return X


def expect_rank(name: str, argument: str, rank: Any, max_rank: int) -> None:
    """Raises if a rank is below 1 or above what the shape of the matrix allows.

    >>> expect_rank("low_rank", "rank", 5, 3)
    Traceback (most recent call last):
    ValueError: low_rank: rank must be an integer from 1 to 3, the smaller side of the matrix; ...
    """
    if isinstance(rank, bool) or not isinstance(rank, int) or not 1 <= rank <= max_rank:
        raise ValueError(
            f"{name}: {argument} must be an integer from 1 to {max_rank}, the smaller side of the "
            f"matrix; got {rank}."
        )

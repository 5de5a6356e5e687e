r"""Low rank (Lecture 1): the best matrix of rank $r$, and the best linear autoencoder, which is the
same thing.

A linear autoencoder $x \mapsto DCx$ codes $x \in \mathbb{R}^d$ as $z = Cx \in \mathbb{R}^m$,
$m < d$. As $\mathrm{rank}(DC) \le m$, what it makes of the data has rank $m$ at most, and among
such matrices the truncated singular value decomposition is nearest to the data (Eckart & Young
1936): $C = U_m^\top$ and $D = U_m$ are best.

Rows are examples. Departs: the notes stack them as columns, $X = [x_1 \dots x_n]$, which is `xs.T`
here.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float, Num

from ...check import check
from ...core import Scalar, floats
from ...layers import Chain, Linear


class LowRank(NamedTuple):
    r"""$X_r = U_r \Sigma_r V_r^\top$, its three parts, and the singular values left out."""

    matrix: Float[Array, "d n"]
    U: Float[Array, "d r"]
    s: Float[Array, " r"]
    Vt: Float[Array, "r n"]
    rest: Float[Array, " q"]

    @property
    def error(self) -> Scalar:
        r"""$\|X - X_r\|_F = \sqrt{\sum_{i > r} \sigma_i^2}$, the least of any matrix of this
        rank.
        """
        return jnp.linalg.norm(self.rest)


def low_rank(X: Num[Any, "d n"], *, rank: int) -> LowRank:
    r"""The nearest matrix of rank $r$, $\min_{\mathrm{rank}\, Y \le r} \|X - Y\|_F$ (Lecture 1).

    With $X = \sum_i \sigma_i u_i v_i^\top$, $\sigma_1 \ge \sigma_2 \ge \dots \ge 0$, it is
    $X_r = \sum_{i \le r} \sigma_i u_i v_i^\top$, and the only one iff $\sigma_r > \sigma_{r+1}$. It
    is nearest in the spectral norm too, at distance $\sigma_{r+1}$. Eckart & Young 1936; Mirsky
    1960.

    >>> found = low_rank(jnp.array([[3.0, 0.0], [0.0, 4.0]]), rank=1)
    >>> found.matrix.round(4).tolist(), round(found.error.item(), 4)
    ([[0.0, 0.0], [0.0, 4.0]], 3.0)
    """
    X = as_matrix("low_rank", "X", X)
    expect_rank("low_rank", "rank", rank, min(X.shape))
    U, s, Vt = jnp.linalg.svd(X, full_matrices=False)
    U = U[:, :rank]
    Vt = Vt[:rank]
    return LowRank(U * s[None, :rank] @ Vt, U, s[:rank], Vt, s[rank:])


class PCA(NamedTuple):
    r"""The best linear autoencoder; its mean loss, which `squared_error` gives too; and all
    singular values.
    """

    model: Chain  # the encoder, then the decoder
    loss: Scalar
    singular: Float[Array, " q"]

    @property
    def shares(self) -> Float[Array, " q"]:
        r"""$\sigma_i^2 / \sum_j \sigma_j^2$, how much of the data each direction holds."""
        return self.singular**2 / (self.singular**2).sum()


def principal_components(xs: Num[Any, "n d"], *, width: int, centred: bool = False) -> PCA:
    r"""The linear autoencoder of least loss $\frac{1}{2n} \sum_i \|x_i - DCx_i\|^2$, with a code of
    width $m$.

    $C = U_m^\top$ and $D = U_m$, where $u_1, \dots, u_m$ are the first left singular vectors of
    $X = [x_1 \dots x_n]$; the loss is $\frac{1}{2n} \sum_{i > m} \sigma_i^2$. Every optimum is
    $C = AU_m^\top$, $D = U_m A^{-1}$ with an invertible $A$, if $\sigma_m > \sigma_{m+1}$: descent
    finds the space, not the directions. The lecture codes $x$ itself. `centred` codes $x - \bar x$,
    with a bias to each map: the principal components of statistics, and the least loss of an affine
    autoencoder. (Lecture 1; Bourlard & Kamp 1988; Baldi & Hornik 1989.)

    >>> xs = jnp.array([[1.0, 2.0], [2.0, 4.0], [-3.0, -6.0]])
    >>> found = principal_components(xs, width=1)
    >>> found.model(jnp.array([5.0, 10.0])).round(3).tolist(), found.shares.round(3).tolist()
    ([5.0, 10.0], [1.0, 0.0])
    """
    xs = as_matrix("principal_components", "xs", xs)
    expect_rank("principal_components", "width", width, min(xs.shape))
    centre = xs.mean(axis=0) if centred else jnp.zeros_like(xs[0])
    _, s, Ut = jnp.linalg.svd(xs - centre[None], full_matrices=False)
    C = Ut[:width]
    encoder, decoder = (
        (Linear(C, -C @ centre), Linear(C.T, centre)) if centred else (Linear(C), Linear(C.T))
    )
    return PCA(Chain(encoder, decoder), (s[width:] ** 2).sum() / (2 * len(xs)), s)


def as_matrix(name: str, argument: str, X: Any) -> Float[Array, "d n"]:
    """The argument as a matrix of finite floats, or refused; silent about what is only traced."""
    X = floats(f"{name}: {argument}", X)
    if X.ndim != 2 or not X.size:
        raise ValueError(
            f"{name}: {argument} must be a matrix, one row an example, and not empty; got shape "
            f"{X.shape}. Flatten images with xs.reshape(len(xs), -1)."
        )
    if not isinstance(X, Tracer):
        with jax.ensure_compile_time_eval():
            check(X)
    return X


def expect_rank(name: str, argument: str, rank: Any, most: int) -> None:
    """Refuses a rank below 1 or above what the shape allows.

    >>> expect_rank("low_rank", "rank", 5, 3)
    Traceback (most recent call last):
    ValueError: low_rank: rank must be a whole number from 1 to 3, the least side of the matrix; ...
    """
    if isinstance(rank, bool) or not isinstance(rank, int) or not 1 <= rank <= most:
        raise ValueError(
            f"{name}: {argument} must be a whole number from 1 to {most}, the least side of the "
            f"matrix; got {rank}."
        )

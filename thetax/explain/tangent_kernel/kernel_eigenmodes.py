r"""Eigendecomposition of a kernel matrix for linear estimators (§9.2): $K = V \Lambda V^\top$.

Every estimator that is linear in the targets and built from $K$ is a spectral filter, a function
$s$ of the eigenvalues: predictions are $f(x) = f_0(x) + k(x)^\top a$ with
$a = V s(\Lambda) V^\top (y - f_0)$. Interpolation has $s = 1/\lambda$, ridge regression
$1/(\lambda + r)$, gradient flow $(1 - e^{-\lambda t})/\lambda$.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


@dataclass(frozen=True)
class KernelEigenmodes:
    r"""Eigenvalues in increasing order and clipped at 0, eigenvectors as columns, and the
    coefficients $V^\top (y - f_0)$ of the residual, in float64.

    The kernel of several outputs is either one kernel for all of them, `n n`, or the kernel of all
    pairs of outputs, `n n o o`. Eigenvalues up to `rank_tolerance` are 0 up to rounding.
    """

    eigenvalues: Float[np.ndarray, " k"]
    eigenvectors: Float[np.ndarray, "k k"]
    residual: Float[np.ndarray, "k c"]
    shape: tuple[int, ...]  # of the outputs of all examples
    rank_tolerance: float

    def inverse(self, ridge: float = 0.0) -> Float[np.ndarray, " k"]:
        r"""The filter $1/(\lambda + r)$, with 0 for eigenvalues below the numerical rank.

        Warns if a part of the targets lies along such eigenvectors, because it is not fitted.
        """
        if not 0 <= ridge < np.inf:
            raise ValueError(f"ridge must be finite and >= 0; got {ridge}.")
        nonzero = self.eigenvalues + ridge > self.rank_tolerance
        norm = np.linalg.norm(self.residual)
        lost = np.linalg.norm(self.residual[~nonzero])
        if lost > 1e-6 * norm:
            warnings.warn(
                f"{(~nonzero).sum()} of {len(nonzero)} eigenvalues of the kernel are zero up to "
                "rounding (are there duplicate examples?); the part of the targets along their "
                f"eigenvectors, of norm {lost:.3g} of {norm:.3g}, is not fitted. Remove "
                "duplicates, or use a ridge.",
                stacklevel=3,
            )
        return np.divide(
            1.0, self.eigenvalues + ridge, out=np.zeros_like(self.eigenvalues), where=nonzero
        )

    def coefficients(self, s: Float[np.ndarray, "*t k"]) -> Float[np.ndarray, "..."]:
        r"""$a = V s(\Lambda) V^\top (y - f_0)$."""
        return np.reshape(
            self.eigenvectors @ (s[..., None] * self.residual), (*s.shape[:-1], *self.shape)
        )

    def training_change(self, s: Float[np.ndarray, "*t k"]) -> Float[np.ndarray, "..."]:
        r"""$K a$, the change of the outputs at the training examples."""
        return self.coefficients(self.eigenvalues * s)


def kernel_eigenmodes(K: Float[Array, "n n ..."], ys: Any, f: Any) -> KernelEigenmodes:
    """Eigendecomposition of a kernel matrix, and the residual `ys - f` of the current outputs `f`
    along each eigenvector.
    """
    f = np.asarray(f, np.float64)
    ys = np.asarray(ys, np.float64)
    if ys.shape != f.shape:
        raise ValueError(f"ys has shape {ys.shape}; expected that of the outputs, {f.shape}.")
    if not np.isfinite(ys).all():
        raise ValueError("ys contains NaN or infinity; drop or impute these rows first.")
    n = len(f)
    n_outputs = f[0].size
    if K.shape not in ((n, n), (n, n, n_outputs, n_outputs)):
        raise ValueError(
            f"kernel: expected a matrix of shape {(n, n)} or {(n, n, n_outputs, n_outputs)}; got "
            f"{K.shape}."
        )
    # one kernel for all outputs acts on each column of the residual; a kernel of all pairs of
    # outputs becomes one matrix over pairs (example, output)
    o = n_outputs if K.ndim == 4 else 1
    matrix = (
        np.asarray(K, np.float64).reshape(n, n, o, o).transpose(0, 2, 1, 3).reshape(n * o, n * o)
    )
    eigenvalues, V = np.linalg.eigh(matrix)
    rank_tolerance = len(eigenvalues) * float(jnp.finfo(K.dtype).eps) * max(eigenvalues[-1], 0.0)
    residual = V.T @ (ys - f).reshape(n * o, -1)
    return KernelEigenmodes(np.maximum(eigenvalues, 0.0), V, residual, f.shape, rank_tolerance)


def predicted_change(
    k: Float[Array, "m n ..."], a: Float[np.ndarray, "t n *o"]
) -> Float[np.ndarray, "t m *o"]:
    r"""$k(x, X)\, a$, the change of the prediction at each $x$, for each time."""
    sums = "mn,tno->tmo" if k.ndim == 2 else "mnoq,tnq->tmo"
    change = np.einsum(sums, np.asarray(k, np.float64), a.reshape(*a.shape[:2], -1), optimize=True)
    return change.reshape(len(a), len(k), *a.shape[2:])

r"""Squared error under a kernel, taken apart: $K = V \Lambda V^\top$, and along each column of $V$
one number.

Whatever is linear in the observations and built from $K$ is a function $s$ of the eigenvalues:
predictions are $f(x) = f_0(x) + k(x)^\top a$ with $a = V s(\Lambda) V^\top (y - f_0)$.
Interpolation has $s = 1/\lambda$, ridge $1/(\lambda + r)$, gradient flow
$(1 - e^{-\lambda t})/\lambda$.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


@dataclass(frozen=True)
class Modes:
    r"""Eigenvalues in increasing order, none negative, their vectors as columns, and
    $V^\top (y - f_0)$, in float64.

    The kernel of several outputs is either one for them all, `n n`, or one of all pairs, `n n o o`.
    `least` is what rounding cannot tell from 0.
    """

    values: Float[np.ndarray, " k"]
    vectors: Float[np.ndarray, "k k"]
    residual: Float[np.ndarray, "k c"]
    shape: tuple[int, ...]  # of the outputs of all examples
    least: float

    def inverse(self, ridge: float = 0.0) -> Float[np.ndarray, " k"]:
        r"""$1/(\lambda + r)$, and 0 where that is not to be known."""
        if not 0 <= ridge < np.inf:
            raise ValueError(f"ridge must be finite and not negative; got {ridge}.")
        known = self.values + ridge > self.least
        lost = np.linalg.norm(self.residual[~known])
        if lost > 1e-6 * np.linalg.norm(self.residual):
            warnings.warn(
                f"{(~known).sum()} of {len(known)} eigenvalues of the kernel cannot be told from 0 "
                f"(are examples the same?); what lies along them, {lost:.3g} of "
                f"{np.linalg.norm(self.residual):.3g}, is not learnt. Drop such examples, or solve "
                "with a ridge.",
                stacklevel=3,
            )
        return np.divide(1.0, self.values + ridge, out=np.zeros_like(self.values), where=known)

    def coefficients(self, s: Float[np.ndarray, "*t k"]) -> Float[np.ndarray, "..."]:
        r"""$a = V s(\Lambda) V^\top (y - f_0)$."""
        return np.reshape(
            self.vectors @ (s[..., None] * self.residual), (*s.shape[:-1], *self.shape)
        )

    def fitted(self, s: Float[np.ndarray, "*t k"]) -> Float[np.ndarray, "..."]:
        r"""$K a$, by which the outputs at the examples themselves have changed."""
        return self.coefficients(self.values * s)


def modes(K: Float[Array, "n n ..."], ys: Any, f: Any) -> Modes:
    """The modes of a kernel matrix, and what is to be learnt along each: from outputs `f` to
    observations `ys`.
    """
    f = np.asarray(f, np.float64)
    ys = np.asarray(ys, np.float64)
    if ys.shape != f.shape:
        raise ValueError(f"ys has shape {ys.shape}; expected that of the outputs, {f.shape}.")
    if not np.isfinite(ys).all():
        raise ValueError("ys: expected finite numbers; drop or fill such rows first.")
    n = len(f)
    size = f[0].size
    if K.shape not in ((n, n), (n, n, size, size)):
        raise ValueError(
            f"kernel: expected a matrix of shape {(n, n)} or {(n, n, size, size)}; got {K.shape}."
        )
    across = size if K.ndim == 4 else 1
    flat = (
        np.asarray(K, np.float64)
        .reshape(n, n, across, across)
        .transpose(0, 2, 1, 3)
        .reshape(n * across, n * across)
    )
    values, V = np.linalg.eigh(flat)
    least = len(values) * float(jnp.finfo(K.dtype).eps) * max(values[-1], 0.0)
    return Modes(np.maximum(values, 0.0), V, V.T @ (ys - f).reshape(n * across, -1), f.shape, least)


def moved(
    k: Float[Array, "m n ..."], a: Float[np.ndarray, "t n *o"]
) -> Float[np.ndarray, "t m *o"]:
    r"""$k(x, X)\, a$, by which what is predicted at each $x$ has changed, for each time."""
    along = "mn,tno->tmo" if k.ndim == 2 else "mnoq,tnq->tmo"
    found = np.einsum(along, np.asarray(k, np.float64), a.reshape(*a.shape[:2], -1), optimize=True)
    return found.reshape(len(a), len(k), *a.shape[2:])

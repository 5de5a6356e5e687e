r"""Jitter: a small multiple of the identity, added to a covariance matrix that rounding has made
singular.

The Cholesky factorisation is first tried without jitter. If a pivot is at the level of rounding
error, $10^{-12}$ times the mean variance is added to the diagonal, then $10^{-10}$, and so on up to
$10^{-4}$. If that fails too, the data or the kernel are at fault and an error is raised. The jitter
is part of every result, and a `JitterWarning` reports it.
"""

import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Float

from .float64 import Numbers, Scalar

JITTER_FRACTIONS = (1e-12, 1e-10, 1e-8, 1e-6, 1e-4)  # of the mean variance


class JitterWarning(UserWarning):
    """Jitter was added to the diagonal of a covariance matrix."""


class CholeskyFactor(NamedTuple):
    r"""Cholesky factor, $LL^\top = K + \epsilon I$, and the jitter $\epsilon$: usually 0,
    infinite if the factorisation failed.
    """

    L: Float[Numbers, "n n"]
    jitter: Scalar


@jax.custom_jvp
def cholesky_with_jitter(K: Float[Numbers, "n n"]) -> CholeskyFactor:
    r"""Cholesky factor of $K + \epsilon I$ with the smallest jitter $\epsilon$ that makes it well
    conditioned.

    Well conditioned means that every pivot $L_{ii}^2$ exceeds $8\sqrt n$ times the machine epsilon
    times the mean variance. Derivatives treat the jitter as a constant.

    >>> L, jitter = cholesky_with_jitter(jnp.array([[4.0, 2.0], [2.0, 2.0]]))
    >>> L.tolist(), float(jitter)
    ([[2.0, 0.0], [1.0, 1.0]], 0.0)
    """
    without_jitter = _cholesky(K)
    variance = jnp.diagonal(K).mean()
    good = _well_conditioned(without_jitter, variance)
    jitter = jax.lax.cond(good, jnp.zeros_like, lambda v: _smallest_jitter(K, v), variance)
    L = jax.lax.cond(good, lambda K: without_jitter, lambda K: _cholesky(_add_jitter(K, jitter)), K)
    return CholeskyFactor(L, jitter)


@cholesky_with_jitter.defjvp
def _tangent(primals, tangents):
    r"""Forward derivative $dL = L\,\Phi(L^{-1}\,dK\,L^{-\top})$, where $\Phi$ takes the lower
    triangle and half of the diagonal.
    """
    factor = cholesky_with_jitter(*primals)
    half = solve_triangular(factor.L, tangents[0], lower=True)
    inner = solve_triangular(factor.L, half.T, lower=True)
    dL = factor.L @ (jnp.tril(inner) - jnp.diag(jnp.diagonal(inner)) / 2)
    return factor, CholeskyFactor(dL, jnp.zeros_like(factor.jitter))


def _cholesky(K: Float[Numbers, "n n"]) -> Float[Numbers, "n n"]:
    # Kernel matrices are symmetric already.
    return jax.lax.linalg.cholesky(jnp.asarray(K), symmetrize_input=False)


def _add_jitter(K: Float[Numbers, "n n"], jitter: Any) -> Float[Numbers, "n n"]:
    return K + jnp.diag(jnp.full(len(K), jitter, K.dtype))


def _well_conditioned(L: Float[Numbers, "n n"], variance: Scalar) -> Any:
    threshold = 8 * np.sqrt(len(L)) * jnp.finfo(L.dtype).eps * variance
    return (jnp.square(jnp.diagonal(L)) > threshold).all()  # False if a pivot is NaN


def _smallest_jitter(K: Float[Numbers, "n n"], variance: Scalar) -> Scalar:
    fractions = jnp.asarray([*JITTER_FRACTIONS, np.inf], K.dtype)

    def fails(index):
        return ~_well_conditioned(_cholesky(_add_jitter(K, fractions[index] * variance)), variance)

    keep_trying = lambda index: (index < len(JITTER_FRACTIONS)) & fails(index)
    index = jax.lax.while_loop(keep_trying, lambda index: index + 1, jnp.zeros((), jnp.int32))
    return jnp.where(
        index < len(JITTER_FRACTIONS), fractions[index] * jnp.abs(variance), jnp.inf
    ).astype(K.dtype)


def check_jitter(name: str, jitter: Any) -> None:
    """Warns if jitter was added; raises `ValueError` if the factorisation failed.

    >>> check_jitter("condition", jnp.array(jnp.inf))
    Traceback (most recent call last):
    ValueError: condition: the covariance is not positive definite, even with 0.0001 of its mean ...
    """
    jitter = float(jitter)
    if not np.isfinite(jitter):
        raise ValueError(
            f"{name}: the covariance is not positive definite, even with "
            f"{JITTER_FRACTIONS[-1]:g} of its mean variance added to the diagonal. Likely causes: "
            "duplicate points without noise, an extreme hyperparameter, or a function that is no "
            "kernel. Give the process some noise, or drop the duplicates."
        )
    if jitter > 0:
        warnings.warn(
            f"{name}: added {jitter:.1e} to the diagonal of a covariance that is numerically "
            "singular. Likely causes: duplicate or nearly equal points and little noise. Give the "
            "process more noise.",
            JitterWarning,
            stacklevel=4,
        )

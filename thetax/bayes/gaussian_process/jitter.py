r"""The jitter: what is added to the diagonal of a covariance that rounding has made singular, and
never in silence.

A covariance is factorised as it is, if it can be. If a pivot is no more than rounding, $10^{-12}$
of the mean variance is added to every diagonal entry, then $10^{-10}$, and so on to $10^{-4}$.
Beyond that there is something wrong with the data or the kernel, and it is refused. How much was
added is part of every result, and a `JitterWarning` says it.
"""

import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Float

from .float64 import Numbers, Scalar

SHARES = (1e-12, 1e-10, 1e-8, 1e-6, 1e-4)  # of the mean variance


class JitterWarning(UserWarning):
    """Something was added to the diagonal of a covariance."""


class Factor(NamedTuple):
    r"""$LL^\top = K + \epsilon I$, with $\epsilon$ the jitter: 0 as a rule, infinite where nothing
    helped.
    """

    L: Float[Numbers, "n n"]
    jitter: Scalar


@jax.custom_jvp
def factorise(K: Float[Numbers, "n n"]) -> Factor:
    r"""Cholesky's $L$ of $K + \epsilon I$, with the least $\epsilon$ of the ladder that makes it
    sound.

    Sound means that no pivot $L_{ii}^2$ is below $8\sqrt n$ units of rounding of the mean variance.
    Where it is differentiated, the jitter counts as a constant.

    >>> L, jitter = factorise(jnp.array([[4.0, 2.0], [2.0, 2.0]]))
    >>> L.tolist(), float(jitter)
    ([[2.0, 0.0], [1.0, 1.0]], 0.0)
    """
    first = _cholesky(K)
    variance = jnp.diagonal(K).mean()
    good = _sound(first, variance)
    jitter = jax.lax.cond(good, jnp.zeros_like, lambda v: _search(K, v), variance)
    L = jax.lax.cond(good, lambda K: first, lambda K: _cholesky(_raised(K, jitter)), K)
    return Factor(L, jitter)


@factorise.defjvp
def _tangent(primals, tangents):
    r"""$dL = L\,\Phi(L^{-1}\,dK\,L^{-\top})$, with $\Phi$ the lower triangle and half of the
    diagonal.
    """
    found = factorise(*primals)
    half = solve_triangular(found.L, tangents[0], lower=True)
    inner = solve_triangular(found.L, half.T, lower=True)
    dL = found.L @ (jnp.tril(inner) - jnp.diag(jnp.diagonal(inner)) / 2)
    return found, Factor(dL, jnp.zeros_like(found.jitter))


def _cholesky(K: Float[Numbers, "n n"]) -> Float[Numbers, "n n"]:
    return jax.lax.linalg.cholesky(
        jnp.asarray(K), symmetrize_input=False
    )  # a kernel is symmetric as it is


def _raised(K: Float[Numbers, "n n"], jitter: Any) -> Float[Numbers, "n n"]:
    return K + jnp.diag(jnp.full(len(K), jitter, K.dtype))


def _sound(L: Float[Numbers, "n n"], variance: Scalar) -> Any:
    least = 8 * np.sqrt(len(L)) * jnp.finfo(L.dtype).eps * variance
    return (jnp.square(jnp.diagonal(L)) > least).all()  # false of NaN


def _search(K: Float[Numbers, "n n"], variance: Scalar) -> Scalar:
    shares = jnp.asarray([*SHARES, np.inf], K.dtype)

    def unsound(index):
        return ~_sound(_cholesky(_raised(K, shares[index] * variance)), variance)

    going_on = lambda index: (index < len(SHARES)) & unsound(index)
    index = jax.lax.while_loop(going_on, lambda index: index + 1, jnp.zeros((), jnp.int32))
    return jnp.where(index < len(SHARES), shares[index] * jnp.abs(variance), jnp.inf).astype(
        K.dtype
    )


def tell(name: str, jitter: Any) -> None:
    """Warns of a jitter, and refuses an infinite one; says nothing of none.

    >>> tell("condition", jnp.array(jnp.inf))
    Traceback (most recent call last):
    ValueError: condition: the covariance is not positive definite, even with 0.0001 of its mean ...
    """
    jitter = float(jitter)
    if not np.isfinite(jitter):
        raise ValueError(
            f"{name}: the covariance is not positive definite, even with {SHARES[-1]:g} of its "
            "mean variance added. Likely causes: duplicate points and no noise, a hyper-parameter "
            "out of all bounds, or a function that is no kernel. Give the process some noise, or "
            "drop the duplicates."
        )
    if jitter > 0:
        warnings.warn(
            f"{name}: added {jitter:.1e} to the diagonal of a covariance that is singular to "
            "rounding. Likely causes: duplicate or very near points, and little noise. Give the "
            "process more noise.",
            JitterWarning,
            stacklevel=4,
        )

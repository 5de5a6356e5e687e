r"""p-norms of perturbations (§13.1) for any $p$, and the direction of steepest ascent in them.

$$\|x\|_p = \Big(\sum_i |x_i|^p\Big)^{1/p}, \qquad \max_{\|\eta\|_p \le 1} \langle w, \eta \rangle =
\|w\|_q, \qquad
\frac1p + \frac1q = 1$$

The balls `L1`, `L2` and `Linf` have methods for $p$ = 1, 2 and infinity.
"""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..core import Scalar


def p_norm(x: Float[Array, "*s"], p: float | int) -> Scalar:
    r"""$\|x\|_p$ for $p \ge 1$ or infinity; for $p = 0$ the number of nonzero components, which is
    not a norm (§13.1).

    Departs: the notes print $\sum_i x_i^p$, without absolute values.

    >>> round(p_norm(jnp.array([1.0, -2.0]), 3).item(), 4), p_norm(jnp.array([0.0, -2.0]), 0).item()
    (2.0801, 1.0)
    """
    if p == 0:
        return (x != 0).sum().astype(x.dtype)
    _check_power("p_norm", p)
    size = jnp.abs(x).max()
    if p == math.inf:
        return size
    unit = jnp.abs(x) / jnp.where(size > 0, size, 1.0)  # so that powers do not overflow
    return size * (unit**p).sum() ** (1 / p)


def p_steepest(w: Float[Array, "*s"], p: float | int) -> Float[Array, "*s"]:
    r"""$\arg\max_{\|\eta\|_p \le 1} \langle w, \eta \rangle = \mathrm{sgn}(w) \odot |w|^{q-1} /
    \|w\|_q^{q-1}$; for $p = 1$ a single component, for infinity all by the same amount (§13.1).

    >>> (
    ...     p_steepest(jnp.array([3.0, -4.0]), 2).round(3).tolist(),
    ...     p_steepest(jnp.array([3.0, -4.0]), 1).tolist(),
    ... )
    ([0.600..., -0.800...], [0.0, -1.0])
    """
    _check_power("p_steepest", p)
    if p == math.inf:
        return jnp.sign(w)
    if p == 1:
        flat = w.ravel()
        at = jnp.argmax(jnp.abs(flat))
        return jnp.zeros_like(flat).at[at].set(jnp.sign(flat[at])).reshape(w.shape)
    q = p / (p - 1)
    size = p_norm(w, q)
    return jnp.sign(w) * (jnp.abs(w) / jnp.where(size > 0, size, 1.0)) ** (q - 1)


def _check_power(name: str, p: float | int) -> None:
    if not p >= 1:
        raise ValueError(
            f"{name}: p must be >= 1; got {p}. p_norm also takes p=0, the number of nonzero "
            "components."
        )

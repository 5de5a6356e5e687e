r"""The modern Hopfield layer (§1.4): an associative memory of real vectors whose update step is
attention.

$$E(\xi) = -\frac1\beta \log \sum_{t=1}^n e^{\beta x_t^\top \xi} + \tfrac12 \|\xi\|^2 + \frac1\beta
\log n
  + \tfrac12 \max_t \|x_t\|^2, \qquad \xi \leftarrow \xi - \nabla E(\xi) = X^\top
  \mathrm{softmax}(\beta X \xi)$$
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ...core import Scalar, as_floats, expect_shape, upcast
from ..initialise import Initialiser, lecun
from ..linear import matvec


def _as_floats(x: Any) -> Any:
    return as_floats("ModernHopfield", x)


class ModernHopfield(eqx.Module):
    r"""Modern Hopfield network with the patterns, the rows of $X$, as parameters; a call with a
    query recalls a pattern (Ramsauer et al. 2021).

    For large $\beta$ the result is the nearest pattern, for small $\beta$ an average of many.
    Mapped over queries $Q$ a step is attention, $\mathrm{softmax}(\beta QX^\top) X$, usually with
    $\beta = 1/\sqrt{d}$; a `Linear` layer after it gives the values $XW_V$. It is differentiable,
    so the patterns can be trained.

    >>> memory = ModernHopfield(jnp.array([[1.0, 1.0], [-1.0, 1.0]]), beta=10.0)
    >>> memory(jnp.array([0.8, 0.3])).round(3).tolist()
    [1.0, 1.0]
    """

    X: Float[Array, "n d"] = eqx.field(converter=_as_floats)
    beta: float = eqx.field(static=True)
    steps: int = eqx.field(static=True, default=1)

    @classmethod
    def init(
        cls,
        n: int,
        d: int,
        *,
        beta: float,
        steps: int = 1,
        initialiser: Initialiser = lecun,
        key: PRNGKeyArray,
    ) -> "ModernHopfield":
        """Draws $n$ patterns of width $d$ with the initialiser."""
        return cls(initialiser(key, (n, d)), beta, steps)

    def __check_init__(self):
        if self.X.ndim != 2 or 0 in self.X.shape:
            raise ValueError(
                f"ModernHopfield: X must hold the patterns as rows, (n, d); got {self.X.shape}."
            )
        if not self.beta > 0 or self.steps < 1:
            raise ValueError(
                f"ModernHopfield: beta must be positive and steps >= 1; got beta={self.beta} "
                f"and steps={self.steps}."
            )

    def update(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        r"""One step $X^\top \mathrm{softmax}(\beta X \xi)$, which never increases the energy."""
        expect_shape("ModernHopfield", x, self.X.shape[1:])
        weights = jax.nn.softmax(self.beta * upcast(matvec(self.X, x))).astype(self.X.dtype)
        return matvec(self.X.T, weights)

    def energy(self, x: Float[Array, " d"]) -> Scalar:
        r"""The energy $E(\xi)$, between 0 and $2 \max_t \|x_t\|^2$ in the convex hull of the
        patterns.
        """
        expect_shape("ModernHopfield", x, self.X.shape[1:])
        log_mean = jax.nn.logsumexp(self.beta * matvec(self.X, x)) - jnp.log(len(self.X))
        return -log_mean / self.beta + (jnp.vdot(x, x) + jnp.square(self.X).sum(axis=1).max()) / 2

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return jax.lax.scan(lambda x, _: (self.update(x), None), x, length=self.steps)[0]

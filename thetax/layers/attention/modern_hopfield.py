r"""The modern Hopfield layer (§1.4): a memory of real vectors, and one step of it is attention.

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

from ...core import Scalar, expect_shape, floats, wide
from ..initialise import Initialiser, lecun
from ..linear import dense


def _numbers(x: Any) -> Any:
    return floats("ModernHopfield", x)


class ModernHopfield(eqx.Module):
    r"""Patterns as parameters, the rows of $X$; called on a query, it recalls (Ramsauer et al.
    2021).

    With $\beta$ large it answers with the nearest pattern, with $\beta$ small with an average of
    many. Mapped over queries $Q$ a step is attention, $\mathrm{softmax}(\beta QX^\top) X$ with
    $\beta = 1/\sqrt{d}$ by custom; a `Linear` behind it makes the values $XW_V$ of it. Gradients
    pass, so the patterns can be learnt.

    >>> memory = ModernHopfield(jnp.array([[1.0, 1.0], [-1.0, 1.0]]), beta=10.0)
    >>> memory(jnp.array([0.8, 0.3])).round(3).tolist()
    [1.0, 1.0]
    """

    X: Float[Array, "n d"] = eqx.field(converter=_numbers)
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
        """Draws $n$ patterns of width $d$ from the law."""
        return cls(initialiser(key, (n, d)), beta, steps)

    def __check_init__(self):
        if self.X.ndim != 2 or 0 in self.X.shape:
            raise ValueError(
                f"ModernHopfield: X holds patterns as rows, (n, d); got {self.X.shape}."
            )
        if not self.beta > 0 or self.steps < 1:
            raise ValueError(
                f"ModernHopfield: beta must be positive and steps at least 1; got {self.beta} and "
                f"{self.steps}."
            )

    def update(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        r"""One step, $X^\top \mathrm{softmax}(\beta X \xi)$, which never raises the energy."""
        expect_shape("ModernHopfield", x, self.X.shape[1:])
        attention = jax.nn.softmax(self.beta * wide(dense(self.X, x))).astype(self.X.dtype)
        return dense(self.X.T, attention)

    def energy(self, x: Float[Array, " d"]) -> Scalar:
        r"""$E(\xi)$, between 0 and $2 \max_t \|x_t\|^2$ in the patterns' hull."""
        expect_shape("ModernHopfield", x, self.X.shape[1:])
        mixed = jax.nn.logsumexp(self.beta * dense(self.X, x)) - jnp.log(len(self.X))
        return -mixed / self.beta + (jnp.vdot(x, x) + jnp.square(self.X).sum(axis=1).max()) / 2

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return jax.lax.scan(lambda x, _: (self.update(x), None), x, length=self.steps)[0]

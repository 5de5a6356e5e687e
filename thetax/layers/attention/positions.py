r"""Where in the sequence (§6.3): attention alone cannot tell, so the place of a token is written
into its vector, or into the scores.

- `Sinusoidal`: adds waves of the place, $\sin(t\omega_i)$ and $\cos(t\omega_i)$ with $\omega_i =
  C^{-2i/d}$
- `Learned`: adds a row of a table
- `Rotary`: turns queries and keys by angles $t\omega_i$, so that scores depend on $t - s$
- `ALiBi`: lowers the score of what is far, in proportion to the distance

The first two act on the input of a network, the others inside every attention.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...core import expect_shape
from ..initialise import Initialiser, gaussian

SMALL = gaussian(0.02)


def frequencies(d: int, base: float = 1e4) -> Float[np.ndarray, " k"]:
    r"""$\omega_i = C^{-2i/d}$ for $i = 0, \dots, d/2 - 1$, from 1 down to nearly $1/C$ (§6.3).

    Departs: the notes print $C^{k/d}$, whose waves are too short to see, and give every sine and
    cosine a frequency of its own, so that a shift is no rotation.

    >>> frequencies(4).tolist()
    [1.0, 0.01]
    """
    if d < 2 or d % 2:
        raise ValueError(
            f"frequencies: sines and cosines come in pairs, so d must be even; got {d}."
        )
    return float(base) ** (-np.arange(0, d, 2) / d)


class Sinusoidal(eqx.Module):
    r"""$x_t + p_t$ with $p_{t,2i} = \sin(t\omega_i)$ and $p_{t,2i+1} = \cos(t\omega_i)$ (§6.3;
    Vaswani et al. 2017).

    $\|p_t\|^2 = d/2$, and $p_{t+s} = M_s p_t$ with one rotation $M_s$ for all $t$.

    >>> Sinusoidal().table(3, 4).round(1)[0].tolist()
    [0.0, 1.0, 0.0, 1.0]
    >>> jnp.square(Sinusoidal().table(3, 4)).sum(axis=1).round(3).tolist()
    [2.0, 2.0, 2.0]
    """

    base: float = eqx.field(static=True, default=1e4)

    def table(self, t: int, d: int, *, first: Int[Array, ""] | int = 0) -> Float[Array, "t d"]:
        """$P$, from the place `first` on."""
        places = jnp.arange(t)
        places = (places + jnp.asarray(first, places.dtype)).astype(jnp.zeros(()).dtype)
        angles = places[:, None] * jnp.asarray(frequencies(d, self.base), places.dtype)[None]
        return jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=2).reshape(t, d)

    def __call__(
        self, x: Float[Array, "t d"], *, first: Int[Array, ""] | int = 0
    ) -> Float[Array, "t d"]:
        return x + self.table(*x.shape, first=first).astype(x.dtype)


class Learned(eqx.Module):
    r"""$x_t + P_t$ with a row of $\theta$ for each place; there are no more places than rows
    (§6.3).

    >>> Learned(jnp.array([[1.0], [2.0]]))(jnp.zeros((2, 1))).ravel().tolist()
    [1.0, 2.0]
    """

    P: Float[Array, "m d"]

    @classmethod
    def init(
        cls, length: int, d: int, *, initialiser: Initialiser = SMALL, key: PRNGKeyArray
    ) -> "Learned":
        """Draws `length` rows."""
        return cls(initialiser(key, (length, d)))

    def __call__(
        self, x: Float[Array, "t d"], *, first: Int[Array, ""] | int = 0
    ) -> Float[Array, "t d"]:
        expect_shape("Learned", x, ("t", self.P.shape[1]))
        last = len(x) + (first if isinstance(first, int) else 0)
        if last > len(self.P):
            raise ValueError(
                f"Learned: there are {len(self.P)} places, but the sequence has {last}; cut it, or "
                "draw a model with a greater length."
            )
        if jax.default_backend() == "cpu":
            return x + jax.lax.dynamic_slice_in_dim(self.P, first, len(x))
        # Looked up for each example, rows have a gradient that is scattered; the sum over a batch,
        # which it would be otherwise, makes XLA turn every vector of the network so that the batch
        # lies innermost.
        each = jnp.where(jnp.isnan(x[:, 0]), 0, 0) + jnp.arange(len(x))
        return x + self.P[each + first]


class Rotary(eqx.Module):
    r"""$(x_i, x_{i+d/2})$ turned by the angle $t\omega_i$, for queries and keys; their product then
    depends on where they stand by the difference alone (Su et al. 2021).

    >>> x = jnp.array([[[1.0, 0.0]]])
    >>> Rotary().turn(x, jnp.array([1])).ravel().tolist() == [jnp.cos(1.0), jnp.sin(1.0)]
    True
    """

    base: float = eqx.field(static=True, default=1e4)

    def turn(self, x: Float[Array, "t h d"], at: Int[Array, " t"]) -> Float[Array, "t h d"]:
        """`x` as it is at these places."""
        omega = jnp.asarray(frequencies(x.shape[2], self.base), jnp.zeros(()).dtype)
        angles = at.astype(omega.dtype)[:, None, None] * omega[None, None]
        cos = jnp.cos(angles)
        sin = jnp.sin(angles)
        one, two = jnp.split(x.astype(jnp.promote_types(x.dtype, omega.dtype)), 2, axis=2)
        return jnp.concatenate([one * cos - two * sin, two * cos + one * sin], axis=2).astype(
            x.dtype
        )


class ALiBi(eqx.Module):
    r"""$-m_h |i - j|$ added to the scores of head $h$ (Press et al. 2022), with $m_h = 2^{-8h/H}$
    for $H$ heads, a power of two; for other $H$ the slopes missing are taken from between those of
    the next power.

    >>> ALiBi().slopes(4).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625]
    """

    def slopes(self, heads: int) -> Float[np.ndarray, " h"]:
        """$m_1, \\dots, m_H$."""
        power = 2 ** int(np.log2(heads))
        plain = lambda n: 2.0 ** (-8 * np.arange(1, n + 1) / n)
        return np.concatenate([plain(power), plain(2 * power)[::2][: heads - power]])

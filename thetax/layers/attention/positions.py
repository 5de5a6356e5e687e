r"""Positional encodings (§6.3). Attention ignores the order of tokens, so the position of a token
is added to its vector, or enters the scores.

- `SinusoidalPositions`: adds $\sin(t\omega_i)$ and $\cos(t\omega_i)$ with $\omega_i = C^{-2i/d}$
- `LearnedPositions`: adds a row of a trained table
- `Rotary` (RoPE): rotates queries and keys by angles $t\omega_i$, so scores depend on $t - s$
- `ALiBi`: subtracts a bias proportional to the distance $|t - s|$ from the scores

The first two act on the input of a network, the others inside every attention layer
(`Attention(position_encoding=...)`).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...core import expect_shape
from ..initialise import Initialiser, gaussian

SMALL_GAUSSIAN = gaussian(0.02)


def position_frequencies(d: int, base: float = 1e4) -> Float[np.ndarray, " k"]:
    r"""The angular frequencies $\omega_i = C^{-2i/d}$, $i = 0, \dots, d/2 - 1$, of sinusoidal and
    rotary encodings, from 1 down to nearly $1/C$ (§6.3).

    Departs: the notes print $C^{k/d}$, whose waves are too short to see, and give every sine and
    cosine a frequency of its own, so that a shift is no rotation.

    >>> position_frequencies(4).tolist()
    [1.0, 0.01]
    """
    if d < 2 or d % 2:
        raise ValueError(
            f"position_frequencies: d must be even, since sines and cosines come in pairs; got {d}."
        )
    return float(base) ** (-np.arange(0, d, 2) / d)


class SinusoidalPositions(eqx.Module):
    r"""Sinusoidal positional encoding: $x_t + p_t$ with $p_{t,2i} = \sin(t\omega_i)$ and
    $p_{t,2i+1} = \cos(t\omega_i)$ (§6.3; Vaswani et al. 2017).

    $\|p_t\|^2 = d/2$, and $p_{t+s} = M_s p_t$ with one rotation $M_s$ for all $t$.

    >>> SinusoidalPositions().table(3, 4).round(1)[0].tolist()
    [0.0, 1.0, 0.0, 1.0]
    >>> jnp.square(SinusoidalPositions().table(3, 4)).sum(axis=1).round(3).tolist()
    [2.0, 2.0, 2.0]
    """

    base: float = eqx.field(static=True, default=1e4)

    def table(self, t: int, d: int, *, offset: Int[Array, ""] | int = 0) -> Float[Array, "t d"]:
        """The encodings $p$ of `t` positions from `offset` on."""
        indices = jnp.arange(t)
        indices = (indices + jnp.asarray(offset, indices.dtype)).astype(jnp.zeros(()).dtype)
        frequencies = jnp.asarray(position_frequencies(d, self.base), indices.dtype)
        angles = indices[:, None] * frequencies[None]
        return jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=2).reshape(t, d)

    def __call__(
        self, x: Float[Array, "t d"], *, offset: Int[Array, ""] | int = 0
    ) -> Float[Array, "t d"]:
        return x + self.table(*x.shape, offset=offset).astype(x.dtype)


class LearnedPositions(eqx.Module):
    r"""Learned positional encoding: $x_t + P_t$ with a trained row for each position (§6.3).

    Sequences can be at most as long as the table.

    >>> LearnedPositions(jnp.array([[1.0], [2.0]]))(jnp.zeros((2, 1))).ravel().tolist()
    [1.0, 2.0]
    """

    P: Float[Array, "m d"]

    @classmethod
    def init(
        cls,
        max_length: int,
        d: int,
        *,
        initialiser: Initialiser = SMALL_GAUSSIAN,
        key: PRNGKeyArray,
    ) -> "LearnedPositions":
        """Initialises the encodings of `max_length` positions."""
        return cls(initialiser(key, (max_length, d)))

    def __call__(
        self, x: Float[Array, "t d"], *, offset: Int[Array, ""] | int = 0
    ) -> Float[Array, "t d"]:
        expect_shape("LearnedPositions", x, ("t", self.P.shape[1]))
        length = len(x) + (offset if isinstance(offset, int) else 0)
        if length > len(self.P):
            raise ValueError(
                f"LearnedPositions: the table has {len(self.P)} positions, but the sequence has "
                f"{length}; truncate it, or initialise a model with a greater max_length."
            )
        if jax.default_backend() == "cpu":
            return x + jax.lax.dynamic_slice_in_dim(self.P, offset, len(x))
        # On an accelerator the rows are looked up with indices that depend on x, so that under vmap
        # the gradient is one scatter per example. The alternative, a sum over the batch, makes XLA
        # transpose every activation of the network to put the batch axis innermost.
        indices = jnp.where(jnp.isnan(x[:, 0]), 0, 0) + jnp.arange(len(x))
        return x + self.P[indices + offset]


class Rotary(eqx.Module):
    r"""Rotary positional encoding (RoPE; Su et al. 2021): rotates $(x_i, x_{i+d/2})$ of queries and
    keys by the angle $t\omega_i$, so that their product depends on the difference of the positions
    only.

    >>> x = jnp.array([[[1.0, 0.0]]])
    >>> Rotary().rotate(x, jnp.array([1])).ravel().tolist() == [jnp.cos(1.0), jnp.sin(1.0)]
    True
    """

    base: float = eqx.field(static=True, default=1e4)

    def rotate(
        self, x: Float[Array, "t h d"], positions: Int[Array, " t"]
    ) -> Float[Array, "t h d"]:
        """Queries or keys `x` rotated to the given positions."""
        omega = jnp.asarray(position_frequencies(x.shape[2], self.base), jnp.zeros(()).dtype)
        angles = positions.astype(omega.dtype)[:, None, None] * omega[None, None]
        cos = jnp.cos(angles)
        sin = jnp.sin(angles)
        first, second = jnp.split(x.astype(jnp.promote_types(x.dtype, omega.dtype)), 2, axis=2)
        rotated = [first * cos - second * sin, second * cos + first * sin]
        return jnp.concatenate(rotated, axis=2).astype(x.dtype)


class ALiBi(eqx.Module):
    r"""Attention with linear biases (ALiBi; Press et al. 2022): $-m_h |i - j|$ is added to the
    scores of head $h$.

    $m_h = 2^{-8h/H}$ for $H$ heads, a power of two; for other $H$ the missing slopes are those of
    the next power of two, every second one.

    >>> ALiBi().slopes(4).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625]
    """

    def slopes(self, heads: int) -> Float[np.ndarray, " h"]:
        """$m_1, \\dots, m_H$."""
        power = 2 ** int(np.log2(heads))
        geometric = lambda n: 2.0 ** (-8 * np.arange(1, n + 1) / n)
        return np.concatenate([geometric(power), geometric(2 * power)[::2][: heads - power]])

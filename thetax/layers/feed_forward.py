r"""The feed-forward layers of a transformer (§6.4): the same small network for every token."""

from typing import Any

import equinox as eqx
import jax
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from .activation import Activation, relu, silu
from .initialise import Initialiser, glorot
from .linear import Linear


class FeedForward(eqx.Module):
    r"""Feed-forward layer, $W_2\, \varphi(W_1 x_t + b_1) + b_2$ for every token (§6.4; Vaswani et
    al. 2017).

    >>> import jax.numpy as jnp
    >>> FeedForward.init(4, 16, key=jr.key(0))(jnp.ones((3, 4))).shape
    (3, 4)
    """

    up: Linear
    down: Linear
    activation: Activation = eqx.field(static=True, default=relu)

    @classmethod
    def init(
        cls,
        d: int,
        hidden: int,
        *,
        activation: Activation = relu,
        initialiser: Initialiser = glorot,
        key: PRNGKeyArray,
    ) -> "FeedForward":
        """Initialises a layer of width `d` with `hidden` hidden units."""
        key_up, key_down = jr.split(key)
        return cls(
            Linear.init(d, hidden, initialiser=initialiser, key=key_up),
            Linear.init(hidden, d, initialiser=initialiser, key=key_down),
            activation,
        )

    def __call__(self, x: Float[Array, "t d"]) -> Float[Array, "t d"]:
        return jax.vmap(self.down)(self.activation(jax.vmap(self.up)(x)))


class GatedFeedForward(eqx.Module):
    r"""Gated feed-forward layer, $W_2\, (\varphi(W_0 x_t) \odot W_1 x_t)$ for every token; with
    `silu` it is SwiGLU (Shazeer 2020).

    >>> import jax.numpy as jnp
    >>> GatedFeedForward.init(4, 16, key=jr.key(0))(jnp.ones((3, 4))).shape
    (3, 4)
    """

    gate: Linear
    up: Linear
    down: Linear
    activation: Activation = eqx.field(static=True, default=silu)

    @classmethod
    def init(
        cls,
        d: int,
        hidden: int,
        *,
        activation: Activation = silu,
        initialiser: Initialiser = glorot,
        key: PRNGKeyArray,
    ) -> "GatedFeedForward":
        """Initialises a layer of width `d` with `hidden` hidden units, without biases."""
        linear: Any = lambda n, m, key: Linear.init(
            n, m, initialiser=initialiser, bias=False, key=key
        )
        key_gate, key_up, key_down = jr.split(key, 3)
        return cls(
            linear(d, hidden, key_gate),
            linear(d, hidden, key_up),
            linear(hidden, d, key_down),
            activation,
        )

    def __call__(self, x: Float[Array, "t d"]) -> Float[Array, "t d"]:
        return jax.vmap(self.down)(self.activation(jax.vmap(self.gate)(x)) * jax.vmap(self.up)(x))

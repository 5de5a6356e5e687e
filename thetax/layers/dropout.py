r"""Dropout (§8.4): training an ensemble of thinned networks at the price of one."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

WORD = 2**32


def coins(key: PRNGKeyArray, shape: tuple[int, ...], *, probability: float) -> Bool[Array, "*s"]:
    r"""Independent coins, true with the given probability (to $2^{-32}$), each a hash of the key and its place.

    A mask needs many bits of modest quality, and `jr.bernoulli` would take an eighth of a training step on a CPU
    to make them. Here each place is mixed with the words of the key by the finaliser of MurmurHash3 (Appleby
    2011), a bijection in which every bit of the input reaches every bit of the output.

    >>> coins(jr.key(0), (1000,), probability=0.6).sum().item()
    624
    """
    h = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape) * jnp.uint32(0x9E3779B9)
    for word in jr.key_data(key).ravel():
        h = (h ^ word ^ (h >> 16)) * jnp.uint32(0x85EBCA6B)
        h = (h ^ (h >> 13)) * jnp.uint32(0xC2B2AE35)
    h = h ^ (h >> 16)
    return h < jnp.uint32(min(WORD - 1, round(probability * WORD)))


class Dropout(eqx.Module):
    r"""Zeroes each unit with probability $p$ and divides the others by $1 - p$, the probability of staying (§8.4).

    Without a key it is the identity, which is the expectation of what it is with one (Srivastava et al. 2014).

    Departs: where the notes scale by "the dropout probability", the keep probability is meant.

    >>> x = jnp.ones(1000)
    >>> Dropout(0.4)(x) is x
    True
    >>> y = Dropout(0.4)(x, key=jr.key(0))
    >>> sorted({round(float(v), 3) for v in y})
    [0.0, 1.667]
    """

    p: float = eqx.field(static=True)

    def __check_init__(self):
        if not 0 <= self.p < 1:
            raise ValueError(f"Dropout: p is the probability of dropping, 0 <= p < 1; got {self.p}.")

    def __call__(self, x: Float[Array, "*s"], *, key: PRNGKeyArray | None = None) -> Float[Array, "*s"]:
        if key is None or self.p == 0:
            return x
        stays = coins(key, x.shape, probability=1 - self.p)
        return jnp.where(stays, x / jnp.asarray(1 - self.p, x.dtype), jnp.zeros_like(x))

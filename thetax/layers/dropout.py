r"""Dropout (§8.4): training an ensemble of thinned networks at the price of one.

`Dropout` thins the units that pass through it, `DropConnect` the weights of the layer inside it.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray, UInt32

from ..core import Scalar, apply

WORD = 2**32


def coins(key: PRNGKeyArray, shape: tuple[int, ...], *, probability: float) -> Bool[Array, "*s"]:
    r"""Independent coins, true with the given probability (to $2^{-32}$), each a hash of the key
    and its place.

    A mask needs many bits of modest quality, and `jr.bernoulli` would take an eighth of a training
    step on a CPU to make them. Here each place is mixed with the words of the key by the finaliser
    of MurmurHash3 (Appleby 2011), a bijection in which every bit of the input reaches every bit of
    the output.

    >>> coins(jr.key(0), (1000,), probability=0.6).sum().item()
    624
    """
    return hashed(shape, *jr.key_data(key).ravel()) < jnp.uint32(
        min(WORD - 1, round(probability * WORD))
    )


def hashed(shape: tuple[int, ...], *words: UInt32[Array, ""]) -> UInt32[Array, "*s"]:
    """A word for each place of an array, mixed from the place and the given words.

    >>> len(set(hashed((1000,), jnp.uint32(1)).tolist()))
    1000
    """
    h = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape) * jnp.uint32(0x9E3779B9)
    for word in words:
        h = (h ^ word ^ (h >> 16)) * jnp.uint32(0x85EBCA6B)
        h = (h ^ (h >> 13)) * jnp.uint32(0xC2B2AE35)
    return h ^ (h >> 16)


class Dropout(eqx.Module):
    r"""Zeroes each unit with probability $p$ and divides the others by $1 - p$, the probability of
    staying (§8.4).

    Without a key it is the identity, which is the expectation of what it is with one (Srivastava et
    al. 2014).

    Departs: what the notes call the dropout probability in one sentence is the keep probability.

    >>> x = jnp.ones(1000)
    >>> Dropout(0.4)(x) is x
    True
    >>> y = Dropout(0.4)(x, key=jr.key(0))
    >>> sorted({round(float(v), 3) for v in y})
    [0.0, 1.667]
    """

    p: float = eqx.field(static=True)

    def __check_init__(self):
        _check_rate("Dropout", self.p)

    def __call__(
        self, x: Float[Array, "*s"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*s"]:
        if key is None or self.p == 0:
            return x
        return thin(x, coins(key, x.shape, probability=1 - self.p), p=self.p)


class DropConnect(eqx.Module):
    r"""A layer whose every weight is zeroed with probability $p$, the others divided by $1 - p$
    (§8.4).

    What the notes call dropout, $\theta \odot b$: it drops connections where `Dropout` drops units.
    Without a key it is the layer inside. Every example has a mask of its own, so a batch holds as
    many copies of the weights as it has examples: for small layers. Wan et al. 2013.

    >>> from thetax.layers import Linear
    >>> layer = DropConnect(Linear(jnp.ones((2, 4)), jnp.zeros(2)), 0.5)
    >>> layer(jnp.ones(4)).tolist()
    [4.0, 4.0]
    >>> bool(jnp.isin(layer(jnp.ones(4), key=jr.key(0)), 2 * jnp.arange(5)).all())
    True
    """

    inner: Any
    p: float = eqx.field(static=True)

    def __check_init__(self):
        _check_rate("DropConnect", self.p)
        if not callable(self.inner):
            raise ValueError(
                "DropConnect: expected a layer whose weights to drop, got "
                f"{type(self.inner).__name__}."
            )

    def thinned(self, key: PRNGKeyArray) -> Any:
        """The layer inside, as one draw leaves it."""
        weights, structure = jax.tree.flatten(self.inner)
        stays = [
            coins(k, w.shape, probability=1 - self.p)
            for k, w in zip(jr.split(key, len(weights)), weights)
        ]
        return jax.tree.unflatten(
            structure, [thin(w, stay, p=self.p) for w, stay in zip(weights, stays)]
        )

    def __call__(self, x: Any, *, key: PRNGKeyArray | None = None) -> Any:
        if key is None:
            return apply(self.inner, x)
        key_thin, key = jr.split(key)
        return apply(self.thinned(key_thin), x, key=key)


def thin(
    x: Float[Array, "*s"], stays: Bool[Array, "*s"], *, p: float | Scalar
) -> Float[Array, "*s"]:
    r"""$x \odot b / (1 - p)$: what stays is divided by the probability of staying.

    >>> thin(jnp.ones(3), jnp.array([True, False, True]), p=0.5).tolist()
    [2.0, 0.0, 2.0]
    """
    return jnp.where(stays, x / jnp.asarray(1 - p, x.dtype), jnp.zeros_like(x))


def _check_rate(name: str, p: float) -> None:
    if not 0 <= p < 1:
        raise ValueError(f"{name}: p is the probability of dropping, 0 <= p < 1; got {p}.")

r"""Dropout (§8.4): trains an ensemble of subnetworks that share their weights.

`Dropout` sets units to zero, `DropConnect` the weights of a layer.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray, UInt32

from ..core import Scalar, apply

N_UINT32 = 2**32  # number of values of a uint32


def bernoulli_mask(
    key: PRNGKeyArray, shape: tuple[int, ...], *, probability: float
) -> Bool[Array, "*s"]:
    r"""Independent Bernoulli variables, true with the given probability (to $2^{-32}$), each a hash
    of the key and the index of the entry.

    A mask needs many random bits but no high quality, and `jr.bernoulli` takes an eighth of a
    training step on a CPU. Here each index is mixed with the words of the key by the finaliser of
    MurmurHash3 (Appleby 2011), a bijection in which every input bit affects every output bit.

    >>> bernoulli_mask(jr.key(0), (1000,), probability=0.6).sum().item()
    624
    """
    return hash_uint32(shape, *jr.key_data(key).ravel()) < jnp.uint32(
        min(N_UINT32 - 1, round(probability * N_UINT32))
    )


def hash_uint32(shape: tuple[int, ...], *words: UInt32[Array, ""]) -> UInt32[Array, "*s"]:
    """A hash for each entry of an array, computed from its flat index and the given words.

    >>> len(set(hash_uint32((1000,), jnp.uint32(1)).tolist()))
    1000
    """
    h = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape) * jnp.uint32(0x9E3779B9)
    for word in words:
        h = (h ^ word ^ (h >> 16)) * jnp.uint32(0x85EBCA6B)
        h = (h ^ (h >> 13)) * jnp.uint32(0xC2B2AE35)
    return h ^ (h >> 16)


class Dropout(eqx.Module):
    r"""Dropout: sets each unit to zero with probability $p$ and divides the others by $1 - p$
    (§8.4; Srivastava et al. 2014).

    Without a key it is the identity, which equals the expectation over keys.

    Departs: in one sentence the notes call the probability of keeping a unit the dropout
    probability.

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
        return apply_mask(x, bernoulli_mask(key, x.shape, probability=1 - self.p), p=self.p)


class DropConnect(eqx.Module):
    r"""DropConnect: sets each weight of a layer to zero with probability $p$ and divides the others
    by $1 - p$ (§8.4; Wan et al. 2013).

    The notes call this dropout, $\theta \odot b$: it drops connections where `Dropout` drops units.
    Without a key it is the inner layer. Every example has its own mask, so a batch needs memory for
    one copy of the weights per example: use it for small layers.

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
                "DropConnect: the first argument must be a layer, whose weights are dropped; got a "
                f"{type(self.inner).__name__}. For dropping units use Dropout(p)."
            )

    def drop_weights(self, key: PRNGKeyArray) -> Any:
        """The inner layer after one random mask of its weights."""
        weights, structure = jax.tree.flatten(self.inner)
        masks = [
            bernoulli_mask(k, w.shape, probability=1 - self.p)
            for k, w in zip(jr.split(key, len(weights)), weights)
        ]
        return jax.tree.unflatten(
            structure, [apply_mask(w, mask, p=self.p) for w, mask in zip(weights, masks)]
        )

    def __call__(self, x: Any, *, key: PRNGKeyArray | None = None) -> Any:
        if key is None:
            return apply(self.inner, x)
        key_mask, key = jr.split(key)
        return apply(self.drop_weights(key_mask), x, key=key)


def apply_mask(
    x: Float[Array, "*s"], mask: Bool[Array, "*s"], *, p: float | Scalar
) -> Float[Array, "*s"]:
    r"""$x \odot b / (1 - p)$ for a mask $b$ whose entries are true with probability $1 - p$.

    >>> apply_mask(jnp.ones(3), jnp.array([True, False, True]), p=0.5).tolist()
    [2.0, 0.0, 2.0]
    """
    return jnp.where(mask, x / jnp.asarray(1 - p, x.dtype), jnp.zeros_like(x))


def _check_rate(name: str, p: float) -> None:
    if not 0 <= p < 1:
        raise ValueError(
            f"{name}: p is the probability of dropping and must be in [0, 1); got {p}."
        )

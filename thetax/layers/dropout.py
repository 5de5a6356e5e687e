r"""Dropout (§8.4): training an ensemble of thinned networks at the price of one."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

LEVELS = 2**16  # 16 random bits a unit: half the work of a float, and the rate is right to 1e-5


class Dropout(eqx.Module):
    r"""Zeroes each unit with probability $p$ and divides the others by the probability of staying (§8.4).

    Without a key it is the identity: the expectation of the output is the input, exactly, because the
    scale uses the probability as it is drawn, rounded to sixteen bits (Srivastava et al. 2014).

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
        kept = max(1, round((1 - self.p) * LEVELS))
        stays = jr.bits(key, x.shape, "uint16") < jnp.uint16(kept) if kept < LEVELS else jnp.ones(x.shape, bool)
        return jnp.where(stays, x * (LEVELS / kept), jnp.zeros_like(x))

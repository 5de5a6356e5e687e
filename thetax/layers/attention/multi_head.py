r"""Attention with many heads (§6.1, §6.2): what to ask, what to show and what to tell are linear
maps of the tokens.

$$Q = AW_Q, \quad K = BW_K, \quad V = BW_V, \qquad \mathrm{MH}(A, B) = [\Xi_1, \dots, \Xi_H]\, W_O$$

with $\Xi_h$ the attention of the $h$-th part of $Q$, $K$, $V$. With $B = A$ tokens look at one
another.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...core import expect_shape
from ..initialise import Initialiser, glorot
from ..linear import Linear
from .dot_product import attend, attention_weights
from .mask import ALL, Mask
from .positions import ALiBi, Rotary

Kernel = Callable[[Array, Array, Array, Mask], Array]


class Shown(NamedTuple):
    """Keys and values: all that a query can find out about a memory."""

    keys: Float[Array, "s g d"]
    values: Float[Array, "s g e"]


class Attention(eqx.Module):
    r"""Tokens $(t, d_a)$ look at a memory $(s, d_b)$, or at one another, with several heads (§6.1,
    §6.2).

    `groups` heads of keys and values serve all `heads` of queries: as many of them for plain
    attention, fewer for grouped, one for multi-query attention (Shazeer 2019, Ainslie et al. 2023).
    `relative` is `Rotary`, `ALiBi` or none. The `kernel` computes $\Xi$ from the queries, keys,
    values and the mask; `attend` unless another is given.

    >>> layer = Attention.init(8, 2, key=jr.key(0))
    >>> x = jr.normal(jr.key(1), (5, 8))
    >>> layer(x).shape, layer.weights(x).shape
    ((5, 8), (2, 5, 5))
    >>> Attention.init(8, 3, key=jr.key(0))
    Traceback (most recent call last):
    ValueError: Attention: 3 heads do not divide a width of 8; ...
    """

    Q: Linear
    K: Linear
    V: Linear
    O: Linear
    heads: int = eqx.field(static=True)
    groups: int = eqx.field(static=True)
    relative: Rotary | ALiBi | None = None
    kernel: Kernel = eqx.field(static=True, default=attend)

    @classmethod
    def init(
        cls,
        d: int,
        heads: int,
        *,
        groups: int | None = None,
        size: int | None = None,
        memory: int | None = None,
        bias: bool = True,
        relative: Rotary | ALiBi | None = None,
        kernel: Kernel = attend,
        initialiser: Initialiser = glorot,
        key: PRNGKeyArray,
    ) -> "Attention":
        """For tokens of width `d`, and a memory of another width if given; a head has `size`
        numbers, $d/H$ unless given.
        """
        groups = heads if groups is None else groups
        if heads < 1 or groups < 1 or heads % groups:
            raise ValueError(
                f"Attention: heads must be a multiple of groups; got {heads} and {groups}."
            )
        if size is None and d % heads:
            raise ValueError(
                f"Attention: {heads} heads do not divide a width of {d}; choose others, or give a "
                "size."
            )
        size = d // heads if size is None else size
        key_Q, key_K, key_V, key_O = jr.split(key, 4)
        draw = lambda n, m, key: Linear.init(n, m, initialiser=initialiser, bias=bias, key=key)
        seen = d if memory is None else memory
        return cls(
            draw(d, heads * size, key_Q),
            draw(seen, groups * size, key_K),
            draw(seen, groups * size, key_V),
            draw(heads * size, d, key_O),
            heads,
            groups,
            relative,
            kernel,
        )

    def __check_init__(self):
        if (
            self.Q.W.shape[-2] % self.heads
            or self.K.W.shape[-2] % self.groups
            or self.V.W.shape[-2] % self.groups
        ):
            raise ValueError(
                f"Attention: Q of {self.Q.W.shape[-2]} rows must be whole heads, {self.heads} of "
                f"them, and K and V of {self.K.W.shape[-2]} and {self.V.W.shape[-2]} rows whole "
                f"groups, {self.groups} of them."
            )

    def ask(
        self, x: Float[Array, "t a"], *, first: Int[Array, ""] | int = 0
    ) -> Float[Array, "t h d"]:
        """The queries of tokens that stand at `first` and after."""
        expect_shape("Attention", x, ("t", self.Q.W.shape[1]))
        return self._turned(_apart(self.Q, x, self.heads), first)

    def show(self, memory: Float[Array, "s b"], *, first: Int[Array, ""] | int = 0) -> Shown:
        """The keys and values of a memory that stands at `first` and after."""
        expect_shape("Attention", memory, ("s", self.K.W.shape[1]))
        keys = self._turned(_apart(self.K, memory, self.groups), first)
        return Shown(keys, _apart(self.V, memory, self.groups))

    def answer(
        self, q: Float[Array, "t h d"], shown: Shown, mask: Mask = ALL
    ) -> Float[Array, "t c"]:
        r"""$[\Xi_1, \dots, \Xi_H]\, W_O$."""
        found = self.kernel(q, *shown, self._faded(mask))
        return jax.vmap(self.O)(found.reshape(len(q), -1))

    def weights(
        self, x: Float[Array, "t a"], memory: Float[Array, "s b"] | None = None, *, mask: Mask = ALL
    ) -> Float[Array, "h t s"]:
        r"""$A$ of every head: how much each token looks at each place."""
        if self.kernel is not attend:
            raise ValueError(
                f"Attention: only attend has weights to show; the kernel is {self.kernel}."
            )
        memory = x if memory is None else memory
        return attention_weights(self.ask(x), self.show(memory).keys, self._faded(mask))

    def __call__(
        self, x: Float[Array, "t a"], memory: Float[Array, "s b"] | None = None, *, mask: Mask = ALL
    ) -> Float[Array, "t c"]:
        return self.answer(self.ask(x), self.show(x if memory is None else memory), mask)

    def _turned(self, x: Any, first: Any) -> Any:
        if not isinstance(self.relative, Rotary):
            return x
        places = jnp.arange(len(x))
        return self.relative.turn(x, places + jnp.asarray(first, places.dtype))

    def _faded(self, mask: Mask) -> Mask:
        if not isinstance(self.relative, ALiBi):
            return mask
        fade = jnp.asarray(self.relative.slopes(self.heads), self.Q.W.dtype)
        return eqx.tree_at(lambda m: m.fade, mask, fade, is_leaf=lambda node: node is None)


def _apart(layer: Linear, x: Float[Array, "t a"], heads: int) -> Float[Array, "t h d"]:
    """What the layer makes of every token, head by head."""
    y = jax.vmap(layer)(x)
    return y.reshape(len(x), heads, y.shape[1] // heads)

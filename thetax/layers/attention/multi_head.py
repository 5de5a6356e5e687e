r"""Multi-head attention (§6.1, §6.2): queries, keys and values are linear projections of tokens.

$$Q = AW_Q, \quad K = BW_K, \quad V = BW_V, \qquad \mathrm{MH}(A, B) = [\Xi_1, \dots, \Xi_H]\, W_O$$

with $\Xi_h$ the attention of the $h$-th part of $Q$, $K$, $V$. $B = A$ is self-attention; another
$B$, the memory, is cross-attention.
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
from .dot_product import attention_weights, dot_product_attention
from .mask import FULL, Mask
from .positions import ALiBi, Rotary

Kernel = Callable[..., Array]  # (q, k, v, mask) -> output


class KeysValues(NamedTuple):
    """Keys and values of a sequence: one layer of a KV cache."""

    keys: Float[Array, "s g d"]
    values: Float[Array, "s g e"]


class Attention(eqx.Module):
    r"""Multi-head attention of tokens (t, d_a) to themselves or to a memory (s, d_b) (§6.1, §6.2).

    `kv_heads` heads of keys and values serve all `heads` of queries: equal for multi-head
    attention, fewer for grouped-query attention (GQA), one for multi-query attention (MQA; Shazeer
    2019, Ainslie et al. 2023). `position_encoding` is `Rotary` (RoPE), `ALiBi` or None. The
    `kernel` computes $\Xi$ from queries, keys, values and the mask, by default
    `dot_product_attention`; others are `linear_attention`, `sparse_attention(...)` and
    `hierarchical_attention(...)`. `dropout` is the probability of attention dropout, which is
    active in a call with a key.

    >>> layer = Attention.init(8, 2, key=jr.key(0))
    >>> x = jr.normal(jr.key(1), (5, 8))
    >>> layer(x).shape, layer.weights(x).shape
    ((5, 8), (2, 5, 5))
    >>> Attention.init(8, 3, key=jr.key(0))
    Traceback (most recent call last):
    ValueError: Attention: the width d must be divisible by heads; got d=8, heads=3. ...
    """

    Q: Linear
    K: Linear
    V: Linear
    O: Linear
    heads: int = eqx.field(static=True)
    kv_heads: int = eqx.field(static=True)
    position_encoding: Rotary | ALiBi | None = None
    kernel: Kernel = eqx.field(static=True, default=dot_product_attention)
    dropout: float = eqx.field(static=True, default=0.0)

    @classmethod
    def init(
        cls,
        d: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        memory_dim: int | None = None,
        bias: bool = True,
        position_encoding: Rotary | ALiBi | None = None,
        kernel: Kernel = dot_product_attention,
        dropout: float = 0.0,
        initialiser: Initialiser = glorot,
        key: PRNGKeyArray,
    ) -> "Attention":
        """Initialises attention for tokens of width `d`.

        Defaults: `kv_heads` is `heads`, `head_dim` (the width of a head) is $d/H$, and `memory_dim`
        (the width of the memory in cross-attention) is `d`.
        """
        kv_heads = heads if kv_heads is None else kv_heads
        if heads < 1 or kv_heads < 1 or heads % kv_heads:
            raise ValueError(
                f"Attention: heads must be a multiple of kv_heads; got {heads} and {kv_heads}."
            )
        if head_dim is None and d % heads:
            raise ValueError(
                f"Attention: the width d must be divisible by heads; got d={d}, heads={heads}. "
                "Choose others, or give head_dim."
            )
        head_dim = d // heads if head_dim is None else head_dim
        memory_dim = d if memory_dim is None else memory_dim
        key_Q, key_K, key_V, key_O = jr.split(key, 4)
        linear = lambda n, m, key: Linear.init(n, m, initialiser=initialiser, bias=bias, key=key)
        return cls(
            linear(d, heads * head_dim, key_Q),
            linear(memory_dim, kv_heads * head_dim, key_K),
            linear(memory_dim, kv_heads * head_dim, key_V),
            linear(heads * head_dim, d, key_O),
            heads,
            kv_heads,
            position_encoding,
            kernel,
            dropout,
        )

    def __check_init__(self):
        if not 0 <= self.dropout < 1:
            raise ValueError(f"Attention: dropout must be in [0, 1); got {self.dropout}.")
        if self.dropout and self.kernel is not dot_product_attention:
            raise ValueError(
                "Attention: dropout needs kernel=dot_product_attention; the kernel is "
                f"{self.kernel}."
            )
        if (
            self.Q.W.shape[-2] % self.heads
            or self.K.W.shape[-2] % self.kv_heads
            or self.V.W.shape[-2] % self.kv_heads
        ):
            raise ValueError(
                "Attention: the rows of Q must be divisible by heads, those of K and V by "
                f"kv_heads; got {self.Q.W.shape[-2]} rows and heads={self.heads}, "
                f"{self.K.W.shape[-2]} and {self.V.W.shape[-2]} rows and kv_heads={self.kv_heads}."
            )

    def queries(
        self, x: Float[Array, "t a"], *, offset: Int[Array, ""] | int = 0
    ) -> Float[Array, "t h d"]:
        """The queries of tokens at positions `offset`, `offset` + 1, ..."""
        expect_shape("Attention", x, ("t", self.Q.W.shape[1]))
        return self._rotate(_project_heads(self.Q, x, self.heads), offset)

    def keys_values(
        self, memory: Float[Array, "s b"], *, offset: Int[Array, ""] | int = 0
    ) -> KeysValues:
        """The keys and values of tokens at positions `offset`, `offset` + 1, ... (for a KV cache or
        cross-attention).
        """
        expect_shape("Attention", memory, ("s", self.K.W.shape[1]))
        keys = self._rotate(_project_heads(self.K, memory, self.kv_heads), offset)
        return KeysValues(keys, _project_heads(self.V, memory, self.kv_heads))

    def attend(
        self,
        q: Float[Array, "t h d"],
        keys_values: KeysValues,
        mask: Mask = FULL,
        *,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "t c"]:
        r"""The output $[\Xi_1, \dots, \Xi_H]\, W_O$ for given queries, keys and values."""
        options = {"dropout": self.dropout, "key": key} if self.dropout else {}
        result = self.kernel(q, *keys_values, self._with_slopes(mask), **options)
        return jax.vmap(self.O)(result.reshape(len(q), -1))

    def weights(
        self,
        x: Float[Array, "t a"],
        memory: Float[Array, "s b"] | None = None,
        *,
        mask: Mask = FULL,
    ) -> Float[Array, "h t s"]:
        r"""The attention weights $A$ of every head."""
        if self.kernel is not dot_product_attention:
            raise ValueError(
                "Attention: weights are defined for kernel=dot_product_attention only; the kernel "
                f"is {self.kernel}."
            )
        keys = self.keys_values(x if memory is None else memory).keys
        return attention_weights(self.queries(x), keys, self._with_slopes(mask))

    def __call__(
        self,
        x: Float[Array, "t a"],
        memory: Float[Array, "s b"] | None = None,
        *,
        mask: Mask = FULL,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "t c"]:
        memory = x if memory is None else memory
        return self.attend(self.queries(x), self.keys_values(memory), mask, key=key)

    def _rotate(self, x: Any, offset: Any) -> Any:
        if not isinstance(self.position_encoding, Rotary):
            return x
        indices = jnp.arange(len(x))
        return self.position_encoding.rotate(x, indices + jnp.asarray(offset, indices.dtype))

    def _with_slopes(self, mask: Mask) -> Mask:
        if not isinstance(self.position_encoding, ALiBi):
            return mask
        slopes = jnp.asarray(self.position_encoding.slopes(self.heads), self.Q.W.dtype)
        return eqx.tree_at(lambda m: m.slopes, mask, slopes, is_leaf=lambda node: node is None)


def _project_heads(layer: Linear, x: Float[Array, "t a"], heads: int) -> Float[Array, "t h d"]:
    """The projection of every token, split into heads."""
    y = jax.vmap(layer)(x)
    return y.reshape(len(x), heads, y.shape[1] // heads)

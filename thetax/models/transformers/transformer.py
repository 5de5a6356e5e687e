r"""The transformer (§6.4; Vaswani et al. 2017): blocks of attention and a feed-forward network.

$$x \leftarrow x + \mathrm{MH}(\mathrm{N}(x)), \qquad x \leftarrow x + F(\mathrm{N}(x))$$

with a norm $\mathrm{N}$ before each part (pre-norm), or $x \leftarrow \mathrm{N}(x + \cdot)$ with a
norm after it (post-norm, as first published). A block of an encoder-decoder has cross-attention to
the encoded source in between. `Trunk` is a stack of equal blocks. `GPT`, `BERT`, `ViT` and
`Translator` add the input embeddings and the output layer.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...layers import (
    FULL,
    ALiBi,
    Attention,
    Dropout,
    FeedForward,
    Initialiser,
    KeysValues,
    LayerNorm,
    Mask,
    Rotary,
    Stacked,
    glorot,
)

NormOrder = Literal["before", "after"]  # pre-norm or post-norm
TokenMap = Callable[..., Array]  # (tokens of shape (t, d), key=) -> (t, d)


class TransformerBlock(eqx.Module):
    r"""Self-attention, optional cross-attention and a feed-forward network, each with a norm,
    dropout and a residual connection (§6.4).

    A pre-norm block whose output layers (`O` of the attention, `down` of the feed-forward network)
    are zero is the identity.

    >>> block = TransformerBlock.init(8, 2, 16, key=jr.key(0))
    >>> block(jnp.ones((5, 8))).shape
    (5, 8)
    """

    attention: Attention
    norm: Any
    feed: Any
    feed_norm: Any
    cross: Attention | None = None
    cross_norm: Any = None
    norms: NormOrder = eqx.field(static=True, default="before")
    drop: Dropout = Dropout(0.0)

    @classmethod
    def init(
        cls,
        d: int,
        heads: int,
        hidden: int,
        *,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = True,
        position_encoding: Rotary | ALiBi | None = None,
        kernel: Callable[..., Any] | None = None,
        memory_dim: int | None = None,
        norms: NormOrder = "before",
        norm: Callable[[int], Any] = LayerNorm.init,
        feed: Callable[..., Any] = FeedForward.init,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        initialiser: Initialiser = glorot,
        key: PRNGKeyArray,
    ) -> "TransformerBlock":
        """Initialises a block for tokens of width `d`; heads have width `head_dim` (default $d/H$).

        With `memory_dim` the block also has cross-attention to vectors of that width. `dropout`
        applies to the output of every part, `attention_dropout` to the attention weights.
        """
        if norms not in ("before", "after"):
            raise ValueError(f"TransformerBlock: norms must be 'before' or 'after'; got {norms!r}.")
        key_attention, key_cross, key_feed = jr.split(key, 3)
        init_attention: Any = partial(
            Attention.init,
            d,
            heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            bias=bias,
            dropout=attention_dropout,
            initialiser=initialiser,
        )
        attention = init_attention(
            position_encoding=position_encoding,
            key=key_attention,
            **({} if kernel is None else {"kernel": kernel}),
        )
        cross = None
        if memory_dim is not None:
            cross = init_attention(memory_dim=memory_dim, key=key_cross)
        return cls(
            attention,
            norm(d),
            feed(d, hidden, initialiser=initialiser, key=key_feed),
            norm(d),
            cross,
            None if cross is None else norm(d),
            norms,
            Dropout(dropout),
        )

    def __call__(
        self,
        x: Float[Array, "t d"],
        *,
        mask: Mask = FULL,
        memory: Float[Array, "s e"] | KeysValues | None = None,
        memory_mask: Mask = FULL,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "t d"]:
        """`mask` says which tokens attend to which, `memory_mask` which memory vectors are visible.

        `memory` is the encoded source, or its keys and values computed before.
        """
        self_attend = lambda x, key: self.attention(x, mask=mask, key=key)
        cross_attend = lambda x, key: self.attend_to_memory(x, memory, memory_mask, key=key)
        return self.apply_parts(x, self_attend, cross_attend, key=key)

    def apply_parts(
        self,
        x: Float[Array, "t d"],
        self_attend: TokenMap,
        cross_attend: TokenMap,
        *,
        key: PRNGKeyArray | None = None,
    ) -> Any:
        """The block with the given functions `(x, key)` for self-attention and cross-attention."""
        keys = (None, None, None) if key is None else tuple(jr.split(key, 3))
        x = self._add(self.norm, self_attend, x, keys[0])
        if self.cross is not None:
            x = self._add(self.cross_norm, cross_attend, x, keys[1])
        return self._add(self.feed_norm, lambda x, key: self.feed(x), x, keys[2])

    def _add(self, norm: Any, f: TokenMap, x: Array, key: PRNGKeyArray | None) -> Array:
        """The residual connection around `f`, with its norm and dropout."""
        key_drop = key
        key_attention = None if key is None else jr.fold_in(key, 1)
        normalise = jax.vmap(norm)
        if self.norms == "before":
            return x + self.drop(f(normalise(x), key_attention), key=key_drop)
        return normalise(x + self.drop(f(x, key_attention), key=key_drop))

    def attend_to_memory(
        self,
        x: Float[Array, "t d"],
        memory: Any,
        memory_mask: Mask,
        *,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "t d"]:
        """Cross-attention of the tokens to a memory, or to its keys and values."""
        cross = self.cross
        if cross is None or memory is None:
            raise ValueError("TransformerBlock: cross-attention needs memory=; got None.")
        if not isinstance(memory, KeysValues):
            memory = cross.keys_values(memory)
        return cross.attend(cross.queries(x), memory, memory_mask, key=key)

    def extend(
        self,
        x: Float[Array, "t d"],
        past: KeysValues,
        offset: Int[Array, ""],
        *,
        memory: KeysValues | None,
        memory_mask: Mask,
    ) -> tuple[Float[Array, "t d"], KeysValues]:
        """The block for new tokens from position `offset`; `past` is the KV cache of this layer.

        Returns the output and the cache with the keys and values of the new tokens.
        """

        def self_attend(x, key):
            nonlocal past
            write = partial(jax.lax.dynamic_update_slice_in_dim, start_index=offset, axis=0)
            new = self.attention.keys_values(x, offset=offset)
            past = KeysValues(write(past.keys, new.keys), write(past.values, new.values))
            queries = self.attention.queries(x, offset=offset)
            return self.attention.attend(queries, past, Mask(after=0, offset=offset))

        cross_attend = lambda x, key: self.attend_to_memory(x, memory, memory_mask)
        return self.apply_parts(x, self_attend, cross_attend), past


class KVCache(NamedTuple):
    """The KV cache of a decoder: keys and values of the tokens read so far, in every layer.

    With cross-attention it also holds the keys and values of the memory.
    """

    tokens: KeysValues  # leaves (layers, max_length, kv_heads, head_dim)
    count: Int[Array, ""]  # tokens read so far
    memory: KeysValues | None
    memory_mask: Mask


class Trunk(eqx.Module):
    r"""A stack of transformer blocks; pre-norm stacks end with one more norm (§6.4).

    >>> trunk = Trunk.init(3, 8, 2, 16, key=jr.key(0))
    >>> trunk(jnp.ones((5, 8))).shape
    (5, 8)
    """

    blocks: Stacked
    last: Any = None

    @classmethod
    def init(
        cls,
        depth: int,
        d: int,
        heads: int,
        hidden: int,
        *,
        norms: NormOrder = "before",
        norm: Callable[[int], Any] = LayerNorm.init,
        remat: bool = False,
        scale_residual: bool = False,
        key: PRNGKeyArray,
        **options: Any,
    ) -> "Trunk":
        r"""Initialises `depth` blocks with `TransformerBlock.init`, which takes the other options.

        `remat=True` turns on gradient checkpointing: the backward pass recomputes activations. With
        `scale_residual` the output layers of every residual branch start $\sqrt{2\,\mathrm{depth}}$
        times smaller, so that the variance of the residual stream does not grow with depth (Radford
        et al. 2019).
        """
        init_block = partial(
            TransformerBlock.init, d, heads, hidden, norms=norms, norm=norm, **options
        )
        blocks = Stacked.init(init_block, depth, remat=remat, key=key)
        if scale_residual:
            outputs = lambda blocks: (blocks.layers.attention.O.W, blocks.layers.feed.down.W)
            scaled = tuple(W / math.sqrt(2 * depth) for W in outputs(blocks))
            blocks = eqx.tree_at(outputs, blocks, scaled)
        return cls(blocks, norm(d) if norms == "before" else None)

    def __call__(
        self,
        x: Float[Array, "t d"],
        *,
        mask: Mask = FULL,
        memory: Float[Array, "s e"] | None = None,
        memory_mask: Mask = FULL,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "t d"]:
        keys = None if key is None else jr.split(key, len(self.blocks))
        step = lambda block, x, key: (
            block(x, mask=mask, memory=memory, memory_mask=memory_mask, key=key),
            None,
        )
        return self._final_norm(self.blocks.scan(step, x, keys)[0])

    def attention_weights(
        self,
        x: Float[Array, "t d"],
        *,
        mask: Mask = FULL,
        memory: Float[Array, "s e"] | None = None,
        memory_mask: Mask = FULL,
    ) -> Float[Array, "l h t s"]:
        r"""The attention weights $A$ of every layer and head: cross-attention if there is a memory,
        otherwise self-attention.
        """

        def step(block, x, _):
            weights = {}

            def self_attend(x, key):
                weights["self"] = block.attention.weights(x, mask=mask)
                return block.attention(x, mask=mask)

            def cross_attend(x, key):
                weights["cross"] = block.cross.weights(x, memory, mask=memory_mask)
                return block.attend_to_memory(x, memory, memory_mask)

            x = block.apply_parts(x, self_attend, cross_attend)
            return x, weights["self" if memory is None else "cross"]

        return self.blocks.scan(step, x)[1]

    def empty_cache(
        self,
        max_length: int,
        *,
        memory: Float[Array, "s e"] | None = None,
        memory_mask: Mask = FULL,
    ) -> KVCache:
        """A KV cache with room for `max_length` tokens and none read yet."""
        attention = self.blocks.layers.attention

        def zeros(projection: Any) -> Array:
            head_dim = projection.W.shape[1] // attention.kv_heads
            shape = (len(self.blocks), max_length, attention.kv_heads, head_dim)
            return jnp.zeros(shape, projection.W.dtype)

        memory_keys_values = None
        if memory is not None:
            step = lambda block, x, _: (x, block.cross.keys_values(memory))
            memory_keys_values = self.blocks.scan(step, jnp.zeros(()))[1]
        tokens = KeysValues(zeros(attention.K), zeros(attention.V))
        return KVCache(tokens, jnp.zeros((), jnp.int32), memory_keys_values, memory_mask)

    def extend(self, x: Float[Array, "t d"], past: KVCache) -> tuple[Float[Array, "t d"], KVCache]:
        """The output of a causal trunk for tokens after those in the cache, and the new cache."""

        def step(block, x, item):
            tokens, memory = item
            return block.extend(x, tokens, past.count, memory=memory, memory_mask=past.memory_mask)

        x, tokens = self.blocks.scan(step, x, (past.tokens, past.memory))
        count = past.count + len(x)
        return self._final_norm(x), KVCache(tokens, count, past.memory, past.memory_mask)

    def _final_norm(self, x: Float[Array, "t d"]) -> Float[Array, "t d"]:
        return x if self.last is None else jax.vmap(self.last)(x)

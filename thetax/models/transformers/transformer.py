r"""The transformer (§6.4; Vaswani et al. 2017): blocks in which tokens look at one another, then
think each for itself.

$$x \leftarrow x + \mathrm{MH}(\mathrm{N}(x)), \qquad x \leftarrow x + F(\mathrm{N}(x))$$

with norms $\mathrm{N}$ before each part, or $x \leftarrow \mathrm{N}(x + \cdot)$ with norms after
it, as first published. A block of a decoder looks at a memory in between. `Trunk` is a stack of
equal blocks; what tokens are made of, and what is read from the last vectors, is the business of
`GPT`, `BERT`, `ViT` and `Translator`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...layers import (
    ALL,
    ALiBi,
    Attention,
    Dropout,
    FeedForward,
    Initialiser,
    LayerNorm,
    Mask,
    Rotary,
    Shown,
    Stacked,
    glorot,
)

Order = Literal["before", "after"]  # where the norms stand
Look = Callable[[Array], Array]


class TransformerBlock(eqx.Module):
    r"""Attention, attention to a memory if there is a `cross`, and a network for every token; each
    is added to what went in, with `Dropout`, and has a norm (§6.4).

    With zero weights in `O` and `down` a block with norms before is the identity.

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
    norms: Order = eqx.field(static=True, default="before")
    drop: Dropout = Dropout(0.0)

    @classmethod
    def init(
        cls,
        d: int,
        heads: int,
        hidden: int,
        *,
        groups: int | None = None,
        size: int | None = None,
        bias: bool = True,
        relative: Rotary | ALiBi | None = None,
        kernel: Callable[..., Any] | None = None,
        memory: int | None = None,
        norms: Order = "before",
        norm: Callable[[int], Any] = LayerNorm.init,
        feed: Callable[..., Any] = FeedForward.init,
        dropout: float = 0.0,
        initialiser: Initialiser = glorot,
        key: PRNGKeyArray,
    ) -> "TransformerBlock":
        """For tokens of width `d`, heads of `size` numbers, $d/H$ unless given; with `memory` it
        also looks at vectors of that width.
        """
        if norms not in ("before", "after"):
            raise ValueError(
                f"TransformerBlock: norms stand before or after each part; got {norms!r}."
            )
        key_attention, key_cross, key_feed = jr.split(key, 3)
        draw: Any = partial(
            Attention.init, d, heads, groups=groups, size=size, bias=bias, initialiser=initialiser
        )
        own = draw(
            relative=relative, key=key_attention, **({} if kernel is None else {"kernel": kernel})
        )
        cross = None if memory is None else draw(memory=memory, key=key_cross)
        think = feed(d, hidden, initialiser=initialiser, key=key_feed)
        return cls(
            own,
            norm(d),
            think,
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
        mask: Mask = ALL,
        memory: Float[Array, "s e"] | Shown | None = None,
        memory_mask: Mask = ALL,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "t d"]:
        """`mask` is who sees whom, `memory_mask` is what of the memory there is to see."""
        consult = lambda x: self.consult(x, memory, memory_mask)
        return self.around(x, lambda x: self.attention(x, mask=mask), consult, key=key)

    def around(
        self, x: Float[Array, "t d"], look: Look, consult: Look, *, key: PRNGKeyArray | None = None
    ) -> Any:
        """The block, given how the tokens look at one another and how they consult the memory."""
        keys = (None, None, None) if key is None else tuple(jr.split(key, 3))
        x = self._add(self.norm, look, x, keys[0])
        if self.cross is not None:
            x = self._add(self.cross_norm, consult, x, keys[1])
        return self._add(self.feed_norm, self.feed, x, keys[2])

    def _add(self, norm: Any, f: Look, x: Array, key: PRNGKeyArray | None) -> Array:
        each = jax.vmap(norm)
        if self.norms == "before":
            return x + self.drop(f(each(x)), key=key)
        return each(x + self.drop(f(x), key=key))

    def consult(
        self, x: Float[Array, "t d"], memory: Any, memory_mask: Mask
    ) -> Float[Array, "t d"]:
        """What the tokens find in a memory, or in the keys and values it has shown before."""
        cross = self.cross
        if cross is None or memory is None:
            raise ValueError(
                "TransformerBlock: it looks at a memory between its parts; give memory=."
            )
        return cross.answer(
            cross.ask(x), memory if isinstance(memory, Shown) else cross.show(memory), memory_mask
        )

    def extend(
        self,
        x: Float[Array, "t d"],
        past: Shown,
        first: Int[Array, ""],
        *,
        memory: Shown | None,
        memory_mask: Mask,
    ) -> tuple[Float[Array, "t d"], Shown]:
        """The block for tokens that stand at `first` and after, which also see the past; and the
        past with them.
        """

        def look(x):
            nonlocal past
            write = partial(jax.lax.dynamic_update_slice_in_dim, start_index=first, axis=0)
            past = Shown(
                *(write(old, new) for old, new in zip(past, self.attention.show(x, first=first)))
            )
            return self.attention.answer(
                self.attention.ask(x, first=first), past, Mask(after=0, first=first)
            )

        return self.around(x, look, lambda x: self.consult(x, memory, memory_mask)), past


class KVCache(NamedTuple):
    """What a decoder keeps of the tokens it has read: their keys and values in every layer, and how
    many there are; and those of its memory.
    """

    shown: Shown  # leaves (layers, length, groups, size)
    count: Int[Array, ""]
    memory: Shown | None
    memory_mask: Mask


class Trunk(eqx.Module):
    r"""Blocks on top of one another, and a last norm if norms stand before (§6.4).

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
        norms: Order = "before",
        norm: Callable[[int], Any] = LayerNorm.init,
        remat: bool = False,
        key: PRNGKeyArray,
        **options: Any,
    ) -> "Trunk":
        """Draws `depth` blocks by `TransformerBlock.init`, which takes the options.

        `remat=True` turns on gradient checkpointing: the backward pass recomputes activations.
        """

        draw = partial(TransformerBlock.init, d, heads, hidden, norms=norms, norm=norm, **options)
        blocks = Stacked.init(draw, depth, remat=remat, key=key)
        return cls(blocks, norm(d) if norms == "before" else None)

    def __call__(
        self,
        x: Float[Array, "t d"],
        *,
        mask: Mask = ALL,
        memory: Float[Array, "s e"] | None = None,
        memory_mask: Mask = ALL,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "t d"]:
        keys = None if key is None else jr.split(key, len(self.blocks))
        step = lambda block, x, key: (
            block(x, mask=mask, memory=memory, memory_mask=memory_mask, key=key),
            None,
        )
        return self._ended(self.blocks.through(step, x, keys)[0])

    def attention_weights(
        self,
        x: Float[Array, "t d"],
        *,
        mask: Mask = ALL,
        memory: Float[Array, "s e"] | None = None,
        memory_mask: Mask = ALL,
    ) -> Float[Array, "l h t s"]:
        r"""$A$ of every layer and head; to a memory if there is one, otherwise to one another."""

        def step(block, x, _):
            met = {}

            def look(x):
                met["one another"] = block.attention.weights(x, mask=mask)
                return block.attention(x, mask=mask)

            def consult(x):
                met["memory"] = block.cross.weights(x, memory, mask=memory_mask)
                return block.consult(x, memory, memory_mask)

            return block.around(x, look, consult), met[
                "one another" if memory is None else "memory"
            ]

        return self.blocks.through(step, x)[1]

    def start(
        self, length: int, *, memory: Float[Array, "s e"] | None = None, memory_mask: Mask = ALL
    ) -> KVCache:
        """Nothing read yet, and room for so many tokens."""
        attention = self.blocks.layers.attention
        room = lambda part: jnp.zeros(
            (len(self.blocks), length, attention.groups, part.W.shape[1] // attention.groups),
            part.W.dtype,
        )
        kept = None
        if memory is not None:
            kept = self.blocks.through(
                lambda block, x, _: (x, block.cross.show(memory)), jnp.zeros(())
            )[1]
        return KVCache(
            Shown(room(attention.K), room(attention.V)), jnp.zeros((), jnp.int32), kept, memory_mask
        )

    def extend(self, x: Float[Array, "t d"], past: KVCache) -> tuple[Float[Array, "t d"], KVCache]:
        """The last vectors of tokens that follow the past, as a causal trunk gives them; and the
        past with them.
        """

        def step(block, x, item):
            shown, memory = item
            return block.extend(x, shown, past.count, memory=memory, memory_mask=past.memory_mask)

        x, shown = self.blocks.through(step, x, (past.shown, past.memory))
        return self._ended(x), KVCache(shown, past.count + len(x), past.memory, past.memory_mask)

    def _ended(self, x: Float[Array, "t d"]) -> Float[Array, "t d"]:
        return x if self.last is None else jax.vmap(self.last)(x)

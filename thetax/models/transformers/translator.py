r"""The transformer as first published (§6.4; Vaswani et al. 2017): an encoder reads the source, a
decoder writes the target and looks at what the encoder made of the source before each token.

$$p(y_{1:n} \mid x) = \prod_i p(y_i \mid \Xi(x), y_{1:i-1})$$
"""

import math
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...layers import (
    CAUSAL,
    Dropout,
    Embedding,
    Initialiser,
    Learned,
    Linear,
    Mask,
    Sinusoidal,
    gaussian,
    glorot,
    written,
)
from .gpt import Decoder
from .transformer import KVCache, Order, Trunk

WAVES = Sinusoidal()


class Translator(eqx.Module):
    r"""A pair `(source, target)` of tokens to the logits of what follows each token of the target,
    which begins with a token that says so.

    Without a `source_vocab_size` table both languages have the same tokens, and without a `readout`
    the vectors of the target's tokens serve again. `model.decoder(source)` writes by itself.

    >>> from thetax.models import greedy
    >>> model = Translator.init(7, 5, 8, depth=1, heads=2, key=jr.key(0))
    >>> source = jnp.array([2, 3, 6, -1])
    >>> model((source, jnp.array([0, 4, 1]))).shape
    (3, 5)
    >>> cell, state = model.decoder(source, length=6)
    >>> greedy(cell, state=state, first=0, end=1, length=6).tokens.shape
    (6,)
    """

    embed: Embedding
    encoder: Trunk
    trunk: Trunk
    source: Embedding | None = None
    readout: Linear | None = None
    positions: Sinusoidal | Learned | None = WAVES
    drop: Dropout = Dropout(0.0)

    @classmethod
    def init(
        cls,
        source_vocab_size: int | None,
        target_vocab_size: int,
        d: int,
        *,
        depth: int = 6,
        heads: int = 8,
        hidden: int | None = None,
        norms: Order = "before",
        dropout: float = 0.0,
        tied: bool = True,
        positions: Sinusoidal | Learned | None = WAVES,
        remat: bool = False,
        initialiser: Initialiser = glorot,
        key: PRNGKeyArray,
    ) -> "Translator":
        """For so many tokens of the source (none: those of the target) and of the target, vectors
        of width `d`.
        """
        key_source, key_target, key_encoder, key_trunk, key_out = jr.split(key, 5)
        draw: Any = partial(
            Trunk.init,
            depth,
            d,
            heads,
            hidden or 4 * d,
            norms=norms,
            dropout=dropout,
            remat=remat,
            initialiser=initialiser,
        )
        spread = gaussian(1 / math.sqrt(d))
        return cls(
            Embedding.init(target_vocab_size, d, initialiser=spread, key=key_target),
            draw(key=key_encoder),
            draw(memory=d, key=key_trunk),
            None
            if source_vocab_size is None
            else Embedding.init(source_vocab_size, d, initialiser=spread, key=key_source),
            None
            if tied
            else Linear.init(d, target_vocab_size, initialiser=initialiser, key=key_out),
            positions,
            Dropout(dropout),
        )

    def encode(
        self, source: Int[Array, " s"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "s d"]:
        r"""$\Xi$: what the decoder looks at."""
        key_drop, key_trunk = (None, None) if key is None else jr.split(key)
        x = self.drop(
            self._input_embeddings(self.embed if self.source is None else self.source, source),
            key=key_drop,
        )
        return self.encoder(x, mask=Mask(length=written(source)), key=key_trunk)

    def __call__(
        self, pair: tuple[Int[Array, " s"], Int[Array, " t"]], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "t v"]:
        source, target = pair
        key_encode, key_drop, key_trunk = (None, None, None) if key is None else jr.split(key, 3)
        memory = self.encode(source, key=key_encode)
        x = self.drop(self._input_embeddings(self.embed, target), key=key_drop)
        return self.unembed(
            self.trunk(
                x,
                mask=CAUSAL,
                memory=memory,
                memory_mask=Mask(length=written(source)),
                key=key_trunk,
            )
        )

    def unembed(self, x: Float[Array, "t d"]) -> Float[Array, "t v"]:
        """The logits of vectors."""
        return self.embed.read(x) if self.readout is None else jax.vmap(self.readout)(x)

    def decoder(self, source: Int[Array, " s"], *, length: int) -> tuple[Decoder, KVCache]:
        """The cell that goes on after each token, for this source, with room for `length` of them,
        and the state in which it begins.
        """
        most = len(self.positions.P) if isinstance(self.positions, Learned) else max(length, 1)
        if not 1 <= length <= most:
            raise ValueError(
                f"Translator: length counts tokens, at least 1 and at most {most}; got {length}."
            )
        past = self.trunk.start(
            length, memory=self.encode(source), memory_mask=Mask(length=written(source))
        )
        return Decoder(self, length), past

    def alignment(self, source: Int[Array, " s"], target: Int[Array, " t"]) -> Float[Array, "t s"]:
        r"""$a_{ij}$: how much it looks at $x_j$ while it reads the $i$-th token of the target; mean
        over all heads.
        """
        return self.attention_weights(source, target).mean(axis=(0, 1))

    def attention_weights(
        self, source: Int[Array, " s"], target: Int[Array, " t"]
    ) -> Float[Array, "l h t s"]:
        """How much each token of the target looks at each of the source, in every layer and head of
        the decoder.
        """
        memory_mask = Mask(length=written(source))
        x = self._input_embeddings(self.embed, target)
        return self.trunk.attention_weights(
            x, mask=CAUSAL, memory=self.encode(source), memory_mask=memory_mask
        )

    def _extend(
        self, tokens: Int[Array, " t"], past: KVCache
    ) -> tuple[Float[Array, "t d"], KVCache]:
        return self.trunk.extend(self._input_embeddings(self.embed, tokens, first=past.count), past)

    def _input_embeddings(
        self, embed: Embedding, tokens: Any, *, first: Int[Array, ""] | int = 0
    ) -> Float[Array, "t d"]:
        x = embed(tokens) * jnp.asarray(math.sqrt(embed.E.shape[1]), embed.E.dtype)
        return x if self.positions is None else self.positions(x, first=first)

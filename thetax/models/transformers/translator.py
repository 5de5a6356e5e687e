r"""The encoder-decoder transformer (§6.4; Vaswani et al. 2017): the decoder attends to the encoded
source.

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

from ...check import expect_count
from ...layers import (
    CAUSAL,
    Dropout,
    Embedding,
    Initialiser,
    LearnedPositions,
    Linear,
    Mask,
    SinusoidalPositions,
    gaussian,
    glorot,
    sequence_length,
)
from .gpt import Decoder
from .transformer import KVCache, NormOrder, Trunk

SINUSOIDAL = SinusoidalPositions()


class Translator(eqx.Module):
    r"""Maps a pair `(source, target)` of tokens to the logits of the token after each token of the
    target, which begins with a start token.

    Without a `source` embedding both languages share the vocabulary, and without a `readout` the
    target embeddings are the output weights. `model.decoder(source)` returns the decoding cell and
    its initial state for `greedy` and `beam_search`.

    >>> from thetax.models import greedy
    >>> model = Translator.init(7, 5, 8, depth=1, heads=2, key=jr.key(0))
    >>> source = jnp.array([2, 3, 6, -1])
    >>> model((source, jnp.array([0, 4, 1]))).shape
    (3, 5)
    >>> cell, state = model.decoder(source, max_length=6)
    >>> greedy(cell, state=state, start_token=0, end_token=1, max_new_tokens=6).tokens.shape
    (6,)
    """

    embed: Embedding
    encoder: Trunk
    trunk: Trunk
    source: Embedding | None = None
    readout: Linear | None = None
    positions: SinusoidalPositions | LearnedPositions | None = SINUSOIDAL
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
        norms: NormOrder = "before",
        dropout: float = 0.0,
        tied: bool = True,
        positions: SinusoidalPositions | LearnedPositions | None = SINUSOIDAL,
        remat: bool = False,
        initialiser: Initialiser = glorot,
        key: PRNGKeyArray,
    ) -> "Translator":
        """Initialises a translator of width `d`.

        With `source_vocab_size=None` source and target share the vocabulary and the embeddings.
        """
        key_source, key_target, key_encoder, key_trunk, key_out = jr.split(key, 5)
        init_trunk: Any = partial(
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
        embedding_initialiser = gaussian(1 / math.sqrt(d))
        return cls(
            Embedding.init(target_vocab_size, d, initialiser=embedding_initialiser, key=key_target),
            init_trunk(key=key_encoder),
            init_trunk(memory_dim=d, key=key_trunk),
            None
            if source_vocab_size is None
            else Embedding.init(
                source_vocab_size, d, initialiser=embedding_initialiser, key=key_source
            ),
            None
            if tied
            else Linear.init(d, target_vocab_size, initialiser=initialiser, key=key_out),
            positions,
            Dropout(dropout),
        )

    def encode(
        self, source: Int[Array, " s"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "s d"]:
        r"""The encoded source $\Xi$."""
        key_drop, key_trunk = (None, None) if key is None else jr.split(key)
        x = self.drop(
            self._input_embeddings(self.embed if self.source is None else self.source, source),
            key=key_drop,
        )
        return self.encoder(x, mask=Mask(length=sequence_length(source)), key=key_trunk)

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
                memory_mask=Mask(length=sequence_length(source)),
                key=key_trunk,
            )
        )

    def unembed(self, x: Float[Array, "t d"]) -> Float[Array, "t v"]:
        """The logits over the vocabulary for hidden states."""
        return self.embed.logits(x) if self.readout is None else jax.vmap(self.readout)(x)

    def decoder(self, source: Int[Array, " s"], *, max_length: int) -> tuple[Decoder, KVCache]:
        """The decoding cell for this source and targets of up to `max_length` tokens, and its
        initial state.
        """
        expect_count("Translator.decoder", max_length=max_length)
        if isinstance(self.positions, LearnedPositions) and max_length > len(self.positions.P):
            raise ValueError(
                f"Translator.decoder: max_length must be at most {len(self.positions.P)}, the "
                f"number of learned positions; got {max_length}."
            )
        cache = self.trunk.empty_cache(
            max_length, memory=self.encode(source), memory_mask=Mask(length=sequence_length(source))
        )
        return Decoder(self, max_length), cache

    def alignment(self, source: Int[Array, " s"], target: Int[Array, " t"]) -> Float[Array, "t s"]:
        r"""The cross-attention weights $a_{ij}$ of $x_j$ for the $i$-th token of the target,
        averaged over layers and heads.
        """
        return self.attention_weights(source, target).mean(axis=(0, 1))

    def attention_weights(
        self, source: Int[Array, " s"], target: Int[Array, " t"]
    ) -> Float[Array, "l h t s"]:
        """The cross-attention weights of every layer and head of the decoder."""
        memory_mask = Mask(length=sequence_length(source))
        x = self._input_embeddings(self.embed, target)
        return self.trunk.attention_weights(
            x, mask=CAUSAL, memory=self.encode(source), memory_mask=memory_mask
        )

    def _extend(
        self, tokens: Int[Array, " t"], past: KVCache
    ) -> tuple[Float[Array, "t d"], KVCache]:
        return self.trunk.extend(
            self._input_embeddings(self.embed, tokens, offset=past.count), past
        )

    def _input_embeddings(
        self, embed: Embedding, tokens: Any, *, offset: Int[Array, ""] | int = 0
    ) -> Float[Array, "t d"]:
        x = embed(tokens) * jnp.asarray(math.sqrt(embed.E.shape[1]), embed.E.dtype)
        return x if self.positions is None else self.positions(x, offset=offset)

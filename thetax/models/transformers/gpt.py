r"""A decoder by itself (§6.4; Radford et al. 2019):
$p(y_1, \dots, y_T) = \prod_t p(y_t \mid y_{1:t-1})$, all of whose factors take one pass of a causal
trunk.

With learned places, `LayerNorm` and GELU it is GPT-2; with `Rotary` places, `RMSNorm`, grouped
attention and SwiGLU it is of the kind of Llama.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...layers import (
    CAUSAL,
    Dropout,
    Embedding,
    FeedForward,
    Gated,
    Initialiser,
    Learned,
    Linear,
    RMSNorm,
    Rotary,
    gaussian,
    gelu_tanh,
)
from .transformer import KVCache, Trunk

SMALL = gaussian(0.02)


class GPT(eqx.Module):
    r"""Tokens $(t,)$ to the logits $(t, V)$ of what follows each of them.

    Without a `readout` the vectors of the tokens serve again: the logit of a token is its vector's
    product with the last one (Press & Wolf 2017). `model.decoder(prompt)` lets it go on by itself.

    >>> from thetax.models import greedy
    >>> model = GPT.init(11, 16, depth=2, heads=2, max_length=12, key=jr.key(0))
    >>> model(jnp.array([3, 1, 4])).shape
    (3, 11)
    >>> cell, state = model.decoder(jnp.array([3, 1]), length=12)
    >>> greedy(cell, state=state, first=4, length=5).tokens.shape
    (5,)
    """

    embed: Embedding
    trunk: Trunk
    positions: Learned | None = None
    readout: Linear | None = None
    drop: Dropout = Dropout(0.0)

    @classmethod
    def init(
        cls,
        vocab_size: int,
        d: int = 768,
        *,
        depth: int = 12,
        heads: int = 12,
        hidden: int | None = None,
        max_length: int = 1024,
        dropout: float = 0.0,
        tied: bool = True,
        remat: bool = False,
        initialiser: Initialiser = SMALL,
        key: PRNGKeyArray,
    ) -> "GPT":
        """As GPT-2, the smallest by default: `vocab_size` tokens, vectors of width `d`, texts of at
        most `max_length`.
        """
        key_embed, key_positions, key_trunk, key_out = jr.split(key, 4)
        feed = partial(FeedForward.init, activation=gelu_tanh)
        trunk = Trunk.init(
            depth,
            d,
            heads,
            hidden or 4 * d,
            feed=feed,
            dropout=dropout,
            remat=remat,
            initialiser=initialiser,
            key=key_trunk,
        )
        return cls(
            Embedding.init(vocab_size, d, initialiser=initialiser, key=key_embed),
            trunk,
            Learned.init(max_length, d, initialiser=initialiser, key=key_positions),
            None
            if tied
            else Linear.init(d, vocab_size, initialiser=initialiser, bias=False, key=key_out),
            Dropout(dropout),
        )

    @classmethod
    def llama(
        cls,
        vocab_size: int,
        d: int,
        *,
        depth: int,
        heads: int,
        groups: int | None = None,
        hidden: int,
        base: float = 1e4,
        epsilon: float = 1e-5,
        tied: bool = True,
        initialiser: Initialiser = SMALL,
        key: PRNGKeyArray,
    ) -> "GPT":
        """As Llama: rotary places, norms of the length alone, `groups` heads of keys, gated
        networks, no offsets.
        """
        key_embed, key_trunk, key_out = jr.split(key, 3)
        trunk = Trunk.init(
            depth,
            d,
            heads,
            hidden,
            groups=groups,
            bias=False,
            relative=Rotary(base),
            norm=partial(RMSNorm.init, epsilon=epsilon),
            feed=Gated.init,
            initialiser=initialiser,
            key=key_trunk,
        )
        readout = (
            None
            if tied
            else Linear.init(d, vocab_size, initialiser=initialiser, bias=False, key=key_out)
        )
        return cls(
            Embedding.init(vocab_size, d, initialiser=initialiser, key=key_embed),
            trunk,
            None,
            readout,
        )

    def __call__(
        self, tokens: Int[Array, " t"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "t v"]:
        return self.unembed(self.last_hidden(tokens, key=key))

    def last_hidden(
        self, tokens: Int[Array, " t"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "t d"]:
        """The last vectors, of which the logits are read."""
        key_drop, key_trunk = (None, None) if key is None else jr.split(key)
        return self.trunk(
            self.drop(self._input_embeddings(tokens), key=key_drop), mask=CAUSAL, key=key_trunk
        )

    def unembed(self, x: Float[Array, "t d"]) -> Float[Array, "t v"]:
        """The logits of vectors."""
        return self.embed.read(x) if self.readout is None else jax.vmap(self.readout)(x)

    def attention_weights(self, tokens: Int[Array, " t"]) -> Float[Array, "l h t t"]:
        """How much each token looks at each before it, in every layer and head."""
        return self.trunk.attention_weights(self._input_embeddings(tokens), mask=CAUSAL)

    def decoder(
        self, prompt: Int[Array, " t"] | None = None, *, length: int
    ) -> tuple["Decoder", KVCache]:
        """The cell that goes on after each token, with room for `length` of them, and the state in
        which all of the prompt has been read.
        """
        most = length if self.positions is None else len(self.positions.P)
        if not (0 if prompt is None else len(prompt)) < length <= most:
            raise ValueError(
                "GPT: length must leave room after a prompt of "
                f"{0 if prompt is None else len(prompt)} and be at most {most}; got {length}."
            )
        cell = Decoder(self, length)
        return cell, cell.start if prompt is None else self._extend(prompt, cell.start)[1]

    def _extend(
        self, tokens: Int[Array, " t"], past: KVCache
    ) -> tuple[Float[Array, "t d"], KVCache]:
        return self.trunk.extend(self._input_embeddings(tokens, first=past.count), past)

    def _input_embeddings(
        self, tokens: Int[Array, " t"], *, first: Int[Array, ""] | int = 0
    ) -> Float[Array, "t d"]:
        x = self.embed(tokens)
        return x if self.positions is None else self.positions(x, first=first)


class Decoder(eqx.Module):
    r"""The cell $(\text{past}, y_t) \mapsto (\text{past}, \text{logits of } y_{t+1})$ of a `GPT` or
    a `Translator`.

    What was read is kept as keys and values, so that no token is computed twice. A token for which
    there is no room is refused, or gets NaN where it is not known how many there were (inside
    `jit`).
    """

    model: Any
    length: int = eqx.field(static=True)

    @property
    def start(self) -> KVCache:
        """Nothing read."""
        return self.model.trunk.start(self.length)

    def __call__(self, past: KVCache, token: Int[Array, ""]) -> tuple[KVCache, Float[Array, " v"]]:
        if not isinstance(past.count, Tracer) and int(np.asarray(past.count)) >= self.length:
            raise ValueError(
                f"Decoder: there was room for {self.length} tokens, and all are read; give a "
                "greater length."
            )
        x, longer = self.model._extend(token[None], past)
        return longer, jnp.where(past.count < self.length, self.model.unembed(x)[0], jnp.nan)

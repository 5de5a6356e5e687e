r"""The decoder-only transformer, GPT (§6.4; Radford et al. 2019).

It models $p(y_1, \dots, y_T) = \prod_t p(y_t \mid y_{1:t-1})$; one pass with a causal mask computes
all factors. `GPT.init` is GPT-2: learned positions, `LayerNorm`, GELU. `GPT.llama` is Llama: rotary
positions (RoPE), `RMSNorm`, grouped-query attention, SwiGLU.
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
    GatedFeedForward,
    Initialiser,
    LearnedPositions,
    Linear,
    RMSNorm,
    Rotary,
    gaussian,
    gelu_tanh,
)
from .transformer import KVCache, Trunk

GPT2_INITIALISER = gaussian(0.02)


class GPT(eqx.Module):
    r"""Tokens $(t,)$ to the logits $(t, V)$ of the token after each of them.

    Without a `readout` the embedding matrix is also the output matrix (weight tying; Press & Wolf
    2017). `model.decoder(prompt)` returns the cell and the KV cache for `greedy`, `sample` and
    `beam_search`.

    >>> from thetax.models import greedy
    >>> model = GPT.init(11, 16, depth=2, heads=2, max_length=12, key=jr.key(0))
    >>> model(jnp.array([3, 1, 4])).shape
    (3, 11)
    >>> cell, state = model.decoder(jnp.array([3, 1]), max_length=12)
    >>> greedy(cell, state=state, start_token=4, max_new_tokens=5).tokens.shape
    (5,)
    """

    embed: Embedding
    trunk: Trunk
    positions: LearnedPositions | None = None
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
        initialiser: Initialiser = GPT2_INITIALISER,
        key: PRNGKeyArray,
    ) -> "GPT":
        r"""Initialises GPT-2, by default the smallest, for texts of at most `max_length` tokens.

        As in GPT-2, weights are $N(0, 0.02^2)$, the output layers of the residual branches
        $\sqrt{2\,\mathrm{depth}}$ times smaller, and `dropout` applies to the input embeddings, the
        attention weights and the output of every residual branch. `tied=False` gives an output
        matrix of its own; `remat=True` turns on gradient checkpointing.
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
            attention_dropout=dropout,
            remat=remat,
            scale_residual=True,
            initialiser=initialiser,
            key=key_trunk,
        )
        return cls(
            Embedding.init(vocab_size, d, initialiser=initialiser, key=key_embed),
            trunk,
            LearnedPositions.init(max_length, d, initialiser=initialiser, key=key_positions),
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
        kv_heads: int | None = None,
        hidden: int,
        rope_base: float = 1e4,
        eps: float = 1e-5,
        tied: bool = True,
        initialiser: Initialiser = GPT2_INITIALISER,
        key: PRNGKeyArray,
    ) -> "GPT":
        """Initialises Llama: rotary positions, `RMSNorm`, `kv_heads` heads of keys and values,
        SwiGLU, no biases.
        """
        key_embed, key_trunk, key_out = jr.split(key, 3)
        trunk = Trunk.init(
            depth,
            d,
            heads,
            hidden,
            kv_heads=kv_heads,
            bias=False,
            position_encoding=Rotary(rope_base),
            norm=partial(RMSNorm.init, eps=eps),
            feed=GatedFeedForward.init,
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
        """The hidden states of the last layer."""
        key_drop, key_trunk = (None, None) if key is None else jr.split(key)
        return self.trunk(
            self.drop(self._input_embeddings(tokens), key=key_drop), mask=CAUSAL, key=key_trunk
        )

    def unembed(self, x: Float[Array, "t d"]) -> Float[Array, "t v"]:
        """The logits of hidden states."""
        return self.embed.logits(x) if self.readout is None else jax.vmap(self.readout)(x)

    def attention_weights(self, tokens: Int[Array, " t"]) -> Float[Array, "l h t t"]:
        """The attention weights of every layer and head."""
        return self.trunk.attention_weights(self._input_embeddings(tokens), mask=CAUSAL)

    def decoder(
        self, prompt: Int[Array, " t"] | None = None, *, max_length: int
    ) -> tuple["Decoder", KVCache]:
        """The decoding cell for texts of up to `max_length` tokens, and its state (the KV cache)
        after the prompt.
        """
        n_prompt = 0 if prompt is None else len(prompt)
        n_positions = max_length if self.positions is None else len(self.positions.P)
        if not n_prompt < max_length <= n_positions:
            raise ValueError(
                f"GPT.decoder: max_length must be more than the {n_prompt} tokens of the prompt"
                + ("" if self.positions is None else f" and at most {n_positions}")
                + f"; got {max_length}."
            )
        cell = Decoder(self, max_length)
        return cell, cell.start if prompt is None else self._extend(prompt, cell.start)[1]

    def _extend(
        self, tokens: Int[Array, " t"], past: KVCache
    ) -> tuple[Float[Array, "t d"], KVCache]:
        return self.trunk.extend(self._input_embeddings(tokens, offset=past.count), past)

    def _input_embeddings(
        self, tokens: Int[Array, " t"], *, offset: Int[Array, ""] | int = 0
    ) -> Float[Array, "t d"]:
        x = self.embed(tokens)
        return x if self.positions is None else self.positions(x, offset=offset)


class Decoder(eqx.Module):
    r"""The decoding cell of a `GPT` or `Translator`: $(\text{KV cache}, y_t) \mapsto (\text{KV
    cache}, \text{logits of } y_{t+1})$.

    When the cache is full, a call raises `ValueError`; inside `jit`, where the number of tokens is
    not known, the logits are NaN.
    """

    model: Any
    max_length: int = eqx.field(static=True)

    @property
    def start(self) -> KVCache:
        """The empty KV cache."""
        return self.model.trunk.empty_cache(self.max_length)

    def __call__(self, past: KVCache, token: Int[Array, ""]) -> tuple[KVCache, Float[Array, " v"]]:
        if not isinstance(past.count, Tracer) and int(np.asarray(past.count)) >= self.max_length:
            raise ValueError(
                f"Decoder: the KV cache of {self.max_length} tokens is full. Choose a larger "
                "max_length."
            )
        x, longer = self.model._extend(token[None], past)
        return longer, jnp.where(past.count < self.max_length, self.model.unembed(x)[0], jnp.nan)

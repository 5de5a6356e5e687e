r"""Recurrent language models and encoder-decoders (§5.3):
$p(y_{1:n} \mid x) = \prod_i p(y_i \mid x, y_{1:i-1})$.

A cell reads a token and returns the logits of the next. `unroll` runs it on a given text (teacher
forcing), and `Recurrent` makes it a model; `greedy`, `sample` and `beam_search` generate text with
it. An encoder-decoder gives such a cell for each source: `model.decoder(source)`.

Tokens are integers >= 0; -1 is padding at the end.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ...layers import (
    LSTM,
    AdditiveAttention,
    Bidirectional,
    Cell,
    Embedding,
    Initialiser,
    Linear,
    LSTMState,
    lecun,
    unroll,
)


class LanguageModelCell(eqx.Module):
    r"""The cell $(z, y_t) \mapsto$ logits of $y_{t+1}$: an embedding, a recurrent cell and a linear
    readout (§5.3).

    >>> cell = LanguageModelCell.init(5, 3, 4, key=jr.key(0))
    >>> from thetax.layers import Recurrent
    >>> Recurrent(cell)(jnp.array([1, 4, 0])).shape
    (3, 5)
    """

    embed: Embedding
    cell: Any
    readout: Linear

    @classmethod
    def init(
        cls,
        vocab_size: int,
        d: int,
        m: int,
        *,
        cell: Callable[..., Any] = LSTM.init,
        initialiser: Initialiser = lecun,
        key: PRNGKeyArray,
    ) -> "LanguageModelCell":
        """Initialises embeddings of dimension $d$ and `cell(d, m, key=key)` with $m$ outputs."""
        key_embed, key_cell, key_out = jr.split(key, 3)
        return cls(
            Embedding.init(vocab_size, d, key=key_embed),
            cell(d, m, key=key_cell),
            Linear.init(m, vocab_size, initialiser=initialiser, key=key_out),
        )

    @property
    def start(self) -> Any:
        """The initial state of the inner cell."""
        return self.cell.start

    def __call__(self, state: Any, token: Int[Array, ""]) -> tuple[Any, Float[Array, " v"]]:
        state, y = self.cell(state, self.embed(token))
        return state, self.readout(y)

    def scan(
        self, state: Any, tokens: Int[Array, " t"], mask: Bool[Array, " t"] | None
    ) -> tuple[Any, Float[Array, "t v"]]:
        """Runs along a text, with one matrix product for all embeddings and one for all logits."""
        state, ys = unroll(self.cell, self.embed(tokens), state=state, mask=mask)
        return state, jax.vmap(self.readout)(ys)


class AttentionCell(Cell):
    r"""A cell with attention to a memory (§5.3).

    Before each step the context $c_i = \sum_j a_{ij} \zeta_j$ is computed with weights $a_i$ from
    the state $z_{i-1}$, and $Cc_i$ is added to the input. The output is $[y_i, c_i]$.
    """

    cell: Cell
    attention: AdditiveAttention
    C: Float[Array, "g n"]
    zeta: Float[Array, "t n"]
    keys: Float[Array, "t h"]
    bias: Float[Array, " t"]  # 0, or minus infinity for padding

    @property
    def start(self) -> Any:
        """The initial state of the inner cell."""
        return self.cell.start

    @property
    def recurrent_matrices(self) -> Mapping[str, Float[Array, "_ _"]]:
        """The matrices of the inner cell, and those of the query and the context."""
        return {**self.cell.recurrent_matrices, "query": self.attention.W, "context": self.C}

    def project_input(self, x: Float[Array, " d"]) -> Any:
        """The input projection of the inner cell."""
        return self.cell.project_input(x)

    def step(
        self, state: Any, a: Any, product: Callable[[str, Array], Array]
    ) -> tuple[Any, Float[Array, " k"]]:
        """Attends to the memory, then steps."""
        weights = self.attention.weights_from_keys(
            product("query", _hidden(state)), self.keys, self.bias == 0
        )
        context = weights @ self.zeta
        state, y = self.cell.step(state, a + product("context", context), product)
        return state, jnp.concatenate([y, context])


class EncoderDecoder(eqx.Module):
    r"""Encoder-decoder (§5.3; Sutskever et al. 2014), optionally with attention (Bahdanau et al.
    2015).

    The decoder starts in the last state $\zeta$ of the encoder; with `attention` it also attends to
    all states $\zeta_j$ of the encoder at every step. A pair `(source, target)` maps to the logits
    of the token after each token of the target, which begins with a start token.

    >>> model = EncoderDecoder.init(7, 5, 3, 4, attention_width=6, key=jr.key(0))
    >>> model((jnp.array([2, 3, 6, -1]), jnp.array([0, 4, 1]))).shape
    (3, 5)
    """

    source: Embedding
    encoder: Bidirectional
    target: LanguageModelCell
    attention: AdditiveAttention | None = None
    C: Float[Array, "g n"] | None = None

    @classmethod
    def init(
        cls,
        source_vocab_size: int,
        target_vocab_size: int,
        d: int,
        m: int,
        *,
        attention_width: int | None = None,
        cell: Callable[..., Cell] = LSTM.init,
        initialiser: Initialiser = lecun,
        key: PRNGKeyArray,
    ) -> "EncoderDecoder":
        """Initialises embeddings of dimension $d$ and cells with $m$ units.

        `attention_width` is the width of the attention's hidden layer; None for no attention.
        """
        key_source, key_forward, key_backward, key_target, key_attention, key_C, key_out = jr.split(
            key, 7
        )
        init_cell = partial(cell, d, m)
        encoder = Bidirectional(init_cell(key=key_forward), init_cell(key=key_backward))
        target = LanguageModelCell.init(target_vocab_size, d, m, cell=cell, key=key_target)
        embed = Embedding.init(source_vocab_size, d, key=key_source)
        if attention_width is None:
            return cls(embed, encoder, target)
        attention = AdditiveAttention.init(
            m, 2 * m, attention_width, initialiser=initialiser, key=key_attention
        )
        C = initialiser(key_C, (_input_width(target.cell, d), 2 * m))
        readout = Linear.init(3 * m, target_vocab_size, initialiser=initialiser, key=key_out)
        target = LanguageModelCell(target.embed, target.cell, readout)
        return cls(embed, encoder, target, attention, C)

    def __check_init__(self):
        if (self.attention is None) != (self.C is None):
            raise ValueError(
                "EncoderDecoder: give both attention and C, the input weights of the context, or "
                "neither."
            )

    def encode(self, source: Int[Array, " t"]) -> tuple[Any, Float[Array, "t n"]]:
        r"""The last state of the backward cell, and $\zeta_1, \dots, \zeta_t$."""
        (_, state), zetas = self.encoder.scan(self.source(source), source >= 0)
        return state, zetas

    def decoder(self, source: Int[Array, " t"]) -> tuple[LanguageModelCell, Any]:
        """The decoding cell for this source, and its initial state."""
        state, zetas = self.encode(source)
        if self.attention is None or self.C is None:
            return self.target, state
        bias = jnp.where(source >= 0, 0.0, -jnp.inf).astype(zetas.dtype)
        cell = AttentionCell(
            self.target.cell, self.attention, self.C, zetas, self.attention.keys(zetas), bias
        )
        return LanguageModelCell(self.target.embed, cell, self.target.readout), state

    def __call__(self, pair: tuple[Int[Array, " t"], Int[Array, " s"]]) -> Float[Array, "s v"]:
        source, target = pair
        cell, state = self.decoder(source)
        return unroll(cell, target, state=state)[1]

    def alignment(self, source: Int[Array, " t"], target: Int[Array, " s"]) -> Float[Array, "s t"]:
        r"""The attention weights $a_{ij}$ of $x_j$ while the $i$-th token of the target is read."""
        attention = self.attention
        if attention is None:
            raise ValueError(
                "EncoderDecoder: alignment needs attention. Initialise it with attention_width=."
            )
        cell, state = self.decoder(source)
        _, ys = unroll(cell.cell, cell.embed(target), state=state)
        z0 = _hidden(state)
        before = jnp.concatenate([z0[None], ys[:-1, : len(z0)]])
        _, zetas = self.encode(source)
        return jax.vmap(lambda z: attention.weights(z, zetas, mask=source >= 0))(before)


def _hidden(state: Any) -> Float[Array, " m"]:
    """The hidden vector of a state."""
    return state.h if isinstance(state, LSTMState) else state


def _input_width(cell: Cell, d: int) -> int:
    """The width of the input projection of a cell."""
    x = jax.ShapeDtypeStruct((d,), jnp.zeros(()).dtype)
    return jax.eval_shape(cell.project_input, x).shape[0]

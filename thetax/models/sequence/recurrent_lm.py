r"""Models of sequences of tokens (§5.3): $p(y_{1:n} \mid x) = \prod_i p(y_i \mid x, y_{1:i-1})$.

What says $p(y_i \mid \cdot)$ is a cell: it reads a token and puts out the logits of the one to
come. `unroll` runs it along a given text, which is teacher forcing, and `Recurrent` makes a model
of it; `greedy`, `sample` and `beam_search` let it go on by itself. A model of pairs gives such a
cell for each source: `model.decoder(source)`.

Tokens are whole numbers from 0, and -1 where a short sequence is filled up at its end.
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
    Additive,
    Bidirectional,
    Cell,
    Embedding,
    Initialiser,
    Kept,
    Linear,
    lecun,
    unroll,
)


class NextToken(eqx.Module):
    r"""The cell $(z, y_t) \mapsto$ logits of $y_{t+1}$: a token's vector, any cell, and a linear
    readout (§5.3).

    >>> cell = NextToken.init(5, 3, 4, key=jr.key(0))
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
    ) -> "NextToken":
        """For `vocab_size` tokens, vectors of size $d$ and `cell(d, m, key=key)`, which puts out
        $m$ numbers.
        """
        key_embed, key_cell, key_out = jr.split(key, 3)
        return cls(
            Embedding.init(vocab_size, d, key=key_embed),
            cell(d, m, key=key_cell),
            Linear.init(m, vocab_size, initialiser=initialiser, key=key_out),
        )

    @property
    def start(self) -> Any:
        """That of the cell within."""
        return self.cell.start

    def __call__(self, state: Any, token: Int[Array, ""]) -> tuple[Any, Float[Array, " v"]]:
        state, y = self.cell(state, self.embed(token))
        return state, self.readout(y)

    def along(
        self, state: Any, tokens: Int[Array, " t"], mask: Bool[Array, " t"] | None
    ) -> tuple[Any, Float[Array, "t v"]]:
        """Vectors and logits of all times in one product each."""
        state, ys = unroll(self.cell, self.embed(tokens), state=state, mask=mask)
        return state, jax.vmap(self.readout)(ys)


class AttentionCell(Cell):
    r"""A cell that looks at a memory before each step: $c_i = \sum_j a_{ij} \zeta_j$ with $a_i$
    from its state $z_{i-1}$, and $Cc_i$ is added to what it reads. It puts out $[y_i, c_i]$ (§5.3).
    """

    cell: Cell
    attention: Additive
    C: Float[Array, "g n"]
    zeta: Float[Array, "t n"]
    keys: Float[Array, "t h"]
    bias: Float[Array, " t"]  # 0 where there is something to see, otherwise minus infinity

    @property
    def start(self) -> Any:
        """That of the cell within."""
        return self.cell.start

    @property
    def memory(self) -> Mapping[str, Float[Array, "_ _"]]:
        """The cell's own, and those of the query and of what was seen."""
        return {**self.cell.memory, "query": self.attention.W, "seen": self.C}

    def read(self, x: Float[Array, " d"]) -> Any:
        """As the cell within."""
        return self.cell.read(x)

    def step(
        self, state: Any, a: Any, product: Callable[[str, Array], Array]
    ) -> tuple[Any, Float[Array, " k"]]:
        """Looks, then steps."""
        weights = self.attention.weigh(product("query", _shown(state)), self.keys, self.bias == 0)
        seen = weights @ self.zeta
        state, y = self.cell.step(state, a + product("seen", seen), product)
        return state, jnp.concatenate([y, seen])


class EncoderDecoder(eqx.Module):
    r"""From one sequence to another (§5.3; Sutskever et al. 2014): the decoder begins in the
    encoder's last state $\zeta$; with `attention` it also sees all states $\zeta_j$ of the encoder
    at every step (Bahdanau et al. 2015).

    A pair `(source, target)` maps to the logits of what follows each token of the target, which
    begins with a token that says so.

    >>> model = EncoderDecoder.init(7, 5, 3, 4, attention_width=6, key=jr.key(0))
    >>> model((jnp.array([2, 3, 6, -1]), jnp.array([0, 4, 1]))).shape
    (3, 5)
    """

    source: Embedding
    encoder: Bidirectional
    target: NextToken
    attention: Additive | None = None
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
        """For `source_vocab_size` and `target_vocab_size` tokens, vectors of size $d$, cells of
        size $m$; `attention_width` is the width of the attention's hidden layer, none without it.
        """
        key_source, key_on, key_back, key_target, key_attend, key_C, key_out = jr.split(key, 7)
        draw = partial(cell, d, m)
        both = Bidirectional(draw(key=key_on), draw(key=key_back))
        speak = NextToken.init(target_vocab_size, d, m, cell=cell, key=key_target)
        embed = Embedding.init(source_vocab_size, d, key=key_source)
        if attention_width is None:
            return cls(embed, both, speak)
        look = Additive.init(m, 2 * m, attention_width, initialiser=initialiser, key=key_attend)
        C = initialiser(key_C, (_width(speak.cell, d), 2 * m))
        readout = Linear.init(3 * m, target_vocab_size, initialiser=initialiser, key=key_out)
        return cls(embed, both, NextToken(speak.embed, speak.cell, readout), look, C)

    def __check_init__(self):
        if (self.attention is None) != (self.C is None):
            raise ValueError(
                "EncoderDecoder: attention and C, which feeds the cell what was seen, come "
                "together."
            )

    def encode(self, source: Int[Array, " t"]) -> tuple[Any, Float[Array, "t n"]]:
        r"""The state in which all was read, which is that of the cell that went back, and
        $\zeta_1, \dots, \zeta_t$.
        """
        (_, state), zetas = self.encoder.along(self.source(source), source >= 0)
        return state, zetas

    def decoder(self, source: Int[Array, " t"]) -> tuple[NextToken, Any]:
        """The cell that goes on after each token, for this source, and the state in which it
        begins.
        """
        state, zetas = self.encode(source)
        if self.attention is None or self.C is None:
            return self.target, state
        bias = jnp.where(source >= 0, 0.0, -jnp.inf).astype(zetas.dtype)
        look = AttentionCell(
            self.target.cell, self.attention, self.C, zetas, self.attention.keys(zetas), bias
        )
        return NextToken(self.target.embed, look, self.target.readout), state

    def __call__(self, pair: tuple[Int[Array, " t"], Int[Array, " s"]]) -> Float[Array, "s v"]:
        source, target = pair
        cell, state = self.decoder(source)
        return unroll(cell, target, state=state)[1]

    def alignment(self, source: Int[Array, " t"], target: Int[Array, " s"]) -> Float[Array, "s t"]:
        r"""$a_{ij}$: how much it looks at $x_j$ while it reads the $i$-th token of the target."""
        attention = self.attention
        if attention is None:
            raise ValueError(
                "EncoderDecoder: it has no attention to align with; draw it with attend=."
            )
        cell, state = self.decoder(source)
        _, ys = unroll(cell.cell, cell.embed(target), state=state)
        before = jnp.concatenate([_shown(state)[None], ys[:-1, : len(_shown(state))]])
        _, zetas = self.encode(source)
        return jax.vmap(lambda z: attention.weights(z, zetas, mask=source >= 0))(before)


def _shown(state: Any) -> Float[Array, " m"]:
    """What a state lets others see."""
    return state.shown if isinstance(state, Kept) else state


def _width(cell: Cell, d: int) -> int:
    """How many numbers a cell reads of an input."""
    return jax.eval_shape(cell.read, jax.ShapeDtypeStruct((d,), jnp.zeros(()).dtype)).shape[0]

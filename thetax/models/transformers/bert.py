r"""BERT (§6.5; Devlin et al. 2019): a bidirectional encoder, pretrained with masked language
modelling and next-sentence prediction, then fine-tuned with a task-specific head.

An example is a row of tokens, $[\text{CLS}]\, s_1\, [\text{SEP}]\, s_2\, [\text{SEP}]$ padded with
-1, or the pair of it and the segment (0 or 1) of each token. The input embedding is the sum of
token, position and segment embeddings.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...check import expect_count
from ...layers import (
    Activation,
    Dropout,
    Embedding,
    FeedForward,
    Initialiser,
    LayerNorm,
    LearnedPositions,
    Linear,
    Mask,
    gaussian,
    gelu,
    sequence_length,
    tanh,
)
from .transformer import Trunk

SMALL = gaussian(0.02)
BERTInput = Int[Array, " t"] | tuple[Int[Array, " t"], Int[Array, " t"]]


class BERT(eqx.Module):
    r"""Maps tokens $(t,)$ to hidden states $(t, d)$; `BERT.init(30_522, key=key)` has the size of
    BERT-base.

    >>> model = BERT.init(11, 8, depth=2, heads=2, max_length=6, key=jr.key(0))
    >>> model(jnp.array([1, 4, 2, -1])).shape
    (4, 8)
    >>> model((jnp.array([1, 4, 2, 5, 2]), jnp.array([0, 0, 0, 1, 1]))).shape
    (5, 8)
    """

    embed: Embedding
    positions: LearnedPositions
    segments: Embedding
    norm: LayerNorm
    trunk: Trunk
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
        max_length: int = 512,
        n_segments: int = 2,
        eps: float = 1e-12,
        dropout: float = 0.0,
        activation: Activation = gelu,
        remat: bool = False,
        initialiser: Initialiser = SMALL,
        key: PRNGKeyArray,
    ) -> "BERT":
        """Initialises BERT for texts of at most `max_length` tokens.

        As in BERT, `dropout` applies to the input embeddings, the attention weights and the output
        of every residual branch. `remat=True` turns on gradient checkpointing.
        """
        key_embed, key_positions, key_segments, key_trunk = jr.split(key, 4)
        norm = partial(LayerNorm.init, eps=eps)
        trunk = Trunk.init(
            depth,
            d,
            heads,
            hidden or 4 * d,
            norms="after",
            norm=norm,
            feed=partial(FeedForward.init, activation=activation),
            dropout=dropout,
            attention_dropout=dropout,
            remat=remat,
            initialiser=initialiser,
            key=key_trunk,
        )
        return cls(
            Embedding.init(vocab_size, d, initialiser=initialiser, key=key_embed),
            LearnedPositions.init(max_length, d, initialiser=initialiser, key=key_positions),
            Embedding.init(n_segments, d, initialiser=initialiser, key=key_segments),
            norm(d),
            trunk,
            Dropout(dropout),
        )

    def input_embeddings(self, x: BERTInput) -> Float[Array, "t d"]:
        """The normalised sum of token, position and segment embeddings; segments default to 0."""
        tokens, segments = _tokens_and_segments(x)
        return jax.vmap(self.norm)(self.positions(self.embed(tokens)) + self.segments(segments))

    def __call__(self, x: BERTInput, *, key: PRNGKeyArray | None = None) -> Float[Array, "t d"]:
        key_drop, key_trunk = (None, None) if key is None else jr.split(key)
        return self.trunk(
            self.drop(self.input_embeddings(x), key=key_drop), mask=_padding_mask(x), key=key_trunk
        )

    def attention_weights(self, x: BERTInput) -> Float[Array, "l h t t"]:
        """The attention weights of every layer and head."""
        return self.trunk.attention_weights(self.input_embeddings(x), mask=_padding_mask(x))


def _tokens_and_segments(x: BERTInput) -> tuple[Int[Array, " t"], Int[Array, " t"]]:
    tokens, segments = x if isinstance(x, tuple) else (x, jnp.zeros_like(x))
    if tokens.shape != segments.shape:
        raise ValueError(
            f"BERT: expected one segment per token; got shapes {tokens.shape} and {segments.shape}."
        )
    return tokens, segments


def _padding_mask(x: BERTInput) -> Mask:
    return Mask(length=sequence_length(_tokens_and_segments(x)[0]))


class PretrainingLogits(NamedTuple):
    """Logits over the vocabulary for every token, and next-sentence logits."""

    tokens: Float[Array, "t v"]
    next_sentence: Float[Array, " 2"]


class BERTPretraining(eqx.Module):
    r"""BERT with its two pretraining heads (§6.5).

    The masked-language-model head gives logits over the vocabulary at each position, with the token
    embeddings as output weights. The next-sentence head gives the logits of 0 (the second sentence
    follows) and 1 (it does not) from the first token.

    >>> model = BERTPretraining.init(
    ...     BERT.init(11, 8, depth=1, heads=2, max_length=6, key=jr.key(0)), key=jr.key(1)
    ... )
    >>> logits = model(jnp.array([1, 4, 2]))
    >>> logits.tokens.shape, logits.next_sentence.shape
    ((3, 11), (2,))
    """

    bert: BERT
    transform: Linear
    norm: LayerNorm
    b: Float[Array, " v"]
    pool: Linear
    next_sentence: Linear
    activation: Activation = eqx.field(static=True, default=gelu)

    @classmethod
    def init(
        cls, bert: BERT, *, initialiser: Initialiser = SMALL, key: PRNGKeyArray
    ) -> "BERTPretraining":
        """Initialises the heads."""
        vocab_size, d = bert.embed.E.shape
        key_transform, key_pool, key_next = jr.split(key, 3)
        linear = partial(Linear.init, d, initialiser=initialiser)
        norm = LayerNorm.init(d, eps=bert.norm.eps)
        return cls(
            bert,
            linear(d, key=key_transform),
            norm,
            jnp.zeros(vocab_size),
            linear(d, key=key_pool),
            linear(2, key=key_next),
        )

    def fill(self, x: Float[Array, "t d"]) -> Float[Array, "t v"]:
        """The logits over the vocabulary for hidden states."""
        return _fill(self, x)

    def __call__(self, x: BERTInput, *, key: PRNGKeyArray | None = None) -> PretrainingLogits:
        hidden = self.bert(x, key=key)
        return PretrainingLogits(self.fill(hidden), self.next_sentence(tanh(self.pool(hidden[0]))))


class MaskedLM(eqx.Module):
    r"""BERT with the masked-language-model head only: logits at each position (§6.5).

    >>> model = MaskedLM.init(
    ...     BERT.init(11, 8, depth=1, heads=2, max_length=6, key=jr.key(0)), key=jr.key(1)
    ... )
    >>> model(jnp.array([1, 4, 2])).shape
    (3, 11)
    """

    bert: BERT
    transform: Linear
    norm: LayerNorm
    b: Float[Array, " v"]
    activation: Activation = eqx.field(static=True, default=gelu)

    @classmethod
    def init(cls, bert: BERT, *, initialiser: Initialiser = SMALL, key: PRNGKeyArray) -> "MaskedLM":
        """Initialises the head."""
        vocab_size, d = bert.embed.E.shape
        norm = LayerNorm.init(d, eps=bert.norm.eps)
        return cls(
            bert, Linear.init(d, d, initialiser=initialiser, key=key), norm, jnp.zeros(vocab_size)
        )

    def __call__(self, x: BERTInput, *, key: PRNGKeyArray | None = None) -> Float[Array, "t v"]:
        return _fill(self, self.bert(x, key=key))


def _fill(model: BERTPretraining | MaskedLM, x: Float[Array, "t d"]) -> Float[Array, "t v"]:
    y = jax.vmap(model.norm)(model.activation(jax.vmap(model.transform)(x)))
    return model.bert.embed.logits(y) + model.b[None]


class SentenceClassifier(eqx.Module):
    r"""Sentence classification $W \tanh(P\xi_1) + b$ from the first token, [CLS] (§6.5).

    >>> bert = BERT.init(11, 8, depth=1, heads=2, max_length=6, key=jr.key(0))
    >>> SentenceClassifier.init(bert, 3, key=jr.key(1))(jnp.array([1, 4, 2])).shape
    (3,)
    """

    bert: BERT
    pool: Linear
    head: Linear
    drop: Dropout = Dropout(0.0)

    @classmethod
    def init(
        cls,
        bert: BERT,
        classes: int,
        *,
        pool: Linear | None = None,
        dropout: float = 0.0,
        initialiser: Initialiser = SMALL,
        key: PRNGKeyArray,
    ) -> "SentenceClassifier":
        """Initialises a head on a pretrained encoder; `pool` may be pretrained too."""
        d = bert.embed.E.shape[1]
        key_pool, key_head = jr.split(key)
        pool = Linear.init(d, d, initialiser=initialiser, key=key_pool) if pool is None else pool
        return cls(
            bert,
            pool,
            Linear.init(d, classes, initialiser=initialiser, key=key_head),
            Dropout(dropout),
        )

    def __call__(self, x: BERTInput, *, key: PRNGKeyArray | None = None) -> Float[Array, " k"]:
        key_bert, key_drop = (None, None) if key is None else jr.split(key)
        return self.head(self.drop(tanh(self.pool(self.bert(x, key=key_bert)[0])), key=key_drop))


class TokenClassifier(eqx.Module):
    r"""Token classification $W\xi_t + b$ (§6.5).

    >>> bert = BERT.init(11, 8, depth=1, heads=2, max_length=6, key=jr.key(0))
    >>> TokenClassifier.init(bert, 5, key=jr.key(1))(jnp.array([1, 4, 2])).shape
    (3, 5)
    """

    bert: BERT
    head: Linear
    drop: Dropout = Dropout(0.0)

    @classmethod
    def init(
        cls,
        bert: BERT,
        classes: int,
        *,
        dropout: float = 0.0,
        initialiser: Initialiser = SMALL,
        key: PRNGKeyArray,
    ) -> "TokenClassifier":
        """Initialises a head on a pretrained encoder."""
        return cls(
            bert,
            Linear.init(bert.embed.E.shape[1], classes, initialiser=initialiser, key=key),
            Dropout(dropout),
        )

    def __call__(self, x: BERTInput, *, key: PRNGKeyArray | None = None) -> Float[Array, "t k"]:
        key_bert, key_drop = (None, None) if key is None else jr.split(key)
        return jax.vmap(self.head)(self.drop(self.bert(x, key=key_bert), key=key_drop))


class SpanPredictor(eqx.Module):
    r"""Extractive question answering: scores $s_i = S^\top \xi_i$ of the start and
    $e_j = E^\top \xi_j$ of the end of the answer (§6.5).

    The example is a question and a passage, as segments 0 and 1, with [SEP] as the last token. The
    scores are $-\infty$ outside the passage and at that [SEP].

    >>> bert = BERT.init(11, 8, depth=1, heads=2, max_length=6, key=jr.key(0))
    >>> model = SpanPredictor.init(bert, key=jr.key(1))
    >>> jnp.isfinite(model((jnp.array([1, 4, 2, 5, 6, 2]), jnp.array([0, 0, 0, 1, 1, 1]))))[
    ...     0
    ... ].tolist()
    [False, False, False, True, True, False]
    """

    bert: BERT
    head: Linear

    @classmethod
    def init(
        cls, bert: BERT, *, initialiser: Initialiser = SMALL, key: PRNGKeyArray
    ) -> "SpanPredictor":
        """Initialises a head on a pretrained encoder."""
        return cls(bert, Linear.init(bert.embed.E.shape[1], 2, initialiser=initialiser, key=key))

    def __call__(
        self, x: tuple[Int[Array, " t"], Int[Array, " t"]], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "2 t"]:
        tokens, segments = x
        scores: Any = jax.vmap(self.head)(self.bert(x, key=key)).T
        in_passage = (segments == 1) & (jnp.arange(len(tokens)) < (tokens >= 0).sum() - 1)
        return jnp.where(in_passage[None], scores, -jnp.inf)


def best_span(
    scores: Float[Array, "2 t"], *, max_length: int
) -> tuple[Int[Array, ""], Int[Array, ""]]:
    r"""The best answer span $\arg\max_{i \le j < i + \ell} s_i + e_j$, in $O(T\ell)$ (§6.5).

    >>> scores = jnp.array([[0.0, 3.0, 1.0], [4.0, 0.0, 2.0]])
    >>> [int(i) for i in best_span(scores, max_length=2)]
    [1, 2]
    """
    expect_count("best_span", max_length=max_length)
    starts, ends = scores
    t = len(starts)
    max_length = min(max_length, t)
    padded = jnp.concatenate([ends, jnp.full(max_length - 1, -jnp.inf, ends.dtype)])
    totals = starts[:, None] + jnp.stack([padded[k : k + t] for k in range(max_length)], axis=1)
    best = jnp.argmax(totals)
    return best // max_length, best // max_length + best % max_length

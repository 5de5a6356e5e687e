r"""BERT (§6.5; Devlin et al. 2019): an encoder in which every token sees all others, trained to
fill gaps and to tell whether one sentence follows another, and then given another head for the task
in question.

An example is a row of tokens, $[\text{CLS}]\, s_1\, [\text{SEP}]\, s_2\, [\text{SEP}]$ filled up
with -1, or the pair of it and the segment, 0 or 1, of each token. What goes in is the sum of three
vectors, of the token, its place and its segment.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...layers import (
    Activation,
    Dropout,
    Embedding,
    FeedForward,
    Initialiser,
    LayerNorm,
    Learned,
    Linear,
    Mask,
    gaussian,
    gelu,
    tanh,
    written,
)
from .transformer import Trunk

SMALL = gaussian(0.02)
BERTInput = Int[Array, " t"] | tuple[Int[Array, " t"], Int[Array, " t"]]


class BERT(eqx.Module):
    r"""Tokens $(t,)$ to vectors $(t, d)$ that know their context; `BERT.init(30_522, key=key)` is
    of the size of BERT-base.

    >>> model = BERT.init(11, 8, depth=2, heads=2, max_length=6, key=jr.key(0))
    >>> model(jnp.array([1, 4, 2, -1])).shape
    (4, 8)
    >>> model((jnp.array([1, 4, 2, 5, 2]), jnp.array([0, 0, 0, 1, 1]))).shape
    (5, 8)
    """

    embed: Embedding
    positions: Learned
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
        segments: int = 2,
        epsilon: float = 1e-12,
        dropout: float = 0.0,
        activation: Activation = gelu,
        remat: bool = False,
        initialiser: Initialiser = SMALL,
        key: PRNGKeyArray,
    ) -> "BERT":
        """For `vocab_size` tokens, and texts of at most `max_length`."""
        key_embed, key_positions, key_segments, key_trunk = jr.split(key, 4)
        norm = partial(LayerNorm.init, epsilon=epsilon)
        trunk = Trunk.init(
            depth,
            d,
            heads,
            hidden or 4 * d,
            norms="after",
            norm=norm,
            feed=partial(FeedForward.init, activation=activation),
            dropout=dropout,
            remat=remat,
            initialiser=initialiser,
            key=key_trunk,
        )
        return cls(
            Embedding.init(vocab_size, d, initialiser=initialiser, key=key_embed),
            Learned.init(max_length, d, initialiser=initialiser, key=key_positions),
            Embedding.init(segments, d, initialiser=initialiser, key=key_segments),
            norm(d),
            trunk,
            Dropout(dropout),
        )

    def input_embeddings(self, x: BERTInput) -> Float[Array, "t d"]:
        """The sum of the three vectors of each token, normalised; 0 for the segment unless it is
        given.
        """
        tokens, segments = _parted(x)
        return jax.vmap(self.norm)(self.positions(self.embed(tokens)) + self.segments(segments))

    def __call__(self, x: BERTInput, *, key: PRNGKeyArray | None = None) -> Float[Array, "t d"]:
        key_drop, key_trunk = (None, None) if key is None else jr.split(key)
        return self.trunk(
            self.drop(self.input_embeddings(x), key=key_drop), mask=_there(x), key=key_trunk
        )

    def attention_weights(self, x: BERTInput) -> Float[Array, "l h t t"]:
        """How much each token looks at each other, in every layer and head."""
        return self.trunk.attention_weights(self.input_embeddings(x), mask=_there(x))


def _parted(x: BERTInput) -> tuple[Int[Array, " t"], Int[Array, " t"]]:
    tokens, segments = x if isinstance(x, tuple) else (x, jnp.zeros_like(x))
    if tokens.shape != segments.shape:
        raise ValueError(
            f"BERT: expected a segment for each token; got {tokens.shape} and {segments.shape}."
        )
    return tokens, segments


def _there(x: BERTInput) -> Mask:
    return Mask(length=written(_parted(x)[0]))


class PretrainingLogits(NamedTuple):
    """What fills the gaps, logits for every token, and whether the second sentence follows the
    first.
    """

    tokens: Float[Array, "t v"]
    next_sentence: Float[Array, " 2"]


class BERTPretraining(eqx.Module):
    r"""BERT with the two heads it is trained with (§6.5): the logits of the token at each place,
    read by the vectors of the tokens themselves, and those of 0 "it follows" and 1 "it does not",
    read at the first place.

    >>> model = BERTPretraining.init(
    ...     BERT.init(11, 8, depth=1, heads=2, max_length=6, key=jr.key(0)), key=jr.key(1)
    ... )
    >>> guesses = model(jnp.array([1, 4, 2]))
    >>> guesses.tokens.shape, guesses.next_sentence.shape
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
        """Draws the heads."""
        size, d = bert.embed.E.shape
        key_transform, key_pool, key_next = jr.split(key, 3)
        draw = partial(Linear.init, d, initialiser=initialiser)
        norm = LayerNorm.init(d, epsilon=bert.norm.epsilon)
        return cls(
            bert,
            draw(d, key=key_transform),
            norm,
            jnp.zeros(size),
            draw(d, key=key_pool),
            draw(2, key=key_next),
        )

    def fill(self, x: Float[Array, "t d"]) -> Float[Array, "t v"]:
        """The logits of the tokens of which these are the last vectors."""
        return _fill(self, x)

    def __call__(self, x: BERTInput, *, key: PRNGKeyArray | None = None) -> PretrainingLogits:
        found = self.bert(x, key=key)
        return PretrainingLogits(self.fill(found), self.next_sentence(tanh(self.pool(found[0]))))


class MaskedLM(eqx.Module):
    r"""BERT with the first of those heads alone: the logits of the token at each place (§6.5).

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
        """Draws the head."""
        size, d = bert.embed.E.shape
        norm = LayerNorm.init(d, epsilon=bert.norm.epsilon)
        return cls(bert, Linear.init(d, d, initialiser=initialiser, key=key), norm, jnp.zeros(size))

    def __call__(self, x: BERTInput, *, key: PRNGKeyArray | None = None) -> Float[Array, "t v"]:
        return _fill(self, self.bert(x, key=key))


def _fill(model: BERTPretraining | MaskedLM, x: Float[Array, "t d"]) -> Float[Array, "t v"]:
    y = jax.vmap(model.norm)(model.activation(jax.vmap(model.transform)(x)))
    return model.bert.embed.read(y) + model.b[None]


class SentenceClassifier(eqx.Module):
    r"""$W \tanh(P\xi_1) + b$: a sentence's class, read at the token that begins it (§6.5).

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
        """A head for so many classes on an encoder that has learned; `pool` may have learned
        too.
        """
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
    r"""$W\xi_t + b$: a class for every token (§6.5).

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
        """A head for so many classes on an encoder that has learned."""
        return cls(
            bert,
            Linear.init(bert.embed.E.shape[1], classes, initialiser=initialiser, key=key),
            Dropout(dropout),
        )

    def __call__(self, x: BERTInput, *, key: PRNGKeyArray | None = None) -> Float[Array, "t k"]:
        key_bert, key_drop = (None, None) if key is None else jr.split(key)
        return jax.vmap(self.head)(self.drop(self.bert(x, key=key_bert), key=key_drop))


class SpanPredictor(eqx.Module):
    r"""$s_i = S^\top \xi_i$ and $e_j = E^\top \xi_j$: where in the passage an answer begins and
    where it ends (§6.5).

    The example is a question and a passage, as segments 0 and 1, of which the last token is the
    [SEP] that closes the passage; outside of the passage, and there, the scores are $-\infty$.

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
        """A head on an encoder that has learned."""
        return cls(bert, Linear.init(bert.embed.E.shape[1], 2, initialiser=initialiser, key=key))

    def __call__(
        self, x: tuple[Int[Array, " t"], Int[Array, " t"]], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "2 t"]:
        tokens, segments = x
        scores: Any = jax.vmap(self.head)(self.bert(x, key=key)).T
        words = (segments == 1) & (jnp.arange(len(tokens)) < (tokens >= 0).sum() - 1)
        return jnp.where(words[None], scores, -jnp.inf)


def best_span(
    scores: Float[Array, "2 t"], *, max_length: int
) -> tuple[Int[Array, ""], Int[Array, ""]]:
    r"""$\arg\max_{i \le j < i + \ell} s_i + e_j$, in $O(T\ell)$ (§6.5).

    >>> scores = jnp.array([[0.0, 3.0, 1.0], [4.0, 0.0, 2.0]])
    >>> [int(place) for place in best_span(scores, max_length=2)]
    [1, 2]
    """
    if max_length < 1:
        raise ValueError(
            f"best_span: longest counts tokens and must be at least 1; got {max_length}."
        )
    begins, ends = scores
    t = len(begins)
    max_length = min(max_length, len(begins))
    beyond = jnp.concatenate([ends, jnp.full(max_length - 1, -jnp.inf, ends.dtype)])
    totals = begins[:, None] + jnp.stack([beyond[k : k + t] for k in range(max_length)], axis=1)
    best = jnp.argmax(totals)
    return best // max_length, best // max_length + best % max_length

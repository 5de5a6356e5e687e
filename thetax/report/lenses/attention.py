"""Lenses on transformers: attention maps, token saliency, token embeddings."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from ... import explain
from ...recipes.engine.outcome import Outcome
from ..registry import lens

MAX_TOKENS = 128  # tokens of the example shown
MAX_EMBEDDINGS = 150  # tokens whose embeddings are drawn


def has_attention(outcome: Outcome) -> bool:
    """Whether the model has self-attention whose weights can be computed."""
    return explain.has_self_attention(outcome.model)


def first_example(outcome: Outcome) -> Any:
    """The first test example; a long text is truncated."""
    x = jax.tree.map(lambda a: a[0], outcome.test[0])
    tokens = x[0] if isinstance(x, tuple) else x
    return (
        jax.tree.map(lambda a: a[:MAX_TOKENS], x) if np.issubdtype(tokens.dtype, np.integer) else x
    )


def _attention_metrics(result: explain.attribution.AttentionMaps) -> dict[str, str]:
    places = result.perplexity
    widest, narrowest = (np.unravel_index(f(places), places.shape) for f in (np.argmax, np.argmin))
    describe = lambda at: f"layer {at[0] + 1}, head {at[1] + 1}: {places[at]:.3g} positions"
    return {
        "effective number of positions attended to": f"{places.mean():.3g} of {len(result.tokens)} "
        "on average",
        "broadest head": describe(widest),
        "sharpest head": describe(narrowest),
    }


@lens(
    "Attention maps",
    description="Attention weights of each layer and head on the first test example. Each row is a "
    "query token, and the shade shows its weight on each key token (for images: the weights of the "
    "class token on the patches). Below left, the effective number of positions each head attends "
    "to (the exponential of the entropy of its weights); below right, attention rollout, which "
    "combines all layers and gives half of each layer to the residual connection.",
    applies=has_attention,
    metrics=_attention_metrics,
)
def _attention(outcome: Outcome) -> explain.attribution.AttentionMaps:
    return explain.attention_maps(outcome.model, first_example(outcome), vocab=outcome.tokens)


def reads_tokens(outcome: Outcome) -> bool:
    """Whether the model maps named tokens to named classes or tokens."""
    return (
        has_attention(outcome)
        and bool(outcome.tokens)
        and bool(outcome.classes)
        and explain.has_embedding(outcome.model)
    )


@lens(
    "Token saliency",
    description="Gradient norm of the predicted logit with respect to each token embedding of the "
    "first test example; taken at the last position if the model predicts at every position, or at "
    "the middle one of those that have a target. Blue tokens support the prediction (positive "
    "gradient × input), orange ones oppose it.",
    applies=reads_tokens,
    metrics=lambda result: {"logit of": result.predicted},
)
def _saliency(outcome: Outcome) -> explain.attribution.TokenSaliency:
    x = first_example(outcome)
    position = target_position(outcome)
    saliency = explain.token_saliency(
        outcome.model, x, vocab=outcome.tokens, classes=outcome.classes, position=position
    )
    if position is None:
        return saliency
    return replace(saliency, predicted=f"{saliency.predicted}, at {saliency.tokens[position]!r}")


def target_position(outcome: Outcome) -> int | None:
    """The middle position with a target in the first test example, if some positions have none;
    None otherwise.
    """
    y = np.asarray(outcome.test[1])[0]
    x = first_example(outcome)
    there = np.asarray(x[0] if isinstance(x, tuple) else x) >= 0
    if y.shape != there.shape or (y[there] >= 0).all() or not (y[there] >= 0).any():
        return None
    places = np.flatnonzero(there & (y >= 0))
    return int(places[len(places) // 2])


@lens(
    "Token embeddings",
    description=f"The embeddings of the {MAX_EMBEDDINGS} most frequent tokens of the test set, "
    "projected on their first two principal components. Nearby tokens have similar embeddings. "
    "Where two labels would overlap, only the more frequent token is labelled.",
    applies=lambda outcome: bool(outcome.tokens) and explain.has_embedding(outcome.model),
    metrics=lambda result: {"explained variance": f"{100 * result.explained_variance.sum():.0f} %"},
)
def _embeddings(outcome: Outcome) -> explain.attribution.EmbeddingMap:
    tokens = np.asarray(jax.tree.leaves(outcome.test[0])[0]).ravel()
    counts = np.bincount(tokens[tokens >= 0], minlength=len(outcome.tokens))[: len(outcome.tokens)]
    common = np.argsort(-counts, kind="stable")[:MAX_EMBEDDINGS]
    return explain.embedding_map(
        outcome.model, vocab=outcome.tokens, indices=common[counts[common] > 0].tolist()
    )

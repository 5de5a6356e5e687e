"""Lenses on transformers: where they look, which words a judgement hangs on, and how the vectors of
words lie.
"""

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from ... import explain
from ...recipes.engine.outcome import Outcome
from ..registry import lens

MAX_TOKENS = 128  # tokens of a text that is looked at
MAX_EMBEDDINGS = 150  # tokens whose vectors are drawn


def looks(outcome: Outcome) -> bool:
    """Whether the model attends to one sequence, and of how it does that all weights can be
    held.
    """
    return explain.attends_to_itself(outcome.model)


def first(outcome: Outcome) -> Any:
    """The first test example, cut if it is a long text."""
    x = jax.tree.map(lambda a: a[0], outcome.test[0])
    tokens = x[0] if isinstance(x, tuple) else x
    return (
        jax.tree.map(lambda a: a[:MAX_TOKENS], x) if np.issubdtype(tokens.dtype, np.integer) else x
    )


def _gaze(result: explain.AttentionMaps) -> dict[str, str]:
    places = result.places
    widest, narrowest = (np.unravel_index(f(places), places.shape) for f in (np.argmax, np.argmin))
    called = lambda at: f"layer {at[0] + 1}, head {at[1] + 1}: {places[at]:.3g} places"
    return {
        "looks at, on average": f"{places.mean():.3g} of {len(result.tokens)} places at once",
        "most widely": called(widest),
        "most narrowly": called(narrowest),
    }


@lens(
    "Attention",
    says="Where the heads look on the first test example: a row of a table is a token, and its "
    "shades, darkest for the largest weight, are what it looks at; of an image, what the token of "
    "the class looks at. Below, at how many places each head looks at once (the exponential of the "
    "entropy of its weights), and what flows through all layers together, half of each layer "
    "passing by its heads (rollout).",
    applies=looks,
    tells=_gaze,
)
def _attention(outcome: Outcome) -> explain.AttentionMaps:
    return explain.attention_maps(outcome.model, first(outcome), names=outcome.tokens)


def reads(outcome: Outcome) -> bool:
    """Whether it reads named tokens and says something about them that has a name."""
    return (
        looks(outcome)
        and bool(outcome.tokens)
        and bool(outcome.classes)
        and explain.has_table(outcome.model)
    )


@lens(
    "What the judgement hangs on",
    says="How steeply the likeliest logit changes with the vector of each token of the first test "
    "example; at the last place, if the model speaks at every one, or in the middle, if it is "
    "asked about some. Blue tokens speak for it, orange ones against.",
    applies=reads,
    tells=lambda result: {"the logit of": result.about},
)
def _saliency(outcome: Outcome) -> explain.TokenSaliency:
    x = first(outcome)
    place = asked(outcome)
    found = explain.token_saliency(
        outcome.model, x, names=outcome.tokens, classes=outcome.classes, place=place
    )
    return (
        found
        if place is None
        else replace(found, about=f"{found.about}, at {found.tokens[place]!r}")
    )


def asked(outcome: Outcome) -> int | None:
    """The middle one of the places of the first test example with a target, if some have none; no
    place otherwise.
    """
    y = np.asarray(outcome.test[1])[0]
    x = first(outcome)
    there = np.asarray(x[0] if isinstance(x, tuple) else x) >= 0
    if y.shape != there.shape or (y[there] >= 0).all() or not (y[there] >= 0).any():
        return None
    places = np.flatnonzero(there & (y >= 0))
    return int(places[len(places) // 2])


@lens(
    "Vectors of the tokens",
    says=f"The vectors of the {MAX_EMBEDDINGS} commonest tokens of the test set, from the side "
    "from which they differ most. Where two names would touch, that of the commoner token is "
    "written.",
    applies=lambda outcome: bool(outcome.tokens) and explain.has_table(outcome.model),
    tells=lambda result: {"in view": f"{100 * result.share.sum():.0f} % of the variance"},
)
def _vectors(outcome: Outcome) -> explain.EmbeddingMap:
    tokens = np.asarray(jax.tree.leaves(outcome.test[0])[0]).ravel()
    counts = np.bincount(tokens[tokens >= 0], minlength=len(outcome.tokens))[: len(outcome.tokens)]
    common = np.argsort(-counts, kind="stable")[:MAX_EMBEDDINGS]
    return explain.embedding_map(
        outcome.model, names=outcome.tokens, which=common[counts[common] > 0].tolist()
    )

"""Lenses on models that write: what they say themselves, what surprises them, and how they
translate.
"""

import jax.random as jr

from ... import explain
from ...layers import Recurrent
from ...models import GPT, NextToken
from ...recipes.engine.outcome import Outcome
from ..registry import format_percent, lens, subsample
from .time import attends

MAX_TEXTS = 100  # texts of the test set
MAX_LENGTH = 300  # tokens of a text that is drawn
TOP_P = 0.95  # of the probability, from which one with many tokens draws
MAX_PAIRS = 64  # pairs of the test set
MAX_SHOWN_PAIRS = 6  # of them


def speaks(outcome: Outcome) -> bool:
    """Whether the model goes on after a token with one of the same kind, and these have names."""
    model = outcome.model
    goes_on = isinstance(model, GPT) or (
        isinstance(model, Recurrent) and isinstance(model.cell, NextToken)
    )
    return goes_on and len(outcome.tokens) > 1 and outcome.tokens == outcome.classes


def _told(result: explain.Speech) -> dict[str, str]:
    return {
        "temperature of the samples": f"{result.temperature:g}",
        **(
            {}
            if result.top_p is None
            else {"drawn from the likeliest": format_percent(result.top_p)}
        ),
        "bits for the next token at first": f"{result.bits[0]:.3g}",
        f"after {result.until[-2]:.0f} tokens"
        if len(result.until) > 1
        else "at the end": f"{result.bits[-1]:.3g}",
    }


@lens(
    "What it writes",
    says="Texts drawn from the model, token by token, each from its beginning. The curve says how "
    "many bits it needs for the next token of the test texts, the more of them it has read: what "
    "it makes of a long context.",
    applies=speaks,
    tells=_told,
    rows=lambda result: [
        {"sample": str(i + 1), "text": text} for i, text in enumerate(result.texts)
    ],
)
def _speech(outcome: Outcome) -> explain.Speech:
    first = outcome.tokens.index("\n") if "\n" in outcome.tokens else 0
    data = tuple(part[:MAX_TEXTS] for part in outcome.test)
    model = outcome.model
    if not isinstance(model, GPT):
        return explain.speech(
            model.cell, data, outcome.tokens, length=MAX_LENGTH, first=first, key=jr.key(0)
        )
    room = MAX_LENGTH if model.positions is None else min(MAX_LENGTH, len(model.positions.P))
    return explain.speech(
        model, data, outcome.tokens, length=room, top_p=TOP_P, first=first, key=jr.key(0)
    )


def translates(outcome: Outcome) -> bool:
    """Whether it writes a sequence while it looks at another, and the tokens of both have names."""
    return attends(outcome) and bool(outcome.tokens) and bool(outcome.classes)


def _matched(result: explain.Translations) -> dict[str, str]:
    return {
        f"runs of {n} that were meant": format_percent(share)
        for n, share in enumerate(result.precision, 1)
    }


@lens(
    "Translations",
    says="What the model says to test sequences, the likeliest token each time, beside what was "
    f"meant. The bars say, on at most {MAX_PAIRS} of them, which share of the runs of one to four "
    "tokens that it said were also meant.",
    applies=translates,
    tells=_matched,
    rows=lambda result: [
        {"given": given, "said": said, "meant": meant}
        for given, said, meant in list(zip(result.source, result.said, result.meant))[
            :MAX_SHOWN_PAIRS
        ]
    ],
)
def _translations(outcome: Outcome) -> explain.Translations:
    data = subsample(outcome.test, MAX_PAIRS)
    return explain.translations(outcome.model, data, names=(outcome.tokens, outcome.classes))

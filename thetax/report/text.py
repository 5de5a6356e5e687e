"""A lens on language models: what they write themselves, and how surprised they are by what others wrote."""

import jax.random as jr

from .. import explain
from ..layers import Recurrent
from ..models import NextToken
from ..recipes.outcome import Outcome
from .lenses import lens

HEARD = 100  # texts of the test set


def speaks(outcome: Outcome) -> bool:
    """Whether the model goes on after a token with one of the same kind, and these have names."""
    model = outcome.model
    return (
        isinstance(model, Recurrent)
        and isinstance(model.cell, NextToken)
        and len(outcome.tokens) > 1
        and outcome.tokens == outcome.classes
    )


def _told(result: explain.Speech) -> dict[str, str]:
    return {
        "temperature of the samples": f"{result.temperature:g}",
        "bits for the next token at first": f"{result.bits[0]:.3g}",
        f"after {result.until[-2]:.0f} tokens" if len(result.until) > 1 else "at the end": f"{result.bits[-1]:.3g}",
    }


@lens(
    "What it writes",
    says="Texts drawn from the model, token by token, each from its beginning. The curve says how many bits it needs "
    "for the next token of the test texts, the more of them it has read: what it makes of a long context.",
    applies=speaks,
    tells=_told,
    rows=lambda result: [{"sample": str(i + 1), "text": text} for i, text in enumerate(result.texts)],
)
def _speech(outcome: Outcome) -> explain.Speech:
    first = outcome.tokens.index("\n") if "\n" in outcome.tokens else 0
    data = tuple(part[:HEARD] for part in outcome.test)
    return explain.speech(outcome.model.cell, data, outcome.tokens, first=first, key=jr.key(0))

"""Lenses on language models and translators: text samples, surprisal, translations."""

import jax.random as jr

from ... import explain
from ...layers import Recurrent
from ...models import GPT, LanguageModelCell
from ...recipes.engine.outcome import Outcome
from ..registry import format_percent, lens, subsample
from .time import has_cross_attention

MAX_TEXTS = 100  # test texts for the surprisal
MAX_LENGTH = 300  # tokens of a sample
TOP_P = 0.95  # nucleus sampling of models with a large vocabulary
MAX_PAIRS = 64  # test pairs that are translated
MAX_SHOWN_PAIRS = 6


def is_language_model(outcome: Outcome) -> bool:
    """Whether the model is a language model over named tokens."""
    model = outcome.model
    goes_on = isinstance(model, GPT) or (
        isinstance(model, Recurrent) and isinstance(model.cell, LanguageModelCell)
    )
    return goes_on and len(outcome.tokens) > 1 and outcome.tokens == outcome.classes


def _sample_metrics(result: explain.generation.TextSamples) -> dict[str, str]:
    return {
        "temperature": f"{result.temperature:g}",
        **(
            {}
            if result.top_p is None
            else {"top-p (nucleus) sampling": format_percent(result.top_p)}
        ),
        "bits per token at the start": f"{result.bits[0]:.3g}",
        f"after {result.positions[-2]:.0f} tokens"
        if len(result.positions) > 1
        else "at the end": f"{result.bits[-1]:.3g}",
    }


@lens(
    "Text samples",
    description="Texts sampled from the model, and its cross-entropy on test texts (bits per "
    "token) against the number of tokens read. The curve falls as far as the model makes use of a "
    "longer context.",
    applies=is_language_model,
    metrics=_sample_metrics,
    rows=lambda result: [
        {"sample": str(i + 1), "text": text} for i, text in enumerate(result.texts)
    ],
)
def _text_samples(outcome: Outcome) -> explain.generation.TextSamples:
    start = outcome.tokens.index("\n") if "\n" in outcome.tokens else 0
    data = tuple(part[:MAX_TEXTS] for part in outcome.test)
    model = outcome.model
    if not isinstance(model, GPT):
        return explain.text_samples(
            model.cell,
            data,
            outcome.tokens,
            max_new_tokens=MAX_LENGTH,
            start_token=start,
            key=jr.key(0),
        )
    max_length = MAX_LENGTH if model.positions is None else min(MAX_LENGTH, len(model.positions.P))
    return explain.text_samples(
        model,
        data,
        outcome.tokens,
        max_new_tokens=max_length,
        top_p=TOP_P,
        start_token=start,
        key=jr.key(0),
    )


def translates(outcome: Outcome) -> bool:
    """Whether the model is an encoder-decoder with attention over named tokens."""
    return has_cross_attention(outcome) and bool(outcome.tokens) and bool(outcome.classes)


def _precision_metrics(result: explain.generation.Translations) -> dict[str, str]:
    return {
        f"{n}-gram precision": format_percent(share) for n, share in enumerate(result.precision, 1)
    }


@lens(
    "Translations",
    description="Translations of test sequences by greedy decoding, beside the references. The "
    f"bars are the n-gram precisions that BLEU averages, for n = 1 to 4, on at most {MAX_PAIRS} "
    "sequences.",
    applies=translates,
    metrics=_precision_metrics,
    rows=lambda result: [
        {"source": source, "translation": translation, "reference": reference}
        for source, translation, reference in list(
            zip(result.source, result.predicted, result.reference)
        )[:MAX_SHOWN_PAIRS]
    ],
)
def _translations(outcome: Outcome) -> explain.generation.Translations:
    data = subsample(outcome.test, MAX_PAIRS)
    return explain.translations(outcome.model, data, vocabs=(outcome.tokens, outcome.classes))

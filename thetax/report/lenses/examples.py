"""Examples in words, for those that are no pictures: numbers one by one, or the text that tokens
spell.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...explain import Worst
from ...plot import as_images

MAX_FEATURES = 8  # features of an example
MAX_LETTERS = (
    240  # of a text; of a longer one the beginning and the end are shown, half of them each
)
CONTINUATION = "##"  # what a piece begins with that goes on with a word


def join_tokens(row: Iterable[int], tokens: Sequence[str]) -> str:
    """The text of a row of tokens: pieces of words are put together, others have a blank between
    them; -1 is nothing.

    >>> join_tokens([2, 0, 1, -1], ["un", "##able", "[CLS]"])
    '[CLS] unable'
    """
    text = " ".join(tokens[token] for token in row if token >= 0).replace(f" {CONTINUATION}", "")
    return (
        text
        if len(text) <= MAX_LETTERS
        else f"{text[: MAX_LETTERS // 2]} … {text[-MAX_LETTERS // 2 :]}"
    )


def example_rows(result: Worst) -> list[dict[str, str]]:
    """A row for each mistake, with what was seen, the truth and the guess; none if there are
    pictures to show.
    """
    if not len(result.x) or as_images(result.x) is not None:
        return []
    return [
        {
            "example": str(i),
            "truth": result.classes[y],
            "guess": result.classes[g],
            "sure": f"{100 * c:.1f} %",
        }
        | _seen(x, result.tokens)
        for i, y, g, c, x in zip(
            result.index, result.truth, result.guess, result.confidence, result.x
        )
    ]


def _seen(x: Any, tokens: Sequence[str]) -> dict[str, str]:
    if tokens and np.issubdtype(x.dtype, np.integer):
        return {"text": join_tokens(x.tolist(), tokens)}
    row = x.ravel()
    told = {f"x{j + 1}": f"{value:.4g}" for j, value in enumerate(row[:MAX_FEATURES])}
    return told | ({"…": f"{len(row) - MAX_FEATURES} more"} if len(row) > MAX_FEATURES else {})

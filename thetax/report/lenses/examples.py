"""Examples as table rows, if they are not images: feature values, or the text of their tokens."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...explain.predictions import ConfidentMistakes
from ...plot import as_images

MAX_FEATURES = 8  # features of an example shown
MAX_CHARACTERS = 240  # of a text; of a longer one the first and the last half of this are shown
CONTINUATION = "##"  # WordPiece prefix of a token that continues a word


def join_tokens(row: Iterable[int], tokens: Sequence[str]) -> str:
    """Decodes a row of token ids to text: joins word pieces, separates words by spaces, skips
    padding (-1).

    >>> join_tokens([2, 0, 1, -1], ["un", "##able", "[CLS]"])
    '[CLS] unable'
    """
    text = " ".join(tokens[token] for token in row if token >= 0).replace(f" {CONTINUATION}", "")
    return (
        text
        if len(text) <= MAX_CHARACTERS
        else f"{text[: MAX_CHARACTERS // 2]} … {text[-MAX_CHARACTERS // 2 :]}"
    )


def example_rows(result: ConfidentMistakes) -> list[dict[str, str]]:
    """A table row per mistake with the input, the true and the predicted class; none if the inputs
    are images, which are drawn.
    """
    if not len(result.x) or as_images(result.x) is not None:
        return []
    return [
        {
            "example": str(i),
            "true class": result.classes[y],
            "predicted": result.classes[g],
            "confidence": f"{100 * c:.1f} %",
        }
        | _input_columns(x, result.vocab)
        for i, y, g, c, x in zip(
            result.indices, result.truth, result.predicted, result.confidence, result.x
        )
    ]


def _input_columns(x: Any, tokens: Sequence[str]) -> dict[str, str]:
    if tokens and np.issubdtype(x.dtype, np.integer):
        return {"text": join_tokens(x.tolist(), tokens)}
    row = x.ravel()
    metrics = {f"x{j + 1}": f"{value:.4g}" for j, value in enumerate(row[:MAX_FEATURES])}
    return metrics | ({"…": f"{len(row) - MAX_FEATURES} more"} if len(row) > MAX_FEATURES else {})

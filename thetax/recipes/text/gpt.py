"""A GPT language model of books (§6.4), compared with character n-grams."""

import math
from typing import Any, Literal

import jax.random as jr
import numpy as np

from ... import data
from ...core import Batch, Scalar
from ...models import GPT
from ...train import descend, evaluate, fit, mixed_precision, token_cross_entropy
from ..engine.job import Job, check_positive, recipe
from ..engine.outcome import Outcome
from ..shared.transformer_training import (
    adamw_on_matrices,
    blockwise_token_cross_entropy,
    warmup_cosine,
)
from .chars import EVALUATION_LENGTH, ngram_rows, split_books, windows

WARMUP_FRACTION = 0.05  # share of the steps


def overlapping_windows(texts: list[np.ndarray], length: int) -> Batch:
    """Windows of each text that overlap by half, so that all but the first tokens have context.

    Each token is a target once: in the first half of a window, targets are masked by -1. What does
    not fill a window at the end of a text is dropped.

    >>> xs, ys = overlapping_windows([np.arange(9)], 4)
    >>> xs.tolist(), ys.tolist()
    ([[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7]], [[1, 2, 3, 4], [-1, -1, 5, 6], [-1, -1, 7, 8]])
    """
    half = max(1, length // 2)
    xs = []
    ys = []
    for text in texts:
        for first in range(0, len(text) - length, half):
            xs.append(text[first : first + length])
            ys.append(text[first + 1 : first + length + 1].copy())
            ys[-1][: length - half if first else 0] = -1
    if not xs:
        raise ValueError(
            f"max_length: no validation or test text has more than {length} tokens; choose a "
            "smaller max_length."
        )
    return np.stack(xs), np.stack(ys)


class BitsPerCharacter:
    r"""Mean of $-\log_2 p$ per character, for tokens of `token_length` characters on average."""

    def __init__(self, token_length: float):
        self.token_length = token_length

    def __call__(self, model: Any, batch: Batch, *, key: Any = None) -> Scalar:
        return blockwise_token_cross_entropy(model, batch) / (self.token_length * math.log(2))


@recipe
def gpt(
    job: Job,
    *,
    books: tuple[str, ...] = ("austen-emma", "austen-persuasion", "austen-sense"),
    vocab_size: int = 1000,
    width: int = 128,
    depth: int = 4,
    heads: int = 4,
    max_length: int = 128,
    dropout: float = 0.1,
    weight_decay: float = 0.1,
    max_order: int = 6,
    learning_rate: float = 3e-3,
    epochs: int = 6,
    batch_size: int = 16,
    precision: Literal["float32", "bfloat16"] = "float32",
) -> Outcome:
    """A small GPT on novels, compared with character n-grams.

    The last tenth of each book is the test set, and the tenth before it the validation set, which
    chooses the n-gram. The tokeniser is fitted on the other eight tenths. The report shows text
    samples.

    Parameters
    ----------
    vocab_size
        Size of the byte-pair vocabulary; 0 for single characters.
    max_length
        Context length in tokens.
    weight_decay
        Decoupled weight decay of AdamW, on weight matrices only.
    learning_rate
        Peak learning rate of AdamW, after a linear warmup over a twentieth of the steps; it then
        decays to zero along a cosine.
    batch_size
        Sequences per batch.
    """
    check_positive(
        width=width,
        depth=depth,
        heads=heads,
        max_length=max_length,
        learning_rate=learning_rate,
        epochs=epochs,
        batch_size=batch_size,
    )
    key_init, key_fit = jr.split(job.key)
    job.note("loading gutenberg")
    texts = split_books(books)
    job.note("n-grams")
    table = _ngram_baseline(texts, max_order)
    job.note("tokenising")
    names, tokens = _tokenise(texts, vocab_size)
    train = windows(tokens[0], max_length)
    valid, test = (overlapping_windows(split, max_length) for split in tokens[1:])
    valid_bits, test_bits = (
        BitsPerCharacter(sum(map(len, text)) / sum(map(len, split)))
        for text, split in zip(texts[1:], tokens[1:])
    )
    job.note("network")
    objective = token_cross_entropy
    if precision == "bfloat16":
        objective = mixed_precision(objective)
    schedule = warmup_cosine(
        learning_rate, epochs * (len(train[1]) // batch_size), warmup=WARMUP_FRACTION
    )
    result = fit(
        descend(objective, adamw_on_matrices(schedule, weight_decay=weight_decay)),
        GPT.init(
            len(names),
            width,
            depth=depth,
            heads=heads,
            max_length=max_length,
            dropout=dropout,
            key=key_init,
        ),
        train,
        epochs=epochs,
        batch_size=batch_size,
        validation=valid,
        metrics={"bits": valid_bits},
        key=key_fit,
        run=job.part("network"),
        progress=job.progress,
    )
    bits = {
        "valid": float(result.history["valid bits"][-1]),
        "test": evaluate(result.model, test, {"": test_bits})[""],
    }
    table[f"GPT, {'byte pairs' if vocab_size else 'characters'}"] = {
        f"{split} bits per character": value for split, value in bits.items()
    }
    return Outcome.of_fit(
        result,
        train=train,
        test=test,
        objective=token_cross_entropy,
        classes=names,
        table=table,
        tokens=names,
    )


def _tokenise(
    texts: tuple[list[str], ...], vocab_size: int
) -> tuple[tuple[str, ...], list[list[np.ndarray]]]:
    """The text of each token, and the texts as tokens.

    A token that is part of a character is written as `REPLACEMENT_CHARACTER`.
    """
    if vocab_size:
        tokeniser = data.BytePairEncoding.fit(texts[0], vocab_size=vocab_size, special_tokens=())
        names = tuple(tokeniser.decode([number]) for number in range(len(tokeniser)))
    else:
        tokeniser = data.Characters.fit(texts[0])
        names = (*tokeniser.letters, data.REPLACEMENT_CHARACTER)
    return names, [[tokeniser.tokens(text) for text in split] for split in texts]


def _ngram_baseline(texts: tuple[list[str], ...], max_order: int) -> dict[str, dict[str, float]]:
    """The uniform distribution, and the n-gram that is best on the validation set."""
    characters = data.Characters.fit(texts[0])
    train, *held_out = ([characters.tokens(text) for text in split] for split in texts)
    table = ngram_rows(
        train,
        *(windows(split, EVALUATION_LENGTH) for split in held_out),
        vocab_size=len(characters) + 1,
        max_order=max_order,
    )
    return {name: row for name, row in table.items() if not name.startswith("n-gram")}

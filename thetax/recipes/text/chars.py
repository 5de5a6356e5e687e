"""A character-level language model of books (§5.3), compared with n-grams."""

import math
from functools import partial
from typing import Any, Literal

import jax.random as jr
import numpy as np
import optax

from ... import data
from ...core import Batch, Scalar
from ...layers import GRU, LSTM, Recurrent
from ...models import LanguageModelCell, NGram
from ...train import descend, evaluate, fit, token_cross_entropy
from ..engine.job import Job, check_positive, recipe
from ..engine.outcome import Outcome
from ..shared import cells

EVALUATION_LENGTH = 1000  # characters per row of the validation and test set
TEST_FRACTION = 0.1  # of each book, at its end; as much before it is for validation
EMBEDDING_DIM = 32
MAX_GRADIENT_NORM = 1.0


def bits_per_character(model: Any, batch: Batch, *, key: Any = None) -> Scalar:
    r"""Mean of $-\log_2 p$ per character."""
    return token_cross_entropy(model, batch, key=key) / math.log(2)


def windows(texts: list[np.ndarray], length: int) -> Batch:
    """Consecutive windows of `length` tokens of each text, and the next token at each position.

    What does not fill a window at the end of a text is dropped.

    >>> xs, ys = windows([np.arange(6), np.arange(10, 13)], 2)
    >>> xs.tolist(), ys.tolist()
    ([[0, 1], [2, 3], [10, 11]], [[1, 2], [3, 4], [11, 12]])
    """

    def cut(text, offset):
        n = (len(text) - 1) // length
        return text[offset : offset + n * length].reshape(n, length)

    return np.concatenate([cut(t, 0) for t in texts]), np.concatenate([cut(t, 1) for t in texts])


@recipe
def chars(
    job: Job,
    *,
    books: tuple[str, ...] = ("austen-emma",),
    cell: Literal["lstm", "gru", "mingru", "lru"] = "lstm",
    width: int = 256,
    depth: int = 3,
    window: int = 100,
    max_order: int = 6,
    learning_rate: float = 3e-3,
    epochs: int = 8,
    batch_size: int = 32,
) -> Outcome:
    """A character-level recurrent language model of a book, compared with n-grams.

    The last tenth of each book is the test set, and the tenth before it the validation set, which
    chooses the n-gram. The report shows text samples.

    Parameters
    ----------
    cell
        Recurrent cell; mingru and lru are residual blocks of linear recurrences.
    width
        Hidden state size.
    depth
        Residual blocks of mingru and lru.
    window
        Characters per training sequence.
    """
    check_positive(
        width=width,
        depth=depth,
        window=window,
        learning_rate=learning_rate,
        epochs=epochs,
        batch_size=batch_size,
    )
    key_init, key_fit = jr.split(job.key)
    job.note("loading gutenberg")
    characters, texts = _splits(books)
    train, valid, test = (
        windows(texts[0], window),
        *(windows(split, EVALUATION_LENGTH) for split in texts[1:]),
    )
    vocab_size = len(characters) + 1  # one for characters that the training text does not have
    job.note("n-grams")
    table = ngram_rows(texts[0], valid, test, vocab_size=vocab_size, max_order=max_order)
    job.note(cell)
    schedule = optax.cosine_decay_schedule(
        learning_rate, max(1, epochs * (len(train[1]) // batch_size))
    )
    init = {
        "lstm": LSTM.init,
        "gru": GRU.init,
        "mingru": partial(cells.residual_blocks("mingru", depth), timescale=window),
        "lru": partial(cells.residual_blocks("lru", depth), timescale=window),
    }[cell]
    result = fit(
        descend(
            token_cross_entropy,
            optax.chain(optax.clip_by_global_norm(MAX_GRADIENT_NORM), optax.adam(schedule)),
        ),
        Recurrent(
            LanguageModelCell.init(vocab_size, EMBEDDING_DIM, width, cell=init, key=key_init)
        ),
        train,
        epochs=epochs,
        batch_size=batch_size,
        validation=valid,
        metrics={"bits": bits_per_character},
        key=key_fit,
        run=job.part("network"),
        progress=job.progress,
    )
    bits = {
        "valid": float(result.history["valid bits"][-1]),
        "test": evaluate(result.model, test, {"": bits_per_character})[""],
    }
    table[f"network, {cell}"] = {
        f"{split} bits per character": value for split, value in bits.items()
    }
    letters = (*characters.letters, data.REPLACEMENT_CHARACTER)
    return Outcome.of_fit(
        result,
        train=train,
        test=test,
        objective=token_cross_entropy,
        classes=letters,
        table=table,
        tokens=letters,
    )


def split_books(books: tuple[str, ...]) -> tuple[list[str], ...]:
    """The training, validation and test part of each book."""
    full = data.load("gutenberg")
    unknown = [book for book in books if book not in full.classes]
    if unknown or not books:
        given = repr(unknown[0]) if unknown else "none"
        raise ValueError(f"books: expected names of {', '.join(full.classes)}; got {given}.")
    texts = [str(full.train[0][full.classes.index(book)]) for book in books]
    ends = [
        [round(len(text) * share) for share in (0, 1 - 2 * TEST_FRACTION, 1 - TEST_FRACTION, 1)]
        for text in texts
    ]
    return tuple([text[end[i] : end[i + 1]] for text, end in zip(texts, ends)] for i in range(3))


def _splits(books: tuple[str, ...]) -> tuple[data.Characters, tuple[list[np.ndarray], ...]]:
    """The characters of the training part, and the tokens of each part of the books."""
    texts = split_books(books)
    characters = data.Characters.fit(texts[0])
    return characters, tuple([characters.tokens(text) for text in split] for split in texts)


def ngram_rows(
    texts: list[np.ndarray], valid: Batch, test: Batch, *, vocab_size: int, max_order: int
) -> dict[str, Any]:
    """A row for the n-gram of each order, and one for the best on the validation set."""
    rows = {}
    for order in range(max_order + 1):
        model = Recurrent(NGram.fit(texts, vocab_size=vocab_size, order=order))
        rows[f"order {order}"] = {
            f"{name} bits per character": evaluate(model, split, {"": bits_per_character})[""]
            for name, split in (("valid", valid), ("test", test))
        }
    best = min(rows, key=lambda name: rows[name]["valid bits per character"])
    uniform = {f"{name} bits per character": math.log2(vocab_size) for name in ("valid", "test")}
    return {"uniform": uniform, **{f"n-gram, {name}": row for name, row in rows.items()}} | {
        f"best n-gram, {best}": rows[best]
    }

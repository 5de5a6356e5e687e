"""A language model of characters (§5.3): books told letter by letter, beside counting."""

import math
from functools import partial
from typing import Any, Literal

import jax.random as jr
import numpy as np
import optax

from .. import data
from ..core import Batch, Scalar
from ..layers import GRU, LSTM, Recurrent
from ..models import NextToken, NGram
from ..train import descend, evaluate, fit, token_cross_entropy
from .engine.job import Job, positive, recipe
from .engine.outcome import Outcome
from .shared import recurrent_encoders as cells

STRETCH = 1000  # characters in a row on which models are judged
HELD_OUT = 0.1  # of each book, at its end, to test on; as much before it for validation
VECTOR = 32  # numbers that stand for a character
CLIP = 1.0  # the longest gradient


def bits(model: Any, batch: Batch, *, key: Any = None) -> Scalar:
    r"""$-\log_2 p$ of a character, on average."""
    return token_cross_entropy(model, batch, key=key) / math.log(2)


def windows(texts: list[np.ndarray], length: int) -> Batch:
    """Each text cut into pieces of so many tokens, with the token that follows each; what is left
    over is dropped.

    >>> xs, ys = windows([np.arange(6), np.arange(10, 13)], 2)
    >>> xs.tolist(), ys.tolist()
    ([[0, 1], [2, 3], [10, 11]], [[1, 2], [3, 4], [11, 12]])
    """
    cut = lambda text, first: text[first : first + (len(text) - 1) // length * length].reshape(
        -1, length
    )
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
    order: int = 6,
    rate: float = 3e-3,
    epochs: int = 8,
    batch: int = 32,
) -> Outcome:
    """The next character of a book, by a recurrent network beside n-grams, in bits per character;
    and samples.

    The last tenth of each book is the test, and the tenth before it chooses the n-gram. In the
    report the network writes a few lines itself.

    Parameters
    ----------
    books
        Which of the Gutenberg texts, by name.
    cell
        LSTM or GRU, or residual blocks of linear recurrences.
    width
        Size of the state.
    depth
        Residual blocks, where there are some.
    window
        Characters that a training example has.
    order
        Characters that an n-gram looks back, at most.
    rate
        Initial learning rate of Adam; it falls to zero along a cosine.
    epochs
        Passes over the training text.
    batch
        Windows in a batch.
    """
    positive(width=width, depth=depth, window=window, rate=rate, epochs=epochs, batch=batch)
    key_init, key_fit = jr.split(job.key)
    job.say("loading gutenberg")
    known, texts = _parts(books)
    train, valid, test = windows(texts[0], window), *(windows(part, STRETCH) for part in texts[1:])
    job.say("counting")
    table = counted(texts[0], valid, test, size=len(known) + 1, order=order)
    job.say(cell)
    schedule = optax.cosine_decay_schedule(rate, max(1, epochs * (len(train[1]) // batch)))
    draw = {
        "lstm": LSTM.init,
        "gru": GRU.init,
        "mingru": partial(cells.blocks("mingru", depth), times=window),
        "lru": partial(cells.blocks("lru", depth), times=window),
    }[cell]
    found = fit(
        descend(
            token_cross_entropy, optax.chain(optax.clip_by_global_norm(CLIP), optax.adam(schedule))
        ),
        Recurrent(NextToken.init(len(known) + 1, VECTOR, width, cell=draw, key=key_init)),
        train,
        epochs=epochs,
        batch_size=batch,
        validation=valid,
        metrics={"bits": bits},
        key=key_fit,
        run=job.part("network"),
        progress=job.progress,
    )
    judged = {
        "valid": float(found.history["valid bits"][-1]),
        "test": evaluate(found.model, test, {"": bits})[""],
    }
    table[f"network, {cell}"] = {
        f"{part} bits per character": value for part, value in judged.items()
    }
    letters = (*known.letters, data.STRANGE)
    return Outcome(
        found.model,
        train,
        test,
        token_cross_entropy,
        found.history,
        letters,
        table,
        found.reason,
        found.seconds,
        tokens=letters,
    )


def cut_books(books: tuple[str, ...]) -> tuple[list[str], ...]:
    """The books, each cut in three: to train on, for validation, to test on."""
    full = data.load("gutenberg")
    strange = [book for book in books if book not in full.classes]
    if strange or not books:
        came = repr(strange[0]) if strange else "none"
        raise ValueError(f"books: expected names of {', '.join(full.classes)}; got {came}.")
    texts = [str(full.train[0][full.classes.index(book)]) for book in books]
    ends = [
        [round(len(text) * share) for share in (0, 1 - 2 * HELD_OUT, 1 - HELD_OUT, 1)]
        for text in texts
    ]
    return tuple([text[end[i] : end[i + 1]] for text, end in zip(texts, ends)] for i in range(3))


def _parts(books: tuple[str, ...]) -> tuple[data.Characters, tuple[list[np.ndarray], ...]]:
    """The characters of the training parts, and the books as numbers: to train on, for validation,
    to test on.
    """
    texts = cut_books(books)
    known = data.Characters.fit(texts[0])
    return known, tuple([known.tokens(text) for text in part] for part in texts)


def counted(
    texts: list[np.ndarray], valid: Batch, test: Batch, *, size: int, order: int
) -> dict[str, Any]:
    """A row for the n-gram of each order, and one for that which does best on the validation
    part.
    """
    rows = {}
    for longest in range(order + 1):
        model = Recurrent(NGram.fit(texts, vocab_size=size, order=longest))
        judged = {
            part: evaluate(model, some, {"": bits})[""]
            for part, some in (("valid", valid), ("test", test))
        }
        rows[f"order {longest}"] = {
            f"{part} bits per character": value for part, value in judged.items()
        }
    best = min(rows, key=lambda name: rows[name]["valid bits per character"])
    uniform = {f"{part} bits per character": math.log2(size) for part in ("valid", "test")}
    return {"all alike": uniform, **{f"n-gram, {name}": row for name, row in rows.items()}} | {
        f"n-gram chosen, {best}": rows[best]
    }

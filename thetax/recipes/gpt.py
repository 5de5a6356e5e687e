"""A language model that attends (§6.4): books told piece by piece, beside counting their
characters.
"""

import math
from typing import Any, Literal

import jax.random as jr
import numpy as np

from .. import data
from ..core import Batch, Scalar
from ..models import GPT
from ..train import descend, evaluate, fit, mixed_precision, token_cross_entropy
from .chars import STRETCH, counted, cut_books, windows
from .engine.job import Job, positive, recipe
from .engine.outcome import Outcome
from .shared.transformer_training import decayed_adam, token_loss, warm_cosine

WARM = 0.05  # of the steps, in which the rate rises


def overlapping(texts: list[np.ndarray], length: int) -> Batch:
    """Windows of each text, half of each shared with the one before, so that all but the first
    tokens have a past.

    What was a target before is none again; what fills no window at the end is dropped.

    >>> xs, ys = overlapping([np.arange(9)], 4)
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
            f"window: no text that is held out has more than {length} tokens; choose a shorter one."
        )
    return np.stack(xs), np.stack(ys)


class Bits:
    r"""$-\log_2 p$ a character, on average: of a model whose tokens are `letters` characters long
    on average.
    """

    def __init__(self, letters: float):
        self.letters = letters

    def __call__(self, model: Any, batch: Batch, *, key: Any = None) -> Scalar:
        return token_loss(model, batch) / (self.letters * math.log(2))


@recipe
def gpt(
    job: Job,
    *,
    books: tuple[str, ...] = ("austen-emma", "austen-persuasion", "austen-sense"),
    pieces: int = 1000,
    width: int = 128,
    depth: int = 4,
    heads: int = 4,
    window: int = 128,
    dropout: float = 0.1,
    decay: float = 0.1,
    order: int = 6,
    rate: float = 3e-3,
    epochs: int = 6,
    batch: int = 16,
    precision: Literal["float32", "bfloat16"] = "float32",
) -> Outcome:
    """A small GPT on novels, beside n-grams of characters, all in bits per character; and samples.

    The last tenth of each book is the test, and the tenth before it chooses the n-gram. The pieces
    are learnt from the other eight tenths. In the report the network writes a few lines itself.

    Parameters
    ----------
    books
        Which of the Gutenberg texts, by name.
    pieces
        Size of the vocabulary of byte pairs; 0 for single characters.
    width
        Numbers that stand for a piece.
    depth
        Layers.
    heads
        Heads of attention in a layer.
    window
        Pieces that the network sees at once.
    dropout
        Probability of dropping a number.
    decay
        How fast matrices decay, as a share of the learning rate.
    order
        Characters that an n-gram looks back, at most.
    rate
        Highest learning rate of Adam; a twentieth of the steps lead up to it, the others down to
        zero.
    epochs
        Passes over the training text.
    batch
        Windows in a batch.
    precision
        In what the network is computed; weights, norms and losses stay float32.
    """
    positive(
        width=width, depth=depth, heads=heads, window=window, rate=rate, epochs=epochs, batch=batch
    )
    key_init, key_fit = jr.split(job.key)
    job.say("loading gutenberg")
    texts = cut_books(books)
    job.say("counting")
    table = _baseline(texts, order)
    job.say("cutting into pieces")
    names, parts = _pieces(texts, pieces)
    train = windows(parts[0], window)
    held = [overlapping(part, window) for part in parts[1:]]
    bits = [
        Bits(sum(map(len, text)) / sum(map(len, part))) for text, part in zip(texts[1:], parts[1:])
    ]
    job.say("network")
    computed = (
        mixed_precision(token_cross_entropy) if precision == "bfloat16" else token_cross_entropy
    )
    schedule = warm_cosine(rate, epochs * (len(train[1]) // batch), warm=WARM)
    found = fit(
        descend(computed, decayed_adam(schedule, decay=decay)),
        GPT.init(
            len(names),
            width,
            depth=depth,
            heads=heads,
            max_length=window,
            dropout=dropout,
            key=key_init,
        ),
        train,
        epochs=epochs,
        batch_size=batch,
        validation=held[0],
        metrics={"bits": bits[0]},
        key=key_fit,
        run=job.part("network"),
        progress=job.progress,
    )
    judged = {
        "valid": float(found.history["valid bits"][-1]),
        "test": evaluate(found.model, held[1], {"": bits[1]})[""],
    }
    table[f"GPT, {'pieces' if pieces else 'characters'}"] = {
        f"{k} bits per character": v for k, v in judged.items()
    }
    return Outcome(
        found.model,
        train,
        held[1],
        token_cross_entropy,
        found.history,
        names,
        table,
        found.reason,
        found.seconds,
        tokens=names,
    )


def _pieces(
    texts: tuple[list[str], ...], size: int
) -> tuple[tuple[str, ...], list[list[np.ndarray]]]:
    """What each token spells, half a character as `STRANGE`; and the texts as tokens."""
    if size:
        known = data.BytePairs.fit(texts[0], size=size, special=())
        names = tuple(known.decode([number]) for number in range(len(known)))
    else:
        known = data.Characters.fit(texts[0])
        names = (*known.letters, data.STRANGE)
    return names, [[known.tokens(text) for text in part] for part in texts]


def _baseline(texts: tuple[list[str], ...], order: int) -> dict[str, dict[str, float]]:
    """The uniform law, and the n-gram that does best on the validation part."""
    known = data.Characters.fit(texts[0])
    train, *held = ([known.tokens(text) for text in part] for part in texts)
    table = counted(
        train, *(windows(part, STRETCH) for part in held), size=len(known) + 1, order=order
    )
    return {name: row for name, row in table.items() if "order" not in name or "chosen" in name}

"""Praise or blame (§6.5): an encoder reads film reviews in their order of words, beside a bag of
them.
"""

from collections.abc import Sequence
from typing import Any, Literal

import jax.random as jr
import numpy as np
from jaxtyping import Int

from .. import data
from ..core import Batch
from ..data import WordPiece
from ..models import SentenceClassifier
from ..train import cross_entropy, error_rate
from .engine.job import Job, positive, recipe
from .engine.outcome import Outcome
from .shared.encoder import DROPOUT, Plan, Sizes, Task, check_starts, judge, tune_each

METRICS = {"error": error_rate, "loss": cross_entropy}
# of the tokens that are kept of a long text are from its beginning, the others from its end
HEAD = 0.25
HELD_OUT = 0.1  # of the training reviews, for validation


def rows(texts: Sequence[str], known: WordPiece, *, length: int) -> Int[np.ndarray, "n {length}"]:
    """[CLS], the tokens of a text, [SEP]; of a long one the first quarter of what fits and the rest
    from its end.

    A review says what it thinks at its end. (Sun et al. 2019, How to fine-tune BERT for text
    classification)

    >>> known = WordPiece(["[UNK]", "[CLS]", "[SEP]", *"abcdef"])
    >>> rows(["a b", "a b c d e f"], known, length=6).tolist()
    [[1, 3, 4, 2, -1, -1], [1, 3, 6, 7, 8, 2]]
    """
    cls = known.number("[CLS]")
    sep = known.number("[SEP]")
    room = length - 2
    if room < 1:
        raise ValueError(
            f"length counts tokens, two of them marks, and must be at least 3; got {length}."
        )
    head = round(HEAD * room)
    found = np.full((len(texts), length), -1, np.int32)
    for i, text in enumerate(texts):
        row = known.tokens(text, special=False)
        if len(row) > room:
            row = np.concatenate([row[:head], row[len(row) - (room - head) :]])
        found[i, : len(row) + 2] = np.concatenate([[cls], row, [sep]])
    return found


def _listed(part: Batch) -> tuple[list[str], np.ndarray]:
    return part[0].tolist(), part[1]


def bag_of_words(train: tuple[list[str], np.ndarray], valid: tuple[list[str], np.ndarray]) -> Any:
    """Logistic regression on which words are there, of a strength of penalty that does best on the
    validation set.
    """
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    fits = [
        make_pipeline(
            CountVectorizer(binary=True, min_df=2), LogisticRegression(C=c, max_iter=500)
        ).fit(*train)
        for c in (0.01, 0.03, 0.1, 0.3)
    ]
    return max(fits, key=lambda model: model.score(*valid))


@recipe
def sentiment(
    job: Job,
    *,
    start: tuple[str, ...] = ("scratch",),
    reviews: int = 25_000,
    tests: int = 25_000,
    length: int = 256,
    pieces: int = 6000,
    width: int = 64,
    depth: int = 1,
    heads: int = 4,
    dropout: float = 0.3,
    rate: float = 1e-4,
    epochs: int = 2,
    fresh_rate: float = 1e-3,
    fresh_epochs: int = 6,
    batch: int = 32,
    precision: Literal["float32", "bfloat16"] = "float32",
) -> Outcome:
    """Praise or blame in film reviews, read by an encoder that was drawn anew, pre-trained on
    books, or is MiniLM.

    The two halves are the official ones, and a tenth of the training reviews are for validation. Of
    a long review the first tokens and the last are read. Drawn anew, an encoder does not do better
    than the bag of words; MiniLM does by far, but wants a GPU, or fewer reviews:
    `--start minilm --reviews 2000 --tests 2000`.

    Parameters
    ----------
    start
        What to begin with, a row of the table each: scratch, minilm, or the folder of a run of
        bert.
    reviews
        Reviews to learn from, 25,000 at most; the bag of words has the same.
    tests
        Reviews to test on, 25,000 at most.
    length
        Tokens of a review that are read.
    pieces
        Size of the vocabulary of an encoder drawn anew.
    width
        Numbers that stand for a token in an encoder drawn anew.
    depth
        Blocks of attention in an encoder drawn anew.
    heads
        Heads of each attention in an encoder drawn anew.
    dropout
        Probability of dropping a number inside an encoder drawn anew.
    rate
        Highest learning rate of AdamW where the encoder has learned before.
    epochs
        Passes over the training reviews, there.
    fresh_rate
        Highest learning rate where all is drawn anew.
    fresh_epochs
        Passes over the training reviews, there.
    batch
        Reviews in a batch.
    precision
        In what the network is computed; weights, norms and losses stay float32.
    """
    positive(
        reviews=reviews, tests=tests, batch=batch, rate=rate, epochs=epochs, fresh_rate=fresh_rate
    )
    check_starts(start)
    key_valid, *keys = jr.split(job.key, 1 + len(start))
    job.say("loading imdb")
    full = data.load("imdb")
    assert full.test is not None
    train, valid = data.split(
        _few(full.train, reviews), 1 - HELD_OUT, key=key_valid, by=full.train[1][:reviews]
    )
    test = _few(full.test, tests)
    job.say("bag of words")
    bag = bag_of_words(_listed(train), _listed(valid))
    table = {"bag of words": {"test error %": 100 * (1 - bag.score(*_listed(test)))}}
    task = Task(
        train[0].tolist(),
        (train, valid, test),
        lambda part, known: (rows(part[0].tolist(), known, length=length), part[1]),
        lambda begun, key: SentenceClassifier.init(
            begun.bert, 2, pool=begun.pool, dropout=DROPOUT, key=key
        ),
        cross_entropy,
        METRICS,
        lambda found: {
            "test error %": 100 * judge(found.fit.model, found.test, {"error": error_rate})["error"]
        },
        full.classes,
    )
    return tune_each(
        job,
        start,
        task,
        table,
        sizes=Sizes(width, depth, heads, pieces, dropout),
        length=length,
        fresh=Plan(fresh_rate, fresh_epochs, batch, precision),
        tuned=Plan(rate, epochs, batch, precision),
        keys=keys,
    )


def _few(part: Batch, count: int) -> Batch:
    """The first reviews, which are a sample as good as any, without the marks of line breaks."""
    texts, ys = part
    plain = [text.replace("<br />", " ") for text in texts[:count].tolist()]
    return np.array(plain, np.dtypes.StringDType()), np.asarray(ys[:count], np.int32)

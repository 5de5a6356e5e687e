"""Sentiment of film reviews (§6.5): an encoder, which sees the order of words, against a bag of
words.
"""

from collections.abc import Sequence
from typing import Any, Literal

import jax.random as jr
import numpy as np
from jaxtyping import Int

from ... import data
from ...core import Batch
from ...data import WordPiece
from ...models import SentenceClassifier
from ...train import cross_entropy, error_rate
from ..engine.job import Job, check_positive, recipe
from ..engine.outcome import Outcome
from ..shared.fine_tuning import (
    DROPOUT,
    MIN_LENGTH,
    EncoderConfig,
    FineTuningTask,
    TrainingPlan,
    check_encoders,
    evaluate_in_blocks,
    fine_tune_each,
)

METRICS = {"error": error_rate, "loss": cross_entropy}
HEAD_FRACTION = 0.25  # share of a row that is from the beginning of a long text
VALID_FRACTION = 0.1  # of the training reviews
PENALTIES = (0.01, 0.03, 0.1, 0.3)  # inverse strengths of the bag of words


def encode_reviews(
    texts: Sequence[str], tokeniser: WordPiece, *, max_length: int
) -> Int[np.ndarray, "n {max_length}"]:
    """Rows of [CLS], the tokens of a text, [SEP], and padding.

    A text that is too long keeps its first tokens, a quarter of the row, and its last ones, since
    reviews end with their judgement. (Sun et al. 2019, How to fine-tune BERT for text
    classification)

    >>> tokeniser = WordPiece(["[UNK]", "[CLS]", "[SEP]", *"abcdef"])
    >>> encode_reviews(["a b", "a b c d e f"], tokeniser, max_length=6).tolist()
    [[1, 3, 4, 2, -1, -1], [1, 3, 6, 7, 8, 2]]
    """
    if max_length < MIN_LENGTH:
        raise ValueError(f"max_length: must be at least {MIN_LENGTH}; got {max_length}.")
    cls = tokeniser.piece_id("[CLS]")
    sep = tokeniser.piece_id("[SEP]")
    room = max_length - 2
    head = round(HEAD_FRACTION * room)
    rows = np.full((len(texts), max_length), -1, np.int32)
    for i, text in enumerate(texts):
        row = tokeniser.tokens(text, parse_special=False)
        if len(row) > room:
            row = np.concatenate([row[:head], row[len(row) - (room - head) :]])
        rows[i, : len(row) + 2] = np.concatenate([[cls], row, [sep]])
    return rows


def _as_lists(split: Batch) -> tuple[list[str], np.ndarray]:
    return split[0].tolist(), split[1]


def fit_bag_of_words(
    train: tuple[list[str], np.ndarray], valid: tuple[list[str], np.ndarray]
) -> Any:
    """Logistic regression on binary word features; the validation set selects the penalty."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    models = [
        make_pipeline(
            CountVectorizer(binary=True, min_df=2), LogisticRegression(C=c, max_iter=500)
        ).fit(*train)
        for c in PENALTIES
    ]
    return max(models, key=lambda model: model.score(*valid))


@recipe
def sentiment(
    job: Job,
    *,
    encoder: tuple[str, ...] = ("scratch",),
    n_train: int = 25_000,
    n_test: int = 25_000,
    max_length: int = 256,
    vocab_size: int = 6000,
    width: int = 64,
    depth: int = 1,
    heads: int = 4,
    dropout: float = 0.3,
    learning_rate: float = 1e-4,
    epochs: int = 2,
    scratch_learning_rate: float = 1e-3,
    scratch_epochs: int = 6,
    batch_size: int = 32,
    precision: Literal["float32", "bfloat16"] = "float32",
) -> Outcome:
    """Sentiment of film reviews by an encoder: from scratch, pre-trained on books, or MiniLM.

    Training and test half are the official ones; a tenth of the training reviews are for
    validation. Of a long review the first and the last tokens are used. From scratch, an encoder is
    no better than a bag of words; MiniLM is, by far, but needs a GPU or fewer reviews: `--encoder
    minilm --n-train 2000 --n-test 2000`.

    Parameters
    ----------
    n_train
        Training reviews, at most 25,000; the bag of words uses the same.
    n_test
        Test reviews, at most 25,000.
    max_length
        Tokens of a review that are used.
    vocab_size
        Vocabulary size of an encoder trained from scratch.
    width
        Embedding dimension of an encoder trained from scratch.
    depth
        Layers of an encoder trained from scratch.
    heads
        Attention heads per layer of an encoder trained from scratch.
    dropout
        Dropout probability of an encoder trained from scratch.
    learning_rate
        Peak learning rate of AdamW for a pre-trained encoder.
    epochs
        Passes over the training set for a pre-trained encoder.
    """
    check_positive(
        n_train=n_train,
        n_test=n_test,
        batch_size=batch_size,
        learning_rate=learning_rate,
        epochs=epochs,
        scratch_learning_rate=scratch_learning_rate,
    )
    check_encoders(encoder)
    key_valid, *keys = jr.split(job.key, 1 + len(encoder))
    job.note("loading imdb")
    full = data.load("imdb")
    assert full.test is not None
    train = _first_reviews(full.train, n_train)
    train, valid = data.split(train, 1 - VALID_FRACTION, key=key_valid, stratify=train[1])
    test = _first_reviews(full.test, n_test)
    job.note("bag of words")
    bag = fit_bag_of_words(_as_lists(train), _as_lists(valid))
    table = {"bag of words": {"test error %": 100 * (1 - bag.score(*_as_lists(test)))}}
    task = FineTuningTask(
        texts=train[0].tolist(),
        splits=(train, valid, test),
        encode=lambda split, tokeniser: (
            encode_reviews(split[0].tolist(), tokeniser, max_length=max_length),
            split[1],
        ),
        head=lambda base, key: SentenceClassifier.init(
            base.bert, 2, pool=base.pool, dropout=DROPOUT, key=key
        ),
        objective=cross_entropy,
        metrics=METRICS,
        table_row=lambda tuned: {
            "test error %": 100 * evaluate_in_blocks(tuned.fit.model, tuned.test, METRICS)["error"]
        },
        classes=full.classes,
    )
    return fine_tune_each(
        job,
        encoder,
        task,
        table,
        config=EncoderConfig(
            width=width, depth=depth, heads=heads, vocab_size=vocab_size, dropout=dropout
        ),
        max_length=max_length,
        scratch=TrainingPlan(
            learning_rate=scratch_learning_rate,
            epochs=scratch_epochs,
            batch_size=batch_size,
            precision=precision,
        ),
        pretrained=TrainingPlan(
            learning_rate=learning_rate, epochs=epochs, batch_size=batch_size, precision=precision
        ),
        keys=keys,
    )


def _first_reviews(split: Batch, n: int) -> Batch:
    """The first reviews (they are in random order), with spaces for the HTML line breaks."""
    texts, ys = split
    plain = [text.replace("<br />", " ") for text in texts[:n].tolist()]
    return np.array(plain, np.dtypes.StringDType()), np.asarray(ys[:n], np.int32)

"""Pre-training of a small BERT on books (§6.5): masked tokens and next sentences."""

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Literal

import jax
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ... import data
from ...core import Batch
from ...data import WordPiece
from ...models import BERT, BERTPretraining
from ...train import (
    bert_pretraining,
    fit,
    masked_cross_entropy,
    masked_error_rate,
    next_sentence_error_rate,
    save_pretrained,
)
from ..engine.job import Job, check_positive, recipe
from ..engine.outcome import Outcome
from ..shared.fine_tuning import (
    PRETRAINED_FOLDER,
    TrainingPlan,
    evaluate_in_blocks,
    report_examples,
)
from ..shared.transformer_training import width_scaled

MAX_VALID_PAIRS = 500
MAX_TEST_PAIRS = 2000
SHORT_FRACTION = 0.75  # share of the epochs with pairs of half the length
Documents = list[list[np.ndarray]]  # the tokens of each book, by sentences or by segments


def join_into_segments(sentences: Sequence[np.ndarray], length: int) -> list[np.ndarray]:
    """Joins consecutive sentences into segments of at most `length` tokens; longer ones are cut.

    >>> sentences = [np.arange(2), np.arange(2, 3), np.arange(3, 10)]
    >>> [segment.tolist() for segment in join_into_segments(sentences, 4)]
    [[0, 1, 2], [3, 4, 5, 6], [7, 8, 9]]
    """
    parts = [row[i : i + length] for row in sentences for i in range(0, len(row), length)]
    segments = []
    room = 0
    for part in parts:
        if len(part) > room:
            segments.append([])
            room = length
        segments[-1].append(part)
        room -= len(part)
    return [np.concatenate(segment) for segment in segments]


def sentence_pair_batch(
    documents: Documents, tokeniser: WordPiece, *, max_length: int, n_pairs: int, key: PRNGKeyArray
) -> Batch:
    """Samples `((tokens, segments), labels)` of at most `n_pairs` pairs of segments.

    The label is 0 where the second segment follows the first.
    """
    flat = list(chain.from_iterable(documents))
    first, second, follows = data.sentence_pairs(documents, key=key)
    cls = tokeniser.piece_id("[CLS]")
    sep = tokeniser.piece_id("[SEP]")
    indices = np.asarray(jr.permutation(jr.fold_in(key, 0), len(first)))[:n_pairs]
    rows = [
        data.pack_sentences(
            flat[first[i]], flat[second[i]], cls_id=cls, sep_id=sep, length=max_length
        )
        for i in indices
    ]
    tokens = np.stack([row.tokens for row in rows])
    segments = np.stack([row.segments for row in rows])
    return (tokens, segments), 1 - follows[indices]


class PairStream:
    """The batches of each epoch: newly sampled sentence pairs of this epoch's length."""

    def __init__(
        self,
        documents: Documents,
        tokeniser: WordPiece,
        *,
        lengths: list[int],
        n_pairs: int,
        batch_size: int,
        key: PRNGKeyArray,
    ):
        self.segments = {length: _segments(documents, length) for length in set(lengths)}
        self.tokeniser, self.lengths, self.n_pairs = tokeniser, lengths, n_pairs
        self.batch_size, self.key = batch_size, key

    @property
    def steps(self) -> int:
        """Number of batches in all epochs."""
        available = {
            length: sum(len(book) - 1 for book in books) for length, books in self.segments.items()
        }
        return sum(
            min(self.n_pairs, available[length]) // self.batch_size for length in self.lengths
        )

    def pairs(self, epoch: int) -> Batch:
        """All pairs of an epoch."""
        length = self.lengths[epoch]
        return sentence_pair_batch(
            self.segments[length],
            self.tokeniser,
            max_length=length,
            n_pairs=self.n_pairs,
            key=jr.fold_in(self.key, epoch),
        )

    def __call__(self, epoch: int) -> Iterator[Batch]:
        size = self.batch_size
        pairs = self.pairs(epoch)
        for i in range(0, len(pairs[1]) - size + 1, size):
            yield jax.tree.map(lambda a, i=i: a[i : i + size], pairs)


@recipe
def bert(
    job: Job,
    *,
    valid_books: tuple[str, ...] = ("carroll-alice",),
    test_books: tuple[str, ...] = ("austen-persuasion", "chesterton-thursday"),
    vocab_size: int = 6000,
    max_length: int = 128,
    width: int = 128,
    depth: int = 3,
    heads: int = 4,
    dropout: float = 0.0,
    learning_rate: float = 1e-3,
    pairs_per_epoch: int = 16_000,
    epochs: int = 12,
    batch_size: int = 32,
    precision: Literal["float32", "bfloat16"] = "float32",
) -> Outcome:
    """Pre-training of a small BERT by masked-token and next-sentence prediction.

    Sentence pairs and masks are sampled again in every epoch. The first three quarters of the
    epochs use pairs of half the length, which learns local context sooner; the others train the
    later positions (Devlin et al. 2019 do so for nine tenths of the steps). The folder `pretrained`
    inside that of the run has the model and its vocabulary in the layout of transformers; start
    from it with `thetax train tagging --encoder RUN`.

    Parameters
    ----------
    valid_books
        Gutenberg texts for validation, by name.
    test_books
        Gutenberg texts for the test; all others are the training set.
    vocab_size
        Size of the WordPiece vocabulary, learned from the training books.
    max_length
        Maximum length of a pair in tokens; each of its two segments has at most half.
    learning_rate
        Peak learning rate of AdamW, after a linear warmup over a tenth of the steps; it then decays
        linearly to zero.
    pairs_per_epoch
        Maximum number of pairs per epoch.
    epochs
        Epochs of `pairs_per_epoch` pairs each.
    """
    check_positive(
        max_length=max_length,
        learning_rate=learning_rate,
        pairs_per_epoch=pairs_per_epoch,
        epochs=epochs,
        batch_size=batch_size,
    )
    key_init, key_pairs, key_valid, key_test, key_fit = jr.split(job.key, 5)
    job.note("loading gutenberg, and learning its vocabulary")
    tokeniser, splits = _splits(valid_books, test_books, vocab_size=vocab_size)
    table = {"unigram model": _unigram_row(splits[0], splits[2], len(tokeniser))}
    valid, test = (
        sentence_pair_batch(
            _segments(split, max_length), tokeniser, max_length=max_length, n_pairs=n, key=key
        )
        for split, n, key in zip(
            splits[1:], (MAX_VALID_PAIRS, MAX_TEST_PAIRS), (key_valid, key_test)
        )
    )
    masking = {"mask_id": tokeniser.piece_id("[MASK]"), "special_ids": tokeniser.special_ids}
    objective = bert_pretraining(**masking)
    plan = TrainingPlan(
        learning_rate=learning_rate, epochs=epochs, batch_size=batch_size, precision=precision
    )
    lengths = [
        max_length // 2 if epoch < SHORT_FRACTION * epochs else max_length
        for epoch in range(epochs)
    ]
    stream = PairStream(
        splits[0],
        tokeniser,
        lengths=lengths,
        n_pairs=pairs_per_epoch,
        batch_size=batch_size,
        key=key_pairs,
    )
    job.note("network")
    key_bert, key_heads = jr.split(key_init)
    initialiser = width_scaled(width)
    encoder = BERT.init(
        len(tokeniser),
        width,
        depth=depth,
        heads=heads,
        max_length=max_length,
        dropout=dropout,
        initialiser=initialiser,
        key=key_bert,
    )
    result = fit(
        plan.iteration(objective, stream.steps),
        BERTPretraining.init(encoder, initialiser=initialiser, key=key_heads),
        stream,
        epochs=epochs,
        batch_size=batch_size,
        validation=valid,
        metrics={
            "masked-token loss": masked_cross_entropy(**masking),
            "next-sentence error": next_sentence_error_rate(**masking),
        },
        key=key_fit,
        run=job.part("network"),
        progress=job.progress,
    )
    if job.run is not None:
        save_pretrained(job.run.folder / PRETRAINED_FOLDER, result.model, tokeniser=tokeniser)
    table["network"] = _row(result.model, test, masking)
    return Outcome.of_fit(
        result,
        train=report_examples(result.model.bert, stream.pairs(epochs - 1)),
        test=report_examples(result.model.bert, test),
        objective=objective,
        table=table,
        tokens=tokeniser.pieces,
        sizes=(stream.steps * batch_size, len(test[1])),
    )


def _segments(documents: Documents, max_length: int) -> Documents:
    """Segments of which two, with three special tokens, have at most `max_length` tokens."""
    return [join_into_segments(sentences, (max_length - 3) // 2) for sentences in documents]


def _splits(
    valid_books: tuple[str, ...], test_books: tuple[str, ...], *, vocab_size: int
) -> tuple[WordPiece, tuple[Documents, ...]]:
    """The tokeniser, and the sentences of the training, validation and test books."""
    full = data.load("gutenberg")
    unknown = [book for book in (*valid_books, *test_books) if book not in full.classes]
    train_books = [book for book in full.classes if book not in (*valid_books, *test_books)]
    if unknown or not (train_books and valid_books and test_books):
        given = repr(unknown[0]) if unknown else "none for training, validation or test"
        raise ValueError(
            f"valid_books, test_books: expected some, not all, of {', '.join(full.classes)}; "
            f"got {given}."
        )
    texts = {book: str(text) for book, text in zip(full.classes, full.train[0])}
    tokeniser = WordPiece.fit(
        [texts[book] for book in train_books], vocab_size=vocab_size, score=data.pair_frequency
    )
    tokenise = lambda book: [
        tokeniser.tokens(sentence, parse_special=False)
        for sentence in data.split_sentences(texts[book])
    ]
    split = lambda books: [tokenise(book) for book in books]
    return tokeniser, (split(train_books), split(valid_books), split(test_books))


def _unigram_row(train: Documents, test: Documents, vocab_size: int) -> dict[str, float]:
    """Metrics of a unigram model with add-one smoothing, which predicts the most frequent token."""
    count = lambda split: np.bincount(
        np.concatenate([row for book in split for row in book]), minlength=vocab_size
    )
    train_counts = count(train)
    test_counts = count(test)
    log_p = np.log((train_counts + 1) / (train_counts + 1).sum())
    perplexity = math.exp(-(test_counts @ log_p) / test_counts.sum())
    correct = test_counts[train_counts.argmax()] / test_counts.sum()
    return {
        "masked-token perplexity": perplexity,
        "masked-token accuracy %": 100 * correct,
        "next-sentence accuracy %": 50.0,
    }


def _row(model: BERTPretraining, test: Batch, masking: dict) -> dict[str, float]:
    metrics = {
        "loss": masked_cross_entropy(**masking),
        "token error": masked_error_rate(**masking),
        "sentence error": next_sentence_error_rate(**masking),
    }
    values = evaluate_in_blocks(model, test, metrics)
    return {
        "masked-token perplexity": math.exp(values["loss"]),
        "masked-token accuracy %": 100 * (1 - values["token error"]),
        "next-sentence accuracy %": 100 * (1 - values["sentence error"]),
    }

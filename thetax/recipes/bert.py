"""A small BERT learns to read from books (§6.5): it fills gaps and tells which text goes on."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Literal

import jax
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from .. import data
from ..core import Batch
from ..data import WordPiece
from ..models import BERT, BERTPretraining
from ..train import (
    fit,
    follow_error_rate,
    masked_cross_entropy,
    masked_error_rate,
    pretraining,
    save_pretrained,
)
from .engine.job import Job, positive, recipe
from .engine.outcome import Outcome
from .shared.encoder import KEPT, Plan, judge, shown
from .shared.transformer_training import narrow

VALID, TEST = 500, 2000  # pairs of stretches to judge by, at most
SHORT = 0.75  # of the epochs have pairs of half the length
Documents = list[list[np.ndarray]]  # the sentences of each book, or its stretches


def stretches(sentences: Sequence[np.ndarray], length: int) -> list[np.ndarray]:
    """Sentences that follow one another, put together while they have at most `length` tokens; a
    longer one is cut.

    >>> [row.tolist() for row in stretches([np.arange(2), np.arange(2, 3), np.arange(3, 10)], 4)]
    [[0, 1, 2], [3, 4, 5, 6], [7, 8, 9]]
    """
    parts = [row[i : i + length] for row in sentences for i in range(0, len(row), length)]
    groups = []
    room = 0
    for part in parts:
        if len(part) > room:
            groups.append([])
            room = length
        groups[-1].append(part)
        room -= len(part)
    return [np.concatenate(group) for group in groups]


def pairs(
    documents: Documents, known: WordPiece, *, length: int, count: int, key: PRNGKeyArray
) -> Batch:
    """`((tokens, segments), follows)` for `count` pairs of stretches, or as many as there are; 0 is
    "it follows".
    """
    flat = list(chain.from_iterable(documents))
    first, second, follows = data.sentence_pairs(documents, key=key)
    cls = known.number("[CLS]")
    sep = known.number("[SEP]")
    chosen = np.asarray(jr.permutation(jr.fold_in(key, 0), len(first)))[:count]
    rows = [
        data.join_sentences(flat[first[i]], flat[second[i]], cls=cls, sep=sep, length=length)
        for i in chosen
    ]
    return (
        np.stack([row.tokens for row in rows]),
        np.stack([row.segments for row in rows]),
    ), 1 - follows[chosen]


class Drawn:
    """The batches of an epoch: so many pairs, drawn anew, of the length that this epoch has."""

    def __init__(
        self,
        documents: Documents,
        known: WordPiece,
        *,
        lengths: list[int],
        count: int,
        batch: int,
        key: PRNGKeyArray,
    ):
        self.cut = {length: _cut(documents, length) for length in set(lengths)}
        self.known, self.lengths, self.count, self.batch, self.key = (
            known,
            lengths,
            count,
            batch,
            key,
        )

    @property
    def steps(self) -> int:
        """Batches of all epochs together."""
        there = {length: sum(len(book) - 1 for book in books) for length, books in self.cut.items()}
        return sum(min(self.count, there[length]) // self.batch for length in self.lengths)

    def pairs(self, epoch: int) -> Batch:
        """All of an epoch."""
        length = self.lengths[epoch]
        key = jr.fold_in(self.key, epoch)
        return pairs(self.cut[length], self.known, length=length, count=self.count, key=key)

    def __call__(self, epoch: int) -> Iterator[Batch]:
        taken = self.pairs(epoch)
        for i in range(0, len(taken[1]) - self.batch + 1, self.batch):
            yield jax.tree.map(lambda a, i=i: a[i : i + self.batch], taken)


@recipe
def bert(
    job: Job,
    *,
    valid: tuple[str, ...] = ("carroll-alice",),
    test: tuple[str, ...] = ("austen-persuasion", "chesterton-thursday"),
    pieces: int = 6000,
    length: int = 128,
    width: int = 128,
    depth: int = 3,
    heads: int = 4,
    dropout: float = 0.0,
    rate: float = 1e-3,
    pairs_an_epoch: int = 16_000,
    epochs: int = 12,
    batch: int = 32,
    precision: Literal["float32", "bfloat16"] = "float32",
) -> Outcome:
    """A BERT learns from books to fill gaps and to tell whether a text goes on; other recipes can
    start from it.

    The pairs are stretches of sentences that follow one another in a book, or do not; pairs and
    gaps are drawn anew in every epoch. In the first three quarters of the epochs pairs have half
    the length, where it is found sooner that neighbours tell most; the others show the later places
    (Devlin et al. 2019 do so for nine tenths). The folder `pretrained` in that of the run has the
    model and its vocabulary as transformers reads them: `thetax train tagging --start RUN`.

    Parameters
    ----------
    valid
        Books for validation, by name.
    test
        Books to test on; all that are left are trained on.
    pieces
        Size of the vocabulary, learned from the books trained on.
    length
        Tokens of a pair; each of its two stretches has at most half.
    width
        Numbers that stand for a token.
    depth
        Blocks of attention.
    heads
        Heads of each attention.
    dropout
        Probability of dropping a number inside the network.
    rate
        Highest learning rate of AdamW; a tenth of the steps lead up to it, the others down to zero.
    pairs_an_epoch
        Pairs that an epoch has, at most.
    epochs
        How many times that many pairs are drawn.
    batch
        Pairs in a batch.
    precision
        In what the network is computed; weights, norms and losses stay float32.
    """
    positive(length=length, rate=rate, pairs_an_epoch=pairs_an_epoch, epochs=epochs, batch=batch)
    key_init, key_pairs, key_valid, key_test, key_fit = jr.split(job.key, 5)
    job.say("loading gutenberg, and learning its pieces")
    known, parts = _parts(valid, test, pieces=pieces)
    table = {"frequencies, and a coin": _counted(parts[0], parts[2], len(known))}
    held, tested = (
        pairs(_cut(part, length), known, length=length, count=count, key=key)
        for part, count, key in zip(parts[1:], (VALID, TEST), (key_valid, key_test))
    )
    gaps = {"mask": known.number("[MASK]"), "special": known.special}
    objective = pretraining(**gaps)
    plan = Plan(rate, epochs, batch, precision)
    lengths = [length // 2 if epoch < SHORT * epochs else length for epoch in range(epochs)]
    drawn = Drawn(
        parts[0], known, lengths=lengths, count=pairs_an_epoch, batch=batch, key=key_pairs
    )
    job.say("network")
    key_bert, key_heads = jr.split(key_init)
    initialiser = narrow(width)
    draw_bert = partial(
        BERT.init,
        depth=depth,
        heads=heads,
        max_length=length,
        dropout=dropout,
        initialiser=initialiser,
    )
    found = fit(
        plan.iteration(objective, drawn.steps),
        BERTPretraining.init(
            draw_bert(len(known), width, key=key_bert), initialiser=initialiser, key=key_heads
        ),
        drawn,
        epochs=epochs,
        batch_size=batch,
        validation=held,
        metrics={"gaps": masked_cross_entropy(**gaps), "follows error": follow_error_rate(**gaps)},
        key=key_fit,
        run=job.part("network"),
        progress=job.progress,
    )
    if job.run is not None and not job.run.look_only:
        save_pretrained(job.run.folder / KEPT, found.model, tokeniser=known)
    table["network"] = _judged(found.model, tested, gaps)
    some = shown(found.model.bert, drawn.pairs(epochs - 1)), shown(found.model.bert, tested)
    return Outcome(
        found.model,
        *some,
        objective,
        found.history,
        (),
        table,
        found.reason,
        found.seconds,
        tokens=known.pieces,
        sizes=(drawn.steps * batch, len(tested[1])),
    )


def _cut(documents: Documents, length: int) -> Documents:
    """Stretches of which two, and three marks, have at most `length` tokens."""
    return [stretches(sentences, (length - 3) // 2) for sentences in documents]


def _parts(
    valid: tuple[str, ...], test: tuple[str, ...], *, pieces: int
) -> tuple[WordPiece, tuple[Documents, ...]]:
    """The vocabulary of the books to train on, and the sentences of those, of the books for
    validation and to test.
    """
    full = data.load("gutenberg")
    strange = [book for book in (*valid, *test) if book not in full.classes]
    train = [book for book in full.classes if book not in (*valid, *test)]
    if strange or not (train and valid and test):
        came = repr(strange[0]) if strange else "none to train on, to validate or to test on"
        raise ValueError(
            f"valid, test: expected some, not all, of {', '.join(full.classes)}; got {came}."
        )
    texts = {book: str(text) for book, text in zip(full.classes, full.train[0])}
    known = WordPiece.fit([texts[book] for book in train], size=pieces, score=data.frequency)
    cut = lambda book: [
        known.tokens(sentence, special=False) for sentence in data.sentences(texts[book])
    ]
    part = lambda books: [cut(book) for book in books]
    return known, (part(train), part(valid), part(test))


def _counted(train: Documents, test: Documents, size: int) -> dict[str, float]:
    """What one knows who knows only how frequent each token is, by Laplace's rule."""
    count = lambda part: np.bincount(
        np.concatenate([row for book in part for row in book]), minlength=size
    )
    seen = count(train)
    asked = count(test)
    log_p = np.log((seen + 1) / (seen + 1).sum())
    perplexity = math.exp(-(asked @ log_p) / asked.sum())
    right = asked[seen.argmax()] / asked.sum()
    return {
        "perplexity of a gap": perplexity,
        "gaps filled rightly, %": 100 * right,
        "follows or not, right in %": 50.0,
    }


def _judged(model: BERTPretraining, test: Batch, gaps: dict) -> dict[str, float]:
    metrics = masked_cross_entropy(**gaps), masked_error_rate(**gaps), follow_error_rate(**gaps)
    fill, wrong, lost = judge(model, test, dict(zip(("fill", "wrong", "lost"), metrics))).values()
    return {
        "perplexity of a gap": math.exp(fill),
        "gaps filled rightly, %": 100 * (1 - wrong),
        "follows or not, right in %": 100 * (1 - lost),
    }

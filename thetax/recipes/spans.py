"""Answers found in a passage (§6.5): an encoder points at where they begin and end."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Bool, Int, PRNGKeyArray

from .. import data
from ..core import Batch
from ..data import WordPiece
from ..models import SpanPredictor, best_span
from ..train import span_cross_entropy, span_error_rate
from .engine.job import Job, positive, recipe
from .engine.outcome import Outcome
from .shared.encoder import BLOCK, Plan, Sizes, Speller, Task, Tuned, check_starts, tune_each
from .shared.squad import (
    GAP,
    Question,
    commonest_name,
    cut_questions,
    mark,
    name_words,
    read_squad,
    renamed,
    words,
)

METRICS = {"error": span_error_rate, "loss": span_cross_entropy}
TEST_BOOKS = ("austen-persuasion", "chesterton-thursday")
VALID_BOOKS = ("carroll-alice", "chesterton-ball")
EVERY = 10  # of so many articles of a file one is to test on, and one for validation
VALID = 500  # questions for validation, at most
USUAL = 0.99  # of the answers learnt from are as long as one that is given may be, or shorter


class Rows(NamedTuple):
    """Questions as a model reads them: [CLS] question [SEP] passage [SEP], and which word of the
    passage is where.
    """

    batch: Batch  # ((tokens, segments), spans)
    word: Int[np.ndarray, "n t"]
    inside: Bool[np.ndarray, " n"]  # whether the answer is in what is read of the passage


def rows(questions: Sequence[Question], known: WordPiece, *, length: int) -> Rows:
    """Each question in a row of so many tokens: its first half at most, and of the passage the
    beginning that fits.

    >>> known = WordPiece(["[UNK]", "[CLS]", "[SEP]", "[MASK]", "bo", "##b", "ran", "."])
    >>> found = rows([Question("[MASK] ran.", "Bob ran.", 0, 3, ("Bob",))], known, length=10)
    >>> [part.tolist() for part in (*found.batch[0], found.batch[1])]
    [[[1, 3, 6, 7, 2, 4, 5, 6, 7, 2]], [[0, 0, 0, 0, 0, 1, 1, 1, 1, 1]], [[5, 6]]]
    """
    spell = Speller(known)
    made = []
    for question in questions:
        asks = _asked(question.asks, spell)[: (length - 3) // 2]
        spans = words(question.passage)
        pieces = [spell(question.passage[i:j]) for i, j in spans]
        word = np.repeat(np.arange(len(pieces)), [len(piece) for piece in pieces])[
            : length - 3 - len(asks)
        ]
        told = np.concatenate([np.zeros(0, np.int32), *pieces])[: len(word)]
        row = data.join_sentences(
            asks, told, cls=known.number("[CLS]"), sep=known.number("[SEP]"), length=length
        )
        place = np.full(length, -1)
        place[len(asks) + 2 : len(asks) + 2 + len(word)] = word
        made.append((*row, place, _span(question, spans, place)))
    tokens, segments, place, span = (np.stack(part) for part in zip(*made))
    return Rows(((tokens, segments), np.maximum(span, 0)), place, span.min(axis=1) >= 0)


def _asked(asks: str, spell: Speller) -> list[int]:
    """The tokens of a question, with the mark for a gap in the place of its name."""
    before, gap, after = asks.partition(GAP)
    own = lambda text: [int(token) for i, j in words(text) for token in spell(text[i:j])]
    return own(before) + ([spell.known.number(GAP)] if gap else []) + own(after)


def _span(question: Question, spans: list[tuple[int, int]], place: np.ndarray) -> np.ndarray:
    """The first and last token of the answer, as targets; -1 where it is not in the row, or not
    whole.
    """
    inside = [k for k, (i, j) in enumerate(spans) if i < question.end and j > question.begin]
    found = [np.flatnonzero(place == k) for k in (inside[:1] + inside[-1:])]
    if len(found) < 2 or not all(map(len, found)):
        return np.full(2, -1, np.int32)
    return np.array([found[0][0], found[1][-1]], np.int32)


def usual_length(spans: Int[np.ndarray, "n 2"]) -> int:
    """Tokens of the longest of some answers, but for a hundredth of them.

    A model says where an answer begins and, apart from that, where one ends: in a span that may be
    long it would begin with one name and end with another.

    >>> usual_length(np.array([[3, 3], [7, 8], [5, 5]]))
    2
    """
    return int(np.quantile(spans[:, 1] - spans[:, 0] + 1, USUAL, method="higher"))


def answers(
    model: SpanPredictor, read: Rows, questions: Sequence[Question], *, longest: int
) -> list[str]:
    """What the model says to each question: the words of the passage that its best span touches."""
    find = jax.jit(jax.vmap(lambda x: best_span(model(x), max_length=longest)))
    said = []
    for i in range(0, len(questions), BLOCK):
        block = jax.tree.map(lambda a, i=i: a[i : i + BLOCK], read.batch[0])
        for place, question, *ends in zip(
            read.word[i : i + BLOCK], questions[i : i + BLOCK], *find(block)
        ):
            first, last = (int(place[int(end)]) for end in ends)
            spans = words(question.passage)
            said.append(question.passage[spans[first][0] : spans[last][1]])
    return said


@recipe
def spans(
    job: Job,
    *,
    start: tuple[str, ...] = ("minilm",),
    squad: str = "",
    questions: int = 2000,
    renames: int = 0,
    tests: int = 800,
    length: int = 128,
    pieces: int = 6000,
    width: int = 64,
    depth: int = 2,
    heads: int = 4,
    rate: float = 2e-4,
    epochs: int = 2,
    fresh_rate: float = 1e-3,
    fresh_epochs: int = 2,
    batch: int = 32,
    precision: Literal["float32", "bfloat16"] = "float32",
) -> Outcome:
    """Which of the names told just before belongs into a gap, in books; or the questions of SQuAD
    1.1, from its file.

    A sentence of a Gutenberg book in which a name is hidden is the question, and the some 80 words
    before it, in which the name occurs and another does, are the passage. Whole books are held out,
    of a file every tenth article. An answer is right if it reads like the right one. Three in four
    names of the test are new, so a question can be learnt with other names as well: on a GPU,
    `--questions 12000 --renames 3 --precision bfloat16`. An encoder drawn anew does no better than
    the commonest name. Passages of SQuAD want a greater length.

    Parameters
    ----------
    start
        What to begin with, a row of the table each: scratch, minilm, or the folder of a run of
        bert.
    squad
        A file of SQuAD 1.1 in JSON, such as train-v1.1.json, in place of the books.
    questions
        Questions to learn from, at most.
    renames
        How often each question from books is learnt again with other names.
    tests
        Questions to test on, at most.
    length
        Tokens of a question and its passage; of a longer passage the beginning is read.
    pieces
        Size of the vocabulary of an encoder drawn anew.
    width
        Numbers that stand for a token in an encoder drawn anew.
    depth
        Blocks of attention in an encoder drawn anew.
    heads
        Heads of each attention in an encoder drawn anew.
    rate
        Highest learning rate of AdamW where the encoder has learned before.
    epochs
        Passes over the questions, there.
    fresh_rate
        Highest learning rate where all is drawn anew.
    fresh_epochs
        Passes over the questions, there.
    batch
        Questions in a batch.
    precision
        In what the network is computed; weights, norms and losses stay float32.
    """
    positive(
        questions=questions,
        tests=tests,
        batch=batch,
        rate=rate,
        epochs=epochs,
        fresh_rate=fresh_rate,
    )
    if renames < 0:
        raise ValueError(f"renames counts how often names are changed, 0 or more; got {renames}.")
    check_starts(start)
    key_few, key_names, *keys = jr.split(job.key, 2 + len(start))
    job.say(f"reading {squad or 'gutenberg'}")
    groups = _from_squad(squad) if squad else _from_books()
    train, valid, test = (
        _few(group, n, key)
        for group, n, key in zip(groups, (questions, VALID, tests), jr.split(key_few, 3))
    )
    table = {"the commonest name of the passage": _row(map(commonest_name, test), test)}
    task = Task(
        [text for question in train for text in (question.asks, question.passage)],
        (train if squad else _again(train, renames, key_names), valid, test),
        lambda part, known: _answered(rows(part, known, length=length)),
        lambda begun, key: SpanPredictor.init(begun.bert, key=key),
        span_cross_entropy,
        METRICS,
        lambda found: _row(_said(found, test, length), test),
    )
    return tune_each(
        job,
        start,
        task,
        table,
        sizes=Sizes(width, depth, heads, pieces, lower=False),
        length=length,
        fresh=Plan(fresh_rate, fresh_epochs, batch, precision),
        tuned=Plan(rate, epochs, batch, precision),
        keys=keys,
    )


def _said(found: Tuned, test: Sequence[Question], length: int) -> list[str]:
    longest = usual_length(found.train[1])
    return answers(found.fit.model, rows(test, found.known, length=length), test, longest=longest)


def _row(said: Iterable[str], test: Sequence[Question]) -> dict[str, float]:
    exact, f1 = mark(said, test)
    return {"exactly right, %": exact, "words right (F1), %": f1}


def _answered(read: Rows) -> Batch:
    """The questions whose answer is in what is read of the passage."""
    return jax.tree.map(lambda a: a[read.inside], read.batch)


def _few(group: Sequence[Question], count: int, key: PRNGKeyArray) -> list[Question]:
    return [group[i] for i in np.asarray(jr.permutation(key, len(group)))[:count]]


def _again(questions: list[Question], times: int, key: PRNGKeyArray) -> list[Question]:
    """The questions, and each so many times more with names that are drawn from all of theirs."""
    draw = np.random.default_rng(np.asarray(jr.key_data(key)).ravel())
    pool = name_words(text for question in questions for text in (question.passage, question.asks))
    return questions + [
        renamed(question, pool, draw=draw) for _ in range(times) for question in questions
    ]


def _from_books() -> tuple[list[Question], list[Question], list[Question]]:
    full = data.load("gutenberg")
    cut = {
        book: list(cut_questions(data.sentences(str(text))))
        for book, text in zip(full.classes, full.train[0])
    }
    of = lambda books: [question for book in books for question in cut.get(book, ())]
    return (
        of([book for book in cut if book not in (*TEST_BOOKS, *VALID_BOOKS)]),
        of(VALID_BOOKS),
        of(TEST_BOOKS),
    )


def _from_squad(file: str) -> tuple[list[Question], list[Question], list[Question]]:
    articles = list(read_squad(file).values())
    if len(articles) < EVERY:
        raise ValueError(
            f"squad: expected a file of at least {EVERY} articles, to hold some out; got "
            f"{len(articles)}."
        )
    of = lambda keep: [
        question for i, own in enumerate(articles) if keep(i % EVERY) for question in own
    ]
    return of(lambda i: i not in (4, EVERY - 1)), of(lambda i: i == 4), of(lambda i: i == EVERY - 1)

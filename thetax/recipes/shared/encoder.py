"""What a task about texts begins with (§6.5): an encoder drawn anew, that of a run of `bert`, or
MiniLM; and how it is fine-tuned.

All weights are trained, those of the encoder too.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.random as jr
import numpy as np
import optax
from jaxtyping import PRNGKeyArray

from ... import data, tree
from ...core import Batch, Iteration, Objective
from ...data import WordPiece
from ...layers import Linear
from ...models import BERT, BERTPretraining, MaskedLM
from ...train import Fit, descend, evaluate, fit, load_pretrained, mixed_precision
from ..engine.job import Job
from ..engine.outcome import Outcome
from .transformer_training import narrow

SCRATCH, MINILM = "scratch", "minilm"  # names of starts; any other is a folder
KEPT = "pretrained"  # the folder, in a run of `bert`, that a task can start from
CLIP = 1.0  # the longest gradient
DROPOUT = 0.1  # in an encoder that is drawn anew, unless told otherwise, and before the head of any
DECAY = 0.01  # strength of AdamW's weight decay
WARM = 0.1  # share of the steps that lead up to the highest rate
BLOCK = 250  # examples that are judged at once
BUCKETS = 3  # lengths that batches are cut to
LOOKED, FEW = (
    1e10,
    16,
)  # products of a token and a weight that a report affords, and examples that it always does


class Sizes(NamedTuple):
    """Of an encoder that is drawn anew; its dropout; and whether its pieces know no capitals."""

    width: int
    depth: int
    heads: int
    pieces: int
    dropout: float = DROPOUT
    lower: bool = True


class Encoder(NamedTuple):
    """A network, its vocabulary, and the layer that reads its first vector, if that has learned
    too.
    """

    bert: BERT
    known: WordPiece
    pool: Linear | None = None


def encoder(
    start: str, texts: Sequence[str], *, sizes: Sizes, length: int, key: PRNGKeyArray
) -> Encoder:
    """The encoder of that name, for rows of `length` tokens; the texts give the vocabulary of one
    drawn anew.
    """
    if start == SCRATCH:
        known = WordPiece.fit(texts, size=sizes.pieces, score=data.frequency, lower=sizes.lower)
        draw = partial(
            BERT.init,
            depth=sizes.depth,
            heads=sizes.heads,
            max_length=length,
            dropout=sizes.dropout,
        )
        return Encoder(
            draw(len(known), sizes.width, initialiser=narrow(sizes.width), key=key), known
        )
    network = load_pretrained(data.fetch_model(MINILM) if start == MINILM else _folder(start))
    model, known = network.model, network.tokeniser
    pool = model.pool if isinstance(model, BERTPretraining) else network.pool
    bert = model.bert if isinstance(model, BERTPretraining | MaskedLM) else model
    if not isinstance(bert, BERT) or not isinstance(known, WordPiece):
        raise ValueError(
            f"start: expected a BERT with a WordPiece vocabulary in {start}; got "
            f"{type(model).__name__}."
        )
    if length > (most := len(bert.positions.P)):
        raise ValueError(
            f"length: {start} reads at most {most} tokens; got {length}. Choose a smaller length."
        )
    return Encoder(bert, known, pool)


def _folder(start: str) -> Path:
    """The folder of a network: that in a run, or any other of Hugging Face's layout."""
    for folder in (Path(start) / KEPT, Path(start)):
        if (folder / "config.json").is_file():
            return folder
    raise ValueError(
        f"start: expected {SCRATCH!r}, {MINILM!r}, the folder of a finished run of bert, or one "
        f"with a config.json; got {start!r}."
    )


def check_starts(start: tuple[str, ...]) -> None:
    """Refuses starts that are not there, and none, before any compute is spent."""
    if not start:
        raise ValueError(f"start: expected {SCRATCH!r}, {MINILM!r} or folders; got none.")
    for name in start:
        if name not in (SCRATCH, MINILM):
            _folder(name)


class Plan(NamedTuple):
    """How to train: AdamW's highest rate, passes over the data, examples in a batch, and what is
    computed in.
    """

    rate: float
    epochs: int
    batch: int
    precision: str = "float32"

    def iteration(self, objective: Objective, steps: int) -> Iteration:
        """A tenth of the steps lead up to the highest rate, the others down to zero along a
        line.
        """
        warm = max(1, round(WARM * steps))
        parts = (
            optax.linear_schedule(0.0, self.rate, warm),
            optax.linear_schedule(self.rate, 0.0, max(1, steps - warm)),
        )
        adam = optax.adamw(optax.join_schedules(parts, [warm]), weight_decay=DECAY)
        computed = mixed_precision(objective) if self.precision == "bfloat16" else objective
        return descend(computed, optax.chain(optax.clip_by_global_norm(CLIP), adam))


class Task(NamedTuple):
    """What is to be learned: from which parts, how a part becomes a batch, with what head, and
    judged by what.
    """

    texts: Sequence[str]  # for the vocabulary of an encoder drawn anew
    parts: tuple[Any, Any, Any]  # to train on, for validation, to test on
    read: Callable[[Any, WordPiece], Batch]
    head: Callable[[Encoder, PRNGKeyArray], Any]
    objective: Objective
    metrics: Mapping[str, Objective]
    mark: Callable[["Tuned"], dict[str, float]]  # its row of the table, from the test
    classes: tuple[str, ...] = ()


class Tuned(NamedTuple):
    """What came of a start: the fit, the vocabulary, and the batches to train and to test on."""

    fit: Fit
    known: WordPiece
    train: Batch
    test: Batch

    def outcome(self, task: Task, table: Mapping[str, Mapping[str, float]]) -> Outcome:
        """For a report, with as many examples as its lenses can afford."""
        found, tokens = self.fit, self.known.pieces
        some = shown(found.model.bert, self.train), shown(found.model.bert, self.test)
        return Outcome(
            found.model,
            *some,
            task.objective,
            found.history,
            task.classes,
            table,
            found.reason,
            found.seconds,
            tokens=tokens,
            sizes=(len(self.train[1]), len(self.test[1])),
        )


def tune_each(
    job: Job,
    starts: Sequence[str],
    task: Task,
    table: dict[str, dict[str, float]],
    *,
    sizes: Sizes,
    length: int,
    fresh: Plan,
    tuned: Plan,
    keys: Sequence[PRNGKeyArray],
) -> Outcome:
    """Trains on a task from each start, puts a row for it into the table, and hands on what came of
    the last.
    """
    for start, key in zip(starts, keys):
        found = tune_from(
            job, start, task, sizes=sizes, length=length, fresh=fresh, tuned=tuned, key=key
        )
        table[f"encoder, {part_name(start)}"] = task.mark(found)
    return found.outcome(task, table)


def tune_from(
    job: Job,
    start: str,
    task: Task,
    *,
    sizes: Sizes,
    length: int,
    fresh: Plan,
    tuned: Plan,
    key: PRNGKeyArray,
) -> Tuned:
    """Trains on a task from one start, by the plan `fresh` if all is drawn anew and else by
    `tuned`.

    Batches have rows of similar length. The fit is kept in the part of the job that has the name of
    the start.
    """
    job.say(start)
    key_begin, key_head, key_order, key_fit = jr.split(key, 4)
    begun = encoder(start, task.texts, sizes=sizes, length=length, key=key_begin)
    train, valid, test = (task.read(part, begun.known) for part in task.parts)
    plan = fresh if start == SCRATCH else tuned
    stream = data.by_length(train, batch_size=plan.batch, count=BUCKETS, key=key_order)
    found = fit(
        plan.iteration(
            task.objective, plan.epochs * (len(jax.tree.leaves(train)[0]) // plan.batch)
        ),
        task.head(begun, key_head),
        _whole(stream, plan.batch),
        epochs=plan.epochs,
        batch_size=plan.batch,
        validation=valid,
        metrics=task.metrics,
        key=key_fit,
        run=job.part(part_name(start)),
        progress=job.progress,
    )
    return Tuned(found, begun.known, train, test)


def _whole(stream: Callable[[int], Iterator[Any]], batch: int) -> Callable[[int], Iterator[Any]]:
    """Without the smaller batch at the end, for which a program of its own would be compiled."""
    return lambda epoch: (part for part in stream(epoch) if len(jax.tree.leaves(part)[0]) == batch)


def judge(model: Any, test: Any, metrics: Mapping[str, Objective]) -> dict[str, float]:
    """Each metric over a set `(xs, ys)`, a few examples at once, for all have no room; every target
    counts the same.
    """
    found = []
    for i in range(0, len(test[1]), BLOCK):
        block = jax.tree.map(lambda a, i=i: a[i : i + BLOCK], test)
        found.append((int((block[1] >= 0).sum()), evaluate(model, block, metrics)))
    total = sum(count for count, _ in found)
    return {name: sum(count * scores[name] for count, scores in found) / total for name in metrics}


def shown(bert: BERT, part: Batch) -> Batch:
    """The first examples of a set `(xs, ys)`, as many as the lenses of a report can afford to
    predict.
    """
    (rows, *_), each = jax.tree.leaves(part), tree.size(bert.trunk)
    count = max(FEW, int(LOOKED / (each * rows.shape[1])))
    return jax.tree.map(lambda a: a[:count], part)


def part_name(start: str) -> str:
    """The name of a start as that of a folder.

    >>> part_name("minilm"), part_name("runs/bert-1/")
    ('minilm', 'bert-1')
    """
    return Path(start).name or "start"


class Speller:
    """Words to pieces, each word once.

    >>> spell = Speller(WordPiece(["[UNK]", "un", "##able"]))
    >>> spell("unable").tolist(), spell("x").tolist()
    ([1, 2], [0])
    """

    def __init__(self, known: WordPiece):
        self.known, self.seen = known, {}

    def __call__(self, word: str) -> np.ndarray:
        if word not in self.seen:
            found = self.known.tokens(word, special=False)
            self.seen[word] = (
                found if len(found) else np.array([self.known.number("[UNK]")], np.int32)
            )
        return self.seen[word]

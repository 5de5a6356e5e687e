"""Fine-tuning of an encoder on a text task (§6.5): one trained from scratch, that of a run of
`bert`, or MiniLM.

All weights are trained, those of the encoder too.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from ...train import FitResult, descend, evaluate, fit, load_pretrained, mixed_precision
from ..engine.job import Job
from ..engine.outcome import Outcome
from .transformer_training import width_scaled

SCRATCH, MINILM = "scratch", "minilm"  # names of encoders; any other is a folder
PRETRAINED_FOLDER = "pretrained"  # in the folder of a run of `bert`
MAX_GRADIENT_NORM = 1.0
DROPOUT = 0.1  # default of an encoder trained from scratch, and before every task head
WEIGHT_DECAY = 0.01  # of AdamW
WARMUP_FRACTION = 0.1  # share of the steps
EVALUATION_BLOCK = 250  # examples evaluated at once
N_LENGTH_BUCKETS = 3  # sequence lengths to which batches are padded
MAX_REPORT_OPERATIONS = 1e10  # tokens times weights of the trunk, for the lenses of a report
MIN_REPORT_EXAMPLES = 16
MIN_LENGTH = 3  # of a row: [CLS], a token and [SEP]


class EncoderConfig(NamedTuple):
    """Architecture and vocabulary of an encoder that is trained from scratch."""

    width: int
    depth: int
    heads: int
    vocab_size: int
    dropout: float = DROPOUT
    lowercase: bool = True


class Encoder(NamedTuple):
    """An encoder, its tokeniser, and its pre-trained pooling layer if it has one."""

    bert: BERT
    tokeniser: WordPiece
    pool: Linear | None = None


def load_encoder(
    name: str, texts: Sequence[str], *, config: EncoderConfig, max_length: int, key: PRNGKeyArray
) -> Encoder:
    """The encoder of this name, for rows of `max_length` tokens.

    From scratch, it is initialised by `config`, and its vocabulary is learned from the texts.
    """
    if name == SCRATCH:
        tokeniser = WordPiece.fit(
            texts,
            vocab_size=config.vocab_size,
            score=data.pair_frequency,
            lowercase=config.lowercase,
        )
        bert = BERT.init(
            len(tokeniser),
            config.width,
            depth=config.depth,
            heads=config.heads,
            max_length=max_length,
            dropout=config.dropout,
            initialiser=width_scaled(config.width),
            key=key,
        )
        return Encoder(bert, tokeniser)
    network = load_pretrained(data.fetch_model(MINILM) if name == MINILM else _model_folder(name))
    model, tokeniser = network.model, network.tokeniser
    pool = model.pool if isinstance(model, BERTPretraining) else network.pool
    bert = model.bert if isinstance(model, BERTPretraining | MaskedLM) else model
    if not isinstance(bert, BERT) or not isinstance(tokeniser, WordPiece):
        raise ValueError(
            f"encoder: expected a BERT with a WordPiece vocabulary in {name}; got "
            f"{type(model).__name__}."
        )
    positions = len(bert.positions.P)
    if max_length > positions:
        raise ValueError(
            f"max_length: {name} has positions for at most {positions} tokens; got {max_length}. "
            "Choose a smaller max_length."
        )
    return Encoder(bert, tokeniser, pool)


def _model_folder(name: str) -> Path:
    """The folder of an encoder: that inside a run of `bert`, or one in Hugging Face's layout."""
    for folder in (Path(name) / PRETRAINED_FOLDER, Path(name)):
        if (folder / "config.json").is_file():
            return folder
    raise ValueError(
        f"encoder: expected {SCRATCH!r}, {MINILM!r}, the folder of a finished run of bert, or a "
        f"folder with a config.json; got {name!r}."
    )


def check_encoders(names: tuple[str, ...]) -> None:
    """Raises if no encoder is named or a folder does not exist, before any compute is spent."""
    if not names:
        raise ValueError(f"encoder: expected {SCRATCH!r}, {MINILM!r} or folders; got none.")
    for name in names:
        if name not in (SCRATCH, MINILM):
            _model_folder(name)


class TrainingPlan(NamedTuple):
    """Peak learning rate of AdamW, epochs, batch size and compute dtype."""

    learning_rate: float
    epochs: int
    batch_size: int
    precision: str = "float32"

    def iteration(self, objective: Objective, steps: int) -> Iteration:
        """AdamW with linear warmup over a tenth of the steps and linear decay to zero."""
        warmup = max(1, round(WARMUP_FRACTION * steps))
        schedule = optax.join_schedules(
            (
                optax.linear_schedule(0.0, self.learning_rate, warmup),
                optax.linear_schedule(self.learning_rate, 0.0, max(1, steps - warmup)),
            ),
            [warmup],
        )
        adam = optax.adamw(schedule, weight_decay=WEIGHT_DECAY)
        if self.precision == "bfloat16":
            objective = mixed_precision(objective)
        return descend(objective, optax.chain(optax.clip_by_global_norm(MAX_GRADIENT_NORM), adam))


class FineTuningTask(NamedTuple):
    """The data of a task, how they are encoded, its head, objective and metrics."""

    texts: Sequence[str]  # for the vocabulary of an encoder trained from scratch
    splits: tuple[Any, Any, Any]  # training, validation and test set
    encode: Callable[[Any, WordPiece], Batch]
    head: Callable[[Encoder, PRNGKeyArray], Any]
    objective: Objective
    metrics: Mapping[str, Objective]
    table_row: Callable[["FineTuned"], dict[str, float]]  # from the test set
    classes: tuple[str, ...] = ()


class FineTuned(NamedTuple):
    """A fine-tuned encoder: the fit, the tokeniser, and the training and test batch."""

    fit: FitResult
    tokeniser: WordPiece
    train: Batch
    test: Batch

    def outcome(self, task: FineTuningTask, table: Mapping[str, Mapping[str, float]]) -> Outcome:
        """The outcome of a recipe, with as many examples as the lenses of a report can afford."""
        model = self.fit.model
        return Outcome.of_fit(
            self.fit,
            model=model,
            train=report_examples(model.bert, self.train),
            test=report_examples(model.bert, self.test),
            objective=task.objective,
            classes=task.classes,
            table=table,
            tokens=self.tokeniser.pieces,
            sizes=(len(self.train[1]), len(self.test[1])),
        )


def fine_tune_each(
    job: Job,
    encoders: Sequence[str],
    task: FineTuningTask,
    table: dict[str, dict[str, float]],
    *,
    config: EncoderConfig,
    max_length: int,
    scratch: TrainingPlan,
    pretrained: TrainingPlan,
    keys: Sequence[PRNGKeyArray],
) -> Outcome:
    """Fine-tunes each encoder, adds its row to the table, and returns the outcome of the last."""
    for name, key in zip(encoders, keys):
        tuned = fine_tune(
            job,
            name,
            task,
            config=config,
            max_length=max_length,
            plan=scratch if name == SCRATCH else pretrained,
            key=key,
        )
        table[f"encoder, {encoder_name(name)}"] = task.table_row(tuned)
    return tuned.outcome(task, table)


def fine_tune(
    job: Job,
    name: str,
    task: FineTuningTask,
    *,
    config: EncoderConfig,
    max_length: int,
    plan: TrainingPlan,
    key: PRNGKeyArray,
) -> FineTuned:
    """Fine-tunes one encoder on a task.

    Batches have rows of similar length. The folder of the fit has the name of the encoder.
    """
    job.note(name)
    key_encoder, key_head, key_order, key_fit = jr.split(key, 4)
    encoder = load_encoder(name, task.texts, config=config, max_length=max_length, key=key_encoder)
    train, valid, test = (task.encode(split, encoder.tokeniser) for split in task.splits)
    batches = data.batches_by_length(
        train, batch_size=plan.batch_size, n_buckets=N_LENGTH_BUCKETS, key=key_order
    )
    steps = plan.epochs * (len(jax.tree.leaves(train)[0]) // plan.batch_size)
    result = fit(
        plan.iteration(task.objective, steps),
        task.head(encoder, key_head),
        _full_batches(batches, plan.batch_size),
        epochs=plan.epochs,
        batch_size=plan.batch_size,
        validation=valid,
        metrics=task.metrics,
        key=key_fit,
        run=job.part(encoder_name(name)),
        progress=job.progress,
    )
    return FineTuned(result, encoder.tokeniser, train, test)


def _full_batches(
    stream: Callable[[int], Iterator[Any]], batch_size: int
) -> Callable[[int], Iterator[Any]]:
    """Drops the smaller batch at the end, whose shape would need a compilation of its own."""
    return lambda epoch: (
        batch for batch in stream(epoch) if len(jax.tree.leaves(batch)[0]) == batch_size
    )


def evaluate_in_blocks(model: Any, test: Any, metrics: Mapping[str, Objective]) -> dict[str, float]:
    """The mean of each metric over a set `(xs, ys)`, computed in blocks of examples to save memory.

    Every target has the same weight; negative targets are padding.
    """
    blocks = []
    for i in range(0, len(test[1]), EVALUATION_BLOCK):
        block = jax.tree.map(lambda a, i=i: a[i : i + EVALUATION_BLOCK], test)
        blocks.append((int((block[1] >= 0).sum()), evaluate(model, block, metrics)))
    total = sum(n for n, _ in blocks)
    return {name: sum(n * scores[name] for n, scores in blocks) / total for name in metrics}


def report_examples(bert: BERT, split: Batch) -> Batch:
    """The first examples of a set `(xs, ys)`, as many as the lenses of a report can afford."""
    rows = jax.tree.leaves(split)[0]
    n = int(MAX_REPORT_OPERATIONS / (tree.size(bert.trunk) * rows.shape[1]))
    return jax.tree.map(lambda a: a[: max(MIN_REPORT_EXAMPLES, n)], split)


def encoder_name(name: str) -> str:
    """The short name of an encoder: for a folder, its last part.

    >>> encoder_name("minilm"), encoder_name("runs/bert-1/")
    ('minilm', 'bert-1')
    """
    return Path(name).name or "encoder"


class WordTokeniser:
    """WordPiece tokens of single words, cached.

    >>> tokenise = WordTokeniser(WordPiece(["[UNK]", "un", "##able"]))
    >>> tokenise("unable").tolist(), tokenise("x").tolist()
    ([1, 2], [0])
    """

    def __init__(self, tokeniser: WordPiece):
        self.tokeniser, self.cache = tokeniser, {}

    def __call__(self, word: str) -> np.ndarray:
        if word not in self.cache:
            tokens = self.tokeniser.tokens(word, parse_special=False)
            unknown = np.array([self.tokeniser.piece_id("[UNK]")], np.int32)
            self.cache[word] = tokens if len(tokens) else unknown
        return self.cache[word]

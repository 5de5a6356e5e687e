"""Translation of Bible verses from English to German by a transformer (§6.4)."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Int

from ... import data
from ...core import Batch, Objective
from ...models import EncoderDecoder, Translator, beam_search, greedy
from ...train import FitResult, bleu, descend, fit, mixed_precision, per_token
from ..engine.job import Job, check_positive, recipe
from ..engine.outcome import Outcome
from ..shared.ibm_model_1 import IBMModel1
from ..shared.transformer_training import (
    adamw_on_matrices,
    blockwise_token_cross_entropy,
    inverse_sqrt_schedule,
    label_smoothed_log_loss,
)

BEGIN, END = "<begin>", "<end>"  # special tokens of a translation
VALID_BOOKS = (
    "Lamentations",
    "Haggai",
    "Philippians",
    "1 John",
)  # books that share little text with others
TEST_BOOKS = ("Ruth", "Esther", "Ecclesiastes", "Jonah", "Philemon", "James")
N_LENGTH_BUCKETS = 3  # sequence lengths to which batches are padded
TRANSLATION_BLOCK = 64  # sentences translated at once
BETA2 = 0.98  # of Adam
MIN_VOCAB_SIZE = 256 + 2  # all bytes, and the two special tokens


def split_by_book(verses: data.Verses) -> tuple[data.Verses, data.Verses, data.Verses]:
    """Training, validation and test verses, split by books."""
    number = lambda names: [verses.books.index(name) for name in names]
    valid = np.isin(verses.book, number(VALID_BOOKS))
    test = np.isin(verses.book, number(TEST_BOOKS))
    return verses.select(~valid & ~test), verses.select(valid), verses.select(test)


def encode_pairs(
    verses: data.Verses,
    tokeniser: data.BytePairEncoding,
    max_length: int,
    *,
    drop_long: bool = False,
) -> Batch:
    """`((sources, inputs), targets)`: source tokens, and the decoder's inputs and targets.

    With `drop_long`, pairs longer than `max_length` tokens are left out; otherwise they are cut.
    """
    sources = tokeniser.encode(verses.english, length=max_length + 1)
    answers = tokeniser.encode(
        [f"{BEGIN}{text}{END}" for text in verses.german.tolist()], length=max_length + 2
    )
    if drop_long:
        short = (sources[:, -1] < 0) & (answers[:, -1] < 0)
        sources = sources[short]
        answers = answers[short]
    inputs = np.where(answers == tokeniser.piece_id(END), -1, answers)
    return (sources[:, :max_length], inputs[:, :max_length]), answers[:, 1 : max_length + 1]


def translate_texts(
    model: Any,
    sources: Any,
    tokeniser: data.BytePairEncoding,
    *,
    max_length: int,
    beam_width: int = 1,
    length_penalty: float = 0.0,
) -> list[str]:
    """Translations by greedy search, or by beam search for a `beam_width` above 1."""
    begin = tokeniser.piece_id(BEGIN)
    end = tokeniser.piece_id(END)

    def answer(model, source):
        cell, state = (
            model.decoder(source, max_length=max_length)
            if _needs_length(model)
            else model.decoder(source)
        )
        if beam_width == 1:
            return greedy(
                cell, start_token=begin, max_new_tokens=max_length, end_token=end, state=state
            ).tokens
        result = beam_search(
            cell,
            start_token=begin,
            max_new_tokens=max_length,
            beam_width=beam_width,
            end_token=end,
            state=state,
            length_penalty=length_penalty,
        )
        return result.tokens[0]

    answer_all = jax.jit(
        lambda model, xs: jax.lax.map(lambda x: answer(model, x), xs, batch_size=TRANSLATION_BLOCK)
    )
    rows: Int[np.ndarray, "n t"] = np.asarray(answer_all(model, jnp.asarray(sources)))
    return [tokeniser.decode(row[row != end]) for row in rows]


def _needs_length(model: Any) -> bool:
    """Whether the decoder needs the maximum length, for the size of its KV cache."""
    return isinstance(model, Translator)


@recipe
def translate(
    job: Job,
    *,
    vocab_size: int = 2000,
    width: int = 128,
    depth: int = 2,
    heads: int = 4,
    max_length: int = 64,
    dropout: float = 0.1,
    label_smoothing: float = 0.1,
    weight_decay: float = 0.01,
    beam_width: int = 4,
    length_penalty: float = 1.0,
    learning_rate: float = 2e-3,
    warmup_steps: int = 400,
    epochs: int = 14,
    batch_size: int = 64,
    baseline_width: int = 128,
    baseline_epochs: int = 4,
    precision: Literal["float32", "bfloat16"] = "float32",
) -> Outcome:
    """Translation of Bible verses from English to German by a transformer.

    A recurrent network and a dictionary are the baselines. Lamentations, Haggai, Philippians and 1
    John are for validation; Ruth, Esther, Ecclesiastes, Jonah, Philemon and James are the test set.
    The byte-pair vocabulary, shared by both languages, is learned from the other books, and so is
    the dictionary (IBM model 1, by EM). Translations by greedy and by beam search are scored by
    BLEU.

    Parameters
    ----------
    vocab_size
        Size of the byte-pair vocabulary.
    depth
        Layers of the encoder, and of the decoder.
    max_length
        Maximum length of a verse in tokens; longer ones are left out of the training set.
    weight_decay
        Decoupled weight decay of AdamW, on weight matrices only.
    length_penalty
        Exponent of the length penalty of the beam search.
    learning_rate
        Peak learning rate of AdamW.
    warmup_steps
        Steps of linear warmup; after it the learning rate falls with the square root of the step.
    baseline_width
        Hidden state size of the recurrent baseline, and width of its attention's hidden layer.
    baseline_epochs
        Passes over the training set for the recurrent baseline; 0 to leave it out.
    """
    check_positive(
        width=width,
        depth=depth,
        heads=heads,
        max_length=max_length,
        beam_width=beam_width,
        learning_rate=learning_rate,
        warmup_steps=warmup_steps,
        epochs=epochs,
        batch_size=batch_size,
        baseline_width=baseline_width,
    )
    if vocab_size < MIN_VOCAB_SIZE:
        raise ValueError(
            f"vocab_size must be at least {MIN_VOCAB_SIZE}, for all bytes and two special tokens; "
            f"got {vocab_size}."
        )
    bleu(["."], ["."])  # raises now, not after training, if sacrebleu is missing
    key_stream, *keys = jr.split(job.key, 3)
    job.note("loading verses, and learning their vocabulary")
    splits = split_by_book(_load_verses())
    tokeniser = data.BytePairEncoding.fit(
        [*splits[0].english, *splits[0].german], vocab_size=vocab_size, special_tokens=(BEGIN, END)
    )
    train, valid, test = (
        encode_pairs(split, tokeniser, max_length, drop_long=split is splits[0]) for split in splits
    )
    job.note("dictionary")
    table = {"dictionary": _word_by_word_row(splits[0], splits[2])}
    objective = per_token(label_smoothed_log_loss(label_smoothing))
    fit_model = partial(
        _fit,
        job,
        objective=mixed_precision(objective) if precision == "bfloat16" else objective,
        optimiser=adamw_on_matrices(
            inverse_sqrt_schedule(learning_rate, warmup_steps=warmup_steps),
            weight_decay=weight_decay,
            beta2=BETA2,
        ),
        stream=data.batches_by_length(
            train, batch_size=batch_size, n_buckets=N_LENGTH_BUCKETS, key=key_stream
        ),
        valid=valid,
    )
    table_row = partial(
        _row,
        test[0][0],
        splits[2].german.tolist(),
        tokeniser,
        max_length=max_length,
        beam_width=beam_width,
        length_penalty=length_penalty,
    )
    if baseline_epochs:
        net = EncoderDecoder.init(
            len(tokeniser),
            len(tokeniser),
            width,
            baseline_width,
            attention_width=baseline_width,
            key=keys[0],
        )
        table["recurrent network"] = table_row(
            fit_model(net, "recurrent network", epochs=baseline_epochs, key=keys[0])
        )
    net = Translator.init(
        None, len(tokeniser), width, depth=depth, heads=heads, dropout=dropout, key=keys[1]
    )
    result = fit_model(net, "transformer", epochs=epochs, key=keys[1])
    table["transformer"] = table_row(result)
    names = tuple(tokeniser.decode([number]) for number in range(len(tokeniser)))
    return Outcome.of_fit(
        result,
        train=train,
        test=test,
        objective=objective,
        classes=names,
        table=table,
        tokens=names,
    )


def _load_verses() -> data.Verses:
    """Verses whose numbering is the same in both translations."""
    verses = data.load_verses()
    return verses.select(verses.aligned)


def _word_by_word_row(train: data.Verses, test: data.Verses) -> dict[str, float]:
    dictionary = IBMModel1.fit(train.english.tolist(), train.german.tolist())
    translations = [dictionary.translate(text) for text in test.english]
    return {"test BLEU": bleu(translations, test.german.tolist())}


def _fit(
    job: Job,
    net: Any,
    name: str,
    *,
    objective: Objective,
    optimiser: optax.GradientTransformation,
    stream: Any,
    valid: Batch,
    epochs: int,
    key: Any,
) -> FitResult:
    job.note(name)
    return fit(
        descend(objective, optimiser),
        net,
        stream,
        epochs=epochs,
        validation=valid,
        metrics={"loss": blockwise_token_cross_entropy},
        key=jr.fold_in(key, 1),
        run=job.part(name.replace(" ", "-")),
        progress=job.progress,
    )


def _row(
    sources: Any,
    references: Sequence[str],
    tokeniser: data.BytePairEncoding,
    result: FitResult,
    *,
    max_length: int,
    beam_width: int,
    length_penalty: float,
) -> dict[str, float]:
    greedy_texts = translate_texts(result.model, sources, tokeniser, max_length=max_length)
    beam_texts = translate_texts(
        result.model,
        sources,
        tokeniser,
        max_length=max_length,
        beam_width=beam_width,
        length_penalty=length_penalty,
    )
    return {
        "test BLEU": bleu(greedy_texts, references),
        f"test BLEU, beam {beam_width}": bleu(beam_texts, references),
        "valid loss": float(result.history["valid loss"][-1]),
    }

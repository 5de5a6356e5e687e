"""Verses from English into German by an encoder and a decoder that attend (§6.4), beside what came
before them.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Int

from .. import data
from ..core import Batch, Objective
from ..models import EncoderDecoder, Translator, beam_search, greedy
from ..train import Fit, bleu, descend, fit, mixed_precision, per_token
from .engine.job import Job, positive, recipe
from .engine.outcome import Outcome
from .shared.ibm_model_1 import Dictionary
from .shared.transformer_training import decayed_adam, smooth_log_loss, token_loss, warm_root

BEGIN, END = "<begin>", "<end>"  # what a translation begins and ends with; both are pieces
VALID = (
    "Lamentations",
    "Haggai",
    "Philippians",
    "1 John",
)  # books that say little of what others say
TEST = ("Ruth", "Esther", "Ecclesiastes", "Jonah", "Philemon", "James")
LENGTHS = 3  # to which batches are cut
BLOCK = 64  # sources translated at once
LATE = 0.98  # the second moment's memory
LEAST = 256 + 2  # pieces: every byte, and the two marks


def held_out(verses: data.Verses) -> tuple[data.Verses, data.Verses, data.Verses]:
    """Verses to train on, for validation and to test on: no book is in two of them."""
    number = lambda names: [verses.books.index(name) for name in names]
    valid = np.isin(verses.book, number(VALID))
    test = np.isin(verses.book, number(TEST))
    return verses.select(~valid & ~test), verses.select(valid), verses.select(test)


def pairs(verses: data.Verses, known: data.BytePairs, length: int, *, whole: bool = False) -> Batch:
    """`((sources, targets), next)`: what is read, what the decoder reads, and what it is to say
    after each.

    With `whole` only pairs of which both sides are at most so long; otherwise longer ones are cut.
    """
    sources = known.encode(verses.english, length=length + 1)
    answers = known.encode(
        [f"{BEGIN}{text}{END}" for text in verses.german.tolist()], length=length + 2
    )
    if whole:
        fit_in = (sources[:, -1] < 0) & (answers[:, -1] < 0)
        sources = sources[fit_in]
        answers = answers[fit_in]
    read = np.where(answers == known.number(END), -1, answers)
    return (sources[:, :length], read[:, :length]), answers[:, 1 : length + 1]


def said(
    model: Any,
    sources: Any,
    known: data.BytePairs,
    *,
    length: int,
    width: int = 1,
    penalty: float = 0.0,
) -> list[str]:
    """What the model makes of each source, greedily or by a beam of that width."""
    begin = known.number(BEGIN)
    end = known.number(END)

    def answer(model, source):
        cell, state = (
            model.decoder(source, length=length) if _keeps(model) else model.decoder(source)
        )
        if width == 1:
            return greedy(cell, first=begin, length=length, end=end, state=state).tokens
        found = beam_search(
            cell,
            first=begin,
            length=length,
            beam_width=width,
            end=end,
            state=state,
            length_penalty=penalty,
        )
        return found.tokens[0]

    every = jax.jit(lambda model, xs: jax.lax.map(lambda x: answer(model, x), xs, batch_size=BLOCK))
    rows: Int[np.ndarray, "n t"] = np.asarray(every(model, jnp.asarray(sources)))
    return [known.decode(row[row != end]) for row in rows]


def _keeps(model: Any) -> bool:
    """Whether its decoder must be told how much there is to keep."""
    return isinstance(model, Translator)


@recipe
def translate(
    job: Job,
    *,
    pieces: int = 2000,
    width: int = 128,
    depth: int = 2,
    heads: int = 4,
    length: int = 64,
    dropout: float = 0.1,
    smoothing: float = 0.1,
    decay: float = 0.01,
    beam_width: int = 4,
    penalty: float = 1.0,
    rate: float = 2e-3,
    warm: int = 400,
    epochs: int = 14,
    batch: int = 64,
    state: int = 128,
    lessons: int = 4,
    precision: Literal["float32", "bfloat16"] = "float32",
) -> Outcome:
    """Verses of the Bible from English into German by a transformer, beside a recurrent network and
    a dictionary.

    The books of Lamentations, Haggai, Philippians and 1 John are for validation; Ruth, Esther,
    Ecclesiastes, Jonah, Philemon and James are the test. The pieces, for both languages together,
    are learnt from the other books, and so is the dictionary, by EM. What is said is judged by
    BLEU, greedily and by a beam.

    Parameters
    ----------
    pieces
        Size of the vocabulary of byte pairs.
    width
        Numbers that stand for a piece.
    depth
        Layers of the encoder, and of the decoder.
    heads
        Heads of attention in a layer.
    length
        Pieces of a verse, at most; longer ones are not learnt from.
    dropout
        Probability of dropping a number.
    smoothing
        Share of the label that is spread over all pieces.
    decay
        How fast matrices decay, as a share of the learning rate.
    beam_width
        Beginnings that are carried on together in the search for the likeliest translation.
    penalty
        The power of its length by which the likelihood of a translation is divided.
    rate
        Highest learning rate of Adam.
    warm
        Steps that lead up to it; then it falls with the root of their number.
    epochs
        Passes over the training set.
    batch
        Verses in a batch.
    state
        Size of the states of the recurrent network, and of its attention's hidden layer.
    lessons
        Passes of the recurrent network over the training set; 0 to leave it out.
    precision
        In what the networks are computed; weights, norms and losses stay float32.
    """
    positive(
        width=width,
        depth=depth,
        heads=heads,
        length=length,
        beam_width=beam_width,
        rate=rate,
        warm=warm,
        epochs=epochs,
        batch=batch,
        state=state,
    )
    if pieces < LEAST:
        raise ValueError(
            f"pieces: the bytes and two marks are {LEAST} already; got {pieces}. Choose more."
        )
    bleu(["."], ["."])  # tells now, not after hours, if its library is missing
    key_stream, *keys = jr.split(job.key, 3)
    job.say("loading verses, and cutting them into pieces")
    parts = held_out(_verses())
    known = data.BytePairs.fit(
        [*parts[0].english, *parts[0].german], size=pieces, special=(BEGIN, END)
    )
    train, valid, test = (pairs(part, known, length, whole=part is parts[0]) for part in parts)
    job.say("dictionary")
    table = {"dictionary": _word_by_word(parts[0], parts[2])}
    objective = per_token(smooth_log_loss(smoothing))
    learn = partial(
        _learn,
        job,
        objective=mixed_precision(objective) if precision == "bfloat16" else objective,
        optimiser=decayed_adam(warm_root(rate, warm=warm), decay=decay, late=LATE),
        stream=data.by_length(train, batch_size=batch, count=LENGTHS, key=key_stream),
        valid=valid,
    )
    judged = partial(
        _row,
        test[0][0],
        parts[2].german.tolist(),
        known,
        length=length,
        beam_width=beam_width,
        penalty=penalty,
    )
    if lessons:
        net = EncoderDecoder.init(
            len(known), len(known), width, state, attention_width=state, key=keys[0]
        )
        table["recurrent network"] = judged(
            learn(net, "recurrent network", epochs=lessons, key=keys[0])
        )
    net = Translator.init(
        None, len(known), width, depth=depth, heads=heads, dropout=dropout, key=keys[1]
    )
    found = learn(net, "transformer", epochs=epochs, key=keys[1])
    table["transformer"] = judged(found)
    names = tuple(known.decode([number]) for number in range(len(known)))
    return Outcome(
        found.model,
        train,
        test,
        objective,
        found.history,
        names,
        table,
        found.reason,
        found.seconds,
        tokens=names,
    )


def _verses() -> data.Verses:
    """Those that surely say the same."""
    every = data.load_verses()
    return every.select(every.same)


def _word_by_word(train: data.Verses, test: data.Verses) -> dict[str, float]:
    told = Dictionary.fit(train.english.tolist(), train.german.tolist())
    return {
        "test BLEU": bleu([told.translate(text) for text in test.english], test.german.tolist())
    }


def _learn(
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
) -> Fit:
    job.say(name)
    return fit(
        descend(objective, optimiser),
        net,
        stream,
        epochs=epochs,
        validation=valid,
        metrics={"loss": token_loss},
        key=jr.fold_in(key, 1),
        run=job.part(name.replace(" ", "-")),
        progress=job.progress,
    )


def _row(
    sources: Any,
    meant: Sequence[str],
    known: data.BytePairs,
    found: Fit,
    *,
    length: int,
    beam_width: int,
    penalty: float,
) -> dict[str, float]:
    plain = said(found.model, sources, known, length=length)
    searched = said(found.model, sources, known, length=length, width=beam_width, penalty=penalty)
    row = {"test BLEU": bleu(plain, meant), f"by a beam of {beam_width}": bleu(searched, meant)}
    return row | {"valid loss": float(found.history["valid loss"][-1])}

"""Dates as people write them, put into one form by a network that reads one and writes the other
(§5.3).
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from .. import data
from ..core import Batch
from ..models import EncoderDecoder, beam_search, greedy
from ..train import descend, fit, sequence_error_rate, token_cross_entropy
from .engine.job import Job, positive, recipe
from .engine.outcome import Outcome

BEGIN, END = "<", ">"  # what an answer begins and ends with
WRITTEN = 11  # characters of an answer and its end: 2026-11-15>
HELD_OUT = 1000  # dates for validation, and as many to test on
CLIP = 1.0  # the longest gradient


def pairs(
    people: Any, iso: Any, known: data.Characters, told: data.Characters, length: int
) -> Batch:
    """`((sources, targets), next)`: what is read, what the decoder reads, and what it is to say
    after each.
    """
    sources = known.encode(people, length=length)
    answers = told.encode([f"{BEGIN}{day}{END}" for day in iso.tolist()], length=WRITTEN + 1)
    return (sources, answers[:, :-1]), answers[:, 1:]


def exact(model: EncoderDecoder, test: Batch, told: data.Characters, *, width: int = 1) -> float:
    """The share of sources for which all that is said is right: greedily, or by a beam of that
    width.
    """
    begin, end = (told.letters.index(letter) for letter in (BEGIN, END))

    def answer(source):
        cell, state = model.decoder(source)
        if width == 1:
            return greedy(cell, first=begin, length=WRITTEN, end=end, state=state).tokens
        return beam_search(
            cell, first=begin, length=WRITTEN, beam_width=width, end=end, state=state
        ).tokens[0]

    (sources, _), answers = test
    said = jax.jit(jax.vmap(answer))(jnp.asarray(sources))
    return float(np.mean((np.asarray(said) == answers).all(axis=1)))


@recipe
def seq2seq(
    job: Job,
    *,
    examples: int = 10_000,
    width: int = 64,
    vector: int = 32,
    beam_width: int = 4,
    rate: float = 4e-3,
    epochs: int = 8,
    batch: int = 64,
) -> Outcome:
    """Dates in many human forms into ISO 8601, by an encoder and a decoder, with attention and
    without.

    No day of the test is among those learnt from.

    Parameters
    ----------
    examples
        Dates to train on.
    width
        Size of the states, and of the attention's hidden layer.
    vector
        Numbers that stand for a character.
    beam_width
        Beginnings that are carried on together in the search for the likeliest answer.
    rate
        Initial learning rate of Adam; it falls to zero along a cosine.
    epochs
        Passes over the training set.
    batch
        Dates in a batch.
    """
    positive(
        examples=examples, width=width, beam_width=beam_width, rate=rate, epochs=epochs, batch=batch
    )
    key_data, *keys = jr.split(job.key, 3)
    people, iso = data.dates(examples + 2 * HELD_OUT, key=key_data)
    known = data.Characters.fit(people)
    told = data.Characters(f"{BEGIN}{END}-0123456789")
    every = pairs(people, iso, known, told, max(map(len, people.tolist())))
    cut = lambda start, stop: jax.tree.map(lambda a: a[start:stop], every)
    valid = cut(examples, examples + HELD_OUT)
    test = cut(examples + HELD_OUT, None)
    train = cut(0, examples)
    table = {}
    draw = partial(EncoderDecoder.init, len(known), len(told), vector, width)
    schedule = optax.cosine_decay_schedule(rate, max(1, epochs * (examples // batch)))
    for (name, attend), key in zip(
        {"without attention": None, "with attention": width}.items(), keys
    ):
        job.say(name)
        key_init, key_fit = jr.split(key)
        found = fit(
            descend(
                token_cross_entropy,
                optax.chain(optax.clip_by_global_norm(CLIP), optax.adam(schedule)),
            ),
            draw(attention_width=attend, key=key_init),
            train,
            epochs=epochs,
            batch_size=batch,
            validation=valid,
            metrics={"error": sequence_error_rate, "loss": token_cross_entropy},
            key=key_fit,
            run=job.part(name.replace(" ", "-")),
            progress=job.progress,
        )
        right = {
            f"exact by a beam of {beam_width}, %": 100
            * exact(found.model, test, told, width=beam_width)
        }
        table[name] = {"exact, greedily, %": 100 * exact(found.model, test, told)} | right
    return Outcome(
        found.model,
        train,
        test,
        token_cross_entropy,
        found.history,
        tuple(told.letters),
        table,
        found.reason,
        found.seconds,
        tokens=tuple(known.letters),
    )

"""Dates in human formats translated into ISO 8601 by an encoder-decoder (§5.3)."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from ... import data
from ...core import Batch
from ...models import EncoderDecoder, beam_search, greedy
from ...train import descend, fit, sequence_error_rate, token_cross_entropy
from ..engine.job import Job, check_positive, recipe
from ..engine.outcome import Outcome

BEGIN, END = "<", ">"  # of an answer
ANSWER_LENGTH = 11  # characters with the end token: 2026-11-15>
N_HELD_OUT = 1000  # validation dates, and as many test dates
MAX_GRADIENT_NORM = 1.0


def encode_pairs(
    dates: Any, iso: Any, source: data.Characters, target: data.Characters, max_length: int
) -> Batch:
    """`((sources, inputs), targets)`: source tokens, and the decoder's inputs and targets."""
    sources = source.encode(dates, length=max_length)
    answers = target.encode(
        [f"{BEGIN}{day}{END}" for day in iso.tolist()], length=ANSWER_LENGTH + 1
    )
    return (sources, answers[:, :-1]), answers[:, 1:]


def exact_match(
    model: EncoderDecoder, test: Batch, target: data.Characters, *, beam_width: int = 1
) -> float:
    """Exact-match accuracy of greedy decoding, or of beam search for a `beam_width` above 1."""
    begin, end = (target.letters.index(letter) for letter in (BEGIN, END))

    def answer(source):
        cell, state = model.decoder(source)
        if beam_width == 1:
            return greedy(
                cell, start_token=begin, max_new_tokens=ANSWER_LENGTH, end_token=end, state=state
            ).tokens
        return beam_search(
            cell,
            start_token=begin,
            max_new_tokens=ANSWER_LENGTH,
            beam_width=beam_width,
            end_token=end,
            state=state,
        ).tokens[0]

    (sources, _), answers = test
    predictions = jax.jit(jax.vmap(answer))(jnp.asarray(sources))
    return float(np.mean((np.asarray(predictions) == answers).all(axis=1)))


@recipe
def seq2seq(
    job: Job,
    *,
    n_train: int = 10_000,
    width: int = 64,
    embedding_dim: int = 32,
    beam_width: int = 4,
    learning_rate: float = 4e-3,
    epochs: int = 8,
    batch_size: int = 64,
) -> Outcome:
    """Translation of dates into ISO 8601 by an encoder-decoder, with and without attention.

    No day of the test set occurs in the training set.

    Parameters
    ----------
    width
        Hidden state size of encoder and decoder, and width of the attention's hidden layer.
    embedding_dim
        Embedding dimension of a character.
    """
    check_positive(
        n_train=n_train,
        width=width,
        beam_width=beam_width,
        learning_rate=learning_rate,
        epochs=epochs,
        batch_size=batch_size,
    )
    key_data, *keys = jr.split(job.key, 3)
    dates, iso = data.date_pairs(n_train + 2 * N_HELD_OUT, key=key_data)
    source = data.Characters.fit(dates)
    target = data.Characters(f"{BEGIN}{END}-0123456789")
    pairs = encode_pairs(dates, iso, source, target, max(map(len, dates.tolist())))
    cut = lambda start, stop: jax.tree.map(lambda a: a[start:stop], pairs)
    valid = cut(n_train, n_train + N_HELD_OUT)
    test = cut(n_train + N_HELD_OUT, None)
    train = cut(0, n_train)
    table = {}
    init = partial(EncoderDecoder.init, len(source), len(target), embedding_dim, width)
    schedule = optax.cosine_decay_schedule(learning_rate, max(1, epochs * (n_train // batch_size)))
    for (name, attention_width), key in zip(
        {"without attention": None, "with attention": width}.items(), keys
    ):
        job.note(name)
        key_init, key_fit = jr.split(key)
        result = fit(
            descend(
                token_cross_entropy,
                optax.chain(optax.clip_by_global_norm(MAX_GRADIENT_NORM), optax.adam(schedule)),
            ),
            init(attention_width=attention_width, key=key_init),
            train,
            epochs=epochs,
            batch_size=batch_size,
            validation=valid,
            metrics={"error": sequence_error_rate, "loss": token_cross_entropy},
            key=key_fit,
            run=job.part(name.replace(" ", "-")),
            progress=job.progress,
        )
        greedy_accuracy = exact_match(result.model, test, target)
        beam_accuracy = exact_match(result.model, test, target, beam_width=beam_width)
        table[name] = {
            "exact match, greedy %": 100 * greedy_accuracy,
            f"exact match, beam {beam_width} %": 100 * beam_accuracy,
        }
    return Outcome.of_fit(
        result,
        train=train,
        test=test,
        objective=token_cross_entropy,
        classes=tuple(target.letters),
        table=table,
        tokens=tuple(source.letters),
    )

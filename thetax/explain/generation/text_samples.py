r"""Text sampled from a language model, and its surprisal on given texts (§5.3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ...check import expect_count
from ...core import Batch
from ...layers import unroll
from ...models import GPT, sample

MAX_BATCH_SIZE = 16  # texts whose logits are in memory at once


@dataclass(frozen=True)
class TextSamples:
    r"""Sampled texts, and the surprisal $-\log_2 p(y_t)$ of given texts by position, averaged over
    ranges of positions.

    The ranges double in length; `positions` has the last position of each range.
    """

    texts: tuple[str, ...]
    temperature: float
    positions: Float[np.ndarray, " k"]
    bits: Float[np.ndarray, " k"]
    top_p: float | None = None


def text_samples(
    model: Any,
    data: Batch,
    vocab: Sequence[str],
    *,
    n_texts: int = 3,
    max_new_tokens: int = 300,
    temperature: float = 0.7,
    top_p: float | None = None,
    start_token: int = 0,
    key: PRNGKeyArray,
) -> TextSamples:
    r"""Samples `n_texts` texts from a language model, with temperature and top-p (nucleus)
    filtering, and measures its surprisal in bits on `data`.

    `model` is a `GPT` or a recurrent cell with token inputs and logit outputs. `data` is a pair of
    token arrays of shape `(n, t)`: inputs and targets, -1 for no target. `vocab` are the token
    strings.

    >>> from thetax.models import NGram
    >>> cell = NGram.fit([0, 1, 2, 0, 1, 2, 0], vocab_size=3, order=1, discount=0.0)
    >>> data = jnp.array([[0, 1, 2, 0]]), jnp.array([[1, 2, 0, 1]])
    >>> result = text_samples(cell, data, "abc", n_texts=2, max_new_tokens=5, key=jr.key(0))
    >>> result.texts, result.bits.tolist(), result.positions.tolist()
    (('bcabc', 'bcabc'), [0.0, 0.0, 0.0], [1.0, 2.0, 4.0])
    """
    expect_count("text_samples", n_texts=n_texts)
    if isinstance(model, GPT):
        cell, state = model.decoder(max_length=max_new_tokens)
    else:
        cell, state = model, None
    draw = partial(
        sample,
        start_token=start_token,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_p=top_p,
    )
    keys = jr.split(key, n_texts)
    tokens = np.asarray(
        jax.jit(jax.vmap(lambda key: draw(cell, state=state, key=key).tokens))(keys)
    )
    if tokens.max() >= len(vocab):
        raise ValueError(
            f"text_samples: the model generates tokens up to {tokens.max()}, but vocab has only "
            f"{len(vocab)} strings. Give a string for every token."
        )
    texts = tuple(
        "".join([str(vocab[token]) for token in row if token >= 0]) for row in tokens.tolist()
    )
    losses, has_target = (
        np.asarray(part, np.float64) for part in _surprisal(model, *map(jnp.asarray, data))
    )
    ends = np.unique([*(2 ** np.arange(int(np.log2(losses.shape[1])) + 1)), losses.shape[1]])
    sum_ranges = lambda a: np.diff(np.concatenate([[0.0], np.cumsum(a.sum(axis=0))])[[0, *ends]])
    bits = sum_ranges(losses) / np.maximum(sum_ranges(has_target), 1)
    return TextSamples(texts, temperature, ends.astype(float), bits, top_p)


@jax.jit
def _surprisal(model: Any, xs: Any, ys: Any) -> Any:
    r"""$-\log_2 p$ of every target, 0 for no target; and which positions have a target."""

    def one(text):
        x, y = text
        logits = model(x) if isinstance(model, GPT) else unroll(model, x, mask=x >= 0)[1]
        log_p = jax.nn.log_softmax(logits)
        log_p = jnp.take_along_axis(log_p, jnp.maximum(y, 0)[:, None], axis=1)[:, 0]
        return jnp.where(y >= 0, -log_p / jnp.log(2.0), 0)

    return jax.lax.map(one, (xs, ys), batch_size=MAX_BATCH_SIZE), ys >= 0

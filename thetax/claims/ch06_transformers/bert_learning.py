"""Small encoders that train in seconds, shared by all experiments with BERT."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy import stats

from ... import data, train
from ...core import run
from ...layers import glorot
from ...models import BERT

CLS, SEP, MASK = 2, 3, 4
SPECIAL = tuple(range(5))  # the special tokens; words come after them
GAPS: Any = {"mask_id": MASK, "special_ids": SPECIAL}


def encoder(words: int, d: int = 32, *, length: int, depth: int = 1, key: Any) -> BERT:
    """A BERT encoder for `words` words and the special tokens: two heads, double precision, and an
    initialisation that trains fast.
    """
    draw = partial(BERT.init, initialiser=glorot, eps=1e-5, heads=2, hidden=2 * d)
    return draw(words + len(SPECIAL), d, depth=depth, max_length=length, key=key)


def train_by_adam(
    objective: Any, net: Any, batches: Any, *, learning_rate: float, key: Any
) -> tuple[Any, Any]:
    """The model after a step of Adam on each batch, with warm-up and cosine decay of the learning
    rate; and the losses.
    """
    steps = len(jax.tree.leaves(batches)[0])
    adam = optax.adam(optax.warmup_cosine_decay_schedule(0.0, learning_rate, steps // 10, steps))
    descent = train.descend(objective, optax.chain(optax.clip_by_global_norm(1.0), adam))
    state, (_, info) = run(descent, net, batches, key=key)
    return state.model, info.loss


def encode_sentences(
    first: Any, second: Any = None, *, length: int
) -> tuple[np.ndarray, np.ndarray]:
    """Sentences, or pairs of them, in the input format of BERT: tokens and segments."""
    seconds = [None] * len(first) if second is None else second
    rows = [
        data.pack_sentences(a, b, cls_id=CLS, sep_id=SEP, length=length)
        for a, b in zip(first, seconds)
    ]
    return np.stack([row.tokens for row in rows]), np.stack([row.segments for row in rows])


def random_batches(batch: Any, rng: np.random.Generator, *, steps: int, size: int = 64) -> Any:
    """`steps` batches, drawn from the examples with replacement."""
    rows = rng.integers(len(jax.tree.leaves(batch)[0]), size=(steps, size))
    return jax.tree.map(lambda a: jnp.asarray(a)[rows], batch)


def mean_losses(losses: Any, parts: int = 50) -> tuple[np.ndarray, np.ndarray]:
    """Losses for a figure: means over successive steps, at the middle of each part."""
    each = np.array_split(np.asarray(losses, np.float64), parts)
    ends = np.cumsum([len(part) for part in each])
    return ends - len(each[0]) / 2, np.array([part.mean() for part in each])


def binomial_p_value(hits: Any, count: int, probability: float) -> float:
    """The p-value of a one-sided binomial test: as many hits or more at this probability."""
    return float(stats.binom.sf(round(hits) - 1, count, probability))

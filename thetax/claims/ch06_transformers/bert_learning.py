"""Small encoders that learn in seconds: what all experiments with BERT have in common."""

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
SPECIAL = tuple(range(5))  # the marks; words come after them
GAPS: Any = {"mask": MASK, "special": SPECIAL}


def encoder(words: int, d: int = 32, *, length: int, depth: int = 1, key: Any) -> BERT:
    """For so many words and the marks, two heads, in double precision; weights of a size that
    learns fast.
    """
    draw = partial(BERT.init, initialiser=glorot, epsilon=1e-5, heads=2, hidden=2 * d)
    return draw(words + len(SPECIAL), d, depth=depth, max_length=length, key=key)


def learned(objective: Any, net: Any, batches: Any, *, rate: float, key: Any) -> tuple[Any, Any]:
    """The model after a step of Adam on each batch, its rate rising, then falling as a cosine; and
    the losses.
    """
    steps = len(jax.tree.leaves(batches)[0])
    adam = optax.adam(optax.warmup_cosine_decay_schedule(0.0, rate, steps // 10, steps))
    descent = train.descend(objective, optax.chain(optax.clip_by_global_norm(1.0), adam))
    state, (_, info) = run(descent, net, batches, key=key)
    return state.model, info.loss


def joined(first: Any, second: Any = None, *, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of sentences, or of pairs of them, as BERT reads them: tokens and segments."""
    seconds = [None] * len(first) if second is None else second
    rows = [
        data.join_sentences(a, b, cls=CLS, sep=SEP, length=length) for a, b in zip(first, seconds)
    ]
    return np.stack([row.tokens for row in rows]), np.stack([row.segments for row in rows])


def some(batch: Any, rng: np.random.Generator, *, steps: int, size: int = 64) -> Any:
    """So many batches, drawn from examples with repetition."""
    rows = rng.integers(len(jax.tree.leaves(batch)[0]), size=(steps, size))
    return jax.tree.map(lambda a: jnp.asarray(a)[rows], batch)


def by_step(losses: Any, parts: int = 50) -> tuple[np.ndarray, np.ndarray]:
    """Losses for a figure: means of steps in a row, at the middle of each part."""
    each = np.array_split(np.asarray(losses, np.float64), parts)
    ends = np.cumsum([len(part) for part in each])
    return ends - len(each[0]) / 2, np.array([part.mean() for part in each])


def by_luck(hits: Any, count: int, probability: float) -> float:
    """The chance of as many hits or more, were none likelier than this."""
    return float(stats.binom.sf(round(hits) - 1, count, probability))

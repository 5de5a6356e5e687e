r"""Many small networks trained side by side: candidates × folds × restarts of one shape are the
lanes of one program.

An epoch is one compiled program, mapped over the lanes. Each lane has weights, a rate, a decay, a
probability of dropout, a smoothing of labels, a number of epochs and rows of its own of the data,
which all share; after every epoch each is judged on the rows it does not train on. The rate falls
to zero along a cosine, $\eta_t = \frac{\eta}{2} (1 + \cos \pi \min(1, t / T))$, so that a lane that
has had its $T$ steps stands still.
"""

import os
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ...core import BATCH, Batch, Iteration, Model, Objective, Scalar
from ...layers import Dropout, mixture, tap
from ...layers.dropout import hashed, thin
from ..objectives.loss import cross_entropy, error_rate
from ..objectives.regularise import smooth_labels, weight_decay
from ..optimisers.descend import descend
from .cross_validation import Fold
from .search_space import Setting


class Knobs(NamedTuple):
    """What a lane has for itself within a compiled program."""

    learning_rate: Any
    weight_decay: Any
    dropout: Any
    label_smoothing: Any
    steps: Any


def with_dropout(objective: Objective, probability: Scalar) -> Objective:
    r"""The objective with every `Dropout` of the model at this probability, which may be traced.

    A layer's own probability is part of the program; this one is an argument, so that one program
    serves all. The law is that of `Dropout`: a unit stays with probability $1 - p$ and is then
    divided by it.

    >>> from thetax.core import predict
    >>> from thetax.layers import Chain
    >>> total = with_dropout(
    ...     lambda model, xs, key=None: predict(model, xs, key=key).sum(), jnp.array(0.5)
    ... )
    >>> total(Chain(Dropout(0.1)), jnp.ones((4, 3))).item()
    12.0
    >>> total(Chain(Dropout(0.1)), jnp.ones((4, 3)), key=jr.key(0)).item() % 2
    0.0
    """

    def dropped(model: Model, batch: Batch, *, key: PRNGKeyArray | None = None) -> Scalar:
        if key is None:
            return objective(model, batch)

        def visit(name: str, layer: Any, call: Callable[..., Any], x: Array) -> Array:
            return thin(
                x, _coins(key, zlib.crc32(name.encode()), x.shape, 1 - probability), p=probability
            )

        return objective(
            tap(model, select=lambda node: isinstance(node, Dropout), visit=visit), batch, key=key
        )

    return dropped


def _coins(
    key: PRNGKeyArray, layer: int, shape: tuple[int, ...], probability: Scalar
) -> Bool[Array, "*s"]:
    """As the coins of `Dropout`, but the place of an example in its batch is hashed instead of a
    key for each.
    """
    place = jax.lax.axis_index(BATCH).astype(jnp.uint32) * jnp.uint32(0xC2B2AE3D)
    words = hashed(shape, jnp.uint32(layer), place, *jr.key_data(key).ravel())
    return (words >> 8).astype(jnp.float32) < probability * 2**24


def lane(objective: Objective, knobs: Knobs, classes: int) -> Iteration:
    """The iteration of one lane: Adam, the rate falling along a cosine, on the decayed and thinned
    objective.

    Labels are smoothed over the classes, if there are any.
    """
    objective = (
        smooth_labels(objective, classes, strength=knobs.label_smoothing) if classes else objective
    )
    cosine = lambda count: (
        knobs.learning_rate / 2 * (1 + jnp.cos(jnp.pi * jnp.minimum(1.0, count / knobs.steps)))
    )
    return descend(
        weight_decay(with_dropout(objective, knobs.dropout), strength=knobs.weight_decay),
        optax.adam(cosine),
    )


def _epoch(objective, metric, classes, state, knobs, data, rows, valid, weight, keys, numbers):
    """One epoch of every lane: the states, the mean training losses, and the errors on what was
    held out.
    """

    def one(state, knobs, rows, valid, weight, key, number):
        def step(state, item):
            index, taken = item
            batch = jax.tree.map(lambda a: a[taken], data)
            state, info = lane(objective, knobs, classes).step(
                state, batch, key=jr.fold_in(key, index)
            )
            return state, info.loss

        key = jr.fold_in(key, number)
        state, losses = jax.lax.scan(step, state, (jnp.arange(len(rows)), rows))
        each = jax.vmap(lambda at: metric(state.model, jax.tree.map(lambda a: a[at][None], data)))(
            valid
        )
        return state, losses.mean(), jnp.vdot(each, weight) / weight.sum()

    return jax.vmap(one)(state, knobs, rows, valid, weight, keys, numbers)


def _begin(make, hidden, dropout, keys):
    nothing = descend(
        lambda *_, **__: jnp.zeros(()), optax.adam(lambda count: 0.0)
    )  # only its memory is wanted
    return jax.vmap(lambda key: nothing.init(make(hidden, dropout=dropout, key=key)))(keys)


@cache
def _compiled(function: Callable[..., Any], *fixed: str) -> Callable[..., Any]:
    """On a CPU the compiler takes half as long, for code of the same speed, when it is asked for
    less.

    The networks are too small for several threads: it is programs that run side by side.
    """
    less = {"xla_backend_optimization_level": 1, "xla_cpu_multi_thread_eigen": False}
    options = less if jax.default_backend() == "cpu" else None
    return jax.jit(function, static_argnames=fixed, compiler_options=options)


@dataclass(frozen=True)
class Task:
    """What can be tuned: data, how a network is made, what is descended, and by what it is judged.

    `make(hidden, dropout=p, key=key)` draws a network with these hidden widths. `train` and `test`
    are pairs `(xs, ys)`; the test part is looked at once, at the end. `pool` averages the
    predictions of restarts.
    """

    train: Batch
    make: Callable[..., Model]
    objective: Objective = cross_entropy
    metric: Objective = error_rate
    test: Batch | None = None
    classes: tuple[str, ...] = ()
    pool: Callable[..., Any] = mixture
    name: str = ""


@dataclass
class Candidate:
    """A setting in training: the states of its lanes, and what they read after each epoch."""

    setting: Setting
    state: Any
    losses: list[Float[np.ndarray, " lanes"]] = field(default_factory=list)
    errors: list[Float[np.ndarray, " lanes"]] = field(default_factory=list)

    @property
    def epoch(self) -> int:
        """How many it has had."""
        return len(self.errors)


@dataclass(frozen=True, eq=False)
class Lanes:
    """Trains candidates of equal shape: `slots` of them at once, each on every fold and from every
    start.

    All chance is that of the key and the same for every candidate, so that two differ by their
    settings alone, and the errors of one do not depend on its company. Networks have dropout layers
    only where `thinned`, and labels are smoothed only over `classes`.
    """

    task: Task
    parts: Sequence[Fold]
    key: PRNGKeyArray
    restarts: int = 1
    slots: int = 2
    thinned: bool = True
    classes: int = 0
    examples: int | None = None  # in an epoch; by default those of the smallest training part

    @property
    def width(self) -> int:
        """The lanes of one candidate: folds × restarts."""
        return len(self.parts) * self.restarts

    def begin(self, setting: Setting, start: int = 0) -> Candidate:
        """A candidate at its start, or at another one."""
        return Candidate(setting, self._start(setting.hidden, start))

    @cached_property
    def _start(self) -> Callable[[tuple[int, ...], int], Any]:
        return lru_cache(maxsize=4)(self._draw_start)

    def _draw_start(self, hidden: tuple[int, ...], start: int) -> Any:
        key = jr.fold_in(jr.fold_in(self.key, 0), start)
        program = _compiled(_begin, "make", "hidden", "dropout")
        return program(self.task.make, hidden, 0.5 * self.thinned, jr.split(key, self.width))

    def advance(self, candidates: Sequence[Candidate], until: Callable[[Setting], int]) -> None:
        """Trains each at least to the epoch `until(setting)`; those that have as far to go are put
        together.
        """
        left = lambda c: until(c.setting) - c.epoch
        waiting = sorted((c for c in candidates if left(c) > 0), key=left)
        for first in range(0, len(waiting), self.slots):
            group = waiting[first : first + self.slots]
            self._run(group, max(map(left, group)))

    def _run(self, group: list[Candidate], epochs: int) -> None:
        filled = [
            *group,
            *group[-1:] * (self.slots - len(group)),
        ]  # one number of lanes, one program
        state = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *(c.state for c in filled))
        knobs = jax.tree.map(
            lambda *one: np.repeat(np.array(one, np.float32), self.width),
            *(self._knobs(c) for c in filled),
        )
        program = _compiled(_epoch, "objective", "metric", "classes")
        batch = group[0].setting.batch_size
        read = []
        for ahead in range(epochs):
            numbers = [c.epoch + ahead for c in filled]
            rows = np.concatenate([self._rows(number, batch) for number in numbers])
            given = self._data, rows, *self._held, self._keys, np.repeat(numbers, self.width)
            state, *seen = program(
                self.task.objective, self.task.metric, self.classes, state, knobs, *given
            )
            read.append(seen)
        losses, errors = (np.stack([np.asarray(seen[i]) for seen in read]) for i in (0, 1))
        for place, c in enumerate(group):
            own = slice(place * self.width, (place + 1) * self.width)
            had = c.setting.epochs - c.epoch
            c.state = jax.tree.map(lambda leaf: leaf[own], state)  # noqa: B023
            c.losses += list(losses[:had, own])
            c.errors += list(errors[:had, own])

    def _knobs(self, c: Candidate) -> Knobs:
        s = c.setting
        return Knobs(
            s.learning_rate,
            s.weight_decay,
            s.dropout,
            s.label_smoothing,
            s.epochs * self.steps(s.batch_size),
        )

    def steps(self, batch_size: int) -> int:
        """Of an epoch: as many batches as its examples fill."""
        return (self.examples or min(len(part.train) for part in self.parts)) // batch_size

    @cached_property
    def _rows(self) -> Callable[[int, int], Int[np.ndarray, "lanes steps batch"]]:
        return lru_cache(maxsize=32)(self._draw_rows)

    def _draw_rows(self, epoch: int, batch_size: int) -> Int[np.ndarray, "lanes steps batch"]:
        """The batches of an epoch for the lanes of a candidate; the restarts of a fold see the
        same.
        """
        steps = self.steps(batch_size)
        words = np.asarray(jr.key_data(self.key)).ravel().tolist()
        draw = np.random.Generator(np.random.Philox(seed=[*words, epoch]))
        orders = [draw.permutation(part.train)[: steps * batch_size] for part in self.parts]
        return (
            np.repeat(np.stack(orders), self.restarts, axis=0)
            .reshape(-1, steps, batch_size)
            .astype(np.int32)
        )

    @cached_property
    def _data(self) -> Batch:
        return jax.tree.map(jnp.asarray, self.task.train)

    @cached_property
    def _keys(self) -> Any:
        return jnp.tile(jr.split(jr.fold_in(self.key, 1), self.width), self.slots)

    @cached_property
    def _held(self) -> tuple[Array, Array]:
        """The rows held out in each lane, brought to one length, and weights that are 0 for what
        was added.
        """
        longest = max(len(part.valid) for part in self.parts)
        rows = np.stack([np.pad(part.valid, (0, longest - len(part.valid))) for part in self.parts])
        weight = np.stack([np.arange(longest) < len(part.valid) for part in self.parts])
        whole = lambda a: jnp.asarray(np.tile(np.repeat(a, self.restarts, axis=0), (self.slots, 1)))
        return whole(rows.astype(np.int32)), whole(weight.astype(np.float32))

    def train_on_everything(
        self, setting: Setting, *, members: int, key: PRNGKeyArray
    ) -> Candidate:
        """Networks trained on all examples, by the programs of the folds: their epochs are as
        short, so there are more.

        What is held out serves only to give the programs the shapes they have.
        """
        n = len(jax.tree.leaves(self.task.train)[0])
        examples = self.steps(1)
        many = replace(
            self,
            parts=[Fold(np.arange(n), part.valid) for part in self.parts],
            key=key,
            examples=examples,
        )
        longer = setting._replace(epochs=round(setting.epochs * n / examples))
        found = [many.begin(longer, start) for start in range(-(-members // self.width))]
        if jax.default_backend() == "cpu":
            with ThreadPoolExecutor(os.cpu_count()) as threads:
                list(threads.map(lambda c: many.advance([c], lambda s: s.epochs), found))
        else:
            many.advance(found, lambda s: s.epochs)
        state = jax.tree.map(
            lambda *leaves: jnp.concatenate(leaves)[:members], *(c.state for c in found)
        )
        losses = list(np.concatenate([c.losses for c in found], axis=1)[:, :members])
        return Candidate(setting, state, losses)

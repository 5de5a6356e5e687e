r"""Parallel training of many small networks of one shape: candidates × folds × restarts, under one
`vmap`.

Each network is a *lane* of a compiled program that runs one epoch. The lanes share the data; each
has its own weights, learning rate, weight decay, dropout probability, label smoothing, number of
epochs and rows of the data, and is evaluated after every epoch on the rows it does not train on.
The learning rate falls to zero along a cosine,
$\eta_t = \frac{\eta}{2} (1 + \cos \pi \min(1, t / T))$, so a lane no longer changes after its $T$
steps.
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

from ...core import BATCH_AXIS, Batch, Iteration, Model, Objective, Scalar
from ...layers import Dropout, mean_probabilities, tap
from ...layers.dropout import apply_mask, hash_uint32
from ..objectives.loss import cross_entropy, error_rate
from ..objectives.regularise import smooth_labels, weight_decay
from ..optimisers.descend import descend
from .cross_validation import Fold
from .search_space import Setting


class LaneHyperparameters(NamedTuple):
    """Hyper-parameters that are arguments of the compiled program, so each lane has its own."""

    learning_rate: Any
    weight_decay: Any
    dropout: Any
    label_smoothing: Any
    steps: Any


def with_dropout(objective: Objective, probability: Scalar) -> Objective:
    r"""The objective with the probability of every `Dropout` layer of the model replaced.

    The probability may be a traced value: that of a `Dropout` layer is a constant of the compiled
    program, this one an argument, so one program serves all lanes. As in `Dropout`, a unit is kept
    with probability $1 - p$ and then divided by it.

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
            return apply_mask(
                x,
                _keep_mask(key, zlib.crc32(name.encode()), x.shape, 1 - probability),
                p=probability,
            )

        return objective(
            tap(model, select=lambda node: isinstance(node, Dropout), visit=visit), batch, key=key
        )

    return dropped


def _keep_mask(
    key: PRNGKeyArray, layer: int, shape: tuple[int, ...], probability: Scalar
) -> Bool[Array, "*s"]:
    """A dropout mask: True with the given probability.

    As in `Dropout`, but from a hash of the key and the index of the example in its batch, without a
    key for each example.
    """
    index = jax.lax.axis_index(BATCH_AXIS).astype(jnp.uint32) * jnp.uint32(0xC2B2AE3D)
    words = hash_uint32(shape, jnp.uint32(layer), index, *jr.key_data(key).ravel())
    return (words >> 8).astype(jnp.float32) < probability * 2**24


def lane_iteration(
    objective: Objective, hyperparameters: LaneHyperparameters, classes: int
) -> Iteration:
    """The iteration of one lane: Adam with a cosine schedule, weight decay and dropout.

    Labels are smoothed over `classes` classes; with `classes=0` they are not smoothed.
    """
    objective = (
        smooth_labels(objective, classes, strength=hyperparameters.label_smoothing)
        if classes
        else objective
    )
    cosine = lambda count: (
        hyperparameters.learning_rate
        / 2
        * (1 + jnp.cos(jnp.pi * jnp.minimum(1.0, count / hyperparameters.steps)))
    )
    return descend(
        weight_decay(
            with_dropout(objective, hyperparameters.dropout), strength=hyperparameters.weight_decay
        ),
        optax.adam(cosine),
    )


def _epoch(
    objective, metric, classes, state, hyperparameters, data, rows, valid, weight, keys, numbers
):
    """One epoch of every lane: the new states, mean training losses and validation errors."""

    def run_lane(state, hyperparameters, rows, valid, weight, key, number):
        def step(state, item):
            index, batch_rows = item
            batch = jax.tree.map(lambda a: a[batch_rows], data)
            state, info = lane_iteration(objective, hyperparameters, classes).step(
                state, batch, key=jr.fold_in(key, index)
            )
            return state, info.loss

        key = jr.fold_in(key, number)
        state, losses = jax.lax.scan(step, state, (jnp.arange(len(rows)), rows))
        error_of = lambda row: metric(state.model, jax.tree.map(lambda a: a[row][None], data))
        errors = jax.vmap(error_of)(valid)
        return state, losses.mean(), jnp.vdot(errors, weight) / weight.sum()

    return jax.vmap(run_lane)(state, hyperparameters, rows, valid, weight, keys, numbers)


def _init_states(make, hidden, dropout, keys):
    # The objective and the learning rate do not matter: only Adam's initial state is used.
    placeholder = descend(lambda *_, **__: jnp.zeros(()), optax.adam(lambda count: 0.0))
    return jax.vmap(lambda key: placeholder.init(make(hidden, dropout=dropout, key=key)))(keys)


@cache
def _compiled(function: Callable[..., Any], *fixed: str) -> Callable[..., Any]:
    """`jax.jit` with fewer optimisations on a CPU: half the compile time, the same
    speed.

    The networks are too small to benefit from multi-threaded matrix products; several single-thread
    programs run in parallel instead.
    """
    cpu_options = {"xla_backend_optimization_level": 1, "xla_cpu_multi_thread_eigen": False}
    options = cpu_options if jax.default_backend() == "cpu" else None
    return jax.jit(function, static_argnames=fixed, compiler_options=options)


@dataclass(frozen=True)
class TuningTask:
    """What to tune: data, a model constructor, the training objective and the validation metric.

    `make(hidden, dropout=p, key=key)` initialises a network with these hidden widths. `train` and
    `test` are pairs `(xs, ys)`; the test set is used once, at the end. `pool` combines the
    predictions of the ensemble's members.
    """

    train: Batch
    make: Callable[..., Model]
    objective: Objective = cross_entropy
    metric: Objective = error_rate
    test: Batch | None = None
    classes: tuple[str, ...] = ()
    pool: Callable[..., Any] = mean_probabilities
    name: str = ""


@dataclass
class Candidate:
    """A setting in training: the states of its lanes, with losses and errors after each epoch."""

    setting: Setting
    state: Any
    losses: list[Float[np.ndarray, " lanes"]] = field(default_factory=list)
    errors: list[Float[np.ndarray, " lanes"]] = field(default_factory=list)

    @property
    def epoch(self) -> int:
        """The number of epochs trained so far."""
        return len(self.errors)


@dataclass(frozen=True, eq=False)
class ParallelTrainer:
    """Trains candidates of equal shape, `slots` of them at once, each on every fold and restart.

    All randomness comes from the key and is the same for every candidate, so two candidates differ
    by their settings alone and the errors of one do not depend on the others trained with it.
    Networks have dropout layers only with `use_dropout`, and labels are smoothed only with
    `classes` > 0.
    """

    task: TuningTask
    folds: Sequence[Fold]
    key: PRNGKeyArray
    restarts: int = 1
    slots: int = 2
    use_dropout: bool = True
    classes: int = 0
    examples: int | None = None  # per epoch; by default the size of the smallest training part

    @property
    def n_lanes(self) -> int:
        """The number of lanes of one candidate: folds × restarts."""
        return len(self.folds) * self.restarts

    def init_candidate(self, setting: Setting, start: int = 0) -> Candidate:
        """An untrained candidate; another `start` gives other initial weights."""
        return Candidate(setting, self._initial_state(setting.hidden, start))

    @cached_property
    def _initial_state(self) -> Callable[[tuple[int, ...], int], Any]:
        return lru_cache(maxsize=4)(self._draw_initial_state)

    def _draw_initial_state(self, hidden: tuple[int, ...], start: int) -> Any:
        key = jr.fold_in(jr.fold_in(self.key, 0), start)
        program = _compiled(_init_states, "make", "hidden", "dropout")
        return program(self.task.make, hidden, 0.5 * self.use_dropout, jr.split(key, self.n_lanes))

    def train_until(self, candidates: Sequence[Candidate], epoch: Callable[[Setting], int]) -> None:
        """Trains each candidate at least until `epoch(setting)`.

        Candidates with the same number of epochs to go are grouped together.
        """
        remaining = lambda c: epoch(c.setting) - c.epoch
        waiting = sorted((c for c in candidates if remaining(c) > 0), key=remaining)
        for first in range(0, len(waiting), self.slots):
            group = waiting[first : first + self.slots]
            self._train_group(group, max(map(remaining, group)))

    def _train_group(self, group: list[Candidate], epochs: int) -> None:
        # Pad the group to `slots` candidates: one number of lanes means one compiled program.
        padded = [*group, *group[-1:] * (self.slots - len(group))]
        state = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *(c.state for c in padded))
        hyperparameters = jax.tree.map(
            lambda *values: np.repeat(np.array(values, np.float32), self.n_lanes),
            *(self._hyperparameters(c) for c in padded),
        )
        program = _compiled(_epoch, "objective", "metric", "classes")
        batch_size = group[0].setting.batch_size
        results = []
        for offset in range(epochs):
            epoch_numbers = [c.epoch + offset for c in padded]
            rows = np.concatenate([self._rows(number, batch_size) for number in epoch_numbers])
            state, *loss_and_error = program(
                self.task.objective,
                self.task.metric,
                self.classes,
                state,
                hyperparameters,
                self._data,
                rows,
                *self._validation_rows,
                self._keys,
                np.repeat(epoch_numbers, self.n_lanes),
            )
            results.append(loss_and_error)
        losses, errors = (np.stack([np.asarray(result[i]) for result in results]) for i in (0, 1))
        for i, c in enumerate(group):
            own = slice(i * self.n_lanes, (i + 1) * self.n_lanes)
            remaining = c.setting.epochs - c.epoch  # epochs beyond these changed nothing
            c.state = jax.tree.map(lambda leaf: leaf[own], state)  # noqa: B023
            c.losses += list(losses[:remaining, own])
            c.errors += list(errors[:remaining, own])

    def _hyperparameters(self, c: Candidate) -> LaneHyperparameters:
        s = c.setting
        return LaneHyperparameters(
            s.learning_rate,
            s.weight_decay,
            s.dropout,
            s.label_smoothing,
            s.epochs * self.steps(s.batch_size),
        )

    def steps(self, batch_size: int) -> int:
        """Steps per epoch: the number of full batches."""
        return (self.examples or min(len(fold.train) for fold in self.folds)) // batch_size

    @cached_property
    def _rows(self) -> Callable[[int, int], Int[np.ndarray, "lanes steps batch"]]:
        return lru_cache(maxsize=32)(self._draw_rows)

    def _draw_rows(self, epoch: int, batch_size: int) -> Int[np.ndarray, "lanes steps batch"]:
        """The batches of an epoch for the lanes of a candidate, the same for all restarts of a
        fold.
        """
        steps = self.steps(batch_size)
        words = np.asarray(jr.key_data(self.key)).ravel().tolist()
        rng = np.random.Generator(np.random.Philox(seed=[*words, epoch]))
        orders = [rng.permutation(fold.train)[: steps * batch_size] for fold in self.folds]
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
        return jnp.tile(jr.split(jr.fold_in(self.key, 1), self.n_lanes), self.slots)

    @cached_property
    def _validation_rows(self) -> tuple[Array, Array]:
        """The validation rows of each lane, padded to one length, and weights: 0 for padding."""
        longest = max(len(fold.valid) for fold in self.folds)
        rows = np.stack([np.pad(fold.valid, (0, longest - len(fold.valid))) for fold in self.folds])
        weight = np.stack([np.arange(longest) < len(fold.valid) for fold in self.folds])
        per_lane = lambda a: jnp.asarray(
            np.tile(np.repeat(a, self.restarts, axis=0), (self.slots, 1))
        )
        return per_lane(rows.astype(np.int32)), per_lane(weight.astype(np.float32))

    def train_on_all(self, setting: Setting, *, members: int, key: PRNGKeyArray) -> Candidate:
        """Networks trained on all examples with a setting.

        It reuses the compiled programs of the folds, whose epochs have as many steps, so the number
        of epochs grows in proportion to the examples. The validation rows only keep the shapes the
        same; the errors on them are not used.
        """
        n = len(jax.tree.leaves(self.task.train)[0])
        examples = self.steps(1)
        trainer = replace(
            self,
            folds=[Fold(np.arange(n), fold.valid) for fold in self.folds],
            key=key,
            examples=examples,
        )
        longer = setting._replace(epochs=round(setting.epochs * n / examples))
        n_candidates = -(-members // self.n_lanes)  # members / lanes, rounded up
        candidates = [trainer.init_candidate(longer, start) for start in range(n_candidates)]
        if jax.default_backend() == "cpu":
            with ThreadPoolExecutor(os.cpu_count()) as threads:
                train = lambda c: trainer.train_until([c], lambda s: s.epochs)
                list(threads.map(train, candidates))
        else:
            trainer.train_until(candidates, lambda s: s.epochs)
        state = jax.tree.map(
            lambda *leaves: jnp.concatenate(leaves)[:members], *(c.state for c in candidates)
        )
        losses = list(np.concatenate([c.losses for c in candidates], axis=1)[:, :members])
        return Candidate(setting, state, losses)

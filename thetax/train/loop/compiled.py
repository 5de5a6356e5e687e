r"""The compiled parts of `fit`: a chunk of an epoch, one step of a stream, and the evaluation.

The data are on the device. A chunk is one `while_loop` in one `jit` with donated state: it gathers
each batch, takes a step, adds up the numbers that the step reports, and stops at the first number
that is not finite. Its length is an argument, so one program serves chunks of any length.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ... import tree
from ...core import Batch, Iteration, Model, Objective
from ...layers import fold_batch_norm, has_batch_norm
from .settings import check_arrays

# stream(epoch) -> the batches of that epoch, the same at every call
Stream = Callable[[int], Iterable[Batch]]
EVALUATION_BATCH_SIZE = 2048
# others may be infinite: a sampler reports an infinite energy error for a rejection
MUST_BE_FINITE = ("loss", "gradient")
CHUNK_SECONDS = 0.2  # target duration of a chunk


class Chunk(NamedTuple):
    """The result of a chunk: state, sums over the epoch, step in the epoch, the numbers of the last
    step, and whether all were finite.
    """

    state: Any
    total: dict[str, jax.Array]
    step: int
    last: dict[str, jax.Array]
    is_finite: bool


def info_numbers(info: Any) -> dict[str, jax.Array]:
    """The numbers that a step reports, by name, averaged over parallel members."""
    found = {
        name: jnp.mean(leaf) for name, leaf in zip(tree.leaf_names(info), jax.tree.leaves(info))
    }
    if not found or "" in found:
        raise ValueError(
            "fit: an iteration's info must be a NamedTuple or dict of numbers; got "
            f"{type(info).__name__}."
        )
    return found


def zero_sums(iteration: Iteration, model: Model, batch: Batch) -> dict[str, jax.Array]:
    """Zeros for every reported number; tracing the step finds wrong shapes before training."""
    shapes = jax.eval_shape(lambda model, batch: _first(iteration, model, batch), model, batch)
    return jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)


@partial(jax.jit, static_argnames=("iteration",))
def _first(iteration, model, batch):  # only traced; `jit` caches the trace
    return info_numbers(iteration.step(iteration.init(model), batch, key=jr.key(0))[1])


def _take_step(iteration, state, total, batch, key, epoch, step):
    state, info = iteration.step(state, batch, key=jr.fold_in(jr.fold_in(key, epoch), step))
    last = info_numbers(info)
    is_finite = jnp.all(
        jnp.array([jnp.isfinite(last[name]) for name in MUST_BE_FINITE if name in last] or [True])
    )
    return state, jax.tree.map(jnp.add, total, last), last, is_finite


@partial(jax.jit, static_argnames=("iteration", "batch_size"), donate_argnames=("state", "total"))
def _advance(iteration, state, total, data, order, key, epoch, start, stop, *, batch_size):
    def unfinished(carry):
        return (carry[0] < stop) & carry[-1]

    def body(carry):
        step, state, total, _, _ = carry
        rows = jax.lax.dynamic_slice_in_dim(order, step * batch_size, batch_size)
        batch = jax.tree.map(lambda a: a[rows], data)
        return step + 1, *_take_step(iteration, state, total, batch, key, epoch, step)

    carry = (start, state, total, jax.tree.map(jnp.zeros_like, total), jnp.array(True))
    return jax.lax.while_loop(unfinished, body, carry)


@partial(jax.jit, static_argnames=("iteration",), donate_argnames=("carry",))
def _advance_one(iteration, carry, batch, key, epoch):
    def take(step, state, total, _, is_finite):
        return step + 1, *_take_step(iteration, state, total, batch, key, epoch, step)

    # no step after a number that is not finite
    return jax.lax.cond(carry[-1], take, lambda *carry: carry, *carry)


def epoch_order(key: PRNGKeyArray, epoch: int, n: int) -> jax.Array:
    """The order of the examples in an epoch, a function of the key and the epoch.

    It is computed on the host, as sorting random numbers (`jr.permutation`) is slow on a CPU.

    >>> sorted(epoch_order(jr.key(0), 3, 5).tolist())
    [0, 1, 2, 3, 4]
    """
    seed = [int(word) for word in np.asarray(jr.key_data(key)).ravel()]
    order = np.random.Generator(np.random.Philox(seed=[*seed, epoch])).permutation(n)
    return jnp.asarray(order.astype(np.int32))


class ChunkLength:
    """The number of steps of the next chunk, adapted to take `CHUNK_SECONDS`.

    The first chunk, which is compiled, has one step.
    """

    def __init__(self):
        self.steps = 1

    def update(self, steps: int, seconds: float) -> None:
        """Adapts to the duration of the last chunk."""
        self.steps = max(1, min(16 * self.steps, int(steps * CHUNK_SECONDS / max(seconds, 1e-6))))


def chunks(
    iteration: Iteration,
    data: Batch,
    chunk: Chunk,
    *,
    epoch: int,
    batch_size: int,
    key_order: PRNGKeyArray,
    key_step: PRNGKeyArray,
    length: ChunkLength,
) -> Iterator[Chunk]:
    """Runs the rest of an epoch on data on the device; yields after every chunk."""
    n = len(jax.tree.leaves(data)[0])
    order = epoch_order(key_order, epoch, n)
    while chunk.step < n // batch_size and chunk.is_finite:
        start = perf_counter()
        stop = min(n // batch_size, chunk.step + length.steps)
        step, state, total, last, is_finite = _advance(
            iteration,
            chunk.state,
            chunk.total,
            data,
            order,
            key_step,
            epoch,
            chunk.step,
            stop,
            batch_size=batch_size,
        )
        done = Chunk(state, total, int(step), last, bool(is_finite))  # waits for the device
        length.update(done.step - chunk.step, perf_counter() - start)
        chunk = done
        yield chunk


def stream_chunks(
    iteration: Iteration,
    batches: Iterable[Batch],
    chunk: Chunk,
    *,
    epoch: int,
    key_step: PRNGKeyArray,
) -> Iterator[Chunk]:
    """Runs the rest of an epoch on a stream, one program per step; yields every `CHUNK_SECONDS`."""
    start = perf_counter()
    last = jax.tree.map(jnp.zeros_like, chunk.total)
    carry = jnp.asarray(chunk.step), chunk.state, chunk.total, last, jnp.array(True)

    def fetch() -> Chunk:
        step, state, total, last, is_finite = carry
        return Chunk(state, total, int(step), last, bool(is_finite))

    for batch in islice(batches, chunk.step, None):
        carry = _advance_one(iteration, carry, jax.tree.map(jnp.asarray, batch), key_step, epoch)
        if perf_counter() - start > CHUNK_SECONDS:
            yield fetch()
            start = perf_counter()
    if not int(carry[0]):
        raise ValueError(
            f"fit: stream({epoch}) gave no batch; it must give at least one in every epoch."
        )
    yield fetch()


@partial(jax.jit, static_argnames=("metrics",))
def evaluate_metrics(
    metrics: tuple[tuple[str, Objective], ...],
    model: Model,
    held_out: Batch | None,
    calibration: Any,
) -> dict[str, jax.Array]:
    """Every metric on a data set, batch by batch; batch norms are folded on the calibration inputs
    first.
    """
    if held_out is None or not metrics:
        return {}
    if calibration is not None:
        model = fold_batch_norm(model, calibration)
    n = len(jax.tree.leaves(held_out)[0])
    n_full = n // EVALUATION_BATCH_SIZE
    n_rest = n % EVALUATION_BATCH_SIZE

    def measure(batch):
        return jnp.stack([metric(model, batch) for _, metric in metrics])

    total = jnp.zeros(len(metrics))
    if n_full:
        batches = jax.tree.map(
            lambda a: a[: n_full * EVALUATION_BATCH_SIZE].reshape(
                n_full, EVALUATION_BATCH_SIZE, *a.shape[1:]
            ),
            held_out,
        )
        add = lambda total, batch: (total + measure(batch), None)
        total += EVALUATION_BATCH_SIZE * jax.lax.scan(add, total, batches)[0]
    if n_rest:
        rest = jax.tree.map(lambda a: a[n_full * EVALUATION_BATCH_SIZE :], held_out)
        total += n_rest * measure(rest)
    return {name: value / n for (name, _), value in zip(metrics, total)}


def evaluate(model: Model, data: Batch, metrics: Mapping[str, Objective]) -> dict[str, float]:
    """The metrics of a model on a data set of any size (deterministic).

    >>> from thetax.layers import Pointwise
    >>> from thetax.train import error_rate
    >>> data = jnp.array([[0.0, 1.0], [1.0, 0.0]]), jnp.array([1, 1])
    >>> evaluate(Pointwise(jnp.sin), data, {"error": error_rate})
    {'error': 0.5}
    """
    check_arrays("data", data, model)
    if has_batch_norm(model):
        raise ValueError(
            "evaluate: the model has batch norms, which depend on the batch. Call "
            "fold_batch_norm(model, xs) first."
        )
    values = evaluate_metrics(tuple(metrics.items()), model, jax.tree.map(jnp.asarray, data), None)
    return {name: float(value) for name, value in values.items()}

r"""The compiled half of `fit`: a chunk of an epoch, one step of a stream, a validation, each one
program.

The data lie on the device. A chunk is one `while_loop` inside one `jit` with donated state: it
gathers each batch, takes the step, adds up what the step reports, and leaves at the first number
that is not finite. Its length is an argument, so that one program serves chunks of any length.
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
from ...layers import fold, has_batch_norm
from .settings import check_arrays

Stream = Callable[
    [int], Iterable[Batch]
]  # stream(epoch) -> the batches of that epoch, the same each time
BLOCK = 2048  # examples judged at once in a validation
MUST_BE_FINITE = (
    "loss",
    "gradient",
)  # a sampler may well report an infinite energy error: a rejection
BEAT = 0.2  # seconds a chunk should take


class Chunk(NamedTuple):
    """Where a chunk ended: state, sums and step of the epoch, the last readings, and whether all
    were finite.
    """

    state: Any
    total: dict[str, jax.Array]
    step: int
    seen: dict[str, jax.Array]
    sound: bool


def readings(info: Any) -> dict[str, jax.Array]:
    """The numbers of a step's info by name, each averaged over whatever was run side by side."""
    found = {name: jnp.mean(leaf) for name, leaf in zip(tree.names(info), jax.tree.leaves(info))}
    if not found or "" in found:
        raise ValueError(
            "fit: an iteration's info must be a NamedTuple or dict of numbers; got "
            f"{type(info).__name__}."
        )
    return found


def no_readings(iteration: Iteration, model: Model, batch: Batch) -> dict[str, jax.Array]:
    """Zeros for every reading; also the place where wrong shapes are found before any compute is
    spent.
    """
    shapes = jax.eval_shape(lambda model, batch: _first(iteration, model, batch), model, batch)
    return jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)


@partial(jax.jit, static_argnames=("iteration",))
def _first(iteration, model, batch):  # traced, never run; jit remembers the trace for the next fit
    return readings(iteration.step(iteration.init(model), batch, key=jr.key(0))[1])


def _take(iteration, state, total, batch, key, epoch, step):
    state, info = iteration.step(state, batch, key=jr.fold_in(jr.fold_in(key, epoch), step))
    seen = readings(info)
    sound = jnp.all(
        jnp.array([jnp.isfinite(seen[name]) for name in MUST_BE_FINITE if name in seen] or [True])
    )
    return state, jax.tree.map(jnp.add, total, seen), seen, sound


@partial(jax.jit, static_argnames=("iteration", "batch_size"), donate_argnames=("state", "total"))
def _advance(iteration, state, total, data, order, key, epoch, first, last, *, batch_size):
    def going(carry):
        return (carry[0] < last) & carry[-1]

    def body(carry):
        step, state, total, _, _ = carry
        rows = jax.lax.dynamic_slice_in_dim(order, step * batch_size, batch_size)
        taken = jax.tree.map(lambda a: a[rows], data)
        return step + 1, *_take(iteration, state, total, taken, key, epoch, step)

    start = (first, state, total, jax.tree.map(jnp.zeros_like, total), jnp.array(True))
    return jax.lax.while_loop(going, body, start)


@partial(jax.jit, static_argnames=("iteration",), donate_argnames=("carry",))
def _advance_one(iteration, carry, batch, key, epoch):
    def take(step, state, total, _, sound):
        return step + 1, *_take(iteration, state, total, batch, key, epoch, step)

    return jax.lax.cond(
        carry[-1], take, lambda *carry: carry, *carry
    )  # nothing is taken after a bad step


def shuffled(key: PRNGKeyArray, epoch: int, n: int) -> jax.Array:
    """The order in which an epoch visits its examples, a function of the key and the epoch alone.

    Drawn on the host: sorting random numbers, as `jr.permutation` does, is slow on a CPU.

    >>> sorted(shuffled(jr.key(0), 3, 5).tolist())
    [0, 1, 2, 3, 4]
    """
    seed = [int(word) for word in np.asarray(jr.key_data(key)).ravel()]
    order = np.random.Generator(np.random.Philox(seed=[*seed, epoch])).permutation(n)
    return jnp.asarray(order.astype(np.int32))


class Pace:
    """How many steps the next chunk takes so that it lasts one beat; the first is one step, for it
    compiles.
    """

    def __init__(self):
        self.steps = 1

    def heed(self, steps: int, seconds: float) -> None:
        """Learns from the last chunk."""
        self.steps = max(1, min(16 * self.steps, int(steps * BEAT / max(seconds, 1e-6))))


def chunks(
    iteration: Iteration,
    data: Batch,
    chunk: Chunk,
    *,
    epoch: int,
    batch_size: int,
    key_order: PRNGKeyArray,
    key_step: PRNGKeyArray,
    pace: Pace,
) -> Iterator[Chunk]:
    """Runs the rest of an epoch over data on the device, and shows up after every chunk."""
    n = len(jax.tree.leaves(data)[0])
    order = shuffled(key_order, epoch, n)
    while chunk.step < n // batch_size and chunk.sound:
        began = perf_counter()
        last = min(n // batch_size, chunk.step + pace.steps)
        step, state, total, seen, sound = _advance(
            iteration,
            chunk.state,
            chunk.total,
            data,
            order,
            key_step,
            epoch,
            chunk.step,
            last,
            batch_size=batch_size,
        )
        done = Chunk(state, total, int(step), seen, bool(sound))  # waits for the device
        pace.heed(done.step - chunk.step, perf_counter() - began)
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
    """The same for a stream: one program a step, and a look at the numbers once a beat."""
    looked = perf_counter()
    seen = jax.tree.map(jnp.zeros_like, chunk.total)
    carry = jnp.asarray(chunk.step), chunk.state, chunk.total, seen, jnp.array(True)

    def look() -> Chunk:
        step, state, total, seen, sound = carry
        return Chunk(state, total, int(step), seen, bool(sound))

    for taken in islice(batches, chunk.step, None):
        carry = _advance_one(iteration, carry, jax.tree.map(jnp.asarray, taken), key_step, epoch)
        if perf_counter() - looked > BEAT:
            yield look()
            looked = perf_counter()
    if not int(carry[0]):
        raise ValueError(
            f"fit: the stream gave no batch in a later epoch ({epoch}); it must give one for "
            "every epoch."
        )
    yield look()


@partial(jax.jit, static_argnames=("metrics",))
def judge(
    metrics: tuple[tuple[str, Objective], ...],
    model: Model,
    held_out: Batch | None,
    calibration: Any,
) -> dict[str, jax.Array]:
    """Every metric over a whole set, block by block; batch norms are first folded on the
    calibration inputs.
    """
    if held_out is None or not metrics:
        return {}
    if calibration is not None:
        model = fold(model, calibration)
    n = len(jax.tree.leaves(held_out)[0])
    whole = n // BLOCK
    rest = n % BLOCK

    def measured(block):
        return jnp.stack([metric(model, block) for _, metric in metrics])

    total = jnp.zeros(len(metrics))
    if whole:
        blocks = jax.tree.map(
            lambda a: a[: whole * BLOCK].reshape(whole, BLOCK, *a.shape[1:]), held_out
        )
        total += (
            BLOCK * jax.lax.scan(lambda sum, block: (sum + measured(block), None), total, blocks)[0]
        )
    if rest:
        total += rest * measured(jax.tree.map(lambda a: a[whole * BLOCK :], held_out))
    return {name: value / n for (name, _), value in zip(metrics, total)}


def evaluate(model: Model, data: Batch, metrics: Mapping[str, Objective]) -> dict[str, float]:
    """Every metric of a model on a set of any size, without chance.

    >>> from thetax.layers import Pointwise
    >>> from thetax.train import error_rate
    >>> data = jnp.array([[0.0, 1.0], [1.0, 0.0]]), jnp.array([1, 1])
    >>> evaluate(Pointwise(jnp.sin), data, {"error": error_rate})
    {'error': 0.5}
    """
    check_arrays("data", data, model)
    if has_batch_norm(model):
        raise ValueError(
            "evaluate: the model has batch norms, which depend on the batch; fold(model, xs) it "
            "first."
        )
    found = judge(tuple(metrics.items()), model, jax.tree.map(jnp.asarray, data), None)
    return {name: float(value) for name, value in found.items()}

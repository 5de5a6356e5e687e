r"""One call trains anything: validated, watched, checkpointed, resumable.

`fit` is the host's half of the work: it runs the compiled chunks of `loop`, judges after every
epoch, and keeps the run's folder. Chance comes from the numbers of the epoch and the step, never
from hidden state, so a run that was killed and resumed ends with the same bits as one that was not.
"""

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ... import tree
from ...core import Batch, Iteration, Model, Objective
from ...layers import has_batch_norm
from .compiled import Chunk, Pace, Stream, chunks, judge, no_readings, shuffled, stream_chunks
from .interrupt import listening
from .progress import Progress, watch
from .run import Damaged, Run
from .run_log import Journal, Place
from .settings import check_arrays, check_settings

CALIBRATION = 1024  # training examples on which batch norms are folded for a validation


SMALLER = (
    "Try a smaller rate, optax.clip_by_global_norm(1.0) before the optimiser, or data of unit "
    "scale."
)
WIDER = (
    "A step computes in float16, whose largest number is 65504 and whose smallest normal one is "
    "6e-5. Compute in bfloat16, as mixed_precision(objective) does, or in float32; or, if "
    "gradients underflow, multiply the objective by a factor that the optimiser divides by "
    "(optax.scale)."
)


class Fit(NamedTuple):
    """A trained model, its history (one number an epoch under each name), why the fit ended, and
    what it began with.
    """

    model: Any
    history: dict[str, np.ndarray]
    reason: str
    steps: int
    seconds: float
    start: Any = None


class Diverged(FloatingPointError):
    """A loss or a gradient was not finite; carries the step and the name of the number."""

    def __init__(self, step: int, name: str, value: float, safe: str, advice: str = SMALLER):
        self.step, self.name, self.value, self.safe = step, name, value, safe
        super().__init__(f"The {name} became {value} at step {step}. {safe} {advice}")


def fit(
    iteration: Iteration,
    model: Model,
    data: Batch | Stream,
    *,
    epochs: int,
    batch_size: int = 128,
    validation: Batch | float | None = None,
    metrics: Mapping[str, Objective] | None = None,
    patience: int | None = None,
    key: PRNGKeyArray,
    run: Run | None = None,
    progress: Progress | None = None,
) -> Fit:
    r"""Runs an iteration over data for some epochs: the model, its history, and why it stopped.

    `data` is a pair `(xs, ys)` or any tree of arrays with the examples along the first axis; each
    epoch visits them in a new order, without replacement, in batches (the few that fill no batch
    wait for the next order). Or it is a function `stream(epoch)` that gives the batches of an
    epoch, the same each time.

    `validation` is a set of the same kind, or the fraction of `data` to hold out. After every epoch
    each of the `metrics` (objectives; lower is better) is measured on it. With `patience=p` the fit
    stops when the first metric has not improved for p epochs, and returns the best weights, not the
    last (§8.3).

    With a `run` the fit writes checkpoints and metrics into its folder; called again on the same
    folder it goes on where it stood, and ends with the same bits. Ctrl-C (or SIGTERM) saves a
    checkpoint and raises `KeyboardInterrupt`; without a run it ends the fit early and returns what
    it has.

    >>> import optax
    >>> from thetax.models import MLP
    >>> from thetax.train import Silent, cross_entropy, descend, error_rate
    >>> xs = jr.normal(jr.key(0), (512, 2))
    >>> data = xs, (xs[:, 0] * xs[:, 1] > 0).astype(jnp.int32)
    >>> model = MLP.init(2, 32, 2, key=jr.key(1))
    >>> found = fit(
    ...     descend(cross_entropy, optax.adam(1e-2)),
    ...     model,
    ...     data,
    ...     epochs=30,
    ...     batch_size=64,
    ...     validation=0.25,
    ...     metrics={"error": error_rate},
    ...     key=jr.key(2),
    ...     progress=Silent(),
    ... )
    >>> bool(found.history["valid error"][-1] < 0.1), found.reason
    (True, 'all 30 epochs done')
    """
    check_settings(
        iteration,
        epochs=epochs,
        batch_size=batch_size,
        patience=patience,
        validation=validation,
        metrics=metrics,
        key=key,
    )
    key_order, key_step, key_split = jr.split(key, 3)
    data, held_out, example = _prepare(model, data, validation, batch_size, key_split)
    size = len(jax.tree.leaves(example)[0])
    steps = None if callable(data) else len(jax.tree.leaves(data)[0]) // batch_size
    progress = progress or watch()
    settings = {
        "epochs": epochs,
        "batch_size": batch_size,
        "patience": patience,
        "metrics": list(metrics or ()),
    }
    if run is not None:
        settings |= {
            "key": jr.key_data(key),
            "data": _described(example if callable(data) else data),
        }
        if found := _finished(run, model, settings, progress):
            return found
    start = _start(iteration, model, example, keep_best=patience is not None)
    calibration = _calibration(model, data, example, key_split)
    journal = Journal(run, progress)
    advised = _advised(iteration, model, example)
    with closing(journal), advised, listening() as stop_asked:
        journal.claim(settings)
        place = journal.recall(start)
        pace = Pace()
        reason = None
        progress.start(epochs, steps, size)
        while not (reason := _why_stop(place, epochs, patience, run)):
            chunks = _epoch(
                iteration, data, place, batch_size, (key_order, key_step), pace, journal
            )
            for place in chunks:
                journal.update(place)
                if stop_asked():
                    journal.leave(place)
                    return _result(place, "interrupted", model)
            scores = judge(tuple((metrics or {}).items()), place.state.model, held_out, calibration)
            in_order = {
                name: float(scores[name]) for name in metrics or () if name in scores
            }  # jit sorts a dict
            _check_sound(
                {**in_order, "weights": 0.0 if tree.finite(place.state.model) else np.nan},
                place,
                journal,
            )
            place = _next_epoch(place, in_order, size, keep_best=patience is not None)
            journal.epoch(place)
        found = _result(place, reason, model)
        journal.finish(place, found.model, reason)
        if (
            run is not None and stop_asked()
        ):  # too late to stop this fit, but not what comes after it
            raise KeyboardInterrupt(f"the fit in {run.folder} had just ended")
        return found


def _described(data: Any) -> list[str]:
    """Types, shapes and sums of sizes: enough to notice that a fit is resumed on other data."""
    total = lambda leaf: float(jnp.abs(leaf.astype(jnp.float32)).sum())
    return [
        f"{leaf.dtype}{list(leaf.shape)} of size {total(leaf):.5g}"
        for leaf in jax.tree.leaves(data)
    ]


def _finished(run: Run, model: Any, settings: dict[str, Any], progress: Progress) -> Fit | None:
    """What a fit that has ended left in its folder; nothing if its weights are damaged, and then it
    goes on.
    """
    if not run.done:
        return None
    run.agree(settings)
    try:
        weights, outcome = run.finished(like=model)
    except Damaged as damage:
        progress.note(f"{damage}; going on from the checkpoints")
        return None
    return Fit(
        weights,
        columns(outcome["rows"]),
        outcome["reason"],
        outcome["steps"],
        outcome["seconds"],
        model,
    )


def _prepare(
    model: Model, data: Any, validation: Any, batch_size: int, key: PRNGKeyArray
) -> tuple[Any, Any, Any]:
    """The training data, the validation set and the form of a batch; bad input is refused here."""
    if callable(data):
        if isinstance(validation, float):
            raise ValueError(
                "fit: a stream has no fraction to hold out; give a validation set of its own."
            )
        first = next(iter(cast(Stream, data)(0)), None)
        if first is None:
            raise ValueError(
                "fit: stream(0) gave no batch; it must give at least one for every epoch."
            )
        check_arrays("stream(0)", first, model)
        example = jax.tree.map(jnp.asarray, first)
        cut = 0
    else:
        n = check_arrays("data", data, model, batch_size=batch_size)
        cut = max(1, round(validation * n)) if isinstance(validation, float) else 0
        if n - cut < batch_size:
            raise ValueError(
                f"fit: {n} examples less {cut} held out leave fewer than one batch of {batch_size}."
            )
        data = jax.tree.map(jnp.asarray, data)
        example = jax.tree.map(lambda a: a[:batch_size], data)
    if cut:
        rows = jr.permutation(key, n)
        validation = jax.tree.map(lambda a: a[rows[:cut]], data)
        data = jax.tree.map(lambda a: a[rows[cut:]], data)
    elif validation is not None:
        check_arrays("validation", validation, model)
        validation = jax.tree.map(jnp.asarray, validation)
    return data, validation, example


def _calibration(model, data, example, key):
    """Training inputs on which batch norms are folded for a validation; None where there is nothing
    to fold.
    """
    if not has_batch_norm(model):
        return None
    if callable(data):
        return example[0]
    return data[0][shuffled(key, 0, len(data[0]))[:CALIBRATION]]


def _start(iteration, model, example, *, keep_best):
    total = no_readings(iteration, model, example)
    own = lambda t: jax.tree.map(jnp.copy, t)  # the loop gives its buffers away, not the caller's
    return Place(own(iteration.init(model)), own(model) if keep_best else (), total)


def _why_stop(place, epochs, patience, run):
    if patience is not None and place.waited >= patience:
        return f"no better for {patience} epoch{'s' if patience > 1 else ''}"
    if place.epoch >= epochs:
        return f"all {epochs} epochs done" if epochs > 1 else "the only epoch done"
    return "looked at before its end" if run is not None and run.look_only else None


def _epoch(iteration, data: Any, place, batch_size, keys, pace, journal) -> Iterator[Place]:
    chunk = Chunk(place.state, place.total, place.step, {}, True)
    began = time.monotonic()
    if callable(data):
        ways = stream_chunks(
            iteration, cast(Stream, data)(place.epoch), chunk, epoch=place.epoch, key_step=keys[1]
        )
    else:
        ways = chunks(
            iteration,
            data,
            chunk,
            epoch=place.epoch,
            batch_size=batch_size,
            key_order=keys[0],
            key_step=keys[1],
            pace=pace,
        )
    for chunk in ways:
        now = time.monotonic()
        place = place._replace(
            state=chunk.state,
            total=chunk.total,
            step=chunk.step,
            steps=place.steps + chunk.step - place.step,
            seconds=place.seconds + now - began,
        )
        began = now
        if not chunk.sound:
            _check_sound({name: float(value) for name, value in chunk.seen.items()}, place, journal)
        yield place


@contextmanager
def _advised(iteration: Iteration, model: Model, example: Batch) -> Iterator[None]:
    """Where float16 is used its range is the likely cause, not the rate."""
    try:
        yield
    except Diverged as trouble:
        step = lambda model, batch: iteration.step(iteration.init(model), batch, key=jr.key(0))
        if re.search(r"\bf16\[", str(jax.make_jaxpr(step)(model, example))):
            raise Diverged(trouble.step, trouble.name, trouble.value, trouble.safe, WIDER) from None
        raise


def _check_sound(numbers: dict[str, float], place: Place, journal: Journal) -> None:
    """Never a silent NaN."""
    for name, value in numbers.items():
        if not np.isfinite(value):
            journal.settle()
            raise Diverged(place.steps, name, value, journal.safe())


def _next_epoch(place, scores, size, *, keep_best):
    """The place at the start of the next epoch, with a row for the one that ended."""
    train = {
        f"train {name}": float(place.total[name]) / place.step
        for name in sorted(place.total, reverse=True)
    }
    spent = place.seconds - sum(row["seconds"] for row in place.rows)
    row = {
        "epoch": place.epoch + 1,
        **train,
        **{f"valid {name}": value for name, value in scores.items()},
        "seconds": spent,
        "examples/s": round(place.step * size / max(spent, 1e-9)),
    }
    place = place._replace(
        epoch=place.epoch + 1,
        step=0,
        total=jax.tree.map(jnp.zeros_like, place.total),
        rows=(*place.rows, row),
    )
    if not keep_best:
        return place
    watched = next(iter(scores.values()))
    if place.lowest is None or watched < place.lowest:
        return place._replace(
            lowest=watched, waited=0, best=jax.tree.map(jnp.copy, place.state.model)
        )
    return place._replace(waited=place.waited + 1)


def _result(place, reason, start):
    model = place.state.model if place.lowest is None else place.best
    return Fit(model, columns(place.rows), reason, place.steps, place.seconds, start)


def columns(rows) -> dict[str, np.ndarray]:
    """The history of a fit, of which there is one row an epoch."""
    names = (
        [name for name in rows[0] if name not in ("epoch", "seconds", "examples/s")] if rows else []
    )
    return {name: np.array([row[name] for row in rows]) for name in names}

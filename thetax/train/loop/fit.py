r"""`fit`, the training loop: validation, early stopping, progress, checkpoints, resumption.

`fit` runs the compiled chunks of `compiled` on the host, evaluates the metrics after every epoch,
and writes the folder of the run. Random keys are functions of the epoch and the step, so a run that
was killed and resumed ends with bitwise the same weights.
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
from .compiled import (
    Chunk,
    ChunkLength,
    Stream,
    chunks,
    epoch_order,
    evaluate_metrics,
    stream_chunks,
    zero_sums,
)
from .interrupt import catch_interrupts
from .progress import Progress, default_progress
from .run import DamagedRun, Run
from .run_log import FitState, RunLog
from .settings import check_arrays, check_settings

DEFAULT_BATCH_SIZE = 128
CALIBRATION = 1024  # training examples on which batch norms are folded for validation

DIVERGENCE_ADVICE = (
    "Try a smaller learning rate, optax.clip_by_global_norm(1.0) before the optimiser, or data of "
    "unit scale."
)
FLOAT16_ADVICE = (
    "A step computes in float16, whose largest number is 65504 and smallest normal number 6e-5. "
    "Compute in bfloat16, as mixed_precision(objective) does, or in float32; if gradients "
    "underflow, scale the loss up and the gradients down (optax.scale)."
)


class FitResult(NamedTuple):
    """The trained model, its history (one number per epoch under each name), why the fit ended, and
    the initial model `start`.
    """

    model: Any
    history: dict[str, np.ndarray]
    reason: str
    steps: int
    seconds: float
    start: Any = None


class DivergenceError(FloatingPointError):
    """A number such as the loss or the gradient norm was not finite; has its name and the step."""

    def __init__(
        self, step: int, name: str, value: float, checkpoint: str, advice: str = DIVERGENCE_ADVICE
    ):
        self.step = step
        self.name = name
        self.value = value
        self.checkpoint = checkpoint
        super().__init__(f"The {name} became {value} at step {step}. {checkpoint} {advice}")


def fit(
    iteration: Iteration,
    model: Model,
    data: Batch | Stream,
    *,
    epochs: int,
    batch_size: int | None = None,
    validation: Batch | float | None = None,
    metrics: Mapping[str, Objective] | None = None,
    patience: int | None = None,
    key: PRNGKeyArray,
    run: Run | None = None,
    progress: Progress | None = None,
) -> FitResult:
    r"""Trains a model: runs an iteration over the data for some epochs.

    `data` is a pair `(xs, ys)` or any tree of arrays with the examples along the first axis. Each
    epoch visits them in a new random order, without replacement, in batches; a remainder smaller
    than a batch is left out of that epoch. The default `batch_size` is 128, or the number of
    training examples if that is smaller.

    Or `data` is a function `stream(epoch)` that returns the batches of an epoch, the same at every
    call.

    `validation` is a data set, or the fraction of `data` to hold out. After every epoch each of the
    `metrics` (objectives; lower is better) is evaluated on it. With `patience=p` the fit stops
    early when the first metric has not improved for p epochs, and returns the best weights instead
    of the last (§8.3).

    With a `run` the fit writes checkpoints and metrics to its folder. Called again on the same
    folder it resumes, and ends with bitwise the same weights. Ctrl-C (or SIGTERM) saves a
    checkpoint and raises `KeyboardInterrupt`; without a run it ends the fit early and returns the
    current model.

    >>> import optax
    >>> from thetax.models import MLP
    >>> from thetax.train import Silent, cross_entropy, descend, error_rate
    >>> xs = jr.normal(jr.key(0), (512, 2))
    >>> data = xs, (xs[:, 0] * xs[:, 1] > 0).astype(jnp.int32)
    >>> model = MLP.init(2, 32, 2, key=jr.key(1))
    >>> result = fit(
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
    >>> bool(result.history["valid error"][-1] < 0.1), result.reason
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
    if batch_size is None:
        batch_size = len(jax.tree.leaves(example)[0])
    size = len(jax.tree.leaves(example)[0])
    steps = None if callable(data) else len(jax.tree.leaves(data)[0]) // batch_size
    progress = progress or default_progress()
    settings = {
        "epochs": epochs,
        "batch_size": batch_size,
        "patience": patience,
        "metrics": list(metrics or ()),
    }
    if run is not None:
        settings |= {
            "key": jr.key_data(key),
            "data": _summarise(example if callable(data) else data),
        }
        if result := _load_result(run, model, settings, progress):
            return result
    start = _initial_state(iteration, model, example, keep_best=patience is not None)
    calibration = _calibration(model, data, example, key_split)
    log = RunLog(run, progress)
    explain_divergence = _explain_divergence(iteration, model, example)
    with closing(log), explain_divergence, catch_interrupts() as stop_requested:
        log.open(settings)
        fit_state = log.restore(start)
        length = ChunkLength()
        reason = None
        progress.start(epochs, steps, size)
        while not (reason := _stop_reason(fit_state, epochs, patience)):
            keys = key_order, key_step
            states = _run_epoch(iteration, data, fit_state, batch_size, keys, length, log)
            for fit_state in states:
                log.update(fit_state)
                if stop_requested():
                    log.stop(fit_state)
                    return _result(fit_state, "interrupted", model)
            trained = fit_state.state.model
            values = evaluate_metrics(
                tuple((metrics or {}).items()), trained, held_out, calibration
            )
            # in the order of `metrics`, as jit sorts dictionaries by key
            scores = {name: float(values[name]) for name in metrics or () if name in values}
            weights = 0.0 if tree.all_finite(trained) else np.nan
            _check_finite({**scores, "weights": weights}, fit_state, log)
            fit_state = _next_epoch(fit_state, scores, size, keep_best=patience is not None)
            log.epoch(fit_state)
        result = _result(fit_state, reason, model)
        log.finish(fit_state, result.model, reason)
        if run is not None and stop_requested():  # this fit is finished, but the caller must stop
            raise KeyboardInterrupt(f"the fit in {run.folder} had just ended")
        return result


def _summarise(data: Any) -> list[str]:
    """Dtypes, shapes and sums of absolute values, to notice that a fit is resumed on other data."""
    total = lambda leaf: float(jnp.abs(leaf.astype(jnp.float32)).sum())
    return [
        f"{leaf.dtype}{list(leaf.shape)} of size {total(leaf):.5g}"
        for leaf in jax.tree.leaves(data)
    ]


def _load_result(
    run: Run, model: Any, settings: dict[str, Any], progress: Progress
) -> FitResult | None:
    """The saved result of a finished fit; None if it is not finished or its weights are damaged."""
    if not run.is_finished:
        return None
    run.check_settings(settings)
    try:
        weights, outcome = run.load_result(like=model)
    except DamagedRun as error:
        progress.note(f"{error}; resuming from the checkpoints")
        return None
    return FitResult(
        weights,
        history_columns(outcome["rows"]),
        outcome["reason"],
        outcome["steps"],
        outcome["seconds"],
        model,
    )


def _prepare(
    model: Model, data: Any, validation: Any, batch_size: int | None, key: PRNGKeyArray
) -> tuple[Any, Any, Any]:
    """The training data, the validation set and an example batch, after checking them."""
    if callable(data):
        if isinstance(validation, float):
            raise ValueError("fit: with a stream, validation must be a data set, not a fraction.")
        first = next(iter(cast(Stream, data)(0)), None)
        if first is None:
            raise ValueError(
                "fit: stream(0) gave no batch; it must give at least one in every epoch."
            )
        check_arrays("stream(0)", first, model)
        example = jax.tree.map(jnp.asarray, first)
        n_held_out = 0
    else:
        n = check_arrays("data", data, model, batch_size=batch_size or 1)
        n_held_out = max(1, round(validation * n)) if isinstance(validation, float) else 0
        if batch_size is None:
            batch_size = max(1, min(DEFAULT_BATCH_SIZE, n - n_held_out))
        if n - n_held_out < batch_size:
            raise ValueError(
                f"fit: the {n - n_held_out} training examples left after holding out {n_held_out} "
                f"are fewer than batch_size={batch_size}."
            )
        data = jax.tree.map(jnp.asarray, data)
        example = jax.tree.map(lambda a: a[:batch_size], data)
    if n_held_out:
        rows = jr.permutation(key, n)
        validation = jax.tree.map(lambda a: a[rows[:n_held_out]], data)
        data = jax.tree.map(lambda a: a[rows[n_held_out:]], data)
    elif validation is not None:
        check_arrays("validation", validation, model)
        validation = jax.tree.map(jnp.asarray, validation)
    return data, validation, example


def _calibration(model, data, example, key):
    """The inputs on which batch norms are folded for validation; None without batch norms."""
    if not has_batch_norm(model):
        return None
    if callable(data):
        return example[0]
    return data[0][epoch_order(key, 0, len(data[0]))[:CALIBRATION]]


def _initial_state(iteration, model, example, *, keep_best):
    total = zero_sums(iteration, model, example)
    copy = lambda t: jax.tree.map(jnp.copy, t)  # the loop donates its buffers, not the caller's
    return FitState(copy(iteration.init(model)), copy(model) if keep_best else (), total)


def _stop_reason(fit_state, epochs, patience):
    if patience is not None and fit_state.waited >= patience:
        return f"no improvement for {patience} epoch{'s' if patience > 1 else ''}"
    if fit_state.epoch >= epochs:
        return f"all {epochs} epochs done" if epochs > 1 else "the only epoch done"
    return None


def _run_epoch(
    iteration, data: Any, fit_state, batch_size, keys, length, log
) -> Iterator[FitState]:
    chunk = Chunk(fit_state.state, fit_state.total, fit_state.step, {}, True)
    start = time.monotonic()
    if callable(data):
        epoch_chunks = stream_chunks(
            iteration,
            cast(Stream, data)(fit_state.epoch),
            chunk,
            epoch=fit_state.epoch,
            key_step=keys[1],
        )
    else:
        epoch_chunks = chunks(
            iteration,
            data,
            chunk,
            epoch=fit_state.epoch,
            batch_size=batch_size,
            key_order=keys[0],
            key_step=keys[1],
            length=length,
        )
    for chunk in epoch_chunks:
        now = time.monotonic()
        fit_state = fit_state._replace(
            state=chunk.state,
            total=chunk.total,
            step=chunk.step,
            steps=fit_state.steps + chunk.step - fit_state.step,
            seconds=fit_state.seconds + now - start,
        )
        start = now
        if not chunk.is_finite:
            numbers = {name: float(value) for name, value in chunk.last.items()}
            _check_finite(numbers, fit_state, log)
        yield fit_state


@contextmanager
def _explain_divergence(iteration: Iteration, model: Model, example: Batch) -> Iterator[None]:
    """Adds advice to a `DivergenceError` if a step uses float16, the likely cause."""
    try:
        yield
    except DivergenceError as error:
        step = lambda model, batch: iteration.step(iteration.init(model), batch, key=jr.key(0))
        if re.search(r"\bf16\[", str(jax.make_jaxpr(step)(model, example))):
            raise DivergenceError(
                error.step, error.name, error.value, error.checkpoint, FLOAT16_ADVICE
            ) from None
        raise


def _check_finite(numbers: dict[str, float], fit_state: FitState, log: RunLog) -> None:
    """Raises `DivergenceError` unless all numbers are finite."""
    for name, value in numbers.items():
        if not np.isfinite(value):
            log.wait()
            raise DivergenceError(fit_state.steps, name, value, log.last_checkpoint())


def _next_epoch(fit_state, scores, size, *, keep_best):
    """The state at the start of the next epoch, with a history row for the last."""
    train = {
        f"train {name}": float(fit_state.total[name]) / fit_state.step
        for name in sorted(fit_state.total, reverse=True)
    }
    seconds = fit_state.seconds - sum(row["seconds"] for row in fit_state.rows)
    row = {
        "epoch": fit_state.epoch + 1,
        **train,
        **{f"valid {name}": value for name, value in scores.items()},
        "seconds": seconds,
        "examples/s": round(fit_state.step * size / max(seconds, 1e-9)),
    }
    fit_state = fit_state._replace(
        epoch=fit_state.epoch + 1,
        step=0,
        total=jax.tree.map(jnp.zeros_like, fit_state.total),
        rows=(*fit_state.rows, row),
    )
    if not keep_best:
        return fit_state
    score = next(iter(scores.values()))
    if fit_state.lowest is None or score < fit_state.lowest:
        return fit_state._replace(
            lowest=score, waited=0, best=jax.tree.map(jnp.copy, fit_state.state.model)
        )
    return fit_state._replace(waited=fit_state.waited + 1)


def _result(fit_state, reason, start):
    model = fit_state.state.model if fit_state.lowest is None else fit_state.best
    return FitResult(
        model, history_columns(fit_state.rows), reason, fit_state.steps, fit_state.seconds, start
    )


def history_columns(rows) -> dict[str, np.ndarray]:
    """The history of a fit as one array per name, from one row per epoch."""
    names = (
        [name for name in rows[0] if name not in ("epoch", "seconds", "examples/s")] if rows else []
    )
    return {name: np.array([row[name] for row in rows]) for name in names}

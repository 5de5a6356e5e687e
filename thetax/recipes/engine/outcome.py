"""The outcome of a recipe: a model with its data, metrics and history, for reports."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ... import serialise
from ...core import Batch, Objective
from ...train import FitResult

MAX_DATA_BYTES = 128 << 20  # of a saved data set; larger ones are subsampled
TRAINING_STEPS = "training time, with compilation"  # the label of `Outcome.seconds`


@dataclass(frozen=True)
class Outcome:
    """A trained model, its training and test set, its objective, and a table of results.

    `train` and `test` are pairs `(xs, ys)`. `objective` is the training objective; without a key it
    is deterministic. `classes` are the names of the classes, empty for regression. `table` has a
    row for each method, e.g. `{"network": {"test error %": 2.1}}`; the last row is that of the
    model. `decay` is the strength of the weight decay in the objective. `tokens` are the names of
    the input tokens of a sequence model; `classes` are then those of the target tokens. `features`
    are the names of the input features of tabular data. `sizes` are the numbers of training and
    test examples if `train` and `test` are only a part of them. `seconds` is the time of the
    training steps of all fits with their compilation, without data loading and evaluation. `start`
    is the model at initialisation, if available. `measured` is another result of the recipe, which
    a report draws.
    """

    model: Any
    train: Batch
    test: Batch
    objective: Objective
    history: Mapping[str, np.ndarray] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    table: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    reason: str = ""
    seconds: float = 0.0
    decay: float = 0.0
    tokens: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    sizes: tuple[int, int] | None = None
    start: Any = None
    measured: Any = None

    @classmethod
    def of_fit(cls, result: FitResult, **fields: Any) -> "Outcome":
        """The outcome of a fit: its model, history, reason to stop and seconds, unless given."""
        own = {name: getattr(result, name) for name in ("model", "history", "reason", "seconds")}
        return cls(**(own | fields))


def save_outcome(folder: Path, outcome: Outcome) -> None:
    """Writes `outcome.json` and `outcome.safetensors` into the folder of a run.

    `thetax look` and `thetax attack` read them, so that no recipe runs again. A data set of
    more than 128 MB is subsampled to evenly spaced examples; `sizes` are then the full numbers.
    """
    train = _subsample(outcome.train)
    test = _subsample(outcome.test)
    is_complete = train is outcome.train and test is outcome.test
    if outcome.sizes is None and not is_complete:
        outcome = replace(outcome, sizes=(_count(outcome.train), _count(outcome.test)))
    serialise.save(folder / "outcome", replace(outcome, train=train, test=test))


def load_outcome(folder: str | Path) -> Outcome:
    """The outcome of a finished run, as `save_outcome` wrote it."""
    folder = Path(folder)
    if not (folder / "outcome.json").is_file():
        raise ValueError(
            f"{folder} has no outcome: the run is not finished. Resume it: thetax train --resume "
            f"{folder}"
        )
    outcome = serialise.load(folder / "outcome")
    if not isinstance(outcome, Outcome):
        raise ValueError(f"{folder / 'outcome.json'} is not the outcome of a recipe.")
    return outcome


def _subsample(data: Batch) -> Batch:
    leaves = jax.tree.leaves(data)
    fraction = MAX_DATA_BYTES / max(1, sum(leaf.nbytes for leaf in leaves))
    if fraction >= 1:
        return data
    n = _count(data)
    rows = np.linspace(0, n - 1, max(1, int(fraction * n))).astype(int)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[rows], data)


def _count(data: Batch) -> int:
    leaves = jax.tree.leaves(data)
    return len(leaves[0]) if leaves else 0


def format_seconds(seconds: float) -> str:
    """A duration in seconds, or in minutes if it is long.

    >>> format_seconds(12.345), format_seconds(1923.0)
    ('12.3 s', '32 min')
    """
    return f"{seconds:.3g} s" if seconds < 300 else f"{seconds / 60:.0f} min"

"""What a recipe hands on: a model with all that is needed to look at it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...core import Batch, Objective

TRAINING_STEPS = "training steps with their compilation"  # what the seconds of an outcome are


@dataclass(frozen=True)
class Outcome:
    """A trained model, what it was trained on and judged by, and the numbers a reader wants first.

    `train` and `test` are pairs `(xs, ys)`. `objective` is what was descended; called without a key
    it has no chance in it. `classes` names the classes, and is empty for a regression. `table` has
    a row for each method, e.g. `{"network": {"test error": 0.021}}`, that of the model last.
    `decay` is the strength of the weight decay that the objective holds. `tokens` names the tokens
    of the inputs, where these are sequences of tokens; `classes` then names those of the targets.
    `features` names the inputs, where these are rows of features. `sizes` are the numbers of
    examples to train and to test on, where `train` and `test` hold only some of them. `seconds` is
    what the training steps took with their compilation, without data, validation and test; over all
    fits. `start` is the model before it was trained, where it is known. `measured` is a result that
    the recipe found beside the model, to be drawn.
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


def lasted(seconds: float) -> str:
    """A time, in minutes if it is long.

    >>> lasted(12.345), lasted(1923.0)
    ('12.3 s', '32 min')
    """
    return f"{seconds:.3g} s" if seconds < 300 else f"{seconds / 60:.0f} min"

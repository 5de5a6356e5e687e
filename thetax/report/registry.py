"""The registry of lenses: what a lens is, when it applies, and how many examples it may use."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np

from ..bayes import GaussianProcess
from ..core import Batch
from ..recipes.engine.outcome import Outcome

MAX_ACTIVATION_EXAMPLES = 2000  # examples for activations and gradients
MAX_CURVATURE_EXAMPLES = 1000  # examples for curvature
MAX_CPU_OPERATIONS = 30_000_000  # FLOPs of the predictions for curvature of slow models on a CPU
CPU_REFUSAL_OPERATIONS = 10**10  # with more FLOPs than this, curvature would take minutes on a CPU
TARGETS_PER_EXAMPLE = 10  # targets along a sequence that cost as much as one example
MIN_EXAMPLES = 16  # examples that are always used
LONG_SEQUENCE_TARGETS = 32  # longer sequences may use fewer than MIN_EXAMPLES
MAX_LOGITS = 40_000_000  # logits in memory at a time
MAX_MATRIX_CLASSES = 50  # classes up to which a confusion matrix is readable


@dataclass(frozen=True)
class Lens:
    """A section of the report: its title and description, whether it applies to an outcome, and how
    its result, metrics and table rows are computed.
    """

    title: str
    description: str
    applies: Callable[[Outcome], bool]
    compute: Callable[[Outcome], Any]
    metrics: Callable[[Any], Mapping[str, str]]
    rows: Callable[[Any], Sequence[Mapping[str, str]]]


class LensUnavailable(Exception):
    """Raised by a lens that cannot be computed for this outcome; the page shows the reason."""


LENSES: list[Lens] = []  # The registered lenses, in the order of the report.


def lens(
    title: str,
    *,
    description: str,
    applies: Callable[[Outcome], bool] = lambda outcome: True,
    of: Literal["network", "gaussian_process"] = "network",
    metrics: Callable[[Any], Mapping[str, str]] = lambda result: {},
    rows: Callable[[Any], Sequence[Mapping[str, str]]] = lambda result: (),
) -> Callable[[Callable[[Outcome], Any]], Callable[[Outcome], Any]]:
    """Decorator: registers a function of an outcome as a lens, a section of every report.

    `description` says what is shown (first sentence) and how to read it. `applies` decides for an
    outcome whether the section is shown, `metrics` turns the result into named numbers, `rows` into
    a table. `of` says whether the lens is for networks or for Gaussian processes.
    """

    def is_for(outcome: Outcome) -> bool:
        return isinstance(outcome.model, GaussianProcess) == (of == "gaussian_process")

    def register(compute: Callable[[Outcome], Any]) -> Callable[[Outcome], Any]:
        LENSES.append(
            Lens(
                title,
                description,
                lambda outcome: is_for(outcome) and applies(outcome),
                compute,
                metrics,
                rows,
            )
        )
        return compute

    return register


def subsample(data: Batch, max_examples: int) -> Batch:
    """At most `max_examples` examples, evenly spaced over the data; fewer if each has many targets.

    >>> subsample((np.arange(10), np.arange(10)), 3)[0].tolist()
    [0, 4, 9]
    """
    n = len(jax.tree.leaves(data)[0])
    cost = max(1, targets_per_example(data) // TARGETS_PER_EXAMPLE)
    count = max(min(max_examples, MIN_EXAMPLES), max_examples // cost)
    indices = np.linspace(0, n - 1, min(n, count)).astype(int)
    return data if n <= count else jax.tree.map(lambda a: a[indices], data)


def targets_per_example(data: Batch) -> int:
    """Number of target tokens per example; 1 unless the targets are sequences of integers."""
    ys: Any = data[1] if isinstance(data, tuple) and len(data) == 2 else ()
    tokens = np.ndim(ys) == 2 and np.issubdtype(ys.dtype, np.integer)
    return ys.shape[1] if tokens else 1


def is_classifier(outcome: Outcome) -> bool:
    """Whether the model is a classifier with one class per example, not one per time step."""
    return len(outcome.classes) > 1 and not (outcome.tokens and np.ndim(outcome.test[1]) > 1)


def format_percent(fraction: float) -> str:
    """A fraction as a percentage with two decimals."""
    return f"{100 * fraction:.2f} %"

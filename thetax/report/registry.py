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
MAX_CPU_OPERATIONS = (
    30_000_000  # operations of their predictions on a CPU, for what is slow at curvature
)
CPU_REFUSAL_OPERATIONS = 10**10  # operations of the fewest, at which curvature takes a CPU minutes
TARGETS_PER_EXAMPLE, MIN_EXAMPLES = (
    10,
    16,
)  # targets along a sequence that count as one example, and examples that are always afforded
LONG_SEQUENCE_TARGETS = 32  # targets along a sequence, of which many are not always afforded
MAX_LOGITS = 40_000_000  # held at once
MAX_MATRIX_CLASSES = 50  # classes of which a matrix can be read


@dataclass(frozen=True)
class Lens:
    """A section of the report: what it is called and says, whether it applies, and how it is
    computed.
    """

    title: str
    says: str
    applies: Callable[[Outcome], bool]
    compute: Callable[[Outcome], Any]
    tells: Callable[[Any], Mapping[str, str]]
    rows: Callable[[Any], Sequence[Mapping[str, str]]]


class LensUnavailable(Exception):
    """Raised by a lens that cannot look at this outcome, with the reason, which the page tells."""


LENSES: list[Lens] = []


def lens(
    title: str,
    *,
    says: str,
    applies: Callable[[Outcome], bool] = lambda outcome: True,
    of: Literal["network", "process"] = "network",
    tells: Callable[[Any], Mapping[str, str]] = lambda result: {},
    rows: Callable[[Any], Sequence[Mapping[str, str]]] = lambda result: (),
) -> Callable[[Callable[[Outcome], Any]], Callable[[Outcome], Any]]:
    """Adds a function of an outcome to every report from now on: to that of a network, or of a
    Gaussian process.
    """

    def suits(outcome: Outcome) -> bool:
        return isinstance(outcome.model, GaussianProcess) == (of == "process")

    def register(compute: Callable[[Outcome], Any]) -> Callable[[Outcome], Any]:
        LENSES.append(
            Lens(
                title,
                says,
                lambda outcome: suits(outcome) and applies(outcome),
                compute,
                tells,
                rows,
            )
        )
        return compute

    return register


def subsample(data: Batch, count: int) -> Batch:
    """At most `count` of the examples, evenly spread over the data; fewer where each has a target
    at many times.

    >>> subsample((np.arange(10), np.arange(10)), 3)[0].tolist()
    [0, 4, 9]
    """
    n = len(jax.tree.leaves(data)[0])
    count = max(min(count, MIN_EXAMPLES), count // max(1, _targets(data) // TARGETS_PER_EXAMPLE))
    chosen = np.linspace(0, n - 1, min(n, count)).astype(int)
    return data if n <= count else jax.tree.map(lambda a: a[chosen], data)


def _targets(data: Batch) -> int:
    """How many tokens are asked for in an example."""
    ys: Any = data[1] if isinstance(data, tuple) and len(data) == 2 else ()
    tokens = np.ndim(ys) == 2 and np.issubdtype(ys.dtype, np.integer)
    return ys.shape[1] if tokens else 1


def is_classifier(outcome: Outcome) -> bool:
    """Whether the outcome has classes to tell apart, one for each example and not one for each
    time.
    """
    return len(outcome.classes) > 1 and not (outcome.tokens and np.ndim(outcome.test[1]) > 1)


def format_percent(share: float) -> str:
    """A share as a reader wants it."""
    return f"{100 * share:.2f} %"

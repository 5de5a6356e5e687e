"""The registry of lenses: what a lens is, when it applies, and how many examples it may use."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np

from ..bayes import GaussianProcess
from ..core import Batch
from ..recipes.engine.outcome import Outcome

SEEN = 2000  # examples for activations and gradients
BENT = 1000  # examples for curvature
WORK = 30_000_000  # operations of their predictions on a CPU, for what is slow at curvature
DEAR = 10**10  # operations of the fewest, at which curvature takes a CPU minutes
SHORT, FEW = (
    10,
    16,
)  # targets along a sequence that count as one example, and examples that are always afforded
LONG = 32  # targets along a sequence, of which many are not always afforded
LOGITS = 40_000_000  # held at once
SHOWN = 50  # classes of which a matrix can be read


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


class NotSeen(Exception):
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


def some(data: Batch, count: int) -> Batch:
    """At most `count` of the examples, evenly spread over the data; fewer where each has a target
    at many times.

    >>> some((np.arange(10), np.arange(10)), 3)[0].tolist()
    [0, 4, 9]
    """
    n = len(jax.tree.leaves(data)[0])
    count = max(min(count, FEW), count // max(1, _targets(data) // SHORT))
    chosen = np.linspace(0, n - 1, min(n, count)).astype(int)
    return data if n <= count else jax.tree.map(lambda a: a[chosen], data)


def _targets(data: Batch) -> int:
    """How many tokens are asked for in an example."""
    ys: Any = data[1] if isinstance(data, tuple) and len(data) == 2 else ()
    tokens = np.ndim(ys) == 2 and np.issubdtype(ys.dtype, np.integer)
    return ys.shape[1] if tokens else 1


def classifies(outcome: Outcome) -> bool:
    """Whether the outcome has classes to tell apart, one for each example and not one for each
    time.
    """
    return len(outcome.classes) > 1 and not (outcome.tokens and np.ndim(outcome.test[1]) > 1)


def percent(share: float) -> str:
    """A share as a reader wants it."""
    return f"{100 * share:.2f} %"

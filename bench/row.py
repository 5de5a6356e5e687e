"""One comparison: the same work done by us and by a peer, first shown to be the same, then timed in
turns.

Turns (ours, theirs, ours, theirs, ...) put both sides through the same weather, so that the ratio
of a pair means more than either of its numbers; the median of the pairs is the answer and their
quartiles its doubt.
"""

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

REST = 0.25  # seconds between turns, in which the threads of the last one fall asleep


class Missing(Exception):
    """A peer that cannot take part here, and why."""


def library(name: str) -> Any:
    """A peer's module; `Missing` where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise Missing("not installed") from None


@dataclass(frozen=True)
class Work:
    """What one unit of a row costs at the very least: arithmetic, and bytes that must move."""

    operations: float
    bytes: float

    def floor(self, operations_per_second: float, bytes_per_second: float) -> float:
        """Seconds below which no machine of these limits can do it, arithmetic and traffic side by
        side.
        """
        return max(self.operations / operations_per_second, self.bytes / bytes_per_second)


@dataclass(frozen=True)
class Row:
    """A comparison to be made. Both sides do their work and return its cost in the unit: less is
    better.
    """

    name: str
    peer: str
    ours: Callable[[], float]
    theirs: Callable[[], float]
    unit: str
    check: Callable[[], None]  # raises unless both sides compute the same
    pairs: int = 7
    target: float | None = None  # the ratio we want
    work: Work | None = None  # per unit of `ours`
    seconds: float = 1e-3  # in one unit
    remark: Callable[["Result"], str] = lambda result: ""


@dataclass(frozen=True)
class Result:
    """A comparison made. `trouble` says why a number is missing; only a failure counts against
    us.
    """

    row: Row
    ours: float | None = None
    theirs: float | None = None
    ratio: float | None = None
    spread: float | None = None
    trouble: str = ""
    failed: bool = False

    def as_json(self) -> dict[str, Any]:
        """A row of the JSON file; `ratio` > 1 means that we are better."""
        peer = f"{self.row.peer} ({self.trouble})" if self.trouble else self.row.peer
        numbers = {name: getattr(self, name) for name in ("ours", "theirs", "ratio", "spread")}
        rounded = {
            name: None if value is None else float(f"{value:.6g}")
            for name, value in numbers.items()
        }
        return {
            "name": self.row.name,
            "peer": peer,
            "ours": rounded["ours"],
            "theirs": rounded["theirs"],
            "unit": self.row.unit,
            "ratio": rounded["ratio"],
            "spread": rounded["spread"],
        }


def compare(row: Row, *, say: Callable[[str], None] = lambda text: None) -> Result:
    """Checks, warms up, then lets both sides take turns; trouble becomes part of the result."""
    try:
        say("checking that both compute the same")
        row.check()
        say("warming up")
        for side in (row.ours, row.theirs):
            side()
        ours = []
        theirs = []
        for turn in range(row.pairs):
            say(f"pair {turn + 1} of {row.pairs}")
            for side, costs in ((row.ours, ours), (row.theirs, theirs)):
                time.sleep(REST)
                costs.append(side())
        ratios = [b / a for a, b in zip(ours, theirs)]
        return Result(row, median(ours), median(theirs), median(ratios), spread(ratios))
    except Missing as reason:
        return _alone(row, str(reason), say)
    except Exception as error:
        return Result(row, trouble=_first_line(error), failed=True)


def spread(values: list[float]) -> float:
    """The interquartile range.

    >>> spread([1.0, 2.0, 3.0, 4.0, 5.0])
    2.0
    """
    low, _, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return high - low


def _alone(row: Row, reason: str, say: Callable[[str], None]) -> Result:
    """Ours without the peer: a number, and no verdict."""
    try:
        say(f"{row.peer}: {reason}; measuring ours alone")
        row.ours()
        costs = []
        for _ in range(row.pairs):
            time.sleep(REST)
            costs.append(row.ours())
        return Result(row, ours=median(costs), trouble=reason)
    except Exception as error:
        return Result(row, trouble=_first_line(error), failed=True)


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return (
        f"failed: {type(error).__name__}: {text[0][:160]}"
        if text
        else f"failed: {type(error).__name__}"
    )

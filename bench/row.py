"""One comparison: the same work by thetax and by a peer, checked to agree and then timed in turns.

Timing in turns (ours, theirs, ours, theirs, ...) exposes both sides to the same load of the
machine, so the ratio of a pair is more reliable than its two numbers. The result is the median of
the ratios, with their interquartile range.
"""

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

PAUSE = 0.25  # seconds between turns, for the threads of the last one to become idle


class Missing(Exception):
    """A peer that is not available here, and the reason."""


def library(name: str) -> Any:
    """The module of a peer; raises `Missing` if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise Missing("not installed") from None


@dataclass(frozen=True)
class Work:
    """A lower bound of the cost of one unit of a row: operations, and bytes of memory traffic."""

    operations: float
    bytes: float

    def floor(self, operations_per_second: float, bytes_per_second: float) -> float:
        """The least seconds on a machine with these limits, if both overlap perfectly."""
        return max(self.operations / operations_per_second, self.bytes / bytes_per_second)


@dataclass(frozen=True)
class Row:
    """A comparison. Both sides do the work and return its cost in `unit`; lower is better."""

    name: str
    peer: str
    ours: Callable[[], float]
    theirs: Callable[[], float]
    unit: str
    check: Callable[[], None]  # raises unless both sides agree
    pairs: int = 7
    target: float | None = None  # target of the ratio
    work: Work | None = None  # per unit of `ours`
    seconds: float = 1e-3  # per unit
    remark: Callable[["Result"], str] = lambda result: ""


@dataclass(frozen=True)
class Result:
    """The result of a comparison. `error` is the reason if a number is missing."""

    row: Row
    ours: float | None = None
    theirs: float | None = None
    ratio: float | None = None
    spread: float | None = None
    error: str = ""
    failed: bool = False

    def as_json(self) -> dict[str, Any]:
        """A row of the JSON file; a `ratio` > 1 means that thetax is better."""
        peer = f"{self.row.peer} ({self.error})" if self.error else self.row.peer
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
    """Checks, warms up and times both sides in turns; an error becomes part of the result."""
    try:
        say("checking that both sides agree")
        row.check()
        say("warming up")
        for side in (row.ours, row.theirs):
            side()
        ours = []
        theirs = []
        for turn in range(row.pairs):
            say(f"pair {turn + 1} of {row.pairs}")
            for side, costs in ((row.ours, ours), (row.theirs, theirs)):
                time.sleep(PAUSE)
                costs.append(side())
        ratios = [b / a for a, b in zip(ours, theirs)]
        return Result(row, median(ours), median(theirs), median(ratios), spread(ratios))
    except Missing as reason:
        return _alone(row, str(reason), say)
    except Exception as error:
        return Result(row, error=_first_line(error), failed=True)


def spread(values: list[float]) -> float:
    """The interquartile range.

    >>> spread([1.0, 2.0, 3.0, 4.0, 5.0])
    2.0
    """
    low, _, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return high - low


def _alone(row: Row, reason: str, say: Callable[[str], None]) -> Result:
    """Times ours without the peer."""
    try:
        say(f"{row.peer}: {reason}; measuring ours alone")
        row.ours()
        costs = []
        for _ in range(row.pairs):
            time.sleep(PAUSE)
            costs.append(row.ours())
        return Result(row, ours=median(costs), error=reason)
    except Exception as error:
        return Result(row, error=_first_line(error), failed=True)


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return (
        f"failed: {type(error).__name__}: {text[0][:160]}"
        if text
        else f"failed: {type(error).__name__}"
    )

r"""A check compares a measured value with an expected one and records the method.

| check | holds when |
|---|---|
| `equal` | every entry is the same, to the last bit |
| `close` | the largest difference is within the tolerance |
| `at_most`, `at_least` | no entry passes its bound by more than the slack |
| `between` | the number lies in a range |
| `decreasing`, `increasing` | the sequence is strictly decreasing (increasing) |
| `within` | the difference is within its statistical error, at a stated false-alarm rate |
| `not_rejected` | a p-value is above a stated false-alarm rate |
| `refuted` | another check does not hold: a control that must fail |

NaN passes no check, and empty arrays are an error: a check must be able to fail.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from scipy.special import ndtri

# How a check compares.
Method = Literal[
    "exact", "closed form", "brute force", "finite differences", "statistical", "trend"
]
Shown = float | int | bool | str | list[Any] | None
MAX_LISTED = 6  # longer arrays are summarised


@dataclass(frozen=True)
class Check:
    """The result of a comparison: whether it holds, both sides as text, and the method."""

    name: str
    holds: bool
    measured: Shown
    expected: Shown
    tolerance: float | None = None
    method: Method = "exact"
    false_alarm: float | None = None

    def __post_init__(self):
        if self.method not in get_args(Method):
            raise ValueError(
                f"{self.name}: method must be one of {', '.join(get_args(Method))}; got "
                f"{self.method!r}."
            )
        if (self.method == "statistical") != (self.false_alarm is not None):
            raise ValueError(
                f"{self.name}: a statistical check needs false_alarm, and no other check takes it."
            )


def equal(name: str, measured: Any, expected: Any, *, method: Method = "exact") -> Check:
    """Every entry is the same.

    >>> equal("C(3, 2)", 6, 6).holds, equal("bits", np.array([1, 2]), np.array([1, 3])).holds
    (True, False)
    """
    a, b = _pair(name, measured, expected)
    same = np.asarray(a == b)
    if a.size <= MAX_LISTED:
        return Check(name, bool(same.all()), _shown(a), _shown(b), method=method)
    return Check(
        name,
        bool(same.all()),
        f"{same.sum():,} of {same.size:,} equal",
        f"all {same.size:,}",
        method=method,
    )


def close(
    name: str,
    measured: Any,
    expected: Any,
    *,
    tolerance: float = 1e-12,
    relative: bool = False,
    method: Method = "closed form",
) -> Check:
    """The largest absolute difference is within the tolerance.

    With `relative`, the difference is divided by the largest absolute expected entry.

    >>> close("sin", np.sin([0.0, 1e-4]), np.array([0.0, 1e-4]), tolerance=1e-9).holds
    True
    >>> close("NaN", np.nan, 0.0, tolerance=1.0).holds
    False
    """
    a, b = _pair(name, measured, expected)
    a = np.asarray(a, complex if np.iscomplexobj(a) else float)
    b = np.asarray(b)
    scale = float(np.abs(b).max()) or 1.0
    error = float(np.abs(a - b).max()) / (scale if relative else 1.0)
    holds = bool(error <= tolerance)
    if a.size == 1 and not np.iscomplexobj(a):
        return Check(
            name, holds, _shown(a), _shown(b), tolerance * (scale if relative else 1.0), method
        )
    kind = "largest relative difference" if relative else "largest difference"
    return Check(f"{name}: {kind}", holds, error, 0.0, tolerance, method)


def close_derivative(
    name: str, measured: Any, expected: Any, *, tolerance: float = 1e-8, relative: bool = False
) -> Check:
    """`close` for a derivative and its finite differences, one of which is `measured`.

    >>> close_derivative("sin", 1.0, np.sin(1e-4) / 1e-4).holds
    True
    """
    return close(
        name,
        measured,
        expected,
        tolerance=tolerance,
        relative=relative,
        method="finite differences",
    )


def at_most(
    name: str, measured: Any, bound: Any, *, slack: float = 0.0, method: Method = "brute force"
) -> Check:
    """No entry exceeds its bound by more than the slack; the worst entry is shown.

    >>> check = at_most("updates", np.array([3, 9]), np.array([4, 8]))
    >>> check.holds, check.measured, check.expected
    (False, 9, '≤ 8')
    """
    return _bounded(name, measured, bound, slack, method, sign=1)


def at_least(
    name: str, measured: Any, bound: Any, *, slack: float = 0.0, method: Method = "brute force"
) -> Check:
    """No entry falls short of its bound by more than the slack; the worst entry is shown."""
    return _bounded(name, measured, bound, slack, method, sign=-1)


def _bounded(name, measured, bound, slack, method, *, sign):
    a = np.asarray(measured)
    b = np.asarray(bound)
    if not a.size or not b.size:
        raise ValueError(f"{name}: expected at least one value to compare; got an empty array.")
    a, b = np.broadcast_arrays(a, b)
    excess = np.where(
        np.isnan(a) | np.isnan(b), np.inf, sign * (np.asarray(a, float) - np.asarray(b, float))
    )
    worst = int(excess.argmax())
    low_or_high = "≤" if sign == 1 else "≥"
    shown = f"{low_or_high} {_text(b.ravel()[worst])}"
    holds = bool((excess <= slack).all())
    return Check(name, holds, _shown(a.ravel()[worst]), shown, slack or None, method)


def between(
    name: str, measured: float, low: float, high: float, *, method: Method = "trend"
) -> Check:
    """The number lies in the closed range.

    >>> between("slope", -1.02, -1.1, -0.9).holds
    True
    """
    value = float(measured)
    return Check(
        name, bool(low <= value <= high), value, f"{_text(low)} to {_text(high)}", method=method
    )


def decreasing(name: str, values: Any, *, method: Method = "trend") -> Check:
    """The sequence is strictly decreasing.

    >>> decreasing("error", [0.5, 0.3, 0.3]).holds
    False
    """
    return _ordered(name, values, method, "falling", -1)


def increasing(name: str, values: Any, *, method: Method = "trend") -> Check:
    """The sequence is strictly increasing."""
    return _ordered(name, values, method, "rising", 1)


def _ordered(name, values, method, word, sign):
    a = np.asarray(values, float)
    if a.ndim != 1 or len(a) < 2:
        raise ValueError(f"{name}: expected a vector of at least two values; got shape {a.shape}.")
    shown = _shown(a) if len(a) <= MAX_LISTED else f"{_text(a[0])} … {_text(a[-1])}"
    return Check(name, bool((sign * np.diff(a) > 0).all()), shown, word, method=method)


def within(
    name: str, measured: Any, expected: Any, *, error: Any, false_alarm: float = 1e-5
) -> Check:
    r"""$|\hat\mu - \mu| \le z\,\hat s$ with $z$ from the false-alarm rate, for normal errors.

    `error` is the standard error $\hat s$. For several values the rate is divided by their number
    (Bonferroni).

    >>> within("mean", 0.02, 0.0, error=0.01).tolerance < 0.05
    True
    >>> within("mean", 0.1, 0.0, error=0.01).holds
    False
    """
    a, b = _pair(name, measured, expected)
    s = np.broadcast_to(np.asarray(error, float), a.shape)
    if not ((s > 0) & np.isfinite(s)).all():
        raise ValueError(f"{name}: a standard error must be positive and finite; got {s.min()}.")
    z = -float(ndtri(false_alarm / 2 / a.size))
    off = np.where(np.isnan(np.asarray(a, float)), np.inf, np.abs(np.asarray(a, float) - b) / s)
    worst = int(off.argmax())
    return Check(
        name,
        bool((off <= z).all()),
        _shown(a.ravel()[worst]),
        _shown(b.ravel()[worst]),
        z * float(s.ravel()[worst]),
        "statistical",
        false_alarm,
    )


def not_rejected(name: str, p_value: float, *, false_alarm: float = 1e-4) -> Check:
    """The p-value of a test is at least the false-alarm rate.

    >>> not_rejected("normal", 0.3).holds
    True
    """
    value = float(p_value)
    return Check(
        name,
        bool(value >= false_alarm),
        value,
        f"p ≥ {false_alarm:g}",
        None,
        "statistical",
        false_alarm,
    )


def refuted(check: Check) -> Check:
    """A negative control: the given check must fail, and its measured value must not be NaN.

    >>> control = refuted(close("wrong sign", 1.0, -1.0, tolerance=1e-6))
    >>> control.holds, control.expected
    (True, 'not -1')
    """
    holds = not check.holds and is_known(check)
    return replace(
        check, name=f"must fail: {check.name}", holds=holds, expected=f"not {_text(check.expected)}"
    )


def is_known(check: Check) -> bool:
    """Whether the measured value contains no NaN."""
    values = check.measured if isinstance(check.measured, list) else [check.measured]
    return not any(isinstance(value, float) and np.isnan(value) for value in values)


def _pair(name: str, measured: Any, expected: Any) -> tuple[np.ndarray, np.ndarray]:
    a = np.asarray(measured)
    b = np.asarray(expected)
    if a.shape != b.shape and b.ndim:
        raise ValueError(f"{name}: shapes differ, {a.shape} measured and {b.shape} expected.")
    if not a.size:
        raise ValueError(f"{name}: expected at least one value to compare; got an empty array.")
    return a, np.broadcast_to(b, a.shape)


def _shown(value: Any) -> Shown:
    """The value as JSON can hold it: a number, a string or a short list."""
    a = np.asarray(value)
    return a.item() if a.size == 1 else a.tolist()


def _text(value: Any) -> str:
    value = _shown(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)

"""What is searched: eight knobs of a network and its training, each fixed, chosen from a list or
from a range.
"""

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeAlias

Number: TypeAlias = int | float


@dataclass(frozen=True)
class Range:
    """All numbers from `low` to `high`; whole ones if both ends are; on a logarithmic scale if
    asked.

    >>> Range(1e-4, 1e-1, log=True).high
    0.1
    """

    low: Number
    high: Number
    log: bool = False

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are meant."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}" + " (log)" * self.log


@dataclass(frozen=True, init=False)
class Choice:
    """One of several numbers.

    >>> Choice(32, 64).options
    (32, 64)
    """

    options: tuple[Number, ...]

    def __init__(self, *options: Number):
        object.__setattr__(self, "options", tuple(options))

    def __str__(self) -> str:
        return ", ".join(f"{option:g}" for option in self.options)


Place: TypeAlias = Range | Choice | Number
Space: TypeAlias = Mapping[str, Place]


class Setting(NamedTuple):
    """One point of a space: the network `hidden`, and how it is trained."""

    width: int = 64
    depth: int = 1
    weight_decay: Number = 0.0
    dropout: Number = 0.0
    label_smoothing: Number = 0.0
    learning_rate: Number = 1e-3
    batch_size: int = 64
    epochs: int = 30

    @property
    def hidden(self) -> tuple[int, ...]:
        """The widths of the hidden layers.

        >>> Setting(width=32, depth=2).hidden
        (32, 32)
        """
        return (self.width,) * self.depth


SHAPE = ("width", "depth", "batch_size")  # what a compiled program is made for
WHOLE = ("width", "depth", "batch_size", "epochs")
LEAST = {
    "width": 1,
    "depth": 0,
    "weight_decay": 0,
    "dropout": 0,
    "label_smoothing": 0,
    "learning_rate": 0,
    "batch_size": 1,
    "epochs": 1,
}


def check_space(space: Mapping[str, Any]) -> dict[str, Any]:
    """The space as a plain dict; refuses one that cannot be meant, or in which there is nothing to
    search.

    >>> check_space({"with": Choice(1, 2)})
    Traceback (most recent call last):
    ValueError: tune: the space has an unknown parameter 'with'; did you mean width? Known: ...
    """
    for name, place in space.items():
        if name not in Setting._fields:
            near = difflib.get_close_matches(str(name), Setting._fields, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]}? " if near else ""
            known = ", ".join(Setting._fields)
            raise ValueError(
                f"tune: the space has an unknown parameter {name!r}; {hint}Known: {known}."
            )
        _check_place(name, place)
    if all(len(_ends(place)) == 1 for place in space.values()):
        raise ValueError(
            "tune: the search space is empty, every parameter has one value; give at least one a "
            "Range or a Choice, "
            'e.g. {"learning_rate": Range(1e-4, 1e-1, log=True)}.'
        )
    return dict(space)


def _ends(place: Any) -> tuple[Any, ...]:
    """The values that decide whether a place is in bounds; one alone if it is fixed."""
    if isinstance(place, Range):
        return tuple(dict.fromkeys((place.low, place.high)))
    return place.options if isinstance(place, Choice) else (place,)


def _check_place(name: str, place: Any) -> None:
    values = _ends(place)
    if not values:
        raise ValueError(f"tune: {name} has no options; give Choice at least one number.")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(
                f"tune: {name} must be a number, a Range or a Choice of numbers; got {value!r}."
            )
        if name in WHOLE and not isinstance(value, int):
            raise ValueError(
                f"tune: {name} counts something and must be a whole number; got {value!r}."
            )
        if not LEAST[name] <= value < float("inf"):
            raise ValueError(f"tune: {name} must be at least {LEAST[name]}; got {value!r}.")
    if isinstance(place, Range) and place.low > place.high:
        raise ValueError(
            f"tune: {name} ranges from {place.low} to {place.high}; the low end comes first."
        )
    if isinstance(place, Range) and place.log and place.low <= 0:
        raise ValueError(
            f"tune: {name} on a logarithmic scale must begin above 0; got {place.low}."
        )
    if name == "learning_rate" and min(values) <= 0:
        raise ValueError(f"tune: learning_rate must be more than 0; got {min(values)}.")
    if name == "dropout" and max(values) >= 1:
        raise ValueError(
            f"tune: dropout is the probability of dropping, less than 1; got {max(values)}."
        )
    if name == "label_smoothing" and max(values) > 1:
        raise ValueError(
            f"tune: label_smoothing is a fraction of the label, in [0, 1]; got {max(values)}."
        )


def largest(space: Space, name: str) -> Number:
    """The largest value a parameter can take."""
    return max(_ends(space.get(name, getattr(Setting(), name))))


def described(space: Space) -> dict[str, Any]:
    """The space as JSON has it."""
    return {
        name: place
        if isinstance(place, int | float)
        else [type(place).__name__, *map(_plain, asdict(place).values())]
        for name, place in sorted(space.items())
    }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def parse(name: str, text: str) -> Place:
    """A place as the command line has it: `0.1`, `16,32,64` or `1e-4:1e-1`; ranges of rate and
    decay are logarithmic.

    >>> parse("learning_rate", "1e-4:1e-1"), parse("width", "16,32"), parse("epochs", "40")
    (Range(low=0.0001, high=0.1, log=True), Choice(options=(16, 32)), 40)
    """
    try:
        if ":" in text:
            low, high = map(_number, text.split(":"))
            return Range(low, high, log=name in ("learning_rate", "weight_decay") and low > 0)
        numbers = [_number(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(
            f"tune: {name} is a number, numbers between commas, or low:high; got {text!r}, e.g. "
            "16,32,64 or 1e-4:1e-1."
        ) from None
    return numbers[0] if len(numbers) == 1 else Choice(*numbers)


def _number(text: str) -> Number:
    try:
        return int(text)
    except ValueError:
        return float(text)

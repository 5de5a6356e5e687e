"""Search spaces: eight hyper-parameters of a network and its training, each fixed, a choice or a
range.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeAlias

from ...check import suggest

Number: TypeAlias = int | float


@dataclass(frozen=True)
class Range:
    """All numbers from `low` to `high`; integers if both ends are integers.

    With `log=True` the search samples on a logarithmic scale.

    >>> Range(1e-4, 1e-1, log=True).high
    0.1
    """

    low: Number
    high: Number
    log: bool = False

    @property
    def is_integer(self) -> bool:
        """Whether the range holds integers only."""
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


Domain: TypeAlias = Range | Choice | Number  # what one hyper-parameter may be
Space: TypeAlias = Mapping[str, Domain]


class Setting(NamedTuple):
    """Hyper-parameters of a network and its training: one point of a search space."""

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


SHAPE_PARAMETERS = ("width", "depth", "batch_size")  # a compiled program has one value of each
INTEGER_PARAMETERS = ("width", "depth", "batch_size", "epochs")
MINIMUM = {
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
    """The space as a plain dict; raises `ValueError` if it is invalid or has nothing to search.

    >>> check_space({"with": Choice(1, 2)})
    Traceback (most recent call last):
    ValueError: tune: the space has an unknown parameter 'with'; did you mean width? Known: ...
    """
    for name, domain in space.items():
        if name not in Setting._fields:
            known = ", ".join(Setting._fields)
            raise ValueError(
                f"tune: the space has an unknown parameter {name!r}; "
                f"{suggest(name, Setting._fields, n=1)}Known: {known}."
            )
        _check_domain(name, domain)
    if all(len(_extremes(domain)) == 1 for domain in space.values()):
        raise ValueError(
            "tune: the search space is empty, as every parameter has one value. Give at least one "
            'parameter a Range or a Choice, e.g. {"learning_rate": Range(1e-4, 1e-1, log=True)}.'
        )
    return dict(space)


def _extremes(domain: Any) -> tuple[Any, ...]:
    """The values to check against the bounds: both ends of a range, all options of a choice."""
    if isinstance(domain, Range):
        return tuple(dict.fromkeys((domain.low, domain.high)))
    return domain.options if isinstance(domain, Choice) else (domain,)


def _check_domain(name: str, domain: Any) -> None:
    values = _extremes(domain)
    if not values:
        raise ValueError(f"tune: {name} has no options. Give Choice at least one number.")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(
                f"tune: {name} must be a number, a Range or a Choice of numbers; got {value!r}."
            )
        if name in INTEGER_PARAMETERS and not isinstance(value, int):
            raise ValueError(f"tune: {name} must be an integer; got {value!r}.")
        if not MINIMUM[name] <= value < float("inf"):
            raise ValueError(f"tune: {name} must be finite and >= {MINIMUM[name]}; got {value!r}.")
    if isinstance(domain, Range) and domain.low > domain.high:
        raise ValueError(
            f"tune: {name} must be a Range(low, high) with low <= high; got low={domain.low} and "
            f"high={domain.high}."
        )
    if isinstance(domain, Range) and domain.log and domain.low <= 0:
        raise ValueError(
            f"tune: a logarithmic Range of {name} must begin above 0; got low={domain.low}."
        )
    if name == "learning_rate" and min(values) <= 0:
        raise ValueError(f"tune: learning_rate must be > 0; got {min(values)}.")
    if name == "dropout" and max(values) >= 1:
        raise ValueError(f"tune: dropout must be a probability < 1; got {max(values)}.")
    if name == "label_smoothing" and max(values) > 1:
        raise ValueError(f"tune: label_smoothing must be in [0, 1]; got {max(values)}.")


def max_value(space: Space, name: str) -> Number:
    """The largest value a hyper-parameter can take in the space."""
    return max(_extremes(space.get(name, getattr(Setting(), name))))


def space_to_json(space: Space) -> dict[str, Any]:
    """The space as values that JSON can hold."""
    return {
        name: domain
        if isinstance(domain, int | float)
        else [type(domain).__name__, *map(_tuple_to_list, asdict(domain).values())]
        for name, domain in sorted(space.items())
    }


def _tuple_to_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def parse_domain(name: str, text: str) -> Domain:
    """Parses a command-line value: `0.1` (fixed), `16,32,64` (choice) or `1e-4:1e-1` (range).

    Ranges of the learning rate and of the weight decay are logarithmic.

    >>> parse_domain("learning_rate", "1e-4:1e-1"), parse_domain("width", "16,32")
    (Range(low=0.0001, high=0.1, log=True), Choice(options=(16, 32)))
    >>> parse_domain("epochs", "40")
    40
    """
    try:
        if ":" in text:
            low, high = map(_parse_number, text.split(":"))
            return Range(low, high, log=name in ("learning_rate", "weight_decay") and low > 0)
        numbers = [_parse_number(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(
            f"tune: {name} must be a number, numbers separated by commas, or low:high; got "
            f"{text!r}. Examples: 16,32,64 or 1e-4:1e-1."
        ) from None
    return numbers[0] if len(numbers) == 1 else Choice(*numbers)


def _parse_number(text: str) -> Number:
    try:
        return int(text)
    except ValueError:
        return float(text)

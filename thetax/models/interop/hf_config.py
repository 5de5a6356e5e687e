r"""The settings of a network as transformers' `config.json` has them, each asked for with what it
must be.

A file from outside is only data: every number is held against a bound before a model is shaped by
it, and a setting that these models do not have is refused by its name, so that no network is
silently another one.
"""

import reprlib
from collections.abc import Mapping
from typing import Any

from ...layers import Activation, gelu, gelu_tanh, identity, relu, sigmoid, silu, tanh

LARGEST, DEEPEST = 1 << 22, 1 << 10  # of one size; of the layers
HIGHEST = 1e30  # of numbers that are no sizes
ACTIVATIONS: dict[str, Activation] = {
    "gelu": gelu,
    "gelu_new": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "gelu_fast": gelu_tanh,
    "silu": silu,
    "swish": silu,
    "relu": relu,
    "tanh": tanh,
    "sigmoid": sigmoid,
    "linear": identity,
}


class HFConfig:
    """What a `config.json` says; what it does not say, or says null to, is the default.

    >>> settings = HFConfig({"hidden_size": 8, "n_layer": 1e9, "is_decoder": True})
    >>> settings.integer("hidden_size"), settings.number("layer_norm_eps", 1e-12)
    (8, 1e-12)
    >>> settings.integer("n_layer")
    Traceback (most recent call last):
    ValueError: config.json: n_layer is 1000000000.0; expected a whole number from 1 to 4,194,304.
    >>> settings.require(is_decoder=False)
    Traceback (most recent call last):
    ValueError: config.json: is_decoder is True; expected False, which is all this library has.
    """

    def __init__(self, config: Mapping[str, Any]):
        self.config = config

    def get(self, name: str, default: Any = None) -> Any:
        """As it is written."""
        found = self.config.get(name)
        return default if found is None else found

    def error(self, name: str, expected: str) -> ValueError:
        """The complaint about a setting."""
        return ValueError(
            f"config.json: {name} is {reprlib.repr(self.config.get(name))}; expected {expected}."
        )

    def integer(self, name: str, default: int | None = None, *, most: int = LARGEST) -> int:
        """A size."""
        found = self.get(name, default)
        if type(found) is not int or not 1 <= found <= most:
            raise self.error(name, f"a whole number from 1 to {most:,}")
        return found

    def height_width(self, name: str, default: int) -> tuple[int, int]:
        """Height and width; one number is both."""
        found = self.get(name, default)
        both = found if isinstance(found, list) else [found, found]
        if len(both) != 2 or not all(type(one) is int and 1 <= one <= LARGEST for one in both):
            raise self.error(name, f"one or two whole numbers from 1 to {LARGEST:,}")
        return both[0], both[1]

    def number(self, name: str, default: float) -> float:
        """A number more than 0, within reason."""
        found = self.get(name, default)
        if type(found) not in (int, float) or not 0 < found < HIGHEST:
            raise self.error(name, "a number more than 0")
        return float(found)

    def probability(self, name: str, default: float) -> float:
        """How often something is dropped."""
        found = self.get(name, default)
        if type(found) not in (int, float) or not 0 <= found < 1:
            raise self.error(name, "a probability less than 1")
        return float(found)

    def activation(self, name: str, default: str) -> Activation:
        """A function by its name."""
        found = self.get(name, default)
        if not isinstance(found, str) or found not in ACTIVATIONS:
            raise self.error(name, "one of " + ", ".join(ACTIVATIONS))
        return ACTIVATIONS[found]

    def require(self, **settings: Any) -> None:
        """Refuses any other value than the one this library has; what is not said has it."""
        for name, value in settings.items():
            if self.get(name, value) != value:
                expected = (
                    "no such setting"
                    if value is None
                    else f"{value!r}, which is all this library has"
                )
                raise self.error(name, expected)

    def boolean(self, name: str, default: bool) -> bool:
        """Yes or no."""
        found = self.get(name, default)
        if not isinstance(found, bool):
            raise self.error(name, "true or false")
        return found

    def by_architecture(self, known: Mapping[str, Any]) -> Any:
        """What belongs to the first architecture; to the first known where none is named."""
        named = self.get("architectures", [])
        name = named[0] if isinstance(named, list) and named else next(iter(known))
        if not isinstance(name, str) or name not in known:
            raise self.error("architectures", "one of " + ", ".join(known))
        return known[name]

    def classes(self) -> int:
        """How many there are."""
        labels = self.get("id2label")
        return len(labels) if isinstance(labels, dict) and labels else self.integer("num_labels", 2)

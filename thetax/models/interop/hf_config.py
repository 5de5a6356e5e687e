r"""Reading the settings of Hugging Face's `config.json`, with validation.

The file is untrusted: every size is checked against a bound before a model is built. An unsupported
setting raises `ValueError` with its name, so that no network is silently built differently.
"""

import reprlib
from collections.abc import Mapping
from typing import Any

from ...layers import Activation, gelu, gelu_tanh, identity, relu, sigmoid, silu, tanh

MAX_SIZE = 1 << 22  # of one dimension
MAX_DEPTH = 1 << 10  # number of layers
MAX_NUMBER = 1e30  # of settings that are not sizes
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
    """The settings of a `config.json`; a missing setting or null means the default.

    >>> settings = HFConfig({"hidden_size": 8, "n_layer": 1e9, "is_decoder": True})
    >>> settings.integer("hidden_size"), settings.number("layer_norm_eps", 1e-12)
    (8, 1e-12)
    >>> settings.integer("n_layer")
    Traceback (most recent call last):
    ValueError: config.json: n_layer is 1000000000.0; expected an integer from 1 to 4,194,304.
    >>> settings.require(is_decoder=False)
    Traceback (most recent call last):
    ValueError: config.json: is_decoder is True; expected False; other values are not supported.
    """

    def __init__(self, config: Mapping[str, Any]):
        self.config = config

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a setting, or the default."""
        value = self.config.get(name)
        return default if value is None else value

    def error(self, name: str, expected: str) -> ValueError:
        """The error for an invalid setting."""
        return ValueError(
            f"config.json: {name} is {reprlib.repr(self.config.get(name))}; expected {expected}."
        )

    def integer(self, name: str, default: int | None = None, *, maximum: int = MAX_SIZE) -> int:
        """A positive integer."""
        value = self.get(name, default)
        if type(value) is not int or not 1 <= value <= maximum:
            raise self.error(name, f"an integer from 1 to {maximum:,}")
        return value

    def height_width(self, name: str, default: int) -> tuple[int, int]:
        """Height and width; a single number is both."""
        value = self.get(name, default)
        both = value if isinstance(value, list) else [value, value]
        if len(both) != 2 or not all(type(one) is int and 1 <= one <= MAX_SIZE for one in both):
            raise self.error(name, f"one or two integers from 1 to {MAX_SIZE:,}")
        return both[0], both[1]

    def number(self, name: str, default: float) -> float:
        """A positive number below `MAX_NUMBER`."""
        value = self.get(name, default)
        if type(value) not in (int, float) or not 0 < value < MAX_NUMBER:
            raise self.error(name, "a number > 0")
        return float(value)

    def probability(self, name: str, default: float) -> float:
        """A dropout probability."""
        value = self.get(name, default)
        if type(value) not in (int, float) or not 0 <= value < 1:
            raise self.error(name, "a probability in [0, 1)")
        return float(value)

    def activation(self, name: str, default: str) -> Activation:
        """An activation function by its name."""
        value = self.get(name, default)
        if not isinstance(value, str) or value not in ACTIVATIONS:
            raise self.error(name, "one of " + ", ".join(ACTIVATIONS))
        return ACTIVATIONS[value]

    def require(self, **settings: Any) -> None:
        """Raises `ValueError` unless each setting is missing or has the only supported value."""
        for name, value in settings.items():
            if self.get(name, value) != value:
                expected = (
                    "no such setting"
                    if value is None
                    else f"{value!r}; other values are not supported"
                )
                raise self.error(name, expected)

    def boolean(self, name: str, default: bool) -> bool:
        """A boolean."""
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise self.error(name, "true or false")
        return value

    def by_architecture(self, known: Mapping[str, Any]) -> Any:
        """The entry of the first architecture, or the first entry if none is given."""
        names = self.get("architectures", [])
        name = names[0] if isinstance(names, list) and names else next(iter(known))
        if not isinstance(name, str) or name not in known:
            raise self.error("architectures", "one of " + ", ".join(known))
        return known[name]

    def classes(self) -> int:
        """The number of classes."""
        labels = self.get("id2label")
        return len(labels) if isinstance(labels, dict) and labels else self.integer("num_labels", 2)

"""Deep learning as one library: one model $f[\\theta](x)$ from training to certificate.

The parts are loaded when first touched, so that `import thetax` costs little more than importing
JAX: `thetax.data`, `thetax.layers`, `thetax.models`, `thetax.train`, `thetax.explain`,
`thetax.bayes`, `thetax.threat`, `thetax.certify`, `thetax.attack`, `thetax.plot`, `thetax.recipes`,
`thetax.claims`, `thetax.report`.

>>> import thetax
>>> thetax.layers.Linear.__name__
'Linear'
"""

import importlib
from typing import Any

from .xla_flags import set_xla_flags

set_xla_flags()

_PARTS = (
    "core",
    "tree",
    "jaxpr",
    "xla_flags",
    "threat",
    "data",
    "layers",
    "models",
    "train",
    "explain",
    "bayes",
    "certify",
    "attack",
    "plot",
    "recipes",
    "claims",
    "report",
)


def __getattr__(name: str) -> Any:
    if name == "__version__":  # the package's metadata take longer to read than all else here
        return importlib.import_module("importlib.metadata").version("thetax")
    if name in _PARTS:
        return importlib.import_module(f"thetax.{name}")
    raise AttributeError(f"module 'thetax' has no part {name!r}; it has {', '.join(_PARTS)}")


def __dir__() -> list[str]:
    return sorted(["__version__", *_PARTS])

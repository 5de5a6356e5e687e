"""The history of a fit as a result that can be drawn: one line for each number, one panel for each
quantity.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class Curves:
    """Per quantity ("loss") and per role ("train", "valid", or "" for neither), one value an
    epoch.
    """

    panels: dict[str, dict[str, Float[np.ndarray, " epochs"]]]

    @property
    def epochs(self) -> int:
        """How long the fit was."""
        return max(
            (len(line) for panel in self.panels.values() for line in panel.values()), default=0
        )


def curves(history: Mapping[str, np.ndarray]) -> Curves:
    """Sorts the columns of a fit's history into panels; a quantity that was never finite is left
    out.

    >>> found = curves(
    ...     {
    ...         "train loss": np.array([2.0, 1.0]),
    ...         "valid loss": np.array([2.1, 1.2]),
    ...         "rate": np.ones(2),
    ...     }
    ... )
    >>> {name: list(lines) for name, lines in found.panels.items()}
    {'loss': ['train', 'valid'], 'rate': ['']}
    """
    panels: dict[str, dict[str, np.ndarray]] = {}
    for name, column in history.items():
        role, _, quantity = name.partition(" ")
        role, quantity = (
            (role, quantity) if role in ("train", "valid", "test") and quantity else ("", name)
        )
        column = np.asarray(column, np.float64)
        if column.ndim == 1 and np.isfinite(column).any():
            panels.setdefault(quantity, {})[role] = column
    return Curves(panels)

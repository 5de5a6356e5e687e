"""Training curves: the history of a fit, grouped into one panel for each quantity."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class TrainingCurves:
    """For each quantity ("loss") and split ("train", "valid", "test", or "" for none), one value
    per epoch.
    """

    panels: dict[str, dict[str, Float[np.ndarray, " epochs"]]]

    @property
    def epochs(self) -> int:
        """The number of epochs."""
        return max(
            (len(line) for panel in self.panels.values() for line in panel.values()), default=0
        )


def training_curves(history: Mapping[str, np.ndarray]) -> TrainingCurves:
    """Training curves from the columns of a fit's history; a column without finite values is left
    out.

    >>> curves = training_curves(
    ...     {
    ...         "train loss": np.array([2.0, 1.0]),
    ...         "valid loss": np.array([2.1, 1.2]),
    ...         "rate": np.ones(2),
    ...     }
    ... )
    >>> {name: list(lines) for name, lines in curves.panels.items()}
    {'loss': ['train', 'valid'], 'rate': ['']}
    """
    panels: dict[str, dict[str, np.ndarray]] = {}
    for name, column in history.items():
        split, _, quantity = name.partition(" ")
        if split not in ("train", "valid", "test") or not quantity:
            split, quantity = "", name
        column = np.asarray(column, np.float64)
        if column.ndim == 1 and np.isfinite(column).any():
            panels.setdefault(quantity, {})[split] = column
    return TrainingCurves(panels)

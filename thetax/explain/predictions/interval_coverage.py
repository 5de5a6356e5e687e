r"""Intervals: of all the numbers that were to lie in an 80 % interval, do four out of five?

Where $N(m_i, s_i^2)$ was foretold of $y_i$, the central interval of level $p$ is
$m_i \pm s_i\,\Phi^{-1}(\frac{1 + p}{2})$. A calibrated forecast has a share $p$ of the $y_i$
inside, at every level; of two calibrated ones the sharper is better, which the mean log density
tells in one number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

LEVELS = tuple(round(0.05 * step, 2) for step in range(1, 20))


@dataclass(frozen=True)
class Intervals:
    """Two scores of a normal forecast, the share inside the interval of each level, and the
    forecast itself.
    """

    rmse: float  # root of the mean squared error
    nlpd: float  # mean negative log density of the truth, in nats
    levels: Float[np.ndarray, " l"]
    coverage: Float[np.ndarray, " l"]
    mean: Float[np.ndarray, " n"]
    deviation: Float[np.ndarray, " n"]
    truth: Float[np.ndarray, " n"]

    @property
    def error(self) -> float:
        """How far the coverage is from the level, on average over the levels."""
        return float(np.abs(self.coverage - self.levels).mean())

    @property
    def chance(self) -> Float[np.ndarray, " l"]:
        """The standard deviation of the coverage of a calibrated forecast of independent
        numbers.
        """
        return np.sqrt(self.levels * (1 - self.levels) / len(self.truth))

    def half(self, level: float) -> Float[np.ndarray, " n"]:
        """Half the width of each interval of that level."""
        return self.deviation * float(ndtri((1 + level) / 2))


def intervals(
    mean: Any, deviation: Any, truth: Any, *, levels: Sequence[float] = LEVELS
) -> Intervals:
    r"""How often the truth lies where $N(m_i, s_i^2)$ says, and how dense that is there.

    Gneiting, Balabdaoui & Raftery 2007.

    >>> found = intervals(
    ...     np.zeros(4), np.ones(4), np.array([0.1, -0.5, 0.9, 2.5]), levels=(0.5, 0.9)
    ... )
    >>> found.coverage.tolist(), round(found.rmse, 3)
    ([0.5, 0.75], 1.353)
    """
    m, s, y = (np.asarray(part, np.float64) for part in (mean, deviation, truth))
    if not m.shape == s.shape == y.shape or m.ndim != 1 or not len(m):
        raise ValueError(
            "intervals: mean, deviation and truth must be one number an example each; got "
            f"{m.shape}, {s.shape} and {y.shape}."
        )
    if not (s > 0).all():
        raise ValueError(
            f"intervals: a standard deviation must be positive; the least is {s.min()}."
        )
    p = np.asarray(levels, np.float64)
    if p.ndim != 1 or not len(p) or not ((p > 0) & (p < 1)).all():
        raise ValueError(f"intervals: levels must lie between 0 and 1; got {tuple(levels)}.")
    z = np.abs(y - m) / s
    nlpd = np.mean(z**2 / 2 + np.log(s) + np.log(2 * np.pi) / 2)
    coverage = (z[None] <= ndtri((1 + p) / 2)[:, None]).mean(axis=1)
    return Intervals(float(np.sqrt(np.mean((y - m) ** 2))), float(nlpd), p, coverage, m, s, y)

r"""Coverage of prediction intervals: does an 80 % interval contain 80 % of the targets?

For a predictive distribution $N(m_i, s_i^2)$ of $y_i$ the central interval at level $p$ is
$m_i \pm s_i\,\Phi^{-1}(\frac{1 + p}{2})$. A calibrated prediction has a fraction $p$ of the $y_i$
inside, at every level. Of two calibrated predictions the sharper is better; the mean log density
measures both in one number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

DEFAULT_LEVELS = tuple(round(0.05 * step, 2) for step in range(1, 20))


@dataclass(frozen=True)
class IntervalCoverage:
    """RMSE and negative log predictive density of a normal prediction, the coverage of its
    intervals at each level, and the prediction itself.
    """

    rmse: float  # root of the mean squared error
    nlpd: float  # mean negative log predictive density of the targets, in nats
    levels: Float[np.ndarray, " l"]
    coverage: Float[np.ndarray, " l"]
    mean: Float[np.ndarray, " n"]
    std: Float[np.ndarray, " n"]
    truth: Float[np.ndarray, " n"]

    @property
    def error(self) -> float:
        """Mean absolute difference between coverage and level."""
        return float(np.abs(self.coverage - self.levels).mean())

    @property
    def coverage_std(self) -> Float[np.ndarray, " l"]:
        """Standard deviation of the coverage of a calibrated prediction of independent targets."""
        return np.sqrt(self.levels * (1 - self.levels) / len(self.truth))

    def half_width(self, level: float) -> Float[np.ndarray, " n"]:
        """Half the width of each interval at this level."""
        return self.std * float(ndtri((1 + level) / 2))


def interval_coverage(
    mean: Any, std: Any, truth: Any, *, levels: Sequence[float] = DEFAULT_LEVELS
) -> IntervalCoverage:
    r"""Coverage of the intervals of $N(m_i, s_i^2)$ at each level, RMSE and log predictive density.

    Gneiting, Balabdaoui & Raftery 2007.

    >>> result = interval_coverage(
    ...     np.zeros(4), np.ones(4), np.array([0.1, -0.5, 0.9, 2.5]), levels=(0.5, 0.9)
    ... )
    >>> result.coverage.tolist(), round(result.rmse, 3)
    ([0.5, 0.75], 1.353)
    """
    m, s, y = (np.asarray(part, np.float64) for part in (mean, std, truth))
    if not m.shape == s.shape == y.shape or m.ndim != 1 or not len(m):
        raise ValueError(
            "interval_coverage: mean, std and truth must have the same shape (n,); got "
            f"{m.shape}, {s.shape} and {y.shape}."
        )
    if not (s > 0).all():
        raise ValueError(f"interval_coverage: std must be positive; its minimum is {s.min()}.")
    p = np.asarray(levels, np.float64)
    if p.ndim != 1 or not len(p) or not ((p > 0) & (p < 1)).all():
        raise ValueError(f"interval_coverage: levels must be between 0 and 1; got {tuple(levels)}.")
    z = np.abs(y - m) / s
    nlpd = np.mean(z**2 / 2 + np.log(s) + np.log(2 * np.pi) / 2)
    coverage = (z[None] <= ndtri((1 + p) / 2)[:, None]).mean(axis=1)
    return IntervalCoverage(
        float(np.sqrt(np.mean((y - m) ** 2))), float(nlpd), p, coverage, m, s, y
    )

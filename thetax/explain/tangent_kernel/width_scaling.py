r"""Scaling of networks with their width (§9.3): with which power of the width $m$ they approach the
limit of infinite width.

In the tangent parametrisation the kernel at initialisation differs from its limit by $O(m^{-1/2})$.
In training the parameters as a whole move by $O(1)$ for every width, each of them less and less, so
the kernel changes by $O(m^{-1/2})$ at most; observed rates are closer to $1/m$. (Jacot et al. 2018;
Lee et al. 2019; Dyer & Gur-Ari 2020)
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int


@dataclass(frozen=True)
class WidthScaling:
    r"""Relative distances for each width and random seed:
    $\frac{\|K_0 - \Theta\|}{\|\Theta\|}$, $\frac{\|K_T - K_0\|}{\|K_0\|}$ and
    $\frac{\|\theta_T - \theta_0\|}{\|\theta_0\|}$.
    """

    limit_distance: Float[np.ndarray, "w s"]
    kernel_change: Float[np.ndarray, "w s"]
    parameter_change: Float[np.ndarray, "w s"]
    widths: Int[np.ndarray, " w"]

    @property
    def exponents(self) -> tuple[float, float, float]:
        """Powers of the width with which the three distances scale."""
        limit_distance, kernel_change, parameter_change = (
            power_law_exponent(self.widths, values)
            for values in (self.limit_distance, self.kernel_change, self.parameter_change)
        )
        return limit_distance, kernel_change, parameter_change


@dataclass(frozen=True)
class InfiniteWidthComparison:
    """Mean and standard deviation of the outputs on some examples: of all networks of infinite
    width (first), and of an ensemble of finite ones.
    """

    mean: Float[np.ndarray, "2 m k"]
    std: Float[np.ndarray, "2 m"]  # root mean square over the outputs

    @property
    def agreement(self) -> tuple[float, float]:
        """Correlation of the means, and of the standard deviations."""
        correlation = lambda pair: float(np.corrcoef(pair.reshape(2, -1))[0, 1])
        return correlation(self.mean), correlation(self.std)


def power_law_exponent(widths: Any, values: Float[np.ndarray, "w *s"]) -> float:
    r"""Exponent $p$ of a power law $v \sim m^p$, by least squares in logarithms.

    >>> round(power_law_exponent([10, 100, 1000], np.array([3.0, 0.3, 0.03])), 6)
    -1.0
    """
    widths = np.asarray(widths, np.float64)
    values = np.asarray(values, np.float64)
    if (
        len(widths) < 2
        or len(widths) != len(values)
        or not (widths > 0).all()
        or not (values > 0).all()
    ):
        raise ValueError(
            "power_law_exponent: expected at least two widths and one row of values for each, all "
            f"positive; got {len(widths)} widths and values of shape {values.shape}."
        )
    mean_log = np.log(values.reshape(len(widths), -1)).mean(axis=1)
    return float(np.polyfit(np.log(widths), mean_log, 1)[0])

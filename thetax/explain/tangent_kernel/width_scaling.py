r"""How fast networks come near to their limit as they grow wider (§9.3): by which power of the
width $m$.

In the tangent parametrisation the kernel at the start differs from its limit by $O(m^{-1/2})$. In
training the parameters as a whole move by $O(1)$ whatever the width, each of them ever less, so
that the kernel changes by $O(m^{-1/2})$ at most; what is seen is nearer to $1/m$. (Jacot et al.
2018; Lee et al. 2019; Dyer & Gur-Ari 2020)
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int


@dataclass(frozen=True)
class Widths:
    r"""By width and draw: $\frac{\|K_0 - \Theta\|}{\|\Theta\|}$, $\frac{\|K_T - K_0\|}{\|K_0\|}$
    and $\frac{\|\theta_T - \theta_0\|}{\|\theta_0\|}$.
    """

    distance: Float[np.ndarray, "w s"]
    change: Float[np.ndarray, "w s"]
    moved: Float[np.ndarray, "w s"]
    widths: Int[np.ndarray, " w"]

    @property
    def powers(self) -> tuple[float, float, float]:
        """Of the width, by which the three fall."""
        distance, change, moved = (
            power_of(self.widths, of) for of in (self.distance, self.change, self.moved)
        )
        return distance, change, moved


@dataclass(frozen=True)
class WideBeliefs:
    """The outputs and their deviation on some examples, of all networks of infinite width and of
    some finite ones.
    """

    mean: Float[np.ndarray, "2 m k"]
    deviation: Float[np.ndarray, "2 m"]  # of an output, in the quadratic mean over the outputs

    @property
    def agreement(self) -> tuple[float, float]:
        """The correlations of the means and of the deviations."""
        of = lambda pair: float(np.corrcoef(pair.reshape(2, -1))[0, 1])
        return of(self.mean), of(self.deviation)


def power_of(widths: Any, values: Float[np.ndarray, "w *s"]) -> float:
    r"""$p$ in $v \sim m^p$, by least squares in logarithms.

    >>> round(power_of([10, 100, 1000], np.array([3.0, 0.3, 0.03])), 6)
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
            "power_of: expected two widths at least, and a row of values for each, all more than "
            f"0; got {len(widths)} and {values.shape}."
        )
    return float(
        np.polyfit(np.log(widths), np.log(values.reshape(len(widths), -1)).mean(axis=1), 1)[0]
    )

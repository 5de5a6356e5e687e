r"""How far around examples a classifier is proven right, beside what an attack leaves of it (§13).

$$\text{proven}(r) = \frac{\#\{R_i \ge r,\ R_i > 0\}}{n}$$
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class CertifiedRadii:
    """The radius within which each example is proven right, 0 where it is wrong or nothing is
    proven; and the shares that were still right after attacks, by their radius.

    >>> found = CertifiedRadii(
    ...     np.array([0.0, 0.4, 1.0]), np.array([0.5]), np.array([0.9]), most=1.2
    ... )
    >>> found.proven([0.0, 0.5, 1.1]).round(2).tolist()
    [0.67, 0.33, 0.0]
    """

    radius: Float[np.ndarray, " n"]
    tried: Float[np.ndarray, " m"]  # radii of attacks
    stands: Float[np.ndarray, " m"]
    most: float  # no certificate could have been larger

    def proven(self, r: Any) -> Any:
        """The share of the examples that is right whatever is done within a radius."""
        return ((self.radius > 0) & (self.radius >= np.asarray(r)[..., None])).mean(axis=-1)

r"""Certified radii of a set of examples, and accuracy under attack to compare with (§13).

$$\text{certified accuracy}(r) = \frac{\#\{R_i \ge r,\ R_i > 0\}}{n}$$
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class CertifiedRadii:
    """The certified radius of each example, 0 where it is misclassified or nothing is certified;
    and the accuracy under attack at some radii.

    >>> result = CertifiedRadii(
    ...     np.array([0.0, 0.4, 1.0]), np.array([0.5]), np.array([0.9]), max_radius=1.2
    ... )
    >>> result.certified_accuracy([0.0, 0.5, 1.1]).round(2).tolist()
    [0.67, 0.33, 0.0]
    """

    radii: Float[np.ndarray, " n"]
    attack_radii: Float[np.ndarray, " m"]
    attack_accuracy: Float[np.ndarray, " m"]  # accuracy under attack at each of `attack_radii`
    max_radius: float  # the largest radius that the method could have certified

    def certified_accuracy(self, r: Any) -> Any:
        """The fraction of examples that are certified to be correct within radius r."""
        return ((self.radii > 0) & (self.radii >= np.asarray(r)[..., None])).mean(axis=-1)

"""A picture that was changed so little that nobody sees it, and what a network makes of it
(§13).
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8

LEVELS = 255  # the largest value of a pixel


@dataclass(frozen=True)
class AdversarialExample:
    """A picture before and after an attack, and of each the name that a network gives it and how
    likely it finds it.

    >>> grey = np.full((3, 2, 2), 100, np.uint8)
    >>> AdversarialExample(grey, grey + np.uint8(2), ("cat", "dog"), (0.9, 0.8)).most
    2
    """

    before: UInt8[np.ndarray, "3 h w"]
    after: UInt8[np.ndarray, "3 h w"]
    names: tuple[str, str]
    probability: tuple[float, float]

    @property
    def shift(self) -> np.ndarray:
        """How far each number was moved, in levels of 255."""
        return self.after.astype(int) - self.before.astype(int)

    @property
    def most(self) -> int:
        """The largest of these."""
        return int(np.abs(self.shift).max())

    @property
    def difference(self) -> np.ndarray:
        """The shift as a picture, enlarged to the whole range: grey where nothing was changed."""
        return np.round(LEVELS / 2 * (1 + self.shift / max(self.most, 1))).astype(np.uint8)

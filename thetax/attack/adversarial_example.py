"""One image before and after an attack, with the classifier's predictions (§13)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8

MAX_PIXEL = 255


@dataclass(frozen=True)
class AdversarialExample:
    """An image and its adversarial version, and for each the predicted class and its probability.

    >>> grey = np.full((3, 2, 2), 100, np.uint8)
    >>> result = AdversarialExample(grey, grey + np.uint8(2), ("cat", "dog"), (0.9, 0.8))
    >>> result.max_perturbation
    2
    """

    original: UInt8[np.ndarray, "3 h w"]
    adversarial: UInt8[np.ndarray, "3 h w"]
    predictions: tuple[str, str]
    probabilities: tuple[float, float]

    @property
    def perturbation(self) -> np.ndarray:
        """Adversarial minus original image, in integer levels of 0 to 255."""
        return self.adversarial.astype(int) - self.original.astype(int)

    @property
    def max_perturbation(self) -> int:
        """The largest absolute change of a pixel value."""
        return int(np.abs(self.perturbation).max())

    @property
    def perturbation_image(self) -> np.ndarray:
        """The perturbation as an image, scaled to the whole range; grey is no change."""
        scaled = self.perturbation / max(self.max_perturbation, 1)
        return np.round(MAX_PIXEL / 2 * (1 + scaled)).astype(np.uint8)

r"""Calibration of a classifier: expected calibration error (ECE) and proper scores.

Predictions are grouped into $B$ bins by confidence $\max_j P(j \mid x)$. Bin $b$ has $n_b$
examples, mean confidence $c_b$ and accuracy $a_b$; a calibrated classifier has $a_b = c_b$.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from ...check import expect_count
from ...core import Batch, Model
from ..class_probabilities import integer_labels, log_probabilities


@dataclass(frozen=True)
class Calibration:
    r"""Expected calibration error $\mathrm{ECE} = \sum_b \frac{n_b}{n} |a_b - c_b|$, two proper
    scores, and the bins of the reliability diagram; NaN in an empty bin.
    """

    error: float  # the expected calibration error
    nll: float  # mean negative log-likelihood of the truth, in nats
    brier: float  # mean squared distance between the probabilities and the truth
    confidence: Float[np.ndarray, " bins"]
    accuracy: Float[np.ndarray, " bins"]
    count: Int[np.ndarray, " bins"]

    @property
    def overconfidence(self) -> float:
        """Mean confidence minus accuracy; negative if the classifier is underconfident."""
        share = self.count / self.count.sum()
        return float(np.nansum(share * (self.confidence - self.accuracy)))

    @property
    def interval(self) -> tuple[Float[np.ndarray, " bins"], Float[np.ndarray, " bins"]]:
        """95 % confidence interval of the accuracy of each bin (Wilson 1927)."""
        a = self.accuracy
        n = np.where(self.count > 0, self.count, np.nan)
        z2 = 1.96**2
        centre = (a + z2 / (2 * n)) / (1 + z2 / n)
        half = np.sqrt(z2 * a * (1 - a) / n + (z2 / (2 * n)) ** 2)
        return np.maximum(centre - half / (1 + z2 / n), 0), np.minimum(
            centre + half / (1 + z2 / n), 1
        )


def calibration(model: Model, data: Batch, *, bins: int = 15) -> Calibration:
    r"""Expected calibration error and reliability bins of a classifier on labelled data `(xs, ys)`.

    Bin $b$ holds confidences in $((b-1)/B, b/B]$. The error is biased upwards if bins hold few
    examples. Guo, Pleiss, Sun & Weinberger 2017; Brier 1950.

    >>> import jax.numpy as jnp
    >>> from thetax.layers import Linear
    >>> model = Linear(jnp.array([[0.0], [100.0]]), jnp.zeros(2))  # always predicts class 1
    >>> result = calibration(model, (jnp.ones((4, 1)), jnp.array([1, 1, 1, 0])), bins=10)
    >>> result.error, result.count.tolist()
    (0.25, [0, 0, 0, 0, 0, 0, 0, 0, 0, 4])
    """
    expect_count("calibration", bins=bins)
    xs, ys = data
    log_p = np.asarray(log_probabilities(model, xs), np.float64)
    n, k = log_p.shape
    y = integer_labels(ys, k)
    p = np.exp(log_p)
    confidence = p.max(axis=1)
    correct = p.argmax(axis=1) == y
    bin_index = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    count = np.bincount(bin_index, minlength=bins)
    mean = lambda values: (
        np.bincount(bin_index, values, minlength=bins) / np.where(count > 0, count, np.nan)
    )
    mean_confidence = mean(confidence)
    accuracy = mean(correct)
    return Calibration(
        error=float(np.nansum(count / n * np.abs(accuracy - mean_confidence))),
        nll=float(-log_p[np.arange(n), y].mean()),
        brier=float(np.square(p - np.eye(k)[y]).sum(axis=1).mean()),
        confidence=mean_confidence,
        accuracy=accuracy,
        count=count,
    )

r"""Calibration: of all the times a network says 90 %, is it right nine times out of ten?

The predictions are put into $B$ bins by their confidence $\max_j P(j \mid x)$. In bin $b$ with
$n_b$ of them, the mean confidence is $c_b$ and the share that is right $a_b$; a calibrated network
has $a_b = c_b$.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from ...core import Batch, Model
from ..class_probabilities import belief, truth


@dataclass(frozen=True)
class Calibration:
    r"""$\mathrm{ECE} = \sum_b \frac{n_b}{n} |a_b - c_b|$, two proper scores, and the bins; an empty
    bin has NaN.
    """

    error: float  # the expected calibration error
    nll: float  # mean negative log-likelihood of the truth, in nats
    brier: float  # mean squared distance between the probabilities and the truth
    confidence: Float[np.ndarray, " bins"]
    accuracy: Float[np.ndarray, " bins"]
    count: Int[np.ndarray, " bins"]

    @property
    def overconfidence(self) -> float:
        """How much surer the network is than it is right, on average; negative if it is too
        modest.
        """
        share = self.count / self.count.sum()
        return float(np.nansum(share * (self.confidence - self.accuracy)))

    @property
    def interval(self) -> tuple[Float[np.ndarray, " bins"], Float[np.ndarray, " bins"]]:
        """Within which the accuracy of each bin lies, at 95 % (Wilson 1927)."""
        a = self.accuracy
        n = np.where(self.count > 0, self.count, np.nan)
        z2 = 1.96**2
        centre = (a + z2 / (2 * n)) / (1 + z2 / n)
        half = np.sqrt(z2 * a * (1 - a) / n + (z2 / (2 * n)) ** 2)
        return np.maximum(centre - half / (1 + z2 / n), 0), np.minimum(
            centre + half / (1 + z2 / n), 1
        )


def calibration(model: Model, data: Batch, *, bins: int = 15) -> Calibration:
    r"""How far a classifier's confidence is from its accuracy on labelled data `(xs, ys)`.

    Bin $b$ holds the confidences in $((b-1)/B, b/B]$. The error is biased upwards when bins hold
    few examples. Guo, Pleiss, Sun & Weinberger 2017; Brier 1950.

    >>> import jax.numpy as jnp
    >>> from thetax.layers import Linear
    >>> sure = Linear(jnp.array([[0.0], [100.0]]), jnp.zeros(2))  # always says class 1
    >>> found = calibration(sure, (jnp.ones((4, 1)), jnp.array([1, 1, 1, 0])), bins=10)
    >>> found.error, found.count.tolist()
    (0.25, [0, 0, 0, 0, 0, 0, 0, 0, 0, 4])
    """
    if bins < 1:
        raise ValueError(f"calibration: bins must be at least 1; got {bins}.")
    xs, ys = data
    log_p = np.asarray(belief(model, xs), np.float64)
    n, k = log_p.shape
    y = truth(ys, k)
    p = np.exp(log_p)
    confidence = p.max(axis=1)
    right = p.argmax(axis=1) == y
    b = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    count = np.bincount(b, minlength=bins)
    mean = lambda values: (
        np.bincount(b, values, minlength=bins) / np.where(count > 0, count, np.nan)
    )
    c = mean(confidence)
    a = mean(right)
    return Calibration(
        error=float(np.nansum(count / n * np.abs(a - c))),
        nll=float(-log_p[np.arange(n), y].mean()),
        brier=float(np.square(p - np.eye(k)[y]).sum(axis=1).mean()),
        confidence=c,
        accuracy=a,
        count=count,
    )

r"""Choosing among models that were cross-validated: not the best, but the simplest that is as good
(L10 §6.1).

The least of several noisy means is partly luck. Every model whose mean error lies within one
standard error of the least is as good as the best, as far as can be told; of these the simplest is
taken (Breiman et al. 1984, §3.4.3).
"""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float


class Simplest(NamedTuple):
    """The candidate chosen, the one of least error, and for each the mean over the folds and its
    standard error.
    """

    chosen: int
    best: int
    mean: Float[np.ndarray, " candidates"]
    error: Float[np.ndarray, " candidates"]
    limit: float  # what a mean may be at most to count as good as the least


def choose_simplest(
    scores: Float[jax.Array | np.ndarray, "candidates folds"], *, within: int | float = 1.0
) -> Simplest:
    r"""The first candidate $c$ with $\bar e_c \le \bar e_{c^*} + w\,s_{c^*}$, where $c^*$ has the
    least mean error.

    Row $c$ of `scores` holds the errors of candidate $c$ on each fold, the simplest candidate
    first; $s = \hat\sigma / \sqrt{k}$ is the standard error of a mean over $k$ folds. With
    `within=0` the choice is the best. Hastie, Tibshirani & Friedman 2009, §7.10.

    >>> errors = np.array([[2.0, 2.2, 2.4], [1.0, 1.2, 1.4], [0.9, 1.1, 1.6], [1.8, 2.0, 2.2]])
    >>> (
    ...     choose_simplest(errors).chosen,
    ...     choose_simplest(errors + np.array([[0.0], [0.0], [-0.1], [0.0]])).best,
    ... )
    (1, 2)
    """
    each = _checked(scores, within)
    mean = each.mean(axis=1)
    error = each.std(axis=1, ddof=1) / np.sqrt(each.shape[1])
    best = int(mean.argmin())
    limit = float(mean[best] + within * error[best])
    return Simplest(int(np.argmax(mean <= limit)), best, mean, error, limit)


def _checked(scores: Any, within: int | float) -> np.ndarray:
    each = np.asarray(scores, float)
    if each.ndim != 2 or each.shape[0] < 1 or each.shape[1] < 2:
        raise ValueError(
            "choose_simplest: expected the errors of each candidate on two folds or more, "
            f"(candidates, folds); got {each.shape}. One fold has no standard error."
        )
    if np.isnan(each).any():
        row = int(np.isnan(each).any(axis=1).argmax())
        raise ValueError(
            f"choose_simplest: candidate {row} has NaN among its errors; leave it out or train it "
            "again."
        )
    if not within >= 0:
        raise ValueError(
            "choose_simplest: within counts standard errors and must not be negative; got "
            f"{within}."
        )
    return each

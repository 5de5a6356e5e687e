r"""The one-standard-error rule of model selection: the simplest model about as good as the best
(L10 §6.1).

The minimum of several noisy means is partly luck. A model whose mean error lies within one standard
error of the minimum cannot be told from the best; the rule takes the simplest of these (Breiman et
al. 1984, §3.4.3).
"""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float


class OneStandardErrorResult(NamedTuple):
    """The selected candidate, the one with the lowest error, and the mean error of each candidate
    over the folds with its standard error.
    """

    selected: int
    best: int
    mean: Float[np.ndarray, " candidates"]
    standard_error: Float[np.ndarray, " candidates"]
    threshold: float  # highest mean error that counts as good as the best


def one_standard_error_rule(
    scores: Float[jax.Array | np.ndarray, "candidates folds"], *, within: int | float = 1.0
) -> OneStandardErrorResult:
    r"""The first candidate $c$ with $\bar e_c \le \bar e_{c^*} + w\,s_{c^*}$, where $c^*$ has the
    lowest mean error and $w$ is `within`, in standard errors.

    Row $c$ of `scores` holds the errors of candidate $c$ on each fold, with the candidates ordered
    from the simplest to the most complex; $s = \hat\sigma / \sqrt{k}$ is the standard error of a
    mean over $k$ folds. With `within=0` the best candidate is selected. Hastie, Tibshirani &
    Friedman 2009, §7.10.

    >>> errors = np.array([[2.0, 2.2, 2.4], [1.0, 1.2, 1.4], [0.9, 1.1, 1.6], [1.8, 2.0, 2.2]])
    >>> (
    ...     one_standard_error_rule(errors).selected,
    ...     one_standard_error_rule(errors + np.array([[0.0], [0.0], [-0.1], [0.0]])).best,
    ... )
    (1, 2)
    """
    errors = _check_scores(scores, within)
    mean = errors.mean(axis=1)
    standard_error = errors.std(axis=1, ddof=1) / np.sqrt(errors.shape[1])
    best = int(mean.argmin())
    threshold = float(mean[best] + within * standard_error[best])
    selected = int(np.argmax(mean <= threshold))  # argmax of booleans: the first True
    return OneStandardErrorResult(selected, best, mean, standard_error, threshold)


def _check_scores(scores: Any, within: int | float) -> np.ndarray:
    errors = np.asarray(scores, float)
    if errors.ndim != 2 or errors.shape[0] < 1 or errors.shape[1] < 2:
        raise ValueError(
            "one_standard_error_rule: scores must have shape (candidates, folds) with two folds or "
            f"more; got {errors.shape}. One fold has no standard error."
        )
    if np.isnan(errors).any():
        row = int(np.isnan(errors).any(axis=1).argmax())
        raise ValueError(
            f"one_standard_error_rule: candidate {row} has a NaN error. Leave it out or train it "
            "again."
        )
    if not within >= 0:
        raise ValueError(
            "one_standard_error_rule: within, a number of standard errors, must be >= 0; got "
            f"{within}."
        )
    return errors

r"""k-fold cross-validation (§8; Stone 1974): folds, and the mean error over them.

The examples are partitioned into $k$ parts; each part in turn is held out while the model trains on
the others, $\mathrm{CV} = \frac1k \sum_{j=1}^k \ell_{V_j}(\hat f_{-j})$, where $\hat f_{-j}$ is
trained without $V_j$.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from ...check import expect_count
from ...core import Batch, Model, Objective
from ..loop.compiled import evaluate


class Fold(NamedTuple):
    """One fold: the indices of its training examples and of its validation examples."""

    train: Int[np.ndarray, " m"]
    valid: Int[np.ndarray, " v"]


def k_folds(
    n: int, k: int, *, stratify: Any = None, repeats: int = 1, key: PRNGKeyArray
) -> list[Fold]:
    """Random k-fold splits of n examples, optionally stratified and repeated: `k * repeats` folds.

    Within a repeat the validation parts are disjoint, cover all examples, and differ in size by at
    most one. With labels in `stratify` the same holds within every class. The folds depend on the
    key alone.

    >>> both = k_folds(5, 2, key=jr.key(0))
    >>> (
    ...     [len(fold.train) for fold in both],
    ...     sorted(np.concatenate([fold.valid for fold in both]).tolist()),
    ... )
    ([2, 3], [0, 1, 2, 3, 4])
    >>> k_folds(3, 4, key=jr.key(0))
    Traceback (most recent call last):
    ValueError: k_folds: cannot split 3 examples into 4 parts. Choose k between 2 and 3.
    """
    if n < 2 or not 2 <= k <= n:
        cure = f"Choose k between 2 and {n}" if n > 1 else "At least two examples are needed"
        raise ValueError(f"k_folds: cannot split {n} examples into {k} parts. {cure}.")
    expect_count("k_folds", repeats=repeats)
    labels = np.zeros(n, int) if stratify is None else np.asarray(stratify)
    if labels.shape != (n,):
        raise ValueError(
            f"k_folds: stratify must hold one label for each of the {n} examples; got shape "
            f"{labels.shape}."
        )
    return [fold for key in jr.split(key, repeats) for fold in _stratified_folds(labels, k, key)]


def _stratified_folds(labels: np.ndarray, k: int, key: PRNGKeyArray) -> list[Fold]:
    """Shuffles, sorts by class, and assigns examples to the k parts in turn (round robin)."""
    order = np.asarray(jr.permutation(key, len(labels)))
    order = order[np.argsort(labels[order], kind="stable")]
    part = np.empty(len(labels), int)
    part[order] = np.arange(len(labels)) % k
    return [Fold(np.flatnonzero(part != j), np.flatnonzero(part == j)) for j in range(k)]


class CrossValidationResult(NamedTuple):
    """Mean error over the folds, its standard error, and the error of each fold."""

    mean: float
    standard_error: float
    fold_errors: Float[np.ndarray, " folds"]


def cross_validate(
    learn: Callable[..., Model],
    data: Batch,
    folds: Sequence[Fold],
    *,
    metric: Objective,
    key: PRNGKeyArray,
) -> CrossValidationResult:
    r"""Cross-validated error of a learning method, `learn(train, key=key) -> model`.

    For every fold, `learn` trains a model on the training part and `metric` is evaluated on the
    validation part. The standard error $s / \sqrt{k}$ treats the folds as independent, which they
    nearly are (Hastie et al. 2009).

    >>> from thetax.models import ridge
    >>> from thetax.train import squared_error
    >>> xs = jr.normal(jr.key(0), (40, 2))
    >>> learn = lambda train, key: ridge(*train, strength=1e-3)
    >>> result = cross_validate(
    ...     learn,
    ...     (xs, xs[:, 0]),
    ...     k_folds(40, 5, key=jr.key(1)),
    ...     metric=squared_error,
    ...     key=jr.key(2),
    ... )
    >>> result.mean < 1e-4, len(result.fold_errors)
    (True, 5)
    """
    if not folds:
        raise ValueError("cross_validate: folds is empty. Make folds with k_folds(n, k, key=key).")
    select = lambda indices: jax.tree.map(lambda leaf: leaf[indices], data)
    errors = []
    for fold, key_fold in zip(folds, jr.split(key, len(folds))):
        model = learn(select(fold.train), key=key_fold)
        errors.append(evaluate(model, select(fold.valid), {"error": metric})["error"])
    return CrossValidationResult(
        float(np.mean(errors)), standard_error(np.array(errors)), np.array(errors)
    )


def standard_error(values: Float[np.ndarray, " n"]) -> float:
    r"""Standard error of the mean, $s / \sqrt{n}$ with the unbiased $s$; 0 for a single value.

    >>> round(standard_error(np.array([1.0, 2.0, 3.0])), 4)
    0.5774
    """
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0

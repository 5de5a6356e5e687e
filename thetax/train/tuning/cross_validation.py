r"""How well a method predicts what it has not seen (§8; Stone 1974): folds, and the mean error over
them.

The examples are dealt into $k$ parts; each part in turn is held out while the others train,
$\mathrm{CV} = \frac1k \sum_{j=1}^k \ell_{V_j}(\hat f_{-j})$, where $\hat f_{-j}$ never saw $V_j$.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from ...core import Batch, Model, Objective
from ..loop.compiled import evaluate


class Fold(NamedTuple):
    """The numbers of the examples that train, and of those that are held out to judge."""

    train: Int[np.ndarray, " m"]
    valid: Int[np.ndarray, " v"]


def folds(n: int, k: int, *, key: PRNGKeyArray, by: Any = None, repeats: int = 1) -> list[Fold]:
    """Deals n examples into k parts at random, once or several times: `k * repeats` folds.

    Within a repeat the held-out parts are disjoint, cover everything, and differ in size by at most
    one. With labels in `by` the same holds within every class. The folds depend on the key alone.

    >>> both = folds(5, 2, key=jr.key(0))
    >>> (
    ...     [len(fold.train) for fold in both],
    ...     sorted(np.concatenate([fold.valid for fold in both]).tolist()),
    ... )
    ([2, 3], [0, 1, 2, 3, 4])
    >>> folds(3, 4, key=jr.key(0))
    Traceback (most recent call last):
    ValueError: folds: 3 examples cannot be dealt into 4 parts; choose k between 2 and 3.
    """
    if n < 2 or not 2 <= k <= n:
        cure = f"choose k between 2 and {n}" if n > 1 else "at least two examples are needed"
        raise ValueError(f"folds: {n} examples cannot be dealt into {k} parts; {cure}.")
    if repeats < 1:
        raise ValueError(f"folds: repeats must be at least 1; got {repeats}.")
    labels = np.zeros(n, int) if by is None else np.asarray(by)
    if labels.shape != (n,):
        raise ValueError(
            f"folds: by must hold one label for each of the {n} examples; got the shape "
            f"{labels.shape}."
        )
    return [fold for key in jr.split(key, repeats) for fold in _deal(labels, k, key)]


def _deal(labels: np.ndarray, k: int, key: PRNGKeyArray) -> list[Fold]:
    """In a random order, class after class, the cards go round: no hand gets two more than another
    of anything.
    """
    order = np.asarray(jr.permutation(key, len(labels)))
    order = order[np.argsort(labels[order], kind="stable")]
    part = np.empty(len(labels), int)
    part[order] = np.arange(len(labels)) % k
    return [Fold(np.flatnonzero(part != j), np.flatnonzero(part == j)) for j in range(k)]


class Validation(NamedTuple):
    """The mean error over the folds, its standard error, and the error of each fold."""

    mean: float
    error: float
    each: Float[np.ndarray, " folds"]


def cross_validate(
    learn: Callable[..., Model],
    data: Batch,
    parts: Sequence[Fold],
    *,
    metric: Objective,
    key: PRNGKeyArray,
) -> Validation:
    r"""The error of a way to learn, `learn(train, key=key) -> model`, on the parts it did not see.

    The standard error $s / \sqrt{k}$ takes the folds for independent, which they nearly are (Hastie
    et al. 2009).

    >>> from thetax.models import ridge
    >>> from thetax.train import squared_error
    >>> xs = jr.normal(jr.key(0), (40, 2))
    >>> learn = lambda train, key: ridge(*train, strength=1e-3)
    >>> found = cross_validate(
    ...     learn, (xs, xs[:, 0]), folds(40, 5, key=jr.key(1)), metric=squared_error, key=jr.key(2)
    ... )
    >>> found.mean < 1e-4, len(found.each)
    (True, 5)
    """
    if not parts:
        raise ValueError(
            "cross_validate: parts holds no fold; make some with folds(n, k, key=key)."
        )
    rows = lambda at: jax.tree.map(lambda leaf: leaf[at], data)
    each = []
    for fold, key_fold in zip(parts, jr.split(key, len(parts))):
        model = learn(rows(fold.train), key=key_fold)
        each.append(evaluate(model, rows(fold.valid), {"error": metric})["error"])
    return Validation(float(np.mean(each)), standard_error(np.array(each)), np.array(each))


def standard_error(each: Float[np.ndarray, " n"]) -> float:
    r"""$s / \sqrt{n}$ with the unbiased $s$; 0 for a single number.

    >>> round(standard_error(np.array([1.0, 2.0, 3.0])), 4)
    0.5774
    """
    return float(np.std(each, ddof=1) / np.sqrt(len(each))) if len(each) > 1 else 0.0

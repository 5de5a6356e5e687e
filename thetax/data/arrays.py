"""Preparing arrays for training: train/test splits and standardisation."""

from typing import Any, NamedTuple, TypeVar

import jax
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ..check import check

T = TypeVar("T")


def split(arrays: T, fraction: float, *, key: PRNGKeyArray, stratify: Any = None) -> tuple[T, T]:
    """Splits examples randomly into two parts, the first with a `fraction` of them.

    `arrays` is a tree of arrays with the examples along the first axis, such as `(xs, ys)`. With
    labels in `stratify` both parts have the same class proportions, up to rounding.

    >>> xs, ys = np.arange(10), np.array([0] * 8 + [1] * 2)
    >>> (train, _), (rest, labels) = split((xs, ys), 0.5, key=jr.key(0), stratify=ys)
    >>> sorted([*train.tolist(), *rest.tolist()]), sorted(labels.tolist())
    ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [0, 0, 0, 0, 1])
    """
    lengths = {len(leaf) for leaf in jax.tree.leaves(arrays)} | (
        {len(stratify)} if stratify is not None else set()
    )
    if len(lengths) != 1:
        raise ValueError(
            "split: all arrays must have the same number of examples; got "
            f"{' and '.join(map(str, sorted(lengths))) or 'no array'}."
        )
    n = lengths.pop()
    size = round(fraction * n)
    if not 0 < size < n:
        raise ValueError(
            f"split: both parts need at least one example; got fraction={fraction}, which puts "
            f"{min(max(size, 0), n)} of {n} examples into the first part."
        )
    order = np.asarray(jr.permutation(key, n))
    in_first = np.zeros(n, bool)
    if stratify is None:
        in_first[order[:size]] = True
    else:
        in_first[_stratified_subset(np.asarray(stratify), order, size)] = True
    select = lambda indices: jax.tree.map(lambda leaf: leaf[indices], arrays)
    return select(order[in_first[order]]), select(order[~in_first[order]])


def _stratified_subset(labels: np.ndarray, order: np.ndarray, size: int) -> np.ndarray:
    """`size` indices, the first of each class in the given order.

    The classes share them in proportion to their sizes, rounded by the largest-remainder method.
    """
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    quotas = counts * size / len(labels)
    n_per_class = np.floor(quotas).astype(int)
    rounded_up = np.argsort(n_per_class - quotas, kind="stable")[: size - n_per_class.sum()]
    n_per_class[rounded_up] += 1
    return np.concatenate([order[classes[order] == k][:m] for k, m in enumerate(n_per_class)])


class Standardise(NamedTuple):
    r"""Standardisation $x \mapsto (x - \mu) / \sigma$ of each feature.

    Fit it on the training examples only and apply it to all examples. A constant feature is centred
    but not scaled.

    >>> scale = Standardise.fit(np.array([[0.0, 5.0], [2.0, 5.0]]))
    >>> scale(np.array([[4.0, 6.0]])).tolist()
    [[3.0, 1.0]]
    """

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def fit(cls, xs: Any) -> "Standardise":
        """Estimates the mean and standard deviation of each feature of `xs`, shape `n *s`."""
        check(xs)
        xs = np.asarray(xs)
        constant = xs.max(axis=0) == xs.min(axis=0)
        mean = xs.mean(axis=0, dtype=np.float64)
        scale = xs.std(axis=0, dtype=np.float64)
        return cls(mean.astype(np.float32), np.where(constant, 1.0, scale).astype(np.float32))

    def __call__(self, xs: Any) -> Any:
        return (xs - self._like(self.mean, xs)) / self._like(self.scale, xs)

    def inverse(self, zs: Any) -> Any:
        r"""The inverse map $z \mapsto \sigma z + \mu$.

        >>> scale = Standardise.fit(np.array([[1.0], [3.0]]))
        >>> scale.inverse(scale(np.array([[7.0]]))).tolist()
        [[7.0]]
        """
        return zs * self._like(self.scale, zs) + self._like(self.mean, zs)

    def _like(self, statistic: np.ndarray, xs: Any) -> np.ndarray:
        """The statistic with as many axes as `xs`, which is one example or a batch."""
        extra = np.ndim(xs) - statistic.ndim
        return statistic.reshape((1,) * extra + statistic.shape)

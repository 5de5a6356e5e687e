"""Arrays made ready to learn from: split apart, and brought to one scale."""

from typing import Any, NamedTuple, TypeVar

import jax
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ..check import check

T = TypeVar("T")


def split(arrays: T, fraction: float, *, key: PRNGKeyArray, by: Any = None) -> tuple[T, T]:
    """Two disjoint random parts that make up the whole, the first with `fraction` of the examples.

    `arrays` is any tree of arrays of one length, such as `(xs, ys)`. With labels in `by` each part
    keeps their proportions, as nearly as whole numbers allow.

    >>> xs, ys = np.arange(10), np.array([0] * 8 + [1] * 2)
    >>> (train, _), (rest, labels) = split((xs, ys), 0.5, key=jr.key(0), by=ys)
    >>> sorted([*train.tolist(), *rest.tolist()]), sorted(labels.tolist())
    ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [0, 0, 0, 0, 1])
    """
    lengths = {len(leaf) for leaf in jax.tree.leaves(arrays)} | (
        {len(by)} if by is not None else set()
    )
    if len(lengths) != 1:
        raise ValueError(f"arrays: expected arrays of one length, got lengths {sorted(lengths)}.")
    n = lengths.pop()
    size = round(fraction * n)
    if not 0 < size < n:
        raise ValueError(
            f"fraction={fraction} of {n} examples puts {min(max(size, 0), n)} into the first part; "
            "both parts need at least one. Choose a fraction between 0 and 1."
        )
    order = np.asarray(jr.permutation(key, n))
    first = np.zeros(n, bool)
    first[order[:size] if by is None else _proportionate(np.asarray(by), order, size)] = True
    pick = lambda chosen: jax.tree.map(lambda leaf: leaf[chosen], arrays)
    return pick(order[first[order]]), pick(order[~first[order]])


def _proportionate(labels: np.ndarray, order: np.ndarray, size: int) -> np.ndarray:
    """The first few of each class in the given order: `size` in all, shared by largest
    remainder.
    """
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    quotas = counts * size / len(labels)
    takes = np.floor(quotas).astype(int)
    takes[np.argsort(takes - quotas, kind="stable")[: size - takes.sum()]] += 1
    return np.concatenate([order[classes[order] == k][:take] for k, take in enumerate(takes)])


class Standardise(NamedTuple):
    r"""$x \mapsto (x - \mu) / \sigma$, feature by feature, with $\mu$ and $\sigma$ of the training
    part.

    Fit it on what you train on, and on nothing else; then call it on everything. A feature that
    never varies is centred and keeps its scale.

    >>> scale = Standardise.fit(np.array([[0.0, 5.0], [2.0, 5.0]]))
    >>> scale(np.array([[4.0, 6.0]])).tolist()
    [[3.0, 1.0]]
    """

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def fit(cls, xs: Any) -> "Standardise":
        """Mean and standard deviation of each feature of `xs`, shape `n *s`."""
        check(xs)
        xs = np.asarray(xs)
        constant = xs.max(axis=0) == xs.min(axis=0)
        mean = xs.mean(axis=0, dtype=np.float64)
        scale = xs.std(axis=0, dtype=np.float64)
        return cls(mean.astype(np.float32), np.where(constant, 1.0, scale).astype(np.float32))

    def __call__(self, xs: Any) -> Any:
        return (xs - self._like(self.mean, xs)) / self._like(self.scale, xs)

    def inverse(self, zs: Any) -> Any:
        r"""$z \mapsto \sigma z + \mu$, so that `inverse(call(x))` is x.

        >>> scale = Standardise.fit(np.array([[1.0], [3.0]]))
        >>> scale.inverse(scale(np.array([[7.0]]))).tolist()
        [[7.0]]
        """
        return zs * self._like(self.scale, zs) + self._like(self.mean, zs)

    def _like(self, statistic: np.ndarray, xs: Any) -> np.ndarray:
        """The statistic with as many axes as `xs`, which is one example or a batch."""
        extra = np.ndim(xs) - statistic.ndim
        return statistic.reshape((1,) * extra + statistic.shape)

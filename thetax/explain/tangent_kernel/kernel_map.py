r"""Tangent kernel of a classifier as a heat map, sorted by class (§9.1).

A gradient step on $x'$ that changes $f(x')$ changes $f(x)$ in proportion to $k(x, x')$. With the
examples sorted by class, a kernel that separates the classes has bright blocks along the diagonal;
the mean of a block measures how much training on one class changes the outputs of another.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from ...core import Batch, Model
from .tangent_spectrum import mean_kernel


@dataclass(frozen=True)
class KernelMap:
    r"""The cosine kernel $\frac{k(x, x')}{\sqrt{k(x, x)\,k(x', x')}}$ of examples sorted by class,
    and its mean for each pair of classes.

    Means exclude pairs of an example with itself, and are NaN where there are no other pairs.
    """

    values: Float[np.ndarray, "n n"]
    class_means: Float[np.ndarray, "k k"]
    labels: Int[np.ndarray, " n"]  # class of each row, as an index into `classes`
    classes: tuple[str, ...]

    @property
    def within(self) -> float:
        """Mean over pairs of different examples of the same class."""
        return float(self.values[self._off_diagonal & self._same_class].mean())

    @property
    def between(self) -> float:
        """Mean over pairs of different classes."""
        return float(self.values[~self._same_class].mean())

    @property
    def _same_class(self) -> np.ndarray:
        return self.labels[:, None] == self.labels

    @property
    def _off_diagonal(self) -> np.ndarray:
        return ~np.eye(len(self.labels), dtype=bool)


def kernel_map(model: Model, data: Batch, *, classes: Sequence[str] = ()) -> KernelMap:
    r"""Tangent kernel of a classifier on examples `(xs, ys)`, normalised to cosines and sorted by
    class (§9.1).

    `ys` are integer labels from 0; `classes` are the class names. The kernel is averaged over the
    outputs, and normalised so that examples with large gradients do not dominate.

    >>> import jax.random as jr
    >>> from thetax.models import MLP
    >>> model, xs = MLP.init(3, 16, 2, key=jr.key(0)), jr.normal(jr.key(1), (6, 3))
    >>> result = kernel_map(model, (xs, np.array([0, 1, 0, 1, 0, 1])), classes=("a", "b"))
    >>> result.labels.tolist(), result.class_means.shape, np.diag(result.values).round(6).tolist()
    ([0, 0, 0, 1, 1, 1], (2, 2), [1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    """
    xs = data[0]
    ys = np.asarray(data[1])
    if ys.ndim != 1 or not np.issubdtype(ys.dtype, np.integer) or ys.min() < 0:
        raise ValueError(
            f"kernel_map: ys must be integer labels >= 0, one per example; got {ys.dtype} of shape "
            f"{ys.shape}."
        )
    names = tuple(classes) or tuple(str(label) for label in range(ys.max() + 1))
    if ys.max() >= len(names):
        raise ValueError(
            f"kernel_map: ys contains class {ys.max()}, but classes has {len(names)} names."
        )
    order = np.argsort(ys, kind="stable")
    K = mean_kernel(model, xs)[np.ix_(order, order)]
    scale = np.sqrt(np.diag(K))
    if not scale.all():
        raise ValueError(
            "kernel_map: for some examples the gradient of all outputs is zero; remove them."
        )
    cosine = K / np.outer(scale, scale)
    labels = ys[order]
    return KernelMap(cosine, _class_means(cosine, labels, len(names)), labels, names)


def _class_means(
    values: Float[np.ndarray, "n n"], labels: Int[np.ndarray, " n"], k: int
) -> Float[np.ndarray, "k k"]:
    member = (labels == np.arange(k)[:, None]).astype(np.float64)
    off_diagonal = 1 - np.eye(len(labels))
    total = member @ (values * off_diagonal) @ member.T
    count = member @ off_diagonal @ member.T
    return np.divide(total, count, out=np.full((k, k), np.nan), where=count > 0)

r"""The tangent kernel as a picture (§9.1): which examples teach one another, and whether classes
do.

A step on $x'$ that changes $f(x')$ changes $f(x)$ by $k(x, x')$. With the examples sorted by class,
a kernel that knows the classes is bright in squares along the diagonal; the mean of a square is how
much the examples of one class teach those of another.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from ...core import Batch, Model
from .tangent_spectrum import mean_kernel


@dataclass(frozen=True)
class KernelMap:
    r"""$\frac{k(x, x')}{\sqrt{k(x, x)\,k(x', x')}}$, a cosine, of examples sorted by class, and the
    means of classes.

    A mean leaves out pairs of an example with itself, and is NaN where there are no others.
    """

    values: Float[np.ndarray, "n n"]
    means: Float[np.ndarray, "k k"]
    truth: Int[np.ndarray, " n"]  # the class of each row, a place in `classes`
    classes: tuple[str, ...]

    @property
    def within(self) -> float:
        """The mean over pairs of one class."""
        return float(self.values[self._pairs & self._same].mean())

    @property
    def between(self) -> float:
        """The mean over pairs of two classes."""
        return float(self.values[~self._same].mean())

    @property
    def _same(self) -> np.ndarray:
        return self.truth[:, None] == self.truth

    @property
    def _pairs(self) -> np.ndarray:
        return ~np.eye(len(self.truth), dtype=bool)


def kernel_map(model: Model, data: Batch, *, classes: Sequence[str] = ()) -> KernelMap:
    r"""The tangent kernel of a classifier on some examples `(xs, ys)`, sorted by class (§9.1).

    `ys` are whole numbers from 0; `classes` are their names. The kernel is the mean over the
    outputs, as a cosine, so that examples with large gradients do not outshine the others.

    >>> import jax.random as jr
    >>> from thetax.models import MLP
    >>> model, xs = MLP.init(3, 16, 2, key=jr.key(0)), jr.normal(jr.key(1), (6, 3))
    >>> found = kernel_map(model, (xs, np.array([0, 1, 0, 1, 0, 1])), classes=("a", "b"))
    >>> found.truth.tolist(), found.means.shape, np.diag(found.values).round(6).tolist()
    ([0, 0, 0, 1, 1, 1], (2, 2), [1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    """
    xs = data[0]
    ys = np.asarray(data[1])
    if ys.ndim != 1 or not np.issubdtype(ys.dtype, np.integer) or ys.min() < 0:
        raise ValueError(
            f"kernel_map: ys must be classes, whole numbers from 0, one a row; got {ys.dtype} "
            f"{ys.shape}."
        )
    names = tuple(classes) or tuple(str(label) for label in range(ys.max() + 1))
    if ys.max() >= len(names):
        raise ValueError(f"kernel_map: class {ys.max()} has no name among the {len(names)} given.")
    order = np.argsort(ys, kind="stable")
    K = mean_kernel(model, xs)[np.ix_(order, order)]
    scale = np.sqrt(np.diag(K))
    if not scale.all():
        raise ValueError(
            "kernel_map: on some examples no output depends on any parameter; leave them out."
        )
    cosine = K / np.outer(scale, scale)
    truth = ys[order]
    return KernelMap(cosine, _means(cosine, truth, len(names)), truth, names)


def _means(
    values: Float[np.ndarray, "n n"], truth: Int[np.ndarray, " n"], k: int
) -> Float[np.ndarray, "k k"]:
    member = (truth == np.arange(k)[:, None]).astype(np.float64)
    others = 1 - np.eye(len(truth))
    total = member @ (values * others) @ member.T
    count = member @ others @ member.T
    return np.divide(total, count, out=np.full((k, k), np.nan), where=count > 0)

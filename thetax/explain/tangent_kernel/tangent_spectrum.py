r"""What the tangent kernel finds easy (§9.2): its eigenvalues, and how much of the targets lies
along the large ones.

With $K_{ij}$ the mean over the outputs of
$\langle \nabla_\theta f(x_i), \nabla_\theta f(x_j) \rangle$ and $\frac1n K = V \Lambda V^\top$,
gradient flow on the squared error learns what lies along $v_i$ at the rate $\lambda_i$, as long as
the kernel stays as it is. A network learns fast, and a ridge costs it little, where the targets lie
along the first eigenvectors; that is what alignment tells in one number.
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from ...core import Batch, Model
from .ntk import ntk

Matrix = Float[np.ndarray, "n n"] | Float[Array, "n n"]


def are_classes(ys: Any) -> bool:
    """Whether targets are classes, whole numbers, one a row."""
    return np.ndim(ys) == 1 and not np.issubdtype(ys.dtype, np.inexact)


def centred_targets(ys: Any) -> Float[np.ndarray, "n k"]:
    r"""$HY$, $H = I - \frac1n 11^\top$: whole numbers are classes, a column for each that occurs;
    others are numbers.

    >>> centred_targets(np.array([2, 2, 7, 2])).tolist()
    [[0.25, -0.25], [0.25, -0.25], [-0.75, 0.75], [0.25, -0.25]]
    """
    ys = np.asarray(ys)
    Y = (ys[:, None] == np.unique(ys) if are_classes(ys) else ys.reshape(len(ys), -1)).astype(
        np.float64
    )
    Y = Y - Y.mean(axis=0)
    if not np.isfinite(Y).all() or np.allclose(Y, 0, atol=1e-12):
        raise ValueError(
            "targets: expected finite ones that are not all the same; give examples of several "
            "classes."
        )
    return Y


def mean_kernel(model: Model, xs: Batch) -> Float[np.ndarray, "n n"]:
    r"""$K$, the tangent kernel of an output, in the mean over the outputs."""
    one = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), xs)
    outputs = jax.tree.leaves(jax.eval_shape(lambda model, x: model(x), model, one))[0].size
    return np.asarray(ntk(model, form="trace")(xs), np.float64) / outputs


def kernel_alignment(K: Matrix, ys: Any) -> float:
    r"""$\frac{\langle HKH, YY^\top \rangle}{\|HKH\| \|YY^\top\|}$, centred, from 0 to 1 (Cortes et
    al. 2012).

    1 says that examples are as like one another as their targets are, up to a factor. Whole numbers
    are classes.

    >>> ys = np.array([0, 0, 1, 1])
    >>> (
    ...     round(kernel_alignment(np.equal.outer(ys, ys) + 3.0, ys), 6),
    ...     round(kernel_alignment(np.eye(4), ys), 4),
    ... )
    (1.0, 0.5774)
    """
    Y = centred_targets(ys)
    K = np.asarray(K, np.float64)
    if K.shape != (len(Y), len(Y)):
        raise ValueError(
            f"kernel_alignment: expected a matrix of {len(Y)} rows and columns; got {K.shape}."
        )
    K = centred(K)
    norm = np.linalg.norm(K)
    if not norm:
        raise ValueError(
            "kernel_alignment: the kernel is the same for all pairs of examples; nothing is "
            "aligned."
        )
    return float((Y * (K @ Y)).sum() / (norm * np.linalg.norm(Y.T @ Y)))


def effective_dimension(values: Any, ridge: Any) -> Float[np.ndarray, "*r"]:
    r"""$d(\lambda) = \sum_i \frac{\lambda_i}{\lambda_i + \lambda}$: how many directions a ridge
    $\lambda$ leaves.

    It is also, within a factor of 1.3, how many modes gradient flow has learnt by the time
    $1/\lambda$.

    >>> effective_dimension([9.0, 1.0, 0.0], [1.0, 0.0]).tolist()
    [1.4, 2.0]
    """
    values = np.asarray(values, np.float64)
    ridge = np.asarray(ridge, np.float64)
    if (values < 0).any() or not (ridge >= 0).all():
        raise ValueError("effective_dimension: eigenvalues and ridges must not be negative.")
    some = values[values > 0]
    return np.asarray((some / (some + ridge[..., None])).sum(axis=-1))


@dataclass(frozen=True)
class TangentSpectrum:
    r"""The eigenvalues of $\frac1n K$, the largest first, and what of the centred targets lies
    along each.
    """

    values: Float[np.ndarray, " n"]
    shares: Float[np.ndarray, " n"]  # of the energy of the targets; they sum to 1
    alignment: float
    outputs: int  # numbers that make a target
    ridge: float | None  # the weight decay of the training, if there was one

    @property
    def learnt(self) -> Float[np.ndarray, " n"]:
        """The share of the targets that lies in the span of the first eigenvectors, for each number
        of them.
        """
        return np.cumsum(self.shares)

    def dimension(self, ridge: Any) -> Float[np.ndarray, "*r"]:
        r"""$d(\lambda)$; see `effective_dimension`."""
        return effective_dimension(self.values, ridge)

    def needed(self, share: float) -> int:
        """How many eigenvectors hold so much of the targets."""
        return int(np.searchsorted(self.learnt, share * (1 - 1e-9)) + 1)


def tangent_spectrum(model: Model, data: Batch, *, ridge: float | None = None) -> TangentSpectrum:
    r"""The spectrum of the tangent kernel on some examples `(xs, ys)`, and its alignment with their
    targets (§9.2).

    Targets are classes (whole numbers, one a row), or numbers; they are centred, the kernel is not.
    Eigenvalues are those of $\frac1n K$, with $K$ the mean over the outputs, in the units of a
    weight decay $\frac{\mu}{2}\|\theta\|^2$ beside a mean over the examples: `ridge` is that of the
    training, to be marked.

    >>> import jax.random as jr
    >>> from thetax.models import MLP
    >>> model, xs = MLP.init(3, 16, 2, key=jr.key(0)), jr.normal(jr.key(1), (20, 3))
    >>> found = tangent_spectrum(model, (xs, np.arange(20) % 2))
    >>> (
    ...     found.values.shape,
    ...     round(float(found.learnt[-1]), 6),
    ...     bool(found.dimension(found.values[0]) >= 0.5),
    ... )
    ((20,), 1.0, True)
    """
    xs, ys = data
    Y = centred_targets(ys)
    K = mean_kernel(model, xs)
    values, V = np.linalg.eigh(K / len(K))
    shares = np.square(V.T @ Y).sum(axis=1)[::-1] / np.square(Y).sum()
    return TangentSpectrum(
        np.maximum(values, 0.0)[::-1], shares, kernel_alignment(K, ys), Y.shape[1], ridge
    )


def centred(K: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """$HKH$."""
    rows = K.mean(axis=0)
    return K - rows - rows[:, None] + rows.mean()

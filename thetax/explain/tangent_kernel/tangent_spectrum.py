r"""Spectrum of the tangent kernel and its alignment with the targets (§9.2).

With $K_{ij}$ the mean over the outputs of
$\langle \nabla_\theta f(x_i), \nabla_\theta f(x_j) \rangle$ and $\frac1n K = V \Lambda V^\top$,
gradient flow on the squared error learns the component of the targets along $v_i$ at the rate
$\lambda_i$, as long as the kernel is constant. Learning is fast, and a ridge penalty costs little,
if the targets lie along the leading eigenvectors; kernel-target alignment summarises this in one
number.
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
    """Whether targets are class labels: integers, one per example."""
    return np.ndim(ys) == 1 and not np.issubdtype(ys.dtype, np.inexact)


def centred_targets(ys: Any) -> Float[np.ndarray, "n k"]:
    r"""Centred targets $HY$, $H = I - \frac1n 11^\top$; integer labels become one-hot columns, one
    for each class that occurs.

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
            "targets must be finite and not all equal; give examples of several classes."
        )
    return Y


def mean_kernel(model: Model, xs: Batch) -> Float[np.ndarray, "n n"]:
    r"""$K$, the tangent kernel of one output, averaged over the outputs."""
    one = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), xs)
    outputs = jax.tree.leaves(jax.eval_shape(lambda model, x: model(x), model, one))[0].size
    return np.asarray(ntk(model, form="trace")(xs), np.float64) / outputs


def kernel_alignment(K: Matrix, ys: Any) -> float:
    r"""Centred kernel-target alignment,
    $\frac{\langle HKH, YY^\top \rangle}{\|HKH\| \|YY^\top\|}$, from 0 to 1 (Cortes et al. 2012).

    At 1 the kernel is proportional to the similarity of the targets. Integer `ys` are class labels.

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
            f"kernel_alignment: K must have shape {(len(Y), len(Y))}, one row and column per "
            f"target; got {K.shape}."
        )
    K = centre_kernel(K)
    norm = np.linalg.norm(K)
    if not norm:
        raise ValueError(
            "kernel_alignment: the kernel is the same for all pairs of examples, so its alignment "
            "is undefined."
        )
    return float((Y * (K @ Y)).sum() / (norm * np.linalg.norm(Y.T @ Y)))


def effective_dimension(eigenvalues: Any, ridge: Any) -> Float[np.ndarray, "*r"]:
    r"""Effective dimension (degrees of freedom) of ridge regression with strength $\lambda$,
    $d(\lambda) = \sum_i \frac{\lambda_i}{\lambda_i + \lambda}$.

    It is also, within a factor of 1.3, the number of eigenmodes that gradient flow has learnt by
    the time $1/\lambda$.

    >>> effective_dimension([9.0, 1.0, 0.0], [1.0, 0.0]).tolist()
    [1.4, 2.0]
    """
    eigenvalues = np.asarray(eigenvalues, np.float64)
    ridge = np.asarray(ridge, np.float64)
    if (eigenvalues < 0).any() or not (ridge >= 0).all():
        raise ValueError("effective_dimension: eigenvalues and ridges must be >= 0.")
    positive = eigenvalues[eigenvalues > 0]
    return np.asarray((positive / (positive + ridge[..., None])).sum(axis=-1))


@dataclass(frozen=True)
class TangentSpectrum:
    r"""Eigenvalues of $\frac1n K$ in decreasing order, and the fraction of the energy of the
    centred targets along each eigenvector.
    """

    eigenvalues: Float[np.ndarray, " n"]
    target_fractions: Float[np.ndarray, " n"]  # they sum to 1
    alignment: float
    n_targets: int  # columns of the targets
    weight_decay: float | None  # of the training, if any

    @property
    def cumulative_fractions(self) -> Float[np.ndarray, " n"]:
        """Fraction of the target energy in the span of the first $k$ eigenvectors, for each k."""
        return np.cumsum(self.target_fractions)

    def effective_dimension(self, ridge: Any) -> Float[np.ndarray, "*r"]:
        r"""$d(\lambda)$; see `effective_dimension`."""
        return effective_dimension(self.eigenvalues, ridge)

    def n_eigenvectors(self, fraction: float) -> int:
        """Number of leading eigenvectors that contain this fraction of the target energy."""
        return int(np.searchsorted(self.cumulative_fractions, fraction * (1 - 1e-9)) + 1)


def tangent_spectrum(
    model: Model, data: Batch, *, weight_decay: float | None = None
) -> TangentSpectrum:
    r"""Spectrum of the tangent kernel on examples `(xs, ys)`, and its alignment with the targets
    (§9.2).

    Targets are integer class labels or regression targets; they are centred, the kernel is not.
    Eigenvalues are those of $\frac1n K$, with $K$ the mean over the outputs, in the units of a
    weight decay $\frac{\mu}{2}\|\theta\|^2$ added to a mean loss: `weight_decay` is that of the
    training, to be marked in the plot.

    >>> import jax.random as jr
    >>> from thetax.models import MLP
    >>> model, xs = MLP.init(3, 16, 2, key=jr.key(0)), jr.normal(jr.key(1), (20, 3))
    >>> spectrum = tangent_spectrum(model, (xs, np.arange(20) % 2))
    >>> spectrum.eigenvalues.shape, round(float(spectrum.cumulative_fractions[-1]), 6)
    ((20,), 1.0)
    >>> bool(spectrum.effective_dimension(spectrum.eigenvalues[0]) >= 0.5)
    True
    """
    xs, ys = data
    Y = centred_targets(ys)
    K = mean_kernel(model, xs)
    eigenvalues, V = np.linalg.eigh(K / len(K))
    target_fractions = np.square(V.T @ Y).sum(axis=1)[::-1] / np.square(Y).sum()
    return TangentSpectrum(
        eigenvalues=np.maximum(eigenvalues, 0.0)[::-1],
        target_fractions=target_fractions,
        alignment=kernel_alignment(K, ys),
        n_targets=Y.shape[1],
        weight_decay=weight_decay,
    )


def centre_kernel(K: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """The centred kernel $HKH$."""
    rows = K.mean(axis=0)
    return K - rows - rows[:, None] + rows.mean()

r"""Linear separability (§1.2): signed distances and geometric margins, a separating hyperplane or a
proof that there is none, and the maximum-margin separator (hard-margin SVM).

Data $S = \{(x_i, y_i)\}$, $y_i \in \{-1, +1\}$, enter through the signed rows $z_i = y_i (x_i, 1)$:
$(w, b)$ separates $S$ iff $z_i^\top (w, b) > 0$ for all $i$. By Farkas' lemma there is no such
$(w, b)$ iff $\sum_i \alpha_i z_i = 0$ for some $\alpha \ge 0$ with $\sum_i \alpha_i = 1$; so each
answer has a certificate.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int, Num

from ...check import check
from ...core import Scalar
from .hull import all_positive, nearest_point
from .infeasibility import (
    TOLERANCE,
    class_groups,
    round_separator,
    separate_in_float64,
    signed_rows,
)
from .neuron import Perceptron

MAX_MARGIN_GAP = 1e-8  # relative gap between the margin and its upper bound at which it is optimal


class NotSeparable(ValueError):
    r"""The data are not linearly separable; `certificate` holds the $\alpha$ that proves it."""

    def __init__(self, message: str, certificate: Float[np.ndarray, " n"]):
        super().__init__(message)
        self.certificate = certificate


class Separation(NamedTuple):
    r"""Either a separator or a certificate, $\alpha \ge 0$ with $\sum_i \alpha_i = 1$ and
    $\sum_i \alpha_i z_i = 0$; the other is None.
    """

    model: Perceptron | None
    certificate: Float[np.ndarray, " n"] | None

    @property
    def separable(self) -> bool:
        """Whether the data are linearly separable."""
        return self.model is not None


class MaxMargin(NamedTuple):
    r"""Maximum-margin separator, scaled to $\min_i y_i (w^\top x_i + b) = 1$, so that
    $\gamma = 1 / \|w\|$.
    """

    model: Perceptron
    margin: float
    support: Int[np.ndarray, " s"]  # indices of the support vectors
    alpha: Float[np.ndarray, " s"]  # their multipliers, $w = \sum_i \alpha_i y_i x_i$


def signed_distance(model: Perceptron, x: Num[Array, " d"], y: Num[Array, ""] | float) -> Scalar:
    r"""Signed distance to the hyperplane, $\gamma[w, b](x, y) = y\,(w^\top x + b) / \|w\|$:
    positive iff $x$ is classified as $y$; NaN at $w = 0$ (§1.2).

    >>> float(
    ...     signed_distance(
    ...         Perceptron(jnp.array([3.0, 4.0]), jnp.array(-5.0)), jnp.array([3.0, 4.0]), -1.0
    ...     )
    ... )
    -4.0
    """
    length = jnp.linalg.norm(jnp.asarray(model.w, float))
    return jnp.where(length > 0, y * model.score(x) / length, jnp.nan)


def geometric_margin(model: Perceptron, xs: Num[Any, "n d"], ys: Num[Any, " n"]) -> Scalar:
    r"""Geometric margin on a data set, $\gamma[w, b](S) = \min_i \gamma[w, b](x_i, y_i)$: $(w, b)$
    $\gamma$-separates for every $\gamma$ up to it (§1.2).

    >>> xs, ys = jnp.array([[3.0], [-1.0]]), jnp.array([1.0, -1.0])
    >>> float(geometric_margin(Perceptron(jnp.array([2.0])), xs, ys))
    1.0
    """
    check_signed_labels(xs, ys)
    return jax.vmap(lambda x, y: signed_distance(model, x, y))(
        jnp.asarray(xs), jnp.asarray(ys)
    ).min()


def check_signed_labels(xs: Any, ys: Any) -> None:
    """Raises unless `xs` is a matrix of finite points and `ys` has labels -1 and +1; of traced
    arrays only the shapes are checked.

    >>> check_signed_labels(np.ones((2, 1)), np.array([1, 0]))
    Traceback (most recent call last):
    ValueError: ys: expected labels -1 or +1, but row 1 is 0. For labels 0 and 1 use 2 * ys - 1.
    """
    try:
        points = np.shape(xs)
        labels = np.shape(ys)
    except ValueError:
        raise ValueError(
            "xs and ys: expected rows of one length, but the rows differ. Pad or cut them."
        ) from None
    if len(points) != 2 or labels != points[:1]:
        raise ValueError(
            f"xs and ys: expected points of shape (n, d) and labels of shape (n,); got {points} "
            f"and {labels}. Row i of both is example i."
        )
    if points[0] and not points[1]:
        raise ValueError(
            f"xs: the points have no features, as the shape is {points}; give at least one feature."
        )
    if isinstance(xs, Tracer) or isinstance(ys, Tracer):
        return
    with jax.ensure_compile_time_eval():  # constants inside a traced function have values
        check(xs, ys)
        wrong = np.abs(np.asarray(ys)) != 1
    if wrong.any():
        i = int(wrong.argmax())
        raise ValueError(
            f"ys: expected labels -1 or +1, but row {i} is {ys[i]:g}. For labels 0 and 1 use 2 * "
            "ys - 1."
        )


def find_separator(xs: Num[Any, "n d"], ys: Num[Any, " n"], *, bias: bool = True) -> Separation:
    r"""Decides linear separability: finds a separating hyperplane, or a certificate that there is
    none (§1.2).

    The linear programme $\max t$ subject to $z_i^\top v \ge t \|z_i\|$, $|v_j| \le 1$, in centred
    and scaled features, has a positive optimum iff the data are separable; otherwise its
    multipliers are the certificate. It is solved on a working set that grows by the most violated
    rows, so that a million points cost little more than the few that matter. If its tolerance
    leaves the question open, the nearest points of the two convex hulls decide. The result is
    verified on the data as given: either all scores are positive, exactly, or the combination is 0,
    exactly if it involves at most 16 examples and to twelve digits otherwise. Raises
    ArithmeticError if neither can be verified in float64, or if no separator survives rounding to
    JAX's float type.

    >>> square = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    >>> find_separator(square, np.array([1, 1, -1, -1])).certificate.round(6).tolist()
    [0.25, 0.25, 0.25, 0.25]
    >>> find_separator(square + 1e4, np.array([-1, 1, -1, 1])).separable
    True
    """
    check_signed_labels(xs, ys)
    xs = np.asarray(xs, float)
    ys = np.asarray(ys, float)
    v, certificate = separate_in_float64(xs, ys, bias)
    if v is None:
        return Separation(None, certificate)
    return Separation(_to_perceptron(v, signed_rows(xs, ys, bias), bias, "separate"), None)


def _to_perceptron(v: np.ndarray, zs: np.ndarray, bias: bool, name: str) -> Perceptron:
    """The perceptron with v rounded to JAX's float type; raises if it no longer separates."""
    dtype = jnp.result_type(float)
    rounded = round_separator(v, zs, bias, dtype)
    if rounded is None:
        raise ArithmeticError(
            f"{name}: the data are separable, but not by these weights rounded to {dtype}; "
            "subtract the mean of the features, or call "
            'jax.config.update("jax_enable_x64", True).'
        )
    return as_perceptron(rounded, bias)


def as_signed_integers(xs: Any, name: str) -> Array:
    """Points as a JAX array; integers become int32 or int64, and raise if these cannot hold them.

    >>> as_signed_integers(np.array([[255]], np.uint8), "fit_perceptron").dtype
    dtype('int32')
    """
    dtype = np.dtype(xs.dtype) if hasattr(xs, "dtype") else np.asarray(xs).dtype
    if dtype.kind not in "biu":
        return jnp.asarray(xs)
    wide = np.promote_types(dtype, np.int32)  # float64 for uint64
    if wide.kind != "i" or (
        wide.itemsize > 4 and jnp.result_type(int) == jnp.int32 and not _fit_int32(xs)
    ):
        raise ValueError(
            f"{name}: xs has dtype {dtype}, whose values may not fit into int32; pass int32 or "
            'floats, or call jax.config.update("jax_enable_x64", True) and pass int64.'
        )
    return jnp.asarray(xs).astype(jnp.int32 if wide.itemsize == 4 else int)


def _fit_int32(xs: Any) -> bool:
    return not isinstance(xs, Tracer) and bool(np.abs(np.asarray(xs, float)).max() < 2**31)


def as_perceptron(v: Any, bias: bool) -> Perceptron:
    r"""The perceptron with $v = (w, b)$."""
    return (
        Perceptron(jnp.asarray(v[:-1]), jnp.asarray(v[-1])) if bias else Perceptron(jnp.asarray(v))
    )


def max_margin(xs: Num[Any, "n d"], ys: Num[Any, " n"], *, bias: bool = True) -> MaxMargin:
    r"""Hard-margin support vector machine (SVM): $\min \tfrac12 \|w\|^2$ subject to
    $y_i (w^\top x_i + b) \ge 1$ (§1.2).

    Its margin $1 / \|w\|$ is the maximum: half the distance between the convex hulls of the two
    classes or, without a bias, the distance of the hull of the $y_i x_i$ from the origin. Wolfe's
    algorithm (1976) finds the nearest points in finitely many steps. The result is optimal to eight
    digits, by comparison of its margin with the upper bound from the multipliers; raises
    ArithmeticError if rounding prevents that, and `NotSeparable` if there is no separator. Boser,
    Guyon & Vapnik 1992.

    >>> svm = max_margin(np.array([[0.0, 0.0], [2.0, 0.0], [3.0, 5.0]]), np.array([-1, 1, 1]))
    >>> round(svm.margin, 6), svm.model.w.round(6).tolist(), svm.support.tolist()
    (1.0, [1.0, 0.0], [0, 1])
    """
    check_signed_labels(xs, ys)
    xs = np.asarray(xs, float)
    ys = np.asarray(ys, float)
    if bias and len(np.unique(ys)) == 1:
        raise ValueError(
            "max_margin: with a bias the margin of a single class is unbounded; give both labels."
        )
    centre = (
        (xs[ys > 0].mean(axis=0) + xs[ys < 0].mean(axis=0)) / 2 if bias else np.zeros(xs.shape[1])
    )
    scale = np.abs(xs - centre).max() or 1.0
    rows = ys[:, None] * (xs - centre) / scale
    nearest = nearest_point(rows, class_groups(ys, bias))
    upper = np.linalg.norm(nearest.alpha @ rows) * np.linalg.norm(nearest.w)
    lower = nearest.low.sum()
    factor = len(nearest.low) / lower if lower > 0 else 0.0
    w = factor * nearest.w / scale
    v = np.append(w, factor * (nearest.low[1] - nearest.low[0]) / 2 - w @ centre) if bias else w
    zs = signed_rows(xs, ys, bias)
    if not all_positive(zs, v):
        _raise_not_separable(xs, ys, bias)
    rounding_error = max(TOLERANCE, 4 * np.finfo(float).eps * (np.abs(zs) @ np.abs(v)).max())
    optimal = upper - lower <= MAX_MARGIN_GAP * upper
    if not all_positive(zs, v) or not optimal or (zs @ v).min() < 1 - rounding_error:
        raise ArithmeticError(
            "max_margin: the data are separable, but their margin, at most "
            f"{np.sqrt(upper) / len(nearest.low):.1g} of the largest coordinate, is lost in "
            "rounding; scale the features to a common range."
        )
    support = np.flatnonzero(nearest.alpha)
    model = _to_perceptron(v, zs, bias, "max_margin")
    return MaxMargin(
        model, float(1 / np.linalg.norm(w)), support, factor * nearest.alpha[support] / scale**2
    )


def _raise_not_separable(xs: np.ndarray, ys: np.ndarray, bias: bool) -> None:
    certificate = separate_in_float64(xs, ys, bias)[1]
    if certificate is not None:
        message = "max_margin: no hyperplane separates the data; .certificate has the multipliers."
        raise NotSeparable(message, certificate)

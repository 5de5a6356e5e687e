r"""Linear separation (§1.2): signed distances and margins, separability, and the separator of
largest margin.

Data $S = \{(x_i, y_i)\}$, $y_i \in \{-1, +1\}$, enter through the signed rows $z_i = y_i (x_i, 1)$:
$(w, b)$ separates $S$ iff $z_i^\top (w, b) > 0$ for all $i$. By Farkas' lemma there is no such
$(w, b)$ iff some $\alpha \ge 0$, $\sum_i \alpha_i = 1$, has $\sum_i \alpha_i z_i = 0$; one of the
two can always be shown.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int, Num

from ...check import check
from ...core import Scalar
from .hull import nearest_point, positive
from .infeasibility import EXACT, classes, decide, held, signed_rows
from .neuron import Perceptron

GAP = 1e-8  # share of the largest margin that may be missing


class NotSeparable(ValueError):
    r"""No $(w, b)$ separates the data; `certificate` holds the $\alpha$ that shows it."""

    def __init__(self, message: str, certificate: Float[np.ndarray, " n"]):
        super().__init__(message)
        self.certificate = certificate


class Separation(NamedTuple):
    r"""A separator, or the $\alpha \ge 0$ with $\sum_i \alpha_i = 1$ and $\sum_i \alpha_i z_i = 0$:
    never both.
    """

    model: Perceptron | None
    certificate: Float[np.ndarray, " n"] | None

    @property
    def separable(self) -> bool:
        """Whether there is a separator."""
        return self.model is not None


class MaxMargin(NamedTuple):
    r"""The separator of largest margin, scaled to $\min_i y_i (w^\top x_i + b) = 1$, so that
    $\gamma = 1 / \|w\|$.
    """

    model: Perceptron
    margin: float
    support: Int[np.ndarray, " s"]  # the points on the margin that hold it in place
    alpha: Float[np.ndarray, " s"]  # their multipliers, $w = \sum_i \alpha_i y_i x_i$


def signed_distance(model: Perceptron, x: Num[Array, " d"], y: Num[Array, ""] | float) -> Scalar:
    r"""$\gamma[w, b](x, y) = y\,(w^\top x + b) / \|w\|$, positive iff $x$ is classified as $y$; NaN
    at $w = 0$ (§1.2).

    >>> float(
    ...     signed_distance(
    ...         Perceptron(jnp.array([3.0, 4.0]), jnp.array(-5.0)), jnp.array([3.0, 4.0]), -1.0
    ...     )
    ... )
    -4.0
    """
    length = jnp.linalg.norm(jnp.asarray(model.w, float))
    return jnp.where(length > 0, y * model.score(x) / length, jnp.nan)


def margin(model: Perceptron, xs: Num[Any, "n d"], ys: Num[Any, " n"]) -> Scalar:
    r"""$\gamma[w, b](S) = \min_i \gamma[w, b](x_i, y_i)$; $(w, b)$ $\gamma$-separates for any
    $\gamma$ up to it (§1.2).

    >>> float(
    ...     margin(Perceptron(jnp.array([2.0])), jnp.array([[3.0], [-1.0]]), jnp.array([1.0, -1.0]))
    ... )
    1.0
    """
    check_signs(xs, ys)
    return jax.vmap(lambda x, y: signed_distance(model, x, y))(
        jnp.asarray(xs), jnp.asarray(ys)
    ).min()


def check_signs(xs: Any, ys: Any) -> None:
    """Refuses what is no set of finite points with labels -1 and +1; silent about what is only
    traced.

    >>> check_signs(np.ones((2, 1)), np.array([1, 0]))
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
            f"xs: the points have no coordinates, as the shape is {points}; give at least one "
            "feature."
        )
    if isinstance(xs, Tracer) or isinstance(ys, Tracer):
        return
    with jax.ensure_compile_time_eval():  # constants of a traced function are values all the same
        check(xs, ys)
        wrong = np.abs(np.asarray(ys)) != 1
    if wrong.any():
        i = int(wrong.argmax())
        raise ValueError(
            f"ys: expected labels -1 or +1, but row {i} is {ys[i]:g}. For labels 0 and 1 use 2 * "
            "ys - 1."
        )


def separate(xs: Num[Any, "n d"], ys: Num[Any, " n"], *, bias: bool = True) -> Separation:
    r"""A separator of the data or the proof that there is none (§1.2).

    The linear programme $\max t$ subject to $z_i^\top v \ge t \|z_i\|$, $|v_j| \le 1$, in features
    centred and scaled, is positive iff the data are separable; its multipliers are the certificate
    otherwise. It is solved on a working set that grows by the rows it gets most wrong, so that a
    million points cost little more than the few that matter. Where its tolerance leaves it open,
    the nearest points of the two hulls decide. What is returned has been multiplied out with the
    data as given: all scores are positive, without rounding, or the combination is 0, without
    rounding where it rests on 16 examples or fewer and else to twelve digits. If neither can be
    shown in double precision, or no separator survives the rounding to JAX's float type, raises
    ArithmeticError.

    >>> square = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    >>> separate(square, np.array([1, 1, -1, -1])).certificate.round(6).tolist()
    [0.25, 0.25, 0.25, 0.25]
    >>> separate(square + 1e4, np.array([-1, 1, -1, 1])).separable
    True
    """
    check_signs(xs, ys)
    xs = np.asarray(xs, float)
    ys = np.asarray(ys, float)
    v, certificate = decide(xs, ys, bias)
    if v is None:
        return Separation(None, certificate)
    return Separation(_rounded(v, signed_rows(xs, ys, bias), bias, "separate"), None)


def _rounded(v: np.ndarray, zs: np.ndarray, bias: bool, name: str) -> Perceptron:
    """The perceptron of v in JAX's float type, which still separates."""
    dtype = jnp.result_type(float)
    short = held(v, zs, bias, dtype)
    if short is None:
        raise ArithmeticError(
            f"{name}: the data are separable, but not by these weights rounded to {dtype}; "
            "subtract the mean of the "
            'features, or call jax.config.update("jax_enable_x64", True).'
        )
    return as_unit(short, bias)


def as_signed(xs: Any, name: str) -> Array:
    """The points in JAX's arithmetic, where integers have signs and room: at least int32, or
    refused.

    >>> as_signed(np.array([[255]], np.uint8), "fit_perceptron").dtype
    dtype('int32')
    """
    dtype = np.dtype(xs.dtype) if hasattr(xs, "dtype") else np.asarray(xs).dtype
    if dtype.kind not in "biu":
        return jnp.asarray(xs)
    wide = np.promote_types(dtype, np.int32)  # float64 for uint64
    if wide.kind != "i" or (
        wide.itemsize > 4 and jnp.result_type(int) == jnp.int32 and not _fits(xs)
    ):
        raise ValueError(
            f"{name}: xs has integers of {dtype}, which no signed type at hand is sure to hold; "
            "pass int32, or floats, "
            'or call jax.config.update("jax_enable_x64", True) and pass int64.'
        )
    return jnp.asarray(xs).astype(jnp.int32 if wide.itemsize == 4 else int)


def _fits(xs: Any) -> bool:
    return not isinstance(xs, Tracer) and bool(np.abs(np.asarray(xs, float)).max() < 2**31)


def as_unit(v: Any, bias: bool) -> Perceptron:
    r"""$v = (w, b)$ as a perceptron."""
    return (
        Perceptron(jnp.asarray(v[:-1]), jnp.asarray(v[-1])) if bias else Perceptron(jnp.asarray(v))
    )


def max_margin(xs: Num[Any, "n d"], ys: Num[Any, " n"], *, bias: bool = True) -> MaxMargin:
    r"""$\min \tfrac12 \|w\|^2$ subject to $y_i (w^\top x_i + b) \ge 1$: the hard-margin support
    vector machine (§1.2).

    Its margin $1 / \|w\|$ is the largest there is: half the distance of the convex hulls of the two
    classes or, without a bias, that of the hull of the $y_i x_i$ from the origin. Wolfe's algorithm
    (1976) finds the nearest points in finitely many steps. What is returned is optimal to eight
    digits: the margin that $w$ has and the bound that the multipliers prove have been compared.
    ArithmeticError says if rounding leaves more between them; `NotSeparable` is raised where there
    is no separator. Boser, Guyon & Vapnik 1992.

    >>> found = max_margin(np.array([[0.0, 0.0], [2.0, 0.0], [3.0, 5.0]]), np.array([-1, 1, 1]))
    >>> round(found.margin, 6), found.model.w.round(6).tolist(), found.support.tolist()
    (1.0, [1.0, 0.0], [0, 1])
    """
    check_signs(xs, ys)
    xs = np.asarray(xs, float)
    ys = np.asarray(ys, float)
    if bias and len(np.unique(ys)) == 1:
        raise ValueError(
            "max_margin: with a bias the margin of a single class has no bound; give both labels."
        )
    centre = (
        (xs[ys > 0].mean(axis=0) + xs[ys < 0].mean(axis=0)) / 2 if bias else np.zeros(xs.shape[1])
    )
    scale = np.abs(xs - centre).max() or 1.0
    rows = ys[:, None] * (xs - centre) / scale
    found = nearest_point(rows, classes(ys, bias))
    most = np.linalg.norm(found.alpha @ rows) * np.linalg.norm(found.w)
    low = found.low.sum()
    factor = len(found.low) / low if low > 0 else 0.0
    w = factor * found.w / scale
    v = np.append(w, factor * (found.low[1] - found.low[0]) / 2 - w @ centre) if bias else w
    zs = signed_rows(xs, ys, bias)
    if not positive(zs, v):
        _refuse(xs, ys, bias)
    blur = max(EXACT, 4 * np.finfo(float).eps * (np.abs(zs) @ np.abs(v)).max())
    if not positive(zs, v) or most - low > GAP * most or (zs @ v).min() < 1 - blur:
        raise ArithmeticError(
            "max_margin: the data are separable, but their margin, "
            f"{np.sqrt(most) / len(found.low):.1g} of the "
            "largest coordinate or less, is lost in rounding; bring the features to one scale."
        )
    support = np.flatnonzero(found.alpha)
    model = _rounded(v, zs, bias, "max_margin")
    return MaxMargin(
        model, float(1 / np.linalg.norm(w)), support, factor * found.alpha[support] / scale**2
    )


def _refuse(xs: np.ndarray, ys: np.ndarray, bias: bool) -> None:
    certificate = decide(xs, ys, bias)[1]
    if certificate is not None:
        message = "max_margin: no hyperplane separates the data; .certificate has the multipliers."
        raise NotSeparable(message, certificate)

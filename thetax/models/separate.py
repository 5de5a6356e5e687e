r"""Linear separation (§1.2): signed distances and margins, separability, and the separator of largest margin.

Data $S = \{(x_i, y_i)\}$, $y_i \in \{-1, +1\}$, enter through the signed rows $z_i = y_i (x_i, 1)$: $(w, b)$
separates $S$ iff $z_i^\top (w, b) > 0$ for all $i$. By Farkas' lemma there is no such $(w, b)$ iff some
$\alpha \ge 0$, $\sum_i \alpha_i = 1$, has $\sum_i \alpha_i z_i = 0$; one of the two can always be shown.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int, Num

from ..core import Scalar
from ..data import check
from .neuron import Perceptron

ENOUGH = 40  # rows for each unknown in the first working set; the others are only consulted
EXACT = 1e-9  # a combination of unit rows shorter than this is taken for 0


class NotSeparable(ValueError):
    r"""No $(w, b)$ separates the data; `certificate` holds the $\alpha$ that shows it."""

    def __init__(self, message: str, certificate: Float[np.ndarray, " n"]):
        super().__init__(message)
        self.certificate = certificate


class Separation(NamedTuple):
    r"""A separator, or the $\alpha \ge 0$ with $\sum_i \alpha_i = 1$ and $\sum_i \alpha_i z_i = 0$: never both."""

    model: Perceptron | None
    certificate: Float[np.ndarray, " n"] | None

    @property
    def separable(self) -> bool:
        """Whether there is a separator."""
        return self.model is not None


class MaxMargin(NamedTuple):
    r"""The separator of largest margin, scaled to $\min_i y_i (w^\top x_i + b) = 1$, so that $\gamma = 1 / \|w\|$."""

    model: Perceptron
    margin: float
    support: Int[np.ndarray, " s"]  # the points on the margin that hold it in place
    alpha: Float[np.ndarray, " s"]  # their multipliers, $w = \sum_i \alpha_i y_i x_i$


def signed_distance(model: Perceptron, x: Num[Array, " d"], y: Num[Array, ""] | float) -> Scalar:
    r"""$\gamma[w, b](x, y) = y\,(w^\top x + b) / \|w\|$, positive iff $x$ is classified as $y$; NaN at $w = 0$ (§1.2).

    >>> float(signed_distance(Perceptron(jnp.array([3.0, 4.0]), jnp.array(-5.0)), jnp.array([3.0, 4.0]), -1.0))
    -4.0
    """
    length = jnp.linalg.norm(jnp.asarray(model.w, float))
    return jnp.where(length > 0, y * model.score(x) / length, jnp.nan)


def margin(model: Perceptron, xs: Num[Array, "n d"], ys: Num[Array, " n"]) -> Scalar:
    r"""$\gamma[w, b](S) = \min_i \gamma[w, b](x_i, y_i)$; $(w, b)$ $\gamma$-separates for any $\gamma$ up to it (§1.2).

    >>> float(margin(Perceptron(jnp.array([2.0])), jnp.array([[3.0], [-1.0]]), jnp.array([1.0, -1.0])))
    1.0
    """
    return jax.vmap(lambda x, y: signed_distance(model, x, y))(xs, ys).min()


def check_signs(xs: Any, ys: Any) -> None:
    """Refuses what is no set of finite points with labels -1 and +1; silent about what is only traced.

    >>> check_signs(np.ones((2, 1)), np.array([1, 0]))
    Traceback (most recent call last):
    ValueError: ys: expected labels -1 or +1, but row 1 is 0. For labels 0 and 1 use 2 * ys - 1.
    """
    if len(np.shape(xs)) != 2 or np.shape(ys) != np.shape(xs)[:1]:
        raise ValueError(
            f"xs and ys: expected points of shape (n, d) and labels of shape (n,); got {np.shape(xs)} and "
            f"{np.shape(ys)}. Row i of both is example i."
        )
    if isinstance(xs, Tracer) or isinstance(ys, Tracer):
        return
    check(xs, ys)
    wrong = np.abs(np.asarray(ys)) != 1
    if wrong.any():
        i = int(wrong.argmax())
        raise ValueError(f"ys: expected labels -1 or +1, but row {i} is {ys[i]:g}. For labels 0 and 1 use 2 * ys - 1.")


def separate(xs: Num[Any, "n d"], ys: Num[Any, " n"], *, bias: bool = True) -> Separation:
    r"""A separator of the data or the proof that there is none, by linear programming (§1.2).

    The programme $\max t$ subject to $z_i^\top v \ge t \|z_i\|$, $|v_j| \le 1$, is positive iff the data are
    separable; its multipliers are the certificate otherwise. It is solved on a working set that grows by the rows
    it gets most wrong, so that a million points cost little more than the few that matter. What is returned has
    been multiplied out: the scores of the separator are positive, or the combination is 0 to nine digits.

    >>> square = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    >>> separate(square, np.array([1, 1, -1, -1])).certificate.round(6).tolist()
    [0.25, 0.25, 0.25, 0.25]
    >>> separate(square, np.array([-1, 1, -1, 1])).separable
    True
    """
    check_signs(xs, ys)
    zs = signed_rows(np.asarray(xs, float), np.asarray(ys, float), bias)
    length = np.linalg.norm(zs, axis=1)
    if not length.all():  # a row of zeros is right for no one
        return Separation(None, np.eye(len(zs))[length.argmin()])
    units = zs / length[:, None]
    chosen = np.arange(min(len(units), ENOUGH * units.shape[1]))
    while True:
        v, alpha = _programme(units[chosen])
        score = units @ v
        if (score > 0).all():
            return Separation(as_unit(v, bias), None)
        worst = np.argsort(score)[: len(chosen)]
        wider = np.union1d(chosen, worst[score[worst] <= 0])
        if np.abs(alpha @ units[chosen]).max() <= EXACT or len(wider) == len(chosen):
            certificate = np.zeros(len(units))
            certificate[chosen] = alpha / length[chosen]
            return Separation(None, certificate / certificate.sum())
        chosen = wider


def signed_rows(xs: Any, ys: Any, bias: bool) -> Any:
    r"""$z_i = y_i (x_i, 1)$, or $y_i x_i$ without a bias, in the arithmetic of `xs`, NumPy's or JAX's."""
    np_or_jnp = jnp if isinstance(xs, jax.Array) else np
    ys = ys.astype(xs.dtype)[:, None]
    return np_or_jnp.concatenate([ys * xs, ys], axis=1) if bias else ys * xs


def as_unit(v: Any, bias: bool) -> Perceptron:
    r"""$v = (w, b)$ as a perceptron."""
    return Perceptron(jnp.asarray(v[:-1]), jnp.asarray(v[-1])) if bias else Perceptron(jnp.asarray(v))


def _programme(units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The best v of the linear programme, and its multipliers made exact on the rows they rest on."""
    from scipy.optimize import linprog, nnls  # costs a quarter of a second, which most users of a model need not wait

    n, d = units.shape
    found = linprog(
        -np.eye(d + 1)[d],
        A_ub=np.column_stack([-units, np.ones(n)]),
        b_ub=np.zeros(n),
        bounds=[(-1, 1)] * d + [(None, None)],
        method="highs",
    )
    if found.status:
        raise ArithmeticError(f"separate: the linear programme failed: {found.message}")
    alpha, holding = np.zeros(n), np.flatnonzero(-found.ineqlin.marginals > 1e-12)
    alpha[holding], _ = nnls(np.vstack([units[holding].T, np.ones(len(holding))]), np.eye(d + 1)[d])
    return found.x[:d], alpha


def max_margin(xs: Num[Any, "n d"], ys: Num[Any, " n"], *, bias: bool = True) -> MaxMargin:
    r"""$\min \tfrac12 \|w\|^2$ subject to $y_i (w^\top x_i + b) \ge 1$: the hard-margin support vector machine (§1.2).

    Its margin $1 / \|w\|$ is the largest there is. The dual is a least-squares problem with $\alpha \ge 0$ (Lawson
    & Hanson 1974, least distance programming), solved by an active set; the equations
    $w = \sum_i \alpha_i y_i x_i$, $y_i (w^\top x_i + b) = 1$ on the support then give $w$ to full precision. Raises
    `NotSeparable` where there is no separator. Boser, Guyon & Vapnik 1992.

    >>> found = max_margin(np.array([[0.0, 0.0], [2.0, 0.0], [3.0, 5.0]]), np.array([-1, 1, 1]))
    >>> round(found.margin, 6), found.model.w.round(6).tolist(), found.support.tolist()
    (1.0, [1.0, 0.0], [0, 1])
    """
    check_signs(xs, ys)
    xs, ys = np.asarray(xs, float), np.asarray(ys, float)
    if bias and len(np.unique(ys)) == 1:
        raise ValueError("max_margin: with a bias the margin of a single class has no bound; give both labels.")
    start = separate(xs, ys, bias=bias)
    if start.model is None:
        raise NotSeparable(
            "max_margin: no hyperplane separates the data; .certificate has the multipliers.",
            np.asarray(start.certificate),
        )
    zs = signed_rows(xs, ys, bias)
    score = zs @ np.asarray(start.model.v) / np.linalg.norm(start.model.w)
    near, gamma = np.argsort(score), score.min()
    chosen = np.sort(np.concatenate([near[ys[near] == sign][: ENOUGH * zs.shape[1]] for sign in (-1, 1)]))
    while True:
        v, alpha = _least_distance(xs[chosen], ys[chosen], bias, gamma)
        score = zs @ v
        worst = np.argsort(score)[: len(chosen)]
        wider = np.union1d(chosen, worst[score[worst] < 1 - EXACT])
        if len(wider) == len(chosen):
            break
        chosen = wider
    length = float(np.linalg.norm(v[:-1] if bias else v))
    holding = np.flatnonzero(alpha)
    return MaxMargin(as_unit(v, bias), 1 / length, chosen[holding], alpha[holding])


def _least_distance(xs: np.ndarray, ys: np.ndarray, bias: bool, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """(w, b) and its multipliers. The bias costs ever less in the least squares, until the support is the right one."""
    from scipy.optimize import nnls

    centre = (xs[ys > 0].mean(axis=0) + xs[ys < 0].mean(axis=0)) / 2 if bias else np.zeros(xs.shape[1])
    zs = ys[:, None] * (xs - centre) / gamma  # of margin 1 or more
    for weight in (1e2, 1e3, 1e4, 1e5):
        rows = np.column_stack([zs, weight * np.abs(zs).max() * ys]) if bias else zs
        support = np.flatnonzero(nnls(np.vstack([rows.T, np.ones(len(rows))]), np.eye(rows.shape[1] + 1)[-1])[0])
        alpha, w, b = _on_margin(zs[support], ys[support], bias)
        if alpha.min() >= -EXACT * alpha.max() and (zs @ w + ys * b).min() >= 1 - EXACT:
            full = np.zeros(len(xs))
            full[support] = np.maximum(alpha, 0) / gamma**2
            return (np.append(w / gamma, b - w @ centre / gamma) if bias else w / gamma), full
    raise ArithmeticError("max_margin: the support cannot be told apart at this precision; rescale the features.")


def _on_margin(zs: np.ndarray, ys: np.ndarray, bias: bool) -> tuple[np.ndarray, np.ndarray, float]:
    r"""Multipliers, w and b with every point on the margin: $Z Z^\top \alpha + b y = 1$, $y^\top \alpha = 0$."""
    n = len(zs)
    if not bias:
        alpha = np.linalg.lstsq(zs @ zs.T, np.ones(n), rcond=None)[0]
        return alpha, alpha @ zs, 0.0
    equations = np.block([[zs @ zs.T, ys[:, None]], [ys[None], np.zeros((1, 1))]])
    solution = np.linalg.lstsq(equations, np.append(np.ones(n), 0.0), rcond=None)[0]
    return solution[:n], solution[:n] @ zs, float(solution[n])

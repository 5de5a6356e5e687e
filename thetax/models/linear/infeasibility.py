r"""Decides linear separability in float64: a separating hyperplane, or a certificate of
infeasibility (§1.2).

The signed rows are $z_i = y_i (x_i, 1)$. Farkas' lemma: either $z_i^\top v > 0$ for all $i$ and
some $v$, or $\sum_i \alpha_i z_i = 0$ for some $\alpha \ge 0$ of sum 1. Centring and scaling the
features changes $v$ but not $\alpha$, and reduces rounding errors.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .hull import all_positive, exact_certificate, nearest_point

INITIAL_ROWS_PER_UNKNOWN = 40  # size of the first working set of the linear programme
# a combination of unit rows shorter than this is a candidate certificate; a score this much below 1
# counts as 1
TOLERANCE = 1e-9


def separate_in_float64(
    xs: np.ndarray, ys: np.ndarray, bias: bool
) -> tuple[np.ndarray | None, np.ndarray | None]:
    r"""Either $v = (w, b)$ with $z_i^\top v > 0$ for all $i$, or a certificate $\alpha$; both are
    verified on the data as given.
    """
    zs = signed_rows(xs, ys, bias)
    if not zs.any(axis=1).all():  # a row of zeros satisfies no strict inequality
        return None, np.eye(len(zs))[zs.any(axis=1).argmin()]
    centre = xs.mean(axis=0) if bias else np.zeros(xs.shape[1])
    spread = np.abs(xs - centre).max(axis=0)
    spread[~(spread > 0)] = 1.0
    scaled = (xs - centre) / spread
    for solve in (_by_linear_program, _by_convex_hulls):
        v, alpha = solve(scaled, ys, bias)
        if v is not None:
            w = v[: xs.shape[1]] / spread  # back to the original features
            unscaled = np.append(w, v[-1] - w @ centre) if bias else w
            if unscaled.any():
                separator = round_separator(unscaled / np.abs(unscaled).max(), zs, bias, float)
                if separator is not None:
                    return separator, None
        if alpha is not None:
            for weights in (alpha, np.where(alpha > TOLERANCE * alpha.max(), alpha, 0)):
                certificate = exact_certificate(zs, weights)
                if certificate is not None:
                    return None, certificate
    raise ArithmeticError(
        "find_separator: in float64 neither a separator nor a certificate can be verified, because "
        "the classes touch up to rounding. Centre the points, or drop linearly dependent features."
    )


def round_separator(v: np.ndarray, zs: np.ndarray, bias: bool, dtype: Any) -> np.ndarray | None:
    r"""Rounds $v$ to a dtype, and moves the bias to the middle of the gap if needed; None if the
    result does not separate.
    """
    with np.errstate(over="ignore"):
        rounded = v.astype(dtype).astype(float)
    if all_positive(zs, rounded) or not bias:
        return rounded if all_positive(zs, rounded) else None
    projection = zs[:, :-1] @ rounded[:-1]  # y wᵀx
    positive = zs[:, -1] > 0
    if positive.all() or not positive.any():
        return None
    rounded[-1] = np.asarray((projection[~positive].min() - projection[positive].min()) / 2, dtype)
    return rounded if all_positive(zs, rounded) else None


def signed_rows(xs: Any, ys: Any, bias: bool) -> Any:
    r"""Signed rows $z_i = y_i (x_i, 1)$, or $y_i x_i$ without a bias; a NumPy or JAX array, as
    `xs` is.
    """
    np_or_jnp = jnp if isinstance(xs, jax.Array) else np
    ys = ys.astype(xs.dtype)[:, None]
    return np_or_jnp.concatenate([ys * xs, ys], axis=1) if bias else ys * xs


def _by_linear_program(
    xs: np.ndarray, ys: np.ndarray, bias: bool
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Solves the linear programme on a growing working set of rows: returns v, or multipliers of a
    vanishing combination, or neither.
    """
    zs = signed_rows(xs, ys, bias)
    length = np.linalg.norm(zs, axis=1)
    units = zs / np.where(length > 0, length, 1.0)[:, None]  # rows of norm 1
    chosen = np.arange(min(len(units), INITIAL_ROWS_PER_UNKNOWN * units.shape[1]))
    while True:
        v, alpha = _linear_program(units[chosen])
        score = units @ v
        if (score > 0).all():
            return v, None
        worst = np.argsort(score)[: len(chosen)]
        wider = np.union1d(chosen, worst[score[worst] <= 0])
        if np.abs(alpha @ units[chosen]).max() <= TOLERANCE:
            full = np.zeros(len(units))
            full[chosen] = alpha / length[chosen]
            return None, full
        if len(wider) == len(chosen):
            return None, None
        chosen = wider


def _linear_program(units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The optimal v of the linear programme, and its multipliers, refined by non-negative least
    squares on the rows where they are not 0.
    """
    # imported here because it takes a quarter of a second and is rarely needed
    from scipy.optimize import linprog, nnls

    n, d = units.shape
    solution = linprog(
        -np.eye(d + 1)[d],
        A_ub=np.column_stack([-units, np.ones(n)]),
        b_ub=np.zeros(n),
        bounds=[(-1, 1)] * d + [(None, None)],
        method="highs",
    )
    if solution.status:
        raise ArithmeticError(f"find_separator: the linear programme failed: {solution.message}")
    alpha = np.zeros(n)
    active = np.flatnonzero(-solution.ineqlin.marginals > 1e-12)
    alpha[active], _ = nnls(np.vstack([units[active].T, np.ones(len(active))]), np.eye(d + 1)[d])
    return solution.x[:d], alpha


def _by_convex_hulls(
    xs: np.ndarray, ys: np.ndarray, bias: bool
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """As `_by_linear_program`, from the nearest points of the convex hulls of the two classes, or,
    without a bias, of the origin and the signed points.
    """
    nearest = nearest_point(ys[:, None] * xs, class_groups(ys, bias))
    w = nearest.w / max(np.abs(nearest.w).max(), np.finfo(float).tiny)
    return (np.append(w, 0.0) if bias else w), nearest.alpha


def class_groups(ys: np.ndarray, bias: bool) -> np.ndarray:
    """The group of each row for `nearest_point`: its class, or a single group if there is no bias
    or one class.
    """
    return (ys < 0).astype(int) if bias and (ys > 0).any() else np.zeros(len(ys), int)

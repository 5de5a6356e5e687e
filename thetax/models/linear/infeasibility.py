r"""A separator of labelled points or the weights that show there is none, in double precision
(§1.2).

The signed rows are $z_i = y_i (x_i, 1)$. Farkas' lemma: either $z_i^\top v > 0$ for all $i$ and
some $v$, or $\sum_i \alpha_i z_i = 0$ for some $\alpha \ge 0$ of sum 1. Moving the origin and
scaling the features changes $v$ but not $\alpha$, and rounds less.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .hull import nearest_point, positive, vanishing

ENOUGH = 40  # rows for each unknown in the first working set; the others are only consulted
# a combination of unit rows shorter than this is looked at, a score this much below 1 counts as 1
EXACT = 1e-9


def decide(
    xs: np.ndarray, ys: np.ndarray, bias: bool
) -> tuple[np.ndarray | None, np.ndarray | None]:
    r"""$v = (w, b)$ in double precision with $z_i^\top v > 0$, or a certificate; both multiplied
    out.
    """
    zs = signed_rows(xs, ys, bias)
    if not zs.any(axis=1).all():  # a row of zeros is right for no one
        return None, np.eye(len(zs))[zs.any(axis=1).argmin()]
    centre = xs.mean(axis=0) if bias else np.zeros(xs.shape[1])
    spread = np.abs(xs - centre).max(axis=0)
    spread[~(spread > 0)] = 1.0
    plain = (xs - centre) / spread
    for solve in (_by_programme, _by_hulls):
        v, alpha = solve(plain, ys, bias)
        if v is not None:
            w = v[: xs.shape[1]] / spread
            back = np.append(w, v[-1] - w @ centre) if bias else w
            kept = held(back / np.abs(back).max(), zs, bias, float) if back.any() else None
            if kept is not None:
                return kept, None
        for weights in (
            () if alpha is None else (alpha, np.where(alpha > EXACT * alpha.max(), alpha, 0))
        ):
            certificate = vanishing(zs, weights)
            if certificate is not None:
                return None, certificate
    raise ArithmeticError(
        "separate: at double precision neither a separator nor a certificate can be shown; the "
        "classes touch to within rounding. Move the origin nearer to the points, or drop features "
        "that depend on the others."
    )


def held(v: np.ndarray, zs: np.ndarray, bias: bool, dtype: Any) -> np.ndarray | None:
    r"""$v$ rounded to a type, or with its bias amid what $w$ then allows, if it still separates."""
    with np.errstate(over="ignore"):
        short = v.astype(dtype).astype(float)
    if positive(zs, short) or not bias:
        return short if positive(zs, short) else None
    along, plus = zs[:, :-1] @ short[:-1], zs[:, -1] > 0  # y wᵀx
    if plus.all() or not plus.any():
        return None
    short[-1] = np.asarray((along[~plus].min() - along[plus].min()) / 2, dtype)
    return short if positive(zs, short) else None


def signed_rows(xs: Any, ys: Any, bias: bool) -> Any:
    r"""$z_i = y_i (x_i, 1)$, or $y_i x_i$ without a bias, in the arithmetic of `xs`, NumPy's or
    JAX's.
    """
    np_or_jnp = jnp if isinstance(xs, jax.Array) else np
    ys = ys.astype(xs.dtype)[:, None]
    return np_or_jnp.concatenate([ys * xs, ys], axis=1) if bias else ys * xs


def _by_programme(
    xs: np.ndarray, ys: np.ndarray, bias: bool
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The linear programme on a growing set of rows: v, or multipliers that add up to 0, or
    neither.
    """
    zs = signed_rows(xs, ys, bias)
    length = np.linalg.norm(zs, axis=1)
    units = zs / np.where(length > 0, length, 1.0)[:, None]
    chosen = np.arange(min(len(units), ENOUGH * units.shape[1]))
    while True:
        v, alpha = _programme(units[chosen])
        score = units @ v
        if (score > 0).all():
            return v, None
        worst = np.argsort(score)[: len(chosen)]
        wider = np.union1d(chosen, worst[score[worst] <= 0])
        if np.abs(alpha @ units[chosen]).max() <= EXACT:
            full = np.zeros(len(units))
            full[chosen] = alpha / length[chosen]
            return None, full
        if len(wider) == len(chosen):
            return None, None
        chosen = wider


def _programme(units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The best v of the linear programme, and its multipliers made exact on the rows they rest
    on.
    """
    from scipy.optimize import (
        linprog,
        nnls,
    )  # costs a quarter of a second, which most users of a model need not wait

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
    alpha = np.zeros(n)
    holding = np.flatnonzero(-found.ineqlin.marginals > 1e-12)
    alpha[holding], _ = nnls(np.vstack([units[holding].T, np.ones(len(holding))]), np.eye(d + 1)[d])
    return found.x[:d], alpha


def _by_hulls(
    xs: np.ndarray, ys: np.ndarray, bias: bool
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The same from the nearest points of the hulls of the two classes, or of the origin and the
    signed points.
    """
    found = nearest_point(ys[:, None] * xs, classes(ys, bias))
    w = found.w / max(np.abs(found.w).max(), np.finfo(float).tiny)
    return (np.append(w, 0.0) if bias else w), found.alpha


def classes(ys: np.ndarray, bias: bool) -> np.ndarray:
    """The group of each row: its class, or one for all without a bias, where only the signed points
    count.
    """
    return (ys < 0).astype(int) if bias and (ys > 0).any() else np.zeros(len(ys), int)

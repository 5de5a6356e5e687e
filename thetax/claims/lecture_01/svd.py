"""Lecture 1: the singular value decomposition, its truncation, and the optimal linear
autoencoder.
"""

import jax.numpy as jnp
import numpy as np

from ... import models, train
from ...layers import Chain, Linear
from ...plot import Panel
from ..engine.check import at_least, at_most, close, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from .autoencoder import with_singular_values

SPECTRUM = [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]


@claim(
    "L1-rank-constraint",
    title="A narrow layer bounds the rank",
    kind="theorem",
    of=("models.merge_linear_layers", "layers.Chain"),
)
def rank(rng):
    r"""$\mathrm{rank}(DC) \le \min(\mathrm{rank}\, C, \mathrm{rank}\, D) \le m < d$, so that
    $\mathrm{rank}(DCX) \le m$, whatever the data."""
    m = 3
    results = []
    bounds = []
    ratios = []
    for i in range(100):
        C = rng.normal(size=(m, 7))
        D = rng.normal(size=(7, m))
        X = rng.normal(size=(7, 12))
        C[: i % m] = 0.0  # some draws have a lower rank
        product = np.asarray(
            models.merge_linear_layers(Chain(Linear(jnp.asarray(C)), Linear(jnp.asarray(D)))).W
        )
        results.append(np.linalg.matrix_rank(product))
        bounds.append(min(np.linalg.matrix_rank(C), np.linalg.matrix_rank(D)))
        ratios.append(_next_singular_value(product @ X, m))
    return Verdict(
        at_most("rank of DC in 100 draws, against the ranks of C and D", results, bounds),
        equal("and the bound is attained", results, bounds),
        at_most("σ_{m+1} / σ_1 of DCX", np.array(ratios), 1e-10),
        refuted(at_most("σ_{m+1} / σ_1 of X itself", _next_singular_value(X, m), 1e-10)),
    )


def _next_singular_value(X, m):
    """The singular value number m + 1 divided by the first."""
    s = np.linalg.svd(X, compute_uv=False)
    return s[m] / s[0]


def by_eigenvectors(X):
    r"""The decomposition from the eigenvectors of $XX^\top$, of $X$ with full row rank; $V$
    completed to a basis.
    """
    d, n = X.shape
    values, U = np.linalg.eigh(X @ X.T)
    U = U[:, ::-1]
    s = np.sqrt(values[::-1])
    V = X.T @ U / s
    rest = np.linalg.qr(np.c_[V, np.eye(n)])[0][:, d:n]
    return U, s, np.c_[V, rest]


@claim(
    "L1-svd",
    "L1-reduced-svd",
    title="Singular value decomposition, full and reduced",
    kind="theorem",
    of=("models.low_rank",),
    cites="Beltrami 1873; Jordan 1874",
)
def decomposition(rng):
    r"""Every $X \in \mathbb{R}^{d \times n}$ is $U \Sigma V^\top$ with orthogonal $U$ and $V$ and a
    diagonal $\Sigma$ of $\sigma_1 \ge \sigma_2 \ge \dots \ge 0$, where the $\sigma_i^2$ are
    eigenvalues of $XX^\top$. Its first $r$ columns give
    $X_r = U_r \Sigma_r V_r^\top = \sum_{i \le r} \sigma_i u_i v_i^\top$, which is $X$ iff
    $r \ge \mathrm{rank}\, X$.
    """
    d, n = 6, 8
    X = rng.normal(size=(d, n))
    U, s, V = by_eigenvectors(X)
    Sigma = np.zeros((d, n))
    Sigma[:d, :d] = np.diag(s)
    full = models.low_rank(X, rank=d)
    part = models.low_rank(X, rank=3)
    flat = with_singular_values(rng, d, n, [3.0, 2.0, 1.0])
    off = [np.linalg.norm(models.low_rank(flat, rank=r).matrix - flat) for r in range(1, d + 1)]
    terms = sum(s[i] * np.outer(U[:, i], V[:, i]) for i in range(3))
    exact = {"tolerance": 1e-12, "method": "closed form"}
    return Verdict(
        close("X from the eigenvectors of XXᵀ", U @ Sigma @ V.T, X, tolerance=1e-10),
        close("its UᵀU", U.T @ U, np.eye(d), **exact),
        close("its VᵀV", V.T @ V, np.eye(n), **exact),
        close("σ of the library, against these", full.s, s, tolerance=1e-8),
        close(
            "σ of the library, against LAPACK",
            full.s,
            np.linalg.svd(X, compute_uv=False),
            tolerance=1e-10,
        ),
        close(
            "σ², against the eigenvalues of XXᵀ",
            np.asarray(full.s) ** 2,
            np.linalg.eigvalsh(X @ X.T)[::-1],
            tolerance=1e-10,
        ),
        at_most(
            "σ, decreasing: differences of successive values", np.diff(np.asarray(full.s)), 0.0
        ),
        close("UᵀU of the library", np.asarray(full.U.T @ full.U), np.eye(d), **exact),
        equal(
            "shapes of U_r, Σ_r and V_rᵀ, r = 3",
            part.U.shape + np.diag(part.s).shape + part.Vt.shape,
            (d, 3, 3, 3, 3, n),
        ),
        close("X_r, against the sum of its terms", part.matrix, terms, tolerance=1e-10),
        close("X of rank 3: ‖X_r − X‖ for r ≥ 3", off[2:], np.zeros(4)),
        refuted(close("and for r = 2", off[1], 0.0, tolerance=1e-3)),
        close("X_r for r = rank X = 6", full.matrix, X, tolerance=1e-10),
        figure=Panel(
            "rank r",
            "distance of X_r from X",
            lines={"X of rank 6": (np.arange(7), [np.linalg.norm(s[r:]) for r in range(7)])},
            points={"X of rank 3": (np.arange(7), [np.linalg.norm(flat), *off])},
        ),
    )


def _alternate(X, r, rng, starts=20, rounds=150):
    """The products X ≈ LR that alternating least squares reaches from random starts."""
    R = rng.normal(size=(starts, r, X.shape[1]))
    for _ in range(rounds):
        Rt = np.swapaxes(R, 1, 2)
        L = np.swapaxes(np.linalg.solve(R @ Rt, R @ X.T), 1, 2)
        Lt = np.swapaxes(L, 1, 2)
        R = np.linalg.solve(Lt @ L, Lt @ X)
    return L, R


def _nearby_distances(best, X, rng):
    """The distances from X of 10,000 matrices of the same rank, near X_r and further away."""
    L = np.asarray(best.U) * np.asarray(best.s)
    R = np.asarray(best.Vt)
    size = 10.0 ** rng.uniform(-4, 0, size=(10_000, 1, 1))
    A, B = (M + size * rng.normal(size=(10_000, *M.shape)) for M in (L, R))
    return np.linalg.norm(X - A @ B, axis=(1, 2))


@claim(
    "L1-eckart-young",
    title="The nearest matrix of low rank",
    kind="theorem",
    of=("models.low_rank",),
    cites="Eckart & Young 1936; Mirsky 1960",
)
def eckart_young(rng):
    r"""Of all $Y$ with $\mathrm{rank}\, Y \le r$, the truncated decomposition $X_r$ is nearest to
    $X$, at $\|X - X_r\|_F = \sqrt{\sum_{i > r} \sigma_i^2}$, and in the spectral norm too, at
    $\sigma_{r+1}$. It is the only one iff $\sigma_r > \sigma_{r+1}$.
    """
    d, n = 6, 8
    X = with_singular_values(rng, d, n, SPECTRUM)
    s = np.linalg.svd(X, compute_uv=False)
    checks = []
    reached = []
    for r in range(1, d):
        result = models.low_rank(X, rank=r)
        least = np.sqrt(np.sum(s[r:] ** 2))
        L, R = _alternate(X, r, rng)
        ends = np.linalg.norm(X - L @ R, axis=(1, 2))
        reached.append(ends)
        rest = X - np.asarray(result.matrix)
        checks += [
            close(f"r = {r}: ‖X − X_r‖, against the formula", np.linalg.norm(rest), least),
            close(f"r = {r}: as the library reports it", result.error, least),
            close(f"r = {r}: spectral norm, against σ_(r+1)", np.linalg.norm(rest, 2), s[r]),
            at_least(f"r = {r}: alternating least squares, 20 starts", ends, least, slack=1e-12),
            close(f"r = {r}: their limit", ends, np.full(20, least), tolerance=1e-6),
            at_least(
                f"r = {r}: 10,000 matrices around X_r",
                _nearby_distances(result, X, rng),
                least,
                slack=1e-12,
            ),
        ]
    tied = with_singular_values(rng, d, n, [3.0, 2.0, 2.0, 1.0])
    U, s_tied, Vt = np.linalg.svd(tied)
    swapped = s_tied[0] * np.outer(U[:, 0], Vt[0]) + s_tied[2] * np.outer(U[:, 2], Vt[2])
    other = models.low_rank(tied, rank=2)
    r = np.arange(d + 1)
    return Verdict(
        *checks,
        close(
            "σ_2 = σ_3: another matrix at the same distance",
            np.linalg.norm(tied - swapped),
            other.error,
            tolerance=1e-10,
        ),
        refuted(close("and it is a different matrix", swapped, other.matrix, tolerance=1e-3)),
        figure=Panel(
            "rank r",
            "distance from X",
            lines={"the formula": (r, [np.sqrt(sum(s[i:] ** 2)) for i in r])},
            points={"alternating least squares": (np.repeat(r[1:-1], 20), np.concatenate(reached))},
        ),
    )


@claim(
    "L1-optimal-ae",
    title="The best linear autoencoder",
    kind="theorem",
    of=("models.principal_components", "models.low_rank", "train.squared_error"),
    cites="Bourlard & Kamp 1988",
)
def optimal(rng):
    r"""$C = U_m^\top$ and $D = U_m$ give $DCX = X_m$, and no linear autoencoder of width $m$ has a
    smaller loss: $\frac{1}{2n} \sum_{i > m} \sigma_i^2$. If $\sigma_m > \sigma_{m+1}$, every
    optimum is $C = AU_m^\top$, $D = U_m A^{-1}$ with an invertible $A$: the space of the uncentred
    principal components.
    """
    d, m, n = 6, 2, 8
    X = with_singular_values(rng, d, n, SPECTRUM)
    results = models.principal_components(X.T, n_components=m)
    nearest = models.low_rank(X, rank=m)
    C, D = (np.asarray(layer.W) for layer in results.model.layers)
    batch = jnp.asarray(X.T), jnp.asarray(X.T)
    s = np.linalg.svd(X, compute_uv=False)
    least = np.sum(s[m:] ** 2) / (2 * n)
    top = np.linalg.eigh(X @ X.T)[1][:, -m:]
    A = rng.normal(size=(m, m))
    other = Chain(Linear(jnp.asarray(A @ C)), Linear(jnp.asarray(D @ np.linalg.inv(A))))
    R = np.linalg.qr(rng.normal(size=(d, d)))[0][:, :m]
    elsewhere = Chain(Linear(jnp.asarray(R.T)), Linear(jnp.asarray(R)))
    D_als, codes = _alternate(X, m, rng, starts=5, rounds=200)  # optima computed without U
    C_als = codes @ np.linalg.pinv(X)
    A_als = C_als @ top
    return Verdict(
        close("DCX, against X_m", D @ C @ X, nearest.matrix),
        close("its loss, against Σσ² / (2n)", train.squared_error(results.model, batch), least),
        close("as the library reports it", results.loss, least),
        close("DC, against the projector on the first eigenvectors of XXᵀ", D @ C, top @ top.T),
        close("with A: the same loss", train.squared_error(other, batch), least, tolerance=1e-11),
        close(
            "5 optima by alternating least squares: C, against AU_mᵀ",
            C_als,
            A_als @ top.T,
            tolerance=1e-8,
        ),
        close(
            "and D, against U_m A⁻¹",
            D_als,
            top @ np.linalg.inv(A_als),
            tolerance=1e-6,
            relative=True,
        ),
        at_least(
            "smallest loss of 1,000 other autoencoders",
            _random_losses(X, m, rng),
            least,
            slack=1e-12,
        ),
        refuted(
            close(
                "another space: the same loss",
                train.squared_error(elsewhere, batch),
                least,
                tolerance=1e-3,
            )
        ),
        assumptions=[at_least("σ_m − σ_{m+1}", s[m - 1] - s[m], 1e-3)],
    )


def _random_losses(X, m, rng):
    """The losses of random encoders, each with its best decoder."""
    C = rng.normal(size=(1000, m, len(X)))
    Z = C @ X
    Zt = np.swapaxes(Z, 1, 2)
    D = np.swapaxes(np.linalg.solve(Z @ Zt, Z @ X.T), 1, 2)
    return np.square(X - D @ Z).sum(axis=(1, 2)) / (2 * X.shape[1])


@erratum(
    "L1-optimal-ae",
    title="A block of the identity",
    printed=r"U_m (U_m^\top U) \Sigma V^\top = U_m I_m \Sigma V^\top",
    corrected=r"U_m (U_m^\top U) \Sigma V^\top = U_m [I_m\; 0] \Sigma V^\top",
    of=("models.low_rank",),
    slip=True,
)
def optimal_printed(rng):
    r"""$U_m^\top U$ has $m$ rows and $d$ columns: it is $[I_m\; 0]$ and not $I_m$, whose columns do
    not fit the $d$ rows of $\Sigma$.
    """
    d, m, n = 6, 2, 8
    X = rng.normal(size=(d, n))
    full = np.linalg.svd(X)[0]
    signs = np.sign(np.sum(full * np.asarray(models.low_rank(X, rank=d).U), axis=0))
    product = np.asarray(models.low_rank(X, rank=m).U).T @ (full * signs)

    def block(name, matrix):
        same = matrix.shape == product.shape and bool(np.allclose(product, matrix, atol=1e-12))
        return equal(f"U_mᵀU is {name}", same, True)

    meets = lambda name, matrix: equal(
        f"{name} Σ: columns on the left, rows on the right", matrix.shape[1], d
    )
    corrected = np.c_[np.eye(m), np.zeros((m, d - m))]
    printed = np.eye(m)
    return Verdict(
        block("[I_m 0]", corrected),
        meets("[I_m 0]", corrected),
        printed=[block("I_m", printed), meets("I_m", printed)],
    )

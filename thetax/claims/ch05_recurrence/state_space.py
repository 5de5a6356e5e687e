"""Lecture 10, A.19: structured and selective state space models."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.signal import cont2discrete

from ... import layers, tree
from ...layers import DiagonalSSM, SelectiveSSM
from ...plot import Panel
from ..engine.check import at_most, close, close_derivative, equal, refuted
from ..engine.claim import Verdict, claim
from .by_loop import elman_cell, outputs, weight_gradients
from .unrolled import future_pairs, jacobian_blocks


def convolve_kernel(kernel, xs):
    """Inputs convolved with a kernel (t, k, n), by FFT."""
    T = len(xs)
    spectra = np.fft.rfft(kernel, 2 * T, axis=0), np.fft.rfft(xs, 2 * T, axis=0)
    return np.fft.irfft(np.einsum("tkn,tn->tk", *spectra), 2 * T, axis=0)[:T]


@claim(
    "L10-A19-s4",
    title="The structured state space model",
    kind="model",
    of=("layers.hippo", "layers.discretise_bilinear", "layers.DiagonalSSM"),
    cites="Gu et al. 2020; Gu, Goel & Ré 2022; Gu et al. 2022",
)
def structured(key, rng):
    r"""$\dot h = Ah + Bu$, $y = Ch + Du$ in bilinear steps,
    $\bar A = (I - \frac\Delta2 A)^{-1}(I + \frac\Delta2 A)$ and
    $\bar B = (I - \frac\Delta2 A)^{-1}\Delta B$: a recurrence, and a convolution with
    $K_j = C\bar A^j \bar B$. The $A$ of HiPPO-LegS has the eigenvalues $-1, \dots, -N$, so the
    steps are stable.
    """
    N = 8
    T = 100
    step = 0.1
    A, B = layers.hippo(N)
    A_bar, B_bar = map(np.asarray, layers.discretise_bilinear(A, B, step=step))
    C = rng.normal(size=(1, N))
    D = rng.normal(size=(1, 1))
    us = rng.normal(size=(T, 1))
    by_scipy: Any = cont2discrete((np.asarray(A), np.asarray(B), C, D), step, method="bilinear")
    states = outputs(elman_cell(A_bar, B_bar, phi=layers.identity), us)
    kernel = np.array([C @ np.linalg.matrix_power(A_bar, j) @ B_bar for j in range(T)])
    kernel[0] += D
    diagonal_cells = {}
    for discretisation in ("zoh", "bilinear"):
        cell = DiagonalSSM.init(2, 6, 3, discretisation=discretisation, key=key)
        cell = tree.axpy(0.1, tree.normal_like(key, cell), cell)
        xs = rng.normal(size=(T, 2))
        diagonal_cells[discretisation] = (
            cell,
            np.asarray(outputs(cell, xs)),
            convolve_kernel(jax.jit(lambda c: c.kernel(T))(cell), xs),
        )
    gradient, numeric = weight_gradients(
        diagonal_cells["bilinear"][0], rng.normal(size=(5, 2)), rng.normal(size=(5, 3))
    )
    lam = np.linalg.eigvals(np.asarray(A))
    exact = (1 - step * np.arange(1, N + 1) / 2) / (1 + step * np.arange(1, N + 1) / 2)
    return Verdict(
        close("HiPPO: eigenvalues", np.sort(lam.real), -np.arange(N, 0, -1.0)),
        close("bilinear step of A, by SciPy", A_bar, by_scipy[0]),
        close("bilinear step of B, by SciPy", B_bar, by_scipy[1]),
        close("eigenvalues of Ā", np.sort(np.diag(A_bar)), np.sort(exact)),
        at_most("ρ(Ā)", np.abs(np.linalg.eigvals(A_bar)).max(), 1 - 1e-3),
        close(
            "HiPPO: recurrence, and convolution by FFT",
            np.asarray(states) @ C.T + us @ D.T,
            convolve_kernel(kernel, us),
            tolerance=1e-11,
        ),
        *(
            close(f"diagonal, {discretisation} steps: recurrence, and convolution", y, z)
            for discretisation, (_, y, z) in diagonal_cells.items()
        ),
        close_derivative(f"diagonal: all {len(gradient)} derivatives", gradient, numeric),
        refuted(
            close("Euler steps of A", np.eye(N) + step * np.asarray(A), by_scipy[0], tolerance=1e-3)
        ),
        figure=Panel("step", "kernel", lines={"C Ā^j B̄": (np.arange(T), kernel[:, 0, 0])}),
    )


@claim(
    "L10-A19-mamba",
    title="The selective state space model",
    kind="model",
    of=("layers.SelectiveSSM",),
    cites="Gu & Dao 2023",
)
def selective(key, rng):
    r"""$\Delta_t = \mathrm{softplus}(Sx_t + s)$, $B_t$ and $C_t$ linear in $x_t$,
    $h_t = e^{\Delta_t A} h_{t-1} + \Delta_t B_t x_t$ and $y_t = C_t h_t + Dx_t$: the input
    controls what the state keeps, and a scan still computes it. With $\Delta$, $B$ and $C$ constant
    it is a linear time-invariant system.
    """
    T = 40
    d = 3
    m = 4
    cell = SelectiveSSM.init(d, m, step_range=(0.05, 0.5), key=key)
    A, S, s, B, C, D = (np.asarray(a) for a in (cell.A, cell.S, cell.s, cell.B, cell.C, cell.D))
    xs = rng.normal(size=(T, d))
    h = np.zeros((d, m))
    expected = []
    for x in xs:
        step = np.logaddexp(0, S @ x + s)
        h = np.exp(-step[:, None] * np.exp(A)) * h + np.outer(step * x, B @ x)
        expected.append(h @ (C @ x) + D * x)
    ys = outputs(cell, xs)
    stepped = jax.jit(lambda cell, xs: jax.lax.scan(lambda h, x: cell(h, x), cell.start, xs)[1])(
        cell, xs
    )
    gradient, numeric = weight_gradients(cell, xs[:5], rng.normal(size=(5, d)))
    unit = np.eye(d)[0]  # a channel that is always 1 makes B and C constant
    constant = SelectiveSSM(
        cell.A,
        0 * cell.S,
        cell.s,
        jnp.asarray(np.outer(B[:, 0], unit)),
        jnp.asarray(np.outer(C[:, 0], unit)),
        cell.D,
    )
    us = np.concatenate([np.ones((T, 1)), xs[:, 1:]], axis=1)
    step = np.logaddexp(0, s)
    kernel = np.einsum(
        "m,tdm,d->td",
        C[:, 0] * B[:, 0],
        np.exp(-step[:, None] * np.exp(A)) ** np.arange(T)[:, None, None],
        step,
    )
    kernel[0] += D
    lti = convolve_kernel(kernel[:, :, None] * np.eye(d), us)
    influence, _ = jacobian_blocks(layers.Recurrent(cell), xs[:7])
    return Verdict(
        close("scan, against the loop", ys, expected, tolerance=1e-10),
        close("step by step", stepped, expected, tolerance=1e-10),
        close_derivative(f"all {len(gradient)} derivatives", gradient, numeric),
        close("Δ, B and C constant: a convolution", outputs(constant, us), lti, tolerance=1e-10),
        refuted(
            close(
                "Δ, B and C not constant: the same convolution",
                outputs(cell, us),
                lti,
                tolerance=1e-3,
            )
        ),
        equal("pairs with ∂y_t/∂x_s ≠ 0", influence > 0, ~future_pairs(7)),
    )

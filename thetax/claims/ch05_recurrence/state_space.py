"""Lecture 10, A.19: structured and selective state spaces."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.signal import cont2discrete

from ... import layers, tree
from ...layers import DiagonalSSM, SelectiveSSM
from ...plot import Chart, Panel
from ..engine.chance import chance
from ..engine.check import at_most, close, equal, refuted
from ..engine.claim import Verdict, claim
from .by_loop import FD, outputs, plain, slopes
from .unrolled import blocks, later


def convolved(kernel, xs):
    """Inputs convolved with a kernel (t, k, n), by FFT."""
    T = len(xs)
    spectra = np.fft.rfft(kernel, 2 * T, axis=0), np.fft.rfft(xs, 2 * T, axis=0)
    return np.fft.irfft(np.einsum("tkn,tn->tk", *spectra), 2 * T, axis=0)[:T]


@claim(
    "L10-A19-s4",
    title="A structured state space",
    kind="model",
    of=("layers.hippo", "layers.bilinear", "layers.DiagonalSSM"),
    cites="Gu et al. 2020; Gu, Goel & Ré 2022; Gu et al. 2022",
)
def structured(key):
    r"""$\dot h = Ah + Bu$, $y = Ch + Du$ in bilinear steps,
    $\bar A = (I - \frac\Delta2 A)^{-1}(I + \frac\Delta2 A)$ and
    $\bar B = (I - \frac\Delta2 A)^{-1}\Delta B$: a recurrence, and a convolution with
    $K_j = C\bar A^j \bar B$. The $A$ of HiPPO-LegS has the eigenvalues $-1, \dots, -N$, so the
    steps are stable.
    """
    rng = chance(key)
    N = 8
    T = 100
    step = 0.1
    A, B = layers.hippo(N)
    A_bar, B_bar = map(np.asarray, layers.bilinear(A, B, step=step))
    C = rng.normal(size=(1, N))
    D = rng.normal(size=(1, 1))
    us = rng.normal(size=(T, 1))
    by_scipy: Any = cont2discrete((np.asarray(A), np.asarray(B), C, D), step, method="bilinear")
    states = outputs(plain(A_bar, B_bar, phi=layers.identity), us)
    kernel = np.array([C @ np.linalg.matrix_power(A_bar, j) @ B_bar for j in range(T)])
    kernel[0] += D
    both = {}
    for how in ("exact", "bilinear"):
        cell = DiagonalSSM.init(2, 6, 3, steps=how, key=key)
        cell = tree.axpy(0.1, tree.normal_like(key, cell), cell)
        xs = rng.normal(size=(T, 2))
        both[how] = (
            cell,
            np.asarray(outputs(cell, xs)),
            convolved(jax.jit(lambda c: c.kernel(T))(cell), xs),
        )
    gradient, numeric = slopes(
        both["bilinear"][0], rng.normal(size=(5, 2)), rng.normal(size=(5, 3))
    )
    lam = np.linalg.eigvals(np.asarray(A))
    exact = (1 - step * np.arange(1, N + 1) / 2) / (1 + step * np.arange(1, N + 1) / 2)
    return Verdict(
        close("HiPPO: eigenvalues", np.sort(lam.real), -np.arange(N, 0, -1.0), tolerance=1e-12),
        close("bilinear step of A, by SciPy", A_bar, by_scipy[0], tolerance=1e-12),
        close("bilinear step of B, by SciPy", B_bar, by_scipy[1], tolerance=1e-12),
        close("its eigenvalues", np.sort(np.diag(A_bar)), np.sort(exact), tolerance=1e-12),
        at_most("ρ(Ā)", np.abs(np.linalg.eigvals(A_bar)).max(), 1 - 1e-3),
        close(
            "HiPPO: recurrence, and convolution by FFT",
            np.asarray(states) @ C.T + us @ D.T,
            convolved(kernel, us),
            tolerance=1e-11,
        ),
        *(
            close(f"diagonal, {how} steps: recurrence, and convolution", y, z, tolerance=1e-12)
            for how, (_, y, z) in both.items()
        ),
        close(f"diagonal: all {len(gradient)} derivatives", gradient, numeric, **FD),
        refuted(
            close("Euler steps of A", np.eye(N) + step * np.asarray(A), by_scipy[0], tolerance=1e-3)
        ),
        figure=Chart(Panel("step", "kernel", lines={"C Ā^j B̄": (np.arange(T), kernel[:, 0, 0])})),
    )


@claim(
    "L10-A19-mamba",
    title="A selective state space",
    kind="model",
    of=("layers.SelectiveSSM",),
    cites="Gu & Dao 2023",
)
def selective(key):
    r"""$\Delta_t = \mathrm{softplus}(Sx_t + s)$, $B_t$ and $C_t$ linear in $x_t$,
    $h_t = e^{\Delta_t A} h_{t-1} + \Delta_t B_t x_t$ and $y_t = C_t h_t + Dx_t$: the input decides
    what is kept, and the scan still serves. With $\Delta$, $B$ and $C$ constant it is a linear
    system, the same at all times.
    """
    rng = chance(key)
    T = 40
    d = 3
    m = 4
    cell = SelectiveSSM.init(d, m, step=(0.05, 0.5), key=key)
    A, S, s, B, C, D = (np.asarray(a) for a in (cell.A, cell.S, cell.s, cell.B, cell.C, cell.D))
    xs = rng.normal(size=(T, d))
    h = np.zeros((d, m))
    expected = []
    for x in xs:
        step = np.logaddexp(0, S @ x + s)
        h = np.exp(-step[:, None] * np.exp(A)) * h + np.outer(step * x, B @ x)
        expected.append(h @ (C @ x) + D * x)
    found = outputs(cell, xs)
    stepped = jax.jit(lambda cell, xs: jax.lax.scan(lambda h, x: cell(h, x), cell.start, xs)[1])(
        cell, xs
    )
    gradient, numeric = slopes(cell, xs[:5], rng.normal(size=(5, d)))
    first = np.eye(d)[0]  # a channel that is always 1, by which B and C do not depend on the others
    still = SelectiveSSM(
        cell.A,
        0 * cell.S,
        cell.s,
        jnp.asarray(np.outer(B[:, 0], first)),
        jnp.asarray(np.outer(C[:, 0], first)),
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
    lti = convolved(kernel[:, :, None] * np.eye(d), us)
    reads, _ = blocks(layers.Recurrent(cell), xs[:7])
    return Verdict(
        close("scan, against the loop", found, expected, tolerance=1e-10),
        close("step by step", stepped, expected, tolerance=1e-10),
        close(f"all {len(gradient)} derivatives", gradient, numeric, **FD),
        close("Δ, B and C constant: a convolution", outputs(still, us), lti, tolerance=1e-10),
        refuted(
            close("not constant: the same convolution", outputs(cell, us), lti, tolerance=1e-3)
        ),
        equal("∂y_t/∂x_s, which are not 0", reads > 0, ~later(7)),
    )

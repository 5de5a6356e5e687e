"""Lecture 10, A.19: recurrences that discretise a stable differential equation."""

import jax
import jax.numpy as jnp
import numpy as np

from ... import layers
from ...layers import AntisymmetricRNN, LipschitzRNN
from ...plot import Panel
from ..engine.check import at_least, at_most, close, close_derivative, refuted
from ..engine.claim import Verdict, claim
from .by_loop import elman_cell, final_state, weight_gradients
from .vanishing import jacobian_norms, with_spectral_radius


def ode_jacobian(cell, x, z):
    """The Jacobian of the differential equation whose Euler step the cell is."""
    step = jax.jit(jax.jacfwd(lambda z: cell(z, x)[0]))(z)
    return (np.asarray(step) - np.eye(len(z))) / cell.step_size


@claim(
    "L10-A19-antisymmetric",
    title="The antisymmetric recurrent network",
    kind="model",
    of=("layers.AntisymmetricRNN",),
    cites="Chang et al. 2019",
)
def antisymmetric(rng):
    r"""$h_t = h_{t-1} + \varepsilon \tanh((W - W^\top - \gamma I) h_{t-1} + V x_t + b)$: the
    Jacobian $\mathrm{diag}(\sigma')(W - W^\top)$ of the differential equation has imaginary
    eigenvalues only, and with $\gamma > 0$ all real parts are negative, so that a gradient
    persists over hundreds of steps.
    """
    T = 200
    m = 8
    n = 3
    W = rng.normal(size=(m, m)) / np.sqrt(m)
    V = rng.normal(size=(m, n))
    b = 0.1 * rng.normal(size=m)
    make = lambda gamma: AntisymmetricRNN(
        *map(jnp.asarray, (W, V, b)), step_size=0.05, damping=gamma
    )
    xs = 0.3 * rng.normal(size=(T, n))
    z = 0.5 * rng.normal(size=m)
    by_hand = [z]
    for x in xs:
        by_hand.append(
            by_hand[-1] + 0.05 * np.tanh((W - W.T - 0.3 * np.eye(m)) @ by_hand[-1] + V @ x + b)
        )
    states = layers.unroll(make(0.3), jnp.asarray(xs), state=jnp.asarray(z))[1]
    spectra = {
        g: np.linalg.eigvals(ode_jacobian(make(g), jnp.asarray(xs[0]), jnp.asarray(z)))
        for g in (0.0, 0.3)
    }
    gradient, numeric = weight_gradients(make(0.3), xs[:6], rng.normal(size=(6, m)))
    gradient_norms = jacobian_norms(make(0.01), xs, z)
    vanilla = {
        rho: jacobian_norms(elman_cell(with_spectral_radius(rng, m, rho), 1e-15 * V), xs)
        for rho in (0.5, 1.5)
    }
    ages = np.arange(1, T + 1)
    return Verdict(
        close("against the loop", states, by_hand[1:]),
        close_derivative(f"all {len(gradient)} derivatives", gradient, numeric),
        close("γ = 0: real parts of the eigenvalues", spectra[0.0].real, np.zeros(m)),
        at_least("γ = 0: largest imaginary part", np.abs(spectra[0.0].imag).max(), 0.1),
        at_most("γ = 0.3: real parts", spectra[0.3].real.max(), -1e-6),
        at_least("smallest ‖∂h_i/∂h_0‖ over 200 steps", gradient_norms.min(), 1e-2),
        at_most("largest ‖∂h_i/∂h_0‖ over 200 steps", gradient_norms.max(), 1e2),
        refuted(
            at_least("Elman's network, ρ = ½: ‖∂h_i/∂h_0‖ after 200 steps", vanilla[0.5][-1], 1e-2)
        ),
        refuted(
            at_most("Elman's network near 0, ρ = 1.5: largest ‖∂h_i/∂h_0‖", vanilla[1.5].max(), 1e2)
        ),
        figure=Panel(
            "steps back",
            "norm of the gradient",
            log="y",
            lines={
                "antisymmetric": (ages, gradient_norms),
                "Elman's, ρ = 1.5": (ages, vanilla[1.5]),
                "Elman's, ρ = ½": (ages, np.maximum(vanilla[0.5], 1e-30)),
            },
        ),
    )


@claim(
    "L10-A19-lipschitz-rnn",
    title="The Lipschitz recurrent network",
    kind="model",
    of=("layers.LipschitzRNN",),
    cites="Erichson et al. 2021",
)
def lipschitz(rng):
    r"""$\dot h = Ah + \tanh(Wh + Ux + b)$ with $A$ and $W$ of the form
    $(1 - \beta)(M + M^\top) + \beta(M - M^\top) - \gamma I$, whose symmetric part has the
    eigenvalues $2(1 - \beta)\, \mathrm{eig}(\mathrm{sym}\, M) - \gamma$. If
    $\lambda_{\max}(\mathrm{sym}\, A) + \|W\| < 0$ any two trajectories converge to each other at
    that rate.
    """
    m = 6
    n = 2
    beta = 0.6
    step = 0.002
    M = 0.3 * rng.normal(size=(2, m, m))
    V = rng.normal(size=(m, n))
    b = rng.normal(size=m)
    cell = LipschitzRNN(*map(jnp.asarray, (M, V, b)), step_size=step, skew=beta, damping=0.5)
    A, W = (np.asarray(cell.recurrent_matrices[name]) for name in "AW")
    split = lambda M: (1 - beta) * (M + M.T) + beta * (M - M.T) - 0.5 * np.eye(m)
    symmetric = [np.linalg.eigvalsh((X + X.T) / 2) for X in (A, W)]
    expected = [2 * (1 - beta) * np.linalg.eigvalsh((X + X.T) / 2) - 0.5 for X in M]
    contracting = LipschitzRNN(
        cell.M.at[0].set(cell.M[0] - 5 * jnp.eye(m)), cell.V, cell.b, step, beta, 0.5
    )
    A_steep = split(M[0] - 5 * np.eye(m))
    xs = rng.normal(size=(500, n))
    ages = step * np.arange(1, 501)
    trajectories = [
        np.asarray(
            layers.unroll(contracting, jnp.asarray(xs), state=jnp.asarray(rng.normal(size=m)))[1]
        )
        for _ in range(2)
    ]
    distance = np.linalg.norm(trajectories[0] - trajectories[1], axis=1)
    rate = np.linalg.eigvalsh((A_steep + A_steep.T) / 2).max() + np.linalg.norm(W, 2)
    euler = np.linalg.norm(np.eye(m) + step * A_steep, 2) + step * np.linalg.norm(W, 2)
    gradient, numeric = weight_gradients(cell, xs[:5], rng.normal(size=(5, m)))
    z = rng.normal(size=m)
    by_formula = z + step * (split(M[0]) @ z + np.tanh(split(M[1]) @ z + V @ xs[0] + b))
    return Verdict(
        close(
            "one step, against the formula",
            final_state(cell, xs[:1], jnp.asarray(z)),
            by_formula,
            tolerance=1e-14,
        ),
        close("eigenvalues of the symmetric parts", np.array(symmetric), np.array(expected)),
        close_derivative(f"all {len(gradient)} derivatives", gradient, numeric),
        at_most(
            "steps: distance over (‖I + εA‖ + ε‖W‖)^t",
            distance[1:] / distance[0],
            euler ** np.arange(1, 500),
            slack=1e-12,
        ),
        close(
            "(‖I + εA‖ + ε‖W‖ − 1)/ε, and the rate",
            (euler - 1) / step,
            rate,
            tolerance=0.05,
            relative=True,
        ),
        at_most(
            "the equation: distance over e^(rate·t)",
            distance[1:] / distance[0],
            1.02 * np.exp(rate * (ages[1:] - ages[0])),
        ),
        assumptions=[at_most("λ_max(sym A) + ‖W‖", rate, -1e-3)],
        figure=Panel(
            "time",
            "distance of two trajectories",
            log="y",
            lines={"measured": (ages, distance)},
            bounds={"e to the rate": (ages, distance[0] * np.exp(rate * ages))},
        ),
    )

r"""The Hessian $H = \nabla^2 L(\theta)$ of the objective, from Hessian-vector products $Hv$ only.

One product costs about two gradients. From a few dozen of them, the Lanczos method computes extreme
eigenvalues, the spectral density and the largest increase of the loss nearby; Hutchinson's method
estimates the trace. No $p \times p$ matrix is formed. Where the network is not differentiable
(ReLU), the Hessian is that of the smooth piece that contains $\theta$.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray

from ... import tree
from ...check import expect_count
from ...core import Objective, Scalar
from .lanczos import RitzValues, Tridiagonal, lanczos, ritz_values, trust_region_maximum


def hvp(objective: Objective, model: Any, batch: Any, v: Any) -> Any:
    r"""$\nabla^2 L(\theta)\, v$, the derivative of the gradient along `v`, a tree like the model
    (Pearlmutter 1994).

    >>> half_square = lambda w, batch: 3 * jnp.vdot(w, w) / 2
    >>> hvp(half_square, jnp.ones(2), None, jnp.array([1.0, 2.0])).tolist()
    [3.0, 6.0]
    """
    return jax.jvp(lambda model: jax.grad(objective)(model, batch), (model,), (v,))[1]


@dataclass(frozen=True)
class HessianSpectrum:
    r"""The extreme eigenvalues of $H$, each with an error bound, and the density of all of them."""

    top: Float[np.ndarray, " m"]  # the largest first
    top_bounds: Float[np.ndarray, " m"]
    bottom: Float[np.ndarray, " m"]  # the smallest first
    bottom_bounds: Float[np.ndarray, " m"]
    grid: Float[np.ndarray, " g"]
    density: Float[np.ndarray, " g"]  # integrates to 1
    parameters: int


def hessian_spectrum(
    objective: Objective,
    model: Any,
    batch: Any,
    *,
    steps: int = 32,
    n_probes: int = 4,
    n_eigenvalues: int = 8,
    key: PRNGKeyArray,
) -> HessianSpectrum:
    r"""The largest and smallest eigenvalues of the Hessian and its spectral density, by stochastic
    Lanczos quadrature.

    From a random unit vector $v$, Lanczos computes nodes $\theta_i$ and weights $s_{1i}^2$ with
    $v^\top f(H) v \approx \sum_i s_{1i}^2 f(\theta_i)$. The mean over `n_probes` such vectors
    estimates $\mathrm{tr} f(H) / p$; for the density $f$ is a Gaussian whose width is 1 % of the
    range. Ghorbani, Krishnan & Xiao 2019; Ubaru, Chen & Saad 2017.

    >>> bowl = lambda w, batch: (jnp.array([1.0, 2.0, 5.0]) * w**2).sum() / 2
    >>> result = hessian_spectrum(bowl, jnp.ones(3), None, key=jr.key(0))
    >>> result.top.round(3).tolist()
    [5.0, 2.0, 1.0]
    """
    expect_count("hessian_spectrum", n_probes=n_probes, n_eigenvalues=n_eigenvalues)
    runs = _lanczos_runs(objective, model, batch, key, steps, n_probes)
    return _spectrum(runs, tree.size(model), n_eigenvalues=n_eigenvalues)


class _LanczosRuns(NamedTuple):
    """The loss, the norm of its gradient, and Lanczos runs on the Hessian: the first is started at
    the gradient, the others at random vectors.
    """

    loss: Scalar
    gradient_norm: Scalar
    runs: Tridiagonal

    def spectra(self) -> list[RitzValues]:
        """The Ritz values of each run."""
        return [
            ritz_values(Tridiagonal(*rows))
            for rows in zip(np.asarray(self.runs.alpha), np.asarray(self.runs.beta))
        ]


@partial(jax.jit, static_argnames=("objective", "steps", "n_probes"))
def _lanczos_runs(
    objective: Objective, model: Any, batch: Any, key: PRNGKeyArray, steps: int, n_probes: int
) -> _LanczosRuns:
    loss, gradient = jax.value_and_grad(objective)(model, batch)
    g, unravel = tree.ravel(gradient)
    key_starts, key = jr.split(key)
    starts = jnp.concatenate([g[None], jr.normal(key_starts, (n_probes, g.size), g.dtype)])
    product = lambda v: hvp(objective, model, batch, v)
    run = lambda start: lanczos(product, model, steps=steps, key=key, start=unravel(start))
    return _LanczosRuns(loss, jnp.linalg.norm(g), jax.lax.map(run, starts))


def _spectrum(runs: _LanczosRuns, parameters: int, *, n_eigenvalues: int) -> HessianSpectrum:
    spectra = runs.spectra()
    highest = max(spectra, key=lambda r: r.values[-1])
    lowest = min(spectra, key=lambda r: r.values[0])
    nodes = np.stack([r.values for r in spectra[1:]])
    weights = np.stack([r.first_components**2 for r in spectra[1:]]) / len(nodes)
    low = lowest.values[0]
    high = highest.values[-1]
    width = max((high - low) / 100, 1e-9 * (1 + abs(high)))
    grid = np.linspace(low - 5 * width, high + 5 * width, 512)
    kernels = np.exp(-(((grid - nodes[..., None]) / width) ** 2) / 2)
    kernels = kernels / (width * np.sqrt(2 * np.pi))
    return HessianSpectrum(
        top=highest.values[::-1][:n_eigenvalues],
        top_bounds=highest.bounds[::-1][:n_eigenvalues],
        bottom=lowest.values[:n_eigenvalues],
        bottom_bounds=lowest.bounds[:n_eigenvalues],
        grid=grid,
        density=(weights[..., None] * kernels).sum(axis=(0, 1)),
        parameters=parameters,
    )


@dataclass(frozen=True)
class HessianTrace:
    """An estimate and its standard error."""

    value: float
    error: float


def hessian_trace(
    objective: Objective, model: Any, batch: Any, *, n_probes: int = 32, key: PRNGKeyArray
) -> HessianTrace:
    r"""The trace of the Hessian, estimated from `n_probes` vectors of random signs
    $v_j \in \{-1, 1\}^p$: $\mathrm{tr} H \approx \frac1s \sum_j v_j^\top H v_j$ (Hutchinson 1990).

    >>> bowl = lambda w, batch: (jnp.array([1.0, 2.0, 5.0]) * w**2).sum() / 2
    >>> hessian_trace(bowl, jnp.ones(3), None, key=jr.key(0))
    HessianTrace(value=8.0, error=0.0)
    """
    if n_probes < 2:
        raise ValueError(
            f"hessian_trace: n_probes must be >= 2, for the standard error; got {n_probes}."
        )
    keys = jr.split(key, n_probes)
    forms = np.asarray(_quadratic_forms(objective, model, batch, keys), np.float64)
    return HessianTrace(float(forms.mean()), float(forms.std(ddof=1) / np.sqrt(n_probes)))


@partial(jax.jit, static_argnames="objective")
def _quadratic_forms(
    objective: Objective, model: Any, batch: Any, keys: Key[Array, " probes"]
) -> Any:
    theta, unravel = tree.ravel(model)

    def form(key):
        v = unravel(jr.rademacher(key, theta.shape, theta.dtype))
        return tree.dot(v, hvp(objective, model, batch, v))

    return jax.lax.map(form, keys)


@dataclass(frozen=True)
class Sharpness:
    r"""$\lambda_{\max}(H)$ with its error bound, and the largest increase of the loss within a
    radius, to second order.
    """

    eigenvalue: float
    bound: float
    increase: float
    relative_increase: float  # the increase divided by 1 + L (Keskar et al. 2017)
    loss: float
    gradient_norm: float
    radius: float


def sharpness(
    objective: Objective,
    model: Any,
    batch: Any,
    *,
    radius: float = 0.05,
    steps: int = 32,
    key: PRNGKeyArray,
) -> Sharpness:
    r"""Sharpness of a minimum: $\lambda_{\max}(H)$, and the increase of the loss in the worst
    direction within `radius`.

    The increase is
    $\max_{\|\varepsilon\| \le r} g^\top\varepsilon + \frac12 \varepsilon^\top H \varepsilon$, the
    quantity that sharpness-aware minimisation (SAM) minimises, to second order. Both are computed
    from one Lanczos run that is started at the gradient $g$. Keskar et al. 2017; Foret et al. 2021.

    >>> bowl = lambda w, batch: (jnp.array([1.0, 4.0]) * w**2).sum() / 2
    >>> result = sharpness(bowl, jnp.zeros(2), None, radius=0.5, key=jr.key(0))
    >>> round(result.eigenvalue, 4), round(result.increase, 4)
    (4.0, 0.5)
    """
    if not radius > 0:
        raise ValueError(f"sharpness: radius must be positive; got {radius}.")
    return _sharpness(_lanczos_runs(objective, model, batch, key, steps, 0), radius=radius)


def _sharpness(runs: _LanczosRuns, *, radius: float) -> Sharpness:
    loss = float(runs.loss)
    gradient_norm = float(runs.gradient_norm)
    spectra = runs.spectra()
    highest = max(spectra, key=lambda r: r.values[-1])
    increase = trust_region_maximum(gradient_norm, spectra[0], radius=radius)
    return Sharpness(
        eigenvalue=float(highest.values[-1]),
        bound=float(highest.bounds[-1]),
        increase=increase,
        relative_increase=increase / (1 + loss),
        loss=loss,
        gradient_norm=gradient_norm,
        radius=radius,
    )


@dataclass(frozen=True)
class Curvature:
    """Sharpness, trace and spectrum of the Hessian."""

    sharpness: Sharpness
    trace: HessianTrace
    spectrum: HessianSpectrum


def curvature(
    objective: Objective,
    model: Any,
    batch: Any,
    *,
    radius: float = 0.05,
    steps: int = 32,
    n_probes: int = 4,
    key: PRNGKeyArray,
) -> Curvature:
    """The sharpness, the trace and the spectrum of the Hessian, from the same Lanczos runs.

    >>> bowl = lambda w, batch: (jnp.array([1.0, 4.0]) * w**2).sum() / 2
    >>> result = curvature(bowl, jnp.ones(2), None, key=jr.key(0))
    >>> round(result.sharpness.eigenvalue, 4), result.trace.value, result.spectrum.parameters
    (4.0, 5.0, 2)
    """
    key_trace, key = jr.split(key)
    runs = _lanczos_runs(objective, model, batch, key, steps, n_probes)
    return Curvature(
        _sharpness(runs, radius=radius),
        hessian_trace(objective, model, batch, key=key_trace),
        _spectrum(runs, tree.size(model), n_eigenvalues=8),
    )

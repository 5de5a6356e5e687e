r"""The curvature of the objective at $\theta$: its Hessian $H = \nabla^2 L(\theta)$, through
products $Hv$ alone.

One product costs about two gradients. Lanczos turns some tens of them into the outer eigenvalues,
their density and the steepest rise nearby; Hutchinson turns them into the trace. Nothing of size
$p \times p$ is ever formed. Where the network has kinks (ReLU) the Hessian is that of the smooth
piece on which $\theta$ lies.
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
from ...core import Objective, Scalar
from .lanczos import Lanczos, Ritz, lanczos, rise, ritz


def hvp(objective: Objective, model: Any, batch: Any, v: Any) -> Any:
    r"""$\nabla^2 L(\theta)\, v$, the derivative of the gradient along `v`, a tree like the model
    (Pearlmutter 1994).

    >>> half_square = lambda w, batch: 3 * jnp.vdot(w, w) / 2
    >>> hvp(half_square, jnp.ones(2), None, jnp.array([1.0, 2.0])).tolist()
    [3.0, 6.0]
    """
    return jax.jvp(lambda model: jax.grad(objective)(model, batch), (model,), (v,))[1]


@dataclass(frozen=True)
class Spectrum:
    r"""The outer eigenvalues of $H$, each with the distance within which an exact one lies, and the
    density of all.
    """

    top: Float[np.ndarray, " m"]  # the largest first
    top_bounds: Float[np.ndarray, " m"]
    bottom: Float[np.ndarray, " m"]  # the smallest first
    bottom_bounds: Float[np.ndarray, " m"]
    grid: Float[np.ndarray, " g"]
    density: Float[np.ndarray, " g"]  # of unit area
    parameters: int


def spectrum(
    objective: Objective,
    model: Any,
    batch: Any,
    *,
    steps: int = 32,
    probes: int = 4,
    count: int = 8,
    key: PRNGKeyArray,
) -> Spectrum:
    r"""The top, the bottom and the density of the Hessian's spectrum, by stochastic Lanczos
    quadrature.

    From a random unit $v$, Lanczos gives nodes $\theta_i$ and weights $s_{1i}^2$ with
    $v^\top f(H) v \approx \sum_i s_{1i}^2 f(\theta_i)$; the mean over probes estimates
    $\mathrm{tr} f(H) / p$, here with $f$ a Gaussian bump of a hundredth of the range. Ghorbani,
    Krishnan & Xiao 2019; Ubaru, Chen & Saad 2017.

    >>> bowl = lambda w, batch: (jnp.array([1.0, 2.0, 5.0]) * w**2).sum() / 2
    >>> found = spectrum(bowl, jnp.ones(3), None, key=jr.key(0))
    >>> found.top.round(3).tolist()
    [5.0, 2.0, 1.0]
    """
    if probes < 1 or count < 1:
        raise ValueError(
            f"spectrum: probes and count must be at least 1; got {probes} and {count}."
        )
    return _spectrum(
        _portraits(objective, model, batch, key, steps, probes), tree.size(model), count=count
    )


class _Portraits(NamedTuple):
    """The loss, the norm of its gradient, and Lanczos runs: the first from the gradient, the others
    at random.
    """

    loss: Scalar
    slope: Scalar
    runs: Lanczos


@partial(jax.jit, static_argnames=("objective", "steps", "probes"))
def _portraits(
    objective: Objective, model: Any, batch: Any, key: PRNGKeyArray, steps: int, probes: int
) -> _Portraits:
    loss, g = jax.value_and_grad(objective)(model, batch)
    g, back = tree.ravel(g)
    key_starts, key = jr.split(key)
    starts = jnp.concatenate([g[None], jr.normal(key_starts, (probes, g.size), g.dtype)])
    product = lambda v: hvp(objective, model, batch, v)
    run = lambda start: lanczos(product, model, steps=steps, key=key, start=back(start))
    return _Portraits(loss, jnp.linalg.norm(g), jax.lax.map(run, starts))


def _seen(found: _Portraits) -> list[Ritz]:
    return [
        ritz(Lanczos(*rows))
        for rows in zip(np.asarray(found.runs.alpha), np.asarray(found.runs.beta))
    ]


def _spectrum(found: _Portraits, parameters: int, *, count: int) -> Spectrum:
    seen = _seen(found)
    highest = max(seen, key=lambda r: r.values[-1])
    lowest = min(seen, key=lambda r: r.values[0])
    theta = np.stack([r.values for r in seen[1:]])
    share = np.stack([r.first**2 for r in seen[1:]]) / len(theta)
    least = lowest.values[0]
    most = highest.values[-1]
    width = max((most - least) / 100, 1e-9 * (1 + abs(most)))
    grid = np.linspace(least - 5 * width, most + 5 * width, 512)
    bumps = np.exp(-(((grid - theta[..., None]) / width) ** 2) / 2) / (width * np.sqrt(2 * np.pi))
    return Spectrum(
        top=highest.values[::-1][:count],
        top_bounds=highest.bounds[::-1][:count],
        bottom=lowest.values[:count],
        bottom_bounds=lowest.bounds[:count],
        grid=grid,
        density=(share[..., None] * bumps).sum(axis=(0, 1)),
        parameters=parameters,
    )


@dataclass(frozen=True)
class Trace:
    """An estimate and its standard error."""

    value: float
    error: float


def trace(
    objective: Objective, model: Any, batch: Any, *, probes: int = 32, key: PRNGKeyArray
) -> Trace:
    r"""$\mathrm{tr} H \approx \frac1s \sum_j v_j^\top H v_j$ over random signs
    $v_j \in \{-1, 1\}^p$ (Hutchinson 1990).

    >>> bowl = lambda w, batch: (jnp.array([1.0, 2.0, 5.0]) * w**2).sum() / 2
    >>> trace(bowl, jnp.ones(3), None, key=jr.key(0))
    Trace(value=8.0, error=0.0)
    """
    if probes < 2:
        raise ValueError(f"trace: needs at least 2 probes for a standard error; got {probes}.")
    draws = np.asarray(_quadratic_forms(objective, model, batch, jr.split(key, probes)), np.float64)
    return Trace(float(draws.mean()), float(draws.std(ddof=1) / np.sqrt(probes)))


@partial(jax.jit, static_argnames="objective")
def _quadratic_forms(
    objective: Objective, model: Any, batch: Any, keys: Key[Array, " probes"]
) -> Any:
    theta, back = tree.ravel(model)

    def form(key):
        v = back(jr.rademacher(key, theta.shape, theta.dtype))
        return tree.dot(v, hvp(objective, model, batch, v))

    return jax.lax.map(form, keys)


@dataclass(frozen=True)
class Sharpness:
    r"""$\lambda_{\max}(H)$ with its bound, and how far the loss can rise within a radius, to second
    order.
    """

    eigenvalue: float
    bound: float
    rise: float
    relative: float  # the rise over 1 + L, as Keskar et al. count
    loss: float
    slope: float  # ‖∇L‖
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
    r"""How sharp a minimum is: $\lambda_{\max}(H)$, and the rise of the loss in the worst direction
    nearby.

    The rise is
    $\max_{\|\varepsilon\| \le r} g^\top\varepsilon + \frac12 \varepsilon^\top H \varepsilon$, what
    sharpness-aware minimisation descends, to second order. Both come from one Lanczos run started
    at the gradient $g$. Keskar et al. 2017; Foret et al. 2021.

    >>> bowl = lambda w, batch: (jnp.array([1.0, 4.0]) * w**2).sum() / 2
    >>> found = sharpness(bowl, jnp.zeros(2), None, radius=0.5, key=jr.key(0))
    >>> round(found.eigenvalue, 4), round(found.rise, 4)
    (4.0, 0.5)
    """
    if not radius > 0:
        raise ValueError(f"sharpness: radius must be positive; got {radius}.")
    return _sharpness(_portraits(objective, model, batch, key, steps, 0), radius=radius)


def _sharpness(found: _Portraits, *, radius: float) -> Sharpness:
    loss = float(found.loss)
    slope = float(found.slope)
    seen = _seen(found)
    highest = max(seen, key=lambda r: r.values[-1])
    up = rise(slope, seen[0], radius=radius)
    eigenvalue = float(highest.values[-1])
    bound = float(highest.bounds[-1])
    return Sharpness(eigenvalue, bound, up, up / (1 + loss), loss, slope, radius)


@dataclass(frozen=True)
class Curvature:
    """All three at once."""

    sharpness: Sharpness
    trace: Trace
    spectrum: Spectrum


def curvature(
    objective: Objective,
    model: Any,
    batch: Any,
    *,
    radius: float = 0.05,
    steps: int = 32,
    probes: int = 4,
    key: PRNGKeyArray,
) -> Curvature:
    """The sharpness, the trace and the spectrum of the Hessian, from the same Lanczos runs.

    >>> bowl = lambda w, batch: (jnp.array([1.0, 4.0]) * w**2).sum() / 2
    >>> found = curvature(bowl, jnp.ones(2), None, key=jr.key(0))
    >>> round(found.sharpness.eigenvalue, 4), found.trace.value, found.spectrum.parameters
    (4.0, 5.0, 2)
    """
    key_trace, key = jr.split(key)
    found = _portraits(objective, model, batch, key, steps, probes)
    return Curvature(
        _sharpness(found, radius=radius),
        trace(objective, model, batch, key=key_trace),
        _spectrum(found, tree.size(model), count=8),
    )

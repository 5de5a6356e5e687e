r"""Effective number of parameters under weight decay and early stopping (§8.2, §8.3).

Near a minimiser
$\ell(\theta) \approx \ell(\theta^*) + \frac12 (\theta - \theta^*)^\top H (\theta - \theta^*)$.
Along an eigenvector of $H$ with curvature $\lambda$, and with gradient descent started at 0,
$\theta^*$ is shrunk by the factor

$$\frac{\lambda}{\lambda + \mu} \quad\text{for weight decay}, \qquad 1 - (1 - \eta\lambda)^T
\quad\text{for early stopping},$$

so directions of small curvature, which the data hardly determine, shrink to 0 and the others stay.
The sum of the factors is the effective number of parameters. Departs: the notes lose the brackets
in $(I - (I - \eta\Lambda)^T)\theta^*$.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ... import tree
from ...core import Batch, Objective
from ..loss_surface.curvature import hvp
from ..loss_surface.lanczos import Tridiagonal, lanczos, ritz_values


def weight_decay_factor(curvature: Any, *, strength: float) -> Float[np.ndarray, "*m"]:
    r"""Shrinkage factor of weight decay, $\frac{\lambda}{\lambda + \mu}$, for each curvature
    $\lambda$ (§8.2; Krogh & Hertz 1992).

    Where $\lambda < 0$ the loss has a maximum: with $\lambda + \mu > 0$ the regularised loss has
    its minimum on the other side of 0, at a negative factor; otherwise it has none, and the factor
    is NaN. In a flat direction the factor is 0.

    >>> weight_decay_factor([0.0, 1.0, 9.0], strength=1.0).tolist()
    [0.0, 0.5, 0.9]
    """
    _check_strength("decay_factor", strength)
    lam = np.asarray(curvature, np.float64)
    default = np.where(lam == 0, 0.0, np.nan)
    return np.asarray(np.divide(lam, lam + strength, out=default, where=lam + strength > 0))


def early_stopping_factor(
    curvature: Any, *, learning_rate: float, steps: int | float
) -> Float[np.ndarray, "*m"]:
    r"""Shrinkage factor of early stopping, $1 - (1 - \eta\lambda)^T$: the fraction of the way from
    0 to the minimiser after $T$ steps of gradient descent (§8.3).

    For $\lambda > 1/\eta$ it oscillates about 1, for $\lambda > 2/\eta$ it diverges; where
    $\lambda < 0$ it is negative, as descent moves away from a maximum. For non-integer `steps` it
    is NaN where $\lambda > 1/\eta$.

    >>> early_stopping_factor([0.0, 1.0, 10.0], learning_rate=0.1, steps=2).round(6).tolist()
    [0.0, 0.19, 1.0]
    """
    _check_learning_rate("early_stopping_factor", learning_rate)
    if not steps >= 0:
        raise ValueError(f"early_stopping_factor: steps must be >= 0; got {steps}.")
    remaining = 1 - learning_rate * np.asarray(curvature, np.float64)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        # expm1 and log1p keep the digits of a small ηλ
        accurate = -np.expm1(steps * np.log1p(-learning_rate * np.asarray(curvature, np.float64)))
        return np.asarray(np.where(remaining > 0, accurate, 1 - remaining**steps))


def weight_decay_equivalent_steps(
    curvature: Any, *, learning_rate: float, strength: float
) -> Float[np.ndarray, "*m"]:
    r"""Number of steps at which early stopping has the same shrinkage factor as weight decay,
    $T = \frac{\log(1 + \lambda/\mu)}{-\log(1 - \eta\lambda)}$ (§8.3).

    It differs between directions, and tends to $\frac{1}{\eta\mu}$ where $\lambda \ll \mu$ and
    $\eta\lambda \ll 1$ (Bishop 1995; Goodfellow, Bengio & Courville 2016, §7.8).

    >>> steps = weight_decay_equivalent_steps([0.0, 0.01, 1.0], learning_rate=0.05, strength=1.0)
    >>> steps.round(2).tolist()
    [20.0, 19.9, 13.51]
    """
    name = "weight_decay_equivalent_steps"
    _check_learning_rate(name, learning_rate)
    if not strength > 0:
        raise ValueError(
            f"{name}: strength must be positive, as T is infinite without weight decay; got "
            f"{strength}."
        )
    lam = np.asarray(curvature, np.float64)
    if not ((lam > -strength) & (learning_rate * lam < 1)).all():
        raise ValueError(
            f"{name}: curvatures must be above -strength = {-strength:g} and below "
            f"1 / learning_rate = {1 / learning_rate:g}; got {lam.min():g} to {lam.max():g}. "
            "Elsewhere no number of steps is equivalent."
        )
    flat = lam == 0
    lam = np.where(flat, 1.0, lam)  # a placeholder, to avoid 0 / 0
    steps = np.log1p(lam / strength) / np.where(
        flat, 1.0, -np.log1p(-learning_rate * np.where(flat, 0.0, lam))
    )
    return np.asarray(np.where(flat, 1 / (learning_rate * strength), steps))


@dataclass(frozen=True)
class EffectiveParameters:
    r"""Shrinkage factors and curvatures of the leading directions, and the effective number of
    parameters.

    `negative` estimates the number of directions of negative curvature, where there is no
    minimiser.
    """

    factors: Float[np.ndarray, " m"]
    curvatures: Float[np.ndarray, " m"]  # the largest first
    bounds: Float[np.ndarray, " m"]  # error bounds of the curvatures
    effective: float
    # standard error of the effective number over probes, without the bias of Lanczos quadrature
    error: float
    negative: float
    parameters: int
    strength: float
    learning_rate: float | None
    steps: int | None


def effective_parameters(
    objective: Objective,
    model: Any,
    batch: Batch | None,
    *,
    strength: float = 0.0,
    learning_rate: float | None = None,
    steps: int | None = None,
    n_eigenvalues: int = 20,
    n_probes: int = 4,
    key: PRNGKeyArray,
) -> EffectiveParameters:
    r"""Effective number of parameters of a trained network under weight decay, early stopping or
    both, from the Hessian spectrum of its loss (§8.2, §8.3).

    The objective is the one without weight decay. With `strength` $\mu$ the factors are
    $\frac{\lambda}{\lambda + \mu}$, with `learning_rate` $\eta$ and `steps` $T$ they are
    $1 - (1 - \eta\lambda)^T$, with all three those of $T$ steps on the regularised loss,
    $(1 - (1 - \eta(\lambda + \mu))^T) \frac{\lambda}{\lambda + \mu}$. They are exact for a
    quadratic loss; otherwise they describe its quadratic approximation at this model. The effective
    number is their sum over the whole spectrum, $\sum_i \frac{\lambda_i}{\lambda_i + \mu}$ for
    weight decay (MacKay 1992), by stochastic Lanczos quadrature from `n_probes` random vectors:
    factors are clipped to [0, 1]; directions of negative curvature, counted in `negative`, are
    excluded; a curvature within rounding of 0 is flat. No $p \times p$ matrix is formed.

    >>> import jax.numpy as jnp
    >>> bowl = lambda w, batch: (jnp.array([1.0, 3.0, 9.0]) * w**2).sum() / 2
    >>> result = effective_parameters(bowl, jnp.ones(3), None, strength=1.0, key=jr.key(0))
    >>> result.factors.round(3).tolist(), round(result.effective, 3)
    ([0.9, 0.75, 0.5], 2.15)
    """
    _check_strength("effective_parameters", strength)
    if (learning_rate is None) != (steps is None) or (learning_rate is None and strength == 0):
        raise ValueError(
            "effective_parameters: give strength > 0, or learning_rate and steps, or all three."
        )
    if n_probes < 2 or n_eigenvalues < 1:
        raise ValueError(
            "effective_parameters: n_eigenvalues must be at least 1 and n_probes at least 2; got "
            f"{n_eigenvalues} and {n_probes}."
        )
    factor = partial(_factor, strength=strength, learning_rate=learning_rate, steps=steps)
    factor(np.zeros(1))  # checks the arguments before any Hessian-vector product
    runs = _lanczos_runs(objective, model, batch, key, 3 * n_eigenvalues + 12, n_probes)
    p = tree.size(model)
    spectra = [
        ritz_values(Tridiagonal(*rows))
        for rows in zip(np.asarray(runs.alpha), np.asarray(runs.beta))
    ]
    top = max(spectra, key=lambda r: r.values[-1])
    noise = 100 * np.finfo(runs.alpha.dtype).eps * max(np.abs(r.values).max() for r in spectra)
    clipped = lambda lam: np.where(
        lam > noise, np.clip(factor(np.maximum(lam, 0.0)), 0.0, 1.0), 0.0
    )
    # Quadrature weights, which sum to p; after p steps every eigenvalue is found and counts once.
    weights = [np.ones(p) if len(r.values) == p else p * r.first_components**2 for r in spectra]
    estimates = np.array([w @ clipped(r.values) for w, r in zip(weights, spectra)])
    return EffectiveParameters(
        factors=factor(top.values[::-1][:n_eigenvalues]),
        curvatures=top.values[::-1][:n_eigenvalues],
        bounds=top.bounds[::-1][:n_eigenvalues],
        effective=float(estimates.mean()),
        error=float(estimates.std(ddof=1) / np.sqrt(n_probes)),
        negative=float(np.mean([w @ (r.values < -noise) for w, r in zip(weights, spectra)])),
        parameters=p,
        strength=strength,
        learning_rate=learning_rate,
        steps=steps,
    )


def _factor(
    lam: Any, *, strength: float, learning_rate: float | None, steps: int | None
) -> Float[np.ndarray, "*m"]:
    """The factor of weight decay, of early stopping, or of early stopping on the regularised
    loss.
    """
    lam = np.asarray(lam, np.float64)
    if learning_rate is None or steps is None:
        return weight_decay_factor(lam, strength=strength)
    regularised = lam + strength
    reached = early_stopping_factor(regularised, learning_rate=learning_rate, steps=steps)
    flat = learning_rate * steps * lam  # the limit where regularised = 0
    return np.asarray(np.divide(reached * lam, regularised, out=flat, where=regularised != 0))


@partial(jax.jit, static_argnames=("objective", "steps", "n_probes"))
def _lanczos_runs(
    objective: Objective, model: Any, batch: Any, key: PRNGKeyArray, steps: int, n_probes: int
) -> Tridiagonal:
    """Lanczos runs on the Hessian from random starting vectors."""
    run = lambda key: lanczos(
        lambda v: hvp(objective, model, batch, v), model, steps=steps, key=key
    )
    return jax.lax.map(run, jr.split(key, n_probes))


def _check_strength(name: str, strength: float) -> None:
    if not strength >= 0:
        raise ValueError(f"{name}: strength must be >= 0; got {strength}.")


def _check_learning_rate(name: str, learning_rate: float) -> None:
    if not learning_rate > 0:
        raise ValueError(f"{name}: learning_rate must be positive; got {learning_rate}.")

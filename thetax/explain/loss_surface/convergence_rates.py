r"""Convergence rates of gradient descent: fitted to a loss curve, and the upper bounds of the
theorems (§3.2, §3.3).

Upper bounds on $h_t - h^*$ for an $L$-smooth $h$ and the learning rate $1/L$, with
$D = \|\theta_0 - \theta^*\|$:

- gradient descent on a convex $h$: $L D^2 / 2t$
- Nesterov, $\beta_t = \frac{t-1}{t+2}$, on a convex $h$: $2 L D^2 / (t + 1)^2$
- gradient descent under $\mu$-gradient dominance: $(1 - \mu/L)^t (h_0 - h^*)$
- Nesterov, $\beta = \frac{1 - q}{1 + q}$ with $q = \sqrt{\mu/L}$, on a $\mu$-strongly convex $h$:
  $(1 - q)^t (h_0 - h^* + \frac\mu2 D^2)$
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Float

from ...core import Batch, Objective, run
from ...train import descend, nesterov_iterate
from .smoothness import Smoothness


@dataclass(frozen=True)
class ConvergenceRate:
    r"""The better of two fits to the logarithm of a curve: geometric decay $c\,\rho^t$, or a power
    law $c\,t^{-p}$.
    """

    law: Literal["geometric", "power"]
    factor: float  # ρ
    power: float  # p
    # root mean square errors of the geometric and of the power-law fit, in the logarithm
    fit_errors: tuple[float, float]
    geometric: tuple[float, float]  # log c and log ρ
    power_law: tuple[float, float]  # log c and −p

    def at(self, times: Any) -> Float[np.ndarray, " t"]:
        """The fitted law at the given times."""
        t = np.asarray(times, np.float64)
        (c, slope), t = (
            (self.geometric, t) if self.law == "geometric" else (self.power_law, np.log(t))
        )
        return np.exp(c + slope * t)


def fit_convergence_rate(gaps: Any, *, times: Any = None) -> ConvergenceRate:
    r"""Fits $\log(h_t - h^*)$ by a line in $t$ and by a line in $\log t$, with slopes $\log\rho$
    and $-p$.

    `times` are 0, 1, 2, ... by default. Gaps that are not positive are ignored, and time 0 by the
    power law.

    >>> rate = fit_convergence_rate([8.0, 4.0, 2.0, 1.0])
    >>> rate.law, round(rate.factor, 6)
    ('geometric', 0.5)
    >>> rate = fit_convergence_rate([1.0, 1 / 4, 1 / 9, 1 / 16], times=[1, 2, 3, 4])
    >>> rate.law, round(rate.power, 6)
    ('power', 2.0)
    """
    y = np.asarray(gaps, np.float64)
    t = np.arange(len(y), dtype=float) if times is None else np.asarray(times, np.float64)
    if y.ndim != 1 or t.shape != y.shape:
        raise ValueError(
            "fit_convergence_rate: expected a one-dimensional array of gaps and as many times; got "
            f"shapes {y.shape} and {t.shape}."
        )
    valid = np.isfinite(y) & (y > 0)
    if (valid & (t > 0)).sum() < 2:
        raise ValueError(
            "fit_convergence_rate: a fit needs at least two positive gaps at positive times. Is "
            "min_loss too large?"
        )
    geometric, geometric_error = _fit_line(t[valid], np.log(y[valid]))
    valid &= t > 0
    power_law, power_error = _fit_line(np.log(t[valid]), np.log(y[valid]))
    return ConvergenceRate(
        law="geometric" if geometric_error <= power_error else "power",
        factor=float(np.exp(geometric[1])),
        power=-power_law[1],
        fit_errors=(geometric_error, power_error),
        geometric=geometric,
        power_law=power_law,
    )


def _fit_line(x: np.ndarray, y: np.ndarray) -> tuple[tuple[float, float], float]:
    """Intercept and slope by least squares, and the root mean square error."""
    slope, intercept = np.polyfit(x, y, 1)
    error = np.sqrt(np.mean((y - intercept - slope * x) ** 2))
    return (float(intercept), float(slope)), float(error)


@dataclass(frozen=True)
class ConvergenceRates:
    r"""The fitted rate and the gaps $h(\theta_t) - h^*$ of each optimiser, and the upper bounds of
    theorems, by name.
    """

    rates: dict[str, ConvergenceRate]
    gaps: dict[str, Float[np.ndarray, " t"]]
    bounds: dict[str, Float[np.ndarray, " t"]] = field(default_factory=dict)


def convergence_rates(
    objective: Objective,
    model: Any,
    batch: Batch | None,
    *,
    optimisers: Mapping[str, optax.GradientTransformation],
    steps: int,
    min_loss: float = 0.0,
    fit_from: int = 1,
    bounds: Mapping[str, Any] | None = None,
) -> ConvergenceRates:
    r"""Runs each optimiser from the same model on the same batch, and fits the decay of
    $h(\theta_t) - h^*$, where $h^*$ is `min_loss`.

    The fit uses the steps from `fit_from` on. For Nesterov's method $h$ is evaluated at the iterate
    $\theta_t$, not at the look-ahead. `bounds`, such as those of `convergence_bounds`, are kept for
    the figure.

    >>> bowl = lambda w, batch: jnp.vdot(w, w) / 2
    >>> result = convergence_rates(
    ...     bowl, jnp.ones(2), None, optimisers={"descent": optax.sgd(0.5)}, steps=10
    ... )
    >>> round(result.rates["descent"].factor, 4)
    0.25
    """
    if steps < 2 or not 0 <= fit_from < steps:
        raise ValueError(
            "convergence_rates: steps must be >= 2 and fit_from from 0 to steps - 1; got "
            f"steps={steps} and fit_from={fit_from}."
        )
    if not isinstance(optimisers, Mapping) or not optimisers:
        raise ValueError(
            "convergence_rates: optimisers must be a non-empty dictionary of optimisers by name, "
            "such as {'descent': optax.sgd(0.1)}."
        )
    gaps = {
        name: _losses(objective, model, batch, optimiser, steps) - min_loss
        for name, optimiser in optimisers.items()
    }
    for name, gap in gaps.items():
        if not np.isfinite(gap).all():
            raise ValueError(
                f"convergence_rates: with {name!r} the loss is not finite from step "
                f"{int(np.isfinite(gap).argmin())} of {steps} on; lower its learning rate."
            )
    times = np.arange(fit_from, steps + 1)
    rates = {name: fit_convergence_rate(gap[fit_from:], times=times) for name, gap in gaps.items()}
    curves = {name: np.asarray(curve, float) for name, curve in (bounds or {}).items()}
    return ConvergenceRates(rates, gaps, curves)


def _losses(objective: Objective, model: Any, batch: Any, optimiser: Any, steps: int) -> np.ndarray:
    """The loss before and after each step."""

    @jax.jit
    def losses(model, batch):
        loss = lambda model: objective(model, batch)
        iteration = descend(lambda model, _, key: loss(model), optimiser)
        record = lambda state: loss(nesterov_iterate(state))
        _, (after, _) = run(iteration, model, jnp.zeros(steps), key=jr.key(0), record=record)
        return jnp.append(loss(model), after)

    return np.asarray(losses(model, batch), np.float64)


def convergence_bounds(
    *,
    steps: int,
    smoothness: float,
    distance: float,
    gap: float = np.inf,
    strong_convexity: float = 0.0,
) -> dict[str, Float[np.ndarray, " t"]]:
    r"""The theorems' upper bounds on $h(\theta_t) - h^*$ for $t = 0, \dots, T$ with the learning
    rate $1/L$, as listed in the docstring of this module.

    `smoothness` is $L$, `distance` is $\|\theta_0 - \theta^*\|$, `gap` is $h_0 - h^*$ and
    `strong_convexity` is $\mu$. The geometric bounds need a finite `gap` and $\mu > 0$. Nesterov
    1983; Polyak 1963.

    >>> bounds = convergence_bounds(
    ...     steps=2, smoothness=2.0, distance=1.0, gap=1.0, strong_convexity=1.0
    ... )
    >>> {name: curve[2].round(3).item() for name, curve in bounds.items()}
    {'descent 1/t': 0.5, 'Nesterov 1/t²': 0.444, 'descent geometric': 0.25, 'Nesterov geometric':
    0.129}
    """
    L, mu = smoothness, strong_convexity
    if not L > 0 or not 0 <= mu <= L:
        raise ValueError(
            "convergence_bounds: smoothness must be positive and strong_convexity from 0 to "
            f"smoothness; got smoothness={L} and strong_convexity={mu}."
        )
    t = np.arange(steps + 1.0)
    with np.errstate(divide="ignore"):
        bounds = {
            "descent 1/t": L * distance**2 / (2 * t),
            "Nesterov 1/t²": 2 * L * distance**2 / (t + 1) ** 2,
        }
    if mu > 0 and np.isfinite(gap):
        bounds["descent geometric"] = (1 - mu / L) ** t * gap
        bounds["Nesterov geometric"] = (1 - np.sqrt(mu / L)) ** t * (gap + mu / 2 * distance**2)
    return bounds


@dataclass(frozen=True)
class TrainingConvergence:
    """The rate at which the training loss decreased, its value after each epoch, and the smoothness
    at the final parameters.
    """

    rate: ConvergenceRate
    losses: Float[np.ndarray, " epochs"]
    smoothness: Smoothness


def training_convergence(
    losses: Any, smoothness: Smoothness, *, min_loss: float = 0.0
) -> TrainingConvergence:
    r"""Fits the convergence rate of the losses after epochs 1, 2, ..., above `min_loss`, the
    smallest value the loss can have.

    >>> result = training_convergence([4.0, 2.0, 1.0], Smoothness(8.0, np.array([8.0])))
    >>> round(result.rate.factor, 4), result.smoothness.max_learning_rate
    (0.5, 0.25)
    """
    values = np.asarray(losses, np.float64)
    times = np.arange(1, len(values) + 1)
    return TrainingConvergence(
        fit_convergence_rate(values - min_loss, times=times), values, smoothness
    )

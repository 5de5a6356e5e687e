r"""How fast descent descends: the rate measured on a curve, and the rates the theorems promise
(§3.2, §3.3).

- gradient descent: promise for $h_t - h^*$ $L D^2 / 2t$; where $h$ is convex, $D = \|\theta_0 -
  \theta^*\|$
- Nesterov, $\beta_t = \frac{t-1}{t+2}$: promise for $h_t - h^*$ $2 L D^2 / (t + 1)^2$; where $h$ is
  convex
- gradient descent: promise for $h_t - h^*$ $(1 - \mu/L)^t (h_0 - h^*)$; where $h$ is
  $\mu$-dominated by its gradient
- Nesterov, $\beta = \frac{1 - q}{1 + q}$, $q = \sqrt{\mu/L}$: promise for $h_t - h^*$ $(1 - q)^t
  (h_0 - h^* + \frac\mu2 D^2)$; where $h$ is $\mu$-convex
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
from ...train import descend, iterate
from .smoothness import Smoothness


@dataclass(frozen=True)
class Decay:
    r"""How a curve falls: like $c\,\rho^t$ or like $c\,t^{-p}$, whichever is nearer to it in the
    logarithm.
    """

    law: Literal["geometric", "power"]
    factor: float  # ρ
    power: float  # p
    misfit: tuple[
        float, float
    ]  # root mean square of the logarithm, of the geometric law and of the power law
    geometric: tuple[float, float]  # log c and log ρ
    algebraic: tuple[float, float]  # log c and −p

    def at(self, times: Any) -> Float[np.ndarray, " t"]:
        """The fitted law at the given times."""
        t = np.asarray(times, np.float64)
        (c, slope), t = (
            (self.geometric, t) if self.law == "geometric" else (self.algebraic, np.log(t))
        )
        return np.exp(c + slope * t)


def fit_decay(gaps: Any, *, times: Any = None) -> Decay:
    r"""Fits $\log(h_t - h^*)$ by a line in $t$ and by a line in $\log t$; the slopes are $\log\rho$
    and $-p$.

    The times count from 0 unless given; gaps that are not positive, and time 0 for the power, are
    left out.

    >>> found = fit_decay([8.0, 4.0, 2.0, 1.0])
    >>> found.law, round(found.factor, 6)
    ('geometric', 0.5)
    >>> found = fit_decay([1.0, 1 / 4, 1 / 9, 1 / 16], times=[1, 2, 3, 4])
    >>> found.law, round(found.power, 6)
    ('power', 2.0)
    """
    y = np.asarray(gaps, np.float64)
    t = np.arange(len(y), dtype=float) if times is None else np.asarray(times, np.float64)
    if y.ndim != 1 or t.shape != y.shape:
        raise ValueError(
            f"fit_decay: expected a row of gaps and as many times; got {y.shape} and {t.shape}."
        )
    seen = np.isfinite(y) & (y > 0)
    if (seen & (t > 0)).sum() < 2:
        raise ValueError(
            "fit_decay: fewer than two positive gaps at positive times; a rate needs two. Is "
            "least right?"
        )
    geometric, off = _line(t[seen], np.log(y[seen]))
    seen &= t > 0
    algebraic, other = _line(np.log(t[seen]), np.log(y[seen]))
    law = "geometric" if off <= other else "power"
    return Decay(
        law, float(np.exp(geometric[1])), -algebraic[1], (off, other), geometric, algebraic
    )


def _line(x: np.ndarray, y: np.ndarray) -> tuple[tuple[float, float], float]:
    """Intercept and slope by least squares, and the root mean square of what is left."""
    slope, start = np.polyfit(x, y, 1)
    return (float(start), float(slope)), float(np.sqrt(np.mean((y - start - slope * x) ** 2)))


@dataclass(frozen=True)
class Rates:
    r"""Per optimiser its fitted decay and its gaps $h(\theta_t) - h^*$; beside them what the
    theorems promise.
    """

    decays: dict[str, Decay]
    gaps: dict[str, Float[np.ndarray, " t"]]
    promises: dict[str, Float[np.ndarray, " t"]] = field(default_factory=dict)


def rates(
    objective: Objective,
    model: Any,
    batch: Batch | None,
    *,
    optimisers: Mapping[str, optax.GradientTransformation],
    steps: int,
    least: float = 0.0,
    first: int = 1,
    promises: Mapping[str, Any] | None = None,
) -> Rates:
    r"""Runs each optimiser from the same model on the same batch, and fits the decay of
    $h(\theta_t) - h^*$.

    The fit begins at step `first`. Of Nesterov's method the iterate $\theta_t$ counts, not the
    look-ahead.

    >>> bowl = lambda w, batch: jnp.vdot(w, w) / 2
    >>> found = rates(bowl, jnp.ones(2), None, optimisers={"descent": optax.sgd(0.5)}, steps=10)
    >>> round(found.decays["descent"].factor, 4)
    0.25
    """
    if steps < 2 or not 0 <= first < steps:
        raise ValueError(
            f"rates: steps must be at least 2 and first below it; got {steps} and {first}."
        )
    if not isinstance(optimisers, Mapping) or not optimisers:
        raise ValueError(
            "rates: give at least one optimiser by its name, e.g. {'descent': optax.sgd(0.1)}."
        )
    gaps = {
        name: _gaps(objective, model, batch, o, steps) - least for name, o in optimisers.items()
    }
    for name, gap in gaps.items():
        if not np.isfinite(gap).all():
            raise ValueError(
                f"rates: with {name!r} the loss became not finite at step "
                f"{int(np.isfinite(gap).argmin())} of {steps}; lower its rate."
            )
    times = np.arange(first, steps + 1)
    decays = {name: fit_decay(gap[first:], times=times) for name, gap in gaps.items()}
    return Rates(
        decays, gaps, {name: np.asarray(curve, float) for name, curve in (promises or {}).items()}
    )


def _gaps(objective: Objective, model: Any, batch: Any, optimiser: Any, steps: int) -> np.ndarray:
    @jax.jit
    def losses(model, batch):
        value = lambda model: objective(model, batch)
        iteration = descend(lambda model, _, key: value(model), optimiser)
        keep = lambda state: value(iterate(state))
        _, (kept, _) = run(iteration, model, jnp.zeros(steps), key=jr.key(0), record=keep)
        return jnp.append(value(model), kept)

    return np.asarray(losses(model, batch), np.float64)


def promises(
    *, steps: int, smooth: float, distance: float, gap: float = np.inf, convex: float = 0.0
) -> dict[str, Float[np.ndarray, " t"]]:
    r"""What the theorems promise of $h(\theta_t) - h^*$ for $t = 0, \dots, T$, with rate $1/L$ (the
    table above).

    `smooth` is $L$, `distance` $\|\theta_0 - \theta^*\|$, `gap` $h_0 - h^*$ and `convex` $\mu$, by
    which the last two are added if it is positive. Nesterov 1983; Polyak 1963.

    >>> found = promises(steps=2, smooth=2.0, distance=1.0, gap=1.0, convex=1.0)
    >>> {name: curve[2].round(3).item() for name, curve in found.items()}
    {'descent 1/t': 0.5, 'Nesterov 1/t²': 0.444, 'descent geometric': 0.25, 'Nesterov geometric':
    0.129}
    """
    if not smooth > 0 or not 0 <= convex <= smooth:
        raise ValueError(
            f"promises: needs 0 < smooth and 0 ≤ convex ≤ smooth; got {smooth} and {convex}."
        )
    t = np.arange(steps + 1.0)
    with np.errstate(divide="ignore"):
        found = {
            "descent 1/t": smooth * distance**2 / (2 * t),
            "Nesterov 1/t²": 2 * smooth * distance**2 / (t + 1) ** 2,
        }
    if convex > 0 and np.isfinite(gap):
        found["descent geometric"] = (1 - convex / smooth) ** t * gap
        found["Nesterov geometric"] = (1 - np.sqrt(convex / smooth)) ** t * (
            gap + convex / 2 * distance**2
        )
    return found


@dataclass(frozen=True)
class Trajectory:
    """The rate at which the loss of a run fell, its values an epoch, and how the loss bends where
    the run ended.
    """

    decay: Decay
    losses: Float[np.ndarray, " epochs"]
    smoothness: Smoothness


def trajectory(losses: Any, smoothness: Smoothness, *, least: float = 0.0) -> Trajectory:
    r"""Fits the decay of the losses of a run, epoch by epoch from 1 on, above the `least` value the
    loss can have.

    >>> found = trajectory([4.0, 2.0, 1.0], Smoothness(8.0, np.array([8.0])))
    >>> round(found.decay.factor, 4), found.smoothness.rate
    (0.5, 0.25)
    """
    values = np.asarray(losses, np.float64)
    return Trajectory(
        fit_decay(values - least, times=np.arange(1, len(values) + 1)), values, smoothness
    )

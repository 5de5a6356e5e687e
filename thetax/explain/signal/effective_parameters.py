r"""What weight decay and early stopping leave of a minimiser, direction by direction (§8.2, §8.3).

Near a minimiser
$\ell(\theta) \approx \ell(\theta^*) + \frac12 (\theta - \theta^*)^\top H (\theta - \theta^*)$.
Along an eigenvector of $H$ of curvature $\lambda$, and with descent begun at 0, there remains of
$\theta^*$ the factor

$$\frac{\lambda}{\lambda + \mu} \quad\text{of decay}, \qquad 1 - (1 - \eta\lambda)^T \quad\text{of
stopping},$$

so directions of small curvature, which the data hardly determine, go to 0 and the others stay. The
sum of the factors is the effective number of parameters. Departs: the notes lose the brackets in
$(I - (I - \eta\Lambda)^T)\theta^*$.
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
from ..loss_surface.lanczos import Lanczos, lanczos, ritz


def decay_factor(curvature: Any, *, strength: float) -> Float[np.ndarray, "*m"]:
    r"""$\frac{\lambda}{\lambda + \mu}$, what decay leaves of the minimiser (§8.2; Krogh & Hertz
    1992).

    Where $\lambda < 0$ the loss has a maximum: with $\lambda + \mu > 0$ the decayed one has its
    minimum on the other side of 0, at a negative factor; with less it has none, and the factor is
    NaN. Of a flat direction nothing stays.

    >>> decay_factor([0.0, 1.0, 9.0], strength=1.0).tolist()
    [0.0, 0.5, 0.9]
    """
    _check_strength("decay_factor", strength)
    lam = np.asarray(curvature, np.float64)
    bent = np.where(lam == 0, 0.0, np.nan)
    return np.asarray(np.divide(lam, lam + strength, out=bent, where=lam + strength > 0))


def stopping_factor(curvature: Any, *, rate: float, steps: int | float) -> Float[np.ndarray, "*m"]:
    r"""$1 - (1 - \eta\lambda)^T$, what $T$ steps of descent from 0 have reached of the minimiser
    (§8.3).

    Beyond $\lambda = 1/\eta$ it swings about 1, beyond $2/\eta$ without bound; where $\lambda < 0$
    it is negative, for descent flees from a maximum. Between whole numbers of steps it is known
    only up to $1/\eta$, and NaN beyond.

    >>> stopping_factor([0.0, 1.0, 10.0], rate=0.1, steps=2).round(6).tolist()
    [0.0, 0.19, 1.0]
    """
    _check_rate("stopping_factor", rate)
    if not steps >= 0:
        raise ValueError(f"stopping_factor: steps must not be negative; got {steps}.")
    left = 1 - rate * np.asarray(curvature, np.float64)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        slow = -np.expm1(
            steps * np.log1p(-rate * np.asarray(curvature, np.float64))
        )  # keeps the digits of a small ηλ
        return np.asarray(np.where(left > 0, slow, 1 - left**steps))


def equivalent_steps(curvature: Any, *, rate: float, strength: float) -> Float[np.ndarray, "*m"]:
    r"""$T = \frac{\log(1 + \lambda/\mu)}{-\log(1 - \eta\lambda)}$, after which stopping has the
    factor of decay (§8.3).

    It differs between directions, and tends to $\frac{1}{\eta\mu}$ where $\lambda \ll \mu$ and
    $\eta\lambda \ll 1$ (Bishop 1995; Goodfellow, Bengio & Courville 2016, §7.8).

    >>> equivalent_steps([0.0, 0.01, 1.0], rate=0.05, strength=1.0).round(2).tolist()
    [20.0, 19.9, 13.51]
    """
    _check_rate("equivalent_steps", rate)
    if not strength > 0:
        raise ValueError(
            f"equivalent_steps: strength must be positive; got {strength}. Without decay T is "
            "infinite."
        )
    lam = np.asarray(curvature, np.float64)
    if not ((lam > -strength) & (rate * lam < 1)).all():
        raise ValueError(
            f"equivalent_steps: each curvature must lie above -strength = {-strength:g} and below "
            f"1 / rate = {1 / rate:g}; got {lam.min():g} to {lam.max():g}. Elsewhere no number of "
            "steps is equivalent."
        )
    flat = lam == 0
    lam = np.where(flat, 1.0, lam)  # any number: its quotient is not taken
    found = np.log1p(lam / strength) / np.where(
        flat, 1.0, -np.log1p(-rate * np.where(flat, 0.0, lam))
    )
    return np.asarray(np.where(flat, 1 / (rate * strength), found))


@dataclass(frozen=True)
class Shrinkage:
    r"""The factor left in each leading direction, its curvature, and how many parameters count in
    all.

    `negative` estimates how many directions bend downwards, where there is no minimiser to shrink.
    """

    factors: Float[np.ndarray, " m"]
    curvatures: Float[np.ndarray, " m"]  # the largest first
    bounds: Float[np.ndarray, " m"]  # within which an exact curvature lies
    effective: float
    # the standard error of the effective number, over probes; the blur of Lanczos comes on top
    error: float
    negative: float
    parameters: int
    strength: float
    rate: float | None
    steps: int | None


def shrinkage(
    objective: Objective,
    model: Any,
    batch: Batch | None,
    *,
    strength: float = 0.0,
    rate: float | None = None,
    steps: int | None = None,
    count: int = 20,
    probes: int = 4,
    key: PRNGKeyArray,
) -> Shrinkage:
    r"""What decay, stopping, or both leave of a trained network, by the curvatures of its loss
    (§8.2, §8.3).

    The objective is the one without decay. With a strength the factors are
    $\frac{\lambda}{\lambda + \mu}$, with a rate and steps $1 - (1 - \eta\lambda)^T$, with all three
    what $T$ steps on the decayed loss reach,
    $(1 - (1 - \eta(\lambda + \mu))^T) \frac{\lambda}{\lambda + \mu}$. They are exact for a
    quadratic loss; for another they say what its second order says at this model. The effective
    number is their sum over the whole spectrum, $\sum_i \frac{\lambda_i}{\lambda_i + \mu}$ for
    decay (MacKay 1992), by stochastic Lanczos quadrature: factors count from 0 to 1, and directions
    of negative curvature, of which `negative` says how many there are, not at all; a curvature
    within rounding of 0 is flat. Nothing $p \times p$ is formed.

    >>> import jax.numpy as jnp
    >>> bowl = lambda w, batch: (jnp.array([1.0, 3.0, 9.0]) * w**2).sum() / 2
    >>> found = shrinkage(bowl, jnp.ones(3), None, strength=1.0, key=jr.key(0))
    >>> found.factors.round(3).tolist(), round(found.effective, 3)
    ([0.9, 0.75, 0.5], 2.15)
    """
    _check_strength("shrinkage", strength)
    if (rate is None) != (steps is None) or (rate is None and strength == 0):
        raise ValueError(
            "shrinkage: give a strength of decay, or a rate with a number of steps, or all three."
        )
    if probes < 2 or count < 1:
        raise ValueError(
            f"shrinkage: count must be at least 1 and probes at least 2; got {count} and {probes}."
        )
    factor = partial(_factor, strength=strength, rate=rate, steps=steps)
    factor(np.zeros(1))  # refuses a bad rate before any product is taken
    runs = _runs(objective, model, batch, key, 3 * count + 12, probes)
    p = tree.size(model)
    seen = [ritz(Lanczos(*rows)) for rows in zip(np.asarray(runs.alpha), np.asarray(runs.beta))]
    top = max(seen, key=lambda r: r.values[-1])
    noise = 100 * np.finfo(runs.alpha.dtype).eps * max(np.abs(r.values).max() for r in seen)
    counted = lambda lam: np.where(
        lam > noise, np.clip(factor(np.maximum(lam, 0.0)), 0.0, 1.0), 0.0
    )
    shares = [
        np.ones(p) if len(r.values) == p else p * r.first**2 for r in seen
    ]  # after p steps nothing is unseen
    draws = np.array([share @ counted(r.values) for share, r in zip(shares, seen)])
    return Shrinkage(
        factors=factor(top.values[::-1][:count]),
        curvatures=top.values[::-1][:count],
        bounds=top.bounds[::-1][:count],
        effective=float(draws.mean()),
        error=float(draws.std(ddof=1) / np.sqrt(probes)),
        negative=float(np.mean([share @ (r.values < -noise) for share, r in zip(shares, seen)])),
        parameters=p,
        strength=strength,
        rate=rate,
        steps=steps,
    )


def _factor(
    lam: Any, *, strength: float, rate: float | None, steps: int | None
) -> Float[np.ndarray, "*m"]:
    """Of decay, of stopping, or of stopping on the decayed loss."""
    lam = np.asarray(lam, np.float64)
    if rate is None or steps is None:
        return decay_factor(lam, strength=strength)
    bent = lam + strength
    reached = stopping_factor(bent, rate=rate, steps=steps)
    return np.asarray(np.divide(reached * lam, bent, out=rate * steps * lam, where=bent != 0))


@partial(jax.jit, static_argnames=("objective", "steps", "probes"))
def _runs(
    objective: Objective, model: Any, batch: Any, key: PRNGKeyArray, steps: int, probes: int
) -> Lanczos:
    """Lanczos from several random starts."""
    run = lambda key: lanczos(
        lambda v: hvp(objective, model, batch, v), model, steps=steps, key=key
    )
    return jax.lax.map(run, jr.split(key, probes))


def _check_strength(name: str, strength: float) -> None:
    if not strength >= 0:
        raise ValueError(f"{name}: strength must not be negative; got {strength}.")


def _check_rate(name: str, rate: float) -> None:
    if not rate > 0:
        raise ValueError(f"{name}: rate must be positive; got {rate}.")

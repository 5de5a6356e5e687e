r"""Training in the space of functions (§9.2, §9.4): if the tangent kernel stays as it is, all of
training is known.

Gradient flow on a loss $h = \frac1n \sum_i l(f(x_i), y_i)$ moves the outputs by
$\dot f(x) = -\frac1n \sum_i k(x, x_i)\, \nabla_f l(f(x_i), y_i)$: the parameters enter through the
kernel alone. With a constant kernel and the squared loss each mode $\lambda$ of $K$ decays by
itself,
$$f_t(X) = y + e^{-Kt/n} (f_0(X) - y), \qquad f_t(x) = f_0(x) + k(x)^\top a_t, \quad
a_t = K^{-1} (I - e^{-Kt/n}) (y - f_0(X)),$$
and steps of gradient descent have $(1 - \eta\lambda/n)^t$ in place of the exponential. That is
training of the linearised network, exactly, and of a network of infinite width; a finite one is
lazy as far as it comes near to it. (Jacot et al. 2018, Lee et al. 2019)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from ...check import check_examples
from ...core import Batch, Model, predict
from ...layers import has_batch_norm
from .kernel_eigenmodes import Modes, modes, moved

Times = Any  # a time, or a row of times


@dataclass(frozen=True)
class Clock:
    r"""How a mode is learnt: `spent(λ, t)` is $s$ with $a_t = s\,r_0$, from
    $s_{t+1} = s_t + \eta (1 - \lambda s_t) + \mu (s_t - s_{t-1})$, or from the flow
    $\dot s = 1 - \lambda s$ without a rate.
    """

    rate: float | None
    momentum: float

    def spent(self, values: Float[np.ndarray, " k"], t: float) -> Float[np.ndarray, " k"]:
        if self.rate is None:
            with np.errstate(invalid="ignore"):
                return np.where(
                    values > 0, -np.expm1(-values * t) / np.where(values > 0, values, 1.0), t
                )
        eta = self.rate
        mu = self.momentum
        one = np.ones_like(values)
        step = np.array(
            [
                [1 + mu - eta * values, -mu * one, eta * one],
                [one, 0 * one, 0 * one],
                [0 * one, 0 * one, one],
            ]
        )
        return np.linalg.matrix_power(step.transpose(2, 0, 1), int(t))[:, 0, 2]

    def check(self, values: Float[np.ndarray, " k"], times: Float[np.ndarray, " t"]) -> None:
        """Refuses times that are none, and a limit that there is not."""
        if not len(times) or not (times >= 0).all():
            raise ValueError(
                f"lazy_training: expected times from 0 on, one at least; got {times.tolist()}."
            )
        if self.rate is None:
            return
        if (times[np.isfinite(times)] % 1).any():
            raise ValueError(
                "lazy_training: with a rate time counts steps, whole numbers; got "
                f"{times.tolist()}."
            )
        most = 2 * (1 + self.momentum) / values[-1] if values[-1] > 0 else np.inf
        if np.isinf(times).any() and self.rate >= most:
            raise ValueError(
                f"lazy_training: with rate={self.rate:g} the steps have no limit; it must be below "
                f"{most:.3g}, 2 (1 + momentum) over the largest eigenvalue of K/n."
            )


@dataclass(frozen=True)
class Lazy:
    """`lazy(t)` are the outputs at the examples at time t, `lazy(t, xs)` those at others; see
    `lazy_training`.
    """

    modes: Modes
    kernel: Callable[..., Any]
    xs: Any
    start: Callable[..., Any] | None
    clock: Clock

    def __call__(self, t: Times, xs: Batch | None = None) -> Float[np.ndarray, "..."]:
        """The outputs at each time, which may be infinity."""
        if xs is None:
            s = self.spent(t)
            return self.outputs(self.xs) + self.modes.fitted(s)
        check_examples(xs, name="lazy_training: xs")
        a = self.coefficients(np.atleast_1d(t))
        found = self.outputs(xs)[None] + moved(self.kernel(xs, self.xs), a)
        return found if np.ndim(t) else found[0]

    def coefficients(self, t: Times) -> Float[np.ndarray, "..."]:
        r"""$a_t$, of which $f_t(x) = f_0(x) + k(x, X)\, a_t$ is made."""
        return self.modes.coefficients(self.spent(t))

    def loss(self, t: Times) -> Float[np.ndarray, "*t"]:
        r"""$\frac{1}{2n} \|f_t(X) - y\|^2$."""
        left = (1 - self.modes.values * self.spent(t))[..., None] * self.modes.residual
        return np.asarray(np.square(left).sum(axis=(-2, -1)) / (2 * self.modes.shape[0]))

    def outputs(self, xs: Any) -> Float[np.ndarray, "m *o"]:
        """$f_0$, from which training starts."""
        if self.start is None:
            return np.zeros((len(jax.tree.leaves(xs)[0]), *self.modes.shape[1:]))
        return np.asarray(predict(self.start, xs), np.float64)

    def spent(self, t: Times) -> Float[np.ndarray, "*t k"]:
        r"""$s(\lambda, t)$ of every mode."""
        n = self.modes.shape[0]
        times = np.asarray(t, np.float64)
        self.clock.check(self.modes.values / n, times.ravel())
        one = lambda t: (
            self.modes.inverse() if np.isinf(t) else self.clock.spent(self.modes.values / n, t) / n
        )
        return np.stack([one(t) for t in times.ravel()]).reshape(*times.shape, -1)


def lazy_training(
    kernel: Callable[..., Any],
    xs: Batch,
    ys: Any,
    *,
    start: Model | None = None,
    rate: float | None = None,
    momentum: float = 0.0,
) -> Lazy:
    r"""All of training on the `squared_error` of stacked examples, for a tangent kernel that stays
    as it is (§9.2).

    `kernel` is `ntk(model)` with `start=model`, or that of an infinite network, or any `k(xs, ys)`,
    one number a pair or all pairs of outputs. `start` is the model $f_0$, 0 if there is none. Time
    is that of the `gradient_flow`; with a `rate`, it counts the steps of full-batch gradient
    descent, `optax.sgd(rate, momentum)`. In float64, by one decomposition of $K$.

    Departs: the notes sum the losses of the examples where `squared_error` takes their mean, so
    that their time runs $n$ times as fast; and they leave out $f_0(x)$ at the end of training.

    >>> import jax.numpy as jnp
    >>> import jax.random as jr
    >>> from thetax.explain import ntk
    >>> from thetax.models import MLP
    >>> model = MLP.init(3, 16, 1, key=jr.key(0))
    >>> xs = jr.normal(jr.key(1), (5, 3))
    >>> ys = jnp.ones((5, 1))
    >>> lazy = lazy_training(ntk(model), xs, ys, start=model)
    >>> lazy([0.0, 1.0], xs[:2]).shape, lazy(jnp.inf).round(3).ravel().tolist()
    ((2, 2, 1), [1.0, 1.0, 1.0, 1.0, 1.0])
    """
    if not callable(kernel):
        raise ValueError(
            f"lazy_training: kernel must be a function k(xs, ys=None); got {type(kernel).__name__}."
        )
    n = check_examples(xs, name="lazy_training: xs")
    if rate is not None and not 0 < rate < np.inf:
        raise ValueError(f"lazy_training: rate must be positive; got {rate}.")
    if not 0 <= momentum < 1 or (momentum and rate is None):
        why = "give a rate too, for the flow has none" if rate is None else "it must lie in [0, 1)"
        raise ValueError(f"lazy_training: momentum={momentum}: {why}.")
    expect_start("lazy_training", start)
    if np.ndim(ys) == 0 or len(ys) != n:
        raise ValueError(
            f"lazy_training: {n} examples in xs, but ys has shape {np.shape(ys)}; row i of both "
            "is one."
        )
    f = np.zeros(np.shape(ys)) if start is None else predict(start, xs)
    return Lazy(modes(kernel(xs), ys, f), kernel, xs, start, Clock(rate, momentum))


def expect_start(name: str, start: Model | None) -> None:
    """Refuses a model whose output depends on the examples beside it."""
    if start is not None and has_batch_norm(start):
        raise ValueError(
            f"{name}: the outputs of a batch norm depend on the batch; fold(start, xs) first."
        )

r"""First-order optimisers of the course (§3.3) as Optax transformations: momentum, Nesterov,
AdaGrad, RMSProp, Adam.

Where Optax has the optimiser in the course's form, it is Optax's.

- `heavy_ball`: $\theta^{t+1} = \theta^t - \eta g_t + \beta(\theta^t - \theta^{t-1})$
- `nesterov`: $\chi = \theta^t + \beta_t(\theta^t - \theta^{t-1})$, $\theta^{t+1} = \chi -
  \eta\nabla h(\chi)$
- `adagrad`: $\gamma^t = \gamma^{t-1} + g_t^2$, $\theta^{t+1} = \theta^t - \eta g_t /
  (\sqrt{\gamma^t} + \delta)$
- `rmsprop`: $\gamma^t = \alpha\gamma^{t-1} + (1 - \alpha) g_t^2$, the same step
- `uncorrected_adam`: the same $\gamma$, and $m_t = \beta m_{t-1} + (1 - \beta) g_t$ in place of
  $g_t$ in the step
- `adam`: likewise with $m_t / (1 - \beta^t)$ and $\gamma^t / (1 - \alpha^t)$

A learning rate is a number or a schedule, a function of the number of steps taken. Squares and
roots are per coordinate. `eps` is $\delta$.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from ...core import Scalar
from .descend import DescentState

Number: TypeAlias = float | Scalar  # or a traced one, so a sweep over learning rates can be a vmap
Schedule: TypeAlias = Callable[[Any], Any]  # of the number of steps taken


def _check_decay(name: str, parameter: str, value: Any) -> None:
    if isinstance(value, int | float) and not 0 <= value < 1:
        raise ValueError(
            f"{name}: {parameter} must be in [0, 1), as an average with 1 never changes; got "
            f"{value}."
        )


def heavy_ball(learning_rate: Number, *, momentum: Number) -> optax.GradientTransformation:
    r"""Gradient descent with momentum (heavy ball):
    $\theta^{t+1} = \theta^t - \eta\nabla h(\theta^t) + \beta(\theta^t - \theta^{t-1})$ (§3.3).

    It is `optax.sgd(learning_rate, momentum=momentum)`, whose $v_t = \beta v_{t-1} + \nabla h$ and
    $\theta^{t+1} = \theta^t - \eta v_t$. Under a constant gradient the steps grow to
    $\eta / (1 - \beta)$ times it. Polyak 1964. Departs: the notes allow $\beta = 1$, with which
    nothing converges.

    >>> from thetax.core import run
    >>> from thetax.train import descend
    >>> slope = descend(lambda w, batch, key: w.sum(), heavy_ball(1.0, momentum=0.5))
    >>> run(slope, jnp.zeros(1), jnp.zeros(3), key=jax.random.key(0), record=lambda s: s.model)[1][
    ...     0
    ... ].ravel().tolist()
    [-1.0, -2.5, -4.25]
    """
    _check_decay("heavy_ball", "momentum", momentum)
    return optax.sgd(learning_rate, momentum=momentum)


class NesterovState(NamedTuple):
    r"""Nesterov's iterate $\theta^t$; the model, where the gradient is taken, is $\chi^{t+1}$."""

    nesterov_iterate: Any
    steps: Int[Array, ""]


def nesterov(
    learning_rate: Number | Schedule, *, momentum: Number | Schedule
) -> optax.GradientTransformation:
    r"""Nesterov's accelerated gradient: a gradient step from the look-ahead
    $\chi^{t+1} = \theta^t + \beta_t(\theta^t - \theta^{t-1})$ (§3.3).

    The model in the state is the look-ahead $\chi$, where the gradient is taken;
    `nesterov_iterate(state)` is $\theta$. `momentum` is $\beta$, or a schedule $t \mapsto \beta_t$
    such as `lambda t: (t - 1) / (t + 2)`, with which a convex $h$ falls like $1/t^2$ (Nesterov
    1983). With a constant rate and momentum, $\chi$ moves as under `optax.sgd(learning_rate,
    momentum=momentum, nesterov=True)`.

    >>> from thetax.core import run
    >>> from thetax.train import descend
    >>> bowl = descend(lambda w, batch, key: w @ w / 2, nesterov(0.5, momentum=0.5))
    >>> state, _ = run(bowl, jnp.ones(1), jnp.zeros(2), key=jax.random.key(0))
    >>> state.model.item(), nesterov_iterate(state).item()
    (-0.0625, 0.125)
    """
    _check_decay("nesterov", "momentum", momentum)
    value_at = lambda value, t: value(t) if callable(value) else value

    def init(params):
        return NesterovState(params, jnp.zeros((), jnp.int32))

    def update(updates, state, params=None):
        if params is None:
            raise ValueError(
                "nesterov: update needs the parameters: optimiser.update(gradient, state, model)."
            )
        t = state.steps + 1
        eta = value_at(learning_rate, state.steps)
        beta = value_at(momentum, t)
        step = lambda chi, g: chi - jnp.asarray(eta, g.dtype) * g
        ahead = lambda new, old: new + jnp.asarray(beta, new.dtype) * (new - old)
        theta = jax.tree.map(step, params, updates)
        chi = jax.tree.map(ahead, theta, state.nesterov_iterate)
        return jax.tree.map(jnp.subtract, chi, params), NesterovState(theta, t)

    return optax.GradientTransformation(init, update)


def nesterov_iterate(state: DescentState) -> Any:
    r"""The iterate $\theta$ in the state of `descend`: Nesterov's, or the model with other
    optimisers.

    >>> from thetax.train import descend
    >>> step = descend(lambda w, batch, key: w.sum(), optax.sgd(0.1))
    >>> nesterov_iterate(step.init(jnp.ones(2))).tolist()
    [1.0, 1.0]
    """
    parts = jax.tree.leaves(
        state.optimiser_state, is_leaf=lambda node: isinstance(node, NesterovState)
    )
    return next(
        (part.nesterov_iterate for part in parts if isinstance(part, NesterovState)), state.model
    )


class Moments(NamedTuple):
    r"""State of an adaptive method: $\gamma$, the sum or average of squared gradients, and perhaps
    $m$, the average of gradients.
    """

    gamma: Any
    m: Any = None


def adagrad(
    learning_rate: Number | Schedule, *, eps: Number = 1e-8
) -> optax.GradientTransformation:
    r"""AdaGrad: $\gamma^t = \gamma^{t-1} + (\nabla h)^2$ from $\gamma^{-1} = 0$;
    $\theta \leftarrow \theta - \eta\nabla h / (\sqrt{\gamma^t} + \delta)$ (§3.3; Duchi, Hazan &
    Singer 2011).

    The first step is $\eta$ along each coordinate, whatever its scale. Optax's starts from
    $\gamma^{-1} = 0.1$ and has $\delta$ under the root. With $\delta = 0$ a coordinate whose
    gradient has always been 0 does not change.

    >>> from thetax.core import run
    >>> from thetax.train import descend
    >>> step = descend(lambda w, batch, key: jnp.array([1.0, 1000.0]) @ w, adagrad(0.1))
    >>> run(step, jnp.zeros(2), jnp.zeros(1), key=jax.random.key(0))[0].model.round(4).tolist()
    [-0.09..., -0.09...]
    """

    def update(updates, state, params=None):
        gamma = jax.tree.map(lambda gamma, g: gamma + jnp.square(g), state.gamma, updates)
        return jax.tree.map(lambda g, gamma: _scaled(g, gamma, eps), updates, gamma), Moments(gamma)

    transformation = optax.GradientTransformation(
        lambda params: Moments(jax.tree.map(jnp.zeros_like, params)), update
    )
    return optax.chain(transformation, optax.scale_by_learning_rate(learning_rate))


def _scaled(g: Any, gamma: Any, eps: Any) -> Any:
    r"""$g / (\sqrt\gamma + \delta)$, and 0 where the denominator is 0."""
    denominator = jnp.sqrt(gamma) + eps
    safe = jnp.where(denominator > 0, denominator, 1.0)
    return jnp.where(denominator > 0, g / safe, jnp.zeros_like(g))


def rmsprop(
    learning_rate: Number | Schedule, *, decay: Number = 0.9, eps: Number = 1e-8
) -> optax.GradientTransformation:
    r"""RMSProp, AdaGrad with a moving average:
    $\gamma^t = \alpha\gamma^{t-1} + (1 - \alpha)(\nabla h)^2$ (Hinton 2012).

    It is `optax.rmsprop` with $\alpha$ = `decay` and with $\delta$ outside the root.

    >>> rmsprop(0.1).init(jnp.ones(2))[0].nu.tolist()
    [0.0, 0.0]
    """
    _check_decay("rmsprop", "decay", decay)
    return optax.rmsprop(learning_rate, decay=decay, eps=eps, eps_in_sqrt=False)


def adam(
    learning_rate: Number | Schedule,
    *,
    beta1: Number = 0.9,
    beta2: Number = 0.999,
    eps: Number = 1e-8,
) -> optax.GradientTransformation:
    r"""Adam: $\theta_{t+1} = \theta_t - \eta\,\hat m_t / (\sqrt{\hat\gamma_t} + \delta)$,
    $\hat m_t = m_t / (1 - \beta^t)$, $\hat\gamma_t = \gamma_t / (1 - \alpha^t)$ (§3.3; Kingma & Ba
    2015).

    It is `optax.adam`, with $\beta$ = `beta1` and $\alpha$ = `beta2`. Under a constant gradient
    every step is $\eta$. Departs: the notes have neither $\eta$ nor the bias correction.

    >>> adam(0.1).init(jnp.ones(2))[0].count.item()
    0
    """
    _check_decay("adam", "beta1", beta1)
    _check_decay("adam", "beta2", beta2)
    return optax.adam(learning_rate, b1=beta1, b2=beta2, eps=eps)


def uncorrected_adam(
    learning_rate: Number | Schedule,
    *,
    beta1: Number = 0.9,
    beta2: Number = 0.999,
    eps: Number = 1e-8,
) -> optax.GradientTransformation:
    r"""Adam without bias correction: $\theta_{t+1} = \theta_t - \eta\,m_t / (\sqrt{\gamma_t} +
    \delta)$, $m_t = \beta m_{t-1} + (1 - \beta)\nabla h$, $\gamma_t = \alpha\gamma_{t-1} + (1 -
    \alpha)(\nabla h)^2$ (§3.3).

    As printed, but for the missing $\eta$. Both averages begin at 0, so the first step is
    $\eta (1 - \beta) / \sqrt{1 - \alpha}$, which is $3.16\,\eta$ by default; `adam` corrects that.

    >>> step, _ = uncorrected_adam(1.0).update(jnp.ones(1), uncorrected_adam(1.0).init(jnp.ones(1)))
    >>> step.round(3).tolist()
    [-3.162...]
    """
    _check_decay("uncorrected_adam", "beta1", beta1)
    _check_decay("uncorrected_adam", "beta2", beta2)

    def init(params):
        return Moments(jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params))

    def update(updates, state, params=None):
        m = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state.m, updates)
        gamma = jax.tree.map(
            lambda gamma, g: beta2 * gamma + (1 - beta2) * jnp.square(g), state.gamma, updates
        )
        return jax.tree.map(lambda m, gamma: _scaled(m, gamma, eps), m, gamma), Moments(gamma, m)

    return optax.chain(
        optax.GradientTransformation(init, update), optax.scale_by_learning_rate(learning_rate)
    )

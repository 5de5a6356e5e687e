r"""The optimisers of the course (§3.3) as Optax transformations: Optax's own where it has them, in
the course's form.

- `heavy_ball`: $\theta^{t+1} = \theta^t - \eta g_t + \beta(\theta^t - \theta^{t-1})$
- `nesterov`: $\chi = \theta^t + \beta_t(\theta^t - \theta^{t-1})$, $\theta^{t+1} = \chi -
  \eta\nabla h(\chi)$
- `adagrad`: $\gamma^t = \gamma^{t-1} + g_t^2$, $\theta^{t+1} = \theta^t - \eta g_t /
  (\sqrt{\gamma^t} + \delta)$
- `rmsprop`: $\gamma^t = \alpha\gamma^{t-1} + (1 - \alpha) g_t^2$, the same step
- `uncorrected_adam`: the same $\gamma$, and $m_t = \beta m_{t-1} + (1 - \beta) g_t$ in place of
  $g_t$ in the step
- `adam`: likewise with $m_t / (1 - \beta^t)$ and $\gamma^t / (1 - \alpha^t)$

A rate is a number or a schedule, a function of the number of steps taken. Squares and roots are per
coordinate.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from ...core import Scalar
from .descend import Descent

Number: TypeAlias = float | Scalar  # a traced one too, so that a sweep over rates is a vmap
Schedule: TypeAlias = Callable[[Any], Any]  # of the number of steps taken


def _check_share(name: str, word: str, value: Any) -> None:
    if isinstance(value, int | float) and not 0 <= value < 1:
        raise ValueError(
            f"{name}: {word} must lie in [0, 1), for at 1 it never forgets; got {value}."
        )


def heavy_ball(learning_rate: Number, *, momentum: Number) -> optax.GradientTransformation:
    r"""$\theta^{t+1} = \theta^t - \eta\nabla h(\theta^t) + \beta(\theta^t - \theta^{t-1})$ (§3.3).

    It is `optax.sgd(learning_rate, momentum=momentum)`, whose $v_t = \beta v_{t-1} + \nabla h$ and
    $\theta^{t+1} = \theta^t - \eta v_t$. Under a constant gradient the steps grow to
    $\eta / (1 - \beta)$ of it. Polyak 1964. Departs: the notes allow $\beta = 1$, with which
    nothing converges.

    >>> from thetax.core import run
    >>> from thetax.train import descend
    >>> slope = descend(lambda w, batch, key: w.sum(), heavy_ball(1.0, momentum=0.5))
    >>> run(slope, jnp.zeros(1), jnp.zeros(3), key=jax.random.key(0), record=lambda s: s.model)[1][
    ...     0
    ... ].ravel().tolist()
    [-1.0, -2.5, -4.25]
    """
    _check_share("heavy_ball", "momentum", momentum)
    return optax.sgd(learning_rate, momentum=momentum)


class Lookahead(NamedTuple):
    r"""Nesterov's iterate $\theta^t$, while the model that is differentiated is $\chi^{t+1}$."""

    iterate: Any
    steps: Int[Array, ""]


def nesterov(
    learning_rate: Number | Schedule, *, momentum: Number | Schedule
) -> optax.GradientTransformation:
    r"""$\chi^{t+1} = \theta^t + \beta_t(\theta^t - \theta^{t-1})$, then a descent step from there
    (§3.3, Nesterov).

    The model being trained is the look-ahead $\chi$, since that is where the gradient is taken;
    `iterate(state)` is $\theta$. `momentum` is $\beta$, or a schedule $t \mapsto \beta_t$ such as
    `lambda t: (t - 1) / (t + 2)`, with which a convex $h$ falls like $1/t^2$ (Nesterov 1983). With
    a constant rate and momentum, $\chi$ moves as under
    `optax.sgd(learning_rate, momentum=momentum, nesterov=True)`.

    >>> from thetax.core import run
    >>> from thetax.train import descend
    >>> bowl = descend(lambda w, batch, key: w @ w / 2, nesterov(0.5, momentum=0.5))
    >>> state, _ = run(bowl, jnp.ones(1), jnp.zeros(2), key=jax.random.key(0))
    >>> state.model.item(), iterate(state).item()
    (-0.0625, 0.125)
    """
    _check_share("nesterov", "momentum", momentum)
    at = lambda value, t: value(t) if callable(value) else value

    def init(params):
        return Lookahead(params, jnp.zeros((), jnp.int32))

    def update(updates, state, params=None):
        if params is None:
            raise ValueError(
                "nesterov: update needs the model too, as optimiser.update(gradient, memory, "
                "model)."
            )
        t = state.steps + 1
        eta = at(learning_rate, state.steps)
        beta = at(momentum, t)
        step = lambda chi, g: chi - jnp.asarray(eta, g.dtype) * g
        ahead = lambda new, old: new + jnp.asarray(beta, new.dtype) * (new - old)
        theta = jax.tree.map(step, params, updates)
        chi = jax.tree.map(ahead, theta, state.iterate)
        return jax.tree.map(jnp.subtract, chi, params), Lookahead(theta, t)

    return optax.GradientTransformation(init, update)


def iterate(state: Descent) -> Any:
    r"""The $\theta$ of a descent's state: what Nesterov's method looks ahead from, or else the
    model itself.

    >>> from thetax.train import descend
    >>> step = descend(lambda w, batch, key: w.sum(), optax.sgd(0.1))
    >>> iterate(step.init(jnp.ones(2))).tolist()
    [1.0, 1.0]
    """
    parts = jax.tree.leaves(state.memory, is_leaf=lambda node: isinstance(node, Lookahead))
    return next((part.iterate for part in parts if isinstance(part, Lookahead)), state.model)


class Moments(NamedTuple):
    r"""What an adaptive method remembers: $\gamma$ of the squared gradients and, if at all, $m$ of
    the gradients.
    """

    gamma: Any
    m: Any = None


def adagrad(
    learning_rate: Number | Schedule, *, delta: Number = 1e-8
) -> optax.GradientTransformation:
    r"""$\gamma^t = \gamma^{t-1} + (\nabla h)^2$ from $\gamma^{-1} = 0$;
    $\theta \leftarrow \theta - \eta\nabla h / (\sqrt{\gamma^t} + \delta)$ (§3.3; Duchi, Hazan &
    Singer 2011).

    The first step is $\eta$ along each coordinate, whatever its scale. Optax's begins at
    $\gamma^{-1} = 0.1$ and has $\delta$ under the root. With $\delta = 0$ a coordinate whose
    gradient was always 0 stays.

    >>> from thetax.core import run
    >>> from thetax.train import descend
    >>> step = descend(lambda w, batch, key: jnp.array([1.0, 1000.0]) @ w, adagrad(0.1))
    >>> run(step, jnp.zeros(2), jnp.zeros(1), key=jax.random.key(0))[0].model.round(4).tolist()
    [-0.09..., -0.09...]
    """

    def update(updates, state, params=None):
        gamma = jax.tree.map(lambda gamma, g: gamma + jnp.square(g), state.gamma, updates)
        return jax.tree.map(lambda g, gamma: _scaled(g, gamma, delta), updates, gamma), Moments(
            gamma
        )

    remember = optax.GradientTransformation(
        lambda params: Moments(jax.tree.map(jnp.zeros_like, params)), update
    )
    return optax.chain(remember, optax.scale_by_learning_rate(learning_rate))


def _scaled(g: Any, gamma: Any, delta: Any) -> Any:
    r"""$g / (\sqrt\gamma + \delta)$, and 0 where all of it is 0."""
    size = jnp.sqrt(gamma) + delta
    return jnp.where(size > 0, g / jnp.where(size > 0, size, 1.0), jnp.zeros_like(g))


def rmsprop(
    learning_rate: Number | Schedule, *, decay: Number = 0.9, delta: Number = 1e-8
) -> optax.GradientTransformation:
    r"""AdaGrad with a memory that fades: $\gamma^t = \alpha\gamma^{t-1} + (1 - \alpha)(\nabla h)^2$
    (Hinton 2012).

    It is `optax.rmsprop` with $\delta$ outside the root.

    >>> rmsprop(0.1).init(jnp.ones(2))[0].nu.tolist()
    [0.0, 0.0]
    """
    _check_share("rmsprop", "decay", decay)
    return optax.rmsprop(learning_rate, decay=decay, eps=delta, eps_in_sqrt=False)


def adam(
    learning_rate: Number | Schedule,
    *,
    beta1: Number = 0.9,
    beta2: Number = 0.999,
    delta: Number = 1e-8,
) -> optax.GradientTransformation:
    r"""$\theta_{t+1} = \theta_t - \eta\,\hat m_t / (\sqrt{\hat\gamma_t} + \delta)$,
    $\hat m_t = m_t / (1 - \beta^t)$, $\hat\gamma_t = \gamma_t / (1 - \alpha^t)$ (§3.3; Kingma & Ba
    2015).

    It is `optax.adam`, with $\beta$ = `beta1` and $\alpha$ = `beta2`. Under a constant gradient
    every step is $\eta$. Departs: the notes have neither $\eta$ nor the correction of the bias.

    >>> adam(0.1).init(jnp.ones(2))[0].count.item()
    0
    """
    _check_share("adam", "beta1", beta1)
    _check_share("adam", "beta2", beta2)
    return optax.adam(learning_rate, b1=beta1, b2=beta2, eps=delta)


def uncorrected_adam(
    learning_rate: Number | Schedule,
    *,
    beta1: Number = 0.9,
    beta2: Number = 0.999,
    delta: Number = 1e-8,
) -> optax.GradientTransformation:
    r"""$\theta_{t+1} = \theta_t - \eta\,m_t / (\sqrt{\gamma_t} + \delta)$,
    $m_t = \beta m_{t-1} + (1 - \beta)\nabla h$,
    $\gamma_t = \alpha\gamma_{t-1} + (1 - \alpha)(\nabla h)^2$ (§3.3).

    As printed, but for the missing $\eta$. Both averages begin at 0, so the first step is
    $\eta (1 - \beta) / \sqrt{1 - \alpha}$, which is $3.16\,\eta$ by default; `adam` corrects that.

    >>> step, _ = uncorrected_adam(1.0).update(jnp.ones(1), uncorrected_adam(1.0).init(jnp.ones(1)))
    >>> step.round(3).tolist()
    [-3.162...]
    """
    _check_share("uncorrected_adam", "beta1", beta1)
    _check_share("uncorrected_adam", "beta2", beta2)

    def init(params):
        return Moments(jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params))

    def update(updates, state, params=None):
        m = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state.m, updates)
        gamma = jax.tree.map(
            lambda gamma, g: beta2 * gamma + (1 - beta2) * jnp.square(g), state.gamma, updates
        )
        return jax.tree.map(lambda m, gamma: _scaled(m, gamma, delta), m, gamma), Moments(gamma, m)

    return optax.chain(
        optax.GradientTransformation(init, update), optax.scale_by_learning_rate(learning_rate)
    )

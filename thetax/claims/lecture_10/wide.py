"""Networks of one hidden layer on a noisy sine, many trained together: what §4.1, §4.2 and §4.5 are
tried on.
"""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from ... import layers, models, train


def sine(
    rng: np.random.Generator, count: int, n: int, *, noise: float, waves: float = 1.0
) -> tuple[Any, Any]:
    """`count` sets of n places evenly over a period, and the sine there under noise, in single
    precision.
    """
    xs = np.tile(np.linspace(-np.pi, np.pi, n), (count, 1))
    ys = np.sin(waves * xs) + noise * rng.normal(size=xs.shape)
    return jnp.asarray(xs[:, :, None], jnp.float32), jnp.asarray(ys, jnp.float32)


def networks(
    rng: np.random.Generator, count: int, width: int, *, steepness: float, scale: float
) -> models.MLP:
    """Stacked networks of tanh units whose centres are spread evenly over the period, in single
    precision.
    """
    W = (
        steepness
        * rng.choice([-1, 1], size=(count, width, 1))
        * rng.uniform(0.5, 1.5, size=(count, width, 1))
    )
    b = -W[:, :, 0] * rng.permuted(np.tile(np.linspace(-np.pi, np.pi, width), (count, 1)), axis=1)
    beta = scale * rng.normal(size=(count, 1, width)) / np.sqrt(width)
    return stacked(W, b, beta)


def stacked(W: np.ndarray, b: np.ndarray, beta: np.ndarray) -> models.MLP:
    """The networks of these weights, without an offset at first."""

    def one(W, b, beta):
        last = layers.Linear(beta, jnp.zeros(1, jnp.float32))
        return models.MLP(layers.Chain(layers.Linear(W, b), layers.tanh, last))

    return jax.vmap(one)(*(jnp.asarray(a, jnp.float32) for a in (W, b, beta)))


def repeat(tree: Any, times: int) -> Any:
    """Every member so many times, one after another."""
    return jax.tree.map(lambda a: jnp.repeat(a, times, axis=0), tree)


def trained(
    nets: Any, data: Any, strengths: Any, *, steps: int, rate: float = 1e-2, looks: int = 1
) -> Any:
    """Each network after each of `looks` equal parts of the steps of Adam on its own data, with its
    own decay.

    The rate falls to zero along a cosine. All of them are one program.
    """

    def one(net, xs, ys, strength):
        objective = train.weight_decay(train.squared_error, strength=strength)
        adam = optax.adam(optax.cosine_decay_schedule(rate, steps))
        iteration = train.descend(lambda model, batch, key: objective(model, (xs, ys)), adam)
        step = lambda state, _: iteration.step(state, None, key=jr.key(0))
        part = lambda state, _: (
            state := jax.lax.scan(step, state, length=steps // looks)[0],
            state.model,
        )
        return jax.lax.scan(part, iteration.init(net), length=looks)[1]

    return jax.jit(jax.vmap(one))(nets, *data, jnp.asarray(strengths, jnp.float32))


@jax.jit
def errors(nets: Any, data: Any) -> Any:
    """The mean squared error of every network, after every look, on the data of its own."""
    each = lambda looks, xs, ys: jax.vmap(lambda net: 2 * train.squared_error(net, (xs, ys)))(looks)
    return jax.vmap(each)(nets, *data)

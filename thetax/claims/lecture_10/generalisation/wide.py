"""Many networks of one hidden layer trained together on a noisy sine, for the experiments of §4.1,
§4.2 and §4.5.
"""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from .... import layers, models, train


def sine(
    rng: np.random.Generator, count: int, n: int, *, noise: float, waves: float = 1.0
) -> tuple[Any, Any]:
    """`count` datasets of n equidistant points over a period and the noisy sine at them, in single
    precision.
    """
    xs = np.tile(np.linspace(-np.pi, np.pi, n), (count, 1))
    ys = np.sin(waves * xs) + noise * rng.normal(size=xs.shape)
    return jnp.asarray(xs[:, :, None], jnp.float32), jnp.asarray(ys, jnp.float32)


def networks(
    rng: np.random.Generator, count: int, width: int, *, steepness: float, scale: float
) -> models.MLP:
    """Stacked networks of tanh units whose centres are equidistant over the period, in single
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
    """The networks with these weights, and output bias 0."""

    def one(W, b, beta):
        last = layers.Linear(beta, jnp.zeros(1, jnp.float32))
        return models.MLP(layers.Chain(layers.Linear(W, b), layers.tanh, last))

    return jax.vmap(one)(*(jnp.asarray(a, jnp.float32) for a in (W, b, beta)))


def repeat(tree: Any, times: int) -> Any:
    """Every member repeated `times` times in succession."""
    return jax.tree.map(lambda a: jnp.repeat(a, times, axis=0), tree)


def trained(
    nets: Any, data: Any, strengths: Any, *, steps: int, learning_rate: float = 1e-2, looks: int = 1
) -> Any:
    """Each network, trained by Adam on its own data with its own weight decay, after each of
    `looks` equal parts of the steps.

    The learning rate follows a cosine to zero. All networks are trained by one compiled program."""

    def one(net, xs, ys, strength):
        objective = train.weight_decay(train.squared_error, strength=strength)
        adam = optax.adam(optax.cosine_decay_schedule(learning_rate, steps))
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
    """The mean squared error of every network on its own data, after every look."""
    each = lambda looks, xs, ys: jax.vmap(lambda net: 2 * train.squared_error(net, (xs, ys)))(looks)
    return jax.vmap(each)(nets, *data)

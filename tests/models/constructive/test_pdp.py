"""Three networks through the seven slots give what they give directly (§1.3)."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import jax.random as jr
import pytest
from contracts import normal

from thetax.layers import relu
from thetax.models import (
    MLP,
    Hopfield,
    Perceptron,
    fit_perceptron,
    hebb,
    hopfield_system,
    mlp_system,
    perceptron_system,
    synchronous_recall,
)


def test_perceptron_sweeps_until_clean():
    """Passes through the environment are the sweeps of the algorithm."""
    xs = normal(0, 40, 3)
    ys = jnp.sign(xs @ jnp.array([1.0, -2.0, 0.5]) + 0.1)
    system = perceptron_system(Perceptron(jnp.zeros(3), jnp.zeros(())), (xs, ys))
    fit = fit_perceptron(xs, ys)
    for _ in range(int(fit.epochs)):
        system = system.train_epoch()
    assert jnp.allclose(system.connectivity[0].v, fit.model.v, rtol=1e-5)
    assert jax.vmap(system)(xs).tolist() == ys.tolist()


def test_hopfield_turns_all_sites():
    patterns = jnp.sign(normal(1, 2, 12))
    system = hopfield_system(Hopfield(jnp.zeros((12, 12))), patterns, steps=3).train_epoch()
    assert jnp.allclose(system.connectivity[0].W, hebb(patterns).W, atol=1e-6)
    x = jnp.sign(normal(2, 12))
    assert system(x).tolist() == synchronous_recall(hebb(patterns), x, max_steps=3)[0].tolist()


def test_mlp_learns_by_descent():
    net = MLP.init(3, 4, 2, activation=relu, key=jr.key(0))
    xs = normal(0, 5, 3)
    ys = normal(1, 5, 2)
    loss = lambda f, y: jnp.square(f - y).mean()
    system = mlp_system(net, (xs, ys), loss=loss, learning_rate=0.3)
    assert jax.vmap(system)(xs).tolist() == jax.vmap(net)(xs).tolist()
    for x, y in zip(xs, ys):
        slope = jax.grad(lambda net, x=x, y=y: loss(net(x), y))(net)
        net = jax.tree.map(lambda a, g: a - 0.3 * g, net, slope)
    assert jnp.allclose(jax.vmap(system.train_epoch())(xs), jax.vmap(net)(xs), atol=1e-5)


def test_slots_are_checked():
    net = MLP.init(3, 4, 2, dropout=0.5, key=jr.key(0))
    with pytest.raises(ValueError, match="alternating affine maps and activations"):
        mlp_system(
            net, (normal(0, 5, 3), normal(1, 5, 2)), loss=lambda f, y: 0.0, learning_rate=0.1
        )
    system = perceptron_system(Perceptron(jnp.zeros(3)), (normal(0, 5, 3), jnp.ones(5)))
    with pytest.raises(ValueError, match="one rule per stage"):
        replace(system, activate=())

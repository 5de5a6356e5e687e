"""Parallel distributed processing: three networks described by the same seven components."""

from dataclasses import fields, replace

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ... import models
from ..engine.check import close, equal, refuted
from ..engine.claim import Verdict, claim
from .points import separable_points


@claim(
    "1.3-pdp",
    title="The seven components of a connectionist system",
    kind="definition",
    of=(
        "models.PDPSystem",
        "models.perceptron_system",
        "models.hopfield_system",
        "models.mlp_system",
    ),
    cites="Rumelhart & McClelland 1986",
)
def pdp(key, rng):
    r"""Units with activations, an output function, connections, a propagation rule, an activation
    rule, a learning rule and an environment: perceptron, Hopfield network and multi-layer
    perceptron are systems that differ only in these components.
    """
    slots = ["units", "output", "connectivity", "propagate", "activate", "learn", "environment"]
    return Verdict(
        equal("components", [field.name for field in fields(models.PDPSystem)], slots),
        *_perceptron(rng),
        *_hopfield(rng),
        *_mlp(rng, key),
    )


def _perceptron(rng):
    xs, ys, _ = separable_points(rng, 30, 4, gap=0.05)
    data = jnp.asarray(xs), jnp.asarray(ys)
    origin = models.Perceptron(jnp.zeros(4), jnp.zeros(()))
    system = models.perceptron_system(origin, data)
    trained = system.train_epoch()
    one_sweep = jax.jit(lambda x, y: models.fit_perceptron(x, y, epochs=1))(*data).model
    expected = jax.vmap(one_sweep)(data[0])
    outputs = jax.vmap(trained)(data[0])
    tanh_system = replace(trained, activate=(lambda a, net: jnp.tanh(net),))
    return (
        equal(
            "perceptron: one epoch is one sweep",
            np.append(trained.connectivity[0].w, trained.connectivity[0].b),
            np.append(one_sweep.w, one_sweep.b),
        ),
        equal("perceptron: outputs", outputs, expected),
        equal(
            "another activation",
            jax.vmap(tanh_system)(data[0]),
            jnp.tanh(jax.vmap(one_sweep.score)(data[0])),
        ),
        refuted(
            equal(
                "another activation gives the same outputs", jax.vmap(tanh_system)(data[0]), outputs
            )
        ),
        equal(
            "another activation learns the same weights",
            tanh_system.train_epoch().connectivity[0].w,
            trained.train_epoch().connectivity[0].w,
        ),
    )


def _hopfield(rng):
    patterns = rng.choice([-1.0, 1.0], (3, 16))
    states = jnp.asarray(rng.choice([-1.0, 1.0], (20, 16)))
    net = models.hebb(jnp.asarray(patterns))
    empty = models.Hopfield(jnp.zeros((16, 16)))
    system = models.hopfield_system(empty, jnp.asarray(patterns)).train_epoch()
    fields = np.einsum("ij,kj->ki", patterns.T @ patterns / 16 - 3 * np.eye(16) / 16, states)
    return (
        close("Hopfield: Hebb's couplings", system.connectivity[0].W, net.W, tolerance=1e-15),
        equal(
            "Hopfield: one synchronous update",
            jax.vmap(replace(system, connectivity=(net,)))(states),
            [models.synchronous_recall(net, x, max_steps=1)[0] for x in states],
        ),
        equal(
            "Hopfield: update by the formula",
            jax.vmap(system)(states),
            np.where(fields >= 0, 1.0, -1.0),
            method="brute force",
        ),
    )


def _mlp(rng, key):
    xs = jnp.asarray(rng.normal(size=(12, 3)))
    targets = jnp.asarray(rng.normal(size=(12, 2)))
    net = models.MLP.init(3, 5, 4, 2, activation=jnp.tanh, key=jr.fold_in(key, 1))
    loss = lambda f, y: jnp.square(f - y).sum() / 2
    system = models.mlp_system(net, (xs, targets), loss=loss, learning_rate=0.1)
    trained = net
    for x, y in zip(xs, targets):
        slope = jax.grad(lambda net, x=x, y=y: loss(net(x), y))(trained)
        trained = jax.tree.map(lambda theta, g: theta - 0.1 * g, trained, slope)
    parameters = jnp.concatenate(
        [leaf.ravel() for leaf in jax.tree.leaves(system.train_epoch().connectivity)]
    )
    expected = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(trained)])
    frozen = replace(system, learn=lambda connectivity, example: connectivity)
    return (
        equal("multi-layer perceptron: outputs", jax.vmap(system)(xs), jax.vmap(net)(xs)),
        close("multi-layer perceptron: one epoch of gradient descent", parameters, expected),
        equal(
            "without a learning rule: the same outputs",
            jax.vmap(frozen.train_epoch())(xs),
            jax.vmap(net)(xs),
        ),
    )

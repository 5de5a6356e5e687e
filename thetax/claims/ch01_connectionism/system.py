"""Parallel distributed processing: three networks in the same seven slots."""

from dataclasses import fields, replace

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ... import models
from ..engine.chance import chance
from ..engine.check import close, equal, refuted
from ..engine.claim import Verdict, claim
from .points import planted


@claim(
    "1.3-pdp",
    title="Seven slots of a connectionist system",
    kind="definition",
    of=("models.System", "models.perceptron_system", "models.hopfield_system", "models.mlp_system"),
    cites="Rumelhart & McClelland 1986",
)
def pdp(key):
    r"""Units with activations, an output function, connections, a propagation rule, an activation
    rule, a learning rule and an environment: perceptron, Hopfield network and multi-layer
    perceptron are systems that differ in what they put there.
    """
    rng = chance(key)
    slots = ["units", "output", "connectivity", "propagate", "activate", "learn", "environment"]
    return Verdict(
        equal("slots", [field.name for field in fields(models.System)], slots),
        *_perceptron(rng),
        *_hopfield(rng),
        *_mlp(rng, key),
    )


def _perceptron(rng):
    xs, ys, _ = planted(rng, 30, 4, gap=0.05)
    data = jnp.asarray(xs), jnp.asarray(ys)
    origin = models.Perceptron(jnp.zeros(4), jnp.zeros(()))
    system = models.perceptron_system(origin, data)
    swept = system.learned()
    one_sweep = jax.jit(lambda x, y: models.fit_perceptron(x, y, epochs=1))(*data).model
    direct = jax.vmap(one_sweep)(data[0])
    answers = jax.vmap(swept)(data[0])
    graded = replace(swept, activate=(lambda a, net: jnp.tanh(net),))
    return (
        equal(
            "perceptron: a pass is a sweep",
            np.append(swept.connectivity[0].w, swept.connectivity[0].b),
            np.append(one_sweep.w, one_sweep.b),
        ),
        equal("perceptron: answers", answers, direct),
        equal(
            "another activation",
            jax.vmap(graded)(data[0]),
            jnp.tanh(jax.vmap(one_sweep.score)(data[0])),
        ),
        refuted(equal("another activation, the old answers", jax.vmap(graded)(data[0]), answers)),
        equal(
            "another activation learns the same",
            graded.learned().connectivity[0].w,
            swept.learned().connectivity[0].w,
        ),
    )


def _hopfield(rng):
    patterns = rng.choice([-1.0, 1.0], (3, 16))
    states = jnp.asarray(rng.choice([-1.0, 1.0], (20, 16)))
    direct = models.hebb(jnp.asarray(patterns))
    empty = models.Hopfield(jnp.zeros((16, 16)))
    system = models.hopfield_system(empty, jnp.asarray(patterns)).learned()
    fields = np.einsum("ij,kj->ki", patterns.T @ patterns / 16 - 3 * np.eye(16) / 16, states)
    return (
        close("Hopfield: Hebb's couplings", system.connectivity[0].W, direct.W, tolerance=1e-15),
        equal(
            "Hopfield: one turn of all sites",
            jax.vmap(replace(system, connectivity=(direct,)))(states),
            [models.synchronous(direct, x, max_steps=1)[0] for x in states],
        ),
        equal(
            "Hopfield: by hand",
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
    system = models.mlp_system(net, (xs, targets), loss=loss, rate=0.1)
    trained = net
    for x, y in zip(xs, targets):
        slope = jax.grad(lambda net, x=x, y=y: loss(net(x), y))(trained)
        trained = jax.tree.map(lambda theta, g: theta - 0.1 * g, trained, slope)
    learned = jnp.concatenate(
        [leaf.ravel() for leaf in jax.tree.leaves(system.learned().connectivity)]
    )
    expected = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(trained)])
    silent = replace(system, learn=lambda connectivity, example: connectivity)
    return (
        equal("multi-layer perceptron: answers", jax.vmap(system)(xs), jax.vmap(net)(xs)),
        close("multi-layer perceptron: a pass of descent", learned, expected, tolerance=1e-12),
        equal("no learning: the same answers", jax.vmap(silent.learned())(xs), jax.vmap(net)(xs)),
    )

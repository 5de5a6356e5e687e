r"""Parallel distributed processing (PDP, §1.3): a connectionist system defined by seven components.

Units with activations $a$ have outputs $o = g(a)$; the connections turn outputs into net inputs;
the activation rule computes the new activations from net input and $a$; the learning rule changes
the connections; the environment provides the examples. A perceptron, a Hopfield network and a
multi-layer perceptron differ only in these components. Rumelhart & McClelland 1986.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Num

from ...core import Batch
from ...layers import Activation, Linear, Pointwise, spin
from ..associative_memory.hopfield import Hopfield
from ..linear.neuron import Perceptron
from ..mlp import MLP

Units = Num[Array, "..."]


@dataclass(frozen=True)
class PDPSystem:
    r"""The seven components of a PDP system. Signals pass through the stages of the connectivity in
    turn, with one activation rule per stage:

    $$a \leftarrow F_\ell(a, \mathrm{net}_\ell), \qquad \mathrm{net}_\ell = P(C_\ell, g(a))$$

    >>> unit = perceptron_system(Perceptron(jnp.array([1.0, -1.0])), (jnp.eye(2), jnp.ones(2)))
    >>> float(unit(jnp.array([3.0, 1.0]))), unit.train_epoch().connectivity[0].w.tolist()
    (1.0, [1.0, 0.0])
    """

    units: Callable[[Any], Units]  # input -> initial activations
    output: Activation  # o = g(a)
    connectivity: tuple[Any, ...]  # the stages, each a model or a matrix
    propagate: Callable[[Any, Units], Units]  # net = P(C, o)
    activate: tuple[Callable[[Units, Units], Units], ...]  # a' = F(a, net), one per stage
    # learning rule: connectivity, example -> connectivity
    learn: Callable[[tuple[Any, ...], Any], tuple[Any, ...]]
    environment: Batch  # the examples

    def __post_init__(self):
        if len(self.activate) != len(self.connectivity):
            raise ValueError(
                f"PDPSystem: got {len(self.connectivity)} stages of connections and "
                f"{len(self.activate)} activation rules; give one rule per stage."
            )

    def __call__(self, x: Any) -> Units:
        """The activations after the last stage."""
        a = self.units(x)
        for stage, rule in zip(self.connectivity, self.activate):
            a = rule(a, self.propagate(stage, self.output(a)))
        return a

    def train_epoch(self) -> "PDPSystem":
        """The system after one epoch: the learning rule applied to each example of the environment
        in turn.
        """
        step = lambda connectivity, example: (self.learn(connectivity, example), None)
        return replace(
            self, connectivity=jax.lax.scan(step, self.connectivity, self.environment)[0]
        )


def perceptron_system(model: Perceptron, environment: Batch) -> PDPSystem:
    r"""The perceptron as a PDP system (§1.2): one epoch is one epoch of `fit_perceptron`."""

    def learn(connectivity, example):
        (unit,), (x, y) = connectivity, example
        mistake = unit(x) != y
        change = lambda weights, by: jnp.where(mistake, weights + by, weights)
        return (Perceptron(change(unit.w, y * x), None if unit.b is None else change(unit.b, y)),)

    activate = lambda a, net: jnp.sign(net)
    return PDPSystem(
        lambda x: x,
        lambda a: a,
        (model,),
        lambda unit, o: unit.score(o),
        (activate,),
        learn,
        environment,
    )


def hopfield_system(model: Hopfield, environment: Batch, *, steps: int = 1) -> PDPSystem:
    r"""The Hopfield network as a PDP system (§1.4): fully connected units, `steps` synchronous
    updates; learning stores the examples by Hebb's rule.
    """

    learn = lambda connectivity, x: (connectivity[0].learn(x),) * steps
    activate = lambda a, net: spin(net)
    field = lambda net, o: net.field(o)
    return PDPSystem(
        lambda x: x, lambda a: a, (model,) * steps, field, (activate,) * steps, learn, environment
    )


def mlp_system(
    model: MLP, environment: Batch, *, loss: Callable[[Units, Any], Any], learning_rate: float
) -> PDPSystem:
    r"""The multi-layer perceptron as a PDP system (§2.2), trained by stochastic gradient descent
    with batch size 1 (§3.1).

    The network must alternate affine maps and pointwise activations; `loss(f, y)` is the loss of
    one example.
    """
    stages, rules = _maps_and_activations(model)

    def run(connectivity, x):
        return replace(system, connectivity=connectivity)(x)

    def learn(connectivity, example):
        x, y = example
        gradient = jax.grad(lambda stages: loss(run(stages, x), y))(connectivity)
        return jax.tree.map(lambda theta, g: theta - learning_rate * g, connectivity, gradient)

    system = PDPSystem(
        jnp.ravel, lambda a: a, stages, lambda layer, o: layer(o), rules, learn, environment
    )
    return system


def _maps_and_activations(
    model: MLP,
) -> tuple[tuple[Linear, ...], tuple[Callable[[Units, Units], Units], ...]]:
    """The affine maps of a network, and the activation rule after each."""
    affine = model.body.layers[::2]
    between = model.body.layers[1::2]
    if not all(isinstance(f, Linear) for f in affine) or not all(
        isinstance(f, Pointwise) for f in between
    ):
        raise ValueError(
            "mlp_system: expected alternating affine maps and activations; leave out dropout, "
            "normalise and connect."
        )
    after = [layer.activation for layer in between] + [lambda z: z]
    return affine, tuple(lambda a, net, f=f: f(net) for f in after)

r"""Parallel distributed processing (§1.3): a connectionist system in seven slots.

Units with activations $a$ put out $o = g(a)$; along the connections this arrives as a net input,
which with $a$ makes the new activation; experience changes the connections; the environment is
where experience comes from. A perceptron, a Hopfield network and a multi-layer perceptron differ
only in what they put into the slots. Rumelhart & McClelland 1986.
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
class System:
    r"""The seven ingredients. Signals pass the stages of the connectivity in turn, one activation
    rule a stage:

    $$a \leftarrow F_\ell(a, \mathrm{net}_\ell), \qquad \mathrm{net}_\ell = P(C_\ell, g(a))$$

    >>> unit = perceptron_system(Perceptron(jnp.array([1.0, -1.0])), (jnp.eye(2), jnp.ones(2)))
    >>> float(unit(jnp.array([3.0, 1.0]))), unit.learned().connectivity[0].w.tolist()
    (1.0, [1.0, 0.0])
    """

    units: Callable[[Any], Units]  # how an input sets the activations
    output: Activation  # o = g(a)
    connectivity: tuple[Any, ...]  # the stages, each a model or a matrix
    propagate: Callable[[Any, Units], Units]  # net = P(C, o)
    activate: tuple[Callable[[Units, Units], Units], ...]  # a' = F(a, net), one a stage
    learn: Callable[
        [tuple[Any, ...], Any], tuple[Any, ...]
    ]  # connectivity and an example -> connectivity
    environment: Batch  # the examples

    def __post_init__(self):
        if len(self.activate) != len(self.connectivity):
            raise ValueError(
                f"System: there are {len(self.connectivity)} stages of connections and "
                f"{len(self.activate)} activation rules; give one rule a stage."
            )

    def __call__(self, x: Any) -> Units:
        """The activations once the input has passed every stage."""
        a = self.units(x)
        for stage, rule in zip(self.connectivity, self.activate):
            a = rule(a, self.propagate(stage, self.output(a)))
        return a

    def learned(self) -> "System":
        """The system after one pass through its environment, example after example."""
        step = lambda connectivity, example: (self.learn(connectivity, example), None)
        return replace(
            self, connectivity=jax.lax.scan(step, self.connectivity, self.environment)[0]
        )


def perceptron_system(model: Perceptron, environment: Batch) -> System:
    r"""One threshold unit that learns from its mistakes (§1.2): one pass is one sweep of
    `fit_perceptron`.
    """

    def learn(connectivity, example):
        (unit,), (x, y) = connectivity, example
        mistake = unit(x) != y
        change = lambda weights, by: jnp.where(mistake, weights + by, weights)
        return (Perceptron(change(unit.w, y * x), None if unit.b is None else change(unit.b, y)),)

    activate = lambda a, net: jnp.sign(net)
    return System(
        lambda x: x,
        lambda a: a,
        (model,),
        lambda unit, o: unit.score(o),
        (activate,),
        learn,
        environment,
    )


def hopfield_system(model: Hopfield, environment: Batch, *, steps: int = 1) -> System:
    r"""Units that all look at each other and turn together (§1.4); Hebb's rule adds the patterns it
    meets.
    """

    learn = lambda connectivity, x: (connectivity[0].learn(x),) * steps
    activate = lambda a, net: spin(net)
    field = lambda net, o: net.field(o)
    return System(
        lambda x: x, lambda a: a, (model,) * steps, field, (activate,) * steps, learn, environment
    )


def mlp_system(
    model: MLP, environment: Batch, *, loss: Callable[[Units, Any], Any], rate: float
) -> System:
    r"""Layers of units, each fed by the one before (§2.2), that descend a loss example by example
    (§3.1).

    The network is a plain one, affine maps and pointwise functions in turn; `loss(f, y)` is that of
    one example.
    """
    stages, rules = _plain(model)

    def run(connectivity, x):
        return replace(system, connectivity=connectivity)(x)

    def learn(connectivity, example):
        x, y = example
        slope = jax.grad(lambda stages: loss(run(stages, x), y))(connectivity)
        return jax.tree.map(lambda theta, g: theta - rate * g, connectivity, slope)

    system = System(
        jnp.ravel, lambda a: a, stages, lambda layer, o: layer(o), rules, learn, environment
    )
    return system


def _plain(model: MLP) -> tuple[tuple[Linear, ...], tuple[Callable[[Units, Units], Units], ...]]:
    """The affine maps of a network and what follows each of them."""
    affine = model.body.layers[::2]
    between = model.body.layers[1::2]
    if not all(isinstance(f, Linear) for f in affine) or not all(
        isinstance(f, Pointwise) for f in between
    ):
        raise ValueError(
            "mlp_system: expected affine maps and activations in turn; leave out dropout, "
            "normalise and connect."
        )
    after = [layer.activation for layer in between] + [lambda z: z]
    return affine, tuple(lambda a, net, f=f: f(net) for f in after)

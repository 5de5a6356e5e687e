r"""Networks of one hidden layer of several widths, each trained until nothing is left to learn:
what §9.3 and §9.4 are tried on.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from ... import tree
from ...core import predict, run
from ...explain import ntk
from ...plot import Panel
from ...train import descend, squared_error
from ..engine.chance import chance
from ..engine.check import at_most
from .width import shallow

WIDTHS = (64, 256, 1024, 4096)
SEEDS = 10
STEPS = 320
LOOKS = 8
N = 6
D = 8
RATE = 0.9  # of the mean over the examples


class Data(NamedTuple):
    """Six examples of length 1 in eight dimensions and four other inputs."""

    xs: Any
    ys: Any
    new: Any


def data(key: Any) -> Data:
    """Inputs of length 1 with normal targets, and others."""
    rng = chance(key)
    xs = rng.normal(size=(N, D))
    new = rng.normal(size=(4, D))
    unit = lambda xs: jnp.asarray(xs / np.linalg.norm(xs, axis=1, keepdims=True))
    return Data(unit(xs), jnp.asarray(rng.normal(size=N)), unit(new))


class Trained(NamedTuple):
    """Networks of one width, drawn and trained by gradient descent: each along the first axis,
    looks along the second.

    Outputs at the examples and at new inputs begin with those before training, and so do the
    kernels.
    """

    theta: Any  # at the start and at the end
    outputs: Any
    kernels: Any
    losses: Any  # at the end
    linearised: Any  # what the linearised networks come to at new inputs


@partial(jax.jit, static_argnames="width")
def train(case: Data, keys: Any, width: int) -> Trained:
    """Networks of one hidden layer of ReLU units, by full-batch gradient descent until nothing is
    left of the loss.
    """
    everywhere = jnp.concatenate([case.xs, case.new])
    step = descend(lambda model, _, key: squared_error(model, case[:2]), optax.sgd(RATE))
    seen = lambda net: (predict(net, everywhere)[:, 0], ntk(net, form="trace")(everywhere, case.xs))

    def part(net, _):
        net = run(step, net, jnp.zeros(STEPS // LOOKS), key=jr.key(0))[0].model
        return net, seen(net)

    def one(key):
        first = shallow(D, width, key=key)
        last, path = jax.lax.scan(part, first, length=LOOKS)
        (f, k), theta = seen(first), jnp.stack([tree.ravel(net)[0] for net in (first, last)])
        outputs, kernels = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), (f, k), path)
        told = f[N:] + k[N:] @ jnp.linalg.solve(k[:N], case.ys - f[:N])
        return Trained(theta, outputs, kernels, squared_error(last, case[:2]), told)

    return jax.lax.map(one, keys)


def ten(case: Data, width: int, key: Any) -> Trained:
    """Ten networks of one width."""
    return jax.tree.map(np.asarray, train(case, jr.split(key, SEEDS), width))


def trained(key: Any) -> tuple[Data, list[Trained]]:
    """The same data for every width."""
    case = data(key)
    keys = jr.split(key, len(WIDTHS))
    return case, [ten(case, m, k) for m, k in zip(WIDTHS, keys)]


def slope(values: Any) -> float:
    """The power of the width."""
    return float(np.polyfit(np.log(WIDTHS), np.log(values), 1)[0])


def to_the_end(found: list[Trained]) -> Any:
    """The assumption that nothing was left to learn."""
    return at_most(
        "loss at the end, of all networks", np.max([part.losses.max() for part in found]), 1e-10
    )


def against_width(y: str, values: dict[str, Any]) -> Panel:
    """Measured against the width, beside the power one half."""
    first = next(iter(values.values()))
    half = np.array(first)[0] * (np.array(WIDTHS) / WIDTHS[0]) ** -0.5
    return Panel(
        "width m",
        y,
        log="xy",
        bounds={"m to the power −½": (WIDTHS, half)},
        points={name: (WIDTHS, value) for name, value in values.items()},
    )

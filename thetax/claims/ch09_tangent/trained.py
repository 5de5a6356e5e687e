r"""Networks of one hidden layer of several widths, each trained to zero loss, for the experiments
of §9.3 and §9.4.
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
from ..engine.check import at_most
from ..engine.numpy_rng import numpy_rng
from .width import shallow

WIDTHS = (64, 256, 1024, 4096)
SEEDS = 10
STEPS = 320
LOOKS = 8
N = 6
D = 8
RATE = 0.9  # for the mean loss


class Data(NamedTuple):
    """Six examples of norm 1 in eight dimensions and four other inputs."""

    xs: Any
    ys: Any
    new: Any


def data(key: Any) -> Data:
    """Inputs of norm 1 with normal targets, and new inputs."""
    rng = numpy_rng(key)
    xs = rng.normal(size=(N, D))
    new = rng.normal(size=(4, D))
    unit = lambda xs: jnp.asarray(xs / np.linalg.norm(xs, axis=1, keepdims=True))
    return Data(unit(xs), jnp.asarray(rng.normal(size=N)), unit(new))


class Trained(NamedTuple):
    """Networks of one width, initialised and trained by gradient descent: networks along the first
    axis, looks along the second.

    Outputs at the examples and at new inputs, and kernels, start with those before training."""

    theta: Any  # at the start and at the end
    outputs: Any
    kernels: Any
    losses: Any  # at the end
    linearised: Any  # the limits of the linearised networks at new inputs


@partial(jax.jit, static_argnames="width")
def train(case: Data, keys: Any, width: int) -> Trained:
    """Networks of one hidden layer of ReLU units, by full-batch gradient descent to zero loss."""
    everywhere = jnp.concatenate([case.xs, case.new])
    step = descend(lambda model, _, key: squared_error(model, case[:2]), optax.sgd(RATE))
    observe = lambda net: (
        predict(net, everywhere)[:, 0],
        ntk(net, form="trace")(everywhere, case.xs),
    )

    def part(net, _):
        net = run(step, net, jnp.zeros(STEPS // LOOKS), key=jr.key(0))[0].model
        return net, observe(net)

    def one(key):
        first = shallow(D, width, key=key)
        last, path = jax.lax.scan(part, first, length=LOOKS)
        (f, k), theta = observe(first), jnp.stack([tree.ravel(net)[0] for net in (first, last)])
        outputs, kernels = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), (f, k), path)
        linearised = f[N:] + k[N:] @ jnp.linalg.solve(k[:N], case.ys - f[:N])
        return Trained(theta, outputs, kernels, squared_error(last, case[:2]), linearised)

    return jax.lax.map(one, keys)


def train_ten(case: Data, width: int, key: Any) -> Trained:
    """Ten networks of one width."""
    return jax.tree.map(np.asarray, train(case, jr.split(key, SEEDS), width))


def trained(key: Any) -> tuple[Data, list[Trained]]:
    """The data, and the networks of every width trained on them."""
    case = data(key)
    keys = jr.split(key, len(WIDTHS))
    return case, [train_ten(case, m, k) for m, k in zip(WIDTHS, keys)]


def slope(values: Any) -> float:
    """The power of the width, by a linear fit."""
    return float(np.polyfit(np.log(WIDTHS), np.log(values), 1)[0])


def zero_loss(parts: list[Trained]) -> Any:
    """The assumption that the final loss is zero."""
    return at_most(
        "final loss of all networks", np.max([part.losses.max() for part in parts]), 1e-10
    )


def against_width(y: str, values: dict[str, Any]) -> Panel:
    """A chart against the width, with the power −½ for comparison."""
    first = next(iter(values.values()))
    half = np.array(first)[0] * (np.array(WIDTHS) / WIDTHS[0]) ** -0.5
    return Panel(
        "width m",
        y,
        log="xy",
        bounds={"m to the power −½": (WIDTHS, half)},
        points={name: (WIDTHS, value) for name, value in values.items()},
    )

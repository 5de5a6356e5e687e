"""Chapter 2 in a page: networks written down, networks in disguise, and how few units are enough.

Expect each network to follow its function closely without any training, since its weights are
written down, and the gradient to vanish in twenty plain layers but not in residual ones.
`python chapter_2.py FOLDER` keeps the pictures there, otherwise they go to a temporary folder.
"""

import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from thetax import explain, models
from thetax.layers import Residual
from thetax.plot import draw
from thetax.train import squared_error


def main(folder: str | None = None) -> dict[str, float]:
    f = lambda x: jnp.sin(3 * x) + jnp.abs(x)
    box = {"low": -2.0, "high": 2.0}
    found = {}

    # Universal approximation (§2.5): three networks for one function, no training.
    knots = np.linspace(-2, 2, 33)
    xs = jnp.linspace(-2, 2, 400)[:, None]
    networks = {
        "staircase": models.step_network(f, width=200, **box),
        "polygon": models.interpolate(knots, np.asarray(f(knots))),
        "random units": models.ridge_network(xs, f(xs[:, 0]), width=80, spread=4.0, key=jr.key(0)),
    }
    for name, network in networks.items():
        found[name] = explain.distance(network, f, **box).value
        units = len(network.body.layers[0].W)
        print(f"{name}, {units} units: off by at most {found[name]:.3f}")

    # The best cubic, which no width would help (§2.5).
    cubic = explain.minimax(f, lambda x: jnp.stack([x**k for k in range(4)]), **box)
    found["cubic"] = cubic.value
    print(f"best cubic: off by {cubic.value:.3f}, for no choice of its 4 weights can do better")

    # One function, many weights (§2.2): permuted and rescaled, the network computes the same.
    twin = models.permute(networks["polygon"], 0, np.arange(33)[::-1])
    twin = models.rescale(twin, 0, np.linspace(0.5, 2.0, 33))
    found["twin"] = explain.distance(twin, networks["polygon"], **box).value
    print(
        f"polygon with its units reordered and rescaled: differs by {found['twin']:.0e}, which is "
        "rounding"
    )

    # Barron (§2.5): in twenty dimensions too, one unit after another.
    points = jr.normal(jr.key(1), (400, 20)) / jnp.sqrt(20)
    bump = jnp.exp(-jnp.square(points).sum(axis=1) / 2)
    units = models.random_units(points, width=2000, spread=1.0, key=jr.key(2))
    chosen = models.greedy_network(points, bump, units, width=64)
    found["greedy"] = float(chosen.errors[-1] / chosen.errors[0])
    print(f"64 units of 2,000: error {found['greedy']:.3f} of that of one unit")

    # Depth (§2.4): the gradient that reaches the first of twenty layers, with residual connections
    # and without.
    batch = jr.normal(jr.key(3), (32, 8)), jnp.zeros(32)
    for name, connect in (("plain", None), ("residual", Residual)):
        net = models.MLP.init(
            8, *[8] * 20, 1, activation=jax.nn.sigmoid, connect=connect, key=jr.key(4)
        )
        found[name] = float(explain.gradients(squared_error, net, batch).weights[0])
        print(f"20 {name} layers of sigmoids: gradient at the first layer {found[name]:.1e}")

    # Regions (§2.6): the cells on which a small random ReLU network is affine.
    cells = explain.regions(models.MLP.init(2, 12, 12, 1, key=jr.key(5)), explain.window(-1.0, 1.0))
    found["regions"] = cells.count
    print(f"two layers of 12 ReLU units: {cells.count} linear regions in the square")

    place = Path(folder or tempfile.mkdtemp())
    draw(cubic).savefig(place / "cubic.png", dpi=150)
    draw(cells).savefig(place / "regions.png", dpi=150)
    print(f"drawn in {place}: cubic.png and regions.png")
    return found


if __name__ == "__main__":
    main(*sys.argv[1:2])

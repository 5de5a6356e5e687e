"""Chapter 2: constructive approximation, equivalent parameters, and depth.

Expected results: networks with explicit weights approximate a function without training; the
gradient vanishes in twenty plain layers, and not in residual ones. `python chapter_2.py FOLDER`
saves the figures there, by default in a temporary folder.
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
    results = {}

    # Universal approximation (§2.5): three networks without training.
    knots = np.linspace(-2, 2, 33)
    xs = jnp.linspace(-2, 2, 400)[:, None]
    networks = {
        "step": models.step_network(f, width=200, low=-2.0, high=2.0),
        "interpolating": models.interpolating_network(knots, np.asarray(f(knots))),
        "random features": models.ridge_network(
            xs, f(xs[:, 0]), width=80, spread=4.0, key=jr.key(0)
        ),
    }
    for name, network in networks.items():
        results[name] = explain.uniform_distance(network, f, low=-2.0, high=2.0).value
        units = len(network.body.layers[0].W)
        print(f"{name} network, {units} units: uniform error {results[name]:.3f}")

    # The best cubic polynomial (§2.5).
    cubic = explain.minimax_approximation(
        f, lambda x: jnp.stack([x**k for k in range(4)]), low=-2.0, high=2.0
    )
    results["cubic"] = cubic.value
    print(f"best cubic: uniform error {cubic.value:.3f}")

    # Equivalent parameters (§2.2): permuted and rescaled units compute the same function.
    equivalent = models.permute_units(networks["interpolating"], 0, np.arange(33)[::-1])
    equivalent = models.rescale_units(equivalent, 0, np.linspace(0.5, 2.0, 33))
    results["equivalent"] = explain.uniform_distance(
        equivalent, networks["interpolating"], low=-2.0, high=2.0
    ).value
    print(
        f"interpolating network with permuted and rescaled units: difference "
        f"{results['equivalent']:.0e}, rounding errors"
    )

    # Barron (§2.5): greedy approximation in twenty dimensions.
    points = jr.normal(jr.key(1), (400, 20)) / jnp.sqrt(20)
    bump = jnp.exp(-jnp.square(points).sum(axis=1) / 2)
    units = models.random_units(points, width=2000, spread=1.0, key=jr.key(2))
    greedy = models.greedy_network(points, bump, units, width=64)
    results["greedy"] = float(greedy.errors[-1] / greedy.errors[0])
    print(f"64 of 2,000 units: error {results['greedy']:.3f} times that of one unit")

    # Depth (§2.4): the gradient at the first of twenty layers, with and without residual
    # connections.
    batch = jr.normal(jr.key(3), (32, 8)), jnp.zeros(32)
    for name, connect in (("plain", None), ("residual", Residual)):
        net = models.MLP.init(
            8, *[8] * 20, 1, activation=jax.nn.sigmoid, connect=connect, key=jr.key(4)
        )
        results[name] = float(explain.gradient_norms(squared_error, net, batch).weights[0])
        print(f"20 {name} sigmoid layers: gradient at the first layer {results[name]:.1e}")

    # Regions (§2.6): the linear regions of a small random ReLU network.
    regions = explain.enumerate_regions(
        models.MLP.init(2, 12, 12, 1, key=jr.key(5)), explain.input_plane(-1.0, 1.0)
    )
    results["regions"] = regions.n_regions
    print(f"two layers of 12 ReLU units: {regions.n_regions} linear regions in the square")

    output = Path(folder or tempfile.mkdtemp())
    draw(cubic).savefig(output / "cubic.png", dpi=150)
    draw(regions).savefig(output / "regions.png", dpi=150)
    print(f"figures in {output}: cubic.png and regions.png")
    return results


if __name__ == "__main__":
    main(*sys.argv[1:2])

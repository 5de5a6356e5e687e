"""Chapter 3: one network's gradient by hand, the flow and the descents that follow it, and the
plane they walk on.

Expect momentum to overtake plain descent, since it adds up steps along the flat directions, and its
way to lie almost in a plane. `python chapter_3.py FOLDER` keeps the pictures there, otherwise they
go to a temporary folder.
"""

import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from thetax import explain, train, tree
from thetax.core import run
from thetax.models import MLP
from thetax.plot import draw


def main(folder: str | None = None, steps: int = 200) -> dict[str, float]:
    key_data, key_net, key_L = jr.split(jr.key(0), 3)
    xs = jr.normal(key_data, (128, 2))
    data = xs, jnp.sin(2 * xs[:, 0]) * xs[:, 1]
    net = MLP.init(2, 16, 1, activation=jnp.tanh, key=key_net)

    # §3.1: backpropagation written out is what jax.grad does
    found = train.backpropagate(net.body, train.squared_loss, xs[0], data[1][0])
    exact = jax.grad(lambda body: train.squared_loss(body(xs[0]), data[1][0]))(net.body)
    print(
        "backpropagation and jax.grad differ by "
        f"{tree.norm(tree.axpy(-1.0, exact, found.gradient)):.1e}"
    )

    # §3.2: how far a step may go, and the flow that small steps follow
    bends = explain.smoothness(
        train.squared_error, jax.tree.map(lambda a: a[None], net), data, key=key_L
    )
    print(
        f"curvature {bends.constant:.3g} at the start: descent is stable below a rate of "
        f"{bends.rate:.3g}"
    )
    flow = train.gradient_flow(train.squared_error, net, data, times=np.linspace(0, 20, 21))
    print(
        f"the flow goes from a loss of {flow.losses[0]:.4f} to {flow.losses[-1]:.4f} in 20 units "
        "of time"
    )

    # §3.3: the same start, five ways down
    optimisers = {
        "descent": optax.sgd(0.1),
        "heavy ball": train.heavy_ball(0.1, momentum=0.9),
        "Nesterov": train.nesterov(0.1, momentum=0.9),
        "AdaGrad": train.adagrad(0.1),
        "Adam": train.adam(0.02),
    }
    rates = explain.rates(
        train.squared_error, net, data, optimisers=optimisers, steps=steps, first=steps // 2
    )
    for name, gap in rates.gaps.items():
        print(
            f"{name:>10}: {gap[0]:.3f} to {gap[-1]:.4f}, in the end × "
            f"{rates.decays[name].factor:.4f} a step"
        )

    # the way of one of them on the plane that holds most of it
    step = train.descend(
        lambda model, _, key: train.squared_error(model, data), optimisers["heavy ball"]
    )
    state, (models, _) = run(
        step, net, jnp.zeros(steps), key=key_L, record=lambda state: state.model
    )
    way = explain.plane(models)
    sides = [np.linspace(path.min() - 0.5, path.max() + 0.5, 25) for path in way.path.T]
    seen = explain.landscape(
        train.squared_error,
        state.model,
        data,
        along=way.along,
        alphas=sides[0],
        betas=sides[1],
        path=way.path,
    )
    print(f"{100 * way.share:.0f} % of the heavy ball's way lies in one plane")
    place = Path(folder or tempfile.mkdtemp())
    draw(rates).savefig(place / "rates.png", dpi=150)
    draw(seen).savefig(place / "way.png", dpi=150)
    print(f"drawn in {place}: rates.png and way.png")
    return {name: float(gap[-1]) for name, gap in rates.gaps.items()}


if __name__ == "__main__":
    main(*sys.argv[1:2])

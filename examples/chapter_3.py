"""Chapter 3: backpropagation, gradient flow, optimisers, and their trajectories.

Expected results: momentum converges faster than gradient descent, since it accumulates steps along
the flat directions, and its trajectory lies almost in a plane. `python chapter_3.py FOLDER` saves
the figures there, by default in a temporary folder.
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


def main(folder: str | None = None, *, steps: int = 200) -> dict[str, float]:
    key_data, key_net, key_L = jr.split(jr.key(0), 3)
    xs = jr.normal(key_data, (128, 2))
    data = xs, jnp.sin(2 * xs[:, 0]) * xs[:, 1]
    net = MLP.init(2, 16, 1, activation=jnp.tanh, key=key_net)

    # §3.1: backpropagation, and jax.grad
    result = train.backpropagate(net.body, train.squared_loss, xs[0], data[1][0])
    exact = jax.grad(lambda body: train.squared_loss(body(xs[0]), data[1][0]))(net.body)
    print(
        "backpropagation and jax.grad differ by "
        f"{tree.norm(tree.axpy(-1.0, exact, result.gradient)):.1e}"
    )

    # §3.2: the largest stable learning rate, and gradient flow
    smoothness = explain.smoothness(
        train.squared_error, jax.tree.map(lambda a: a[None], net), data, key=key_L
    )
    print(
        f"curvature {smoothness.constant:.3g} at the start: gradient descent is stable for a "
        f"learning rate below {smoothness.max_learning_rate:.3g}"
    )
    flow = train.gradient_flow(train.squared_error, net, data, times=np.linspace(0, 20, 21))
    print(f"gradient flow: loss {flow.losses[0]:.4f} at time 0, {flow.losses[-1]:.4f} at time 20")

    # §3.3: five optimisers from the same start
    optimisers = {
        "gradient descent": optax.sgd(0.1),
        "heavy ball": train.heavy_ball(0.1, momentum=0.9),
        "Nesterov": train.nesterov(0.1, momentum=0.9),
        "AdaGrad": train.adagrad(0.1),
        "Adam": train.adam(0.02),
    }
    rates = explain.convergence_rates(
        train.squared_error, net, data, optimisers=optimisers, steps=steps, fit_from=steps // 2
    )
    for name, gap in rates.gaps.items():
        print(
            f"{name:>16}: {gap[0]:.3f} to {gap[-1]:.4f}, at the end × "
            f"{rates.rates[name].factor:.4f} per step"
        )

    # the trajectory of one of them, projected to a plane
    step = train.descend(
        lambda model, _, key: train.squared_error(model, data), optimisers["heavy ball"]
    )
    state, (models, _) = run(
        step, net, jnp.zeros(steps), key=key_L, record=lambda state: state.model
    )
    plane = explain.trajectory_plane(models)
    alphas, betas = (np.linspace(path.min() - 0.5, path.max() + 0.5, 25) for path in plane.path.T)
    landscape = explain.loss_landscape(
        train.squared_error,
        state.model,
        data,
        directions=plane.directions,
        alphas=alphas,
        betas=betas,
        path=plane.path,
    )
    print(f"{100 * plane.explained_variance:.0f} % of the heavy ball's trajectory lies in a plane")
    output = Path(folder or tempfile.mkdtemp())
    draw(rates).savefig(output / "rates.png", dpi=150)
    draw(landscape).savefig(output / "trajectory.png", dpi=150)
    print(f"figures in {output}: rates.png and trajectory.png")
    return {name: float(gap[-1]) for name, gap in rates.gaps.items()}


if __name__ == "__main__":
    main(*sys.argv[1:2])

"""Chapter 9: the tangent kernel of a network, its limit, and training with a constant kernel.

Expected results: the wider the network, the nearer its kernel to the limit, and the nearer its
training to that with a constant kernel. The task is to separate odd from even digits. `python
chapter_9.py FOLDER` saves the figures there, by default in a temporary folder.
"""

import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from thetax import data, explain, layers, train
from thetax.core import predict, run
from thetax.models import MLP
from thetax.plot import Chart, Panel, draw

LEARNING_RATE = 0.5
WIDTHS = (16, 128, 1024)


def network(width, key):
    """One hidden layer of ReLU units in the NTK parametrisation."""
    initialiser = layers.ntk_parametrisation(weight=2**0.5, bias=0.1)
    return MLP.init(64, width, 1, initialiser=initialiser, key=key)


def training_outputs(net, batch, xs, steps):
    """The outputs at `xs` in each step of full-batch gradient descent."""
    step = train.descend(
        lambda model, _, key: train.squared_error(model, batch), optax.sgd(LEARNING_RATE)
    )
    record = lambda state: predict(state.model, xs)
    train_net = lambda net: run(step, net, jnp.zeros(steps), key=jr.key(0), record=record)[1][0]
    outputs = jax.jit(train_net)(net)
    return np.concatenate([predict(net, xs)[None], outputs])[:, :, 0]


def main(folder: str | None = None, *, steps: int = 100) -> dict[str, float]:
    key_split, key_net = jr.split(jr.key(0))
    xs, labels = data.load("digits").train
    xs = xs.reshape(len(xs), 64) - xs.mean()
    xs = 8 * xs / np.linalg.norm(xs, axis=1, keepdims=True)
    ys = np.where(labels % 2, 1.0, -1.0).astype(np.float32)
    train_set, (test_xs, test_ys) = data.split(
        (jnp.asarray(xs), jnp.asarray(ys)[:, None]), 100 / len(ys), key=key_split
    )
    error = lambda outputs: 100 * float(np.mean(np.sign(np.ravel(outputs)) != np.ravel(test_ys)))
    results = {}
    paths = {}

    # §9.3, §9.4: the limit of the kernel
    limit = explain.infinite_width_limit(network(8, key_net))
    K = limit.ntk(train_set[0])
    for width in WIDTHS:
        net = network(width, key_net)
        kernel = explain.ntk(net, form="trace")(train_set[0])
        distance = float(jnp.linalg.norm(kernel - K) / jnp.linalg.norm(K))

        # §9.2: training, and training with a constant kernel
        descent = explain.kernel_gradient_descent(
            explain.ntk(net), *train_set, initial_model=net, learning_rate=LEARNING_RATE
        )
        predicted = descent(np.arange(steps + 1), test_xs)[:, :, 0]
        actual = training_outputs(net, train_set, test_xs, steps)
        gap = float(np.abs(predicted[-1] - actual[-1]).mean())
        results |= {f"kernel {width}": distance, f"gap {width}": gap}
        paths[width] = actual, predicted
        print(
            f"width {width:>4}: distance of the kernel to its limit {100 * distance:.1f} %, of the "
            f"test outputs after {steps} steps to those of a constant kernel {gap:.3f}"
        )

    # §9.1, §9.4: the fitted linearised network, the network, and the infinite-width ensemble
    linearised = explain.linearise(net).solve(*train_set, ridge=1.0)
    ensemble = explain.kernel_ensemble(limit.nngp, limit.ntk, train_set[0], train_set[1][:, 0])(
        steps * LEARNING_RATE, test_xs
    )
    results |= {
        "linearised": error(predict(linearised, test_xs)),
        "trained": error(actual[-1]),
        "infinite": error(ensemble.mean),
    }
    print(
        f"test error with 100 training digits: linearised {results['linearised']:.1f} %, trained "
        f"{results['trained']:.1f} %, infinite-width ensemble {results['infinite']:.1f} %"
    )

    output = Path(folder or tempfile.mkdtemp())
    t = np.arange(steps + 1)
    panels = [
        Panel(
            "step",
            "output (dashed: constant kernel)",
            title=f"width {width}",
            lines={"": (t, actual[:, :4])},
            bounds={"": (t, predicted[:, :4])},
        )
        for width, (actual, predicted) in paths.items()
    ]
    draw(Chart(*panels)).savefig(output / "outputs.png", dpi=150)
    lines = {
        "kernel to its limit": (WIDTHS, [results[f"kernel {width}"] for width in WIDTHS]),
        "outputs to constant kernel": (WIDTHS, [results[f"gap {width}"] for width in WIDTHS]),
    }
    draw(Chart(Panel("width", "distance", lines=lines, log="xy"))).savefig(
        output / "widths.png", dpi=150
    )
    print(f"figures in {output}: outputs.png and widths.png")
    return results


if __name__ == "__main__":
    main(*sys.argv[1:2])

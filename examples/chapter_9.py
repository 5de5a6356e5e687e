"""Chapter 9: the tangent kernel of a network, its limit, and training that is known before it is
done.

Expect the kernel to come nearer to its limit the wider the network is, the steps of a wide network
to be those a constant kernel foretells, and a narrow one to leave that path. The task is to tell
odd digits from even ones. `python chapter_9.py FOLDER` keeps the pictures there, otherwise they go
to a temporary folder.
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

RATE = 0.5
WIDTHS = (16, 128, 1024)


def network(width, key):
    """One hidden layer of ReLU units, in the parametrisation whose kernel has a limit."""
    return MLP.init(64, width, 1, initialiser=layers.tangent(weight=2**0.5, bias=0.1), key=key)


def descended(net, batch, xs, steps):
    """What full-batch gradient descent makes of the outputs at `xs`, step by step."""
    step = train.descend(lambda model, _, key: train.squared_error(model, batch), optax.sgd(RATE))
    keep = lambda state: predict(state.model, xs)
    path = jax.jit(lambda net: run(step, net, jnp.zeros(steps), key=jr.key(0), record=keep)[1][0])(
        net
    )
    return np.concatenate([predict(net, xs)[None], path])[:, :, 0]


def main(folder: str | None = None, steps: int = 100) -> dict[str, float]:
    key_split, key_net = jr.split(jr.key(0))
    xs, labels = data.load("digits").train
    xs = xs.reshape(len(xs), 64) - xs.mean()
    xs = 8 * xs / np.linalg.norm(xs, axis=1, keepdims=True)
    ys = np.where(labels % 2, 1.0, -1.0).astype(np.float32)
    few, (rest, truth) = data.split(
        (jnp.asarray(xs), jnp.asarray(ys)[:, None]), 100 / len(ys), key=key_split
    )
    wrong = lambda said: 100 * float(np.mean(np.sign(np.ravel(said)) != np.ravel(truth)))
    found = {}
    paths = {}

    # §9.3, §9.4: one kernel for all wide networks
    limit = explain.infinite(network(8, key_net))
    K = limit.ntk(few[0])
    for width in WIDTHS:
        net = network(width, key_net)
        off = float(
            jnp.linalg.norm(explain.ntk(net, form="trace")(few[0]) - K) / jnp.linalg.norm(K)
        )

        # §9.2: the steps a constant kernel foretells, and those that are made
        lazy = explain.lazy_training(explain.ntk(net), *few, start=net, rate=RATE)
        told = lazy(np.arange(steps + 1), rest)[:, :, 0]
        true = descended(net, few, rest, steps)
        gap = float(np.abs(told[-1] - true[-1]).mean())
        found |= {f"kernel {width}": off, f"gap {width}": gap}
        paths[width] = true, told
        print(
            f"width {width:>4}: the kernel is {100 * off:.1f} % from its limit; after {steps} "
            f"steps new outputs are {gap:.3f} from what a constant kernel foretells"
        )

    # §9.1, §9.4: the linearised network at its best, the network, and all networks of infinite
    # width
    h = explain.linearise(net).solve(*few, ridge=1.0)
    ensemble = explain.lazy_ensemble(limit.nngp, limit.ntk, few[0], few[1][:, 0])(
        steps * RATE, rest
    )
    found |= {
        "linearised": wrong(predict(h, rest)),
        "trained": wrong(true[-1]),
        "infinite": wrong(ensemble.mean),
    }
    print(
        f"wrong on {len(truth)} new digits, from 100: linearised {found['linearised']:.1f} %, "
        f"trained {found['trained']:.1f} %, the mean of all infinitely wide networks "
        f"{found['infinite']:.1f} %"
    )

    place = Path(folder or tempfile.mkdtemp())
    t = np.arange(steps + 1)
    panels = [
        Panel(
            "step",
            "output, dashed as foretold",
            title=f"width {width}",
            lines={"": (t, true[:, :4])},
            bounds={"": (t, told[:, :4])},
        )
        for width, (true, told) in paths.items()
    ]
    draw(Chart(*panels)).savefig(place / "paths.png", dpi=150)
    lines = {
        "kernel from its limit": (WIDTHS, [found[f"kernel {width}"] for width in WIDTHS]),
        "outputs from what is foretold": (WIDTHS, [found[f"gap {width}"] for width in WIDTHS]),
    }
    draw(Chart(Panel("width", "distance", lines=lines, log="xy"))).savefig(
        place / "widths.png", dpi=150
    )
    print(f"drawn in {place}: paths.png and widths.png")
    return found


if __name__ == "__main__":
    main(*sys.argv[1:2])

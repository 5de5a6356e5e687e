"""Lecture 10, §4.1 and §4.2: a network wide enough to fit the noise, early stopping and weight
decay.
"""

import jax
import jax.numpy as jnp
import numpy as np

from ....core import predict
from ....plot import Chart, Panel
from ...engine.check import at_least, at_most, decreasing, equal
from ...engine.claim import Verdict, claim
from .wide import errors, networks, repeat, sine, trained

SEEDS, LOOKS, STEPS = 10, 100, 2000
DECAYS = np.array([0.0, 1e-4, 1e-3, 1e-2])


@claim(
    "L10-4.1-overfit",
    "L10-4.2-wd-smooth",
    title="A wide network fits the noise; weight decay makes it smooth",
    kind="experiment",
    of=("models.MLP", "train.weight_decay", "train.descend"),
    cites="Hastie, Tibshirani & Friedman 2009, §11.5",
)
def overfit(rng):
    r"""Two hundred units trained long enough on thirty noisy points pass through nearly all of
    them, and predict worse than the same network stopped at the smallest validation error. With
    weight decay $\lambda$ the fit is smoother: $\int f''(x)^2 dx$ is smaller.
    """
    data, valid, test = (sine(rng, SEEDS, n, noise=0.5) for n in (30, 101, 201))
    start = networks(rng, SEEDS, 200, steepness=6.0, scale=0.1)
    rows = lambda a: repeat(a, len(DECAYS))
    nets = trained(rows(start), rows(data), np.tile(DECAYS, SEEDS), steps=STEPS, looks=LOOKS)
    free = jax.tree.map(lambda a: a[:: len(DECAYS)], nets)  # those without weight decay
    fitted, judged, true = (np.asarray(errors(free, part)) for part in (data, valid, test))
    stop = judged.argmin(axis=1)
    stopped = true[np.arange(SEEDS), stop]
    grid = np.linspace(-np.pi, np.pi, 629)
    last = jax.tree.map(lambda a: a[:, -1].astype(float), nets)
    curves = np.asarray(jax.vmap(lambda net: predict(net, jnp.asarray(grid)[:, None])[:, 0])(last))
    curves = curves.reshape(SEEDS, len(DECAYS), -1)
    step = grid[1] - grid[0]
    bend = (np.diff(curves, 2, axis=2) ** 2).sum(axis=2) / step**3  # ∫f''² by second differences
    t = STEPS // LOOKS * np.arange(1, LOOKS + 1)
    return Verdict(
        at_most("training error of 10 networks at the end", fitted[:, -1], 1e-3),
        at_least(
            "networks of 10 that then predict worse than at the early stop",
            int((true[:, -1] > stopped).sum()),
            9,
        ),
        equal(
            "seeds of 5 with ∫f''² smaller at λ = 10⁻² than at 0",
            int((bend[:5, 3] < bend[:5, 0]).sum()),
            5,
        ),
        decreasing("median of ∫f''² for λ = 0, 10⁻⁴, 10⁻³, 10⁻²", np.median(bend, axis=0)),
        figure=Chart(
            Panel(
                "step",
                "mean squared error",
                log="xy",
                lines={"training": (t, fitted[0]), "test": (t, true[0])},
                vertical_lines={"stop": float(t[stop[0]])},
            ),
            Panel(
                "x",
                "y",
                lines={"λ = 0": (grid, curves[0, 0]), "λ = 0.01": (grid, curves[0, 3])},
                points={"data": (np.asarray(data[0][0, :, 0]), np.asarray(data[1][0]))},
                bounds={"sin x": (grid, np.sin(grid))},
            ),
        ),
    )

"""Chapter 10: Gaussian processes, from a sample of the prior to calibrated prediction intervals.

Expected results: the marginal likelihood finds a length scale and a noise variance near the true
ones, twenty inducing points lose almost none of it, and the intervals of an infinite-width network
have the right coverage. `python chapter_10.py FOLDER` saves the figures there, by default in a
temporary folder.
"""

import sys
import tempfile
from pathlib import Path

import jax.random as jr
import numpy as np

from thetax import data
from thetax.bayes import (
    RBF,
    ConstantKernel,
    GaussianProcess,
    SparseGaussianProcess,
    fit_hyperparameters,
)
from thetax.explain import infinite_width_limit, interval_coverage
from thetax.layers import ntk_parametrisation
from thetax.models import MLP
from thetax.plot import Chart, Panel, draw


def predict_observations(process, train, xs):
    """Mean and standard deviation of an observation at each of `xs`."""
    posterior = process.condition(*train)
    variance = np.asarray(posterior.variance(xs)) + float(process.noise)
    return np.asarray(posterior.mean(xs)), np.sqrt(variance)


def main(folder: str | None = None, *, n_examples: int = 600) -> dict[str, float]:
    key_truth, key_noise, key_split, key_net = jr.split(jr.key(0), 4)
    results = {}

    # §10.2: noisy observations of a sample of the prior; maximum marginal likelihood recovers its
    # hyper-parameters
    truth = GaussianProcess.init(RBF.init(length_scale=0.7), noise=0.04)
    xs = np.linspace(0.0, 10.0, 60)
    f = np.asarray(truth.sample(xs, 1, key=key_truth))[0]
    ys = f + 0.2 * np.asarray(jr.normal(key_noise, (60,)))
    fitted = fit_hyperparameters(
        GaussianProcess.init(RBF.init(length_scale=3.0), noise=1.0),
        xs,
        ys,
        max_steps=60,
        tolerance=1e-3,
    )
    results |= {
        "length": float(np.exp(fitted.model.kernel.log_length_scale)),
        "noise": float(fitted.model.noise),
    }
    print(
        f"length scale 0.7, noise 0.04; marginal likelihood maximal at {results['length']:.2f}, "
        f"{results['noise']:.3f}"
    )

    # the posterior, and a sparse approximation
    t = np.linspace(0.0, 12.0, 200)
    mean, std = predict_observations(fitted.model, (xs, ys), t)
    sparse = SparseGaussianProcess.init(fitted.model, xs, n_inducing=20)
    results["loss"] = float(
        fitted.log_marginal_likelihood - float(sparse.log_marginal_likelihood(xs, ys))
    )
    print(f"twenty inducing points lose {results['loss']:.2f} nats of log marginal likelihood")

    # an infinite-width network on real data: the sum of a row of a handwritten digit from the four
    # rows above it
    images, _ = data.load("digits").train
    ink = images[:n_examples].sum(axis=2)
    train, test = data.split((ink[:, :4], ink[:, 4]), 0.5, key=key_split)
    scale = data.Standardise.fit(train[0])
    mean_target = train[1].mean()
    variance = float(train[1].var())
    train = (scale(train[0]), train[1] - mean_target)
    test = (scale(test[0]), test[1] - mean_target)
    net = MLP.init(
        4, 4, 4, 1, initialiser=ntk_parametrisation(weight=2**0.5, bias=0.3), key=key_net
    )
    process = GaussianProcess.init(
        ConstantKernel.init(variance) * infinite_width_limit(net).nngp, noise=variance / 4
    )
    process = fit_hyperparameters(process, *train, max_steps=20, tolerance=0.1).model
    coverage = interval_coverage(*predict_observations(process, train, test[0]), test[1])
    results |= {
        "error": coverage.rmse,
        "spread": float(np.std(test[1])),
        "calibration": coverage.error,
    }
    print(
        f"fifth row: RMSE {coverage.rmse:.2f}, standard deviation of the targets "
        f"{results['spread']:.2f}; calibration error of the intervals {100 * coverage.error:.1f} %"
    )

    output = Path(folder or tempfile.mkdtemp())
    band = {"± 2 standard deviations": (t, mean - 2 * std, mean + 2 * std)}
    panel = Panel(
        "x", "y", bands=band, lines={"mean": (t, mean)}, points={"observations": (xs, ys)}
    )
    draw(Chart(panel)).savefig(output / "posterior.png", dpi=150)
    draw(coverage).savefig(output / "intervals.png", dpi=150)
    print(f"figures in {output}: posterior.png and intervals.png")
    return results


if __name__ == "__main__":
    main(*sys.argv[1:2])

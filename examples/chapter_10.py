"""Chapter 10: a belief about functions, from a draw of the prior to intervals that hold what they
promise.

Expect the evidence to find a length and a noise near the true ones, a few inducing places to lose
next to none of it, and a network of infinite width, which needs no training, to know what it does
not know. `python chapter_10.py FOLDER` keeps the pictures there, otherwise they go to a temporary
folder.
"""

import sys
import tempfile
from pathlib import Path

import jax.random as jr
import numpy as np

from thetax import data
from thetax.bayes import RBF, Constant, GaussianProcess, InducingProcess, fit_evidence
from thetax.explain import infinite, intervals
from thetax.layers import tangent
from thetax.models import MLP
from thetax.plot import Chart, Panel, draw


def forecast(process, train, xs):
    """Mean and standard deviation of an observation at each of `xs`."""
    believed = process.condition(*train)
    return np.asarray(believed.mean(xs)), np.sqrt(
        np.asarray(believed.variance(xs)) + float(process.noise)
    )


def main(folder: str | None = None, examples: int = 600) -> dict[str, float]:
    key_truth, key_noise, key_split, key_net = jr.split(jr.key(0), 4)
    found = {}

    # §10.2: a function drawn from a prior, seen through noise; the evidence finds what it was drawn
    # from
    truth = GaussianProcess.init(RBF.init(length=0.7), noise=0.04)
    xs = np.linspace(0.0, 10.0, 60)
    f = np.asarray(truth.sample(xs, 1, key=key_truth))[0]
    ys = f + 0.2 * np.asarray(jr.normal(key_noise, (60,)))
    fitted = fit_evidence(
        GaussianProcess.init(RBF.init(length=3.0), noise=1.0), xs, ys, steps=60, tolerance=1e-3
    )
    found |= {
        "length": float(np.exp(fitted.model.kernel.log_length)),
        "noise": float(fitted.model.noise),
    }
    print(
        f"drawn with length 0.7 and noise 0.04; most evidence at {found['length']:.2f} and "
        f"{found['noise']:.3f}"
    )

    # the posterior, and the same through a few places
    t = np.linspace(0.0, 12.0, 200)
    mean, deviation = forecast(fitted.model, (xs, ys), t)
    few = InducingProcess.init(fitted.model, xs, count=20)
    found["lost"] = float(fitted.evidence - float(few.log_evidence(xs, ys)))
    print(f"twenty inducing places lose {found['lost']:.2f} nats of evidence")

    # a network of infinite width on real data: the ink in a row of a handwritten digit, from the
    # four rows above it
    images, _ = data.load("digits").train
    ink = images[:examples].sum(axis=2)
    train, test = data.split((ink[:, :4], ink[:, 4]), 0.5, key=key_split)
    scale = data.Standardise.fit(train[0])
    level = train[1].mean()
    variance = float(train[1].var())
    train = (scale(train[0]), train[1] - level)
    test = (scale(test[0]), test[1] - level)
    net = MLP.init(4, 4, 4, 1, initialiser=tangent(weight=2**0.5, bias=0.3), key=key_net)
    process = GaussianProcess.init(Constant.init(variance) * infinite(net).nngp, noise=variance / 4)
    judged = intervals(
        *forecast(fit_evidence(process, *train, steps=20, tolerance=0.1).model, train, test[0]),
        test[1],
    )
    found |= {"error": judged.rmse, "spread": float(np.std(test[1])), "off": judged.error}
    print(
        f"ink in the fifth row: error {judged.rmse:.2f}, while rows differ by "
        f"{found['spread']:.2f}; intervals of "
        f"any level hold the truth as often as they say to within {100 * judged.error:.1f} %"
    )

    place = Path(folder or tempfile.mkdtemp())
    band = {"± 2 standard deviations": (t, mean - 2 * deviation, mean + 2 * deviation)}
    panel = Panel("x", "y", bands=band, lines={"belief": (t, mean)}, points={"seen": (xs, ys)})
    draw(Chart(panel)).savefig(place / "belief.png", dpi=150)
    draw(judged).savefig(place / "intervals.png", dpi=150)
    print(f"drawn in {place}: belief.png and intervals.png")
    return found


if __name__ == "__main__":
    main(*sys.argv[1:2])

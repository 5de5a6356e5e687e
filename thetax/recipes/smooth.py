"""Digits named with a proof (§13): a network that knows noise, its votes, and the radius that they
certify.
"""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray
from scipy.special import ndtri

from .. import data
from ..attack import PGD, margin_loss, perturb, untargeted
from ..certify import (
    CertifiedRadii,
    clopper_pearson_lower_bound,
    gaussian_noise,
    randomised_smoothing,
)
from ..core import Batch, Model, predict
from ..threat import L2
from ..train import augmented, cross_entropy
from .engine.job import Job, positive, recipe
from .engine.outcome import Outcome
from .robust_mnist import strided
from .shared.classify import classify, percent_wrong
from .shared.images import pictures

HELD_OUT = 1 / 60  # of the training images, for validation: 1,000
RADII = (0.25, 0.5, 1.0)
STEPS = 40  # of the attacks
CHOOSE = 100  # draws that choose the class, before others count it


@recipe
def smooth(
    job: Job,
    *,
    noise: float = 0.5,
    judged: int = 200,
    draws: int = 1000,
    failure: float = 0.001,
    channels: tuple[int, ...] = (32, 64),
    hidden: int = 128,
    rate: float = 2e-3,
    epochs: int = 8,
    batch: int = 128,
) -> Outcome:
    """A network for MNIST that is proven right in Euclidean balls, by chance, in about five minutes
    on two cores.

    It is trained with noise. Smoothed, it says what it says most often of an image with noise
    added, and the more often, the farther around the image that is proven. Beside it stands what an
    attack leaves of the network itself.

    Parameters
    ----------
    noise
        Standard deviation of the noise, in training and in the votes; pixels go from 0 to 1.
    judged
        Test images that are certified and attacked.
    draws
        Votes on an image.
    failure
        Probability that the certificate of an image is wrong, at most.
    channels
        Of the convolutions, each of which halves height and width.
    hidden
        Width of the hidden layer.
    rate
        Initial learning rate of Adam; it falls to zero along a cosine.
    epochs
        Passes over the training set.
    batch
        Examples in a batch.
    """
    positive(noise=noise, judged=judged, draws=draws, rate=rate, epochs=epochs, batch=batch)
    if not 0 < failure < 1:
        raise ValueError(f"failure is a probability, between 0 and 1; got {failure}.")
    if (most := farthest(noise, draws, failure)) == 0:
        raise ValueError(
            f"draws={draws} that all agree prove nothing at failure={failure}; give more."
        )
    key_valid, key_init, key_fit, key_votes = jr.split(job.key, 4)
    full = pictures(job, "mnist")
    assert full.test is not None
    train, valid = data.split(full.train, 1 - HELD_OUT, key=key_valid, by=full.train[1])
    objective = augmented(cross_entropy, gaussian_noise(noise))
    found = classify(
        job,
        strided(channels, hidden, key=key_init),
        train,
        valid,
        objective=objective,
        rate=rate,
        epochs=epochs,
        batch=batch,
        key=key_fit,
        run=job.run,
    )
    some = tuple(jnp.asarray(part[:judged]) for part in full.test)
    proven = job.remember(
        "votes", lambda: _votes(job, found.model, some, noise, draws, failure, key=key_votes)
    )
    stands = job.remember("attack", lambda: _attacked(job, found.model, some))["stands"]
    radius = np.array(proven["radius"], float)
    right = np.array(proven["right"], bool)
    measured = CertifiedRadii(np.where(right, radius, 0.0), np.array(RADII), np.array(stands), most)
    table = {
        "smoothed network": {
            "test error %": 100 * float(np.mean(~right)),
            "abstained %": 100 * float(np.mean(radius == 0)),
            **{f"right within {r:g} %": 100 * float(measured.proven(r)) for r in RADII},
        },
        "network": {
            "test error %": percent_wrong(found.model, full.test),
            **{f"right within {r:g} %": 100 * share for r, share in zip(RADII, stands)},
        },
    }
    return Outcome(
        found.model,
        train,
        full.test,
        objective,
        found.history,
        full.classes,
        table,
        found.reason,
        found.seconds,
        start=found.start,
        measured=measured,
    )


def farthest(noise: float, draws: int, failure: float) -> float:
    r"""The radius that is proven if all draws agree, $\sigma\, \Phi^{-1}(\alpha^{1/n})$; 0 if that
    is too few.

    >>> round(farthest(0.5, 1000, 0.001), 3), farthest(0.5, 9, 0.001)
    (1.232, 0.0)
    """
    p = float(clopper_pearson_lower_bound(draws, draws, failure=failure))
    return float(noise * ndtri(p)) if p > 0.5 else 0.0


def _votes(
    job: Job,
    model: Model,
    some: Batch,
    noise: float,
    draws: int,
    failure: float,
    *,
    key: PRNGKeyArray,
) -> dict[str, list[float]]:
    """The radius that is proven for each image, and whether the label is right."""
    job.say(f"certifying {len(some[1]):,} test images, with {CHOOSE + draws:,} votes on each")
    found = randomised_smoothing(
        model, some[0], noise=noise, choose=CHOOSE, draws=draws, failure=failure, key=key
    )
    return {
        "radius": found.radius.tolist(),
        "right": (found.labels == np.asarray(some[1])).tolist(),
    }


def _attacked(job: Job, model: Model, some: Batch) -> dict[str, list[float]]:
    """The share of the images that ascent within each radius leaves right, without noise."""
    job.say("attacking them without the noise")
    xs, ys = some
    stands = []
    for radius in RADII:
        ascent = PGD(
            untargeted(margin_loss),
            L2(radius),
            step_size=2.5 * radius / STEPS,
            steps=STEPS,
            box=(0.0, 1.0),
        )
        worst = perturb(ascent, model, (xs, ys))
        stands.append(float((jnp.argmax(predict(model, worst), axis=-1) == ys).mean()))
    return {"stands": stands}

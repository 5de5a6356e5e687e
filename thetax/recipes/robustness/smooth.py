"""Randomised smoothing (§13): certified radii for a network trained with Gaussian noise."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray
from scipy.special import ndtri

from ... import data
from ...attack import PGD, margin_loss, perturb, untargeted
from ...certify import (
    CertifiedRadii,
    clopper_pearson_lower_bound,
    gaussian_noise,
    randomised_smoothing,
)
from ...core import Batch, Model, predict
from ...threat import L2
from ...train import cross_entropy, with_augmentation
from ..engine.job import Job, check_positive, recipe
from ..engine.outcome import Outcome
from ..shared.classifier import fit_classifier, test_error_percent
from ..shared.images import load_images
from .robust_mnist import strided_cnn

VALID_FRACTION = 1 / 60  # of the training images: 1,000
RADII = (0.25, 0.5, 1.0)
ATTACK_STEPS = 40
N_SELECTION_SAMPLES = 100  # that select the class, before `n_samples` others count it


@recipe
def smooth(
    job: Job,
    *,
    noise: float = 0.5,
    n_test: int = 200,
    n_samples: int = 1000,
    failure_probability: float = 0.001,
    channels: tuple[int, ...] = (32, 64),
    hidden: int = 128,
    learning_rate: float = 2e-3,
    epochs: int = 8,
    batch_size: int = 128,
) -> Outcome:
    """Randomised smoothing on MNIST: certified accuracy in Euclidean balls.

    About five minutes on two cores. The network is trained with Gaussian noise. The smoothed
    classifier returns the class that the network predicts most often for an image with noise; the
    larger the share of these predictions, the larger the certified radius. The table also has the
    accuracy of the network under attack.

    Parameters
    ----------
    noise
        Standard deviation of the noise, in training and in smoothing; pixels lie in [0, 1].
    n_test
        Test images to certify and to attack.
    n_samples
        Monte-Carlo samples per image.
    failure_probability
        Maximum probability that the certificate of an image is wrong.
    hidden
        Width of the hidden layer.
    """
    check_positive(
        noise=noise,
        n_test=n_test,
        n_samples=n_samples,
        learning_rate=learning_rate,
        epochs=epochs,
        batch_size=batch_size,
    )
    if not 0 < failure_probability < 1:
        raise ValueError(f"failure_probability must lie in (0, 1); got {failure_probability}.")
    largest = max_radius(noise, n_samples, failure_probability)
    if largest == 0:
        raise ValueError(
            f"n_samples={n_samples} is too small to certify anything at failure_probability="
            f"{failure_probability}, even if all samples agree; use more."
        )
    key_valid, key_init, key_fit, key_samples = jr.split(job.key, 4)
    full = load_images(job, "mnist")
    assert full.test is not None
    train, valid = data.split(full.train, 1 - VALID_FRACTION, key=key_valid, stratify=full.train[1])
    objective = with_augmentation(cross_entropy, gaussian_noise(noise))
    result = fit_classifier(
        job,
        strided_cnn(channels, hidden, key=key_init),
        train,
        valid,
        objective=objective,
        learning_rate=learning_rate,
        epochs=epochs,
        batch_size=batch_size,
        key=key_fit,
        run=job.run,
    )
    test = tuple(jnp.asarray(part[:n_test]) for part in full.test)
    certified = job.cached(
        "certificates",
        lambda: _certify(
            job, result.model, test, noise, n_samples, failure_probability, key=key_samples
        ),
    )
    attacked = job.cached("attack", lambda: _accuracy_under_attack(job, result.model, test))
    accuracy = attacked["accuracy"]
    radii = np.array(certified["radii"], float)
    correct = np.array(certified["correct"], bool)
    measured = CertifiedRadii(
        np.where(correct, radii, 0.0), np.array(RADII), np.array(accuracy), largest
    )
    table = {
        "smoothed network": {
            "test error %": 100 * float(np.mean(~correct)),
            "abstained %": 100 * float(np.mean(radii == 0)),
            **{
                f"accuracy at L2 {r:g} %": 100 * float(measured.certified_accuracy(r))
                for r in RADII
            },
        },
        "network": {
            "test error %": test_error_percent(result.model, full.test),
            **{f"accuracy at L2 {r:g} %": 100 * share for r, share in zip(RADII, accuracy)},
        },
    }
    return Outcome.of_fit(
        result,
        train=train,
        test=full.test,
        objective=objective,
        classes=full.classes,
        table=table,
        start=result.start,
        measured=measured,
    )


def max_radius(noise: float, n_samples: int, failure_probability: float) -> float:
    r"""Certified radius if all samples agree, $\sigma\, \Phi^{-1}(\alpha^{1/n})$; 0 for too few.

    >>> round(max_radius(0.5, 1000, 0.001), 3), max_radius(0.5, 9, 0.001)
    (1.232, 0.0)
    """
    p = float(
        clopper_pearson_lower_bound(n_samples, n_samples, failure_probability=failure_probability)
    )
    return float(noise * ndtri(p)) if p > 0.5 else 0.0


def _certify(
    job: Job,
    model: Model,
    test: Batch,
    noise: float,
    n_samples: int,
    failure_probability: float,
    *,
    key: PRNGKeyArray,
) -> dict[str, list[float]]:
    """Certified radius of each image, and whether the smoothed prediction is correct."""
    job.note(
        f"certifying {len(test[1]):,} test images, {N_SELECTION_SAMPLES + n_samples:,} samples each"
    )
    result = randomised_smoothing(
        model,
        test[0],
        noise=noise,
        n_selection_samples=N_SELECTION_SAMPLES,
        n_samples=n_samples,
        failure_probability=failure_probability,
        key=key,
    )
    return {
        "radii": result.radii.tolist(),
        "correct": (result.labels == np.asarray(test[1])).tolist(),
    }


def _accuracy_under_attack(job: Job, model: Model, test: Batch) -> dict[str, list[float]]:
    """Accuracy of the network without noise under PGD at each radius."""
    job.note("attacking the network without noise")
    xs, ys = test
    accuracy = []
    for radius in RADII:
        pgd = PGD(
            untargeted(margin_loss),
            L2(radius),
            step_size=2.5 * radius / ATTACK_STEPS,
            steps=ATTACK_STEPS,
            box=(0.0, 1.0),
        )
        adversarial = perturb(model, (xs, ys), pgd)
        accuracy.append(float((jnp.argmax(predict(model, adversarial.xs), axis=-1) == ys).mean()))
    return {"accuracy": accuracy}

"""Randomised smoothing of a linear classifier, where the true radius is the distance to the
boundary.
"""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.stats import binom, binomtest, norm

from thetax.certify import (
    clopper_pearson_lower_bound,
    gaussian_noise,
    randomised_smoothing,
    vote_counts,
)
from thetax.layers import BatchNorm, Linear
from thetax.train import squared_error, with_augmentation

LINE = Linear(jnp.array([[0.0, 0.0], [3.0, 4.0]]), jnp.zeros(2))  # class 1 where 3 a + 4 b > 0


@pytest.mark.parametrize(
    ("successes", "n_samples"), [(0, 10), (1, 10), (7, 10), (10, 10), (990, 1000)]
)
def test_the_bound_is_that_of_clopper_and_pearson(successes, n_samples):
    found = float(clopper_pearson_lower_bound(successes, n_samples, failure_probability=0.01))
    test = binomtest(successes, n_samples, alternative="greater").proportion_ci(
        0.99, method="exact"
    )
    assert found == pytest.approx(test.low, abs=1e-12)
    if successes:
        assert binom.sf(successes - 1, n_samples, found) == pytest.approx(0.01)


def test_radius_of_a_linear_classifier_approaches_the_distance_from_below():
    """p = Φ(distance / σ): the counts are binomial, and the radius exceeds the distance with
    probability 0.001.
    """
    distances = np.array([0.05, 0.2, 0.4, -0.3])
    xs = jnp.asarray(distances[:, None] * np.array([[0.6, 0.8]]), jnp.float32)
    found = randomised_smoothing(LINE, xs, noise=0.25, key=jr.key(0), n_samples=20_000)
    assert found.labels.tolist() == [1, 1, 1, 0]
    assert (found.radii < np.abs(distances)).all()
    assert (found.radii > np.abs(distances) - 0.02).all()
    p = norm.cdf(np.abs(distances) / 0.25)
    assert (np.abs(found.counts / 20_000 - p) < 4 * np.sqrt(p * (1 - p) / 20_000)).all()
    assert found.accuracy([1, 1, 0, 0]) == 0.75
    assert found.accuracy([1, 1, 1, 0], radius=0.25) == 0.5


def test_ties_abstain_and_the_radius_is_limited_by_the_samples():
    found = randomised_smoothing(
        LINE,
        jnp.array([[0.0, 0.0], [9.0, 9.0]]),
        noise=0.25,
        key=jr.key(0),
        n_samples=500,
        failure_probability=0.01,
    )
    assert found.labels.tolist() == [-1, 1]
    assert found.radii[0] == 0
    assert found.radii[1] == pytest.approx(0.25 * norm.ppf(0.01 ** (1 / 500)))


def test_the_bound_fails_with_at_most_the_stated_probability():
    """Exactly over all counts, and with samples of the classifier itself."""
    n_samples = 100
    failure_probability = 0.05
    x = jnp.array([0.06, 0.08])
    p = norm.cdf(0.1 / 0.2)
    bounds = clopper_pearson_lower_bound(
        np.arange(n_samples + 1), n_samples, failure_probability=failure_probability
    )
    exact = binom.pmf(np.arange(n_samples + 1), n_samples, p)[bounds > p].sum()
    assert 0.01 < exact <= failure_probability
    seen = vote_counts(LINE, x, noise=0.2, n_samples=60_000, key=jr.key(2))[1] / 60_000
    assert abs(seen - p) < 4 * np.sqrt(p * (1 - p) / 60_000)
    repeated = [
        vote_counts(LINE, x, noise=0.2, n_samples=n_samples, key=key)[1]
        for key in jr.split(jr.key(3), 400)
    ]
    failed = (
        clopper_pearson_lower_bound(
            np.array(repeated), n_samples, failure_probability=failure_probability
        )
        > p
    ).mean()
    assert failed <= failure_probability + 3 * np.sqrt(
        failure_probability * (1 - failure_probability) / 400
    )


def test_training_with_noise():
    noisy = with_augmentation(squared_error, gaussian_noise(0.5))
    batch = jnp.zeros((4000, 1)), jnp.zeros((4000, 1))
    assert float(noisy(lambda x: x, batch, key=jr.key(0))) == pytest.approx(
        0.125, rel=0.1
    )  # half the variance


def test_bad_input_is_refused(unchecked):
    with pytest.raises(ValueError, match="noise must be positive"):
        randomised_smoothing(LINE, jnp.zeros((1, 2)), noise=0.0, key=jr.key(0))
    with pytest.raises(ValueError, match="Fold it into the model first: fold"):
        randomised_smoothing(BatchNorm.init(2), jnp.zeros((1, 2)), noise=1.0, key=jr.key(0))
    with pytest.raises(ValueError, match="between 0 and n_samples=5"):
        clopper_pearson_lower_bound(6, 5, failure_probability=0.1)

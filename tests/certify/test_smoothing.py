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
from thetax.train import augmented, squared_error

LINE = Linear(jnp.array([[0.0, 0.0], [3.0, 4.0]]), jnp.zeros(2))  # class 1 where 3 a + 4 b > 0


@pytest.mark.parametrize(("successes", "draws"), [(0, 10), (1, 10), (7, 10), (10, 10), (990, 1000)])
def test_the_bound_is_that_of_clopper_and_pearson(successes, draws):
    found = float(clopper_pearson_lower_bound(successes, draws, failure=0.01))
    test = binomtest(successes, draws, alternative="greater").proportion_ci(0.99, method="exact")
    assert found == pytest.approx(test.low, abs=1e-12)
    if successes:
        assert binom.sf(successes - 1, draws, found) == pytest.approx(0.01)


def test_of_a_linear_classifier_the_radius_nears_the_distance_from_below():
    """p = Φ(distance / σ): the counts are binomial, and the radius stays below the distance at one
    in a thousand.
    """
    distances = np.array([0.05, 0.2, 0.4, -0.3])
    xs = jnp.asarray(distances[:, None] * np.array([[0.6, 0.8]]), jnp.float32)
    found = randomised_smoothing(LINE, xs, noise=0.25, key=jr.key(0), draws=20_000)
    assert found.labels.tolist() == [1, 1, 1, 0]
    assert (found.radius < np.abs(distances)).all()
    assert (found.radius > np.abs(distances) - 0.02).all()
    p = norm.cdf(np.abs(distances) / 0.25)
    assert (np.abs(found.counts / 20_000 - p) < 4 * np.sqrt(p * (1 - p) / 20_000)).all()
    assert found.accuracy([1, 1, 0, 0]) == 0.75
    assert found.accuracy([1, 1, 1, 0], radius=0.25) == 0.5


def test_a_tie_is_not_decided_and_certainty_has_its_limit():
    found = randomised_smoothing(
        LINE,
        jnp.array([[0.0, 0.0], [9.0, 9.0]]),
        noise=0.25,
        key=jr.key(0),
        draws=500,
        failure=0.01,
    )
    assert found.labels.tolist() == [-1, 1]
    assert found.radius[0] == 0
    assert found.radius[1] == pytest.approx(0.25 * norm.ppf(0.01 ** (1 / 500)))


def test_the_bound_fails_as_rarely_as_it_says():
    """Over all counts with their exact law, and over draws of the classifier itself."""
    draws = 100
    failure = 0.05
    x = jnp.array([0.06, 0.08])
    p = norm.cdf(0.1 / 0.2)
    bounds = clopper_pearson_lower_bound(np.arange(draws + 1), draws, failure=failure)
    exact = binom.pmf(np.arange(draws + 1), draws, p)[bounds > p].sum()
    assert 0.01 < exact <= failure
    seen = vote_counts(LINE, x, noise=0.2, draws=60_000, key=jr.key(2))[1] / 60_000
    assert abs(seen - p) < 4 * np.sqrt(p * (1 - p) / 60_000)
    repeated = [
        vote_counts(LINE, x, noise=0.2, draws=draws, key=key)[1] for key in jr.split(jr.key(3), 400)
    ]
    failed = (clopper_pearson_lower_bound(np.array(repeated), draws, failure=failure) > p).mean()
    assert failed <= failure + 3 * np.sqrt(failure * (1 - failure) / 400)


def test_the_noise_can_be_trained_with():
    noisy = augmented(squared_error, gaussian_noise(0.5))
    batch = jnp.zeros((4000, 1)), jnp.zeros((4000, 1))
    assert float(noisy(lambda x: x, batch, key=jr.key(0))) == pytest.approx(
        0.125, rel=0.1
    )  # half the variance


def test_bad_input_is_refused(unchecked):
    with pytest.raises(ValueError, match="noise must be positive"):
        randomised_smoothing(LINE, jnp.zeros((1, 2)), noise=0.0, key=jr.key(0))
    with pytest.raises(ValueError, match="fold it in"):
        randomised_smoothing(BatchNorm.init(2), jnp.zeros((1, 2)), noise=1.0, key=jr.key(0))
    with pytest.raises(ValueError, match="between 0 and draws=5"):
        clopper_pearson_lower_bound(6, 5, failure=0.1)

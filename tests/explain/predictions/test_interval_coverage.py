"""Normal forecasts: scores and coverage against scipy and by counting."""

import numpy as np
import pytest
from scipy import stats

from thetax.explain import intervals


@pytest.fixture
def forecast():
    rng = np.random.default_rng(0)
    mean = rng.normal(size=50)
    deviation = rng.uniform(0.5, 2.0, size=50)
    return mean, deviation, mean + deviation * rng.normal(size=50)


def test_scores_and_coverage_are_those_of_scipy(forecast):
    mean, deviation, truth = forecast
    found = intervals(*forecast, levels=(0.5, 0.9))
    normal = stats.norm(mean, deviation)
    assert found.nlpd == pytest.approx(-normal.logpdf(truth).mean())
    assert found.rmse == pytest.approx(np.linalg.norm(truth - mean) / np.sqrt(50))
    for level, share in zip(found.levels, found.coverage):
        low, high = normal.interval(level)
        assert share == np.mean([a <= y <= b for a, y, b in zip(low, truth, high)])
        assert found.half(level) == pytest.approx((high - low) / 2)
    assert found.error == pytest.approx(np.mean(np.abs(found.coverage - [0.5, 0.9])))


def test_a_calibrated_forecast_is_within_chance_and_a_sure_one_is_not():
    rng = np.random.default_rng(1)
    truth = rng.normal(size=4000)
    honest = intervals(np.zeros(4000), np.ones(4000), truth)
    sure = intervals(np.zeros(4000), np.full(4000, 0.8), truth)
    assert (np.abs(honest.coverage - honest.levels) < 4 * honest.chance).all()
    assert (sure.coverage < sure.levels - 4 * sure.chance).sum() > 15
    assert sure.nlpd > honest.nlpd


@pytest.mark.usefixtures("unchecked")
def test_bad_forecasts_are_refused(forecast):
    mean, deviation, truth = forecast
    with pytest.raises(ValueError, match="one number an example each"):
        intervals(mean[:-1], deviation, truth)
    with pytest.raises(ValueError, match="must be positive"):
        intervals(mean, 0 * deviation, truth)
    with pytest.raises(ValueError, match="must be positive"):
        intervals(mean, np.full(50, np.nan), truth)
    with pytest.raises(ValueError, match="between 0 and 1"):
        intervals(mean, deviation, truth, levels=(0.5, 1.0))

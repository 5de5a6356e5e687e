"""Normal forecasts: scores and coverage against scipy and by counting."""

import numpy as np
import pytest
from scipy import stats

from thetax.explain import interval_coverage


@pytest.fixture
def forecast():
    rng = np.random.default_rng(0)
    mean = rng.normal(size=50)
    deviation = rng.uniform(0.5, 2.0, size=50)
    return mean, deviation, mean + deviation * rng.normal(size=50)


def test_scores_and_coverage_are_those_of_scipy(forecast):
    mean, deviation, truth = forecast
    found = interval_coverage(*forecast, levels=(0.5, 0.9))
    normal = stats.norm(mean, deviation)
    assert found.nlpd == pytest.approx(-normal.logpdf(truth).mean())
    assert found.rmse == pytest.approx(np.linalg.norm(truth - mean) / np.sqrt(50))
    for level, share in zip(found.levels, found.coverage):
        low, high = normal.interval(level)
        assert share == np.mean([a <= y <= b for a, y, b in zip(low, truth, high)])
        assert found.half_width(level) == pytest.approx((high - low) / 2)
    assert found.error == pytest.approx(np.mean(np.abs(found.coverage - [0.5, 0.9])))


def test_calibrated_forecast_has_nominal_coverage_and_overconfident_one_does_not():
    rng = np.random.default_rng(1)
    truth = rng.normal(size=4000)
    honest = interval_coverage(np.zeros(4000), np.ones(4000), truth)
    sure = interval_coverage(np.zeros(4000), np.full(4000, 0.8), truth)
    assert (np.abs(honest.coverage - honest.levels) < 4 * honest.coverage_std).all()
    assert (sure.coverage < sure.levels - 4 * sure.coverage_std).sum() > 15
    assert sure.nlpd > honest.nlpd


@pytest.mark.usefixtures("unchecked")
def test_bad_forecasts_are_rejected(forecast):
    mean, deviation, truth = forecast
    with pytest.raises(
        ValueError,
        match=r"mean, std and truth must have the same shape \(n,\); got \(49,\), \(50,\)",
    ):
        interval_coverage(mean[:-1], deviation, truth)
    with pytest.raises(ValueError, match="must be positive"):
        interval_coverage(mean, 0 * deviation, truth)
    with pytest.raises(ValueError, match="must be positive"):
        interval_coverage(mean, np.full(50, np.nan), truth)
    with pytest.raises(ValueError, match="between 0 and 1"):
        interval_coverage(mean, deviation, truth, levels=(0.5, 1.0))

"""Lenses on a Gaussian process: predictions with intervals, and the relevance of each input."""

from typing import Any

import jax
import numpy as np

from ... import explain
from ...bayes import GaussianProcess
from ...plot import DotColumn, DotPlot
from ...recipes.engine.outcome import Outcome
from ...recipes.kernels.gp import predict_observations
from ..registry import format_percent, lens


def _interval_metrics(result: explain.predictions.IntervalCoverage) -> dict[str, str]:
    share = lambda level: format_percent(
        float(result.coverage[np.abs(result.levels - level).argmin()])
    )
    return {
        "root mean squared error": f"{result.rmse:.4g}",
        "negative log density": f"{result.nlpd:.4g} nats",
        "coverage of 50 %, 80 %, 95 % intervals": ", ".join(map(share, (0.5, 0.8, 0.95))),
        "mean calibration error of the intervals": format_percent(result.error),
    }


@lens(
    "Prediction intervals and their coverage",
    description="Left: predicted against true values of the test examples, with 95 % prediction "
    "intervals (posterior variance plus noise). Right: the empirical coverage of intervals of "
    "every level; a calibrated model follows the dashed line, and the grey band is the sampling "
    "variation to expect.",
    of="gaussian_process",
    metrics=_interval_metrics,
)
def _intervals(outcome: Outcome) -> explain.predictions.IntervalCoverage:
    xs, ys = outcome.test
    return explain.interval_coverage(*predict_observations(outcome.model, outcome.train, xs), ys)


def _length_scales(process: GaussianProcess) -> np.ndarray:
    """The length scales of the kernel, one per input; a scalar 0 if it has none."""
    has_scale = lambda part: getattr(part, "log_length_scale", None) is not None
    parts = [part for part in jax.tree.leaves(process.kernel, is_leaf=has_scale) if has_scale(part)]
    return np.exp(np.asarray(parts[0].log_length_scale)) if parts else np.zeros(())


def _relevance_metrics(result: DotPlot) -> dict[str, str]:
    dots: dict[str, Any] = dict(result.columns[0].dots)
    first, *_, last = dots
    return {
        "most relevant": first,
        "least relevant": last,
        "ratio": f"{dots[first][0] / dots[last][0]:.3g}",
    }


@lens(
    "Feature relevance (ARD)",
    description="Automatic relevance determination: the inverse length scale of each input, in "
    "units of its standard deviation. Maximising the marginal likelihood makes the length scale of "
    "an irrelevant input long, so its inverse is near 0.",
    applies=lambda outcome: _length_scales(outcome.model).size > 1,
    of="gaussian_process",
    metrics=_relevance_metrics,
)
def _relevance(outcome: Outcome) -> DotPlot:
    shares = 1 / _length_scales(outcome.model)
    names = outcome.features or tuple(f"x{j + 1}" for j in range(len(shares)))
    return DotPlot(
        DotColumn(
            "1 / length scale", {names[j]: (float(shares[j]), 0.0) for j in np.argsort(-shares)}
        )
    )

"""Lenses on a Gaussian process: what it foretells and how sure it is, and which inputs it looks
at.
"""

from typing import Any

import jax
import numpy as np

from ... import explain
from ...bayes import GaussianProcess
from ...plot import DotColumn, DotPlot
from ...recipes.engine.outcome import Outcome
from ...recipes.gp import foretell
from ..registry import format_percent, lens


def _kept(result: explain.Intervals) -> dict[str, str]:
    share = lambda level: format_percent(
        float(result.coverage[np.abs(result.levels - level).argmin()])
    )
    return {
        "root mean squared error": f"{result.rmse:.4g}",
        "negative log density": f"{result.nlpd:.4g} nats",
        "inside 50 %, 80 %, 95 % intervals": ", ".join(map(share, (0.5, 0.8, 0.95))),
        "off the level, on average": format_percent(result.error),
    }


@lens(
    "Forecasts and their intervals",
    says="Each test example is foretold with a normal distribution: the belief about the function "
    "there, and the noise of an observation. On the left the forecasts, with bars that should hold "
    "the truth 95 times in a hundred; on the right how often intervals of every level do, with the "
    "range that chance alone would leave a calibrated forecast.",
    of="process",
    tells=_kept,
)
def _forecasts(outcome: Outcome) -> explain.Intervals:
    xs, ys = outcome.test
    return explain.intervals(*foretell(outcome.model, outcome.train, xs), ys)


def _lengths(process: GaussianProcess) -> np.ndarray:
    """The lengths of its kernel, one for each input; none where there are no such."""
    node = lambda part: getattr(part, "log_length", None) is not None
    found = [part for part in jax.tree.leaves(process.kernel, is_leaf=node) if node(part)]
    return np.exp(np.asarray(found[0].log_length)) if found else np.zeros(())


def _relevant(result: DotPlot) -> dict[str, str]:
    dots: dict[str, Any] = dict(result.columns[0].dots)
    first, *_, last = dots
    return {
        "looked at most": first,
        "least": last,
        "ratio": f"{dots[first][0] / dots[last][0]:.3g}",
    }


@lens(
    "Which inputs matter",
    says="Each input has a length of its own, how far one must go along it for the function to "
    "change, in standard deviations of the input. The evidence makes it long for an input that "
    "says nothing, and 1 / length small.",
    applies=lambda outcome: _lengths(outcome.model).size > 1,
    of="process",
    tells=_relevant,
)
def _relevance(outcome: Outcome) -> DotPlot:
    shares = 1 / _lengths(outcome.model)
    names = outcome.features or tuple(f"x{j + 1}" for j in range(len(shares)))
    return DotPlot(
        DotColumn("1 / length", {names[j]: (float(shares[j]), 0.0) for j in np.argsort(-shares)})
    )

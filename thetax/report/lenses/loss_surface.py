"""Lenses on descent: the loss around the parameters, and how fast the training loss fell."""

from typing import Any

import jax
import jax.random as jr
import numpy as np

from ... import explain
from ...recipes.engine.outcome import Outcome
from ..registry import MAX_CURVATURE_EXAMPLES, lens
from .basic import bent

MAX_LANDSCAPE_EXAMPLES = 500  # examples for the landscape
LANDSCAPE_POINTS = 25  # points along each direction of it


def _heights(result: explain.Landscape) -> dict[str, str]:
    finite = result.losses[np.isfinite(result.losses)]
    return {
        "loss at θ": f"{result.loss:.4g}",
        "lowest on the plane": f"{finite.min():.4g}",
        "highest on the plane": f"{finite.max():.4g}",
    }


@lens(
    "Loss landscape",
    says=f"The training loss, on at most {MAX_LANDSCAPE_EXAMPLES} examples, on a plane through the "
    "final parameters. Two directions span it, random but for their scale: one unit adds to each "
    "filter a random one of its own length, so that networks can be compared (Li et al. 2018).",
    applies=lambda outcome: any(leaf.ndim > 1 for leaf in jax.tree.leaves(outcome.model)),
    tells=_heights,
)
def _landscape(outcome: Outcome) -> explain.Landscape:
    first, second = (
        explain.filter_normalised(outcome.model, key=key) for key in jr.split(jr.key(0))
    )
    grid = np.linspace(-1, 1, LANDSCAPE_POINTS)
    batch = bent(outcome, MAX_LANDSCAPE_EXAMPLES)
    return explain.landscape(
        outcome.objective, outcome.model, batch, along=(first, second), alphas=grid, betas=grid
    )


def _losses(outcome: Outcome) -> Any:
    return explain.curves(outcome.history).panels.get("loss", {}).get("train", np.zeros(0))


def _rate(result: explain.Trajectory) -> dict[str, str]:
    decay, L = result.decay, result.smoothness
    laws = {
        "as a geometric decay": f"× {decay.factor:.4g} an epoch",
        "as a power of the epoch": f"epoch to the power {-decay.power:.3g}".replace("-", "−"),
    }
    return laws | {
        "nearer": "the geometric decay" if decay.law == "geometric" else "the power",
        "largest curvature at the end, L": f"{L.constant:.4g}",
        "plain descent is stable below 2/L": f"{L.rate:.3g}",
    }


@lens(
    "How fast the loss fell",
    says="The rate at which the training loss fell along the optimiser's trajectory, by the "
    "straight line nearest to it in either logarithm: a straight line against the epoch is "
    "geometric decay, as theory has it where the gradient dominates the loss; one against its "
    "logarithm is a power, as for merely convex losses. The curvature is that at the final "
    f"parameters, on at most {MAX_CURVATURE_EXAMPLES:,} training examples, or on fewer where they "
    "are slow on a CPU; a rate above 2/L makes plain gradient descent leave this minimum, while "
    "adaptive methods scale their steps.",
    applies=lambda outcome: bool((_losses(outcome) > 0).sum() >= 2),
    tells=_rate,
)
def _trajectory(outcome: Outcome) -> explain.Trajectory:
    stack = jax.tree.map(lambda leaf: leaf[None], outcome.model)
    bends = explain.smoothness(outcome.objective, stack, bent(outcome), key=jr.key(0))
    return explain.trajectory(_losses(outcome), bends)

"""Lenses on optimisation: the loss landscape, and the convergence rate of the training loss."""

from typing import Any

import jax
import jax.random as jr
import numpy as np

from ... import explain
from ...recipes.engine.outcome import Outcome
from ..registry import MAX_CURVATURE_EXAMPLES, lens
from .basic import curvature_examples

MAX_LANDSCAPE_EXAMPLES = 500  # examples for the landscape
LANDSCAPE_POINTS = 25  # grid points along each direction of the landscape


def _landscape_metrics(result: explain.loss_surface.LossLandscape) -> dict[str, str]:
    finite = result.losses[np.isfinite(result.losses)]
    return {
        "loss at the final parameters": f"{result.loss:.4g}",
        "lowest on the plane": f"{finite.min():.4g}",
        "highest on the plane": f"{finite.max():.4g}",
    }


@lens(
    "Loss landscape",
    description=f"The training loss (on at most {MAX_LANDSCAPE_EXAMPLES} examples) on a random "
    "plane through the final parameters. The two directions are filter-normalised: one unit "
    "perturbs each filter by its own norm, so that networks can be compared (Li et al. 2018).",
    applies=lambda outcome: any(leaf.ndim > 1 for leaf in jax.tree.leaves(outcome.model)),
    metrics=_landscape_metrics,
)
def _landscape(outcome: Outcome) -> explain.loss_surface.LossLandscape:
    first, second = (
        explain.filter_normalised_direction(outcome.model, key=key) for key in jr.split(jr.key(0))
    )
    grid = np.linspace(-1, 1, LANDSCAPE_POINTS)
    batch = curvature_examples(outcome, MAX_LANDSCAPE_EXAMPLES)
    return explain.loss_landscape(
        outcome.objective, outcome.model, batch, directions=(first, second), alphas=grid, betas=grid
    )


def _training_losses(outcome: Outcome) -> Any:
    return explain.training_curves(outcome.history).panels.get("loss", {}).get("train", np.zeros(0))


def _rate_metrics(result: explain.loss_surface.TrainingConvergence) -> dict[str, str]:
    decay, L = result.rate, result.smoothness
    laws = {
        "geometric fit": f"× {decay.factor:.4g} per epoch",
        "power-law fit": f"epoch to the power {-decay.power:.3g}".replace("-", "−"),
    }
    return laws | {
        "better fit": "geometric" if decay.law == "geometric" else "power law",
        "smoothness L (largest curvature at the end)": f"{L.constant:.4g}",
        "largest stable learning rate 2/L": f"{L.max_learning_rate:.3g}",
    }


@lens(
    "Convergence rate of the training loss",
    description="Training loss after each epoch with the better of two fits: geometric decay "
    "(linear convergence), which theory predicts under gradient dominance (the Polyak-Łojasiewicz "
    "condition), or a power law, as for convex losses. L is the largest curvature at the final "
    f"parameters, on at most {MAX_CURVATURE_EXAMPLES:,} training examples (fewer for slow models "
    "on a CPU): plain gradient descent with a learning rate above 2/L is unstable at this minimum, "
    "while adaptive methods rescale their steps.",
    applies=lambda outcome: bool((_training_losses(outcome) > 0).sum() >= 2),
    metrics=_rate_metrics,
)
def _convergence(outcome: Outcome) -> explain.loss_surface.TrainingConvergence:
    stack = jax.tree.map(lambda leaf: leaf[None], outcome.model)
    smoothness = explain.smoothness(
        outcome.objective, stack, curvature_examples(outcome), key=jr.key(0)
    )
    return explain.training_convergence(_training_losses(outcome), smoothness)

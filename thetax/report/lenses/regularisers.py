"""Lenses on regularisation: effective parameters under weight decay, dropout as a regulariser,
uncertainty by MC dropout.
"""

from typing import Any

import jax
import jax.random as jr
import numpy as np

from ... import explain, tree
from ...core import Objective
from ...layers import DropConnect, Dropout
from ...plot import as_images
from ...recipes.engine.outcome import Outcome
from ..registry import (
    MAX_ACTIVATION_EXAMPLES,
    MAX_CPU_OPERATIONS,
    MAX_CURVATURE_EXAMPLES,
    format_percent,
    is_classifier,
    lens,
    subsample,
)
from .basic import affordable_examples, curvature_examples

N_EIGENVALUES = 12
PENALTY_MASKS = 30  # dropout masks for the penalty; each costs a forward pass and two derivatives
MC_DROPOUT_SAMPLES = 50
MAX_MC_DROPOUT_OPERATIONS = 200 * MAX_CPU_OPERATIONS  # operations of one sample for all examples


def without_weight_decay(outcome: Outcome) -> Objective:
    r"""The training objective without its weight decay: $\ell_\mu - \frac{\mu}{2}\|\theta\|^2$."""

    def loss(model: Any, batch: Any, *, key: Any = None) -> Any:
        return outcome.objective(model, batch, key=key) - outcome.decay / 2 * tree.dot(model, model)

    return loss


def _shrinkage_metrics(result: explain.signal.EffectiveParameters) -> dict[str, str]:
    factors = result.factors[result.curvatures > 0]
    metrics = {"strength μ": f"{result.strength:.3g}"}
    if factors.size:
        metrics |= {
            "shrinkage factor of the sharpest direction": format_percent(factors[0]),
            f"smallest factor of the {len(factors)} sharpest": format_percent(factors.min()),
        }
    share = 100 * result.effective / result.parameters
    return metrics | {"effective parameters": f"about {share:.2g} % of {result.parameters:,}"}


@lens(
    "Effective parameters under weight decay",
    description="Shrinkage factor λ / (λ + μ) of the minimiser along each eigenvector of the "
    "Hessian with eigenvalue (curvature) λ, for weight decay of strength μ. Directions of high "
    "curvature, which the data determine, are kept; flat ones are shrunk to 0. The sum of the "
    "factors is the effective number of parameters. To second order at the final parameters, on at "
    f"most {MAX_CURVATURE_EXAMPLES:,} training examples.",
    applies=lambda outcome: outcome.decay > 0,
    metrics=_shrinkage_metrics,
)
def _effective_parameters(outcome: Outcome) -> explain.signal.EffectiveParameters:
    batch = subsample(outcome.train, MAX_CURVATURE_EXAMPLES)
    return explain.effective_parameters(
        without_weight_decay(outcome),
        outcome.model,
        batch,
        strength=outcome.decay,
        n_eigenvalues=N_EIGENVALUES,
        key=jr.key(0),
    )


def describe_regularisation(outcome: Outcome) -> str:
    """The weight decay and dropout that a model was trained with, as text; empty if none.

    >>> from thetax.models import MLP
    >>> from thetax.train import cross_entropy
    >>> net = MLP.init(4, 8, 3, dropout=0.2, key=jr.key(0))
    >>> describe_regularisation(Outcome(net, (), (), cross_entropy, decay=1e-4))
    'weight decay 0.0001, dropout of 20 % of units'
    """
    is_dropout = lambda node: isinstance(node, Dropout | DropConnect)
    layers = [
        node
        for node in jax.tree.leaves(outcome.model, is_leaf=is_dropout)
        if is_dropout(node) and node.p > 0
    ]
    target = lambda node: "weights" if isinstance(node, DropConnect) else "units"
    dropped = dict.fromkeys(f"dropout of {100 * node.p:g} % of {target(node)}" for node in layers)
    return ", ".join([f"weight decay {outcome.decay:g}"] * (outcome.decay > 0) + list(dropped))


def _has_dropout(outcome: Outcome) -> bool:
    return "dropout" in describe_regularisation(outcome)


def _penalty_metrics(result: explain.predictions.DropoutPenalty) -> dict[str, str]:
    metrics = {
        "objective without dropout": f"{result.objective:.4g}",
        "penalty added by dropout": f"{result.value:.3g} ± {result.error:.1g}",
        "second-order approximation": f"{result.quadratic:.3g} ± {result.quadratic_error:.1g}",
    }
    if result.objective > 0:
        metrics["with dropout"] = f"{1 + result.value / result.objective:.3g} times the objective"
    return metrics


@lens(
    "Dropout as a regulariser",
    description="The penalty that dropout adds to the training objective: the mean objective over "
    "random masks minus the objective without dropout. To second order it is an adaptive weight "
    "decay, which penalises each unit by its squared activity times the curvature of the loss. "
    f"Estimated on at most {MAX_CURVATURE_EXAMPLES:,} training examples with {PENALTY_MASKS} masks "
    "each; where the two bars differ, higher orders matter.",
    applies=_has_dropout,
    metrics=_penalty_metrics,
)
def _penalty(outcome: Outcome) -> explain.predictions.DropoutPenalty:
    batch = curvature_examples(outcome)
    return explain.dropout_penalty(
        outcome.objective, outcome.model, batch, n_samples=PENALTY_MASKS, key=jr.key(0)
    )


def _uncertainty_metrics(result: explain.predictions.DropoutUncertainty) -> dict[str, str]:
    n = len(result.truth)
    mean = lambda values: f"{values.mean():.3g} nats" if values.size else "–"
    entropy, right = result.prediction.entropy, result.correct
    metrics = {
        "test error of the mean prediction": f"{format_percent(result.n_mistakes / n)} of {n:,}",
        "mean entropy, correct predictions": mean(entropy[right]),
        "mean entropy, mistakes": mean(entropy[~right]),
        "mutual information, share of the entropy": format_percent(
            result.prediction.mutual_information.mean() / max(entropy.mean(), 1e-12)
        ),
    }
    if not np.isnan(result.auroc):
        metrics["AUROC of the entropy for mistakes"] = f"{result.auroc:.3f}"
    return metrics


def _uncertain_rows(result: explain.predictions.DropoutUncertainty) -> list[dict[str, str]]:
    if as_images(result.x) is not None:
        return []
    p, predicted = result.prediction.probability, result.predicted
    return [
        {
            "example": str(i),
            "true class": result.classes[result.truth[i]],
            "predicted": result.classes[predicted[i]],
        }
        | {
            "confidence": f"{100 * p[i, predicted[i]]:.1f} %",
            "entropy": f"{result.prediction.entropy[i]:.3f} nats",
        }
        | {"mutual information": f"{result.prediction.mutual_information[i]:.3f} nats"}
        for i in result.indices
    ]


@lens(
    "Uncertainty by MC dropout",
    description=f"Predictive entropy of test examples, averaged over {MC_DROPOUT_SAMPLES} dropout "
    f"masks (Monte-Carlo dropout, at most {MAX_ACTIVATION_EXAMPLES:,} examples), for correct "
    "predictions and for mistakes. The mutual information is the part on which the masked networks "
    "disagree (epistemic uncertainty); the rest is ambiguity on which they agree (aleatoric). "
    "Useful uncertainty is higher for mistakes. The most uncertain examples are shown last.",
    applies=lambda outcome: is_classifier(outcome) and _has_dropout(outcome),
    metrics=_uncertainty_metrics,
    rows=_uncertain_rows,
)
def _uncertainty(outcome: Outcome) -> explain.predictions.DropoutUncertainty:
    test = affordable_examples(
        outcome.model,
        outcome.test,
        MAX_ACTIVATION_EXAMPLES,
        max_operations=MAX_MC_DROPOUT_OPERATIONS,
    )
    return explain.dropout_uncertainty(
        outcome.model, test, n_samples=MC_DROPOUT_SAMPLES, classes=outcome.classes, key=jr.key(0)
    )

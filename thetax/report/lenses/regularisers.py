"""Lenses on what held the network back: weight decay direction by direction, dropout as a penalty
and as a doubt.
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
from .basic import afforded, bent

DIRECTIONS = 12
PENALTY_MASKS = 30  # draws for the penalty, each a pass forwards and two derivatives
MC_DROPOUT_SAMPLES = 50  # draws for the doubt about an example
MAX_MC_DROPOUT_OPERATIONS = 200 * MAX_CPU_OPERATIONS  # operations of one draw for all examples


def undecayed(outcome: Outcome) -> Objective:
    r"""$\ell = \ell_\mu - \frac{\mu}{2}\|\theta\|^2$: what was descended, less its weight decay."""

    def loss(model: Any, batch: Any, *, key: Any = None) -> Any:
        return outcome.objective(model, batch, key=key) - outcome.decay / 2 * tree.dot(model, model)

    return loss


def _left(result: explain.Shrinkage) -> dict[str, str]:
    factors = result.factors[result.curvatures > 0]
    told = {"strength μ": f"{result.strength:.3g}"}
    if factors.size:
        told |= {
            "left of the sharpest direction": format_percent(factors[0]),
            f"least left of the sharpest {len(factors)}": format_percent(factors.min()),
        }
    share = 100 * result.effective / result.parameters
    return told | {"parameters that count": f"about {share:.2g} % of {result.parameters:,}"}


@lens(
    "Weight decay, direction by direction",
    says="What the decay leaves of the minimiser in each direction of the loss, from the curvature "
    "λ it has there: λ / (λ + μ). Sharp directions, which the data determine, keep all of it; flat "
    "ones are drawn to 0. The sum over all directions is how many parameters count. To second "
    f"order at θ, on at most {MAX_CURVATURE_EXAMPLES:,} training examples.",
    applies=lambda outcome: outcome.decay > 0,
    tells=_left,
)
def _shrinkage(outcome: Outcome) -> explain.Shrinkage:
    batch = subsample(outcome.train, MAX_CURVATURE_EXAMPLES)
    return explain.shrinkage(
        undecayed(outcome),
        outcome.model,
        batch,
        strength=outcome.decay,
        count=DIRECTIONS,
        key=jr.key(0),
    )


def acting(outcome: Outcome) -> str:
    """What held the network back, in words; empty where nothing did that is known here.

    >>> from thetax.models import MLP
    >>> from thetax.train import cross_entropy
    >>> net = MLP.init(4, 8, 3, dropout=0.2, key=jr.key(0))
    >>> acting(Outcome(net, (), (), cross_entropy, decay=1e-4))
    'weight decay 0.0001, 20 % of units dropped'
    """
    thins = lambda node: isinstance(node, Dropout | DropConnect)
    found = [
        node for node in jax.tree.leaves(outcome.model, is_leaf=thins) if thins(node) and node.p > 0
    ]
    what = lambda node: "weights" if isinstance(node, DropConnect) else "units"
    dropped = dict.fromkeys(f"{100 * node.p:g} % of {what(node)} dropped" for node in found)
    return ", ".join([f"weight decay {outcome.decay:g}"] * (outcome.decay > 0) + list(dropped))


def _drops(outcome: Outcome) -> bool:
    return "dropped" in acting(outcome)


def _price(result: explain.DropoutPenalty) -> dict[str, str]:
    told = {
        "objective without dropout": f"{result.objective:.4g}",
        "dropout adds": f"{result.value:.3g} ± {result.error:.1g}",
        "to second order": f"{result.quadratic:.3g} ± {result.quadratic_error:.1g}",
    }
    if result.objective > 0:
        told["with it"] = f"{1 + result.value / result.objective:.3g} times the objective"
    return told


@lens(
    "Dropout as a penalty",
    says="Training under random masks descends the objective and, on top, what the masks add to it "
    "on average. To second order that is a weight decay that adapts: it charges a unit by its "
    f"activity and by how much the loss bends in it. On at most {MAX_CURVATURE_EXAMPLES:,} "
    f"training examples and {PENALTY_MASKS} masks for each; where the two disagree, the masks "
    "reach beyond the second order.",
    applies=_drops,
    tells=_price,
)
def _penalty(outcome: Outcome) -> explain.DropoutPenalty:
    batch = bent(outcome)
    return explain.dropout_penalty(
        outcome.objective, outcome.model, batch, draws=PENALTY_MASKS, key=jr.key(0)
    )


def _doubts(result: explain.Doubt) -> dict[str, str]:
    n = len(result.truth)
    mean = lambda values: f"{values.mean():.3g} nats" if values.size else "–"
    entropy, right = result.belief.entropy, result.right
    told = {
        "error of the mean over masks": f"{format_percent(result.mistakes / n)} of {n:,}",
        "mean doubt where right": mean(entropy[right]),
        "mean doubt where wrong": mean(entropy[~right]),
        "disagreement, of all doubt": format_percent(
            result.belief.information.mean() / max(entropy.mean(), 1e-12)
        ),
    }
    if not np.isnan(result.ranking):
        told["a mistake is doubted more than a right answer"] = (
            f"{format_percent(result.ranking)} of the time"
        )
    return told


def _doubtful(result: explain.Doubt) -> list[dict[str, str]]:
    if as_images(result.x) is not None:
        return []
    p, guess = result.belief.probability, result.guess
    return [
        {
            "example": str(i),
            "truth": result.classes[result.truth[i]],
            "guess": result.classes[guess[i]],
        }
        | {"sure": f"{100 * p[i, guess[i]]:.1f} %", "doubt": f"{result.belief.entropy[i]:.3f} nats"}
        | {"disagreement": f"{result.belief.information[i]:.3f} nats"}
        for i in result.index
    ]


@lens(
    "Doubt by dropout",
    says=f"Each of at most {MAX_ACTIVATION_EXAMPLES:,} test examples is judged by "
    f"{MC_DROPOUT_SAMPLES} thinned networks, and their predictions are averaged. The entropy of "
    "the average is the doubt; the part on which the networks disagree says that they do not know, "
    "the rest that the example is ambiguous to all of them. Doubt is of use where the wrong "
    "answers are the doubtful ones. The examples doubted most come last.",
    applies=lambda outcome: is_classifier(outcome) and _drops(outcome),
    tells=_doubts,
    rows=_doubtful,
)
def _doubt(outcome: Outcome) -> explain.Doubt:
    test = afforded(
        outcome.model, outcome.test, MAX_ACTIVATION_EXAMPLES, work=MAX_MC_DROPOUT_OPERATIONS
    )
    return explain.doubt(
        outcome.model, test, draws=MC_DROPOUT_SAMPLES, classes=outcome.classes, key=jr.key(0)
    )

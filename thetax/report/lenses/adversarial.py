"""Lenses on the results of attack recipes: an adversarial example, and certified accuracy by
randomised smoothing.
"""

from ... import attack, certify
from ...recipes.engine.outcome import Outcome
from ..registry import format_percent, lens


def _changed(result: attack.AdversarialExample) -> dict[str, str]:
    predictions = (
        f"{name}, {format_percent(p)}" for name, p in zip(result.predictions, result.probabilities)
    )
    return dict(zip(("before", "after"), predictions)) | {
        "largest pixel change": f"{result.max_perturbation}/255"
    }


@lens(
    "Adversarial example",
    description="A photograph, the adversarial perturbation (amplified to be visible), and their "
    "sum. Above each image stand the predicted class and its probability.",
    applies=lambda outcome: isinstance(outcome.measured, attack.AdversarialExample),
    metrics=_changed,
)
def _disguise(outcome: Outcome) -> attack.AdversarialExample:
    return outcome.measured


@lens(
    "Certified accuracy by randomised smoothing",
    description="Certified accuracy of the smoothed classifier against the L2 radius: the share of "
    "test images that it classifies correctly, with a certificate that no perturbation within the "
    "radius changes that (up to a small failure probability per image). The dots are the accuracy "
    "of the network without smoothing under an attack of that radius: measured, not certified.",
    applies=lambda outcome: isinstance(outcome.measured, certify.CertifiedRadii),
    metrics=lambda result: {
        f"accuracy at radius {r:g}": format_percent(float(result.certified_accuracy(r)))
        for r in (0.0, *result.attack_radii)
    },
)
def _certificates(outcome: Outcome) -> certify.CertifiedRadii:
    return outcome.measured

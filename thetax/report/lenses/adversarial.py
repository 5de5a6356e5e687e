"""Lenses on what recipes of attacks found: a picture that fools a network, and how far around
images one is proven.
"""

from ... import attack, certify
from ...recipes.engine.outcome import Outcome
from ..registry import format_percent, lens


def _changed(result: attack.AdversarialExample) -> dict[str, str]:
    seen = (f"{name}, {format_percent(p)}" for name, p in zip(result.names, result.probability))
    return dict(zip(("before", "after"), seen)) | {
        "largest change of a pixel": f"{result.most}/255"
    }


@lens(
    "The picture that fools it",
    says="A photograph as it was, what was added to it, enlarged until it can be seen, and the "
    "sum, with what the network takes each for.",
    applies=lambda outcome: isinstance(outcome.measured, attack.AdversarialExample),
    tells=_changed,
)
def _disguise(outcome: Outcome) -> attack.AdversarialExample:
    return outcome.measured


@lens(
    "Proven right within a radius",
    says="The share of the test images that the smoothed network names rightly, and provably still "
    "does after any change of at most that Euclidean length, but for a small probability at each. "
    "Dots are what an attack leaves of the network without smoothing: it is measured, not proven.",
    applies=lambda outcome: isinstance(outcome.measured, certify.CertifiedRadii),
    tells=lambda result: {
        f"within {r:g}": format_percent(float(result.proven(r))) for r in (0.0, *result.tried)
    },
)
def _certificates(outcome: Outcome) -> certify.CertifiedRadii:
    return outcome.measured

"""Lenses on images: what a convolutional network looks for and finds, what it judges by, and what a
shift changes.
"""

import numpy as np

from ... import explain
from ...plot import as_images
from ...recipes.engine.outcome import Outcome
from ..registry import format_percent, is_classifier, lens, subsample

SALIENCY_EXAMPLES = 8  # examples whose slopes are drawn
SHIFT_EXAMPLES = 64  # examples that are shifted
MAX_SHIFT = 8  # pixels, at most


def convolves(outcome: Outcome) -> bool:
    """Whether the model has a convolution, and examples are signals or images."""
    xs = outcome.test[0]
    return explain.has_convolution(outcome.model) and hasattr(xs, "ndim") and xs.ndim in (3, 4)


def sees(outcome: Outcome) -> bool:
    """Whether it tells classes of pictures apart by convolutions."""
    return (
        is_classifier(outcome)
        and convolves(outcome)
        and as_images(np.asarray(outcome.test[0][:1])) is not None
    )


def _kernels(result: explain.Filters) -> dict[str, str]:
    m, c, *window = result.kernels.shape
    size = np.sqrt(np.square(result.kernels).sum(axis=tuple(range(1, result.kernels.ndim))))
    shape = f"{m} of {' × '.join(map(str, window))}" + (f" on {c} channels" if c > 1 else "")
    return {
        "kernels": shape,
        "largest over smallest norm": f"{size.max() / max(size.min(), 1e-12):.3g}",
    }


@lens(
    "Filters",
    says="The kernels of the first convolution: each is laid on every place of the image, and what "
    "it puts out there is how much the place looks like it. Blue is above zero, orange below; "
    "kernels on three channels are drawn as colours. All are on one scale.",
    applies=convolves,
    tells=_kernels,
)
def _filters(outcome: Outcome) -> explain.Filters:
    return explain.filters(outcome.model)


@lens(
    "Feature maps",
    says="What the convolutions put out on the first test example, from input to output: of each "
    "the few channels that respond most strongly. A map is large where the image holds the "
    "channel's pattern; maps get coarser with depth.",
    applies=convolves,
    tells=lambda result: {"convolutions": str(len(result.layers))},
)
def _feature_maps(outcome: Outcome) -> explain.FeatureMaps:
    return explain.feature_maps(outcome.model, outcome.test[0][0])


@lens(
    "Saliency",
    says=f"{SALIENCY_EXAMPLES} test examples under what the network takes them for, and beside "
    "each how steeply the logit of that class changes with each pixel. The judgement hangs on the "
    "pixels of most colour.",
    applies=sees,
)
def _saliency(outcome: Outcome) -> explain.Saliency:
    return explain.saliency(
        outcome.model, subsample(outcome.test, SALIENCY_EXAMPLES)[0], classes=outcome.classes
    )


def _moves(result: explain.Equivariance) -> dict[str, str]:
    told = {}
    coarse = int(result.stride.max())
    if result.whole.any() and np.isfinite(result.inside[result.whole]).any():
        told["largest error inside, at whole strides"] = (
            f"{np.nanmax(result.inside[result.whole]):.2g}"
        )
    told["total stride"] = f"{coarse} pixel{'s' if coarse > 1 else ''}"
    s = int(result.shifts[0])
    told[f"output changes under {s} pixel{'s' if s > 1 else ''}"] = (
        f"by {format_percent(result.output[0])}"
    )
    return told | {
        "class changes, at worst": f"of {format_percent(1 - result.kept.min())} of the examples"
    }


@lens(
    "Shifted images",
    says="An image moved to the right should move every map by as much and leave the judgement "
    f"alone. Above, the error of the last layer of each stride on {SHIFT_EXAMPLES} test examples: "
    "none in the interior where the shift is a whole number of strides, something at the edges, "
    "and much between strides, where pooling has thrown places away. Below, what this does to the "
    "output. What leaves at the right comes in at the left.",
    applies=convolves,
    tells=_moves,
)
def _shifted(outcome: Outcome) -> explain.Equivariance:
    xs = subsample(outcome.test, SHIFT_EXAMPLES)[0]
    return explain.equivariance(
        outcome.model, xs, shifts=range(1, min(MAX_SHIFT, xs.shape[-1] - 1) + 1)
    )

"""Lenses on convolutional networks: filters, feature maps, saliency maps, translation
equivariance.
"""

import numpy as np

from ... import explain
from ...plot import as_images
from ...recipes.engine.outcome import Outcome
from ..registry import format_percent, is_classifier, lens, subsample

SALIENCY_EXAMPLES = 8  # examples in the saliency maps
SHIFT_EXAMPLES = 64  # examples that are shifted
MAX_SHIFT = 8  # pixels, at most


def has_convolutions(outcome: Outcome) -> bool:
    """Whether the model has a convolution and the examples are signals or images."""
    xs = outcome.test[0]
    return explain.has_convolution(outcome.model) and hasattr(xs, "ndim") and xs.ndim in (3, 4)


def is_image_classifier(outcome: Outcome) -> bool:
    """Whether the model is a convolutional image classifier."""
    return (
        is_classifier(outcome)
        and has_convolutions(outcome)
        and as_images(np.asarray(outcome.test[0][:1])) is not None
    )


def _filter_metrics(result: explain.attribution.Filters) -> dict[str, str]:
    m, c, *window = result.kernels.shape
    size = np.sqrt(np.square(result.kernels).sum(axis=tuple(range(1, result.kernels.ndim))))
    shape = f"{m} of {' × '.join(map(str, window))}" + (f" on {c} channels" if c > 1 else "")
    return {
        "kernels": shape,
        "ratio of largest to smallest norm": f"{size.max() / max(size.min(), 1e-12):.3g}",
    }


@lens(
    "Convolution filters",
    description="The kernels of the first convolutional layer, all on one colour scale. Blue "
    "weights are positive, orange ones negative; kernels on three channels are drawn in colour. A "
    "filter responds most where the image patch resembles it.",
    applies=has_convolutions,
    metrics=_filter_metrics,
)
def _filters(outcome: Outcome) -> explain.attribution.Filters:
    return explain.filters(outcome.model)


@lens(
    "Feature maps",
    description="Feature maps of the convolutional layers on the first test example, from input to "
    "output; of each layer the channels with the strongest response. A channel is active where the "
    "image contains its pattern; resolution falls with depth.",
    applies=has_convolutions,
    metrics=lambda result: {"convolutional layers": str(len(result.layers))},
)
def _feature_maps(outcome: Outcome) -> explain.attribution.FeatureMaps:
    return explain.feature_maps(outcome.model, outcome.test[0][0])


@lens(
    "Saliency maps",
    description=f"{SALIENCY_EXAMPLES} test examples with their predicted class, and beside each "
    "the absolute gradient of that class's logit with respect to each pixel. The prediction is "
    "most sensitive to the darkest pixels.",
    applies=is_image_classifier,
)
def _saliency(outcome: Outcome) -> explain.attribution.Saliency:
    return explain.saliency(
        outcome.model, subsample(outcome.test, SALIENCY_EXAMPLES)[0], classes=outcome.classes
    )


def _shift_metrics(result: explain.attribution.Equivariance) -> dict[str, str]:
    metrics = {}
    coarse = int(result.stride.max())
    if result.is_multiple.any() and np.isfinite(result.interior[result.is_multiple]).any():
        metrics["largest interior error at whole strides"] = (
            f"{np.nanmax(result.interior[result.is_multiple]):.2g}"
        )
    metrics["total stride"] = f"{coarse} pixel{'s' if coarse > 1 else ''}"
    s = int(result.shifts[0])
    metrics[f"relative change of the output, {s} pixel{'s' if s > 1 else ''}"] = format_percent(
        result.output[0]
    )
    return metrics | {"predictions changed, at most": format_percent(1 - result.unchanged.min())}


@lens(
    "Translation equivariance",
    description="Equivariance error of the last layer of each stride, when test images are shifted "
    f"to the right (circularly, {SHIFT_EXAMPLES} images), and below, the change of the output. "
    "Convolutions are exactly equivariant in the interior if the shift is a multiple of the "
    "stride; zero padding causes errors at the edges, and strides and pooling cause them at other "
    "shifts. An invariant classifier keeps its output.",
    applies=has_convolutions,
    metrics=_shift_metrics,
)
def _equivariance(outcome: Outcome) -> explain.attribution.Equivariance:
    xs = subsample(outcome.test, SHIFT_EXAMPLES)[0]
    return explain.equivariance(
        outcome.model, xs, shifts=range(1, min(MAX_SHIFT, xs.shape[-1] - 1) + 1)
    )

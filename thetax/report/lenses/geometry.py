"""Lenses on geometry: linear regions, decision boundary, margins."""

import jax
import numpy as np

from ... import explain
from ...recipes.engine.outcome import Outcome
from ..registry import MAX_ACTIVATION_EXAMPLES, LensUnavailable, format_percent, is_classifier, lens

MAX_REGION_UNITS = 1500  # hidden units whose regions can be enumerated in seconds


def _input_plane(outcome: Outcome) -> explain.InputPlane:
    """The input plane of a model with two inputs, around the test set; otherwise the plane through
    three examples of different classes.
    """
    xs, ys = (np.asarray(part) for part in outcome.test)
    if xs[0].size == 2:
        return (
            explain.input_plane_around(xs.reshape(-1, 2))
            if xs.ndim == 2
            else explain.input_plane_through(xs[:3])
        )
    label = ys.reshape(len(ys), -1)[:, 0] if is_classifier(outcome) else np.zeros(len(ys))
    turn = np.array(
        [(label[:i] == label[i]).sum() for i in range(min(len(ys), 100))]
    )  # one example of each class comes first
    order = np.argsort(turn, kind="stable")
    flat = xs[order].reshape(len(order), -1)
    for third in range(2, len(order)):
        if np.linalg.matrix_rank(flat[[1, third]] - flat[:1]) == 2:
            return explain.input_plane_through(xs[order[[0, 1, third]]])
    raise LensUnavailable("the first test examples all lie on one line, so they define no plane.")


def _region_metrics(
    result: explain.predictions.DecisionBoundary | explain.LinearRegions,
) -> dict[str, str]:
    regions = result if isinstance(result, explain.LinearRegions) else result.regions
    sides = " × ".join(f"{side:.3g}" for side in result.plane.high - result.plane.low)
    metrics = {}
    if regions is not None:
        metrics |= {
            "linear regions in view": f"{regions.n_regions:,}",
            "distinct affine maps": f"{regions.n_affine_maps:,}",
        }
    if isinstance(result, explain.predictions.DecisionBoundary):
        if regions is None:
            metrics |= {"linear regions": f"not counted: {result.reason}"}
        if regions is not None or len(result.segments):
            metrics |= {"linear segments of the boundary": f"{len(result.segments):,}"}
        metrics |= {"classes in view": f"{len(np.unique(result.image))} of {len(result.classes)}"}
    return metrics | {"size of the view": sides}


@lens(
    "Linear regions and decision boundary",
    description="Predicted class (colour), linear regions (thin lines) and decision boundary "
    "(thick lines) on a plane of the input space. A dense ReLU network is affine on each region, "
    "so the boundary is straight within it. Two-dimensional inputs are shown directly; otherwise "
    "the plane goes through three test examples of different classes (large points), and test "
    "examples near it are shown too. For networks with smooth activations, signs or convolutions "
    "no regions are computed, and the classes are evaluated on a grid.",
    applies=lambda outcome: (
        hasattr(outcome.test[0], "dtype")
        and outcome.test[0][0].size > 1
        and jax.numpy.issubdtype(outcome.test[0].dtype, jax.numpy.floating)
        and (
            is_classifier(outcome)
            or explain.is_piecewise_linear(outcome.model, outcome.test[0][0]) is True
        )
    ),
    metrics=_region_metrics,
)
def _regions(outcome: Outcome) -> explain.predictions.DecisionBoundary | explain.LinearRegions:
    units = sum(leaf.size for leaf in jax.tree.leaves(outcome.model) if leaf.ndim == 1)
    if (
        units > MAX_REGION_UNITS
        and explain.is_piecewise_linear(outcome.model, outcome.test[0][0]) is True
    ):
        raise LensUnavailable(
            f"a network with {units:,} units has too many linear regions to enumerate and draw."
        )
    if not is_classifier(outcome):
        return explain.enumerate_regions(outcome.model, _input_plane(outcome))
    examples = jax.tree.map(
        lambda part: part[:MAX_ACTIVATION_EXAMPLES], outcome.test
    )  # includes the three that define the plane
    return explain.decision_boundary(
        outcome.model, _input_plane(outcome), examples=examples, classes=outcome.classes
    )


def _margin_metrics(result: explain.predictions.Margins) -> dict[str, str]:
    smallest = np.abs(result.distances[result.nearest[0]])
    metrics = {
        "linearly separated": "yes"
        if result.separated
        else f"no: {format_percent(result.error)} misclassified"
    }
    metrics |= {
        "margin" if result.separated else "smallest signed distance": f"{result.margin:.4g}"
    }
    return metrics | {
        "smallest distance to the boundary": f"{smallest:.3g}",
        "median signed distance": f"{np.median(result.distances):.3g}",
    }


@lens(
    "Margins",
    description="Signed distance of each training example from the hyperplane of the linear "
    "classifier (positive if classified correctly), in the units of the inputs. The smallest is "
    "the margin: if it is positive, the data are linearly separated, and the larger it is, the "
    "fewer mistakes the perceptron algorithm makes.",
    applies=lambda outcome: (
        len(outcome.classes) == 2 and explain.hyperplane(outcome.model) is not None
    ),
    metrics=_margin_metrics,
)
def _margins(outcome: Outcome) -> explain.predictions.Margins:
    return explain.margins(outcome.model, outcome.train)

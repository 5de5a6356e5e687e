"""Lenses on geometry: where a network is affine, where it decides, and how far examples lie from a
linear boundary.
"""

import jax
import numpy as np

from ... import explain
from ...recipes.engine.outcome import Outcome
from ..registry import MAX_ACTIVATION_EXAMPLES, LensUnavailable, format_percent, is_classifier, lens

MAX_REGION_UNITS = 1500  # of which the cells can be followed in seconds


def _window(outcome: Outcome) -> explain.Window:
    """The plane of two inputs, around the test set; of others the plane through three examples of
    different classes.
    """
    xs, ys = (np.asarray(part) for part in outcome.test)
    if xs[0].size == 2:
        return (
            explain.window_around(xs.reshape(-1, 2))
            if xs.ndim == 2
            else explain.window_through(xs[:3])
        )
    label = ys.reshape(len(ys), -1)[:, 0] if is_classifier(outcome) else np.zeros(len(ys))
    turn = np.array(
        [(label[:i] == label[i]).sum() for i in range(min(len(ys), 100))]
    )  # the first of each class first
    order = np.argsort(turn, kind="stable")
    flat = xs[order].reshape(len(order), -1)
    for third in range(2, len(order)):
        if np.linalg.matrix_rank(flat[[1, third]] - flat[:1]) == 2:
            return explain.window_through(xs[order[[0, 1, third]]])
    raise LensUnavailable(
        "the first test examples all lie on one line, so that no plane goes through three of them."
    )


def _sliced(result: explain.Boundary | explain.Regions) -> dict[str, str]:
    found = result if isinstance(result, explain.Regions) else result.regions
    sides = " × ".join(f"{side:.3g}" for side in result.window.high - result.window.low)
    told = {}
    if found is not None:
        told |= {
            "linear regions in the window": f"{found.count:,}",
            "different affine maps": f"{found.maps:,}",
        }
    if isinstance(result, explain.Boundary):
        if found is None:
            told |= {"linear regions": f"not counted: {result.reason}"}
        if found is not None or len(result.segments):
            told |= {"straight pieces of border": f"{len(result.segments):,}"}
        told |= {
            "classes in the window": f"{len(np.unique(result.image))} of {len(result.classes)}"
        }
    return told | {"window": sides}


@lens(
    "Linear regions and decision boundary",
    says="A network of dense layers and ReLUs is one affine map on each of its cells, all of which "
    "are drawn, and the border between two classes is a straight line within each. Inputs of two "
    "numbers are seen as they are; others on the plane through three test examples of different "
    "classes, the large points, with any others that lie near it. A network that bends smoothly, "
    "or answers with a sign, has a boundary but no cells, and those of convolutions are not looked "
    "for: then the classes are seen on a grid of points.",
    applies=lambda outcome: (
        hasattr(outcome.test[0], "dtype")
        and outcome.test[0][0].size > 1
        and jax.numpy.issubdtype(outcome.test[0].dtype, jax.numpy.floating)
        and (
            is_classifier(outcome)
            or explain.is_piecewise_linear(outcome.model, outcome.test[0][0]) is True
        )
    ),
    tells=_sliced,
)
def _regions(outcome: Outcome) -> explain.Boundary | explain.Regions:
    units = sum(leaf.size for leaf in jax.tree.leaves(outcome.model) if leaf.ndim == 1)
    if (
        units > MAX_REGION_UNITS
        and explain.is_piecewise_linear(outcome.model, outcome.test[0][0]) is True
    ):
        raise LensUnavailable(
            f"the cells of {units:,} units are too many to be followed and too small to be seen."
        )
    if not is_classifier(outcome):
        return explain.regions(outcome.model, _window(outcome))
    examples = jax.tree.map(
        lambda part: part[:MAX_ACTIVATION_EXAMPLES], outcome.test
    )  # the three of the plane are among the first
    return explain.boundary(
        outcome.model, _window(outcome), examples=examples, classes=outcome.classes
    )


def _distances(result: explain.Margins) -> dict[str, str]:
    least = np.abs(result.distances[result.nearest[0]])
    told = {
        "separated": "yes"
        if result.separated
        else f"no: {format_percent(result.error)} on the wrong side"
    }
    told |= {"margin" if result.separated else "worst signed distance": f"{result.margin:.4g}"}
    return told | {
        "nearest to the boundary": f"{least:.3g}",
        "median distance": f"{np.median(result.distances):.3g}",
    }


@lens(
    "Margins",
    says="How far each training example lies on the right side of the classifier's hyperplane, in "
    "the units of the inputs. The smallest is the margin: if it is positive the data are "
    "separated, and the larger it is, the fewer mistakes a perceptron makes on the way there.",
    applies=lambda outcome: (
        len(outcome.classes) == 2 and explain.hyperplane(outcome.model) is not None
    ),
    tells=_distances,
)
def _margins(outcome: Outcome) -> explain.Margins:
    return explain.margins(outcome.model, outcome.train)

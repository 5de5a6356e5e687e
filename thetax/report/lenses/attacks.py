"""Lenses on adversarial attacks: robust accuracy, distance to the decision boundary, the least
robust examples, and whether gradients are masked.
"""

import weakref
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ...attack import (
    BoundaryDistances,
    DistancesByNorm,
    LeastRobust,
    LossSurface,
    boundary_distance,
    input_loss_surface,
    least_robust,
)
from ...attack.robustness import check_logits
from ...certify import RobustnessCurves, certified_radii
from ...core import Batch, apply, predict
from ...explain import count_flops
from ...layers import Chain
from ...recipes.engine.outcome import Outcome
from ...recipes.robustness.attack import binary_logits
from ...threat import L2, Linf
from ..registry import MIN_EXAMPLES, LensUnavailable, format_percent, is_classifier, lens, subsample

MAX_EXAMPLES = 200  # test examples, at most
MAX_SHOWN = 6  # least robust examples shown
PGD_STEPS, EPS_TRIALS = 20, 8  # steps of an attack, and radii tried per example
CERTIFICATE_TRIALS = {"linear": 8, "interval": 14}  # radii tried per certificate
MAX_ATTACK_OPERATIONS = 5e11  # operations of the attacks on a CPU: some seconds
MAX_LINEAR_BOUND_OPERATIONS = 1e11  # operations of the linear bounds on a CPU
LINEAR_PRIMITIVES = "dot_general", "conv_general_dilated", "add"  # all others may be nonlinear
ACCELERATOR_SPEEDUP = 100  # times as many operations are allowed on an accelerator
CERTIFICATE_MARGIN = 1.25  # certificates are searched for up to this multiple of the distance found
VERDICT_TEXTS = {
    "smooth": "smooth: gradient attacks can be trusted",
    "jagged": "jagged: gradients mislead attacks",
    "hidden": "gradient masking: the loss rises as much in a random direction, or nowhere",
}
NORMS = {"Linf": Linf, "L2": L2}


class AttackedExamples(NamedTuple):
    """A classifier, the attacked examples, the input range, and the distances found per norm."""

    model: Any
    data: Batch
    box: tuple[float, float]
    distances: dict[str, BoundaryDistances]


def attackable(outcome: Outcome) -> bool:
    """Whether the model classifies float inputs, with one logit per class (or one for two
    classes).
    """
    if not is_classifier(outcome) or not (
        isinstance(outcome.test, tuple) and len(outcome.test) == 2
    ):
        return False
    xs, ys = outcome.test
    if not all(hasattr(part, "dtype") for part in (xs, ys)) or not jnp.issubdtype(
        xs.dtype, jnp.floating
    ):
        return False
    k = len(outcome.classes)
    if (
        ys.ndim != 1
        or not jnp.issubdtype(ys.dtype, jnp.integer)
        or not 0 <= int(ys.min()) <= int(ys.max()) < k
    ):
        return False
    one = jax.ShapeDtypeStruct(xs.shape[1:], xs.dtype)
    out = jax.eval_shape(lambda model, x: apply(model, x), outcome.model, one)
    return hasattr(out, "shape") and (out.shape == (k,) or (k == 2 and out.size == 1))


def _box(outcome: Outcome, xs: Any) -> tuple[float, float]:
    """The input range: from the smallest to the largest value in the data, e.g. 0 to 1 for
    pixels.
    """
    parts = [np.asarray(part) for part in (outcome.train[0], xs)]
    low = min(float(part.min()) for part in parts)
    high = max(float(part.max()) for part in parts)
    if not high > low:
        raise LensUnavailable(
            "all inputs have the same value, so there is no input range to perturb them in."
        )
    return low, high


def _budget(max_operations: float) -> float:
    """The operations allowed on this machine, given those allowed on a CPU."""
    return max_operations * (1 if jax.default_backend() == "cpu" else ACCELERATOR_SPEEDUP)


def _examples(model: Any, data: Batch) -> Batch:
    """As many test examples as the attacks can be run on in a few seconds."""
    try:
        each = sum(count_flops(predict, model, data[0][:1]).values())
    except ValueError:  # a while loop of unknown length
        return subsample(data, MIN_EXAMPLES)
    # A gradient costs about three forward passes.
    forward_passes = len(NORMS) * 3 * PGD_STEPS * (EPS_TRIALS + 4)
    count = int(_budget(MAX_ATTACK_OPERATIONS) / (forward_passes * max(each, 1)))
    if count < MIN_EXAMPLES:
        raise LensUnavailable(
            f"attacking {MIN_EXAMPLES} examples would take too long on this machine; run thetax "
            "look on an accelerator."
        )
    return subsample(data, min(MAX_EXAMPLES, count))


# A weak reference to the last outcome and its attack results, which several lenses share.
_cached: list[Any] = []


def attack_examples(outcome: Outcome) -> AttackedExamples:
    """Attacks some test examples in each norm: the nearest misclassified inputs found."""
    if _cached and _cached[0]() is outcome:
        return _cached[1]
    k = len(outcome.classes)
    out = jax.eval_shape(lambda x: apply(outcome.model, x), outcome.test[0][0])
    model = outcome.model if out.shape == (k,) else Chain(outcome.model, binary_logits)
    xs, _ = data = _examples(model, outcome.test)
    try:
        check_logits("look", model, jnp.asarray(xs))
    except ValueError as reason:
        raise LensUnavailable(str(reason).removeprefix("look: ")) from None
    box = _box(outcome, xs)
    distances = {
        name: boundary_distance(
            model, data, norm, box=box, steps=PGD_STEPS, binary_search_steps=EPS_TRIALS
        )
        for name, norm in NORMS.items()
    }
    attacked = AttackedExamples(model, data, box, distances)
    _cached[:] = [weakref.ref(outcome), attacked]
    return attacked


def _certified(attacked: AttackedExamples) -> tuple[dict[str, np.ndarray], str]:
    """The certified radii in each norm and the method: linear bounds (CROWN) where they are
    affordable, interval bounds otherwise.
    """
    xs, _ = attacked.data
    try:
        each = count_flops(predict, attacked.model, xs[:1])
        nonlinear = sum(count for name, count in each.items() if name not in LINEAR_PRIMITIVES)
        cost = len(NORMS) * CERTIFICATE_TRIALS["linear"] * len(xs) * nonlinear * sum(each.values())
        bounds = "linear" if cost < _budget(MAX_LINEAR_BOUND_OPERATIONS) else "interval"
        radii = {
            name: certified_radii(
                attacked.model,
                attacked.data,
                NORMS[name],
                box=attacked.box,
                bounds=bounds,
                binary_search_steps=CERTIFICATE_TRIALS[bounds],
                max_radius=_max_radius(result.distances),
            )
            for name, result in attacked.distances.items()
        }
    except ValueError as reason:
        return {}, str(reason).partition(". ")[0]
    return (
        radii,
        "linear bounds (CROWN)" if bounds == "linear" else "interval bounds, which are loose",
    )


def _max_radius(distance: np.ndarray) -> np.ndarray:
    """The largest radius at which a certificate is tried: a little beyond the distance found, so
    that a wrong certificate would show.
    """
    finite = distance[np.isfinite(distance)]
    return CERTIFICATE_MARGIN * np.where(
        np.isfinite(distance), distance, finite.max() if finite.any() else 1.0
    )


def _accuracy_metrics(result: RobustnessCurves) -> dict[str, str]:
    n = len(next(iter(result.distances.values())))
    first = next(iter(result.distances))
    metrics = {
        "examples": f"{n} of the test set, "
        f"{format_percent(float(result.empirical_accuracy(first, 0.0)))} classified correctly "
        "without an attack"
    }
    for norm, distances in result.distances.items():
        right = distances[distances > 0]
        if not (right.size and np.isfinite(np.median(right))):
            continue
        r = _one_digit(float(np.median(right)) / 2)
        text = f"{format_percent(float(result.empirical_accuracy(norm, r)))} correct under attack"
        certificate = (
            f", {format_percent(float(result.certified_accuracy(norm, r)))} certified"
            if norm in result.radii
            else ""
        )
        metrics[f"{norm}, radius {r:.2g}"] = text + certificate
    if not result.radii:
        return metrics | {"no certificate": result.method}
    proven = [
        f"{norm} {np.median(radii[result.distances[norm] > 0]):.2g}"
        for norm, radii in result.radii.items()
    ]
    return metrics | {
        "certified": f"{result.method}; median radius of correct examples: {', '.join(proven)}"
    }


def _one_digit(number: float) -> float:
    """Rounds to one significant digit."""
    return float(f"{number:.1g}") if number > 0 else 0.0


@lens(
    "Adversarial attacks: robust accuracy",
    description="Robust accuracy on the test set against the perturbation radius, in the Linf and "
    "L2 norms and within the range of the inputs. Blue is the accuracy under a gradient attack, an "
    "upper bound: a stronger attack may lower it. Green is the certified accuracy, a lower bound "
    "that holds against every attack. The true robust accuracy lies in the grey area between them.",
    applies=attackable,
    metrics=_accuracy_metrics,
)
def _curves(outcome: Outcome) -> RobustnessCurves:
    attacked = attack_examples(outcome)
    radii, bounds = _certified(attacked)
    return RobustnessCurves(
        {name: result.distances for name, result in attacked.distances.items()}, radii, bounds
    )


def _distance_metrics(result: DistancesByNorm) -> dict[str, str]:
    first = next(iter(result.by_norm.values()))
    right = first[first > 0]
    metrics = {"examples": f"{len(right)} classified correctly, of {len(first)}"}
    for norm, distances in result.by_norm.items():
        finite = distances[(distances > 0) & np.isfinite(distances)]
        if finite.size:
            metrics[f"{norm}"] = (
                f"median {result.median(norm):.3g}, smallest {finite.min():.2g}, largest "
                f"{finite.max():.3g}"
            )
        if n_failed := int(np.isinf(distances).sum()):
            metrics[f"{norm}, attack failed"] = f"on {n_failed}"
    return metrics


@lens(
    "Adversarial attacks: distance to the decision boundary",
    description="Distances from correctly classified test examples to the nearest misclassified "
    "input that an attack found, in the Linf norm (largest change of any feature) and the L2 norm "
    "(Euclidean length of the change). They are upper bounds: the true distance can only be "
    "smaller. Many examples close to 0 mean that imperceptible changes suffice to fool the "
    "network.",
    applies=attackable,
    metrics=_distance_metrics,
)
def _distances(outcome: Outcome) -> DistancesByNorm:
    return DistancesByNorm(
        {name: result.distances for name, result in attack_examples(outcome).distances.items()}
    )


def _least_robust_metrics(result: LeastRobust) -> dict[str, str]:
    if not len(result.indices):
        return {
            "least robust examples": "none: all are misclassified already, or no attack succeeded"
        }
    examples = result.examples
    before, after = (result.class_names[label] for label in examples.predictions[:, 0])
    return {
        "least robust": f"{before} classified as {after} after a change of L2 norm "
        f"{examples.distances[0]:.2g}",
        "relative to the norm of the input": format_percent(
            examples.distances[0] / max(np.linalg.norm(examples.xs[0]), 1e-12)
        ),
    }


@lens(
    "Adversarial attacks: least robust examples",
    description=f"The {MAX_SHOWN} correctly classified test examples that the smallest L2 "
    "perturbation turns into mistakes, least robust first. Each is shown before and after the "
    "attack, with the predicted class and its probability, and the perturbation, with its norm, "
    "amplified by the same factor for all: blue was added, orange subtracted. For tabular data the "
    "features that change most are shown.",
    applies=attackable,
    metrics=_least_robust_metrics,
)
def _least_robust(outcome: Outcome) -> LeastRobust:
    distances = attack_examples(outcome).distances["L2"]
    return least_robust(
        distances,
        "L2",
        n_examples=MAX_SHOWN,
        class_names=outcome.classes,
        feature_names=outcome.features,
    )


def _loss_surface_metrics(result: LossSurface) -> dict[str, str]:
    along_gradient, along_random = result.increases
    middle = len(result.offsets) // 2
    return {
        "radius": f"{result.radius:.3g}, the distance of the nearest misclassified input found",
        "loss": f"{result.losses[middle, middle]:.3g} at the example, gradient norm "
        f"{result.gradient_norm:.3g}",
        "increase of the loss within the radius": f"{along_gradient:.3g} along the gradient, "
        f"{along_random:.3g} along the random direction",
        "monotonicity along the gradient": f"{result.smoothness:.2f}",
        "verdict": VERDICT_TEXTS[result.verdict],
    }


@lens(
    "Adversarial attacks: loss surface and gradient masking",
    description="The loss around a correctly classified test example (the one of median distance), "
    "along its input gradient and along a random direction. Darker is larger; beyond the orange "
    "line the example is misclassified; the dashed circle and the shaded band mark the radius. "
    "Gradient attacks can be trusted where the loss rises steadily along the gradient "
    "(monotonicity 1) and more than in a random direction. Where it is flat, jagged, or rises as "
    "much at random, gradients are masked, and a failed attack proves nothing.",
    applies=attackable,
    metrics=_loss_surface_metrics,
)
def _loss_surface(outcome: Outcome) -> LossSurface:
    attacked = attack_examples(outcome)
    distance = attacked.distances["L2"].distances
    right = np.flatnonzero((distance > 0) & np.isfinite(distance))
    if not right.size:
        raise LensUnavailable(
            "no attack on a correctly classified example succeeded, so there is no radius to plot."
        )
    at = right[np.argsort(distance[right], kind="stable")[len(right) // 2]]
    x = jnp.asarray(attacked.data[0][at])
    y = jnp.asarray(attacked.data[1][at])
    return input_loss_surface(attacked.model, x, y, radius=float(distance[at]), key=jr.key(0))

"""Lenses on attacks: how far inputs must be moved to be taken for something else, and whether that
can be believed.
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
    least_robust,
    loss_surface,
)
from ...attack.robustness import check_logits
from ...certify import RobustnessCurves, certified_radii
from ...core import Batch, apply, predict
from ...explain import operations
from ...layers import Chain
from ...recipes.attack import both_logits
from ...recipes.engine.outcome import Outcome
from ...threat import L2, Linf
from ..registry import MIN_EXAMPLES, LensUnavailable, format_percent, is_classifier, lens, subsample

MAX_EXAMPLES = 200  # test examples, at most
MAX_SHOWN = 6  # of the most fragile
PGD_STEPS, EPS_TRIALS = 20, 8  # of an ascent, and of balls that are tried
CERTIFICATE_TRIALS = {"linear": 8, "interval": 14}  # that are tried to be certified
MAX_SEARCH_OPERATIONS, MAX_LINEAR_BOUND_OPERATIONS = (
    5e11,
    1e11,
)  # operations of a search and of bounds by lines, on a CPU: some seconds
LINEAR_PRIMITIVES = "dot_general", "conv_general_dilated", "add"  # all else may bend
ACCELERATOR_SPEEDUP = 100  # times as many on an accelerator
CERTIFICATE_MARGIN = 1.25  # of the distance found: where certificates are begun to be looked for
VERDICT_TEXTS = {
    "smooth": "smooth: the gradient shows the way",
    "jagged": "jagged: the gradient misleads",
    "hidden": "gradients are hidden: the loss rises at random as well, or nowhere",
}
NORMS = {"Linf": Linf, "L2": L2}


class Searched(NamedTuple):
    """A classifier, the examples that were attacked, the range of inputs, and what was found in
    each norm.
    """

    model: Any
    data: Batch
    box: tuple[float, float]
    found: dict[str, BoundaryDistances]


def attackable(outcome: Outcome) -> bool:
    """Whether it tells classes of inputs of floating-point numbers apart, by a logit a class or by
    one for two.
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
    """From the least to the largest number that inputs have, as pixels go from 0 to 1."""
    parts = [np.asarray(part) for part in (outcome.train[0], xs)]
    low = min(float(part.min()) for part in parts)
    high = max(float(part.max()) for part in parts)
    if not high > low:
        raise LensUnavailable(
            "all its inputs are one number, so that there is no range to move them in."
        )
    return low, high


def _examples(model: Any, data: Batch) -> Batch:
    """As many test examples as the searches can be afforded for."""
    try:
        each = sum(operations(predict, model, data[0][:1]).values())
    except ValueError:  # a loop whose length is not known
        return subsample(data, MIN_EXAMPLES)
    looks = len(NORMS) * 3 * PGD_STEPS * (EPS_TRIALS + 4)  # a gradient is as dear as three answers
    count = int(
        MAX_SEARCH_OPERATIONS
        * (1 if jax.default_backend() == "cpu" else ACCELERATOR_SPEEDUP)
        / (looks * max(each, 1))
    )
    if count < MIN_EXAMPLES:
        raise LensUnavailable(
            f"on this machine an attack on {MIN_EXAMPLES} examples would take too long; look on an "
            "accelerator."
        )
    return subsample(data, min(MAX_EXAMPLES, count))


_last: list[
    Any
] = []  # a weak reference to an outcome, and what was found: three lenses look at one search


def searched(outcome: Outcome) -> Searched:
    """The nearest wrong inputs to some test examples, in each norm."""
    if _last and _last[0]() is outcome:
        return _last[1]
    k = len(outcome.classes)
    out = jax.eval_shape(lambda x: apply(outcome.model, x), outcome.test[0][0])
    model = outcome.model if out.shape == (k,) else Chain(outcome.model, both_logits)
    xs, _ = data = _examples(model, outcome.test)
    try:
        check_logits("look", model, jnp.asarray(xs))
    except ValueError as reason:
        raise LensUnavailable(str(reason).removeprefix("look: ")) from None
    box = _box(outcome, xs)
    found = {
        name: boundary_distance(model, data, norm, box=box, steps=PGD_STEPS, rounds=EPS_TRIALS)
        for name, norm in NORMS.items()
    }
    seen = Searched(model, data, box, found)
    _last[:] = [weakref.ref(outcome), seen]
    return seen


def _certified(seen: Searched) -> tuple[dict[str, np.ndarray], str]:
    """The certified radii in each norm, by lines where these can be afforded, and how they were
    found.
    """
    xs, _ = seen.data
    try:
        each = operations(predict, seen.model, xs[:1])
        bends = sum(count for name, count in each.items() if name not in LINEAR_PRIMITIVES)
        dear = len(NORMS) * CERTIFICATE_TRIALS["linear"] * len(xs) * bends * sum(each.values())
        bounds = (
            "linear"
            if dear
            < MAX_LINEAR_BOUND_OPERATIONS
            * (1 if jax.default_backend() == "cpu" else ACCELERATOR_SPEEDUP)
            else "interval"
        )
        radii = {
            name: certified_radii(
                seen.model,
                seen.data,
                NORMS[name],
                box=seen.box,
                bounds=bounds,
                rounds=CERTIFICATE_TRIALS[bounds],
                most=_most(found.distance),
            )
            for name, found in seen.found.items()
        }
    except ValueError as reason:
        return {}, str(reason).partition(". ")[0]
    return (
        radii,
        "by lines through every bend" if bounds == "linear" else "by intervals, which are wide",
    )


def _most(distance: np.ndarray) -> np.ndarray:
    """Where certificates are looked for: a little beyond the distances found, so that a false one
    would show.
    """
    finite = distance[np.isfinite(distance)]
    return CERTIFICATE_MARGIN * np.where(
        np.isfinite(distance), distance, finite.max() if finite.any() else 1.0
    )


def _stands(result: RobustnessCurves) -> dict[str, str]:
    n = len(next(iter(result.distances.values())))
    first = next(iter(result.distances))
    told = {
        "examples": f"{n} of the test set, {format_percent(float(result.empirical(first, 0.0)))} "
        "right as they are"
    }
    for norm, distances in result.distances.items():
        right = distances[distances > 0]
        if not (right.size and np.isfinite(np.median(right))):
            continue
        r = _plain(float(np.median(right)) / 2)
        said = f"{format_percent(float(result.empirical(norm, r)))} stand against the attack"
        proof = (
            f", {format_percent(float(result.proven(norm, r)))} are proven to stand"
            if norm in result.radii
            else ""
        )
        told[f"{norm}, radius {r:.2g}"] = said + proof
    if not result.radii:
        return told | {"nothing proven": result.bounds}
    proven = [
        f"{norm} {np.median(radii[result.distances[norm] > 0]):.2g}"
        for norm, radii in result.radii.items()
    ]
    return told | {"proven": f"{result.bounds}; median radius of those right: {', '.join(proven)}"}


def _plain(number: float) -> float:
    """In one or two figures that are said easily."""
    return float(f"{number:.1g}") if number > 0 else 0.0


@lens(
    "Attacks: accuracy against the radius",
    says="The share of test examples that stays right when inputs may be changed by so much: each "
    "number of an input by at most the radius (Linf), or all together by a change of this length "
    "(L2), within the range of the inputs. Blue is what a search by gradients left standing, and "
    "another attack may leave less; green is proven against every attack, by bounds on all that "
    "the network can put out. The truth lies in between, in grey.",
    applies=attackable,
    tells=_stands,
)
def _curves(outcome: Outcome) -> RobustnessCurves:
    seen = searched(outcome)
    radii, bounds = _certified(seen)
    return RobustnessCurves(
        {name: found.distance for name, found in seen.found.items()}, radii, bounds
    )


def _near(result: DistancesByNorm) -> dict[str, str]:
    first = next(iter(result.by_norm.values()))
    right = first[first > 0]
    told = {"examples": f"{len(right)} that are right, of {len(first)}"}
    for norm, distances in result.by_norm.items():
        found = distances[(distances > 0) & np.isfinite(distances)]
        if found.size:
            told[f"{norm}"] = (
                f"median {result.median(norm):.3g}, nearest {found.min():.2g}, farthest "
                f"{found.max():.3g}"
            )
        if missed := int(np.isinf(distances).sum()):
            told[f"{norm}, nothing found"] = f"for {missed}"
    return told


@lens(
    "Attacks: distance to the nearest wrong input",
    says="How far each test example that is right is from the nearest input that the network takes "
    "for another class, as found by a search: the largest change of any number (Linf), and the "
    "length of the change (L2). The nearest there is can only be nearer. Many examples close to 0 "
    "are many that hardly anybody could tell from their wrong neighbours.",
    applies=attackable,
    tells=_near,
)
def _distances(outcome: Outcome) -> DistancesByNorm:
    return DistancesByNorm(
        {name: found.distance for name, found in searched(outcome).found.items()}
    )


def _moved(result: LeastRobust) -> dict[str, str]:
    if not len(result.index):
        return {
            "fragile examples": "none: all are wrong as they are, or nothing was found near them"
        }
    i, found = 0, result.found
    first, then = (result.classes[guess] for guess in found.guess[:, i])
    return {
        "most fragile": f"{first} taken for {then} after a change of length "
        f"{found.distance[i]:.2g}",
        "beside the length of the input": format_percent(
            found.distance[i] / max(np.linalg.norm(found.x[i]), 1e-12)
        ),
    }


@lens(
    "Attacks: the most fragile examples",
    says=f"The {MAX_SHOWN} right test examples with the least change, by length, that the search "
    "found to make them wrong, the most fragile first: each before and after, under what the "
    "network takes it for and how sure it is, and the change itself, under its length and enlarged "
    "by one factor for all. Blue was added, orange taken away. Of rows of features the numbers "
    "that change most are shown.",
    applies=attackable,
    tells=_moved,
)
def _fragile(outcome: Outcome) -> LeastRobust:
    found = searched(outcome).found["L2"]
    return least_robust(
        found, "L2", count=MAX_SHOWN, classes=outcome.classes, features=outcome.features
    )


def _bent(result: LossSurface) -> dict[str, str]:
    along, across = result.rises
    middle = len(result.steps) // 2
    return {
        "radius": f"{result.radius:.3g}, where the search found the nearest wrong input",
        "loss": f"{result.losses[middle, middle]:.3g} at the example, with a gradient of length "
        f"{result.slope:.3g}",
        "rises within the radius": f"by {along:.3g} along the gradient, by {across:.3g} along the "
        "random direction",
        "steadiness": f"{result.steady:.2f}",
        "verdict": VERDICT_TEXTS[result.verdict],
    }


@lens(
    "Attacks: the loss around an example",
    says="The loss around the right test example of median distance, along its gradient in the "
    "input and along a random direction, inputs out of range among them. The darker, the larger; "
    "beyond the orange line the class is wrong; the dashed circle is the radius, and so is the "
    "shade. Attacks follow the gradient, and can be believed where the loss rises steadily along "
    "it, and more than at random; steadiness is 1 where it only rises. Where it is flat, jagged, "
    "or rises as much at random, gradients are hidden: an attack that fails then proves nothing.",
    applies=attackable,
    tells=_bent,
)
def _surface(outcome: Outcome) -> LossSurface:
    seen = searched(outcome)
    distance = seen.found["L2"].distance
    right = np.flatnonzero((distance > 0) & np.isfinite(distance))
    if not right.size:
        raise LensUnavailable(
            "no example that is right was moved across a boundary, so that there is no radius to "
            "look at."
        )
    at = right[np.argsort(distance[right], kind="stable")[len(right) // 2]]
    x = jnp.asarray(seen.data[0][at])
    y = jnp.asarray(seen.data[1][at])
    return loss_surface(seen.model, x, y, radius=float(distance[at]), key=jr.key(0))

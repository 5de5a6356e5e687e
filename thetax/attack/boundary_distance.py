r"""Distance of each example to the decision boundary: to the nearest input that is classified
differently.

$$d(x) = \min \{\, \|\eta\| : \arg\max_j f_j(x + \eta) \ne y \,\}$$

The attacks find upper bounds of the minimum. One search yields robust accuracy at all radii, since
an example withstands the attack exactly within radii below its distance.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from ..check import expect_count
from ..core import Model, predict
from ..threat.ball import L2, Ball, Linf
from ..threat.inputs import Box, check_attack_data, check_box
from .goal import margin_loss, untargeted
from .gradient.deepfool import DeepFool
from .gradient.pgd import PGD
from .minimum_norm import MinimumNormAttack
from .perturb import Perturbed, perturb

TOTAL_STEP_LENGTH = 2.5  # of all steps of an ascent together, in radii (Madry et al. 2018)


@dataclass(frozen=True)
class BoundaryDistances:
    """For each example the distance to the nearest misclassified input found, that input, and the
    predictions before and after.

    The distance is 0 where the example itself is misclassified, and infinite where nothing was
    found.
    """

    distances: Float[np.ndarray, " n"]
    nearest: Shaped[np.ndarray, "n ..."]
    xs: Shaped[np.ndarray, "n ..."]
    labels: Int[np.ndarray, " n"]
    predictions: Int[np.ndarray, "2 n"]  # at the example and at the nearest misclassified input
    confidences: Float[np.ndarray, "2 n"]  # the probabilities of these predictions


def boundary_distance(
    model: Model,
    data: tuple[Any, Any],
    norm: type[Ball],
    *,
    box: Box | None = None,
    steps: int = 20,
    binary_search_steps: int = 8,
    batch_size: int = 64,
) -> BoundaryDistances:
    r"""Distance of every example of `(xs, ys)` to the decision boundary, in the norm `L2` or
    `Linf`: the nearest misclassified input found by two attacks.

    They are `DeepFool`, and `PGD` with `steps` steps on the margin, whose radius is found by
    `binary_search_steps` of binary search (`MinimumNormAttack`). That search starts at the largest
    distance that DeepFool found, or if it failed on any example, at a radius that holds all valid
    inputs. Both are deterministic.

    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[3.0, 4.0], [0.0, 0.0]]), jnp.zeros(2))
    >>> # 25 / 5 away, and wrong as it is
    >>> data = jnp.array([[3.0, 4.0], [-3.0, 0.0]]), jnp.array([0, 0])
    >>> boundary_distance(line, data, L2).distances.round(2).tolist()
    [5.0, 0.0]
    """
    if norm not in (L2, Linf):
        given = getattr(norm, "__name__", norm)
        raise ValueError(f"boundary_distance: norm must be L2 or Linf; got {given}.")
    if box is not None:
        check_box("boundary_distance", box)
    expect_count(
        "boundary_distance",
        steps=steps,
        binary_search_steps=binary_search_steps,
        batch_size=batch_size,
    )
    xs, ys = check_attack_data("boundary_distance", None, model, data)
    is_right = jnp.argmax(predict(model, xs), axis=1) == ys
    distances, nearest = jnp.where(is_right, jnp.inf, 0.0), xs

    deepfool = perturb(model, (xs, ys), DeepFool(norm, steps=steps, box=box), batch_size=batch_size)
    distances, nearest = _keep_nearer(distances, nearest, deepfool)
    max_radius = float(distances.max())
    if not 0 < max_radius < np.inf:
        max_radius = _radius_of_all_inputs(xs, norm, box)
    pgd = PGD(
        untargeted(margin_loss),
        norm(max_radius),
        step_size=TOTAL_STEP_LENGTH * max_radius / steps,
        steps=steps,
        box=box,
    )
    search = MinimumNormAttack(pgd, binary_search_steps=binary_search_steps)
    searched = perturb(model, (xs, ys), search, batch_size=batch_size)
    distances, nearest = _keep_nearer(distances, nearest, searched)
    return _with_predictions(model, xs, ys, distances, nearest)


def _keep_nearer(distances: Array, nearest: Array, result: Perturbed) -> tuple[Array, Array]:
    """For each example the nearer of the known input and the attack's, if that succeeded."""
    new_distances = jnp.where(result.success, result.distance, jnp.inf)
    nearer = new_distances < distances
    column = nearer.reshape(-1, *[1] * (nearest.ndim - 1))
    return jnp.where(nearer, new_distances, distances), jnp.where(column, result.xs, nearest)


def _radius_of_all_inputs(xs: Array, norm: type[Ball], box: Box | None) -> float:
    """The radius of a ball that holds all valid inputs; without a box, all between the smallest and
    the largest value of the data.
    """
    low, high = box or (float(xs.min()), float(xs.max()))
    side = max(high - low, 1.0 if box is None else 0.0)
    return side if norm is Linf else side * float(np.sqrt(xs[0].size))


def _with_predictions(
    model: Model, xs: Array, ys: Array, distances: Array, nearest: Array
) -> BoundaryDistances:
    log_p = [
        np.asarray(jax.nn.log_softmax(predict(model, inputs)), np.float64)
        for inputs in (xs, nearest)
    ]
    return BoundaryDistances(
        distances=np.asarray(distances, np.float64),
        nearest=np.asarray(nearest),
        xs=np.asarray(xs),
        labels=np.asarray(ys),
        predictions=np.stack([p.argmax(axis=1) for p in log_p]),
        confidences=np.exp(np.stack([p.max(axis=1) for p in log_p])),
    )


@dataclass(frozen=True)
class DistancesByNorm:
    """The boundary distance of each example by the name of the norm; 0 and infinite as in
    `BoundaryDistances`.
    """

    by_norm: Mapping[str, Float[np.ndarray, " n"]]

    def median(self, norm: str) -> float:
        """The median over the examples that are classified correctly; NaN if there are none."""
        positive = self.by_norm[norm][self.by_norm[norm] > 0]
        return float(np.median(positive)) if positive.size else float("nan")


@dataclass(frozen=True)
class LeastRobust:
    """The correctly classified examples nearest to the decision boundary, nearest first."""

    examples: BoundaryDistances
    indices: Int[np.ndarray, " m"]  # of these examples in the data
    norm: str
    class_names: tuple[str, ...]
    feature_names: tuple[str, ...] = ()  # where an input is a row of features


def least_robust(
    distances: BoundaryDistances,
    norm: str,
    *,
    n_examples: int = 6,
    class_names: Sequence[str] = (),
    feature_names: Sequence[str] = (),
) -> LeastRobust:
    """The `n_examples` correctly classified examples of smallest boundary distance.

    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[1.0], [0.0]]), jnp.zeros(2))
    >>> data = jnp.array([[3.0], [-1.0], [2.0]]), jnp.array([0, 0, 0])
    >>> least_robust(boundary_distance(line, data, L2), "L2", n_examples=1).indices.tolist()
    [2]
    """
    expect_count("least_robust", n_examples=n_examples)
    order = np.argsort(distances.distances, kind="stable")
    nearest_first = distances.distances[order]
    order = order[(nearest_first > 0) & np.isfinite(nearest_first)][:n_examples]
    examples = BoundaryDistances(
        distances=distances.distances[order],
        nearest=distances.nearest[order],
        xs=distances.xs[order],
        labels=distances.labels[order],
        predictions=distances.predictions[:, order],
        confidences=distances.confidences[:, order],
    )
    n_classes = int(max(distances.labels.max(), distances.predictions.max())) + 1
    names = tuple(class_names) or tuple(str(j) for j in range(n_classes))
    return LeastRobust(examples, order, norm, names, tuple(feature_names))

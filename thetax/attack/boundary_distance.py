r"""How far every example is from the nearest input that is taken for another class.

$$d(x) = \min \{\, \|\eta\| : f(x + \eta) \text{ says another class} \,\}$$

The minimum is looked for, not known: what is found is never below it. One search tells of all radii
at once, for an example stands against the attack exactly within radii below its distance.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from ..core import Model, predict
from ..threat.ball import L2, Ball, Linf
from ..threat.inputs import Range, check_attacked, check_box
from .goal import margin_loss, untargeted
from .gradient.deepfool import DeepFool
from .gradient.pgd import PGD
from .nearest import MinimumNormAttack
from .perturb import perturb

LENGTH = 2.5  # of all steps of an ascent together, in radii (Madry et al. 2018)


@dataclass(frozen=True)
class BoundaryDistances:
    """Of each example the distance to the nearest wrong input found, and this input; both with what
    was said of them.

    The distance is 0 where the example itself is taken for a wrong class, and infinite where
    nothing was found.
    """

    distance: Float[np.ndarray, " n"]
    nearest: Shaped[np.ndarray, "n ..."]
    x: Shaped[np.ndarray, "n ..."]
    truth: Int[np.ndarray, " n"]
    guess: Int[np.ndarray, "2 n"]  # before and after
    sure: Float[np.ndarray, "2 n"]  # the probability given to the guess, before and after


def boundary_distance(
    model: Model,
    data: tuple[Any, Any],
    norm: type[Ball],
    *,
    box: Range | None = None,
    steps: int = 20,
    rounds: int = 8,
    batch: int = 64,
) -> BoundaryDistances:
    r"""The nearest wrong input to every example of `(xs, ys)`, in the norm of `L2` or `Linf`.

    Of two searches the nearer: `DeepFool`, and `PGD` with so many steps on the margin in balls of
    so many radii (`MinimumNormAttack`), below the largest distance of the first, or if that failed
    anywhere, below one that holds all valid inputs. Neither has chance in it.

    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[3.0, 4.0], [0.0, 0.0]]), jnp.zeros(2))
    >>> # 25 / 5 away, and wrong as it is
    >>> data = jnp.array([[3.0, 4.0], [-3.0, 0.0]]), jnp.array([0, 0])
    >>> boundary_distance(line, data, L2).distance.round(2).tolist()
    [5.0, 0.0]
    """
    if norm not in (L2, Linf):
        raise ValueError(f"boundary: norm is L2 or Linf; got {getattr(norm, '__name__', norm)}.")
    if box is not None:
        check_box("boundary", box)
    xs, ys = check_attacked("boundary", None, model, data)
    start = jnp.where(jnp.argmax(predict(model, xs), axis=1) == ys, jnp.inf, 0.0), xs
    step = partial(_nearer, model=model, xs=xs, ys=ys, norm=norm, batch=batch)
    distance, nearest = step(start, DeepFool(norm, steps=steps, box=box))
    most = float(distance.max())
    most = most if 0 < most < np.inf else _most(xs, norm, box)
    ascent = PGD(
        untargeted(margin_loss), norm(most), step_size=LENGTH * most / steps, steps=steps, box=box
    )
    return _judged(
        model,
        xs,
        ys,
        *step((distance, nearest), MinimumNormAttack(ascent, binary_search_steps=rounds)),
    )


def _nearer(
    known: Any, search: Any, *, model: Model, xs: Array, ys: Array, norm: type[Ball], batch: int
) -> Any:
    """Distances and inputs, after another search."""
    distance, nearest = known
    found = perturb(search, model, (xs, ys), batch=batch)
    wrong = jnp.argmax(predict(model, found), axis=1) != ys
    far = jnp.where(wrong, jax.vmap(norm(1.0).norm)(found - xs), jnp.inf)
    nearer = far < distance
    return jnp.where(nearer, far, distance), jnp.where(
        nearer.reshape(-1, *[1] * (xs.ndim - 1)), found, nearest
    )


def _most(xs: Array, norm: type[Ball], box: Range | None) -> float:
    """The radius of a ball that holds all valid inputs; without a range, the span of those that
    there are.
    """
    low, high = box or (float(xs.min()), float(xs.max()))
    each = max(high - low, 1.0 if box is None else 0.0)
    return each if norm is Linf else each * float(np.sqrt(xs[0].size))


def _judged(
    model: Model, xs: Array, ys: Array, distance: Array, nearest: Array
) -> BoundaryDistances:
    log_p = [
        np.asarray(jax.nn.log_softmax(predict(model, inputs)), np.float64)
        for inputs in (xs, nearest)
    ]
    guess = np.stack([p.argmax(axis=1) for p in log_p])
    sure = np.exp(np.stack([p.max(axis=1) for p in log_p]))
    wide = np.asarray(distance, np.float64)
    return BoundaryDistances(wide, np.asarray(nearest), np.asarray(xs), np.asarray(ys), guess, sure)


@dataclass(frozen=True)
class DistancesByNorm:
    """Of each example the distance to the nearest wrong input found, by the name of the norm; 0 and
    infinite as in `BoundaryDistances`.
    """

    by_norm: Mapping[str, Float[np.ndarray, " n"]]

    def median(self, norm: str) -> float:
        """Of the examples that are right as they are, NaN if there are none."""
        right = self.by_norm[norm][self.by_norm[norm] > 0]
        return float(np.median(right)) if right.size else float("nan")


@dataclass(frozen=True)
class LeastRobust:
    """The right examples nearest to a wrong input, the nearest first, each with that input."""

    found: BoundaryDistances
    index: Int[np.ndarray, " m"]  # their places in the data
    norm: str
    classes: tuple[str, ...]
    features: tuple[
        str, ...
    ] = ()  # names of the numbers of an input, where it is a row of features


def least_robust(
    found: BoundaryDistances,
    norm: str,
    *,
    count: int = 6,
    classes: Sequence[str] = (),
    features: Sequence[str] = (),
) -> LeastRobust:
    """The examples of smallest distance among those that are right as they are.

    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[1.0], [0.0]]), jnp.zeros(2))
    >>> found = boundary_distance(
    ...     line, (jnp.array([[3.0], [-1.0], [2.0]]), jnp.array([0, 0, 0])), L2
    ... )
    >>> least_robust(found, "L2", count=1).index.tolist()
    [2]
    """
    if count < 1:
        raise ValueError(f"fragile: count must be at least 1; got {count}.")
    order = np.argsort(found.distance, kind="stable")
    order = order[(found.distance[order] > 0) & np.isfinite(found.distance[order])][:count]
    some = BoundaryDistances(
        distance=found.distance[order],
        nearest=found.nearest[order],
        x=found.x[order],
        truth=found.truth[order],
        guess=found.guess[:, order],
        sure=found.sure[:, order],
    )
    names = tuple(classes) or tuple(
        str(j) for j in range(int(max(found.truth.max(), found.guess.max())) + 1)
    )
    return LeastRobust(some, order, norm, names, tuple(features))

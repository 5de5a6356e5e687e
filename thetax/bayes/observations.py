"""Observations are looked at before anything is computed: what was expected, what came, what to do."""

from typing import Any

import jax
import numpy as np

from ..data.check import check_labels, check_numbers
from .precision import traced


def check_inputs(name: str, xs: Any) -> int:
    """The number of examples; refuses none at all, and numbers that are not finite."""
    leaves = jax.tree.leaves(xs)
    if not leaves:
        raise ValueError(f"{name}: xs holds no arrays; stack the examples along the first axis of an array.")
    if any(isinstance(leaf, int | float | str) for leaf in leaves):
        raise ValueError(f"{name}: expected xs as an array, got lists; make it one first, e.g. with np.asarray.")
    if not traced(xs):
        for leaf in leaves:
            check_numbers(leaf, name=f"{name}: xs")
    sizes = {len(leaf) for leaf in leaves}
    if len(sizes) > 1:
        raise ValueError(f"{name}: xs is a tree of arrays of {sorted(sizes)} examples; all must have as many.")
    return sizes.pop()


def check_observations(name: str, xs: Any, ys: Any) -> None:
    """Refuses observations that are not one number, or one vector, for each example."""
    n = check_inputs(name, xs)
    _check_count(name, n, ys)
    if np.ndim(ys) not in (1, 2):
        raise ValueError(
            f"{name}: ys has shape {np.shape(ys)}; expected one number an example, ({n},), or one vector, ({n}, o)."
        )
    if not traced(ys):
        check_numbers(ys, name=f"{name}: ys")


def check_classes(name: str, xs: Any, labels: Any, classes: int) -> None:
    """Refuses labels that are not whole numbers from 0 to `classes` - 1, one an example."""
    n = check_inputs(name, xs)
    _check_count(name, n, labels)
    if not traced(labels):
        check_labels(check_numbers(labels, name=f"{name}: labels"), classes, name=f"{name}: labels")


def _check_count(name: str, n: int, ys: Any) -> None:
    if np.ndim(ys) == 0 or len(ys) != n:
        raise ValueError(f"{name}: {n} examples in xs, but ys has shape {np.shape(ys)}; row i of both is example i.")

"""Observations are looked at before anything is computed: what was expected, what came, what to
do.
"""

from typing import Any

import numpy as np

from ...check import check_examples, check_labels, check_numbers
from ...memory import expect_room
from .float64 import traced


def check_observations(name: str, xs: Any, ys: Any) -> None:
    """Refuses observations that are not one number, or one vector, for each example."""
    n = check_examples(xs, name=f"{name}: xs")
    _check_count(name, n, ys)
    if np.ndim(ys) not in (1, 2):
        raise ValueError(
            f"{name}: ys has shape {np.shape(ys)}; expected one number an example, ({n},), or one "
            f"vector, ({n}, o)."
        )
    if not traced(ys):
        check_numbers(ys, name=f"{name}: ys")


def check_classes(name: str, xs: Any, labels: Any, classes: int) -> None:
    """Refuses labels that are not whole numbers from 0 to `classes` - 1, one an example."""
    n = check_examples(xs, name=f"{name}: xs")
    _check_count(name, n, labels)
    if not traced(labels):
        check_labels(check_numbers(labels, name=f"{name}: labels"), classes, name=f"{name}: labels")


def check_matrix(name: str, xs: Any) -> int:
    """The number of examples, for which there must be room for a matrix of all pairs and its
    factor.
    """
    n = check_examples(xs, name=f"{name}: xs")
    expect_room(
        name, 2 * 8 * n * n, "take InducingProcess, condition_iteratively, or fewer examples"
    )
    return n


def check_draws(name: str, count: int) -> None:
    """Refuses less than one draw."""
    if not isinstance(count, int) or count < 1:
        raise ValueError(f"{name}: count must be a whole number, at least 1; got {count}.")


def _check_count(name: str, n: int, ys: Any) -> None:
    if not hasattr(ys, "shape"):
        raise ValueError(
            f"{name}: expected an array, got a {type(ys).__name__}. Make it one: np.asarray(...)."
        )
    if np.ndim(ys) == 0 or len(ys) != n:
        raise ValueError(
            f"{name}: {n} examples in xs, but ys has shape {np.shape(ys)}; row i of both is "
            "example i."
        )

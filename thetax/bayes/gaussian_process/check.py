"""Checks of the observations given to a Gaussian process, before any compute is spent."""

from typing import Any

import numpy as np

from ...check import check_examples, check_labels, check_numbers
from ...memory import expect_memory
from .float64 import is_traced


def check_observations(name: str, xs: Any, ys: Any) -> None:
    """Raises unless there is one number, or one vector, per example, all finite."""
    n = check_examples(xs, name=f"{name}: xs")
    _check_rows(name, n, ys)
    if np.ndim(ys) not in (1, 2):
        raise ValueError(
            f"{name}: ys has shape {np.shape(ys)}; expected ({n},), one number per example, or "
            f"({n}, o), one vector per example."
        )
    if not is_traced(ys):
        check_numbers(ys, name=f"{name}: ys")


def check_classes(name: str, xs: Any, labels: Any, classes: int) -> None:
    """Raises unless there is one integer label from 0 to `classes` - 1 per example."""
    n = check_examples(xs, name=f"{name}: xs")
    _check_rows(name, n, labels)
    if not is_traced(labels):
        check_labels(check_numbers(labels, name=f"{name}: labels"), classes, name=f"{name}: labels")


def check_kernel_matrix(name: str, xs: Any) -> int:
    """Returns the number of examples; raises if the kernel matrix and its Cholesky factor would
    not fit into memory.
    """
    n = check_examples(xs, name=f"{name}: xs")
    expect_memory(
        name, 2 * 8 * n * n, "use SparseGaussianProcess, condition_iteratively, or fewer examples"
    )
    return n


def _check_rows(name: str, n: int, ys: Any) -> None:
    if not hasattr(ys, "shape"):
        raise ValueError(
            f"{name}: expected an array, got a {type(ys).__name__}. Convert it: np.asarray(...)."
        )
    if np.ndim(ys) == 0 or len(ys) != n:
        raise ValueError(
            f"{name}: xs has {n} examples, but ys has shape {np.shape(ys)}; row i of both must "
            "belong to example i."
        )

"""Checks of the input of a function. The errors say what was expected, what was given, and what to
do.
"""

import difflib
import operator
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer


def check(xs: Any, ys: Any = None, *, classes: int | None = None) -> None:
    """Raises `ValueError` unless `xs` (and `ys`) are valid training data.

    `xs` must be finite numbers with at least one example; so must `ys`, with as many examples. With
    `classes`, `ys` must be integers from 0 to `classes` - 1, one per example.

    >>> check(np.array([[1.0, 2.0], [3.0, np.nan]]))
    Traceback (most recent call last):
    ValueError: xs: expected finite numbers, but row 1, column 1 is nan. Drop or impute ...
    >>> check(np.ones((3, 2)), np.array([0, 1, 5]), classes=3)
    Traceback (most recent call last):
    ValueError: ys: expected labels from 0 to 2, but row 2 is 5. Use 6 classes, or renumber ...
    """
    xs = check_numbers(xs, name="xs")
    if ys is None:
        return
    ys = check_numbers(ys, name="ys")
    if len(xs) != len(ys):
        raise ValueError(
            f"xs and ys: expected one y for each x, but there are {len(xs)} xs and {len(ys)} ys. "
            "Slice or load them so that row i of both belongs to example i."
        )
    if classes is not None:
        check_labels(ys, classes, name="ys")


def check_examples(xs: Any, *, name: str) -> int:
    """The number of examples, stacked along the first axis of an array or of all arrays of a tree.

    Raises `ValueError` for an empty tree, lists, values that are not finite, and arrays with
    different numbers of examples. For traced arrays only the shapes are checked.

    >>> check_examples(
    ...     {"tokens": np.zeros((3, 5), np.int32), "mask": np.ones((3, 5))}, name="ntk: xs"
    ... )
    3
    >>> check_examples([[1.0, 2.0], [3.0, 4.0]], name="ntk: xs")
    Traceback (most recent call last):
    ValueError: ntk: xs: expected an array, or a tree of arrays, got a float in a list. Convert ...
    """
    leaves = jax.tree.leaves(xs)
    if not leaves:
        raise ValueError(
            f"{name}: expected an array of examples, stacked along the first axis, got {xs!r}."
        )
    invalid = [leaf for leaf in leaves if not hasattr(leaf, "dtype") or not hasattr(leaf, "shape")]
    if invalid:
        inside = "" if invalid[0] is xs else f" in a {type(xs).__name__}"
        raise ValueError(
            f"{name}: expected an array, or a tree of arrays, got a {type(invalid[0]).__name__}"
            f"{inside}. Convert it: np.asarray(...)."
        )
    for leaf in leaves:
        if not leaf.shape or not leaf.size:
            raise ValueError(
                f"{name}: expected at least one example, but the shape is {leaf.shape}."
            )
        if not isinstance(leaf, Tracer):
            # Inside a traced function, constants still have values that can be checked.
            with jax.ensure_compile_time_eval():
                check_numbers(leaf, name=name)
    sizes = sorted({leaf.shape[0] for leaf in leaves})
    if len(sizes) > 1:
        raise ValueError(
            f"{name}: arrays of {' and '.join(map(str, sizes))} examples; all must have the same "
            "number."
        )
    return sizes[0]


def check_numbers(array: Any, *, name: str) -> Any:
    """The argument as an array; raises `ValueError` unless it has at least one example and all
    numbers are finite.
    """
    if not isinstance(array, jax.Array):
        try:
            array = np.asarray(array)
        except ValueError:
            raise ValueError(
                f"{name}: expected rows of one length, but they differ. Pad or truncate them."
            ) from None
    if not (jnp.issubdtype(array.dtype, np.number) or array.dtype == bool):
        raise ValueError(
            f"{name}: expected numbers, but the dtype is {array.dtype}. "
            "Encode strings as numbers, for instance with np.unique(..., return_inverse=True)."
        )
    if array.ndim == 0 or array.size == 0:
        raise ValueError(f"{name}: expected at least one example, but the shape is {array.shape}.")
    if jnp.issubdtype(array.dtype, np.inexact):
        _finite(array, name)
    return array


@jax.jit
def _all_finite(array):
    return jnp.isfinite(array).all()


def _finite(array: Any, name: str) -> None:
    with np.errstate(over="ignore"):  # 1e300 becomes infinite in float32
        on_device = jnp.asarray(array)
    if bool(_all_finite(on_device)):
        return
    finite = jnp.isfinite(on_device)
    index = np.unravel_index(int(np.argmin(np.asarray(finite))), array.shape)
    where = f"row {index[0]}"
    if len(index) == 2:
        where += f", column {index[1]}"
    elif len(index) > 2:
        where += f", index {tuple(int(i) for i in index[1:])}"
    raise ValueError(
        f"{name}: expected finite numbers, but {where} is {float(array[index])}. Drop or "
        "impute these rows first."
    )


def expect_count(where: str, **values: Any) -> None:
    """Raises `ValueError` unless every value is an integer >= 1.

    >>> expect_count("fit", epochs=10, batch_size=64)
    >>> expect_count("fit", epochs=10, batch_size=0)
    Traceback (most recent call last):
    ValueError: fit: batch_size must be an integer >= 1; got 0.
    """
    for name, value in values.items():
        try:
            valid = not isinstance(value, bool) and operator.index(value) >= 1
        except TypeError:
            valid = False
        if not valid:
            raise ValueError(f"{where}: {name} must be an integer >= 1; got {value!r}.")


def suggest(name: str, known: Iterable[str], *, n: int = 3) -> str:
    """ "did you mean ...? " with the names most similar to a mistyped one, or an empty string.

    >>> suggest("digts", ["digits", "mnist", "widgets"])
    'did you mean digits or widgets? '
    >>> suggest("zebra", ["digits", "mnist"])
    ''
    """
    nearest = difflib.get_close_matches(str(name).lower(), list(known), n=n, cutoff=0.5)
    return f"did you mean {' or '.join(nearest)}? " if nearest else ""


def check_labels(ys: Any, classes: int, *, name: str) -> None:
    """Raises `ValueError` unless `ys` holds one integer from 0 to `classes` - 1 per example."""
    if ys.ndim != 1:
        raise ValueError(
            f"{name}: expected one label per example, shape ({len(ys)},), but the shape is "
            f"{ys.shape}. Take the argmax of one-hot rows, or ravel a column."
        )
    if not jnp.issubdtype(ys.dtype, np.integer):
        raise ValueError(
            f"{name}: expected integer labels from 0 to {classes - 1}, but the dtype is "
            f"{ys.dtype}. Use ys.astype(np.int32) if they are class labels; leave classes=None for "
            "regression."
        )
    labels = np.asarray(ys)
    bad = (labels < 0) | (labels >= classes)
    if bad.any():
        first = int(np.argmax(bad))
        advice = (
            f"Use {int(labels.max()) + 1} classes, or renumber" if labels.min() >= 0 else "Renumber"
        )
        raise ValueError(
            f"{name}: expected labels from 0 to {classes - 1}, but row {first} is "
            f"{labels[first]}. {advice} the labels."
        )

"""Checks of input before any compute is spent: what was expected, what was given, what to do."""

import difflib
import operator
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer


def check(xs: Any, ys: Any = None, *, classes: int | None = None) -> None:
    """Raises `ValueError` unless `xs` (and `ys`) can be learnt from.

    `xs` must be numbers, finite, at least one example; `ys` likewise and as many. With `classes`
    the `ys` must be integers from 0 to `classes` - 1, one an example.

    >>> check(np.array([[1.0, 2.0], [3.0, np.nan]]))
    Traceback (most recent call last):
    ValueError: xs: expected finite numbers, but row 1, column 1 is nan. Drop or fill such rows ...
    >>> check(np.ones((3, 2)), np.array([0, 1, 5]), classes=3)
    Traceback (most recent call last):
    ValueError: ys: expected labels from 0 to 2, but row 2 is 5. Make it 6 classes, or renumber ...
    """
    xs = check_numbers(xs, name="xs")
    if ys is None:
        return
    ys = check_numbers(ys, name="ys")
    if len(xs) != len(ys):
        raise ValueError(
            f"xs and ys: expected one y for each x, but there are {len(xs)} xs and {len(ys)} ys. "
            "Cut or load them so that row i of both is example i."
        )
    if classes is not None:
        check_labels(ys, classes, name="ys")


def check_examples(xs: Any, *, name: str) -> int:
    """How many examples are stacked along the first axis of an array, or of every array of a tree.

    Refuses none at all, lists, numbers that are not finite, and arrays that disagree about how many
    they are. Of what is only traced the shapes are looked at.

    >>> check_examples(
    ...     {"tokens": np.zeros((3, 5), np.int32), "mask": np.ones((3, 5))}, name="ntk: xs"
    ... )
    3
    >>> check_examples([[1.0, 2.0], [3.0, 4.0]], name="ntk: xs")
    Traceback (most recent call last):
    ValueError: ntk: xs: expected an array, or a tree of them, got a float in a list. Make it ...
    """
    leaves = jax.tree.leaves(xs)
    if not leaves:
        raise ValueError(
            f"{name}: expected an array of examples, stacked along the first axis, got {xs!r}."
        )
    strange = [leaf for leaf in leaves if not hasattr(leaf, "dtype") or not hasattr(leaf, "shape")]
    if strange:
        came = type(strange[0]).__name__ + (
            "" if strange[0] is xs else f" in a {type(xs).__name__}"
        )
        raise ValueError(
            f"{name}: expected an array, or a tree of them, got a {came}. Make it one: "
            "np.asarray(...)."
        )
    for leaf in leaves:
        if not leaf.shape or not leaf.size:
            raise ValueError(
                f"{name}: expected at least one example, but the shape is {leaf.shape}."
            )
        if not isinstance(leaf, Tracer):
            with (
                jax.ensure_compile_time_eval()
            ):  # constants of a traced function are values all the same
                check_numbers(leaf, name=name)
    sizes = sorted({leaf.shape[0] for leaf in leaves})
    if len(sizes) > 1:
        raise ValueError(
            f"{name}: arrays of {' and '.join(map(str, sizes))} examples; all must have as many."
        )
    return sizes[0]


def check_numbers(array: Any, *, name: str) -> Any:
    """The argument as an array, once it is known to be finite numbers, at least one example of
    them.
    """
    if not isinstance(array, jax.Array):
        try:
            array = np.asarray(array)
        except ValueError:
            raise ValueError(
                f"{name}: expected rows of one length, but the rows differ. Pad or cut them."
            ) from None
    if not (jnp.issubdtype(array.dtype, np.number) or array.dtype == bool):
        raise ValueError(
            f"{name}: expected numbers, but the dtype is {array.dtype}. "
            "Turn words into numbers first, for instance with np.unique(..., return_inverse=True)."
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
    with np.errstate(over="ignore"):  # 1e300 is infinite in float32
        on_device = jnp.asarray(array)
    if bool(_all_finite(on_device)):
        return
    finite = jnp.isfinite(on_device)
    index = np.unravel_index(int(np.argmin(np.asarray(finite))), array.shape)
    where = f"row {index[0]}"
    if len(index) == 2:
        where += f", column {index[1]}"
    elif len(index) > 2:
        where += f", place {tuple(int(i) for i in index[1:])}"
    raise ValueError(
        f"{name}: expected finite numbers, but {where} is {float(array[index])}. Drop or fill "
        "such rows first."
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
    """ "did you mean ...? " with the names nearest to a mistyped one, or nothing.

    >>> suggest("digts", ["digits", "mnist", "widgets"])
    'did you mean digits or widgets? '
    >>> suggest("zebra", ["digits", "mnist"])
    ''
    """
    nearest = difflib.get_close_matches(str(name).lower(), list(known), n=n, cutoff=0.5)
    return f"did you mean {' or '.join(nearest)}? " if nearest else ""


def check_labels(ys: Any, classes: int, *, name: str) -> None:
    """Refuses labels that are not integers from 0 to `classes` - 1, one an example."""
    if ys.ndim != 1:
        raise ValueError(
            f"{name}: expected one label an example, shape ({len(ys)},), but the shape is "
            f"{ys.shape}. Take the argmax of one-hot rows, or ravel a column."
        )
    if not jnp.issubdtype(ys.dtype, np.integer):
        raise ValueError(
            f"{name}: expected integer labels from 0 to {classes - 1}, but the dtype is "
            f"{ys.dtype}. Use ys.astype(np.int32) if they are whole numbers; leave classes=None "
            "for a regression."
        )
    labels = np.asarray(ys)
    bad = (labels < 0) | (labels >= classes)
    if bad.any():
        first = int(np.argmax(bad))
        advice = (
            f"Make it {int(labels.max()) + 1} classes, or renumber"
            if labels.min() >= 0
            else "Renumber"
        )
        raise ValueError(
            f"{name}: expected labels from 0 to {classes - 1}, but row {first} is "
            f"{labels[first]}. {advice} the labels."
        )

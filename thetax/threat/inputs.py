"""Input checks of attacks and certificates: the valid range of inputs, examples and labels."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from ..check import check_examples, check_labels
from ..core import Model, expect_floats
from ..layers import has_batch_norm

Box = tuple[float, float]  # (low, high): the smallest and largest valid value of an input


def expect_single_array(name: str, xs: Any) -> None:
    """Raises `ValueError` for inputs that are tuples or dicts of arrays: a ball is defined for one
    array.

    >>> expect_single_array("trades", (jnp.zeros(3), jnp.zeros(2)))
    Traceback (most recent call last):
    ValueError: trades: inputs must be a single array; got a tuple. Wrap the model so that it ...
    """
    if isinstance(xs, tuple | dict):
        raise ValueError(
            f"{name}: inputs must be a single array; got a {type(xs).__name__}. Wrap the model so "
            "that it takes one array, and fixes the others."
        )


def check_input(name: str, model: Model, x: Any, y: Any, box: Box | None) -> None:
    """Raises `ValueError` unless x is a float array in the box and y, if it is an integer, a class.
    Of traced arrays only shapes and dtypes are checked.

    >>> check_input("PGD", lambda x: x, jnp.array([0.2, 1.5]), jnp.array(0), (0.0, 1.0))
    Traceback (most recent call last):
    ValueError: PGD: expected inputs from 0.0 to 1.0, but they go from 0.2 to 1.5. Scale them, ...
    """
    expect_floats(f"{name}: x", x)
    if box is not None:
        check_box(name, box)
        low, high = box if isinstance(x, Tracer) else (np.asarray(x).min(), np.asarray(x).max())
        if not box[0] <= low <= high <= box[1]:
            raise ValueError(
                f"{name}: expected inputs from {box[0]} to {box[1]}, but they go from {low:.4g} to "
                f"{high:.4g}. Scale them, or pass their own range as box=."
            )
    if (
        not isinstance(y, Tracer)
        and np.ndim(y) == 0
        and jnp.issubdtype(jnp.asarray(y).dtype, jnp.integer)
    ):
        classes = jax.eval_shape(lambda x: model(x), x).shape[-1]
        if not 0 <= int(y) < classes:
            raise ValueError(f"{name}: expected a label from 0 to {classes - 1}, got {int(y)}.")


def check_box(name: str, box: Box) -> None:
    """Raises `ValueError` unless `box` is (low, high) with low < high.

    >>> check_box("PGD", (1.0, 0.0))
    Traceback (most recent call last):
    ValueError: PGD: box must be (low, high) with low < high, such as (0.0, 1.0); got (1.0, 0.0).
    """
    if not (len(box) == 2 and -np.inf < box[0] < box[1] < np.inf):
        raise ValueError(
            f"{name}: box must be (low, high) with low < high, such as (0.0, 1.0); got {box}."
        )


def check_attack_data(name: str, attack: Any, model: Model, data: Any) -> tuple[Array, Array]:
    """Examples and labels as arrays; raises `ValueError` unless an attack can start from them."""
    if not (isinstance(data, tuple) and len(data) == 2):
        raise ValueError(f"{name}: expected data as a pair (xs, ys), got a {type(data).__name__}.")
    if has_batch_norm(model):
        raise ValueError(
            f"{name}: batch normalisation couples the examples of a batch. Fold it into the model "
            "first: fold_batch_norm(model, xs)."
        )
    expect_floats(f"{name}: xs", data[0]) if hasattr(data[0], "dtype") else None
    n = check_examples(data[0], name=f"{name}: xs")
    if (n_labels := check_examples(data[1], name=f"{name}: ys")) != n:
        raise ValueError(
            f"{name}: expected a y for each x, but there are {n} xs and {n_labels} ys."
        )
    xs = jnp.asarray(data[0])
    ys = jnp.asarray(data[1])
    check_input(name, model, xs, jnp.zeros(0), getattr(attack, "box", None))
    out = jax.eval_shape(lambda x: model(x), xs[0])
    if attack is None and out.shape in ((), (1,)):  # certificates and robustness compare classes
        raise ValueError(
            f"{name}: expected a logit for each class, but the model returns a single one. Add the "
            "other: lambda x: jnp.concatenate([jnp.zeros(1), model(x).reshape(1)])."
        )
    labels = jnp.issubdtype(ys.dtype, jnp.integer) and ys.ndim == 1
    if len(out.shape) == 1 and (labels or attack is None):
        check_labels(ys, out.shape[0], name=f"{name}: ys")
    return xs, ys

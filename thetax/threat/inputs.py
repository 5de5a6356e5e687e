"""What an attack or a certificate is given: the range of valid inputs, and checks of examples and
labels.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from ..check import check_examples, check_labels
from ..core import Model, expect_floats
from ..layers import has_batch_norm

Range = tuple[float, float]  # the least and the largest value of an input


def check_one_array(name: str, xs: Any) -> None:
    """Refuses examples of several parts, which are not moved in one ball.

    >>> check_one_array("robust", (jnp.zeros(3), jnp.zeros(2)))
    Traceback (most recent call last):
    ValueError: robust: inputs are moved as one array, but those that came are a tuple.
    """
    if isinstance(xs, tuple | dict):
        raise ValueError(
            f"{name}: inputs are moved as one array, but those that came are a {type(xs).__name__}."
        )


def check_input(name: str, model: Model, x: Any, y: Any, box: Range | None) -> None:
    """Refuses what no attack can begin with; of what is only traced the shapes and kinds are looked
    at.

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
                f"{high:.4g}. Scale them, or give their own box."
            )
    if (
        not isinstance(y, Tracer)
        and np.ndim(y) == 0
        and jnp.issubdtype(jnp.asarray(y).dtype, jnp.integer)
    ):
        classes = jax.eval_shape(lambda x: model(x), x).shape[-1]
        if not 0 <= int(y) < classes:
            raise ValueError(f"{name}: expected a label from 0 to {classes - 1}, got {int(y)}.")


def check_box(name: str, box: Range) -> None:
    """Refuses a range that is none.

    >>> check_box("PGD", (1.0, 0.0))
    Traceback (most recent call last):
    ValueError: PGD: box is the least and the largest value of an input, such as (0.0, 1.0); got ...
    """
    if not (len(box) == 2 and -np.inf < box[0] < box[1] < np.inf):
        raise ValueError(
            f"{name}: box is the least and the largest value of an input, such as (0.0, 1.0); got "
            f"{box}."
        )


def check_attacked(name: str, attack: Any, model: Model, data: Any) -> tuple[Array, Array]:
    """The examples and labels as arrays, once they are known to be what an attack can begin
    with.
    """
    if not (isinstance(data, tuple) and len(data) == 2):
        raise ValueError(f"{name}: expected data as a pair (xs, ys), got a {type(data).__name__}.")
    if has_batch_norm(model):
        raise ValueError(
            f"{name}: batch normalisation ties the examples together; fold it in: fold(model, xs)."
        )
    expect_floats(f"{name}: xs", data[0]) if hasattr(data[0], "dtype") else None
    n = check_examples(data[0], name=f"{name}: xs")
    if (came := check_examples(data[1], name=f"{name}: ys")) != n:
        raise ValueError(f"{name}: expected a y for each x, but there are {n} xs and {came} ys.")
    xs = jnp.asarray(data[0])
    ys = jnp.asarray(data[1])
    check_input(name, model, xs, jnp.zeros(0), getattr(attack, "box", None))
    out = jax.eval_shape(lambda x: model(x), xs[0])
    if attack is None and out.shape in ((), (1,)):  # where classes are compared
        cure = (
            "give it the other one too: lambda x: jnp.concatenate([jnp.zeros(1), "
            "model(x).reshape(1)])."
        )
        raise ValueError(
            f"{name}: expected a logit for each class, but the model gives a single one; {cure}"
        )
    labels = jnp.issubdtype(ys.dtype, jnp.integer) and ys.ndim == 1
    if len(out.shape) == 1 and (labels or attack is None):
        check_labels(ys, out.shape[0], name=f"{name}: ys")
    return xs, ys

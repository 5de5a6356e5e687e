"""Bad input is refused by name, with what was expected, what came and what to do, before any compute is spent."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core import Batch, Model, Objective, predict


def check_settings(
    *, epochs: int, batch: int, patience: int | None, validation: Any, metrics: Mapping[str, Objective] | None
) -> None:
    """Refuses settings of `fit` that cannot be meant."""
    if epochs < 1:
        raise ValueError(f"fit: epochs must be at least 1; got {epochs}.")
    if batch < 1:
        raise ValueError(f"fit: batch must be at least 1; got {batch}.")
    if patience is not None and patience < 1:
        raise ValueError(f"fit: patience counts epochs and must be at least 1; got {patience}.")
    if patience is not None and (validation is None or not metrics):
        raise ValueError("fit: patience needs a validation set and a metric to watch; give validation= and metrics=.")
    if isinstance(validation, float) and not 0 < validation < 1:
        raise ValueError(f"fit: validation as a fraction must lie strictly between 0 and 1; got {validation}.")


def check_arrays(name: str, data: Batch, model: Model, *, batch: int = 1) -> int:
    """The number of examples; refuses data that are empty, ragged, not numbers, not finite, or wrongly labelled."""
    leaves = [np.asarray(leaf) if not isinstance(leaf, jax.Array) else leaf for leaf in jax.tree.leaves(data)]
    if not leaves:
        raise ValueError(f"fit: {name} holds no arrays; give a pair (xs, ys).")
    for leaf in leaves:
        if leaf.ndim == 0 or leaf.dtype.kind not in "biufcV":
            raise ValueError(
                f"fit: {name} must hold arrays of numbers with examples first; got {leaf.dtype}{leaf.shape}."
            )
    sizes = [len(leaf) for leaf in leaves]
    if min(sizes) == 0:
        raise ValueError(f"fit: {name} is empty; its arrays have shapes {[leaf.shape for leaf in leaves]}.")
    if len(set(sizes)) > 1:
        raise ValueError(f"fit: the arrays of {name} must have one length; got {sizes}.")
    if sizes[0] < batch:
        raise ValueError(
            f"fit: batch={batch} is larger than the {sizes[0]} examples of {name}; choose a smaller batch."
        )
    for position, leaf in enumerate(leaves):
        with np.errstate(over="ignore"):  # 1e300 is infinite in float32
            finite = jnp.isfinite(leaf)
        if not bool(finite.all()):
            where = tuple(int(i) for i in np.argwhere(~np.asarray(finite))[0])
            raise ValueError(
                f"fit: array {position} of {name} is {np.asarray(leaf)[where]} at index {where}; "
                "drop or fill such examples first."
            )
    if isinstance(data, tuple) and len(data) == 2 and len(leaves) == 2:
        _check_labels(name, leaves[0], leaves[1], model)
    return sizes[0]


def _check_labels(name: str, xs: Any, ys: Any, model: Model) -> None:
    """Integer labels must name one of the model's classes, where its output is a vector of them."""
    if not jnp.issubdtype(ys.dtype, jnp.integer) or ys.ndim != 1:
        return
    one = jax.ShapeDtypeStruct((1, *xs.shape[1:]), xs.dtype)
    output = jax.eval_shape(predict, model, one)
    classes = output.shape[1] if output.ndim == 2 else 1
    low, high = int(ys.min()), int(ys.max())
    if classes > 1 and not (low >= 0 and high < classes):
        wrong = low if low < 0 else high
        row = int(np.argmax(np.asarray(ys) == wrong))
        raise ValueError(
            f"fit: label {wrong} of example {row} in {name} is out of range; the model has {classes} classes, "
            f"so labels are 0 to {classes - 1}."
        )

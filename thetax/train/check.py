"""Bad input is refused by name, with what was expected, what came and what to do, before any compute is spent."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from ..core import Batch, Model, Objective, predict
from ..data.check import check_labels, check_numbers


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
    leaves = [check_numbers(leaf, name=f"{name}[{i}]") for i, leaf in enumerate(jax.tree.leaves(data))]
    if not leaves:
        raise ValueError(f"{name}: holds no arrays; give a pair (xs, ys).")
    sizes = [len(leaf) for leaf in leaves]
    if len(set(sizes)) > 1:
        raise ValueError(f"{name}: expected arrays of one length, got {sizes}.")
    if sizes[0] < batch:
        raise ValueError(f"fit: batch={batch} is larger than the {sizes[0]} examples of {name}; choose a smaller one.")
    if isinstance(data, tuple) and len(leaves) == 2 and (classes := _classes(model, *leaves)) > 1:
        check_labels(leaves[1], classes, name=f"{name}[1]")
    return sizes[0]


def _classes(model: Model, xs: Any, ys: Any) -> int:
    """The number of classes that integer labels may name: the width of the model's output."""
    if not jnp.issubdtype(ys.dtype, jnp.integer) or ys.ndim != 1:
        return 1
    output = jax.eval_shape(predict, model, jnp.asarray(xs[:1]))
    return output.shape[1] if output.ndim == 2 else 1

"""Bad input is refused by name, with what was expected, what came and what to do, before any
compute is spent.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...check import check_labels, check_numbers
from ...core import Batch, Iteration, Model, Objective, apply, predict
from ...layers import Embedding


def check_settings(
    iteration: Any,
    *,
    epochs: int,
    batch_size: int,
    patience: int | None,
    validation: Any,
    metrics: Mapping[str, Objective] | None,
    key: Any,
) -> None:
    """Refuses settings of `fit` that cannot be meant."""
    if not isinstance(iteration, Iteration):
        kind = type(iteration).__name__
        raise ValueError(
            f"fit: expected an Iteration, got {kind}; make one with descend(objective, optimiser)."
        )
    if not (isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
        raise ValueError(f"fit: key must be a random key such as jax.random.key(0); got {key!r}.")
    for name, value in {
        "epochs": epochs,
        "batch_size": batch_size,
        "patience": 1 if patience is None else patience,
    }.items():
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"fit: {name} must be a whole number of at least 1; got {value!r}.")
    if metrics is not None and not isinstance(metrics, Mapping):
        raise ValueError(
            f"fit: metrics must be a dict of names and objectives; got {type(metrics).__name__}."
        )
    if (validation is None) != (not metrics):
        raise ValueError(
            "fit: a validation set needs metrics to be judged by, and metrics a set to be "
            "measured on; "
            'give both, e.g. validation=0.1 and metrics={"error": error_rate}.'
        )
    if patience is not None and validation is None:
        raise ValueError(
            "fit: patience needs a validation set and a metric to watch; give validation= and "
            "metrics=."
        )
    if isinstance(validation, int | float) and not 0 < validation < 1:
        raise ValueError(
            f"fit: validation as a fraction must lie strictly between 0 and 1; got {validation}."
        )


def check_arrays(name: str, data: Batch, model: Model, *, batch_size: int = 1) -> int:
    """The number of examples; refuses data that are empty, ragged, not numbers, not finite, or
    wrongly labelled.
    """
    if isinstance(data, Iterator):
        raise ValueError(
            f"{name}: an iterator can be read only once; give a function stream(epoch) that makes "
            "one."
        )
    if any(isinstance(leaf, int | float | str) for leaf in jax.tree.leaves(data)):
        raise ValueError(
            f"{name}: expected arrays, got lists; make them arrays first, e.g. with np.asarray."
        )
    leaves = [
        check_numbers(leaf, name=f"{name}[{i}]") for i, leaf in enumerate(jax.tree.leaves(data))
    ]
    if not leaves:
        raise ValueError(f"{name}: holds no arrays; give a pair (xs, ys).")
    sizes = [len(leaf) for leaf in leaves]
    if len(set(sizes)) > 1:
        raise ValueError(f"{name}: expected arrays of one length, got {sizes}.")
    if sizes[0] < batch_size:
        raise ValueError(
            f"fit: batch_size={batch_size} is larger than the {sizes[0]} examples of {name}; "
            "choose a smaller one."
        )
    if isinstance(data, tuple) and len(data) == 2:
        _check_tokens(f"{name}[0]", data[0], model)
        if isinstance(data[1], jax.Array | np.ndarray) and (classes := _classes(model, *data)) > 1:
            (check_labels if data[1].ndim == 1 else _check_targets)(
                data[1], classes, name=f"{name}[1]"
            )
    return sizes[0]


def _classes(model: Model, xs: Any, ys: Any) -> int:
    """The number of classes that integer labels may name: the width of the model's output, for each
    label.
    """
    if not jnp.issubdtype(ys.dtype, jnp.integer):
        return 1
    pair = jax.tree.map(
        lambda a: jnp.repeat(jnp.asarray(a[:1]), 2, axis=0), xs
    )  # a batch norm needs two
    output = jax.eval_shape(predict, model, pair)
    labelled = isinstance(output, jax.ShapeDtypeStruct) and output.shape[1:-1] == ys.shape[1:]
    return output.shape[-1] if labelled else 1


def _check_targets(ys: Any, classes: int, *, name: str) -> None:
    """Refuses targets along a sequence that are neither classes nor -1 for none."""
    low = int(ys.min())
    high = int(ys.max())
    if low < -1 or high >= classes:
        raise ValueError(
            f"{name}: expected targets from 0 to {classes - 1}, or -1 for none; got "
            f"{low if low < -1 else high}. Encode them with the vocabulary the model was drawn for."
        )


def _check_tokens(name: str, xs: Any, model: Model) -> None:
    """Looks the largest and the smallest token at each place up for real; a table refuses what it
    does not hold.
    """
    tables = [node for node in jax.tree.leaves(model, is_leaf=_is_table) if _is_table(node)]
    if not tables or not all(
        jnp.issubdtype(leaf.dtype, jnp.integer) for leaf in jax.tree.leaves(xs)
    ):
        return
    for extreme in (np.max, np.min):
        try:
            apply(
                model,
                jax.tree.map(
                    lambda a, extreme=extreme: jnp.asarray(extreme(np.asarray(a), axis=0)), xs
                ),
            )
        except ValueError as trouble:
            raise ValueError(f"{name}: {trouble}") from None


def _is_table(node: Any) -> bool:
    return isinstance(node, Embedding)

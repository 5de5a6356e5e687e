"""Checks of the settings and data of `fit`, before any computation."""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...check import check_labels, check_numbers, expect_count
from ...core import Batch, Iteration, Model, Objective, apply, predict
from ...layers import Embedding


def check_settings(
    iteration: Any,
    *,
    epochs: int,
    batch_size: int | None,
    patience: int | None,
    validation: Any,
    metrics: Mapping[str, Objective] | None,
    key: Any,
) -> None:
    """Raises `ValueError` for invalid settings of `fit`."""
    if not isinstance(iteration, Iteration):
        raise ValueError(
            f"fit: expected an Iteration; got {type(iteration).__name__}. Make one with "
            "descend(objective, optimiser)."
        )
    if not (isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
        raise ValueError(f"fit: key must be a random key such as jax.random.key(0); got {key!r}.")
    expect_count("fit", epochs=epochs)
    if batch_size is not None:
        expect_count("fit", batch_size=batch_size)
    if patience is not None:
        expect_count("fit", patience=patience)
    if metrics is not None and not isinstance(metrics, Mapping):
        raise ValueError(
            "fit: metrics must be a dictionary of objectives by name; got "
            f"{type(metrics).__name__}."
        )
    if (validation is None) != (not metrics):
        raise ValueError(
            "fit: validation and metrics need each other; give both, for instance validation=0.1 "
            'and metrics={"error": error_rate}.'
        )
    if patience is not None and validation is None:
        raise ValueError(
            "fit: patience needs a validation set and a metric; give validation= and metrics=."
        )
    if isinstance(validation, int | float) and not 0 < validation < 1:
        raise ValueError(f"fit: validation as a fraction must be in (0, 1); got {validation}.")


def check_arrays(name: str, data: Batch, model: Model, *, batch_size: int = 1) -> int:
    """The number of examples; raises `ValueError` for invalid data.

    Data are invalid if they are empty, of different lengths, not numbers, not finite, or if labels
    are out of range.
    """
    if isinstance(data, Iterator):
        raise ValueError(
            f"{name}: an iterator can be read only once. Give a function stream(epoch) that "
            "returns one."
        )
    if any(isinstance(leaf, int | float | str) for leaf in jax.tree.leaves(data)):
        raise ValueError(f"{name}: expected arrays; got lists. Convert them with np.asarray.")
    leaves = [
        check_numbers(leaf, name=f"{name}[{i}]") for i, leaf in enumerate(jax.tree.leaves(data))
    ]
    if not leaves:
        raise ValueError(f"{name}: contains no arrays. Give a pair (xs, ys).")
    sizes = [len(leaf) for leaf in leaves]
    if len(set(sizes)) > 1:
        raise ValueError(f"{name}: all arrays must have the same length; got {sizes}.")
    if sizes[0] < batch_size:
        raise ValueError(
            f"fit: batch_size={batch_size} is larger than the {sizes[0]} examples of {name}. "
            "Choose a smaller one."
        )
    if isinstance(data, tuple) and len(data) == 2:
        _check_tokens(f"{name}[0]", data[0], model)
        if isinstance(data[1], jax.Array | np.ndarray) and (classes := _classes(model, *data)) > 1:
            (check_labels if data[1].ndim == 1 else _check_targets)(
                data[1], classes, name=f"{name}[1]"
            )
    return sizes[0]


def _classes(model: Model, xs: Any, ys: Any) -> int:
    """The number of classes for integer labels: the width of the model's output per label."""
    if not jnp.issubdtype(ys.dtype, jnp.integer):
        return 1
    # two examples, as batch norms need at least two
    pair = jax.tree.map(lambda a: jnp.repeat(jnp.asarray(a[:1]), 2, axis=0), xs)
    output = jax.eval_shape(predict, model, pair)
    labelled = isinstance(output, jax.ShapeDtypeStruct) and output.shape[1:-1] == ys.shape[1:]
    return output.shape[-1] if labelled else 1


def _check_targets(ys: Any, classes: int, *, name: str) -> None:
    """Raises `ValueError` unless sequence targets are classes or -1 (no target)."""
    low = int(ys.min())
    high = int(ys.max())
    if low < -1 or high >= classes:
        raise ValueError(
            f"{name}: expected targets from 0 to {classes - 1}, or -1 for no target; got "
            f"{low if low < -1 else high}. Encode them with the vocabulary of the model."
        )


def _check_tokens(name: str, xs: Any, model: Model) -> None:
    """Applies the model to the largest and smallest token at each position; an embedding raises
    `ValueError` for tokens outside its vocabulary.
    """
    embeddings = [
        node for node in jax.tree.leaves(model, is_leaf=_is_embedding) if _is_embedding(node)
    ]
    if not embeddings or not all(
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
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None


def _is_embedding(node: Any) -> bool:
    return isinstance(node, Embedding)

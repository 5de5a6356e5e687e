r"""The basic types of the library, model, objective and iteration, and functions that all other
modules use.

**Model.** A frozen `equinox.Module` whose array leaves are the parameters $\theta$ and nothing
else. It maps one example to its output; a batch is handled by `jax.vmap`. A model with random
layers takes a `key`: with a key a call is random, without one it is deterministic. There is no
training or evaluation mode.

**Objective.** `objective(model, batch, *, key=None) -> scalar`, the mean over the examples of the
batch. Losses and metrics have this signature.

**Iteration.** `init(model) -> state` and `step(state, batch, *, key) -> state, info`. Optimisers
and samplers are iterations. `state.model` is the current model; `info` is a NamedTuple of values to
record, such as the loss. Training stops if the `loss` or `gradient` of an info is not finite.

Axis names in shapes: `n` examples, `d` features, `k` classes, `m` outputs of a layer, `t` and `s`
time steps, `c h w` an image, `v` nodes and `e` edges of a graph, `p` parameters, `*s` any shape.
"""

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Shaped

__all__ = [
    "BATCH_AXIS",
    "Batch",
    "Iteration",
    "Model",
    "Objective",
    "Scalar",
    "apply",
    "as_floats",
    "cache_folder",
    "enable_compilation_cache",
    "expect_floats",
    "expect_shape",
    "iterate",
    "predict",
    "run",
    "takes_key",
    "upcast",
]

Scalar: TypeAlias = Float[Array, ""]  # A JAX array of shape ().
# A callable that maps one example; usually an `equinox.Module`.
Model: TypeAlias = Callable[..., Any]
Batch: TypeAlias = PyTree[
    Shaped[Array, "..."] | Shaped[np.ndarray, "..."]
]  # examples along the first axes
Objective: TypeAlias = Callable[..., Scalar]  # `objective(model, batch, *, key=None) -> scalar`.

BATCH_AXIS = "batch"  # name of the mapped axis, for layers that use the whole batch (BatchNorm)


class Iteration(NamedTuple):
    """An optimiser, a sampler or a dynamical system, as two pure functions."""

    init: Callable[..., Any]  # init(model) -> state
    step: Callable[..., tuple[Any, Any]]  # step(state, batch, *, key) -> state, info


def run(
    iteration: Iteration,
    model: Any,
    batches: Batch,
    *,
    key: PRNGKeyArray,
    record: Callable[[Any], Any] = lambda state: None,
) -> tuple[Any, tuple[Any, Any]]:
    """Runs an iteration over stacked batches, one step per batch, in a `lax.scan`.

    Returns `state, (records, infos)`: the last state, and `record(state)` and `info` of every step,
    stacked. Step i gets the key `fold_in(key, i)`, so a single step can be repeated.

    >>> import jax.numpy as jnp
    >>> class State(NamedTuple):
    ...     model: jax.Array
    >>> halve = Iteration(State, lambda state, batch, *, key: (State(state.model / 2), batch.sum()))
    >>> state, (_, info) = run(halve, jnp.array(8.0), jnp.ones((3, 2)), key=jr.key(0))
    >>> float(state.model), info.tolist()
    (1.0, [2.0, 2.0, 2.0])
    """

    def body(state, item):
        index, batch = item
        state, info = iteration.step(state, batch, key=jr.fold_in(key, index))
        return state, (record(state), info)

    steps = len(jax.tree.leaves(batches)[0])
    return jax.lax.scan(body, iteration.init(model), (jax.numpy.arange(steps), batches))


def iterate(
    iteration: Iteration,
    model: Any,
    steps: int,
    *,
    record: Callable[[Any], Any] = lambda state: None,
    key: PRNGKeyArray | None = None,
) -> tuple[Any, tuple[Any, Any]]:
    """Runs an iteration without data for a number of steps.

    Like `run`, with `batch=None` in every step. Without a key every step gets `key=None`.

    >>> import jax.numpy as jnp
    >>> class State(NamedTuple):
    ...     model: jax.Array
    >>> halve = Iteration(State, lambda state, batch, *, key: (State(state.model / 2), None))
    >>> state, (path, _) = iterate(halve, jnp.array(8.0), 3, record=lambda state: state.model)
    >>> float(state.model), path.tolist()
    (1.0, [4.0, 2.0, 1.0])
    """

    def body(state, index):
        step_key = None if key is None else jr.fold_in(key, index)
        state, info = iteration.step(state, None, key=step_key)
        return state, (record(state), info)

    return jax.lax.scan(body, iteration.init(model), jax.numpy.arange(steps))


def cache_folder(*parts: str) -> Path:
    """The folder for files that can be downloaded or computed again: `$XDG_CACHE_HOME/thetax`, by
    default `~/.cache/thetax`.

    >>> cache_folder("data").parts[-2:]
    ('thetax', 'data')
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache").joinpath(
        "thetax", *parts
    )


def enable_compilation_cache() -> None:
    """Turns on JAX's persistent compilation cache, which processes on this machine share."""
    jax.config.update("jax_compilation_cache_dir", str(cache_folder("compiled")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def expect_shape(name: str, x: Any, shape: tuple[int | str, ...]) -> None:
    """Raises `ValueError` unless `x` has the given shape; a letter stands for any size >= 1.

    >>> expect_shape("Linear", jax.numpy.zeros((2, 3)), (3,))
    Traceback (most recent call last):
    ValueError: Linear: expected one example of shape (3,), got (2, 3); map over a batch with ...
    >>> expect_shape("Convolution", jax.numpy.zeros((9, 9, 3)), (3, "h", "w"))
    Traceback (most recent call last):
    ValueError: Convolution: expected one example of shape (3, h, w), got (9, 9, 3); channels ...
    """
    if not _fits(x.shape, shape):
        form = str(shape).replace("'", "")
        raise ValueError(
            f"{name}: expected one example of shape {form}, got {x.shape}; "
            f"{_shape_advice(x.shape, shape)}."
        )


def _fits(given: tuple[int, ...], shape: tuple[int | str, ...]) -> bool:
    return len(given) == len(shape) and all(
        n > 0 if isinstance(k, str) else n == k for n, k in zip(given, shape)
    )


def _shape_advice(given: tuple[int, ...], shape: tuple[int | str, ...]) -> str:
    """How to correct an input of the given shape."""
    any_size = any(isinstance(k, str) for k in shape)
    if any_size and 0 in given:
        return "the input is empty"
    if _fits(given[1:], shape) or (any_size and len(given) == len(shape) + 1):
        return "map over a batch with jax.vmap"
    if any_size or len(shape) == 3:  # a signal or an image
        if _fits((1, *given), shape):
            return "add the channel axis: x[None]"
        if _fits((*given[-1:], *given[:-1]), shape):
            return "channels come first: jnp.moveaxis(x, -1, 0)"
        if len(given) == len(shape) - 1:
            return f"add the axis of the {shape[0]} channels, which come first"
    return (
        "check the sizes given to init, or reshape the input; a batch of examples goes through "
        "thetax.core.predict(model, xs)"
    )


def expect_floats(name: str, x: Any) -> None:
    """Raises `ValueError` if the image has integer pixels.

    >>> expect_floats("Convolution", np.zeros((3, 9, 9), np.uint8))
    Traceback (most recent call last):
    ValueError: Convolution: images are floats; divide pixels by 255; got uint8.
    """
    if not jax.numpy.issubdtype(x.dtype, np.inexact):
        raise ValueError(f"{name}: images are floats; divide pixels by 255; got {x.dtype}.")


def upcast(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """Converts half precision to float32, for sums, means and logarithms.

    >>> upcast(jax.numpy.ones(2, "bfloat16")).dtype.name
    'float32'
    """
    return x.astype("float32") if jax.numpy.finfo(x.dtype).bits < 32 else x


def as_floats(name: str, x: Any) -> Float[Array, "*s"]:
    """The argument as a JAX array of floats: it keeps a floating-point type that JAX supports, and
    other types become the default float.

    >>> as_floats("W", np.array([1, 2])).dtype.name, as_floats("W", np.zeros(2)).dtype.name
    ('float32', 'float32')
    """
    if not isinstance(x, jax.Array):
        x = np.asarray(x)
        if not (jax.numpy.issubdtype(x.dtype, np.number) or x.dtype == bool):
            raise ValueError(
                f"{name}: expected numbers, but the dtype is {x.dtype}; encode strings as numbers "
                "first."
            )
    x = jax.numpy.asarray(x)
    return x if jax.numpy.issubdtype(x.dtype, np.inexact) else x.astype(jax.numpy.zeros(()).dtype)


def takes_key(f: Model) -> bool:
    """Whether `f` has a parameter `key`, so that its calls can be random."""
    return "key" in inspect.signature(f).parameters


def apply(f: Model, x: Any, *, key: PRNGKeyArray | None = None) -> Any:
    r"""$f(x)$ for one example; the key is passed on only if `f` takes one.

    >>> import jax.numpy as jnp
    >>> float(apply(jnp.sin, 0.0, key=jr.key(0)))
    0.0
    """
    return f(x, key=key) if takes_key(f) else f(x)


def predict(model: Model, xs: Batch, *, key: PRNGKeyArray | None = None) -> Any:
    r"""The outputs $(f(x_1), \dots, f(x_n))$ for a batch; each example gets its own key.

    The mapped axis is named `BATCH_AXIS`, which `BatchNorm` needs.

    >>> import jax.numpy as jnp
    >>> predict(jnp.sum, jnp.ones((4, 3))).tolist()
    [3.0, 3.0, 3.0, 3.0]
    """
    if key is None or not takes_key(model):
        return jax.vmap(lambda x: model(x), axis_name=BATCH_AXIS)(xs)
    keys = jr.split(key, len(jax.tree.leaves(xs)[0]))
    return jax.vmap(lambda x, key: model(x, key=key), axis_name=BATCH_AXIS)(xs, keys)

r"""The words every file speaks: model, objective, iteration.

**Model.** A frozen `equinox.Module` whose array leaves are $\theta$ and nothing else. It maps one
example to its output; the batch is `jax.vmap` at the call. A `key` means chance: a call without one
is deterministic, so there is no training mode to forget.

**Objective.** `objective(model, batch, *, key=None) -> scalar`, a mean over the examples of the
batch. A metric is an objective nobody descends.

**Iteration.** `init(model) -> state` and `step(state, batch, *, key) -> state, info`. Optimisers
and samplers are both this. `state.model` is the answer so far; `info`, a NamedTuple of numbers, is
what a plot wants. A run stops where an info's `loss` or `gradient` is not finite; its other numbers
may be anything.

Letters in shapes: `n` examples, `d` features, `k` classes, `m` outputs of a layer, `t` and `s`
times, `c h w` an image, `v` nodes and `e` edges of a graph, `p` parameters, `*s` any shape.
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

Scalar: TypeAlias = Float[Array, ""]
Model: TypeAlias = Callable[..., Any]
Batch: TypeAlias = PyTree[
    Shaped[Array, "..."] | Shaped[np.ndarray, "..."]
]  # examples along the first axes
Objective: TypeAlias = Callable[..., Scalar]

BATCH = "batch"  # the name of the mapped axis, for what must see the whole batch


class Iteration(NamedTuple):
    """An optimiser, a sampler or a dynamics: two pure functions."""

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
    """Runs an iteration over stacked batches, one step for each batch, in a `lax.scan`.

    Returns `state, (records, infos)`: the last state, and `record(state)` and the step's `info`
    stacked over the steps. Step i gets the key `fold_in(key, i)`, so any step can be repeated on
    its own.

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
    """Runs an iteration that reads no data for a number of steps.

    As `run`, with `batch=None` in each step. Without a key each step gets `key=None`.

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
    """Where the library keeps what it can make or fetch again: `$XDG_CACHE_HOME/thetax`, or under
    `~/.cache`.

    >>> cache_folder("data").parts[-2:]
    ('thetax', 'data')
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache").joinpath(
        "thetax", *parts
    )


def remember_compilations() -> None:
    """What was compiled once on this machine is not compiled again, in any process that says so
    too.
    """
    jax.config.update("jax_compilation_cache_dir", str(cache_folder("compiled")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def expect_shape(name: str, x: Any, shape: tuple[int | str, ...]) -> None:
    """Refuses an input of another shape before any compute is spent; a letter is any size of at
    least 1.

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
            f"{name}: expected one example of shape {form}, got {x.shape}; {_cure(x.shape, shape)}."
        )


def _fits(found: tuple[int, ...], shape: tuple[int | str, ...]) -> bool:
    return len(found) == len(shape) and all(
        n > 0 if isinstance(k, str) else n == k for n, k in zip(found, shape)
    )


def _cure(found: tuple[int, ...], shape: tuple[int | str, ...]) -> str:
    """What to do about an input of the shape found."""
    free = any(isinstance(k, str) for k in shape)
    if free and 0 in found:
        return "there is nothing in it"
    if _fits(found[1:], shape) or (free and len(found) == len(shape) + 1):
        return "map over a batch with jax.vmap"
    if free or len(shape) == 3:  # a signal or an image
        if _fits((1, *found), shape):
            return "add the channel axis: x[None]"
        if _fits((*found[-1:], *found[:-1]), shape):
            return "channels come first: jnp.moveaxis(x, -1, 0)"
        if len(found) == len(shape) - 1:
            return f"add the axis of the {shape[0]} channels, which come first"
    return "check the sizes given to init, or reshape the input"


def expect_floats(name: str, x: Any) -> None:
    """Refuses an image of whole numbers.

    >>> expect_floats("Convolution", np.zeros((3, 9, 9), np.uint8))
    Traceback (most recent call last):
    ValueError: Convolution: images are floats; divide pixels by 255; got uint8.
    """
    if not jax.numpy.issubdtype(x.dtype, np.inexact):
        raise ValueError(f"{name}: images are floats; divide pixels by 255; got {x.dtype}.")


def wide(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """At least float32: sums, means and logarithms have no room in half precision.

    >>> wide(jax.numpy.ones(2, "bfloat16")).dtype.name
    'float32'
    """
    return x.astype("float32") if jax.numpy.finfo(x.dtype).bits < 32 else x


def floats(name: str, x: Any) -> Float[Array, "*s"]:
    """The argument as an array of floats: of its own kind if it has one here, otherwise of the
    default one.

    >>> floats("W", np.array([1, 2])).dtype.name, floats("W", np.zeros(2)).dtype.name
    ('float32', 'float32')
    """
    if not isinstance(x, jax.Array):
        x = np.asarray(x)
        if not (jax.numpy.issubdtype(x.dtype, np.number) or x.dtype == bool):
            raise ValueError(
                f"{name}: expected numbers, but the dtype is {x.dtype}; turn words into numbers "
                "first."
            )
    x = jax.numpy.asarray(x)
    return x if jax.numpy.issubdtype(x.dtype, np.inexact) else x.astype(jax.numpy.zeros(()).dtype)


def takes_key(f: Model) -> bool:
    """Whether `f` takes a `key`, that is, whether a call of it can be random."""

    return "key" in inspect.signature(f).parameters


def apply(f: Model, x: Any, *, key: PRNGKeyArray | None = None) -> Any:
    r"""$f(x)$ for one example; the key goes only to what takes one.

    >>> import jax.numpy as jnp
    >>> float(apply(jnp.sin, 0.0, key=jr.key(0)))
    0.0
    """
    return f(x, key=key) if takes_key(f) else f(x)


def predict(model: Model, xs: Batch, *, key: PRNGKeyArray | None = None) -> Any:
    r"""$(f(x_1), \dots, f(x_n))$, each example with a key of its own.

    Batch normalisation finds its batch through the axis name.

    >>> import jax.numpy as jnp
    >>> predict(jnp.sum, jnp.ones((4, 3))).tolist()
    [3.0, 3.0, 3.0, 3.0]
    """
    if key is None or not takes_key(model):
        return jax.vmap(lambda x: model(x), axis_name=BATCH)(xs)
    keys = jr.split(key, len(jax.tree.leaves(xs)[0]))
    return jax.vmap(lambda x, key: model(x, key=key), axis_name=BATCH)(xs, keys)

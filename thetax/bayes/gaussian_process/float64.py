r"""Float64 for the linear algebra of Gaussian processes: $K + \gamma^2 I$ is often too close to
singular for float32.

A function decorated with `in_float64` computes in float64 regardless of `jax_enable_x64`, and
returns float64 arrays: NumPy arrays outside `jax.enable_x64(True)`, where JAX has no float64.
Inside a transformation (`jit`, `grad`, `vmap`) the setting of the caller applies. The dtype of a
calculation is that of its hyperparameters, which are created in float64; `to_float32` converts
them.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Float

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
Numbers: TypeAlias = jax.Array | np.ndarray
Scalar: TypeAlias = Float[Numbers, ""]


def is_traced(*arguments: Any) -> bool:
    """Whether this runs under a JAX transformation, so that values are not available."""
    leaves = jax.tree.leaves(arguments)
    return any(isinstance(leaf, Tracer) for leaf in leaves) or isinstance(jnp.zeros(()), Tracer)


def in_float64(function: F) -> F:
    """Decorator: runs the function in float64, unless it is being traced.

    >>> in_float64(jnp.sqrt)(2.0).dtype.name, jax.jit(in_float64(jnp.sqrt))(2.0).dtype.name
    ('float64', 'float32')
    """

    @functools.wraps(function)
    def wrapper(*arguments, **settings):
        if is_traced(arguments, settings):
            return function(*arguments, **settings)
        x64_enabled = jax.config.read("jax_enable_x64")
        with jax.enable_x64(True):
            result = function(*arguments, **settings)
            return result if x64_enabled else jax.tree.map(_to_numpy, result)

    return wrapper  # type: ignore[return-value]


def _to_numpy(leaf: Any) -> Any:
    """Converts a 64-bit JAX array to NumPy; returns anything else unchanged."""
    is_array = isinstance(leaf, jax.Array) and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(leaf) if is_array and leaf.dtype.itemsize == 8 else leaf


def to_float32(model: T) -> T:
    """Converts the hyperparameters of a process or kernel to float32, so that it computes in
    float32.

    >>> from thetax.bayes import RBF
    >>> xs = np.linspace(0.0, 1.0, 3)[:, None]
    >>> RBF.init()(xs).dtype.name, to_float32(RBF.init())(xs).dtype.name
    ('float64', 'float32')
    """
    return cast(model, np.dtype(np.float32))


def dtype_of(model: Any) -> Any:
    """The dtype of the hyperparameters; the default float dtype if there are none."""
    leaves = [leaf for leaf in jax.tree.leaves(model) if _is_float(leaf)]
    return jnp.result_type(*leaves) if leaves else jnp.zeros(()).dtype


def cast(tree: T, dtype: Any) -> T:
    """Converts the float arrays of a tree to `dtype`; leaves other leaves unchanged."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype) if _is_float(leaf) else leaf, tree)


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic) and jnp.issubdtype(
        leaf.dtype, np.inexact
    )


def same_dtype(model: Any, xs: Any) -> tuple[Any, Any]:
    """Converts the examples and all float leaves of the model to the dtype of the model."""
    dtype = dtype_of(model)
    return cast(model, dtype), cast(xs, dtype)


def floats(x: Any, dtype: Any) -> Any:
    """Converts an array to a float dtype."""
    return jnp.asarray(x).astype(dtype)

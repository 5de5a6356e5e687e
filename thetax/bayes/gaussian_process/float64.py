r"""Double precision for the algebra of Gaussian processes: $K + \gamma^2 I$ is too near to singular
for float32.

A function under `double` computes in float64 whatever the process-wide setting is, and gives
float64 arrays back: those of numpy where JAX has no float64, that is, outside
`jax.enable_x64(True)`. Inside a transformation (`jit`, `grad`, `vmap`) the caller has chosen: there
it keeps the dtype that it gets. How precise a calculation is follows from its hyper-parameters,
which are made in float64; `single` makes them float32.
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


def traced(*arguments: Any) -> bool:
    """Whether this is a step of somebody's transformation, so that there are no numbers to look
    at.
    """
    leaves = jax.tree.leaves(arguments)
    return any(isinstance(leaf, Tracer) for leaf in leaves) or isinstance(jnp.zeros(()), Tracer)


def double(function: F) -> F:
    """The function in double precision, where it is called with numbers.

    >>> double(jnp.sqrt)(2.0).dtype.name, jax.jit(double(jnp.sqrt))(2.0).dtype.name
    ('float64', 'float32')
    """

    @functools.wraps(function)
    def entered(*arguments, **settings):
        if traced(arguments, settings):
            return function(*arguments, **settings)
        wide = jax.config.read("jax_enable_x64")
        with jax.enable_x64(True):
            found = function(*arguments, **settings)
            return found if wide else jax.tree.map(_outside, found)

    return entered  # type: ignore[return-value]


def _outside(leaf: Any) -> Any:
    """An array of 64 bits as one of numpy's."""
    wide = isinstance(leaf, jax.Array) and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(leaf) if wide and leaf.dtype.itemsize == 8 else leaf


def single(model: T) -> T:
    """The process or kernel with float32 hyper-parameters: what it computes is then float32
    throughout.

    >>> from thetax.bayes import RBF
    >>> xs = np.linspace(0.0, 1.0, 3)[:, None]
    >>> RBF.init()(xs).dtype.name, single(RBF.init())(xs).dtype.name
    ('float64', 'float32')
    """
    return cast(model, np.dtype(np.float32))


def dtype_of(model: Any) -> Any:
    """The dtype of the hyper-parameters; the default one where there are none."""
    leaves = [leaf for leaf in jax.tree.leaves(model) if _is_float(leaf)]
    return jnp.result_type(*leaves) if leaves else jnp.zeros(()).dtype


def cast(tree: T, dtype: Any) -> T:
    """The tree with its arrays of floats in another dtype; all else is left as it is."""

    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype) if _is_float(leaf) else leaf, tree)


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic) and jnp.issubdtype(
        leaf.dtype, np.inexact
    )


def uniform(model: Any, xs: Any) -> tuple[Any, Any]:
    """The model and the examples in one dtype."""
    dtype = dtype_of(model)
    return cast(model, dtype), cast(xs, dtype)


def floats(x: Any, dtype: Any) -> Any:
    """An array of numbers as floats of the dtype."""
    return jnp.asarray(x).astype(dtype)

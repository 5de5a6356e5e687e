r"""Vector operations on a model $\theta \in \mathbb{R}^p$, or any pytree of arrays: inner product,
norm, $\theta + \alpha v$, and others, leaf by leaf, without copying it into one vector.
"""

from collections.abc import Callable
from itertools import accumulate
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import jax.random as jr
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .core import Scalar, upcast

__all__ = [
    "all_finite",
    "axpy",
    "dot",
    "leaf_names",
    "norm",
    "normal_like",
    "path_name",
    "ravel",
    "size",
    "where",
    "zeros_like",
]

_T = TypeVar("_T")


def dot(a: Any, b: Any) -> Scalar:
    r"""Inner product $\langle a, b \rangle = \sum_i a_i b_i$ over all leaves.

    >>> a = {"w": jnp.array([1.0, 2.0]), "b": jnp.array(3.0)}
    >>> b = {"w": jnp.ones(2), "b": jnp.array(2.0)}
    >>> float(dot(a, b))
    9.0
    """
    return sum(
        jax.tree.leaves(jax.tree.map(lambda x, y: jnp.vdot(upcast(x), upcast(y)), a, b)),
        start=jnp.zeros(()),
    )


def norm(a: Any) -> Scalar:
    r"""Norm $\|a\| = \sqrt{\langle a, a \rangle}$, with gradient 0 at the origin.

    >>> float(norm((jnp.array(3.0), jnp.array([4.0, 0.0]))))
    5.0
    """
    square = dot(a, a)
    nonzero = square != 0  # true for NaN, so the norm of NaN is NaN
    return jnp.where(nonzero, jnp.sqrt(jnp.where(nonzero, square, 1.0)), 0.0)


def axpy(alpha: float | Scalar, x: _T, y: _T) -> _T:
    r"""$\alpha x + y$, where the scalar is cast to the dtype of each leaf.

    >>> axpy(2.0, (jnp.array(1.0),), (jnp.array(5.0),))[0].item()
    7.0
    """
    return jax.tree.map(lambda x, y: jnp.asarray(alpha, x.dtype) * x + y, x, y)


def zeros_like(a: _T) -> _T:
    """A tree of zeros with the shapes of `a`."""
    return jax.tree.map(jnp.zeros_like, a)


def normal_like(key: PRNGKeyArray, a: _T) -> _T:
    r"""A standard normal sample $\varepsilon \sim N(0, I)$ with the shapes of `a`.

    >>> normal_like(jr.key(0), {"w": jnp.zeros((2, 3))})["w"].shape
    (2, 3)
    """
    leaves, structure = jax.tree.flatten(a)
    if not leaves:
        return a
    ends = list(accumulate(leaf.size for leaf in leaves))
    # A single call of `jr.normal` compiles faster than one per leaf.
    parts = jnp.split(jr.normal(key, (size(a),), jnp.result_type(*leaves)), ends[:-1])
    samples = [part.reshape(leaf.shape).astype(leaf.dtype) for part, leaf in zip(parts, leaves)]
    return jax.tree.unflatten(structure, samples)


def where(condition: Bool[Array, ""], a: _T, b: _T) -> _T:
    """`a` if the condition holds, else `b`, leaf by leaf."""
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)


def ravel(a: _T) -> tuple[Float[Array, " p"], Callable[[Float[Array, " p"]], _T]]:
    """The vector of all leaves, and a function that turns such a vector back into a tree.

    >>> vector, unravel = ravel((jnp.array([1.0, 2.0]), jnp.array(3.0)))
    >>> vector.tolist(), unravel(2 * vector)[1].item()
    ([1.0, 2.0, 3.0], 6.0)
    """
    return ravel_pytree(a)


@jax.jit
def all_finite(a: Any) -> Bool[Array, ""]:
    """Whether all entries of the tree are finite.

    >>> bool(all_finite((jnp.ones(2), jnp.array(jnp.nan))))
    False
    """
    return jnp.array([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(a)] or [True]).all()


def size(a: Any) -> int:
    """$p$, the number of scalars in the tree.

    >>> size({"W": jnp.zeros((3, 4)), "b": jnp.zeros(3)})
    15
    """
    return sum(leaf.size for leaf in jax.tree.leaves(a))


def leaf_names(a: Any) -> list[str]:
    """The dotted path of each leaf, in the order of `jax.tree.leaves`.

    >>> leaf_names({"layers": (jnp.zeros(2), jnp.zeros(3))})
    ['layers.0', 'layers.1']
    """
    return [path_name(path) for path, _ in jax.tree.flatten_with_path(a)[0]]


def path_name(path: tuple[Any, ...]) -> str:
    """A key path of `jax.tree_util` as a dotted name.

    >>> path_name(jax.tree.flatten_with_path({"layers": [1.0]})[0][0][0])
    'layers.0'
    """
    return jax.tree_util.keystr(path, simple=True, separator=".")

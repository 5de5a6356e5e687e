r"""A model as a vector: $\theta \in \mathbb{R}^p$ without copying it into one.

Theory writes $\langle \theta, \theta' \rangle$ and $\theta + \alpha v$; these functions say the
same of any pytree of arrays, leaf by leaf.
"""

from collections.abc import Callable
from itertools import accumulate
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import jax.random as jr
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .core import Scalar, wide

T = TypeVar("T")


def dot(a: Any, b: Any) -> Scalar:
    r"""$\langle a, b \rangle = \sum_i a_i b_i$ over all leaves.

    >>> float(
    ...     dot(
    ...         {"w": jnp.array([1.0, 2.0]), "b": jnp.array(3.0)},
    ...         {"w": jnp.ones(2), "b": jnp.array(2.0)},
    ...     )
    ... )
    9.0
    """
    return sum(
        jax.tree.leaves(jax.tree.map(lambda x, y: jnp.vdot(wide(x), wide(y)), a, b)),
        start=jnp.zeros(()),
    )


def norm(a: Any) -> Scalar:
    r"""$\|a\| = \sqrt{\langle a, a \rangle}$, with the gradient 0 at the origin.

    >>> float(norm((jnp.array(3.0), jnp.array([4.0, 0.0]))))
    5.0
    """
    square = dot(a, a)
    away = square != 0  # true of NaN, which must not pass for the origin
    return jnp.where(away, jnp.sqrt(jnp.where(away, square, 1.0)), 0.0)


def axpy(alpha: float | Scalar, x: T, y: T) -> T:
    r"""$\alpha x + y$; the scalar takes the type of the leaf.

    >>> axpy(2.0, (jnp.array(1.0),), (jnp.array(5.0),))[0].item()
    7.0
    """
    return jax.tree.map(lambda x, y: jnp.asarray(alpha, x.dtype) * x + y, x, y)


def zeros_like(a: T) -> T:
    """The origin of the space in which `a` lives."""
    return jax.tree.map(jnp.zeros_like, a)


def normal_like(key: PRNGKeyArray, a: T) -> T:
    r"""$\varepsilon \sim N(0, I)$, shaped as `a`.

    >>> normal_like(jr.key(0), {"w": jnp.zeros((2, 3))})["w"].shape
    (2, 3)
    """
    leaves, structure = jax.tree.flatten(a)
    if not leaves:
        return a
    ends = list(accumulate(leaf.size for leaf in leaves))
    parts = jnp.split(
        jr.normal(key, (size(a),), jnp.result_type(*leaves)), ends[:-1]
    )  # one draw compiles fastest
    cut = [part.reshape(leaf.shape).astype(leaf.dtype) for part, leaf in zip(parts, leaves)]
    return jax.tree.unflatten(structure, cut)


def where(condition: Bool[Array, ""], a: T, b: T) -> T:
    """`a` if the condition holds, else `b`, leaf by leaf."""
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)


def ravel(a: T) -> tuple[Float[Array, " p"], Callable[[Float[Array, " p"]], T]]:
    """The vector of all leaves, and the way back.

    >>> vector, back = ravel((jnp.array([1.0, 2.0]), jnp.array(3.0)))
    >>> vector.tolist(), back(2 * vector)[1].item()
    ([1.0, 2.0, 3.0], 6.0)
    """
    return ravel_pytree(a)


@jax.jit
def finite(a: Any) -> Bool[Array, ""]:
    """Whether every number of the tree is finite.

    >>> bool(finite((jnp.ones(2), jnp.array(jnp.nan))))
    False
    """
    return jnp.array([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(a)] or [True]).all()


def size(a: Any) -> int:
    """$p$, the number of scalars in the tree.

    >>> size({"W": jnp.zeros((3, 4)), "b": jnp.zeros(3)})
    15
    """
    return sum(leaf.size for leaf in jax.tree.leaves(a))


def names(a: Any) -> list[str]:
    """The dotted path of each leaf, in the order of `jax.tree.leaves`.

    >>> names({"layers": (jnp.zeros(2), jnp.zeros(3))})
    ['layers.0', 'layers.1']
    """
    return [dotted(path) for path, _ in jax.tree.flatten_with_path(a)[0]]


def dotted(path: tuple[Any, ...]) -> str:
    """A path in a tree, as its names are written."""
    return jax.tree_util.keystr(path, simple=True, separator=".")

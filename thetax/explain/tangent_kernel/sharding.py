"""Stacked examples in blocks of rows, and the blocks dealt out to devices: each gets rows that lie
together.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array


def blocks(xs: Any, rows: int) -> list[Any]:
    """So many rows at a time, the last block perhaps with fewer.

    >>> [len(block) for block in blocks(jnp.zeros((5, 2)), 2)]
    [2, 2, 1]
    """
    n = len(jax.tree.leaves(xs)[0])
    return [jax.tree.map(lambda a, i=i: a[i : i + rows], xs) for i in range(0, n, rows)]


class Deal:
    """Rows dealt out to devices, or all to the one there is. The last rows are repeated until each
    has as many.
    """

    def __init__(self, devices: Sequence[Any] = ()):
        self.count, self.mesh = max(1, len(devices)), Mesh(devices, ("rows",)) if devices else None

    def out(self, xs: Any, rows: int) -> list[Any]:
        """Blocks of so many rows for each device, spread over them."""
        if self.mesh is None:
            return blocks(xs, rows)
        n = len(jax.tree.leaves(xs)[0])
        each = -(-n // self.count)
        filled = jax.tree.map(
            lambda a: jnp.concatenate([a, *[a[-1:]] * (each * self.count - n)]), xs
        )
        parted = jax.tree.map(lambda a: a.reshape(self.count, each, *a.shape[1:]), filled)
        take = lambda a, i: a[:, i : i + rows].reshape(-1, *a.shape[2:])
        return [
            self._spread(jax.tree.map(lambda a, i=i: take(a, i), parted))
            for i in range(0, each, rows)
        ]

    def everywhere(self, tree: Any) -> Any:
        """The same on each device."""
        return (
            tree
            if self.mesh is None
            else jax.device_put(tree, NamedSharding(self.mesh, PartitionSpec()))
        )

    def lay(
        self, K: Array | None, part: Array, at: tuple[int, int], shape: tuple[int, int]
    ) -> Array:
        """Puts what was made of one block by another into a matrix of this shape, a slice of it for
        each device.
        """
        part = part.reshape(self.count, -1, *part.shape[1:])
        whole = (self.count, -(-shape[0] // self.count), shape[1])
        if part.shape[:3] == whole:
            return part
        K = self._spread(jnp.zeros((*whole, *part.shape[3:]), part.dtype)) if K is None else K
        return _put(K, part, *at)

    def together(self, K: Array, n: int) -> Array:
        """The n rows in their order; each device keeps its own if they come out even."""
        return K.reshape(-1, *K.shape[2:])[:n]

    def _spread(self, tree: Any) -> Any:
        return (
            tree
            if self.mesh is None
            else jax.device_put(tree, NamedSharding(self.mesh, PartitionSpec("rows")))
        )


@partial(jax.jit, donate_argnums=0)
def _put(K: Array, part: Array, i: Any, j: Any) -> Array:
    return jax.lax.dynamic_update_slice(K, part, (0, i, j, *[0] * (K.ndim - 3)))

"""Splits stacked examples into blocks of rows, and shards the rows over devices."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array


def split_rows(xs: Any, n_rows: int) -> list[Any]:
    """Blocks of `n_rows` rows; the last block may have fewer.

    >>> [len(block) for block in split_rows(jnp.zeros((5, 2)), 2)]
    [2, 2, 1]
    """
    n = len(jax.tree.leaves(xs)[0])
    return [jax.tree.map(lambda a, i=i: a[i : i + n_rows], xs) for i in range(0, n, n_rows)]


class RowSharding:
    """Shards rows over devices, contiguous rows on each; without devices, everything stays on the
    default one.

    The last row is repeated until all devices have the same number of rows.
    """

    def __init__(self, devices: Sequence[Any] = ()):
        self.n_devices = max(1, len(devices))
        self.mesh = Mesh(devices, ("rows",)) if devices else None

    def split(self, xs: Any, n_rows: int) -> list[Any]:
        """Blocks with `n_rows` rows on each device."""
        if self.mesh is None:
            return split_rows(xs, n_rows)
        n = len(jax.tree.leaves(xs)[0])
        per_device = -(-n // self.n_devices)
        padded = jax.tree.map(
            lambda a: jnp.concatenate([a, *[a[-1:]] * (per_device * self.n_devices - n)]), xs
        )
        by_device = jax.tree.map(
            lambda a: a.reshape(self.n_devices, per_device, *a.shape[1:]), padded
        )
        block = lambda a, i: a[:, i : i + n_rows].reshape(-1, *a.shape[2:])
        return [
            self._shard(jax.tree.map(lambda a, i=i: block(a, i), by_device))
            for i in range(0, per_device, n_rows)
        ]

    def replicate(self, tree: Any) -> Any:
        """The same arrays on every device."""
        if self.mesh is None:
            return tree
        return jax.device_put(tree, NamedSharding(self.mesh, PartitionSpec()))

    def write_tile(
        self, K: Array | None, tile: Array, corner: tuple[int, int], shape: tuple[int, int]
    ) -> Array:
        """Writes a tile, whose rows are sharded, into a matrix of this shape; returns the matrix as
        `devices rows columns ...`. With `K=None` the matrix is created.
        """
        tile = tile.reshape(self.n_devices, -1, *tile.shape[1:])
        sharded_shape = (self.n_devices, -(-shape[0] // self.n_devices), shape[1])
        if tile.shape[:3] == sharded_shape:
            return tile
        if K is None:
            K = self._shard(jnp.zeros((*sharded_shape, *tile.shape[3:]), tile.dtype))
        return _write(K, tile, *corner)

    def merge(self, K: Array, n: int) -> Array:
        """The first n rows in order; the sharding stays if the rows divide evenly."""
        return K.reshape(-1, *K.shape[2:])[:n]

    def _shard(self, tree: Any) -> Any:
        if self.mesh is None:
            return tree
        return jax.device_put(tree, NamedSharding(self.mesh, PartitionSpec("rows")))


@partial(jax.jit, donate_argnums=0)
def _write(K: Array, tile: Array, i: Any, j: Any) -> Array:
    return jax.lax.dynamic_update_slice(K, tile, (0, i, j, *[0] * (K.ndim - 3)))

r"""Local features of point clouds: farthest point sampling, ball queries, and the set abstraction
of PointNet++ (§7.3; Qi et al., NeurIPS 2017).

All shapes are static: a fixed number of centres, and of neighbours of each.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ...check import expect_count
from ...data.sets import PointSet
from .aggregation import largest
from .inputs import Elements, split_set
from .shared_mlp import SharedMLP


def farthest_points(x: Elements, n: int) -> Int[Array, " c"]:
    r"""The indices of `n` points that cover the cloud: each is the farthest from those before it
    (farthest point sampling).

    The first is the farthest from the mean, so that, ties aside, the points do not depend on the
    order of the rows. After all elements have been chosen, elements repeat; so does the index 0 for
    a set without elements.

    >>> farthest_points(jnp.array([[0.0], [1.0], [2.0], [10.0]]), 3).tolist()
    [3, 0, 2]
    """
    points, mask = split_set("farthest_points", x)
    expect_count("farthest_points", n=n)
    if not len(points):
        raise ValueError("farthest_points: expected at least one point; the set is empty.")
    points = jax.lax.stop_gradient(points)
    visible = jnp.ones(len(points), bool) if mask is None else mask
    distances = lambda centre: jnp.square(points - centre[None]).sum(axis=1)
    count = jnp.maximum(visible.sum(), 1).astype(points.dtype)
    mean = jnp.where(visible[:, None], points, 0).sum(axis=0) / count
    choose = lambda nearest: jnp.argmax(jnp.where(visible, nearest, -1)).astype(jnp.int32)
    first = choose(distances(mean))

    def step(carry, _):
        nearest, last = carry
        nearest = jnp.minimum(nearest, distances(points[last]))
        return (nearest, choose(nearest)), last

    start = jnp.full(len(points), jnp.inf, points.dtype), first
    return jax.lax.scan(step, start, None, length=n)[1]


def ball_query(
    x: Elements, centres: Float[Array, "c d"], *, radius: float, k: int
) -> tuple[Int[Array, "c k"], Bool[Array, "c k"]]:
    r"""For each centre the indices of the points within the radius, at most `k`, nearest first; and
    which of the entries are such points.

    Departs from Qi et al., who take the first `k` in the order of the rows; with the nearest the
    result does not depend on the order, ties aside.

    >>> x = jnp.array([[0.0], [1.0], [3.0]])
    >>> neighbours, found = ball_query(x, x[:1], radius=1.5, k=3)
    >>> neighbours[0, :2].tolist(), found.tolist()
    ([0, 1], [[True, True, False]])
    """
    points, mask = split_set("ball_query", x)
    expect_count("ball_query", k=k)
    if not radius > 0:
        raise ValueError(f"ball_query: radius must be > 0; got {radius}.")
    if k > len(points):
        raise ValueError(
            f"ball_query: expected k <= the number of points; got k={k} and {len(points)} points."
        )
    points, centres = jax.lax.stop_gradient((points, centres))
    distances = jnp.square(centres[:, None] - points[None]).sum(axis=2)
    inside = distances <= radius**2
    inside = inside if mask is None else inside & mask[None]
    gain, indices = jax.lax.top_k(jnp.where(inside, -distances, -jnp.inf), k)
    return indices, jnp.isfinite(gain)


class SetAbstraction(eqx.Module):
    r"""A set abstraction layer: `n_centres` centres $c$ from farthest point sampling, with the
    features

    $$h_c = \max_{j :\, \|p_j - p_c\| \le r} \mathrm{MLP}([x_j, p_j - p_c])$$

    where $p_j$ are the first `dim` columns of the input, the positions, and $x_j$ the others. The
    output has the columns $[p_c, h_c]$, so that layers can follow one another; it is a `PointSet`
    if the input is one. The message is that of PyTorch Geometric's `PointNetConv`.

    >>> layer = SetAbstraction.init(3, 16, n_centres=4, radius=1.0, k=5, key=jax.random.key(0))
    >>> layer(jax.random.normal(jax.random.key(1), (9, 3))).shape
    (4, 19)
    """

    mlp: SharedMLP
    dim: int = eqx.field(static=True)
    n_centres: int = eqx.field(static=True)
    radius: float = eqx.field(static=True)
    k: int = eqx.field(static=True)

    @classmethod
    def init(
        cls,
        n_inputs: int,
        *widths: int,
        n_centres: int,
        radius: float,
        k: int,
        dim: int = 3,
        key: PRNGKeyArray,
        **options: Any,
    ) -> "SetAbstraction":
        """Initialises the layer for `n_inputs` columns, positions included; the widths are those of
        the local shared MLP, and other options are those of `SharedMLP.init`.
        """
        return cls(SharedMLP.init(n_inputs, *widths, key=key, **options), dim, n_centres, radius, k)

    def __check_init__(self):
        expect_count("SetAbstraction", dim=self.dim, n_centres=self.n_centres, k=self.k)
        if not self.radius > 0:
            raise ValueError(f"SetAbstraction: radius must be > 0; got {self.radius}.")

    def messages(
        self,
        x: Float[Array, "n d"],
        centres: Float[Array, "c p"],
        neighbours: Int[Array, "c k"],
    ) -> Float[Array, "c k m"]:
        r"""$\mathrm{MLP}([x_j, p_j - p_c])$ for every centre $c$ and neighbour $j$."""
        near = x[neighbours]
        offsets = near[..., : self.dim] - centres[:, None]
        rows = jnp.concatenate([near[..., self.dim :], offsets], axis=-1)
        c, k, d = rows.shape
        return self.mlp(rows.reshape(c * k, d)).reshape(c, k, -1)

    def __call__(self, x: Elements) -> Any:
        points, mask = split_set("SetAbstraction", x, self.mlp.layers[0].W.shape[1])
        positions = points[:, : self.dim]
        by_position = positions if mask is None else PointSet(positions, mask)
        k = min(self.k, len(points))
        centres = positions[farthest_points(by_position, self.n_centres)]
        neighbours, found = ball_query(by_position, centres, radius=self.radius, k=k)
        messages = self.messages(points, centres, neighbours)
        features = jax.vmap(largest)(jnp.where(found[..., None], messages, -jnp.inf))
        features = jnp.where(jnp.isneginf(features), 0, features)
        rows = jnp.concatenate([centres, features], axis=1)
        if mask is None:
            return rows
        return PointSet(rows, jnp.arange(self.n_centres) < mask.sum()).with_points(rows)

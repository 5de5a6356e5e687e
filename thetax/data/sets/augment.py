r"""Normalisation and augmentation of point clouds, of shape (n, 3) (§7.3).

`rotate_points` and `jitter_points` return `augment(x, *, key=None)` as `thetax.data.augment` does,
so `thetax.train.with_augmentation` takes them.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ...serialise import recorded
from .point_set import PointSet

AXES = {"x": 0, "y": 1, "z": 2}


def random_rotation(*, key: PRNGKeyArray) -> Float[Array, "3 3"]:
    r"""A uniformly distributed rotation: $R^\top R = I$, $\det R = 1$.

    A unit quaternion of uniform direction gives it (Shoemake 1992).

    >>> R = random_rotation(key=jr.key(0))
    >>> bool(jnp.allclose(R @ R.T, jnp.eye(3), atol=1e-6))
    True
    """
    q = jr.normal(key, (4,))
    w, x, y, z = q / jnp.linalg.norm(q)
    return jnp.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


@recorded
def rotate_points(axis: str | None = None) -> Callable[..., Any]:
    r"""Rotates a point cloud by a random rotation, or about one axis, "x", "y" or "z".

    >>> points = jnp.array([[1.0, 0.0, 5.0]])
    >>> rotated = rotate_points("z")(points, key=jr.key(0))
    >>> float(rotated[0, 2]), round(float(jnp.linalg.norm(rotated[0, :2])), 5)
    (5.0, 1.0)
    """
    if axis is not None and axis not in AXES:
        raise ValueError(f"rotate_points: axis must be 'x', 'y', 'z' or None; got {axis!r}.")

    def rotate(points, key):
        if axis is None:
            R = random_rotation(key=key)
        else:
            angle = jr.uniform(key, (), maxval=2 * jnp.pi)
            cos, sin = jnp.cos(angle), jnp.sin(angle)
            i, j = (k for k in range(3) if k != AXES[axis])
            R = jnp.eye(3).at[i, i].set(cos).at[j, j].set(cos).at[i, j].set(-sin).at[j, i].set(sin)
        return points @ R.T.astype(points.dtype)

    return _for_points(rotate)


@recorded
def jitter_points(scale: float = 0.01, *, limit: float = 0.05) -> Callable[..., Any]:
    r"""Adds Gaussian noise of standard deviation `scale`, clipped to $\pm$ `limit`, to every
    coordinate (Qi et al. 2017).

    >>> float(abs(jitter_points(1.0, limit=0.5)(jnp.zeros((50, 3)), key=jr.key(0))).max())
    0.5
    """
    if scale < 0 or limit <= 0:
        raise ValueError(
            f"jitter_points: scale must be >= 0 and limit > 0; got {scale} and {limit}."
        )
    return _for_points(
        lambda points, key: (
            points + jnp.clip(scale * jr.normal(key, points.shape, points.dtype), -limit, limit)
        )
    )


def normalise_points(points: Float[Array, "n 3"]) -> Float[Array, "n 3"]:
    """The points moved to the mean 0 and scaled so that the farthest has the length 1.

    >>> normalise_points(jnp.array([[0.0, 0.0, 0.0], [4.0, 0.0, 0.0]])).tolist()
    [[-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    """
    centred = points - points.mean(axis=0, keepdims=True)
    radius = jnp.sqrt(jnp.square(centred).sum(axis=1).max())
    return centred / jnp.where(radius > 0, radius, 1)


def _for_points(transform: Callable[[Array, PRNGKeyArray], Array]) -> Callable[..., Any]:
    """The augmentation of an array or a `PointSet` by `transform(points, key)`."""

    def augment(x: Any, *, key: PRNGKeyArray | None = None) -> Any:
        if key is None:
            return x
        if isinstance(x, PointSet):
            return x.with_points(transform(x.points, key))
        return transform(jnp.asarray(x), key)

    return augment

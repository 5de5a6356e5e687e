r"""Point clouds of geometric primitives, drawn uniformly by area, with a part label for each point.

They are the synthetic data of point cloud networks (§7.3): `primitive_clouds` gives labelled
examples, in random proportions and rotations, with noise.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...check import expect_count, suggest
from .augment import normalise_points, random_rotation

Cloud = tuple[Float[Array, "n 3"], Int[Array, " n"]]

# The names of the part labels, which are indices into it.
PRIMITIVE_PARTS = (
    "sphere",
    "cube",
    "torus",
    "plane",
    "cylinder side",
    "cylinder end",
    "cone side",
    "cone base",
)
TORUS_RADIUS = 0.4  # of the tube; the ring has the radius 1
CONE_HEIGHT = 2.0


def _labels(names: str, n: int) -> Int[Array, " n"]:
    return jnp.full(n, PRIMITIVE_PARTS.index(names), jnp.int32)


def _disc(key: PRNGKeyArray, n: int) -> tuple[Array, Array]:
    """Radius and angle of uniform points of the unit disc."""
    k_radius, k_angle = jr.split(key)
    return jnp.sqrt(jr.uniform(k_radius, (n,))), jr.uniform(k_angle, (n,), maxval=2 * jnp.pi)


def _sphere(n: int, key: PRNGKeyArray) -> Cloud:
    points = jr.normal(key, (n, 3))
    return points / jnp.linalg.norm(points, axis=1, keepdims=True), _labels("sphere", n)


def _cube(n: int, key: PRNGKeyArray) -> Cloud:
    k_points, k_axis, k_side = jr.split(key, 3)
    points = jr.uniform(k_points, (n, 3), minval=-1.0, maxval=1.0)
    axis = jr.randint(k_axis, (n,), 0, 3)
    side = jr.rademacher(k_side, (n,), points.dtype)
    on_axis = jnp.arange(3)[None] == axis[:, None]
    return jnp.where(on_axis, side[:, None], points), _labels("cube", n)


def _torus(n: int, key: PRNGKeyArray) -> Cloud:
    r"""The angle $v$ around the tube has the density $(1 + r \cos v) / 2\pi$: a uniform angle is
    reflected to $\pi - v$ with probability $(1 - r \cos v)/2$.
    """
    k_around, k_tube, k_flip = jr.split(key, 3)
    r = TORUS_RADIUS
    u, v = (jr.uniform(k, (n,), maxval=2 * jnp.pi) for k in (k_around, k_tube))
    v = jnp.where(jr.uniform(k_flip, (n,)) < (1 - r * jnp.cos(v)) / 2, jnp.pi - v, v)
    ring = 1 + r * jnp.cos(v)
    points = jnp.stack([ring * jnp.cos(u), ring * jnp.sin(u), r * jnp.sin(v)], axis=1)
    return points, _labels("torus", n)


def _plane(n: int, key: PRNGKeyArray) -> Cloud:
    points = jr.uniform(key, (n, 2), minval=-1.0, maxval=1.0)
    return jnp.pad(points, ((0, 0), (0, 1))), _labels("plane", n)


def _cylinder(n: int, key: PRNGKeyArray) -> Cloud:
    """Radius 1 and height 2: the side has twice the area of the two ends."""
    k_disc, k_height, k_part, k_end = jr.split(key, 4)
    radius, angle = _disc(k_disc, n)
    height = jr.uniform(k_height, (n,), minval=-1.0, maxval=1.0)
    is_end = jr.uniform(k_part, (n,)) < 1 / 3
    z = jnp.where(is_end, jr.rademacher(k_end, (n,), height.dtype), height)
    radius = jnp.where(is_end, radius, 1)
    points = jnp.stack([radius * jnp.cos(angle), radius * jnp.sin(angle), z], axis=1)
    return points, jnp.where(is_end, _labels("cylinder end", n), _labels("cylinder side", n))


def _cone(n: int, key: PRNGKeyArray) -> Cloud:
    r"""Radius 1 and height $h$: the side has the area $\pi \sqrt{1 + h^2}$, the base $\pi$."""
    k_disc, k_part = jr.split(key)
    radius, angle = _disc(k_disc, n)
    slant = np.sqrt(1 + CONE_HEIGHT**2)
    is_base = jr.uniform(k_part, (n,)) < 1 / (1 + slant)
    z = jnp.where(is_base, 0, CONE_HEIGHT * (1 - radius))
    points = jnp.stack([radius * jnp.cos(angle), radius * jnp.sin(angle), z], axis=1)
    return points, jnp.where(is_base, _labels("cone base", n), _labels("cone side", n))


# The shapes of `primitive_clouds`, in the order of their class numbers.
PRIMITIVES: dict[str, Callable[[int, PRNGKeyArray], Cloud]] = {
    "sphere": _sphere,
    "cube": _cube,
    "torus": _torus,
    "plane": _plane,
    "cylinder": _cylinder,
    "cone": _cone,
}


def sample_primitive(name: str, n: int, *, key: PRNGKeyArray) -> Cloud:
    """Draws `n` points of a surface uniformly by area, and the part of each, an index into
    `PRIMITIVE_PARTS`.

    >>> points, parts = sample_primitive("sphere", 5, key=jr.key(0))
    >>> points.shape, {PRIMITIVE_PARTS[part] for part in parts.tolist()}
    ((5, 3), {'sphere'})
    """
    expect_count("sample_primitive", n=n)
    return _sampler("sample_primitive", name)(n, key)


def primitive_clouds(
    n: int,
    *,
    n_points: int = 128,
    shapes: Sequence[str] = tuple(PRIMITIVES),
    stretch: float = 1.5,
    noise: float = 0.01,
    rotate: bool = True,
    key: PRNGKeyArray,
) -> tuple[Float[Array, "n p 3"], Int[Array, " n"], Int[Array, "n p"]]:
    r"""`n` point clouds, their shapes (numbers of `shapes`) and the part of every point.

    Every axis is scaled by a factor from $1/\text{stretch}$ to `stretch`, the cloud is rotated at
    random, normalised to the unit ball, and Gaussian noise is added. All shapes are as frequent, up
    to one example.

    >>> xs, ys, parts = primitive_clouds(12, n_points=32, key=jr.key(0))
    >>> xs.shape, jnp.bincount(ys).tolist(), parts.shape
    ((12, 32, 3), [2, 2, 2, 2, 2, 2], (12, 32))
    """
    expect_count("primitive_clouds", n=n, n_points=n_points)
    if not shapes or stretch < 1 or noise < 0:
        raise ValueError(
            "primitive_clouds: expected at least one shape, stretch >= 1 and noise >= 0; got "
            f"{tuple(shapes)}, {stretch} and {noise}."
        )
    samplers = [_sampler("primitive_clouds", name) for name in shapes]
    key_order, key_clouds = jr.split(key)

    def cloud(sampler, key):
        k_points, k_stretch, k_rotation, k_noise = jr.split(key, 4)
        points, parts = sampler(n_points, k_points)
        bound = jnp.log(jnp.asarray(stretch, points.dtype))
        factors = jnp.exp(jr.uniform(k_stretch, (3,), minval=-1.0, maxval=1.0) * bound)
        points = points * factors[None]
        if rotate:
            points = points @ random_rotation(key=k_rotation).T
        points = normalise_points(points)
        return points + noise * jr.normal(k_noise, points.shape), parts

    ys = np.arange(n) % len(shapes)
    keys = jr.split(key_clouds, n)
    order = jr.permutation(key_order, n)
    by_shape = [
        jax.vmap(lambda key, sampler=sampler: cloud(sampler, key))(keys[i :: len(shapes)])
        for i, sampler in enumerate(samplers[:n])
    ]
    rows = np.argsort(np.concatenate([np.flatnonzero(ys == i) for i in range(len(shapes))]))
    points, parts = (jnp.concatenate(arrays)[rows][order] for arrays in zip(*by_shape))
    return points, jnp.asarray(ys, jnp.int32)[order], parts


def _sampler(caller: str, name: str) -> Callable[[int, PRNGKeyArray], Cloud]:
    if name not in PRIMITIVES:
        raise ValueError(
            f"{caller}: {suggest(name, PRIMITIVES)}shapes are {', '.join(PRIMITIVES)}; got "
            f"{name!r}."
        )
    return PRIMITIVES[name]

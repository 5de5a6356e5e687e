"""Data augmentation: noise, shifts, flips, cutout, crops and rotations.

Each function returns `augment(x, *, key=None)`, a pure function of one example with static shapes,
so it can be compiled and mapped over a batch with one key per example. Without a key the example is
returned unchanged (`crop` takes the central window). Images have shape (h, w) or (c, h, w). Given
transformations, `one_of` applies a random one to each example, and `apply_all` all of them.

>>> augment = chain(flip(), shift(pixels=2), noise(scale=0.1))
>>> keys = jr.split(jr.key(0), 16)
>>> jax.jit(jax.vmap(lambda x, key: augment(x, key=key)))(jnp.ones((16, 8, 8)), keys).shape
(16, 8, 8)
"""

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.ndimage import map_coordinates
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from ..check import expect_count
from ..serialise import recorded

Augmentation: TypeAlias = Callable[..., Array]  # augment(x, *, key=None), for one example


def _random(
    transform: Callable[[Array, PRNGKeyArray], Array],
    without_key: Callable[[Array], Array] = lambda x: x,
) -> Augmentation:
    def augment(x: Array, *, key: PRNGKeyArray | None = None) -> Array:
        return without_key(x) if key is None else transform(x, key)

    return augment


@recorded
def chain(*augmentations: Augmentation) -> Augmentation:
    """Applies several augmentations in sequence, each with its own key."""

    def augment(x: Array, *, key: PRNGKeyArray | None = None) -> Array:
        keys = [None] * len(augmentations) if key is None else jr.split(key, len(augmentations))
        for augmentation, key in zip(augmentations, keys):
            x = augmentation(x, key=key)
        return x

    return augment


@recorded
def one_of(*transformations: Callable[[Array], Array]) -> Augmentation:
    r"""$\tau_k(x)$ with a random $k$ for each example (§8.7); all must return the same shape.

    >>> augment = one_of(jnp.flip, jnp.negative)
    >>> augment(jnp.array([1.0, 2.0]), key=jr.key(0)).tolist() in ([2.0, 1.0], [-1.0, -2.0])
    True
    """
    _check_transformations("one_of", transformations)
    return _random(
        lambda x, key: jax.lax.switch(
            jr.randint(key, (), 0, len(transformations)), transformations, x
        )
    )


def apply_all(
    xs: Shaped[Array | np.ndarray, "n *s"],
    ys: Shaped[Array | np.ndarray, "n *l"],
    *transformations: Callable[[Array], Array],
) -> tuple[Shaped[Array, "m *t"], Shaped[Array, "m *l"]]:
    r"""The augmented data set $\bigcup_k \{(\tau_k(x_i), y_i)\}$ of $nK$ examples, $\tau_1$ first
    (§8.7).

    In expectation, training on it is training with `one_of` the same transformations. It contains
    the original examples only if one transformation is the identity.

    >>> xs, ys = apply_all(jnp.array([[1.0, 2.0]]), jnp.array([7]), lambda x: x, jnp.flip)
    >>> xs.tolist(), ys.tolist()
    ([[1.0, 2.0], [2.0, 1.0]], [7, 7])
    """
    _check_transformations("apply_all", transformations)
    if len(xs) != len(ys):
        raise ValueError(
            f"apply_all: expected one y for each x; got {len(xs)} xs and {len(ys)} ys."
        )
    xs = jnp.asarray(xs)
    ys = jnp.asarray(ys)
    parts = [jax.vmap(transformation)(xs) for transformation in transformations]
    if len(shapes := {part.shape for part in parts}) > 1:
        raise ValueError(
            f"apply_all: the transformations must return the same shape; got {sorted(shapes)}."
        )
    return jnp.concatenate(parts), jnp.concatenate([ys] * len(transformations))


def _check_transformations(
    name: str, transformations: tuple[Callable[[Array], Array], ...]
) -> None:
    if not transformations or not all(map(callable, transformations)):
        raise ValueError(
            f"{name}: expected one or more functions of an example; got {transformations!r}."
        )


@recorded
def noise(*, scale: float = 0.1) -> Augmentation:
    r"""Gaussian noise: $x + \text{scale} \cdot \varepsilon$, $\varepsilon \sim N(0, I)$."""
    return _random(
        lambda x, key: x + jnp.asarray(scale, x.dtype) * jr.normal(key, x.shape, x.dtype)
    )


@recorded
def flip(*, probability: float = 0.5) -> Augmentation:
    """Flips the image horizontally with the given probability.

    >>> flip(probability=1.0)(jnp.array([[1.0, 2.0]]), key=jr.key(0)).tolist()
    [[2.0, 1.0]]
    """
    if not 0 <= probability <= 1:
        raise ValueError(f"flip: probability must be in [0, 1]; got {probability}.")
    return _random(lambda x, key: jnp.where(jr.bernoulli(key, probability), x[..., ::-1], x))


@recorded
def shift(*, pixels: int = 2) -> Augmentation:
    """Shifts the image randomly by up to `pixels` along each axis, with zero padding.

    >>> x = jnp.zeros((5, 5)).at[2, 2].set(1.0)
    >>> float(shift(pixels=2)(x, key=jr.key(1)).sum())
    1.0
    """
    if pixels < 0:
        raise ValueError(f"shift: pixels must be >= 0; got {pixels}.")

    def transform(x: Float[Array, "*c h w"], key: PRNGKeyArray) -> Float[Array, "*c h w"]:
        padded = jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(pixels, pixels)] * 2)
        return _window(padded, x.shape[-2:], jr.randint(key, (2,), 0, 2 * pixels + 1))

    return _random(transform)


@recorded
def cutout(*, size: int = 8) -> Augmentation:
    """Sets a random square of the given size to zero (cutout; DeVries & Taylor 2017).

    The centre is uniform over the image; a square that reaches over the edge is clipped. The model
    learns not to rely on a single part of the image.

    >>> x = cutout(size=2)(jnp.ones((5, 5)), key=jr.key(0))
    >>> float(x.sum()) in (21.0, 23.0, 24.0)
    True
    """
    expect_count("cutout", size=size)

    def transform(x: Float[Array, "*c h w"], key: PRNGKeyArray) -> Float[Array, "*c h w"]:
        h, w = x.shape[-2:]
        centre = jr.randint(key, (2,), 0, jnp.array([h, w]))
        inside = [
            jnp.abs(2 * (jnp.arange(n) - m) + (size + 1) % 2) < size for n, m in zip((h, w), centre)
        ]
        square = inside[0][:, None] & inside[1][None]
        return jnp.where(jnp.broadcast_to(square, x.shape), jnp.zeros((), x.dtype), x)

    return _random(transform)


@recorded
def crop(*, height: int, width: int) -> Augmentation:
    """A random window of the given size; without a key, the central one.

    >>> crop(height=2, width=2)(jnp.arange(16.0).reshape(4, 4)).tolist()
    [[5.0, 6.0], [9.0, 10.0]]
    """

    def margins(x: Array) -> Array:
        sizes = x.shape[-2] - height, x.shape[-1] - width
        if min(sizes) < 0 or min(height, width) < 1:
            h, w = x.shape[-2:]
            raise ValueError(
                f"crop: a window of {height} by {width} does not fit into an image of {h} by {w}."
            )
        return jnp.array(sizes)

    def transform(x: Array, key: PRNGKeyArray) -> Array:
        return _window(x, (height, width), jr.randint(key, (2,), 0, margins(x) + 1))

    return _random(transform, lambda x: _window(x, (height, width), margins(x) // 2))


def _window(x: Array, size: tuple[int, ...], corner: Array) -> Array:
    start = [0] * (x.ndim - 2) + [corner[0], corner[1]]
    return jax.lax.dynamic_slice(x, start, (*x.shape[:-2], *size))


@recorded
def rotate(*, degrees: float = 15.0) -> Augmentation:
    """Rotates the image randomly by up to `degrees`, with bilinear interpolation.

    >>> x = jr.normal(jr.key(0), (3, 8, 8))
    >>> bool(jnp.allclose(rotate(degrees=0.0)(x, key=jr.key(1)), x, atol=1e-5))
    True
    """

    def transform(x: Float[Array, "*c h w"], key: PRNGKeyArray) -> Float[Array, "*c h w"]:
        limit = jnp.deg2rad(degrees)
        return rotate_image(x, jr.uniform(key, minval=-limit, maxval=limit))

    return _random(transform)


def rotate_image(x: Float[Array, "*c h w"], angle: Float[Array, ""]) -> Float[Array, "*c h w"]:
    r"""The image rotated counter-clockwise about its centre by an angle in radians.

    >>> x = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    >>> jnp.round(rotate_image(x, jnp.array(jnp.pi / 2))).tolist()
    [[2.0, 4.0], [1.0, 3.0]]
    """
    h, w = x.shape[-2:]
    rows, columns = (
        jnp.mgrid[:h, :w].astype(x.dtype) - jnp.array([h - 1, w - 1], x.dtype).reshape(2, 1, 1) / 2
    )
    sin = jnp.sin(angle)
    cos = jnp.cos(angle)
    positions = [cos * rows + sin * columns + (h - 1) / 2, cos * columns - sin * rows + (w - 1) / 2]
    planes = x.reshape(-1, h, w)
    return jax.vmap(lambda plane: map_coordinates(plane, positions, order=1))(planes).reshape(
        x.shape
    )

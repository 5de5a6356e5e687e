"""The same example, seen a little otherwise: noise, shifts, flips, holes, crops and turns.

Each function returns `augment(x, *, key=None)`, a pure function of one example: shapes are static,
so it can be compiled and mapped over a batch, each example with a key of its own. A key means
chance; without one the example comes back as it is (`crop` takes the middle). Images are `h w` or
`c h w`. Of transformations that are given, `one_of` draws one for each example, and `union` takes
all.

>>> see = chain(flip(), shift(pixels=2), noise(scale=0.1))
>>> keys = jr.split(jr.key(0), 16)
>>> jax.jit(jax.vmap(lambda x, key: see(x, key=key)))(jnp.ones((16, 8, 8)), keys).shape
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

Augmentation: TypeAlias = Callable[
    ..., Array
]  # augment(x, *, key=None): one example, seen otherwise


def _by_chance(
    change: Callable[[Array, PRNGKeyArray], Array],
    otherwise: Callable[[Array], Array] = lambda x: x,
) -> Augmentation:
    def augment(x: Array, *, key: PRNGKeyArray | None = None) -> Array:
        return otherwise(x) if key is None else change(x, key)

    return augment


def chain(*augmentations: Augmentation) -> Augmentation:
    """One after the other, each with a key of its own."""

    def augment(x: Array, *, key: PRNGKeyArray | None = None) -> Array:
        keys = [None] * len(augmentations) if key is None else jr.split(key, len(augmentations))
        for augmentation, key in zip(augmentations, keys):
            x = augmentation(x, key=key)
        return x

    return augment


def one_of(*transformations: Callable[[Array], Array]) -> Augmentation:
    r"""$\tau_k(x)$ with $k$ drawn anew for each example; all must keep the shape alike (§8.7).

    >>> turn = one_of(jnp.flip, jnp.negative)
    >>> turn(jnp.array([1.0, 2.0]), key=jr.key(0)).tolist() in ([2.0, 1.0], [-1.0, -2.0])
    True
    """
    _check_some("one_of", transformations)
    return _by_chance(
        lambda x, key: jax.lax.switch(
            jr.randint(key, (), 0, len(transformations)), transformations, x
        )
    )


def union(
    xs: Shaped[Array | np.ndarray, "n *s"],
    ys: Shaped[Array | np.ndarray, "n *l"],
    *transformations: Callable[[Array], Array],
) -> tuple[Shaped[Array, "m *t"], Shaped[Array, "m *l"]]:
    r"""$\bigcup_k \{(\tau_k(x_i), y_i)\}$: the set of $n$ examples as $nK$, all of $\tau_1$ first
    (§8.7).

    Descending a mean over it is, on average, descending with `one_of` the same transformations. The
    examples themselves stay in it only if one of these is the identity.

    >>> xs, ys = union(jnp.array([[1.0, 2.0]]), jnp.array([7]), lambda x: x, jnp.flip)
    >>> xs.tolist(), ys.tolist()
    ([[1.0, 2.0], [2.0, 1.0]], [7, 7])
    """
    _check_some("union", transformations)
    if len(xs) != len(ys):
        raise ValueError(
            f"union: expected one y for each x, but there are {len(xs)} xs and {len(ys)} ys."
        )
    xs = jnp.asarray(xs)
    ys = jnp.asarray(ys)
    seen = [jax.vmap(transformation)(xs) for transformation in transformations]
    if len(shapes := {changed.shape for changed in seen}) > 1:
        raise ValueError(
            f"union: the transformations must give one shape, but they give {sorted(shapes)}."
        )
    return jnp.concatenate(seen), jnp.concatenate([ys] * len(transformations))


def _check_some(name: str, transformations: tuple[Callable[[Array], Array], ...]) -> None:
    if not transformations or not all(map(callable, transformations)):
        raise ValueError(
            f"{name}: expected one or more functions of an example, got {transformations!r}."
        )


def noise(*, scale: float = 0.1) -> Augmentation:
    r"""$x + \text{scale} \cdot \varepsilon$, $\varepsilon \sim N(0, I)$; for examples of any
    shape.
    """
    return _by_chance(
        lambda x, key: x + jnp.asarray(scale, x.dtype) * jr.normal(key, x.shape, x.dtype)
    )


def flip(*, probability: float = 0.5) -> Augmentation:
    """Mirrors the image, left for right, with the given probability.

    >>> flip(probability=1.0)(jnp.array([[1.0, 2.0]]), key=jr.key(0)).tolist()
    [[2.0, 1.0]]
    """
    if not 0 <= probability <= 1:
        raise ValueError(f"probability={probability}: expected a number from 0 to 1.")
    return _by_chance(lambda x, key: jnp.where(jr.bernoulli(key, probability), x[..., ::-1], x))


def shift(*, pixels: int = 2) -> Augmentation:
    """Moves the image by up to `pixels` each way; what comes in at the edges is zero.

    >>> x = jnp.zeros((5, 5)).at[2, 2].set(1.0)
    >>> float(shift(pixels=2)(x, key=jr.key(1)).sum())
    1.0
    """
    if pixels < 0:
        raise ValueError(f"pixels={pixels}: expected 0 or more.")

    def change(x: Float[Array, "*c h w"], key: PRNGKeyArray) -> Float[Array, "*c h w"]:
        padded = jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(pixels, pixels)] * 2)
        return _window(padded, x.shape[-2:], jr.randint(key, (2,), 0, 2 * pixels + 1))

    return _by_chance(change)


def cutout(*, size: int = 8) -> Augmentation:
    """Puts zeros on a square of that size, its middle anywhere in the image (DeVries & Taylor
    2017).

    A square that reaches over the edge is cut there. An image learnt with parts of it hidden is
    known by more than one of its parts.

    >>> x = cutout(size=2)(jnp.ones((5, 5)), key=jr.key(0))
    >>> float(x.sum()) in (21.0, 23.0, 24.0)
    True
    """
    if size < 1:
        raise ValueError(f"size={size}: expected 1 or more.")

    def change(x: Float[Array, "*c h w"], key: PRNGKeyArray) -> Float[Array, "*c h w"]:
        h, w = x.shape[-2:]
        middle = jr.randint(key, (2,), 0, jnp.array([h, w]))
        inside = [
            jnp.abs(2 * (jnp.arange(n) - m) + (size + 1) % 2) < size for n, m in zip((h, w), middle)
        ]
        hidden = inside[0][:, None] & inside[1][None]
        return jnp.where(jnp.broadcast_to(hidden, x.shape), jnp.zeros((), x.dtype), x)

    return _by_chance(change)


def crop(*, height: int, width: int) -> Augmentation:
    """A window of that size, anywhere in the image; without a key, its middle.

    >>> crop(height=2, width=2)(jnp.arange(16.0).reshape(4, 4)).tolist()
    [[5.0, 6.0], [9.0, 10.0]]
    """

    def free(x: Array) -> Array:
        room = x.shape[-2] - height, x.shape[-1] - width
        if min(room) < 0 or min(height, width) < 1:
            h, w = x.shape[-2:]
            raise ValueError(
                f"crop: a window of {height} by {width} does not fit an image of {h} by {w}."
            )
        return jnp.array(room)

    def change(x: Array, key: PRNGKeyArray) -> Array:
        return _window(x, (height, width), jr.randint(key, (2,), 0, free(x) + 1))

    return _by_chance(change, lambda x: _window(x, (height, width), free(x) // 2))


def _window(x: Array, size: tuple[int, ...], corner: Array) -> Array:
    start = [0] * (x.ndim - 2) + [corner[0], corner[1]]
    return jax.lax.dynamic_slice(x, start, (*x.shape[:-2], *size))


def rotate(*, degrees: float = 15.0) -> Augmentation:
    """Turns the image about its middle by up to `degrees` either way, between pixels linearly.

    >>> x = jr.normal(jr.key(0), (3, 8, 8))
    >>> bool(jnp.allclose(rotate(degrees=0.0)(x, key=jr.key(1)), x, atol=1e-5))
    True
    """

    def change(x: Float[Array, "*c h w"], key: PRNGKeyArray) -> Float[Array, "*c h w"]:
        limit = jnp.deg2rad(degrees)
        return turned(x, jr.uniform(key, minval=-limit, maxval=limit))

    return _by_chance(change)


def turned(x: Float[Array, "*c h w"], angle: Float[Array, ""]) -> Float[Array, "*c h w"]:
    r"""The image turned counter-clockwise about its middle by an angle in radians.

    >>> x = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    >>> bool(
    ...     jnp.allclose(
    ...         turned(x, jnp.array(jnp.pi / 2)), jnp.array([[2.0, 4.0], [1.0, 3.0]]), atol=1e-5
    ...     )
    ... )
    True
    """
    h, w = x.shape[-2:]
    rows, columns = (
        jnp.mgrid[:h, :w].astype(x.dtype) - jnp.array([h - 1, w - 1], x.dtype).reshape(2, 1, 1) / 2
    )
    sin = jnp.sin(angle)
    cos = jnp.cos(angle)
    places = [cos * rows + sin * columns + (h - 1) / 2, cos * columns - sin * rows + (w - 1) / 2]
    planes = x.reshape(-1, h, w)
    return jax.vmap(lambda plane: map_coordinates(plane, places, order=1))(planes).reshape(x.shape)

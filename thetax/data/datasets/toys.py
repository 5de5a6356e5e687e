r"""Synthetic toy datasets as pure functions of a key.

Each is `toy(n, *, noise, key) -> (xs, ys)` with xs of shape (n, d) and ys of shape (n,). Labels are
int32. Classes that are sampled, not computed, have equal frequency (up to one example).
"""

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...check import expect_count

Plane = tuple[Float[Array, "n 2"], Int[Array, " n"]]


def _balanced(n: int, classes: int, key: PRNGKeyArray) -> Int[Array, " n"]:
    expect_count("toy dataset", n=n)
    return jr.permutation(key, jnp.arange(n, dtype=jnp.int32) % classes)


def _add_noise(xs: Float[Array, "n d"], noise: float, key: PRNGKeyArray) -> Float[Array, "n d"]:
    return xs + noise * jr.normal(key, xs.shape)


def _polar(radius: Float[Array, " n"], angle: Float[Array, " n"]) -> Float[Array, "n 2"]:
    return jnp.stack([radius * jnp.cos(angle), radius * jnp.sin(angle)], axis=1)


def xor(n: int, *, noise: float = 0.0, key: PRNGKeyArray) -> Plane:
    r"""$y = 1$ where exactly one coordinate is positive, $x$ uniform on $[-1, 1]^2$ plus noise.

    >>> xs, ys = xor(100, key=jr.key(0))
    >>> bool(jnp.all((ys == 1) == (xs[:, 0] * xs[:, 1] < 0)))
    True
    """
    k_points, k_noise = jr.split(key)
    xs = jr.uniform(k_points, (n, 2), minval=-1.0, maxval=1.0)
    positive = xs > 0
    ys = (positive[:, 0] ^ positive[:, 1]).astype(jnp.int32)
    return _add_noise(xs, noise, k_noise), ys


def moons(n: int, *, noise: float = 0.1, key: PRNGKeyArray) -> Plane:
    """Two interleaving half circles.

    >>> xs, ys = moons(100, key=jr.key(0))
    >>> xs.shape, int(ys.sum())
    ((100, 2), 50)
    """
    k_labels, k_angles, k_noise = jr.split(key, 3)
    ys = _balanced(n, 2, k_labels)
    upper = _polar(jnp.ones(n), jr.uniform(k_angles, (n,), maxval=jnp.pi))
    lower = jnp.stack([1.0 - upper[:, 0], 0.5 - upper[:, 1]], axis=1)
    return _add_noise(jnp.where(ys[:, None] == 0, upper, lower), noise, k_noise), ys


def circles(n: int, *, noise: float = 0.05, key: PRNGKeyArray) -> Plane:
    r"""A circle of radius 1 (label 0) around one of radius $\tfrac12$ (label 1).

    >>> xs, ys = circles(64, noise=0.0, key=jr.key(0))
    >>> bool(jnp.allclose(jnp.linalg.norm(xs, axis=1), jnp.where(ys == 0, 1.0, 0.5)))
    True
    """
    k_labels, k_angles, k_noise = jr.split(key, 3)
    ys = _balanced(n, 2, k_labels)
    angle = jr.uniform(k_angles, (n,), maxval=2 * jnp.pi)
    return _add_noise(_polar(jnp.where(ys == 0, 1.0, 0.5), angle), noise, k_noise), ys


def spirals(
    n: int, *, classes: int = 2, turns: float = 1.0, noise: float = 0.02, key: PRNGKeyArray
) -> Plane:
    r"""Arms $r \mapsto (r, 2\pi(\text{turns} \cdot r + y / \text{classes}))$ in polar coordinates,
    $r \le 1$.

    >>> xs, ys = spirals(90, classes=3, key=jr.key(0))
    >>> jnp.bincount(ys).tolist()
    [30, 30, 30]
    """
    k_labels, k_radii, k_noise = jr.split(key, 3)
    ys = _balanced(n, classes, k_labels)
    # the square root spreads the points evenly along the arm, minval keeps them off the centre
    radius = jnp.sqrt(jr.uniform(k_radii, (n,), minval=0.01))
    angle = 2 * jnp.pi * (turns * radius + ys.astype(jnp.float32) / classes)
    return _add_noise(_polar(radius, angle), noise, k_noise), ys


def blobs(
    n: int, *, classes: int = 3, features: int = 2, noise: float = 0.3, key: PRNGKeyArray
) -> tuple[Float[Array, "n {features}"], Int[Array, " n"]]:
    r"""Gaussian clusters with standard deviation `noise` around centres from $N(0, I)$.

    >>> xs, ys = blobs(30, features=5, key=jr.key(0))
    >>> xs.shape, jnp.bincount(ys).tolist()
    ((30, 5), [10, 10, 10])
    """
    k_labels, k_centres, k_noise = jr.split(key, 3)
    ys = _balanced(n, classes, k_labels)
    centres = jr.normal(k_centres, (classes, features))
    return _add_noise(centres[ys], noise, k_noise), ys


def teacher_student(
    n: int,
    *,
    features: int = 8,
    width: int = 16,
    classes: int = 2,
    noise: float = 0.0,
    key: PRNGKeyArray,
) -> tuple[Float[Array, "n {features}"], Int[Array, " n"]]:
    r"""Labels of a random network: $y = \arg\max(V \tanh(Ux) + \text{noise} \cdot \varepsilon)$,
    $x \sim N(0, I)$.

    Without noise, a student of the same shape can learn it without error.

    >>> xs, ys = teacher_student(50, classes=3, key=jr.key(0))
    >>> xs.shape, set(ys.tolist()) <= {0, 1, 2}
    ((50, 8), True)
    """
    k_points, k_in, k_out, k_noise = jr.split(key, 4)
    xs = jr.normal(k_points, (n, features))
    U = jr.normal(k_in, (width, features)) / jnp.sqrt(features)
    V = jr.normal(k_out, (classes, width)) / jnp.sqrt(width)
    logits = jnp.tanh(xs @ U.T) @ V.T
    return xs, jnp.argmax(_add_noise(logits, noise, k_noise), axis=1).astype(jnp.int32)


def sinusoid(
    n: int, *, noise: float = 0.1, key: PRNGKeyArray
) -> tuple[Float[Array, "n 1"], Float[Array, " n"]]:
    r"""$y = \sin x + \text{noise} \cdot \varepsilon$, $x$ uniform on $[-\pi, \pi]$.

    >>> xs, ys = sinusoid(20, noise=0.0, key=jr.key(0))
    >>> bool(jnp.allclose(ys, jnp.sin(xs[:, 0])))
    True
    """
    k_points, k_noise = jr.split(key)
    xs = jr.uniform(k_points, (n, 1), minval=-jnp.pi, maxval=jnp.pi)
    return xs, _add_noise(jnp.sin(xs), noise, k_noise)[:, 0]

r"""Random search by squares (Andriushchenko et al. 2020): scores are asked for, and never a
gradient.

In the ball of the maximum norm the largest losses lie at corners, $\eta_i = \pm\varepsilon$. The
search begins at stripes of random sign; each query draws a square, of one sign in each channel, and
keeps it if the score gained. The squares cover a share of the image that is halved again and again,
early on often, later less so.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ...core import Model, Scalar
from ...threat.ball import Linf, limits_of
from ...threat.inputs import Range, check_box, check_input
from ..base import clip_to_box
from ..goal import Goal, as_goal

HALVED = (
    10,
    50,
    200,
    500,
    1000,
    2000,
    4000,
    6000,
    8000,
)  # of 10,000 queries; of fewer, at the same shares


class Square(eqx.Module):
    r"""The largest score that `n_queries` answers of the model find in the ball of the maximum
    norm; it stops where the goal is reached (Andriushchenko et al. 2020). It needs a key.

    The last two axes are height and width, those before them channels; a vector is an image of one
    row. `initial_fraction` is the part of the image that the first squares cover. The paper's score is
    `untargeted(margin)`.

    Departs: where a square would change nothing, its signs are turned, so that no query is spent on
    what is known.

    >>> from thetax.attack import margin_loss
    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[0.0, 0.0], [1.0, -2.0]]), jnp.zeros(2))
    >>> attack = Square(margin_loss, Linf(0.1), n_queries=50)
    >>> attack(line, jnp.array([0.5, 0.5]), jnp.array(0), key=jr.key(0)).tolist()
    [0.6..., 0.4...]
    """

    goal: Goal = eqx.field(static=True, converter=as_goal)
    ball: Linf
    n_queries: int = eqx.field(static=True, kw_only=True)
    initial_fraction: float = eqx.field(static=True, kw_only=True, default=0.8)
    box: Range | None = eqx.field(static=True, kw_only=True, default=None)

    def __check_init__(self):
        if not isinstance(self.ball, Linf):
            raise ValueError(
                f"Square: its squares are made for Linf; got {type(self.ball).__name__}."
            )
        if self.n_queries < 2:
            raise ValueError(
                f"Square: n_queries must be at least 2, for the input and a start; got {self.n_queries}."
            )
        if not 0 < self.initial_fraction <= 1:
            raise ValueError(
                f"Square: initial_fraction must lie in (0, 1]; got {self.initial_fraction}."
            )
        if self.box is not None:
            check_box("Square", self.box)

    def __call__(
        self, model: Model, x: Any, y: Any, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*s"]:
        check_input("Square", model, x, y, self.box)
        if key is None:
            raise ValueError("Square: is a random search; give a key.")
        x = jnp.asarray(x)
        image = channels, height, width = _as_image(x.shape)
        key_start, key_place, key_sign = jr.split(key, 3)
        limits = limits_of(x.reshape(image), self.box)
        places = jr.uniform(key_place, (self.n_queries, 2), x.dtype)
        signs = jr.rademacher(key_sign, (self.n_queries, channels), x.dtype)
        sizes = jnp.asarray(windows(self.n_queries, height, width, self.initial_fraction))

        def inside(eta):
            return self.ball.project(eta, limits).astype(x.dtype)

        def see(eta):
            return self.goal.judge(
                lambda picture: model(picture.reshape(x.shape)), x.reshape(image), eta, y
            )

        def search(state):
            count, best = state
            square = (
                2 * self.ball.radius * _square(places[count], sizes[count], signs[count], image)
            )
            new = inside(best.eta + square)
            new = jnp.where((new == best.eta).all(), inside(best.eta - square), new)
            return count + 1, best.beside(see(new))

        plain = see(jnp.zeros(image, x.dtype))
        stripes = jr.rademacher(key_start, (channels, 1, width), x.dtype)
        stripes = see(inside(jnp.broadcast_to(self.ball.radius * stripes, image)))
        start = jax.tree.map(lambda a, b: jnp.where(plain.reached, a, b), plain, stripes)
        more = lambda state: (state[0] < self.n_queries) & ~state[1].reached
        _, best = jax.lax.while_loop(more, search, (jnp.asarray(2), start))
        return clip_to_box(x, plain.beside(best).eta.reshape(x.shape), self.box)


def windows(queries: int, height: int, width: int, share: float) -> Int[np.ndarray, "t 2"]:
    """The height and width of the square of each query; as wide as it has to be where the image is
    too low for it.

    >>> windows(10, 8, 8, 0.8)[:, 0].tolist()
    [7, 2, 1, 1, 1, 1, 1, 1, 1, 1]
    """
    times = np.arange(queries) * 10_000 // queries
    area = share * height * width / 2.0 ** (times[:, None] > np.array(HALVED)).sum(axis=1)
    side = np.maximum(np.sqrt(area).round(), 1)
    rows = np.minimum(np.maximum(side, (area / width).round()), height)
    columns = np.minimum(np.maximum(side, (area / height).round()), width)
    return np.stack([rows, columns], axis=1).astype(np.int32)


def _square(
    place: Float[Array, " 2"],
    size: Int[Array, " 2"],
    signs: Float[Array, " c"],
    image: tuple[int, int, int],
) -> Float[Array, "c h w"]:
    """A rectangle, of a sign in each channel, as far down and to the right as the place says, from
    0 to 1.
    """
    rows, columns = (_stretch(place[axis], size[axis], image[1 + axis]) for axis in (0, 1))
    return jnp.where(rows[:, None] & columns[None, :], signs[:, None, None], 0.0)


def _stretch(place: Scalar, size: Int[Array, ""], length: int) -> Bool[Array, " t"]:
    """So many places in a row of a line."""
    first = jnp.floor(place * (length - size + 1))
    places = jnp.arange(length)
    return (first <= places) & (places < first + size)


def _as_image(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Channels, height and width of an input of any shape."""
    height, width = (1, 1, *shape)[-2:]
    return math.prod(shape[:-2]), height, width

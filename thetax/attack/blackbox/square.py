r"""Square attack: black-box random search with square-shaped updates (Andriushchenko et al. 2020).
It queries scores, never gradients.

In an `Linf` ball the largest losses usually lie at corners, $\eta_i = \pm\varepsilon$. The search
starts with vertical stripes of random sign. Each query proposes a random square with one random
sign per channel, and keeps it if the score increases. The fraction of the image that the squares
cover is halved repeatedly, at first after few queries, later after more.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ... import tree
from ...core import Model, Scalar
from ...threat.ball import Linf, perturbation_bounds
from ...threat.inputs import Box, check_box, check_input
from ..base import clip_to_box
from ..goal import Goal, as_goal

HALVE_AT = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)  # of 10,000 queries; else in proportion


class Square(eqx.Module):
    r"""Square attack: maximises the score of `goal` in an `Linf` ball with `n_queries` evaluations
    of the model; it stops as soon as the goal is reached (Andriushchenko et al. 2020). It needs a
    key.

    The last two axes of an input are height and width, those before them channels; a vector is an
    image of one row. `initial_fraction` is the fraction of the image that the first squares cover.
    The paper's score is `untargeted(margin_loss)`. `box` is the valid range of inputs.

    Departs: where a square would change nothing, its sign is flipped, so that no query is wasted.

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
    box: Box | None = eqx.field(static=True, kw_only=True, default=None)

    def __check_init__(self):
        if not isinstance(self.ball, Linf):
            given = type(self.ball).__name__
            raise ValueError(
                f"Square: ball must be Linf; got {given}. HopSkipJump is a black-box attack in L2."
            )
        if self.n_queries < 2:
            raise ValueError(
                "Square: n_queries must be at least 2, for the input itself and the start; got "
                f"{self.n_queries}."
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
            raise ValueError("Square: is stochastic, a random search. Pass key=.")
        x = jnp.asarray(x)
        image = channels, height, width = _as_image(x.shape)
        key_start, key_position, key_sign = jr.split(key, 3)
        limits = perturbation_bounds(x.reshape(image), self.box)
        positions = jr.uniform(key_position, (self.n_queries, 2), x.dtype)
        signs = jr.rademacher(key_sign, (self.n_queries, channels), x.dtype)
        sizes = jnp.asarray(square_sizes(self.n_queries, height, width, self.initial_fraction))

        def project(eta):
            return self.ball.project(eta, limits).astype(x.dtype)

        def evaluate(eta):
            model_of_image = lambda picture: model(picture.reshape(x.shape))
            return self.goal.evaluate(model_of_image, x.reshape(image), eta, y)

        def query(state):
            n, best = state
            # 2 eps moves a component from either corner to the other; the projection cuts the rest
            square = 2 * self.ball.radius * _square(positions[n], sizes[n], signs[n], image)
            proposal = project(best.eta + square)
            unchanged = (proposal == best.eta).all()
            proposal = jnp.where(unchanged, project(best.eta - square), proposal)
            return n + 1, best.better_of(evaluate(proposal))

        def unfinished(state):
            n, best = state
            return (n < self.n_queries) & ~best.reached

        unperturbed = evaluate(jnp.zeros(image, x.dtype))
        stripe_signs = jr.rademacher(key_start, (channels, 1, width), x.dtype)
        stripes = evaluate(project(jnp.broadcast_to(self.ball.radius * stripe_signs, image)))
        # the search starts from the stripes even if they are worse than the input itself
        start = tree.where(unperturbed.reached, unperturbed, stripes)
        _, best = jax.lax.while_loop(unfinished, query, (jnp.asarray(2), start))
        return clip_to_box(x, unperturbed.better_of(best).eta.reshape(x.shape), self.box)


def square_sizes(
    n_queries: int, height: int, width: int, initial_fraction: float
) -> Int[np.ndarray, "t 2"]:
    """The height and width of the square of each query; wider than high where the image is not high
    enough.

    >>> square_sizes(10, 8, 8, 0.8)[:, 0].tolist()
    [7, 2, 1, 1, 1, 1, 1, 1, 1, 1]
    """
    times = np.arange(n_queries) * 10_000 // n_queries
    n_halvings = (times[:, None] > np.array(HALVE_AT)).sum(axis=1)
    area = initial_fraction * height * width / 2.0**n_halvings
    side = np.maximum(np.sqrt(area).round(), 1)
    rows = np.minimum(np.maximum(side, (area / width).round()), height)
    columns = np.minimum(np.maximum(side, (area / height).round()), width)
    return np.stack([rows, columns], axis=1).astype(np.int32)


def _square(
    position: Float[Array, " 2"],
    size: Int[Array, " 2"],
    signs: Float[Array, " c"],
    image: tuple[int, int, int],
) -> Float[Array, "c h w"]:
    """A rectangle with one sign per channel; the position, from 0 to 1, says how far down and to
    the right it lies.
    """
    rows, columns = (_interval_mask(position[i], size[i], image[1 + i]) for i in (0, 1))
    return jnp.where(rows[:, None] & columns[None, :], signs[:, None, None], 0.0)


def _interval_mask(position: Scalar, size: Int[Array, ""], length: int) -> Bool[Array, " t"]:
    """Mask of `size` consecutive indices of an axis; position 0 is its start and 1 its end."""
    first = jnp.floor(position * (length - size + 1))
    indices = jnp.arange(length)
    return (first <= indices) & (indices < first + size)


def _as_image(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Channels, height and width of an input of any shape."""
    height, width = (1, 1, *shape)[-2:]
    return math.prod(shape[:-2]), height, width

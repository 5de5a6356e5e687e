r"""The loss around one input, on a plane: along the gradient and along a random direction.

$$(\alpha, \beta) \mapsto \ell\big(f(x + \alpha u + \beta v), y\big), \qquad
u = \frac{\nabla_x \ell}{\|\nabla_x \ell\|}, \quad v \perp u, \ \|v\| = 1$$

An attack that follows gradients can be believed where the loss rises smoothly along $u$, and more
than along $v$. A loss that is flat at $x$ and rises elsewhere, or is jagged, or rises in any other
direction as fast, hides its gradients (Athalye, Carlini & Wagner 2018).
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..core import Model
from ..threat.inputs import check_input
from ..train.objectives.loss import log_loss
from .goal import margin_loss


@dataclass(frozen=True)
class LossSurface:
    r"""The loss at $x + \alpha_j u + \beta_i v$ and the margin $\max_{j \ne y} z_j - z_y$ there,
    which is positive where the class is wrong; the length of the gradient at $x$, and the radius
    that is marked.
    """

    losses: Float[np.ndarray, "s s"]
    margins: Float[np.ndarray, "s s"]
    steps: Float[np.ndarray, " s"]  # both of α and of β
    slope: float  # ‖∇ℓ(x)‖
    radius: float

    @property
    def rises(self) -> tuple[float, float]:
        """How much the loss rises at most within the radius, either way along the gradient and
        along the other.
        """
        middle = len(self.steps) // 2
        near = np.abs(self.steps) <= self.radius * (1 + 1e-6)
        along = self.losses[middle, near]
        across = self.losses[near, middle]
        return tuple(float(line.max() - self.losses[middle, middle]) for line in (along, across))  # type: ignore

    @property
    def steady(self) -> float:
        r"""The rise from one end of the radius to the other along the gradient, over all that the
        loss goes up and down on the way: 1 if it only rises, near 0 if it is jagged.
        """
        line = self.losses[len(self.steps) // 2, np.abs(self.steps) <= self.radius * (1 + 1e-6)]
        ways = np.abs(np.diff(line)).sum()
        return float((line[-1] - line[0]) / ways) if ways > 0 else 0.0

    @property
    def verdict(self) -> str:
        """Hidden if there is no gradient, or if the loss rises half as much in a random direction;
        jagged if less than 0.8 of its ways along the gradient lead up. These borders are a
        convention.
        """
        along, across = self.rises
        if not self.slope or across > along / 2:
            return "hidden"
        return "smooth" if self.steady >= 0.8 else "jagged"


def loss_surface(
    model: Model,
    x: Float[Array, "*s"],
    y: Int[Array, ""],
    *,
    radius: float,
    reach: float = 2.0,
    count: int = 41,
    key: PRNGKeyArray,
) -> LossSurface:
    r"""The cross-entropy of a classifier around one example, as far as `reach` times the radius
    each way.

    Both directions have length 1 in the Euclidean norm; inputs outside their range are looked at
    too. Where the gradient is 0 the direction $u$ is 0 as well.

    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[1.0, 0.0], [0.0, 0.0]]), jnp.zeros(2))
    >>> seen = loss_surface(
    ...     line, jnp.array([1.0, 0.0]), jnp.array(0), radius=1.0, count=5, key=jr.key(0)
    ... )
    >>> seen.margins[2].round(2).tolist(), bool(np.ptp(seen.losses, axis=0).max() < 1e-6)
    ([-3.0, -2.0, -1.0, 0.0, 1.0], True)
    """
    check_input("surface", model, x, y, None)
    if not 0 < radius < np.inf or reach < 1:
        raise ValueError(
            f"surface: radius must be positive and reach at least 1; got {radius} and {reach}."
        )
    if count < 5 or count % 2 == 0:
        raise ValueError(
            "surface: count must be odd, so that x is among the points, and at least 5; got "
            f"{count}."
        )
    steps = reach * radius * np.linspace(-1, 1, count)
    x = jnp.asarray(x)
    losses, margins, slope = _seen(model, x, jnp.asarray(y), jnp.asarray(steps, x.dtype), key)
    wide = lambda a: np.asarray(a, np.float64)
    return LossSurface(wide(losses), wide(margins), steps, float(slope), float(radius))


@eqx.filter_jit
def _seen(
    model: Any, x: Array, y: Array, steps: Array, key: PRNGKeyArray
) -> tuple[Array, Array, Array]:
    g = jax.grad(lambda x: log_loss(model(x), y))(x)
    slope = jnp.sqrt(jnp.square(g).sum())
    u = g / jnp.where(slope > 0, slope, 1.0)
    v = jr.normal(key, x.shape, x.dtype)
    v = v - (u * v).sum() * u
    length = jnp.sqrt(jnp.square(v).sum())
    v = v / jnp.where(length > 0, length, 1.0)  # 0 where an input is one number

    def at(alpha, beta):
        z = model(x + alpha * u + beta * v)
        return log_loss(z, y), margin_loss(z, y)

    row = lambda beta: jax.vmap(lambda alpha: at(alpha, beta))(steps)
    losses, margins = jax.lax.map(row, steps)
    return losses, margins, slope

r"""The loss surface around one input: along its gradient and along a random direction.

$$(\alpha, \beta) \mapsto \ell\big(f(x + \alpha u + \beta v), y\big), \qquad
u = \frac{\nabla_x \ell}{\|\nabla_x \ell\|}, \quad v \perp u, \ \|v\| = 1$$

A gradient-based attack can be trusted where the loss increases smoothly along $u$, and more than
along $v$. A loss that is flat at $x$ and increases elsewhere, or is jagged, or increases as fast in
a random direction, masks its gradients (Athalye, Carlini & Wagner 2018).
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

MIN_SMOOTHNESS = 0.8  # below this value of `smoothness` the surface is called jagged


@dataclass(frozen=True)
class LossSurface:
    r"""The loss and the margin $\max_{j \ne y} z_j - z_y$, positive where the class is wrong, at
    $x + \alpha_j u + \beta_i v$.
    """

    losses: Float[np.ndarray, "s s"]
    margins: Float[np.ndarray, "s s"]
    offsets: Float[np.ndarray, " s"]  # the values of both α and β
    gradient_norm: float  # ‖∇ℓ(x)‖
    radius: float

    @property
    def increases(self) -> tuple[float, float]:
        """The largest increase of the loss within the radius along the gradient direction (either
        way), and along the random direction.
        """
        middle = len(self.offsets) // 2
        within = np.abs(self.offsets) <= self.radius * (1 + 1e-6)
        along_gradient = self.losses[middle, within]
        along_random = self.losses[within, middle]
        at_x = self.losses[middle, middle]
        return float(along_gradient.max() - at_x), float(along_random.max() - at_x)

    @property
    def smoothness(self) -> float:
        r"""The net increase of the loss along the gradient, from one end of the radius to the
        other, divided by its total variation: 1 if it only increases, near 0 if it is jagged.
        """
        within = np.abs(self.offsets) <= self.radius * (1 + 1e-6)
        line = self.losses[len(self.offsets) // 2, within]
        total_variation = np.abs(np.diff(line)).sum()
        return float((line[-1] - line[0]) / total_variation) if total_variation > 0 else 0.0

    @property
    def verdict(self) -> str:
        """ "hidden" if the gradient is 0, or the loss increases more than half as much along the
        random direction; "jagged" if `smoothness` is below 0.8; else "smooth". The thresholds are a
        convention.
        """
        along_gradient, along_random = self.increases
        if not self.gradient_norm or along_random > along_gradient / 2:
            return "hidden"
        return "smooth" if self.smoothness >= MIN_SMOOTHNESS else "jagged"


def input_loss_surface(
    model: Model,
    x: Float[Array, "*s"],
    y: Int[Array, ""],
    *,
    radius: float,
    extent: float = 2.0,
    n_points: int = 41,
    key: PRNGKeyArray,
) -> LossSurface:
    r"""Cross-entropy of a classifier on a grid of `n_points` by `n_points` around one example, out
    to `extent` times the radius in both directions.

    Both directions have Euclidean length 1; inputs outside the valid range are evaluated too. Where
    the gradient is 0 the direction $u$ is 0 as well.

    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[1.0, 0.0], [0.0, 0.0]]), jnp.zeros(2))
    >>> result = input_loss_surface(
    ...     line, jnp.array([1.0, 0.0]), jnp.array(0), radius=1.0, n_points=5, key=jr.key(0)
    ... )
    >>> result.margins[2].round(2).tolist(), bool(np.ptp(result.losses, axis=0).max() < 1e-6)
    ([-3.0, -2.0, -1.0, 0.0, 1.0], True)
    """
    check_input("input_loss_surface", model, x, y, None)
    if not 0 < radius < np.inf:
        raise ValueError(f"input_loss_surface: radius must be positive and finite; got {radius}.")
    if extent < 1:
        raise ValueError(f"input_loss_surface: extent must be at least 1 radius; got {extent}.")
    if n_points < 5 or n_points % 2 == 0:
        raise ValueError(
            "input_loss_surface: n_points must be odd, so that x is among the points, and at least "
            f"5; got {n_points}."
        )
    offsets = extent * radius * np.linspace(-1, 1, n_points)
    x = jnp.asarray(x)
    losses, margins, gradient_norm = _evaluate_plane(
        model, x, jnp.asarray(y), jnp.asarray(offsets, x.dtype), key
    )
    return LossSurface(
        np.asarray(losses, np.float64),
        np.asarray(margins, np.float64),
        offsets,
        float(gradient_norm),
        float(radius),
    )


@eqx.filter_jit
def _evaluate_plane(
    model: Any, x: Array, y: Array, offsets: Array, key: PRNGKeyArray
) -> tuple[Array, Array, Array]:
    gradient = jax.grad(lambda x: log_loss(model(x), y))(x)
    gradient_norm = jnp.sqrt(jnp.square(gradient).sum())
    u = gradient / jnp.where(gradient_norm > 0, gradient_norm, 1.0)
    v = jr.normal(key, x.shape, x.dtype)
    v = v - (u * v).sum() * u
    length = jnp.sqrt(jnp.square(v).sum())
    v = v / jnp.where(length > 0, length, 1.0)  # 0 where an input has a single component

    def at(alpha, beta):
        z = model(x + alpha * u + beta * v)
        return log_loss(z, y), margin_loss(z, y)

    row = lambda beta: jax.vmap(lambda alpha: at(alpha, beta))(offsets)
    losses, margins = jax.lax.map(row, offsets)
    return losses, margins, gradient_norm

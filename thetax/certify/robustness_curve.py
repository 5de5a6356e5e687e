r"""Bounds on robust accuracy at every radius: accuracy under attack from above, certified accuracy
from below.

An example whose nearest adversarial example found is at distance $d$ withstands the attack within
radii $r < d$; one with certified radius $c$ withstands every attack within $r \le c$. Over all
examples

$$\text{certified}(r) = \frac{\#\{c \ge r\}}{n} \;\le\; \text{robust}(r) \;\le\;
\text{empirical}(r) = \frac{\#\{d > r\}}{n},$$

where misclassified examples count for neither. The true robust accuracy lies between the two
curves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..check import expect_count
from ..core import BATCH_AXIS, Model
from ..progress import count_progress
from ..threat.ball import L0, Ball
from ..threat.inputs import Box, check_attack_data, check_input
from .bounds.linear_backward import BoundMethod
from .certified import certified_margins

Radii = Float[np.ndarray, " n"]


@dataclass(frozen=True)
class RobustnessCurves:
    """Boundary distances (`boundary_distance`) and certified radii of each example, by the name of
    the norm. `radii` lacks the norms for which the model could not be bounded.
    """

    distances: Mapping[str, Radii]
    radii: Mapping[str, Radii]
    method: str  # how the radii were certified, or why not

    def empirical_accuracy(self, norm: str, r: Any) -> np.ndarray:
        """Accuracy under the attack at radius r."""
        return np.asarray((self.distances[norm] > np.asarray(r)[..., None]).mean(axis=-1))

    def certified_accuracy(self, norm: str, r: Any) -> np.ndarray:
        """Certified accuracy at radius r, whatever the attack."""
        right = self.distances[norm] > 0
        return np.asarray((right & (self.radii[norm] >= np.asarray(r)[..., None])).mean(axis=-1))


def certified_radii(
    model: Model,
    data: tuple[Any, Any],
    norm: type[Ball],
    *,
    max_radius: float | Radii,
    box: Box | None = None,
    bounds: BoundMethod = "linear",
    binary_search_steps: int = 8,
    batch_size: int = 32,
) -> Radii:
    r"""Certified radius of each example of `(xs, ys)`: a radius $c$ within which
    `certified_margins` are above 0.

    It is found by `binary_search_steps` of binary search between 0 and `max_radius`, a number or
    one for each example. It is 0 where the example is misclassified, or nothing could be certified.

    >>> from thetax.threat import Linf
    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[0.0], [1.0]]), jnp.zeros(2))
    >>> data = jnp.array([[-2.0], [-0.5], [1.0]]), jnp.array([0, 0, 0])
    >>> certified_radii(line, data, Linf, max_radius=4.0, binary_search_steps=12).round(2).tolist()
    [2.0, 0.5, 0.0]
    """
    if norm is L0:
        raise ValueError(
            "certified_radii: an L0 radius is a count and cannot be halved. Use L1, L2 or Linf."
        )
    expect_count("certified_radii", binary_search_steps=binary_search_steps, batch_size=batch_size)
    xs, ys = check_attack_data("certified_radii", None, model, data)
    if box is not None:
        check_input("certified_radii", model, xs, jnp.zeros(0), box)
    n = len(xs)
    size = min(batch_size, n)
    max_radius = np.broadcast_to(np.asarray(max_radius, np.float64), n)
    if not (np.isfinite(max_radius).all() and (max_radius >= 0).all()):
        raise ValueError(
            "certified_radii: max_radius, the largest radius to try, must be finite and >= 0; got "
            f"{max_radius.min():.4g} to {max_radius.max():.4g}."
        )
    upper = jnp.asarray(max_radius, xs.dtype)
    blocks = []
    with count_progress("certified_radii: examples", n) as update:
        for first in range(0, n, size):
            # the last block is padded with its last example to the size of the others
            rows = np.minimum(np.arange(first, first + size), n - 1)
            block = _binary_search(
                model, xs[rows], ys[rows], upper[rows], norm, box, bounds, binary_search_steps
            )
            blocks.append(np.asarray(block, np.float64)[: n - first])
            update(min(first + size, n))
    return np.concatenate(blocks)


@eqx.filter_jit
def _binary_search(model, xs, ys, upper, norm, box, bounds, binary_search_steps):
    def is_certified(x, y, radius):
        margins = certified_margins(model, x, y, norm(radius), box=box, bounds=bounds)
        return jnp.where(jnp.arange(len(margins)) == y, jnp.inf, margins).min() > 0

    def halve(state, _):
        low, high = state  # certified at low
        middle = (low + high) / 2
        certified = jax.vmap(is_certified, axis_name=BATCH_AXIS)(xs, ys, middle)
        return (jnp.where(certified, middle, low), jnp.where(certified, high, middle)), None

    start = jnp.zeros_like(upper), upper
    (low, _), _ = jax.lax.scan(halve, start, None, length=binary_search_steps)
    return low

r"""Robust accuracy at every radius: what attacks leave, and what is proven to be left.

An example whose nearest wrong input found is at distance $d$ stands against the attack within radii
$r < d$; one certified up to $c$ stands against every attack within $r \le c$. Over all examples

$$\text{proven}(r) = \frac{\#\{c \ge r\}}{n} \;\le\; \text{accuracy}(r) \;\le\;
\text{empirical}(r) = \frac{\#\{d > r\}}{n},$$

where what is wrong as it is counts to neither. The truth lies between the two curves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..core import BATCH, Model
from ..progress import counted
from ..threat.ball import L0, Ball
from ..threat.inputs import Range, check_attacked, check_input
from .bounds.linear_backward import BoundMethod
from .certified import certified_margins

Radii = Float[np.ndarray, " n"]


@dataclass(frozen=True)
class RobustnessCurves:
    """Of each example, by the name of the norm: the distance to the nearest wrong input found
    (`Boundary`), and, where the model could be bounded, the radius within which there is proven to
    be none.
    """

    distances: Mapping[str, Radii]
    radii: Mapping[str, Radii]
    bounds: str  # how these were proven, or why not

    def empirical(self, norm: str, r: Any) -> np.ndarray:
        """The share of the examples that is right whatever the attack did within a radius."""
        return np.asarray((self.distances[norm] > np.asarray(r)[..., None]).mean(axis=-1))

    def proven(self, norm: str, r: Any) -> np.ndarray:
        """The share of the examples that is right whatever any attack does within a radius."""
        right = self.distances[norm] > 0
        return np.asarray((right & (self.radii[norm] >= np.asarray(r)[..., None])).mean(axis=-1))


def certified_radii(
    model: Model,
    data: tuple[Any, Any],
    norm: type[Ball],
    *,
    most: float | Radii,
    box: Range | None = None,
    bounds: BoundMethod = "linear",
    rounds: int = 8,
    batch: int = 32,
) -> Radii:
    r"""Of each example of `(xs, ys)` a radius $c$ within which it is proven right:
    `certified_margins` are above 0.

    It is looked for by bisection between 0 and `most`, a number or one for each example; each of
    the `rounds` halves what is left. It is 0 where the example is wrong as it is, or where nothing
    could be proven.

    >>> from thetax.threat import Linf
    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[0.0], [1.0]]), jnp.zeros(2))
    >>> data = jnp.array([[-2.0], [-0.5], [1.0]]), jnp.array([0, 0, 0])
    >>> certified_radii(line, data, Linf, most=4.0, rounds=12).round(2).tolist()
    [2.0, 0.5, 0.0]
    """
    if norm is L0:
        raise ValueError("certified_radii: L0 counts and cannot be halved; take L1, L2 or Linf.")
    if rounds < 1 or batch < 1:
        raise ValueError(
            f"certified_radii: rounds and batch must be at least 1; got {rounds} and {batch}."
        )
    xs, ys = check_attacked("certified_radii", None, model, data)
    if box is not None:
        check_input("certified_radii", model, xs, jnp.zeros(0), box)
    n = len(xs)
    size = min(batch, len(xs))
    most = np.broadcast_to(np.asarray(most, np.float64), n)
    if not (np.isfinite(most).all() and (most >= 0).all()):
        raise ValueError(
            "certified_radii: most is the largest radius to try, so finite and not negative."
        )
    tops = jnp.asarray(most, xs.dtype)
    blocks = []
    with counted("certified radii: examples", n) as update:
        for first in range(0, n, size):
            rows = np.minimum(
                np.arange(first, first + size), n - 1
            )  # the last block is as long as the others
            block = _bisected(model, xs[rows], ys[rows], tops[rows], norm, box, bounds, rounds)
            blocks.append(np.asarray(block, np.float64)[: n - first])
            update(min(first + size, n))
    return np.concatenate(blocks)


@eqx.filter_jit
def _bisected(model, xs, ys, tops, norm, box, bounds, rounds):
    def proven(x, y, radius):
        margins = certified_margins(model, x, y, norm(radius), box=box, bounds=bounds)
        return jnp.where(jnp.arange(len(margins)) == y, jnp.inf, margins).min() > 0

    def halve(state, _):
        low, high = state
        middle = (low + high) / 2
        holds = jax.vmap(proven, axis_name=BATCH)(xs, ys, middle)
        return (jnp.where(holds, middle, low), jnp.where(holds, high, middle)), None

    (low, _), _ = jax.lax.scan(halve, (jnp.zeros_like(tops), tops), None, length=rounds)
    return low

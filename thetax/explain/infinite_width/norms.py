r"""The rules for norms over the features (§8.5): averages over infinitely many are numbers, by
which is divided.

$$h \mapsto \frac{h - \mu}{\sqrt{v + \varepsilon}}, \quad v = k - \mu^2, \qquad \text{so that}
\qquad
k \mapsto \frac{k - \mu \mu'}{\sqrt{(v + \varepsilon)(v' + \varepsilon)}}$$

and $\Theta$ is divided likewise, for no single feature moves $\mu$ or $v$. The scale $\gamma$ and
the offset begin as 1 and 0 and are trained as all is: they add $h(x)h(y)$ and 1 to $\Theta$.
`RMSNorm` leaves out $\mu$ and the offset.
"""

from dataclasses import replace
from operator import mul
from typing import Any

import jax.numpy as jnp

from ...layers import LayerNorm, RMSNorm
from .covariance_features import Features, Given
from .rules import At, NoLimit, Seen, known, limit_of


@limit_of.register
def _(layer: LayerNorm, seen: Seen, at: At) -> Features:
    seen = _without_places(layer, seen, at)
    if seen.means is not None:
        (x, y), seen = seen.means, seen.settled
        k = seen.k - mul(*seen.across(x, y))
        seen = replace(seen, k=k, left=seen.left - x**2, right=seen.right - y**2, means=None)
    seen = _scaled(seen, layer.epsilon)
    return replace(seen, theta=seen.theta + 1, stretch=seen.stretch + 1)


@limit_of.register
def _(layer: RMSNorm, seen: Seen, at: At) -> Features:
    seen = _scaled(_without_places(layer, seen, at), layer.epsilon)
    return replace(seen, stretch=seen.stretch + 1)


def _without_places(layer: Any, seen: Seen, at: At) -> Features:
    found = known(seen.map(jnp.ravel) if isinstance(seen, Given) else seen)
    if found.space:
        raise NoLimit(
            type(layer).__name__,
            at.path,
            "comes after places that were laid flat; put a Linear between.",
        )
    return found


def _scaled(seen: Features, epsilon: float) -> Features:
    vx = seen.left + epsilon
    vy = seen.right + epsilon
    x, y = seen.across(vx, vy)
    both = jnp.sqrt(x * y)
    means = (
        None if seen.means is None else (seen.means[0] / jnp.sqrt(vx), seen.means[1] / jnp.sqrt(vy))
    )
    return replace(
        seen,
        k=seen.k / both,
        theta=seen.theta / both,
        left=seen.left / vx,
        right=seen.right / vy,
        means=means,
    )

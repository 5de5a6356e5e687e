r"""Rules for norms over the features (§8.5): mean and variance of infinitely many features are
constants.

$$h \mapsto \frac{h - \mu}{\sqrt{v + \varepsilon}}, \quad v = k - \mu^2, \qquad \text{so that}
\qquad
k \mapsto \frac{k - \mu \mu'}{\sqrt{(v + \varepsilon)(v' + \varepsilon)}}$$

and $\Theta$ is divided in the same way, as no single feature changes $\mu$ or $v$. The scale
$\gamma$ and the bias are initialised to 1 and 0 and trained: they add $h(x)h(y)$ and 1 to $\Theta$.
`RMSNorm` has no $\mu$ and no bias.
"""

from dataclasses import replace
from operator import mul
from typing import Any

import jax.numpy as jnp

from ...layers import LayerNorm, RMSNorm
from .covariance_features import Features, Inputs
from .rules import Location, Moments, NoInfiniteWidthLimit, as_features, propagate_moments


@propagate_moments.register
def _(layer: LayerNorm, moments: Moments, location: Location) -> Features:
    features = _without_positions(layer, moments, location)
    if features.means is not None:
        x, y = features.means
        features = features.with_averaged_ntk
        features = replace(
            features,
            k=features.k - mul(*features.broadcast_pair(x, y)),
            k_xx=features.k_xx - x**2,
            k_yy=features.k_yy - y**2,
            means=None,
        )
    features = _divide_by_std(features, layer.eps)
    return replace(features, theta=features.theta + 1, n_scales=features.n_scales + 1)


@propagate_moments.register
def _(layer: RMSNorm, moments: Moments, location: Location) -> Features:
    features = _divide_by_std(_without_positions(layer, moments, location), layer.eps)
    return replace(features, n_scales=features.n_scales + 1)


def _without_positions(layer: Any, moments: Moments, location: Location) -> Features:
    if isinstance(moments, Inputs):
        moments = moments.map(jnp.ravel)
    features = as_features(moments)
    if features.spatial_axes:
        raise NoInfiniteWidthLimit(
            type(layer).__name__,
            location.path,
            "follows a flattened feature map; put a Linear between them.",
        )
    return features


def _divide_by_std(features: Features, eps: float) -> Features:
    var_x = features.k_xx + eps
    var_y = features.k_yy + eps
    x, y = features.broadcast_pair(var_x, var_y)
    std_product = jnp.sqrt(x * y)
    means = features.means
    if means is not None:
        means = means[0] / jnp.sqrt(var_x), means[1] / jnp.sqrt(var_y)
    return replace(
        features,
        k=features.k / std_product,
        theta=features.theta / std_product,
        k_xx=features.k_xx / var_x,
        k_yy=features.k_yy / var_y,
        means=means,
    )

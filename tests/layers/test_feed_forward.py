"""The feed-forward layers against their formulas."""

import jax
import jax.random as jr
import numpy as np
import pytest
from contracts import normal
from scipy.special import erf, expit

from thetax.layers import FeedForward, GatedFeedForward, gelu


@pytest.mark.usefixtures("x64", "strict")
def test_feed_forward():
    x = normal(0, 3, 4)
    for activation, phi in (
        (None, lambda u: np.maximum(u, 0)),
        (gelu, lambda u: u * (1 + erf(u / np.sqrt(2))) / 2),
    ):
        layer = FeedForward.init(
            4, 5, **({} if activation is None else {"activation": activation}), key=jr.key(0)
        )
        up, down = layer.up, layer.down
        hidden = phi(np.asarray(x) @ np.asarray(up.W).T + np.asarray(up.b))
        np.testing.assert_allclose(
            layer(x), hidden @ np.asarray(down.W).T + np.asarray(down.b), atol=1e-12
        )


@pytest.mark.usefixtures("x64", "strict")
def test_gated():
    layer = GatedFeedForward.init(4, 5, key=jr.key(0))
    x = np.asarray(normal(0, 3, 4))
    gate, up, down = (np.asarray(part.W) for part in (layer.gate, layer.up, layer.down))
    assert layer.gate.b is None
    assert layer.up.b is None
    assert layer.down.b is None
    u = x @ gate.T
    np.testing.assert_allclose(
        layer(normal(0, 3, 4)), (u * expit(u) * (x @ up.T)) @ down.T, atol=1e-12
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
def test_tokens_are_independent(kind):
    layer = kind.init(4, 5, key=jr.key(0))
    x = normal(0, 3, 4)
    slope = jax.jacobian(layer)(x)
    for i in range(3):
        assert slope[i, :, i].any()
        assert not np.delete(slope[i], i, axis=1).any()

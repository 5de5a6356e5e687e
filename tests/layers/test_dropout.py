"""Dropout (§8.4). Statistical tests use fixed keys and 4 standard errors: a false alarm in
16,000.
"""

import itertools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import normal

from thetax.core import predict
from thetax.layers import Chain, DropConnect, Dropout, Linear
from thetax.layers.dropout import bernoulli_mask

pytestmark = pytest.mark.usefixtures("strict")
N = 40_000


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_frequency_and_mean(p):
    """Units are kept with probability 1 − p; the mean of the output is the input; kept units are x
    / (1 − p).
    """
    y = np.asarray(Dropout(p)(jnp.ones(N), key=jr.key(0)), np.float64)
    kept = (y > 0).mean()
    assert abs(kept - (1 - p)) < 4 * np.sqrt(p * (1 - p) / N)
    assert abs(y.mean() - 1) < 4 * np.sqrt(p / (1 - p) / N)
    assert np.allclose(y[y > 0], 1 / (1 - p), rtol=1e-4)


def test_units_are_independent():
    """Neighbours, rows and two keys agree as often as independent variables."""
    a, b = (np.asarray(Dropout(0.5)(jnp.ones((200, 200)), key=jr.key(i))) > 0 for i in (0, 1))
    for x, y in ((a, b), (a[1:], a[:-1]), (a[:, 1:], a[:, :-1])):
        assert abs((x == y).mean() - 0.5) < 4 * 0.5 / np.sqrt(x.size)


@pytest.mark.slow
def test_gradient_has_the_same_mask():
    """∂y/∂x is y/x: zero for dropped units, 1/(1 − p) for the others."""
    x = jnp.abs(normal(0, 100)) + 1
    drop = Dropout(0.3)
    y = drop(x, key=jr.key(2))
    grad = jax.grad(lambda x: drop(x, key=jr.key(2)).sum())(x)
    assert jnp.allclose(grad, y / x, rtol=1e-5)
    assert 0 < int((grad == 0).sum()) < 100


def test_identity_without_key_or_with_p_zero():
    x = normal(1, 5)
    assert Dropout(0.5)(x) is x
    assert Dropout(0.0)(x, key=jr.key(0)) is x
    assert jnp.allclose(Dropout(1e-6)(x, key=jr.key(0)), x, rtol=2e-6)


@pytest.mark.parametrize("p", [1.0, -0.1, 1.5, float("nan")])
def test_invalid_p(p):
    with pytest.raises(
        ValueError, match=r"Dropout: p is the probability of dropping and must be in \[0, 1\)"
    ):
        Dropout(p)
    with pytest.raises(ValueError, match=r"DropConnect: p is .* must be in \[0, 1\)"):
        DropConnect(Linear(jnp.ones((1, 1))), p)


def test_half_precision_is_kept():
    assert Dropout(0.5)(jnp.ones(4, jnp.bfloat16), key=jr.key(0)).dtype == jnp.bfloat16


@pytest.mark.slow
def test_mean_of_a_linear_readout():
    """8.4-dropout-scaling: over all 2⁸ masks E[wᵀ(b ⊙ x)/π] = wᵀx, and samples agree within
    4 s.e.
    """
    w = np.asarray(normal(2, 8), np.float64)
    x = np.asarray(normal(3, 8), np.float64)
    keep = 0.6
    masks = np.array(list(itertools.product([0, 1], repeat=8)))
    weights = np.prod(np.where(masks == 1, keep, 1 - keep), axis=1)
    assert np.isclose(weights.sum(), 1)
    assert np.isclose(weights @ (masks * x / keep @ w), w @ x)
    net = Chain(Dropout(1 - keep), Linear(jnp.asarray(w[None], jnp.float32), jnp.zeros(1)))
    keys = jr.split(jr.key(0), 5000)
    drawn = np.asarray(
        jax.vmap(lambda key: net(jnp.asarray(x, jnp.float32), key=key))(keys), np.float64
    )
    assert abs(drawn.mean() - w @ x) < 4 * drawn.std() / np.sqrt(5000)


def test_masks_of_neighbouring_keys_are_uncorrelated():
    """Keys 0, 1, 2, ... as raw words, the worst case: correlations of places and of keys are those
    of noise.

    Normalised correlations of independent signs are standard normal: their spread is 1 to 3 % (over
    30,000 pairs) and the largest of m stays below sqrt(2 log m) + 1, exceeded once in some hundred
    tries of fair coins.
    """
    keys = jax.vmap(lambda i: jr.wrap_key_data(jnp.stack([jnp.uint32(0), i])))(
        jnp.arange(1000, dtype=jnp.uint32)
    )
    signs = (
        np.asarray(jax.vmap(lambda key: bernoulli_mask(key, (256,), probability=0.5))(keys)) * 2.0
        - 1
    )
    for table in (signs, signs.T):
        pairs = np.triu_indices(table.shape[1], 1)
        found = (table.T @ table / np.sqrt(len(table)))[pairs]
        assert abs(found.std() - 1) < 0.03
        assert np.abs(found).max() < np.sqrt(2 * np.log(len(found))) + 1


def test_drop_connect_drops_weights():
    """Weights and biases are kept with probability 1 − p and divided by it; each leaf has its own
    mask.
    """
    layer = DropConnect(Linear(jnp.ones((200, 200)), jnp.ones(200)), 0.3)
    left = layer.drop_weights(jr.key(0))
    kept = np.concatenate([np.ravel(left.W), left.b]).astype(np.float64)
    assert np.allclose(kept[kept > 0], 1 / 0.7, rtol=1e-5)
    assert abs((kept > 0).mean() - 0.7) < 4 * np.sqrt(0.3 * 0.7 / kept.size)
    assert not np.array_equal(left.W[0] > 0, left.b > 0)


@pytest.mark.slow
def test_drop_connect_is_the_layer_without_a_key_and_on_average():
    """The expectation for an affine layer is the layer, within 4 s.e.; every example has its own
    mask.
    """
    inner = Linear.init(3, 2, key=jr.key(0))
    x = normal(1, 3)
    layer = DropConnect(inner, 0.4)
    assert jnp.array_equal(layer(x), inner(x))
    drawn = np.asarray(
        jax.vmap(lambda key: layer(x, key=key))(jr.split(jr.key(1), 8000)), np.float64
    )
    assert np.all(
        np.abs(drawn.mean(axis=0) - np.asarray(inner(x))) < 4 * drawn.std(axis=0) / np.sqrt(8000)
    )
    same = predict(layer, jnp.stack([x] * 50), key=jr.key(2))
    assert len({tuple(row) for row in np.asarray(same).tolist()}) > 5


@pytest.mark.slow
def test_drop_connect_passes_on_the_key():
    """A random inner layer gets a key different from that of the weights."""
    layer = DropConnect(Chain(Linear(jnp.eye(50)), Dropout(0.5)), 0.0)
    assert 5 < int((layer(jnp.ones(50), key=jr.key(0)) == 0).sum()) < 45
    with pytest.raises(ValueError, match=r"must be a layer, .*; got a float\. .* Dropout\(p\)"):
        DropConnect(3.0, 0.5)

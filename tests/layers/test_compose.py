"""Chains, residual and dense connections, ensembles (§2.2, §2.4)."""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import MODELS, generic, normal
from scipy import special

from thetax import layers
from thetax.layers import (
    Chain,
    Concat,
    Dropout,
    Ensemble,
    Linear,
    Pointwise,
    Residual,
    centred,
    mean_output,
    mean_probabilities,
)
from thetax.models import MLP

pytestmark = pytest.mark.usefixtures("strict")
ACTIVATIONS = [layers.identity, layers.sigmoid, layers.tanh, layers.relu, layers.softplus, jnp.exp]


def zero_layer(n, m, activation):
    return Chain(Linear(jnp.zeros((m, n)), jnp.zeros(m)), activation)


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda f: f.__name__)
def test_residual_with_zero_weights_is_the_identity(activation):
    """Exactly, also for 100 layers (2.4-residual-identity); without `centred` it fails if
    φ(0) ≠ 0.
    """
    x = normal(0, 5)
    layer = Residual(zero_layer(5, 5, centred(activation)))
    assert jnp.array_equal(Chain(*[layer] * 100)(x), x)
    plain = Residual(zero_layer(5, 5, activation))(x)
    assert bool(jnp.array_equal(plain, x)) == (float(activation(jnp.zeros(()))) == 0)


def test_residual_is_the_sum():
    """x + φ(Wx + b) − φ(0), and Vx + … if the widths differ; V = I gives the first."""
    W = normal(1, 3, 3)
    b = normal(2, 3)
    x = normal(3, 3)
    inner = Chain(Linear(W, b), centred(layers.sigmoid))
    expected = x + special.expit(np.asarray(W @ x + b)) - 0.5
    assert jnp.allclose(Residual(inner)(x), expected, atol=1e-6)
    assert jnp.allclose(Residual(inner, Linear(jnp.eye(3)))(x), expected, atol=1e-6)
    V = normal(4, 2, 3)
    assert jnp.allclose(
        Residual(zero_layer(3, 2, centred(layers.sigmoid)), Linear(V))(x), V @ x, atol=1e-6
    )


def test_residual_projects_only_if_widths_differ():
    """init draws V of variance 1/n for n ≠ m and none for n = m."""
    inner = partial(Linear.init, key=jr.key(0))
    assert Residual.init(inner(3, 3), 3, 3, key=jr.key(1)).skip is None
    V = Residual.init(inner(300, 400), 300, 400, key=jr.key(1)).skip.W
    assert V.shape == (400, 300)
    assert abs(V.var() * 300 - 1) < 4 * np.sqrt(2 / V.size)


@pytest.mark.parametrize("m", [1, 4])
@pytest.mark.usefixtures("unchecked")
def test_residual_with_unequal_widths_raises(m):
    """Also for one output, which would broadcast silently."""
    with pytest.raises(ValueError, match="projection"):
        Residual(zero_layer(3, m, layers.tanh))(jnp.ones(3))


def test_concat_appends():
    """[x, F(x)], so the width is the sum."""
    inner = Linear(normal(0, 2, 3), normal(1, 2))
    x = normal(2, 3)
    assert jnp.array_equal(Concat(inner)(x), jnp.concatenate([x, inner(x)]))


def test_dense_network_concatenates_all_outputs():
    """MLP with Concat: layer ℓ has input width n + Σ_{j<ℓ} m_j, and equals the explicit
    concatenations.
    """
    net = MLP.init(3, 4, 5, 2, activation=layers.tanh, connect=Concat, key=jr.key(0))
    x = normal(1, 3)
    first, second, last = net.body.layers
    widths = [first.inner.layers[0].W.shape, second.inner.layers[0].W.shape, last.W.shape]
    assert widths == [(4, 3), (5, 3 + 4), (2, 3 + 4 + 5)]
    h1 = jnp.concatenate([x, jnp.tanh(first.inner.layers[0](x))])
    h2 = jnp.concatenate([h1, jnp.tanh(second.inner.layers[0](h1))])
    assert jnp.allclose(net(x), last(h2), atol=1e-6)


def test_dense_network_without_its_skips_is_plain():
    """Zero columns for everything but the newest activation give the plain network
    (2.4-densenet).
    """
    plain = MLP.init(3, 4, 2, activation=layers.tanh, key=jr.key(0))
    x = normal(1, 3)
    first, _, last = plain.body.layers
    wide = Linear(jnp.concatenate([jnp.zeros((2, 3)), last.W], axis=1), last.b)
    assert jnp.allclose(Chain(Concat(Chain(first, jnp.tanh)), wide)(x), plain(x), atol=1e-6)


def test_chain_is_composition():
    """Functions are layers; prefixes give the activations; the empty chain is the identity."""
    a = Linear(normal(0, 4, 3), normal(1, 4))
    b = Linear(normal(2, 2, 4), normal(3, 2))
    x = normal(4, 3)
    assert jnp.array_equal(Chain(a, jnp.tanh, b)(x), b(jnp.tanh(a(x))))
    assert jnp.array_equal(Chain(Chain(a, jnp.tanh), b)(x), Chain(a, Chain(jnp.tanh, b))(x))
    assert jnp.array_equal(Chain()(x), x)
    assert isinstance(Chain(jnp.tanh).layers[0], Pointwise)


def test_chain_splits_the_key():
    """Two equal dropouts in a row have different masks: 1000 units survive both with probability ¼,
    not ½.
    """
    kept = float((Chain(Dropout(0.5), Dropout(0.5))(jnp.ones(1000), key=jr.key(0)) > 0).mean())
    assert abs(kept - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 1000)


@pytest.mark.parametrize("wrap", [Residual, Concat], ids=["Residual", "Concat"])
def test_keys_reach_the_inner_part(wrap):
    layer = wrap(Dropout(0.5))
    x = jnp.ones(64)
    assert jnp.array_equal(layer(x)[-64:], 2 * x if wrap is Residual else x)
    assert not jnp.array_equal(layer(x, key=jr.key(0)), layer(x, key=jr.key(1)))


def test_ensemble_pools_its_members():
    """The mean output and the mean probabilities of members called separately."""
    net = Ensemble.init(partial(Linear.init, 3, 4), 5, key=jr.key(0))
    members = [jax.tree.map(lambda leaf, i=i: leaf[i], net.members) for i in range(5)]
    x = normal(1, 3)
    alone = jnp.stack([member(x) for member in members])
    assert len({member.W[0, 0].item() for member in members}) == 5
    assert jnp.allclose(net(x), alone.mean(axis=0), atol=1e-6)
    expected = np.log(special.softmax(np.asarray(alone), axis=1).mean(axis=0))
    assert jnp.allclose(Ensemble(net.members, mean_probabilities)(x), expected, atol=1e-6)
    assert jnp.array_equal(mean_output(alone), alone.mean(axis=0))


def test_ensemble_splits_the_key():
    """With a key every member has its own dropout mask."""
    make = lambda key: Chain(Linear(jnp.ones((1, 1)), jnp.zeros(1)), Dropout(0.5))
    net = Ensemble.init(make, 3, pool=lambda outputs: outputs, key=jr.key(0))
    drawn = jnp.stack([net(jnp.ones(1), key=jr.key(i)).ravel() for i in range(8)])
    assert not jnp.array_equal(drawn[:, 0], drawn[:, 1])


def test_mean_probabilities_is_stable():
    """Logits of 1e4 give log-probabilities, not NaN."""
    assert jnp.allclose(
        mean_probabilities(jnp.array([[1e4, 0.0], [1e4, 0.0]])), jnp.array([0.0, -1e4])
    )


@pytest.mark.slow
def test_contract_models_have_no_zero_weights():
    """Zero weights would make the contract tests weaker."""
    leaves = [leaf for row in MODELS for leaf in jax.tree.leaves(generic(row))]
    assert all(float(jnp.abs(leaf).min()) > 0.04 for leaf in leaves)

"""Signals through depth against explicit Jacobian products, for every way of putting a network
together.
"""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import tree
from thetax.core import predict
from thetax.explain import (
    activation_statistics,
    equivariance,
    feature_maps,
    gradient_norms,
    module_names,
    weight_statistics,
)
from thetax.explain.modules import parameter_owners
from thetax.explain.signal.activation_statistics import layer_output_shapes
from thetax.layers import (
    BatchNorm,
    Chain,
    Concat,
    Ensemble,
    LayerNorm,
    Linear,
    Residual,
    WeightNorm,
)
from thetax.models import MLP, Mixer
from thetax.train import cross_entropy, mixed_precision, squared_error, weight_decay

xs = jr.normal(jr.key(1), (12, 3))
ys = jr.normal(jr.key(2), (12, 2))
deep = partial(MLP.init, 3, 5, 5, 2, key=jr.key(0))
NETWORKS = {
    "linear": partial(Linear.init, 3, 2, key=jr.key(0)),
    "plain": deep,
    "dropout": partial(deep, dropout=0.5),
    "residual": partial(deep, connect=Residual, normalise=BatchNorm.init),
    "dense": partial(deep, connect=Concat, normalise=LayerNorm.init),
    "weight norm": partial(deep, affine=WeightNorm.init),
    "nested": lambda: Chain(
        Residual(Residual(Chain(Linear.init(3, 3, key=jr.key(0)), jnp.tanh))), deep()
    ),
    "ensemble": lambda: Ensemble.init(deep_member, 3, key=jr.key(0)),
}


def deep_member(*, key):
    return MLP.init(3, 4, 2, key=key)


def test_gradients_are_jacobian_products(x64):
    """∂l/∂h for h = W₁x, a = tanh h, f = W₂a, written out: f - y, W₂ᵀ(f - y), (1 - a²) ⊙ W₂ᵀ(f -
    y).
    """
    W1 = np.asarray(jr.normal(jr.key(3), (4, 3)))
    W2 = np.asarray(jr.normal(jr.key(4), (2, 4)))
    net = Chain(
        Linear(jnp.asarray(W1), jnp.zeros(4)), jnp.tanh, Linear(jnp.asarray(W2), jnp.zeros(2))
    )
    x = np.asarray(xs, np.float64)
    y = np.asarray(ys, np.float64)
    a = np.tanh(x @ W1.T)
    at_f = a @ W2.T - y
    at_a = at_f @ W2
    at_h = (1 - a**2) * at_a
    rms = lambda g: np.sqrt(np.mean(np.sum(g**2, axis=1)))
    found = gradient_norms(squared_error, net, (jnp.asarray(x), jnp.asarray(y)))
    assert found.layers == ("Linear 1", "tanh 1", "Linear 2")
    assert np.allclose(found.outputs, [rms(at_h), rms(at_a), rms(at_f)])
    onto = [
        np.hypot(np.linalg.norm(d.T @ v / 12), np.linalg.norm(d.mean(axis=0)))
        for d, v in ((at_h, x), (at_f, a))
    ]
    assert found.parameter_layers == ("Linear 1", "Linear 2")
    assert np.allclose(found.weights, onto)


@pytest.mark.slow
def test_output_of_a_residual_includes_its_skip(x64):
    """∂l/∂h at h = x + F(x) is what flows back into both; that at F alone is the same, at x it is
    (I + J_F)ᵀ of it.
    """
    A = jr.normal(jr.key(5), (3, 3))
    B = jr.normal(jr.key(6), (3, 3))
    net = Chain(Linear(A, jnp.zeros(3)), Residual(Linear(B, jnp.zeros(3))))
    x = jr.normal(jr.key(7), (9, 3), float)
    found = gradient_norms(squared_error, net, (x, jnp.zeros((9, 3))))
    at_sum = x @ A.T @ (jnp.eye(3) + B).T
    rms = lambda g: float(jnp.sqrt(jnp.mean(jnp.sum(g**2, axis=1))))
    assert found.layers == ("Linear 1", "Linear 2", "Residual 1")
    assert np.allclose(found.outputs, [rms(at_sum @ (jnp.eye(3) + B)), rms(at_sum), rms(at_sum)])


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_any_network(name):
    net = NETWORKS[name]()
    found = gradient_norms(squared_error, net, (xs, ys))
    seen = activation_statistics(net, xs)
    assert seen.layers == found.layers
    assert len(set(seen.layers)) == len(seen.layers)
    assert np.isfinite(found.outputs).all()
    exact = jax.tree.leaves(jax.grad(squared_error)(net, (xs, ys)))
    assert np.linalg.norm(found.weights) == pytest.approx(float(tree.norm(exact)), rel=1e-4)
    out = np.asarray(predict(net, xs))  # the last layer to compute is the network's output
    assert found.outputs[-1] == pytest.approx(
        np.sqrt(np.sum((out - np.asarray(ys)) ** 2) / 12), rel=1e-4
    )
    assert seen.mean[-1] == pytest.approx(out.mean(), abs=1e-5)
    assert seen.std[-1] == pytest.approx(out.std(), rel=1e-4)


@pytest.mark.slow
def test_objectives_made_of_objectives():
    net = deep()
    labelled = (xs, jnp.arange(12) % 2)
    plain, decayed = (
        gradient_norms(o, net, labelled)
        for o in (cross_entropy, weight_decay(cross_entropy, strength=1.0))
    )
    assert np.allclose(plain.outputs, decayed.outputs, rtol=1e-4)
    assert (decayed.weights > plain.weights).all()
    half = gradient_norms(mixed_precision(cross_entropy), net, labelled)
    assert np.allclose(half.outputs, plain.outputs, rtol=0.1)


def test_dead_units_and_zeros():
    net = Chain(
        Linear(jnp.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]), jnp.array([0.0, -1.0])), jax.nn.relu
    )
    found = activation_statistics(net, xs)
    share = (np.asarray(xs)[:, 0] <= 0).mean()
    assert found.zeros[1] == pytest.approx((share + 1) / 2)
    assert found.dead.tolist() == [0.0, 0.5]


def test_weights_by_layer():
    net = deep(connect=Residual, normalise=BatchNorm.init)
    found = weight_statistics(net)
    assert found.layers[:3] == (
        "Linear 1",
        "BatchNorm 1",
        "Linear 2",
    )  # the third is the projection
    assert sum(found.size) == tree.size(net)
    assert np.linalg.norm(found.norm) == pytest.approx(float(tree.norm(net)), rel=1e-6)
    held = [
        np.asarray(a).ravel()
        for a, o in zip(jax.tree.leaves(net), parameter_owners(net))
        if module_names(net)[o] == "Linear 1"
    ]
    one = found.layers.index("Linear 1")
    held = np.concatenate(held)
    assert found.mean[one] == pytest.approx(sum(held) / len(held), rel=1e-4)
    assert found.std[one] == pytest.approx(held.std(), rel=1e-5)
    assert found.max_abs[one] == pytest.approx(max(held.max(), -held.min()))
    assert np.allclose((found.density * np.diff(found.edges, axis=1)).sum(axis=1), 1)


def test_no_parameters():
    with pytest.raises(ValueError, match="no parameters"):
        weight_statistics(Chain(jnp.tanh))


@pytest.mark.slow
def test_layers_inside_vmap_or_scan_are_not_recorded():
    """Blocks of a Mixer and modules with `is_leaf_module` are recorded as units."""
    net = Mixer.init(
        2,
        classes=3,
        image_size=(4, 4),
        channels=1,
        patch_size=2,
        width=3,
        hidden=(2, 4),
        key=jr.key(0),
    )
    paths, outputs = layer_output_shapes(net, jnp.ones((5, 1, 4, 4)))
    assert paths == ("stem", "blocks", "head")
    assert [h.shape for h in outputs] == [(5, 3, 2, 2), (5, 4, 3), (5, 3)]


@pytest.mark.slow
def test_mixer_blocks_are_recorded_as_units():
    """The blocks of a Mixer are one part; its last norm, which it maps by itself, is out of
    hearing.
    """
    net = Mixer.init(
        2,
        classes=3,
        image_size=(4, 4),
        channels=1,
        patch_size=2,
        width=3,
        hidden=(2, 4),
        key=jr.key(0),
    )
    images = jr.normal(jr.key(1), (5, 1, 4, 4))
    found = activation_statistics(net, images)
    assert found.layers == ("Convolution 1", "Stacked 1", "Linear 5")
    patches = net.stem(images[0])
    tables = jax.jit(jax.vmap(lambda x: net.blocks(net.stem(x).reshape(3, 4).T)))(images)
    assert found.mean[1] == pytest.approx(float(tables.mean()), rel=1e-4)
    pulled = gradient_norms(cross_entropy, net, (images, jnp.array([0, 1, 2, 0, 1])))
    assert pulled.layers == found.layers
    assert pulled.outputs.min() > 0
    assert feature_maps(net, images[0]).maps[0] == pytest.approx(np.asarray(patches), abs=1e-6)
    assert equivariance(net, images, shifts=(2,)).layers == ("Convolution 1",)


def test_dead_units_of_feature_maps_are_channels():
    """Of four channels one is 0 everywhere, one at most positions, one on one example."""
    maps = jnp.ones((2, 4, 2, 3)).at[:, 0].set(0.0).at[:, 1, 0].set(0.0).at[0, 2].set(0.0)
    found = activation_statistics(Chain(jax.nn.relu), maps)
    assert found.dead.tolist() == [0.25]
    assert found.zeros.tolist() == [0.5]

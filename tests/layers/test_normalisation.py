"""Layer, batch and weight normalisation (§8.5, §8.6), and `fold_batch_norm`."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import normal

from thetax.core import predict
from thetax.layers import (
    Affine,
    BatchNorm,
    Chain,
    Ensemble,
    LayerNorm,
    Linear,
    Residual,
    Stacked,
    WeightNorm,
    centred,
    fold_batch_norm,
    has_batch_norm,
)
from thetax.models import MLP

pytestmark = pytest.mark.usefixtures("x64", "strict")


def reference(x, axis, gamma, mu, eps=1e-5):
    """Normalisation in NumPy with the biased variance; γ and μ are shaped by the caller."""
    x = np.asarray(x)
    gamma = np.asarray(gamma)
    mu = np.asarray(mu)
    centre = x - x.mean(axis=axis, keepdims=True)
    return mu + gamma * centre / np.sqrt((centre**2).mean(axis=axis, keepdims=True) + eps)


def test_layer_norm_formula():
    """Mean and biased variance over the features of one example; then γ and μ per feature."""
    x = normal(0, 7)
    gamma = normal(1, 7)
    mu = normal(2, 7)
    assert np.allclose(LayerNorm(gamma, mu)(x), reference(x, 0, gamma, mu), atol=1e-12)
    plain = LayerNorm.init(7, eps=0.0)(x)
    assert abs(plain.mean()) < 1e-14
    assert abs(plain.var() - 1) < 1e-13


def test_layer_norm_is_scale_and_shift_invariant():
    """LN(ax + b) = LN(x) for a > 0 if ε = 0, and −LN(x) for a < 0."""
    x = normal(0, 7)
    norm = LayerNorm.init(7, eps=0.0)
    assert np.allclose(norm(3.7 * x + 5), norm(x), atol=1e-12)
    assert np.allclose(norm(-2 * x + 1), -norm(x), atol=1e-12)


def test_batch_norm_formula():
    """Over the batch, for each feature, with the biased variance; BN(X) = LN(Xᵀ)ᵀ before the affine
    map.
    """
    xs = 3 * normal(0, 10, 4) + 2
    gamma = normal(1, 4)
    mu = normal(2, 4)
    assert np.allclose(predict(BatchNorm(gamma, mu), xs), reference(xs, 0, gamma, mu), atol=1e-12)
    flipped = jax.vmap(LayerNorm.init(10))(xs.T).T
    assert np.allclose(predict(BatchNorm.init(4), xs), flipped, atol=1e-12)


def test_batch_norm_on_images_is_over_batch_and_space():
    """One mean and variance per channel, over examples, rows and columns."""
    xs = normal(0, 5, 2, 3, 4)
    gamma = normal(1, 2)
    mu = normal(2, 2)
    by_channel = [np.asarray(v)[None, :, None, None] for v in (gamma, mu)]
    assert np.allclose(
        predict(BatchNorm(gamma, mu), xs), reference(xs, (0, 2, 3), *by_channel), atol=1e-12
    )


def test_batch_of_one_example_raises():
    """One value has no variance; one image has many values per channel, and a folded norm needs
    none.
    """
    norm = BatchNorm(jnp.ones(3), normal(0, 3))
    for one in (normal(1, 1, 3), normal(1, 1, 3, 1, 1)):
        with pytest.raises(ValueError, match="the batch has one example of shape"):
            predict(norm, one)
        with pytest.raises(ValueError, match="at least 2 examples"):
            fold_batch_norm(norm, one)
    image = normal(2, 1, 3, 2, 2)
    assert np.allclose(
        predict(BatchNorm.init(3), image), reference(image, (0, 2, 3), 1.0, 0.0), atol=1e-12
    )
    xs = normal(3, 8, 3)
    assert np.allclose(
        predict(fold_batch_norm(norm, xs), xs[:1]), predict(norm, xs)[:1], atol=1e-12
    )


def test_batch_norm_after_linear_is_scale_invariant():
    """8.5-bn-scale-inv: f(cw) = f(w), w·∇ = 0 row by row, and ∇(cw) = ∇(w)/c."""
    xs = normal(0, 12, 3)
    weights = normal(1, 12, 2)
    loss = lambda W: jnp.vdot(
        weights, predict(Chain(Linear(W, jnp.ones(2)), BatchNorm.init(2, eps=0.0)), xs)
    )
    W = normal(2, 2, 3)
    gradient = jax.grad(loss)(W)
    assert np.isclose(loss(3 * W), loss(W), atol=1e-12)
    assert np.allclose((W * gradient).sum(axis=1), 0, atol=1e-12)
    assert np.allclose(jax.grad(loss)(3 * W), gradient / 3, atol=1e-12)
    assert np.abs(gradient).max() > 1e-2


def test_batch_norm_after_linear_is_a_reparametrisation():
    """8.5-bn-reparam: γ wᵀ(x − E x)/√(wᵀ Σ w) + μ with the covariance Σ, not E xxᵀ."""
    xs = normal(0, 50, 3) + 2
    w = normal(1, 3)
    gamma = 1.7
    mu = 0.3
    net = Chain(Linear(w[None], jnp.zeros(1)), BatchNorm(jnp.array([gamma]), jnp.array([mu]), 0.0))
    covariance = np.cov(np.asarray(xs).T, bias=True)
    expected = mu + gamma * (xs - xs.mean(axis=0)[None]) @ w / np.sqrt(w @ covariance @ w)
    assert np.allclose(predict(net, xs)[:, 0], expected, atol=1e-12)
    second = np.asarray(xs).T @ np.asarray(xs) / 50
    assert not np.allclose(covariance, second, atol=0.1)


def test_weight_norm_formula():
    """w_i = γ_i v_i/‖v_i‖, so ‖w_i‖ = |γ_i|, also for γ < 0; the length of v does not matter."""
    V = normal(0, 4, 3)
    gamma = normal(1, 4)
    b = normal(2, 4)
    x = normal(3, 3)
    layer = WeightNorm(V, gamma, b)
    loop = [gamma[i] * V[i] @ x / np.linalg.norm(V[i]) + b[i] for i in range(4)]
    assert (gamma < 0).any()
    assert np.allclose(layer(x), loop, atol=1e-13)
    assert np.allclose(np.linalg.norm(layer.W, axis=1), np.abs(gamma), atol=1e-14)
    assert np.allclose(WeightNorm(5 * V, gamma, b)(x), layer(x), atol=1e-13)


def test_weight_norm_initialisation():
    x = normal(0, 3)
    assert np.allclose(
        WeightNorm.init(3, 4, key=jr.key(0))(x), Linear.init(3, 4, key=jr.key(0))(x), atol=1e-14
    )


def test_weight_norm_gradients():
    """8.6: ∂ℓ/∂γ = ∂ℓ/∂w·v/‖v‖ and ∂ℓ/∂v = γ/‖v‖ (I − wwᵀ/‖w‖²) ∂ℓ/∂w, with γ = −1.3 too."""
    V = normal(0, 2, 3)
    gamma = jnp.array([-1.3, 0.7])
    x = normal(1, 3)
    layer = WeightNorm(V, gamma, jnp.zeros(2))
    grad = jax.grad(lambda layer: jnp.square(jnp.tanh(layer(x))).sum())(layer)
    by_W = jax.grad(lambda W: jnp.square(jnp.tanh(W @ x)).sum())(layer.W)
    for i in range(2):
        v = V[i]
        w = layer.W[i]
        g = by_W[i]
        projector = np.eye(3) - np.outer(w, w) / float(w @ w)
        assert np.allclose(projector @ projector, projector, atol=1e-14)
        assert np.isclose(grad.gamma[i], g @ v / np.linalg.norm(v), atol=1e-12)
        assert np.allclose(grad.V[i], gamma[i] / np.linalg.norm(v) * projector @ g, atol=1e-12)
        assert abs(v @ grad.V[i]) < 1e-14


def test_weight_norm_never_shrinks_v():
    """8.6-wn-projection: ‖v − η∂v‖² = ‖v‖² + η²‖∂v‖² exactly, at every step."""
    xs = normal(0, 8, 3)
    ys = normal(1, 8)

    @jax.jit
    def step(layer):
        loss = lambda layer: jnp.square(jax.vmap(layer)(xs)[:, 0] - ys).mean()
        grad = jax.grad(loss)(layer)
        return jax.tree.map(lambda p, g: p - 0.1 * g, layer, grad), grad

    layer = WeightNorm(normal(2, 1, 3), jnp.ones(1), jnp.zeros(1))
    for _ in range(20):
        after, grad = step(layer)
        assert np.isclose(
            (after.V**2).sum(), (layer.V**2).sum() + 0.01 * (grad.V**2).sum(), rtol=1e-13
        )
        layer = after


def test_weight_norm_is_batch_norm_on_whitened_data():
    """8.6-wn-bn-equiv: with E x = 0 and Σ = I they are equal; on raw data they are not."""
    raw = np.asarray(normal(0, 40, 3) * jnp.array([[1.0, 2.0, 3.0]]) + 1)
    values, basis = np.linalg.eigh(np.cov(raw.T, bias=True))
    white = jnp.asarray((raw - raw.mean(axis=0)) @ basis / np.sqrt(values) @ basis.T)
    W = normal(1, 2, 3)
    gamma = jnp.array([1.5, -0.5])
    batch = Chain(Linear(W, jnp.zeros(2)), BatchNorm(gamma, jnp.zeros(2), 0.0))
    weight = WeightNorm(W, gamma, jnp.zeros(2))
    assert np.allclose(predict(batch, white), predict(weight, white), atol=1e-10)
    assert not np.allclose(
        predict(batch, jnp.asarray(raw)), predict(weight, jnp.asarray(raw)), atol=0.1
    )


def test_normalising_twice_is_a_choice_of_gamma_and_mu():
    """8.5-normalise: γ = √Var, μ = E gives the data back."""
    xs = 3 * normal(0, 30, 2) + 1
    back = BatchNorm(jnp.sqrt(xs.var(axis=0)), xs.mean(axis=0), 0.0)
    assert np.allclose(predict(back, xs), xs, atol=1e-12)


# fold


def residual_net():
    block = Residual(
        Chain(
            Linear(normal(5, 4, 4), normal(6, 4)), BatchNorm(normal(7, 4), normal(8, 4)), jnp.tanh
        )
    )
    return Chain(
        Linear(normal(9, 4, 3), normal(10, 4)), BatchNorm.init(4), centred(jnp.tanh), block, block
    )


def test_fold_equals_the_network_on_its_data():
    """Nested in residual layers and at two places in the tree: equal on the data, also under
    jit.
    """
    net = residual_net()
    xs = 2 * normal(0, 32, 3) + 1
    expected = predict(net, xs)
    for folded in (fold_batch_norm(net, xs), jax.jit(fold_batch_norm)(net, xs)):
        assert not has_batch_norm(folded)
        assert np.allclose(predict(folded, xs), expected, atol=1e-10)
        assert np.allclose(folded(xs[0]), expected[0], atol=1e-10)
    assert isinstance(folded.layers[1], Affine)
    assert has_batch_norm(net)


def test_fold_in_float32_and_on_images():
    """Within 1e-5 in single precision; channels of an image keep their axis."""
    with jax.enable_x64(False):
        xs = 5 * normal(0, 64, 2, 3, 3) + 2
        net = Chain(BatchNorm(normal(1, 2), normal(2, 2)), jnp.tanh, BatchNorm.init(2))
        assert np.allclose(predict(fold_batch_norm(net, xs), xs), predict(net, xs), atol=1e-5)


def test_fold_formula():
    """One norm: scale γ/√(s² + ε) and shift μ − scale·mean, in NumPy."""
    xs = 2 * normal(0, 20, 3) + 1
    gamma = normal(1, 3)
    mu = normal(2, 3)
    affine = fold_batch_norm(Chain(BatchNorm(gamma, mu)), xs).layers[0]
    slope = gamma / np.sqrt(np.asarray(xs).var(axis=0) + 1e-5)
    assert np.allclose(affine.gamma, slope, atol=1e-12)
    assert np.allclose(affine.mu, mu - slope * np.asarray(xs).mean(axis=0), atol=1e-12)


class Twice(Chain):
    def __call__(self, x, *, key=None):
        return self.layers[0](self.layers[0](x))


def test_fold_of_a_norm_used_twice_raises():
    """It has two means and variances, so no single affine map replaces it."""
    with pytest.raises(ValueError, match=r"layers\.0 is used twice"):
        fold_batch_norm(Twice(BatchNorm.init(2)), normal(0, 4, 2))


@pytest.mark.parametrize("depth", [2, 6])
def test_fold_of_stacked_layers_raises(depth):
    net = Chain(Stacked.init(lambda key: BatchNorm.init(2), depth, key=jr.key(0)))
    with pytest.raises(ValueError, match="a BatchNorm inside Stacked cannot be folded"):
        fold_batch_norm(net, normal(0, 4, 2))


def test_fold_of_a_model_without_batch_norm():
    net = MLP.init(3, 4, 2, normalise=LayerNorm.init, key=jr.key(0))
    assert fold_batch_norm(net, normal(0, 4, 3)) is net
    assert not has_batch_norm(net)


def test_fold_folds_each_member_of_an_ensemble():
    """The folded ensemble equals the ensemble on the data, and each member equals the member folded
    alone.
    """
    make = lambda key: MLP.init(3, 4, 2, normalise=BatchNorm.init, key=key)
    xs = normal(0, 8, 3)
    net = Ensemble.init(make, 3, key=jr.key(0))
    folded = fold_batch_norm(net, xs)
    assert not has_batch_norm(folded)
    assert np.allclose(predict(folded, xs), predict(net, xs), atol=1e-10)
    alone = fold_batch_norm(jax.tree.map(lambda leaf: leaf[1], net.members), xs)
    assert np.allclose(
        folded.members.body.layers[1].gamma[1], alone.body.layers[1].gamma, atol=1e-12
    )


def test_half_precision_statistics_are_float32():
    """Around 100 with a spread of 1/2, where bfloat16 statistics have errors of percents; the
    output stays bfloat16.
    """
    cast = lambda norm, dtype: jax.tree.map(lambda leaf: leaf.astype(dtype), norm)
    x = (100 + 0.5 * normal(20, 64)).astype(jnp.bfloat16)
    half, exact = (cast(LayerNorm.init(64), dtype) for dtype in (jnp.bfloat16, jnp.float32))
    assert half(x).dtype == jnp.bfloat16
    assert jnp.array_equal(half(x), exact(x.astype(jnp.float32)).astype(jnp.bfloat16))
    xs = (100 + 0.5 * normal(21, 32, 4)).astype(jnp.bfloat16)
    half, exact = (cast(BatchNorm.init(4), dtype) for dtype in (jnp.bfloat16, jnp.float32))
    assert jnp.array_equal(
        predict(half, xs), predict(exact, xs.astype(jnp.float32)).astype(jnp.bfloat16)
    )

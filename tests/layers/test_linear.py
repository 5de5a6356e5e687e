"""Affine layers against loops over units."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contracts import normal

from thetax.layers import Affine, Linear, matvec, relu, sigmoid

pytestmark = pytest.mark.usefixtures("x64", "strict")


def test_linear_is_the_loop_over_units():
    """f(x)_i = Σ_j W_ij x_j + b_i, by two nested loops."""
    W = normal(0, 4, 3)
    b = normal(1, 4)
    x = normal(2, 3)
    loop = [sum(float(W[i, j] * x[j]) for j in range(3)) + float(b[i]) for i in range(4)]
    assert np.allclose(Linear(W, b)(x), loop, atol=1e-14)
    assert np.allclose(Linear(W, b, 2.0, 3.0)(x), 2 * (W @ x) + 3 * b, atol=1e-14)
    assert np.allclose(matvec(W, x), W @ x, atol=1e-14)


@pytest.mark.parametrize("make", [lambda: Linear(jnp.ones((2, 3)), jnp.ones(3))])
@pytest.mark.usefixtures("unchecked")
def test_invalid_shapes(make):
    """The notes' b ∈ Rⁿ is an error; b has one entry per row of W."""
    with pytest.raises(ValueError, match=r"b \(m,\).*rows of W"):
        make()


@pytest.mark.usefixtures("unchecked")
def test_batch_without_vmap_raises():
    with pytest.raises(ValueError, match=r"jax\.vmap"):
        Linear(jnp.ones((2, 3)), jnp.ones(2))(jnp.ones((5, 3)))


def test_affine_acts_channel_by_channel():
    """γ_c x_chw + μ_c, by loops."""
    gamma = normal(0, 2)
    mu = normal(1, 2)
    x = normal(2, 2, 3, 4)
    loop = np.stack([float(gamma[c]) * np.asarray(x[c]) + float(mu[c]) for c in range(2)])
    assert np.allclose(Affine(gamma, mu)(x), loop, atol=1e-14)
    assert np.allclose(Affine(gamma, mu)(x[:, 0, 0]), gamma * x[:, 0, 0] + mu, atol=1e-14)


def test_affine_layers_compose_to_one():
    """2.3-linear-closed: W = W₂W₁, b = W₂b₁ + b₂, and a bottleneck of width 2 has rank 2."""
    first = Linear(normal(0, 2, 5), normal(1, 2))
    second = Linear(normal(2, 4, 2), normal(3, 4))
    x = normal(4, 5)
    W = second.W @ first.W
    assert np.allclose(second(first(x)), Linear(W, second.W @ first.b + second.b)(x), atol=1e-13)
    assert np.linalg.matrix_rank(W) == 2


@pytest.mark.parametrize("activation", [relu, sigmoid])
def test_permutation_of_hidden_units(activation):
    """2.2-permutation: W₁ → PW₁, b₁ → Pb₁, W₂ → W₂Pᵀ changes nothing; a rotation in place of P
    does.
    """
    first = Linear(normal(0, 4, 3), normal(1, 4))
    second = Linear(normal(2, 2, 4), normal(3, 2))
    x = normal(4, 3)
    net = lambda P: Linear(second.W @ P.T, second.b)(
        activation(Linear(P @ first.W, P @ first.b)(x))
    )
    plain = second(activation(first(x)))
    for seed in range(5):
        P = jnp.eye(4)[np.random.default_rng(seed).permutation(4)]
        assert np.allclose(net(P), plain, atol=1e-13)
    Q, _ = jnp.linalg.qr(normal(5, 4, 4))
    assert not np.allclose(net(Q), plain, atol=1e-3)


def test_gradient_of_linear():
    """∂(cᵀf)/∂W = cxᵀ, ∂/∂b = c, ∂/∂x = Wᵀc."""
    layer = Linear(normal(0, 4, 3), normal(1, 4))
    x = normal(2, 3)
    c = normal(3, 4)
    grad, by_x = jax.grad(lambda layer, x: c @ layer(x), argnums=(0, 1))(layer, x)
    assert np.allclose(grad.W, np.outer(c, x), atol=1e-14)
    assert np.allclose(grad.b, c, atol=1e-14)
    assert np.allclose(by_x, layer.W.T @ c, atol=1e-14)

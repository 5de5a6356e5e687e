"""Regression against numpy and scikit-learn (§2.1, §8.2)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contracts import normal
from sklearn.linear_model import LogisticRegression, Ridge

from thetax import tree
from thetax.core import predict
from thetax.layers import Linear
from thetax.models import (
    least_squares,
    leave_one_out,
    linear_regression,
    logistic_regression,
    minimum_norm,
    multinomial_regression,
    ridge,
)
from thetax.train import binary_cross_entropy, cross_entropy, squared_error

pytestmark = pytest.mark.usefixtures("x64", "strict")


def test_ridge_in_numpy():
    """The normal equations with a column of ones, which is not shrunk."""
    xs = np.random.default_rng(0).standard_normal((7, 2)) + 1
    ys = np.random.default_rng(1).standard_normal((7, 2)) - 3
    ones = np.column_stack([xs, np.ones(7)])
    expected = np.linalg.solve(ones.T @ ones + 0.7 * np.diag([1, 1, 0]), ones.T @ ys)
    model = jax.jit(lambda xs, ys: ridge(xs, ys, strength=0.7))(xs, ys)
    assert np.allclose(np.column_stack([model.W, model.b]), expected.T, atol=1e-12)


@pytest.mark.parametrize("outputs", [(), (2,)], ids=["vector", "matrix"])
def test_least_squares_is_lstsq(outputs):
    """numpy's solution with a column of ones; the residual is orthogonal to the data, the gradient
    is 0.
    """
    xs = normal(0, 30, 4) + 1
    ys = normal(1, 30, *outputs)
    model = least_squares(xs, ys)
    ones = np.column_stack([xs, np.ones(30)])
    expected, *_ = np.linalg.lstsq(ones, np.asarray(ys).reshape(30, -1), rcond=None)
    assert np.allclose(np.column_stack([model.W, model.b]), expected.T, atol=1e-10)
    residual = predict(model, xs) - ys.reshape(30, -1)
    assert np.allclose(ones.T @ residual, 0, atol=1e-10)
    assert tree.norm(jax.grad(squared_error)(model, (xs, ys))) < 1e-12


@pytest.mark.parametrize("strength", [0.1, 1.0, 10.0])
def test_ridge_is_sklearns(strength):
    """Ridge(alpha=μ), whose offset is not shrunk either; the gradient of the penalised sum is 0."""
    xs = normal(0, 30, 4) + 1
    ys = normal(1, 30, 2) + 3
    model = ridge(xs, ys, strength=strength)
    peer = Ridge(alpha=strength).fit(xs, ys)
    assert np.allclose(model.W, peer.coef_, atol=1e-10)
    assert np.allclose(model.b, peer.intercept_, atol=1e-10)
    penalised = lambda m: 30 * squared_error(m, (xs, ys)) + strength / 2 * jnp.square(m.W).sum()
    assert tree.norm(jax.grad(penalised)(model)) < 1e-10


@pytest.mark.parametrize("shape", [(5, 8), (20, 4)], ids=["wide", "collinear"])
def test_rank_deficient_data_get_the_solution_of_least_norm(shape):
    """The pseudo-inverse of the centred data, where fewer examples than features or two features
    are one.
    """
    xs = np.array(normal(0, *shape))
    ys = np.asarray(normal(1, shape[0]))
    xs[:, -1] = 2 * xs[:, 0]
    model = least_squares(jnp.asarray(xs), jnp.asarray(ys))
    expected = np.linalg.pinv(xs - xs.mean(axis=0)) @ (ys - ys.mean())
    assert np.allclose(model.W[0], expected, atol=1e-9)
    assert np.isclose(model.b[0], ys.mean() - expected @ xs.mean(axis=0), atol=1e-9)


def test_constant_data_give_the_mean():
    """Where the features say nothing the answer is the mean, not NaN."""
    model = least_squares(jnp.ones((6, 3)), jnp.arange(6.0))
    assert np.allclose(model.W, 0)
    assert np.allclose(model.b, 2.5)


def test_ridge_shrinks_in_the_eigenbasis():
    """8.2-wd-shrinkage: component i is that of least squares times λ_i/(λ_i + μ)."""
    xs = normal(0, 30, 4)
    ys = normal(1, 30)
    centre = np.asarray(xs) - np.asarray(xs).mean(axis=0)
    values, basis = np.linalg.eigh(centre.T @ centre)
    free, shrunk = (np.asarray(ridge(xs, ys, strength=mu).W[0]) @ basis for mu in (0.0, 5.0))
    assert np.allclose(shrunk, values / (values + 5) * free, atol=1e-12)


def test_negative_strength_is_refused():
    with pytest.raises(ValueError, match="negative"):
        ridge(jnp.ones((2, 1)), jnp.ones(2), strength=-1.0)


def test_models_begin_at_the_origin():
    """Zero log-odds: every class as likely as another."""
    x = normal(0, 3)
    assert linear_regression(3, 2)(x).tolist() == [0, 0]
    assert logistic_regression(3)(x).tolist() == [0]
    assert multinomial_regression(3, 4)(x).tolist() == [0, 0, 0, 0]


@pytest.mark.slow
def test_logistic_gradient():
    """2.1-logreg-gradient: (1/n) Σ (σ(wᵀx_i + b) − y_i) x_i, and for classes softmax − e_y."""
    xs = normal(0, 20, 3)
    ys = (normal(1, 20) > 0).astype(jnp.int32)
    model = jax.tree.map(lambda leaf: leaf + 0.3, logistic_regression(3))
    grad = jax.grad(binary_cross_entropy)(model, (xs, ys))
    error = jax.nn.sigmoid(predict(model, xs)[:, 0]) - ys.astype(float)
    assert np.allclose(grad.W[0], error @ xs / 20, atol=1e-14)
    assert np.allclose(grad.b[0], error.mean(), atol=1e-14)
    several = multinomial_regression(3, 4)
    labels = jnp.arange(20) % 4
    several = jax.tree.map(lambda leaf: leaf + normal(2, *leaf.shape), several)
    errors = jax.nn.softmax(predict(several, xs)) - jax.nn.one_hot(labels, 4)
    assert np.allclose(
        jax.grad(cross_entropy)(several, (xs, labels)).W, errors.T @ xs / 20, atol=1e-14
    )


def test_logistic_optimum_is_sklearns():
    """Where scikit-learn stops (penalty μ/2 ‖w‖² on the sum), our gradient is 0: two routes to one
    minimum.
    """
    xs = normal(0, 60, 3)
    ys = (normal(0, 60, 3)[:, 0] + normal(2, 60) > 0).astype(jnp.int32)
    peer = LogisticRegression(C=0.5, tol=1e-10).fit(xs, ys)
    model = Linear(jnp.asarray(peer.coef_), jnp.asarray(peer.intercept_))
    penalised = lambda m: 60 * binary_cross_entropy(m, (xs, ys)) + jnp.square(m.W).sum()
    assert tree.norm(jax.grad(penalised)(model)) < 1e-4


@pytest.mark.parametrize("outputs", [(), (2,)], ids=["vector", "matrix"])
@pytest.mark.parametrize("strength", [0.0, 0.3, 20.0])
def test_leave_one_out_is_leaving_one_out(strength, outputs):
    """Twelve fits of eleven examples, each by scikit-learn, against the formula of one fit."""
    xs = normal(0, 12, 3) + 1
    ys = normal(1, 12, *outputs)
    found = leave_one_out(xs, ys, strength=strength)
    for i in range(12):
        rest = np.delete(np.arange(12), i)
        peer = Ridge(alpha=strength).fit(np.asarray(xs)[rest], np.asarray(ys)[rest])
        assert np.allclose(found[i], ys[i] - peer.predict(np.asarray(xs)[i : i + 1])[0], atol=1e-9)


def test_leave_one_out_where_features_outnumber_examples():
    """With decay there is an answer; without, every example has leverage 1."""
    xs = normal(0, 6, 9)
    ys = normal(1, 6)
    without = ridge(xs[1:], ys[1:], strength=0.1)
    assert np.isclose(leave_one_out(xs, ys, strength=0.1)[0], ys[0] - without(xs[0])[0], atol=1e-10)
    with pytest.raises(ValueError, match="has leverage 1"):
        leave_one_out(xs, ys, strength=0.0)
    many = jax.jit(jax.vmap(lambda mu: leave_one_out(xs, ys, strength=mu)))(jnp.array([0.1, 1.0]))
    assert np.isclose(many[0, 0], ys[0] - without(xs[0])[0], atol=1e-10)


@pytest.mark.parametrize("shape", [(4, 7), (7, 4), (5, 5)], ids=["wide", "tall", "deficient"])
def test_minimum_norm_is_the_pseudo_inverse(shape):
    """numpy's pinv; from another origin, the least-squares solution nearest to it: the step to it
    lies in row(A).
    """
    A = np.array(normal(0, *shape))
    b = normal(1, shape[0])
    x0 = normal(2, shape[1])
    if shape == (5, 5):
        A[4] = A[0] + A[1]
    found = minimum_norm(jnp.asarray(A), b)
    assert np.allclose(found, np.linalg.pinv(A) @ np.asarray(b), atol=1e-10)
    near = minimum_norm(jnp.asarray(A), b, origin=x0)
    assert np.allclose(A.T @ (A @ np.asarray(near) - np.asarray(b)), 0, atol=1e-10)
    step = np.asarray(near - x0)
    assert np.allclose(np.linalg.pinv(A) @ A @ step, step, atol=1e-10)

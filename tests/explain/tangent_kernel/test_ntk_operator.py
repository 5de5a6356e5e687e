"""The kernel through its products, beside the kernel itself."""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import normal

from thetax.explain import eigenpairs, ntk, ntk_operator, solve
from thetax.models import MLP

pytestmark = pytest.mark.usefixtures("x64")


@pytest.fixture
def model():
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float64), MLP.init(3, 6, 2, key=jr.key(0)))


@pytest.fixture
def xs():
    return normal(0, 7, 3)


def matrix(model, xs):
    K = np.asarray(ntk(model)(xs)).transpose(0, 2, 1, 3)
    return K.reshape(14, 14)


@pytest.mark.parametrize("batch", [3, 7, 100])
def test_products(model, xs, batch):
    v = normal(1, 7, 2)
    found = ntk_operator(model, xs, batch=batch)(v)
    np.testing.assert_allclose(found.ravel(), matrix(model, xs) @ v.ravel(), rtol=1e-9)


def test_trace(model, xs):
    v = normal(1, 7)
    found = ntk_operator(model, xs, form="trace", batch=3)(v)
    np.testing.assert_allclose(found, ntk(model, form="trace")(xs) @ v, rtol=1e-9)


def test_eigenpairs(model, xs):
    operator = ntk_operator(model, xs)
    found = eigenpairs(operator, count=4, key=jr.key(3))
    np.testing.assert_allclose(
        found.values, np.linalg.eigvalsh(matrix(model, xs))[::-1][:4], rtol=1e-9
    )
    for value, vector in zip(found.values, found.vectors):
        np.testing.assert_allclose(operator(jnp.asarray(vector)), value * vector, atol=1e-8)
        assert np.linalg.norm(vector) == pytest.approx(1)


def test_solutions(model, xs):
    b = normal(2, 7, 2)
    K = matrix(model, xs) + 0.1 * np.eye(14)
    found = solve(ntk_operator(model, xs), b, ridge=0.1, tolerance=1e-10)
    np.testing.assert_allclose(found.x.ravel(), np.linalg.solve(K, b.ravel()), rtol=1e-6)
    assert found.residual < 1e-9
    inverse = jnp.asarray(np.linalg.inv(K))
    near = lambda v: (inverse @ v.ravel()).reshape(v.shape)
    fast = partial(solve, ntk_operator(model, xs), b, ridge=0.1, steps=2)
    assert fast(preconditioner=near).residual < 1e-9 < fast().residual


def test_the_largest_eigenpairs_as_a_preconditioner(model, xs):
    """It makes the eigenvalues that it knows equal, and conjugate gradients come further in as many
    steps.
    """
    operator = ntk_operator(model, xs)
    b = normal(2, 7, 2)
    found = eigenpairs(operator, count=5, key=jr.key(3))
    near = found.preconditioner(0.1)
    np.testing.assert_allclose(
        near(found.vectors[0]), (found.values[4] + 0.1) / (found.values[0] + 0.1) * found.vectors[0]
    )
    few = partial(solve, operator, b, ridge=0.1, steps=6)
    assert few(preconditioner=near).residual < 0.2 * few().residual


def test_any_numbers_will_do_and_half_precision_too(model, xs):
    np.testing.assert_allclose(
        ntk_operator(model, xs)(np.ones((7, 2), int)), ntk_operator(model, xs)(jnp.ones((7, 2)))
    )
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), model)
    found = ntk_operator(half, xs.astype(jnp.bfloat16))(jnp.ones((7, 2)))
    np.testing.assert_allclose(
        found.astype(float), ntk_operator(model, xs)(jnp.ones((7, 2))), rtol=0.1, atol=0.5
    )


def test_bad_input(model, xs, unchecked):
    with pytest.raises(ValueError, match="form is full or trace; got 'outputs'"):
        ntk_operator(model, xs, form="outputs")
    with pytest.raises(ValueError, match="batch counts examples and must be at least 1; got 0"):
        ntk_operator(model, xs, batch=0)
    with pytest.raises(ValueError, match=r"expected a vector of shape \(7, 2\); got \(7,\)"):
        ntk_operator(model, xs)(jnp.ones(7))
    with pytest.raises(ValueError, match="xs: expected finite numbers, but row 2, column 0 is nan"):
        ntk_operator(model, xs.at[2, 0].set(jnp.nan))
    with pytest.raises(ValueError, match="ridge must be finite and not negative; got -1"):
        solve(lambda v: v, jnp.ones(3), ridge=-1.0)
    assert solve(lambda v: v, jnp.zeros(3)).residual == 0
    with pytest.raises(
        ValueError, match="tolerance and steps must be positive; got tolerance=1e-05, steps=0"
    ):
        solve(lambda v: v, jnp.ones(3), steps=0)
    with pytest.raises(ValueError, match="count must be a whole number from 1 to 6"):
        eigenpairs(ntk_operator(model, xs, form="trace"), count=7, key=jr.key(0))

"""The kernel through its products, beside the kernel itself."""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import normal

from thetax.explain import conjugate_gradients, eigenpairs, ntk, ntk_operator
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


@pytest.mark.parametrize("batch_size", [3, 7, 100])
def test_products(model, xs, batch_size):
    v = normal(1, 7, 2)
    found = ntk_operator(model, xs, batch_size=batch_size)(v)
    np.testing.assert_allclose(found.ravel(), matrix(model, xs) @ v.ravel(), rtol=1e-9)


def test_trace(model, xs):
    v = normal(1, 7)
    found = ntk_operator(model, xs, form="trace", batch_size=3)(v)
    np.testing.assert_allclose(found, ntk(model, form="trace")(xs) @ v, rtol=1e-9)


def test_eigenpairs(model, xs):
    operator = ntk_operator(model, xs)
    found = eigenpairs(operator, n_eigenpairs=4, key=jr.key(3))
    np.testing.assert_allclose(
        found.eigenvalues, np.linalg.eigvalsh(matrix(model, xs))[::-1][:4], rtol=1e-9
    )
    for value, vector in zip(found.eigenvalues, found.eigenvectors):
        np.testing.assert_allclose(operator(jnp.asarray(vector)), value * vector, atol=1e-8)
        assert np.linalg.norm(vector) == pytest.approx(1)


def test_solutions(model, xs):
    b = normal(2, 7, 2)
    K = matrix(model, xs) + 0.1 * np.eye(14)
    found = conjugate_gradients(ntk_operator(model, xs), b, ridge=0.1, tolerance=1e-10)
    np.testing.assert_allclose(found.x.ravel(), np.linalg.solve(K, b.ravel()), rtol=1e-6)
    assert found.residual < 1e-9
    inverse = jnp.asarray(np.linalg.inv(K))
    near = lambda v: (inverse @ v.ravel()).reshape(v.shape)
    fast = partial(conjugate_gradients, ntk_operator(model, xs), b, ridge=0.1, max_steps=2)
    assert fast(preconditioner=near).residual < 1e-9 < fast().residual


def test_the_largest_eigenpairs_as_a_preconditioner(model, xs):
    """It makes the eigenvalues that it knows equal, and conjugate gradients come further in as many
    steps.
    """
    operator = ntk_operator(model, xs)
    b = normal(2, 7, 2)
    found = eigenpairs(operator, n_eigenpairs=5, key=jr.key(3))
    near = found.preconditioner(0.1)
    np.testing.assert_allclose(
        near(found.eigenvectors[0]),
        (found.eigenvalues[4] + 0.1) / (found.eigenvalues[0] + 0.1) * found.eigenvectors[0],
    )
    few = partial(conjugate_gradients, operator, b, ridge=0.1, max_steps=6)
    assert few(preconditioner=near).residual < 0.2 * few().residual


def test_integers_and_half_precision_are_accepted(model, xs):
    np.testing.assert_allclose(
        ntk_operator(model, xs)(np.ones((7, 2), int)), ntk_operator(model, xs)(jnp.ones((7, 2)))
    )
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), model)
    found = ntk_operator(half, xs.astype(jnp.bfloat16))(jnp.ones((7, 2)))
    np.testing.assert_allclose(
        found.astype(float), ntk_operator(model, xs)(jnp.ones((7, 2))), rtol=0.1, atol=0.5
    )


def test_bad_input(model, xs, unchecked):
    with pytest.raises(ValueError, match="form must be full or trace; got 'outputs'"):
        ntk_operator(model, xs, form="outputs")
    with pytest.raises(ValueError, match="batch_size must be an integer >= 1; got 0"):
        ntk_operator(model, xs, batch_size=0)
    with pytest.raises(ValueError, match=r"v must have shape \(7, 2\); got \(7,\)"):
        ntk_operator(model, xs)(jnp.ones(7))
    with pytest.raises(ValueError, match="xs: expected finite numbers, but row 2, column 0 is nan"):
        ntk_operator(model, xs.at[2, 0].set(jnp.nan))
    with pytest.raises(ValueError, match=r"ridge must be finite and >= 0; got -1\.0"):
        conjugate_gradients(lambda v: v, jnp.ones(3), ridge=-1.0)
    assert conjugate_gradients(lambda v: v, jnp.zeros(3)).residual == 0
    with pytest.raises(ValueError, match="max_steps must be an integer >= 1; got 0"):
        conjugate_gradients(lambda v: v, jnp.ones(3), max_steps=0)
    with pytest.raises(
        ValueError,
        match="n_eigenpairs must be an integer from 1 to 6, fewer than the size of the matrix",
    ):
        eigenpairs(ntk_operator(model, xs, form="trace"), n_eigenpairs=7, key=jr.key(0))

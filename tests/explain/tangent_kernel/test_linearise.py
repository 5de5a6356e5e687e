"""The Taylor model against its definition, `numpy.linalg.pinv`, and gradient descent."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from contracts import normal

from thetax import tree
from thetax.core import predict
from thetax.explain import linearise, ntk
from thetax.layers import Linear, tanh
from thetax.models import MLP
from thetax.train import Silent, descend, fit, squared_error

pytestmark = pytest.mark.usefixtures("x64")


@pytest.fixture
def model():
    return MLP.init(3, 5, 2, activation=tanh, key=jr.key(0))


def design(model, xs):
    """The rows are gradients, one for each example and output."""
    theta, back = tree.ravel(model)
    return np.asarray(jax.jacrev(lambda theta: predict(back(theta), xs).ravel())(theta))


@pytest.mark.slow
def test_it_is_affine_with_the_gradient_as_slope(model):
    x = normal(1, 3)
    beta = tree.normal_like(jr.key(2), model)
    h = linearise(model)
    moved = lambda factor: type(h)(tree.axpy(factor, beta, h.beta), h.origin)
    np.testing.assert_allclose(h(x), model(x))
    slope = design(model, x[None]) @ np.asarray(tree.ravel(beta)[0])
    np.testing.assert_allclose(moved(1.0)(x) - model(x), slope, rtol=1e-10)
    np.testing.assert_allclose(moved(3.0)(x) - model(x), 3 * slope, rtol=1e-10)


@pytest.mark.slow
def test_the_error_is_of_second_order(model):
    x = normal(1, 3)
    beta = tree.normal_like(jr.key(2), model)
    h = linearise(model)
    sizes = np.array([1e-1, 1e-2, 1e-3])
    near = [type(h)(tree.axpy(size, beta, h.beta), h.origin) for size in sizes]
    errors = [float(jnp.linalg.norm(h(x) - h.theta()(x))) for h in near]
    assert np.polyfit(np.log(sizes), np.log(errors), 1)[0] == pytest.approx(2, abs=0.1)


def test_linear_model_equals_its_linearisation(model):
    line = Linear.init(3, 2, key=jr.key(0))
    h = linearise(line)
    moved = type(h)(tree.normal_like(jr.key(1), line), h.origin)
    np.testing.assert_allclose(moved(normal(1, 3)), moved.theta()(normal(1, 3)), rtol=1e-12)


def test_kernel_of_the_linearised_model_is_that_of_the_model(model):
    xs = normal(1, 4, 3)
    h = linearise(model)
    moved = type(h)(tree.normal_like(jr.key(1), model), h.origin)
    np.testing.assert_allclose(ntk(moved)(xs), ntk(model)(xs), rtol=1e-9)


@pytest.mark.slow
def test_minimum_norm_solution(model):
    """As the pseudo-inverse has it; a vector that no example notices makes it longer and changes no
    output.
    """
    xs = normal(1, 4, 3)
    ys = normal(2, 4, 2)
    Phi = design(model, normal(1, 4, 3))
    h = linearise(model).solve(xs, ys)
    beta = np.asarray(tree.ravel(h.beta)[0])
    np.testing.assert_allclose(predict(h, xs), ys, atol=1e-9)
    np.testing.assert_allclose(
        beta, np.linalg.pinv(Phi) @ (ys - predict(model, xs)).ravel(), atol=1e-9
    )


@pytest.mark.slow
def test_ridge(model):
    xs = normal(1, 20, 3)
    ys = normal(2, 20, 2)
    Phi = design(model, normal(1, 20, 3))
    beta = tree.ravel(linearise(model).solve(xs, ys, ridge=0.3).beta)[0]
    r = (ys - predict(model, xs)).ravel()
    np.testing.assert_allclose(
        beta, np.linalg.solve(Phi.T @ Phi + 0.3 * np.eye(len(beta)), Phi.T @ r), atol=1e-9
    )


@pytest.mark.slow
def test_fewer_parameters_than_observations():
    """Least squares; the kernel is singular, and a warning says what is not fitted."""
    line = Linear.init(2, 1, key=jr.key(0))
    xs = normal(1, 9, 2)
    ys = normal(2, 9, 1)
    with pytest.warns(
        UserWarning, match="6 of 9 eigenvalues of the kernel are zero up to rounding"
    ):
        h = linearise(line).solve(xs, ys)
    A = np.concatenate([xs, np.ones((9, 1))], axis=1)
    np.testing.assert_allclose(predict(h, xs), A @ np.linalg.lstsq(A, ys)[0], atol=1e-9)


@pytest.mark.slow
def test_it_trains_with_fit():
    """Full-batch gradient descent from 0 ends where the closed form is."""
    line = Linear.init(3, 1, key=jr.key(0))
    xs = normal(1, 2, 3)
    ys = normal(2, 2, 1)
    h = linearise(line)
    found = fit(
        descend(squared_error, optax.sgd(0.3)),
        h,
        (xs, ys),
        epochs=400,
        batch_size=2,
        key=jr.key(0),
        progress=Silent(),
    )
    np.testing.assert_allclose(
        tree.ravel(found.model.beta)[0], tree.ravel(h.solve(xs, ys).beta)[0], atol=1e-6
    )
    np.testing.assert_array_equal(h.origin.model.W, line.W)


def test_model_is_traced_once(model):
    traces = []

    @jax.jit
    def call(h, x):
        traces.append(None)
        return h(x)

    call(linearise(model), normal(1, 3))
    call(linearise(model), normal(2, 3))
    assert len(traces) == 1


def test_bad_input(model, unchecked):
    with pytest.raises(
        ValueError, match="linearise: all parameters of the model must be floating-point arrays"
    ):
        linearise(jnp.sin)
    with pytest.raises(
        ValueError, match=r"ys has shape \(4,\); expected that of the outputs, \(4, 2\)"
    ):
        linearise(model).solve(normal(1, 4, 3), normal(2, 4))
    with pytest.raises(ValueError, match=r"ridge must be finite and >= 0; got -1\.0"):
        linearise(model).solve(normal(1, 4, 3), normal(2, 4, 2), ridge=-1.0)
    with pytest.raises(
        ValueError, match="ys contains NaN or infinity; drop or impute these rows first"
    ):
        linearise(model).solve(normal(1, 4, 3), jnp.full((4, 2), jnp.nan))
    with pytest.raises(ValueError, match="xs: expected finite numbers"):
        linearise(model).solve(jnp.full((4, 3), jnp.nan), normal(2, 4, 2))

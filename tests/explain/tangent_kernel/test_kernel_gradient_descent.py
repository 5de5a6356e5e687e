"""Training with a constant kernel, in closed form, against the training of a linearised network
itself.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
import scipy.linalg
from contracts import normal

from thetax.bayes import GaussianProcess
from thetax.core import predict
from thetax.explain import (
    infinite_width_limit,
    kernel_ensemble,
    kernel_gradient_descent,
    kernel_gradient_flow,
    linearise,
    ntk,
)
from thetax.explain.tangent_kernel.kernel_gradient_descent import TrainingDynamics
from thetax.layers import BatchNorm, ntk_parametrisation, tanh
from thetax.models import MLP
from thetax.train import cross_entropy, gradient_flow, log_loss, squared_error, squared_loss

pytestmark = pytest.mark.usefixtures("x64")

XS, YS, NEW = (
    np.asarray(normal(*shape), np.float64) for shape in ((1, 4, 3), (2, 4, 2), (3, 3, 3))
)


@pytest.fixture(scope="module")
def model():
    with jax.enable_x64(True):
        return MLP.init(3, 5, 2, activation=tanh, key=jr.key(0))


def descended(model, optimiser, steps):
    """The outputs at XS and at NEW of the linearised network, step by step."""
    h = linearise(model)
    state = optimiser.init(h)
    path = []

    @jax.jit
    def step(h, state):
        updates, state = optimiser.update(jax.grad(squared_error)(h, (XS, YS)), state)
        return optax.apply_updates(h, updates), state

    for _ in range(steps + 1):
        path.append((predict(h, XS), predict(h, NEW)))
        h, state = step(h, state)
    return [np.stack(part) for part in zip(*path)]


@pytest.mark.slow
@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_steps_are_those_of_gradient_descent_along_the_whole_path(model, momentum):
    seen, new = descended(model, optax.sgd(0.4, momentum), 30)
    lazy = kernel_gradient_descent(
        ntk(model), XS, YS, initial_model=model, learning_rate=0.4, momentum=momentum
    )
    np.testing.assert_allclose(lazy(np.arange(31)), seen, atol=1e-10)
    np.testing.assert_allclose(lazy(np.arange(31), NEW), new, atol=1e-10)
    np.testing.assert_allclose(lazy.loss(30), np.square(seen[-1] - YS).sum() / 8, rtol=1e-9)


@pytest.mark.slow
def test_the_flow_is_that_of_the_linearised_network(model):
    times = [0.0, 0.5, 4.0]
    flow = gradient_flow(squared_error, linearise(model), (XS, YS), times=times, tolerance=1e-9)
    lazy = kernel_gradient_descent(ntk(model), XS, YS, initial_model=model)
    np.testing.assert_allclose(
        lazy(times, NEW), jax.vmap(lambda h: predict(h, NEW))(flow.models), atol=1e-7
    )
    np.testing.assert_allclose(lazy.loss(times), flow.losses, atol=1e-7)
    K = np.asarray(ntk(model)(XS)).transpose(0, 2, 1, 3).reshape(8, 8)
    left = scipy.linalg.expm(-K * 4.0 / 4) @ np.asarray(predict(model, XS) - YS).ravel()
    np.testing.assert_allclose(lazy(4.0).ravel(), YS.ravel() + left, atol=1e-10)


@pytest.mark.slow
def test_infinite_time_is_the_minimum_norm_solution(model):
    lazy = kernel_gradient_descent(ntk(model), XS, YS, initial_model=model)
    np.testing.assert_allclose(lazy(np.inf), YS, atol=1e-9)
    np.testing.assert_allclose(
        lazy(np.inf, NEW), predict(linearise(model).solve(XS, YS), NEW), atol=1e-9
    )
    np.testing.assert_allclose(lazy(1e9, NEW), lazy(np.inf, NEW), atol=1e-6)


def test_one_kernel_for_all_outputs(model):
    """As the same kernel for each by itself."""
    kernel = ntk(model, form="trace")
    both = kernel_gradient_descent(kernel, XS, YS)
    first = kernel_gradient_descent(kernel, XS, YS[:, 0])
    np.testing.assert_allclose(both([1.0, 3.0], NEW)[..., 0], first([1.0, 3.0], NEW), rtol=1e-10)
    assert first(1.0, NEW).shape == (3,)


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "ys"), [(squared_loss, YS), (log_loss, jnp.array([0, 1, 1, 0]))])
def test_any_loss(model, loss, ys):
    """As the linearised network's own flow; with the squared loss, as the closed form."""
    times = [0.0, 1.0, 5.0]
    found = kernel_gradient_flow(
        ntk(model), loss, XS, ys, times=times, initial_model=model, tolerance=1e-9
    )
    objective = squared_error if loss is squared_loss else cross_entropy
    flow = gradient_flow(objective, linearise(model), (XS, ys), times=times, tolerance=1e-9)
    np.testing.assert_allclose(
        found.outputs, jax.vmap(lambda h: predict(h, XS))(flow.models), atol=1e-7
    )
    np.testing.assert_allclose(
        found.predict(NEW), jax.vmap(lambda h: predict(h, NEW))(flow.models), atol=1e-7
    )
    np.testing.assert_allclose(found.losses, flow.losses, atol=1e-7)


def test_flow_from_zero_outputs():
    """Its outputs are (1 - exp(-K t / n)) Y at the examples, for the squared loss."""

    def kernel(xs, zs=None):
        return jnp.exp(-jnp.square(xs[:, None] - (xs if zs is None else zs)).sum(axis=-1))

    found = kernel_gradient_flow(
        kernel, squared_loss, XS, YS, times=[2.0], output_shape=(2,), tolerance=1e-9
    )
    left = scipy.linalg.expm(-2.0 / len(XS) * np.asarray(kernel(XS))) @ YS
    np.testing.assert_allclose(found.outputs[0], YS - left, atol=1e-7)
    np.testing.assert_allclose(
        found.predict(NEW), kernel_gradient_descent(kernel, XS, YS)([2.0], NEW), atol=1e-7
    )


@pytest.fixture(scope="module")
def limit():
    with jax.enable_x64(True):
        return infinite_width_limit(
            MLP.init(
                3, 8, 8, 1, initialiser=ntk_parametrisation(weight=2**0.5, bias=0.1), key=jr.key(0)
            )
        )


@pytest.mark.slow
def test_the_last_layer_alone_ends_as_the_gaussian_process(limit):
    found = kernel_ensemble(limit.nngp, limit.nngp, XS, YS[:, 0])(np.inf, NEW)
    posterior = GaussianProcess.init(limit.nngp).condition(XS, YS[:, 0])
    np.testing.assert_allclose(found.mean, posterior.mean(NEW), atol=1e-8)
    np.testing.assert_allclose(found.covariance, posterior.covariance(NEW), atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting", [{}, {"learning_rate": 0.1}, {"learning_rate": 0.1, "momentum": 0.5}]
)
def test_covariance_is_that_of_trained_samples(limit, setting):
    """Each draw of the process at the start is trained by itself: its mean and covariance, within 4
    standard errors.
    """
    t = 7.0
    count = 4000
    rng = np.random.default_rng(0)
    everywhere = jnp.concatenate([XS, NEW])
    draws = rng.multivariate_normal(np.zeros(7), np.asarray(limit.nngp(everywhere)), count).T
    lazy = kernel_gradient_descent(limit.ntk, XS, YS[:, :1] - draws[:4], **setting)
    trained = draws[4:] + lazy(t, NEW)
    found = kernel_ensemble(limit.nngp, limit.ntk, XS, YS[:, 0], **setting)(t, NEW)
    error = found.std / np.sqrt(count)
    assert (np.abs(trained.mean(1) - found.mean) < 4 * error).all()
    scale = np.outer(found.std, found.std)
    assert (np.abs(np.cov(trained) - found.covariance) < 4 * scale * np.sqrt(2 / count)).all()


def test_covariance_at_initialisation_and_at_several_times(limit):
    ensemble = kernel_ensemble(limit.nngp, limit.ntk, XS, YS)
    found = ensemble([0.0, 3.0], NEW)
    np.testing.assert_allclose(found.covariance[0], limit.nngp(NEW), atol=1e-12)
    np.testing.assert_allclose(found.mean[0], np.zeros((3, 2)), atol=1e-12)
    assert found.covariance.shape == (2, 3, 3)
    np.testing.assert_allclose(found.covariance[1], ensemble(3.0, NEW).covariance, atol=1e-12)
    np.testing.assert_allclose(ensemble(np.inf).std, np.zeros(4), atol=1e-6)


def test_the_same_example_twice(model):
    """Two observations of the same example: their mean is fitted, with a warning."""
    xs = XS[jnp.array([0, 0, 1])]
    ys = jnp.array([[1.0], [3.0], [0.0]])
    lazy = kernel_gradient_descent(ntk(model, form="trace"), xs, ys)
    with pytest.warns(
        UserWarning, match="1 of 3 eigenvalues of the kernel are zero up to rounding"
    ):
        np.testing.assert_allclose(lazy(np.inf), [[2.0], [2.0], [0.0]], atol=1e-8)


def test_bad_input(model, limit, unchecked):
    kernel = ntk(model)
    for setting, message in (
        ({"learning_rate": 0.0}, r"learning_rate must be positive and finite; got 0\.0"),
        (
            {"momentum": 0.5},
            r"gradient flow has no momentum; got momentum=0\.5\. Give a learning_rate too",
        ),
        ({"learning_rate": 0.1, "momentum": 1.0}, r"momentum must lie in \[0, 1\); got 1\.0"),
    ):
        with pytest.raises(ValueError, match=message):
            kernel_gradient_descent(kernel, XS, YS, initial_model=model, **setting)
    with pytest.raises(
        ValueError, match=r"ys has shape \(4,\); expected that of the outputs, \(4, 2\)"
    ):
        kernel_gradient_descent(kernel, XS, YS[:, 0], initial_model=model)
    with pytest.raises(
        ValueError,
        match=r"expected a matrix of shape \(4, 4\) or \(4, 4, 1, 1\); got \(4, 4, 2, 2\)",
    ):
        kernel_gradient_descent(kernel, XS, YS[:, 0])
    lazy = kernel_gradient_descent(kernel, XS, YS, initial_model=model, learning_rate=100.0)
    with pytest.raises(ValueError, match="learning_rate=100 diverges"):
        lazy(np.inf)
    with pytest.raises(
        ValueError,
        match=r"times are numbers of steps and must be integers; got \[0\.5\]",
    ):
        lazy(0.5)
    with pytest.raises(ValueError, match=r"expected at least one time, all >= 0; got \[-1\.0\]"):
        lazy(-1)
    with pytest.raises(ValueError, match=r"expected at least one time, all >= 0; got \[\]"):
        lazy([])
    with pytest.raises(
        ValueError, match=r"kernel_gradient_descent: kernel must be a.*got InfiniteWidthLimit"
    ):
        kernel_gradient_descent(limit, XS, YS)
    with pytest.raises(
        ValueError,
        match=r"kernel_ensemble: nngp must be a function k\(xs, ys=None\); got InfiniteWidthLimit",
    ):
        kernel_ensemble(limit, limit.ntk, XS, YS)
    with pytest.raises(
        ValueError, match="kernel_ensemble: both kernels must be a scalar for a pair of examples"
    ):
        kernel_ensemble(limit.nngp, kernel, XS, YS)
    for given in ({}, {"initial_model": model, "output_shape": (2,)}):
        with pytest.raises(
            ValueError,
            match="kernel_gradient_flow: give either initial_model or output_shape, and not both",
        ):
            kernel_gradient_flow(kernel, squared_loss, XS, YS, times=[1.0], **given)
    with pytest.raises(
        ValueError, match=r"kernel_gradient_flow: xs has 4 examples, but ys has shape \(3, 2\)"
    ):
        kernel_gradient_flow(kernel, squared_loss, XS, YS[:3], times=[1.0], initial_model=model)
    with pytest.raises(
        ValueError, match=r"the loss of one example must be a scalar; got shape \(2,\)"
    ):
        kernel_gradient_flow(kernel, lambda f, y: f, XS, YS, times=[1.0], initial_model=model)
    with pytest.raises(
        ValueError, match=r"kernel_gradient_descent: xs has 4 examples, but ys has shape \(3,\)"
    ):
        kernel_ensemble(limit.nngp, limit.ntk, XS, YS[:3, 0])
    with pytest.raises(
        ValueError,
        match=r"depend on the batch; use fold_batch_norm\(initial_model, xs\) first",
    ):
        kernel_gradient_descent(
            kernel, XS, YS, initial_model=MLP.init(3, 5, 2, normalise=BatchNorm.init, key=jr.key(0))
        )


def test_the_spectral_filter_at_an_eigenvalue_of_zero_is_its_limit():
    """Gradient flow moves by t where the kernel is zero; descent by η for each step."""
    eigenvalues = np.array([0.0, 1e-9, 2.0])
    flow = TrainingDynamics(None, 0.0).spectral_filter(eigenvalues, 3.0)
    np.testing.assert_allclose(flow, [3.0, 3.0, (1 - np.exp(-6.0)) / 2], rtol=1e-8)
    descent = TrainingDynamics(0.1, 0.0).spectral_filter(eigenvalues, 5.0)
    np.testing.assert_allclose(descent, [0.5, 0.5, (1 - 0.8**5) / 2], rtol=1e-8)

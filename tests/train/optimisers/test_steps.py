"""The course's optimisers against their formulas written as loops, and against Optax."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from contracts import close, normal
from hypothesis import given
from hypothesis import strategies as st

from thetax import train
from thetax.core import run
from thetax.models import MLP
from thetax.train import Silent, cross_entropy, descend, fit, nesterov_iterate

STEPS = 40
H = np.array([[1.5, 0.4, 0.0], [0.4, 0.8, 0.2], [0.0, 0.2, 0.3]])
START = np.array([1.0, -2.0, 0.5])
share = st.floats(0, 0.98)


def bowl(theta, batch=None, key=None):
    return theta @ jnp.asarray(H) @ theta / 2


def path(optimiser, keep=nesterov_iterate):
    return run(
        descend(bowl, optimiser), jnp.asarray(START), jnp.zeros(STEPS), key=jr.key(0), record=keep
    )[1][0]


def model(state):
    return state.model


@jax.jit
def paths(rate, beta):
    """All at once, so that another rate needs no other program."""
    optimiser = train.nesterov(rate, momentum=beta)
    return {
        "heavy ball": path(train.heavy_ball(rate, momentum=beta)),
        "nesterov": path(optimiser),
        "ahead": path(optimiser, keep=model),
        "optax": path(optax.sgd(rate, momentum=beta, nesterov=True), keep=model),
    }


@pytest.mark.usefixtures("x64")
@given(rate=st.floats(0.01, 0.5), beta=share)
def test_heavy_ball_is_the_course_s(rate, beta):
    theta = START
    before = START
    expected = []
    for _ in range(STEPS):
        theta, before = theta - rate * H @ theta + beta * (theta - before), theta
        expected.append(theta)
    assert np.allclose(paths(rate, beta)["heavy ball"], expected, rtol=1e-8, atol=1e-10)


@pytest.mark.usefixtures("x64")
@given(rate=st.floats(0.01, 0.5), beta=share)
def test_nesterov_is_the_course_s(rate, beta):
    theta = START
    before = START
    expected = []
    ahead = []
    for _ in range(STEPS):
        chi = theta + beta * (theta - before)
        theta, before = chi - rate * H @ chi, theta
        expected.append(theta)
        ahead.append(theta + beta * (theta - before))
    found = paths(rate, beta)
    assert np.allclose(found["nesterov"], expected, rtol=1e-8, atol=1e-10)
    assert np.allclose(found["ahead"], ahead, rtol=1e-8, atol=1e-10)
    assert np.allclose(found["ahead"], found["optax"], rtol=1e-8, atol=1e-10)


@pytest.mark.usefixtures("x64")
def test_schedules_of_rate_and_momentum():
    """η_t counts from 0; β_t is that of χ^{t+1} = θ^t + β_t(θ^t − θ^{t−1}), so β₀ never shows."""
    rate = lambda t: 0.5 / (1 + t)
    beta = lambda t: (t - 1) / (t + 2)
    theta = START
    before = START
    expected = []
    for t in range(STEPS):
        chi = theta + beta(t) * (theta - before)
        theta, before = chi - rate(t) * H @ chi, theta
        expected.append(theta)
    assert np.allclose(path(train.nesterov(rate, momentum=beta)), expected, atol=1e-6)


@pytest.mark.usefixtures("x64")
def test_the_iterate_is_found_inside_a_chain():
    clipped = optax.chain(optax.clip(1e3), train.nesterov(0.1, momentum=0.5))
    assert np.allclose(path(clipped), path(train.nesterov(0.1, momentum=0.5)), atol=1e-6)
    assert not np.allclose(path(clipped), path(clipped, keep=model), atol=1e-3)
    plain = descend(bowl, optax.sgd(0.1)).init(jnp.asarray(START))
    assert nesterov_iterate(plain) is plain.model


def stream(optimiser, gradients):
    def body(memory, g):
        step, memory = optimiser.update(g, memory, g)
        return memory, step

    return np.asarray(jax.lax.scan(body, optimiser.init(gradients[0]), jnp.asarray(gradients))[1])


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("delta", [0.0, 1e-8, 0.3])
def test_adaptive_methods_are_their_loops(delta):
    g = np.asarray(normal(3, STEPS, 3)) * np.array([1e-3, 1.0, 1e3])
    gamma = np.zeros(3)
    ada = []
    for row in g:
        gamma = gamma + row**2
        ada.append(-0.1 * row / (np.sqrt(gamma) + delta))
    assert np.allclose(stream(train.adagrad(0.1, eps=delta), g), ada, rtol=1e-10)
    m = fading = np.zeros(3)
    rms = []
    raw = []
    corrected = []
    for t, row in enumerate(g, start=1):
        m = 0.8 * m + 0.2 * row
        fading = 0.95 * fading + 0.05 * row**2
        rms.append(-0.1 * row / (np.sqrt(fading) + delta))
        raw.append(-0.1 * m / (np.sqrt(fading) + delta))
        corrected.append(-0.1 * (m / (1 - 0.8**t)) / (np.sqrt(fading / (1 - 0.95**t)) + delta))
    constants = {"beta1": 0.8, "beta2": 0.95, "eps": delta}
    assert np.allclose(stream(train.rmsprop(0.1, decay=0.95, eps=delta), g), rms, rtol=1e-10)
    assert np.allclose(stream(train.uncorrected_adam(0.1, **constants), g), raw, rtol=1e-10)
    assert np.allclose(stream(train.adam(0.1, **constants), g), corrected, rtol=1e-10)


@pytest.mark.usefixtures("x64")
def test_the_corrected_average_is_the_uncorrected_one_rescaled():
    """Adam with its bias corrected is the uncorrected one with the rate η √(1 − α^t) / (1 − β^t),
    for δ = 0.
    """
    g = np.asarray(normal(4, STEPS, 3))
    rate = lambda t: 0.1 * jnp.sqrt(1 - 0.999 ** (t + 1.0)) / (1 - 0.9 ** (t + 1.0))
    assert np.allclose(
        stream(train.uncorrected_adam(rate, eps=0.0), g), stream(train.adam(0.1, eps=0.0), g)
    )


def test_a_coordinate_without_gradient_stays():
    """0/0 is no step, and no NaN."""
    g = np.array([[0.0, 1.0]] * 3)
    for optimiser in (train.adagrad(0.1, eps=0.0), train.uncorrected_adam(0.1, eps=0.0)):
        steps = stream(optimiser, g)
        assert np.isfinite(steps).all()
        assert (steps[:, 0] == 0).all()
        assert (steps[:, 1] < 0).all()


@pytest.mark.parametrize(
    "optimiser",
    [
        train.heavy_ball(0.1, momentum=0.9),
        train.nesterov(0.1, momentum=0.9),
        train.adagrad(0.1),
        train.rmsprop(0.01),
        train.adam(0.01),
        train.uncorrected_adam(0.003),
    ],
    ids=["heavy_ball", "nesterov", "adagrad", "rmsprop", "adam", "uncorrected_adam"],
)
def test_each_trains_a_network(optimiser):
    xs = normal(5, 128, 2)
    data = xs, (xs[:, 0] * xs[:, 1] > 0).astype(jnp.int32)
    found = fit(
        descend(cross_entropy, optimiser),
        MLP.init(2, 16, 2, key=jr.key(0)),
        data,
        epochs=60,
        batch_size=32,
        key=jr.key(1),
        progress=Silent(),
    )
    assert found.history["train loss"][-1] < 0.5 * found.history["train loss"][0]


def test_works_in_half_precision():
    theta = jnp.asarray(START, "bfloat16")
    for optimiser in (
        train.nesterov(0.1, momentum=0.9),
        train.adagrad(0.1),
        train.uncorrected_adam(0.1),
    ):
        step, memory = optimiser.update(theta, optimiser.init(theta), theta)
        assert step.dtype == jnp.bfloat16
        assert close(
            jax.tree.map(jnp.shape, memory), jax.tree.map(jnp.shape, optimiser.init(theta))
        )


@pytest.mark.parametrize(
    "make",
    [
        lambda: train.heavy_ball(0.1, momentum=1.0),
        lambda: train.nesterov(0.1, momentum=-0.1),
        lambda: train.rmsprop(0.1, decay=1.0),
        lambda: train.adam(0.1, beta1=1.5),
        lambda: train.uncorrected_adam(0.1, beta2=2.0),
    ],
)
def test_shares_outside_the_unit_interval_are_refused(make):
    with pytest.raises(ValueError, match=r"must be in \[0, 1\)"):
        make()


def test_nesterov_says_that_it_needs_the_model():
    optimiser = train.nesterov(0.1, momentum=0.9)
    with pytest.raises(ValueError, match="update needs the parameters"):
        optimiser.update(jnp.ones(2), optimiser.init(jnp.ones(2)))

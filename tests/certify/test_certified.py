"""Certified accuracy: no attack breaks a certificate, and certified training yields more."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from contracts import normal
from sklearn.datasets import load_digits

from thetax.attack import PGD, margin_loss, perturb
from thetax.certify import (
    certified_accuracy,
    certified_margins,
    certified_radii,
    interval_bounds,
    interval_cross_entropy,
    scheduled_objective,
)
from thetax.core import predict, run
from thetax.layers import Linear
from thetax.models import MLP
from thetax.threat import L2, Linf
from thetax.train import cross_entropy, descend, log_loss

BOX = (0.0, 1.0)


@pytest.fixture(scope="module")
def digits():
    xs, ys = load_digits(return_X_y=True)
    xs = jnp.asarray(xs / 16, jnp.float32)
    ys = jnp.asarray(ys, jnp.int32)
    rows = jr.randint(jr.key(0), (300, 128), 0, 1400)
    return (xs[rows], ys[rows]), (xs[1500:], ys[1500:])


@pytest.fixture(scope="module")
def net():
    return MLP.init(64, 32, 32, 10, key=jr.key(0))


@pytest.fixture(scope="module")
def plain(digits, net):
    return run(descend(cross_entropy, optax.adam(3e-3)), net, digits[0], key=jr.key(1))[0].model


@pytest.fixture(scope="module")
def hard(digits, net):
    objective = lambda t: interval_cross_entropy(Linf(0.1 * t), box=BOX, strength=0.5 * t)
    return run(
        scheduled_objective(objective, optax.adam(3e-3), steps=200), net, digits[0], key=jr.key(1)
    )[0].model


@pytest.mark.slow
def test_training_on_the_bound_certifies_what_plain_training_does_not(digits, plain, hard):
    ball = Linf(0.08)
    before = certified_accuracy(
        plain, digits[1], ball, box=BOX, bounds="interval", batch_size=297
    ).accuracy
    after = certified_accuracy(
        hard, digits[1], ball, box=BOX, bounds="interval", batch_size=297
    ).accuracy
    clean = float((predict(hard, digits[1][0]).argmax(1) == digits[1][1]).mean())
    assert before < 0.02
    assert 0.5 < after <= clean


@pytest.mark.slow
def test_no_attack_breaks_a_certificate_and_better_bounds_certify_more(digits, plain):
    """And certified accuracy is at most the accuracy under attack."""
    xs = digits[1][0][:64]
    ys = digits[1][1][:64]
    ball = Linf(0.03)
    found = {
        b: certified_accuracy(plain, (xs, ys), ball, box=BOX, bounds=b, batch_size=64)
        for b in ("interval", "mixed", "linear")
    }
    worst = perturb(plain, (xs, ys), PGD(margin_loss, ball, step_size=0.006, steps=20, box=BOX)).xs
    reached = -np.asarray(jax.vmap(margin_loss)(predict(plain, worst), ys))
    for one in found.values():
        assert (one.margins <= reached + 1e-4).all()
        assert one.accuracy == (one.margins > 0).mean()
    assert (found["mixed"].margins >= found["interval"].margins - 1e-4).all()
    assert (
        found["interval"].accuracy
        < found["mixed"].accuracy
        <= found["linear"].accuracy
        <= (reached > 0).mean()
    )


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("bounds", ["interval", "mixed", "linear"])
def test_margins_of_an_affine_classifier_are_exact(bounds):
    """z_y − z_j − ε‖w_y − w_j‖, though the intervals of the logits are wide."""
    model = Linear.init(4, 3, key=jr.key(0))
    x = normal(0, 4)
    ball = L2(0.7)
    found = jax.jit(lambda x, y: certified_margins(model, x, y, ball, bounds=bounds))(
        x, jnp.array(1)
    )
    z = np.asarray(model(x))
    W = np.asarray(model.W)
    expected = z[1] - z - 0.7 * np.linalg.norm(W[1][None] - W, axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_the_last_layer_is_merged_with_the_difference():
    """As in Gowal et al.: |w_y − w_j| on the radius of the last hidden layer."""
    net = MLP.init(3, 6, 4, key=jr.key(2))
    x = normal(1, 3)
    r = 0.2
    low, high = interval_bounds(lambda x: jax.nn.relu(net.body.layers[0](x)), x - r, x + r)
    V = np.asarray(net.body.layers[-1].W)
    a = np.asarray(net.body.layers[-1].b)
    rows = V[2][None] - V
    offsets = a[2] - a
    expected = rows @ ((low + high) / 2) + offsets - np.abs(rows) @ ((high - low) / 2)
    found = certified_margins(net, x, jnp.array(2), Linf(r), bounds="interval")
    np.testing.assert_allclose(found, expected, atol=1e-12)
    objective = interval_cross_entropy(Linf(r), strength=0.25)
    batch = x[None], jnp.array([2])
    both = 0.75 * log_loss(net(x), jnp.array(2)) + 0.25 * np.log(np.exp(-expected).sum())
    assert float(objective(net, batch)) == pytest.approx(float(both), rel=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("bounds", ["interval", "mixed", "linear"])
def test_a_logit_that_may_be_nan_or_overflow_has_no_certificate(bounds):
    """For any class: the argmax of logits with a NaN is the NaN."""
    x = jnp.array([0.2])
    y = jnp.array(0)
    margins = lambda f: certified_margins(f, x, y, Linf(0.5), bounds=bounds).tolist()
    three = lambda z: jnp.concatenate([jnp.array([10.0]), z, jnp.array([1.0])])
    assert margins(lambda x: three(jnp.sqrt(x))) == [0.0, -np.inf, 9.0]
    assert margins(lambda x: three(jnp.tanh(x / x))) == [0.0, -np.inf, 9.0]
    assert (
        margins(lambda x: three(-jnp.exp(2000 * x) * jnp.exp(2000 * x) + jnp.exp(2000 * x)))[1]
        == -np.inf
    )
    assert margins(lambda x: jnp.concatenate([jnp.log(x), jnp.zeros(1)])) == [0.0, -np.inf]
    both = lambda x: jnp.exp(2000 * x)
    assert margins(lambda x: jnp.concatenate([both(x) + 1, both(x)])) == [0.0, -np.inf]
    masked = lambda x: jnp.where(
        np.array([True, False]), x, -jnp.inf
    )  # a known value: the class is excluded
    assert margins(lambda x: masked(jnp.concatenate([x, x]))) == [0.0, np.inf]


@pytest.mark.parametrize("bounds", ["interval", "linear"])
def test_model_that_does_not_depend_on_its_input(bounds):
    model = lambda x: jnp.array([3.0, 1.0, 2.5])
    found = certified_margins(model, jnp.zeros(2), jnp.array(2), Linf(0.1), bounds=bounds)
    assert found.tolist() == [-0.5, 1.5, 0.0]


def test_ramp_objective():
    """The objective is t times the sum of the weights, so SGD with learning rate 1 subtracts t."""
    objective = lambda t: lambda model, batch, *, key=None: t * model.sum()
    iteration = scheduled_objective(objective, optax.sgd(1.0), start_step=1, steps=2)
    _, (kept, _) = run(
        iteration, jnp.zeros(1), jnp.zeros((5, 1)), key=jr.key(0), record=lambda state: state.model
    )
    np.testing.assert_allclose(np.diff(kept[:, 0], prepend=0.0), [0, 0, -0.5, -1, -1], atol=1e-7)


def test_bad_input_is_refused(unchecked):
    line = Linear(jnp.eye(2), jnp.zeros(2))
    data = (jnp.ones((3, 2)), jnp.zeros(3, int))
    unknown: Any = "exact"
    with pytest.raises(
        ValueError, match="bounds must be one of interval, mixed, linear; got 'exact'"
    ):
        certified_accuracy(line, data, Linf(0.1), bounds=unknown)
    with pytest.raises(ValueError, match=r"expected inputs from 0\.0 to 0\.5"):
        certified_accuracy(line, data, Linf(0.1), box=(0.0, 0.5))
    with pytest.raises(
        ValueError,
        match="certified_accuracy: ys: expected integer labels from 0 to 1, but the dtype is float",
    ):
        certified_accuracy(line, (data[0], jnp.zeros(3)), Linf(0.1))
    with pytest.raises(
        ValueError, match="certified_radii: ys: expected integer labels from 0 to 1"
    ):
        certified_radii(line, (data[0], jnp.zeros(3)), Linf, max_radius=1.0)
    with pytest.raises(
        ValueError, match=r"certified_margins: expected an integer label, got float32\(\)"
    ):
        certified_margins(line, jnp.ones(2), jnp.zeros(()), Linf(0.1))
    with pytest.raises(ValueError, match="batch_size must be an integer >= 1"):
        certified_accuracy(line, data, Linf(0.1), batch_size=0)
    with pytest.raises(ValueError, match="strength must lie in"):
        interval_cross_entropy(Linf(0.1), strength=1.5)
    with pytest.raises(ValueError, match="expected integer labels"):
        interval_cross_entropy(Linf(0.1))(line, (jnp.ones((3, 2)), jnp.ones((3, 2))))
    with pytest.raises(ValueError, match="one logit per class"):
        certified_margins(lambda x: x[None], jnp.ones(2), jnp.array(0), Linf(0.1))
    with pytest.raises(ValueError, match="scheduled_objective: steps must be an integer >= 1"):
        scheduled_objective(lambda t: cross_entropy, optax.sgd(1.0), steps=0)
    with pytest.raises(
        ValueError,
        match="certified_accuracy: expected a logit for each class, but the model returns a single",
    ):
        certified_accuracy(lambda x: x[:1], data, Linf(0.1))

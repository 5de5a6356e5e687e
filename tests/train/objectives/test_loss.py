"""Losses against scikit-learn, scipy and closed forms (§2.1, §2.2)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contracts import normal
from scipy import stats
from scipy.special import expit, softmax
from sklearn import metrics

from thetax.layers import Pointwise
from thetax.train import (
    batch_mean,
    binary_cross_entropy,
    binary_error_rate,
    binary_log_loss,
    binary_zero_one_loss,
    cross_entropy,
    error_rate,
    log_loss,
    squared_error,
    squared_loss,
    zero_one_loss,
)

pytestmark = pytest.mark.usefixtures("x64", "strict")
same = Pointwise(lambda x: x)  # a model whose output is its input: a batch of logits


def test_log_loss_in_numpy():
    """−z_y + log Σ exp z for every label, and NaN for one that is no class."""
    z = np.array([0.5, -1.0, 2.0])
    loss = jax.jit(log_loss)
    found = [float(loss(z, np.int32(label))) for label in (0, 1, 2)]
    assert np.allclose(found, np.log(np.exp(z).sum()) - z, rtol=1e-12)
    assert np.isnan(loss(z, np.int32(3)))


def test_squared_error():
    """½‖f − y‖² averaged: half scikit-learn's error times the width; gradient f − y."""
    f = normal(0, 9, 3)
    y = normal(1, 9, 3)
    assert np.isclose(
        squared_error(same, (f, y)), metrics.mean_squared_error(y, f) * 3 / 2, rtol=1e-12
    )
    assert np.allclose(jax.grad(squared_loss)(f[0], y[0]), f[0] - y[0], atol=1e-14)
    assert np.isclose(
        squared_error(same, (f[:, :1], y[:, 0])), metrics.mean_squared_error(y[:, 0], f[:, 0]) / 2
    )


def test_cross_entropy():
    """scikit-learn's log loss of the softmax; gradient softmax − e_y; soft labels agree on one-hot
    ones.
    """
    z = 3 * normal(0, 9, 4)
    y = jnp.arange(9) % 4
    expected = metrics.log_loss(y, softmax(z, axis=1))
    assert np.isclose(cross_entropy(same, (z, y)), expected, rtol=1e-12)
    assert np.isclose(cross_entropy(same, (z, jax.nn.one_hot(y, 4))), expected, rtol=1e-12)
    assert np.allclose(jax.grad(log_loss)(z[0], y[0]), softmax(z[0]) - np.eye(4)[0], atol=1e-14)
    soft = jax.nn.softmax(normal(1, 4))
    assert np.allclose(jax.grad(log_loss)(z[0], soft), softmax(z[0]) - soft, atol=1e-14)


def test_soft_labels_have_least_loss_at_themselves():
    """−Σ p log q is the entropy of p at q = p, and more elsewhere."""
    p = jax.nn.softmax(normal(0, 5))
    assert np.isclose(log_loss(jnp.log(p), p), stats.entropy(p), rtol=1e-12)
    assert log_loss(jnp.log(p) + 0.1 * normal(1, 5), p) > stats.entropy(p)


def test_binary_cross_entropy():
    """The Bernoulli likelihood, the margin form, and the two-class softmax: three routes to one
    number.
    """
    z = 3 * normal(0, 9)
    y = jnp.arange(9) % 2
    found = binary_cross_entropy(same, (z[:, None], y))
    assert np.isclose(found, -stats.bernoulli.logpmf(y, expit(z)).mean(), rtol=1e-12)
    assert np.isclose(
        found, np.logaddexp(0, -(2 * np.asarray(y) - 1) * np.asarray(z)).mean(), rtol=1e-12
    )
    assert np.isclose(
        found, cross_entropy(same, (jnp.stack([jnp.zeros(9), z], axis=1), y)), rtol=1e-12
    )
    assert np.isclose(
        jax.grad(binary_log_loss)(z[0], jnp.array(0.3)), expit(z[0]) - 0.3, atol=1e-14
    )


def test_losses_do_not_overflow():
    """At logits of ±800 and 1e4 the loss is linear and its gradient bounded, in float32 and in half
    precision.
    """
    for dtype in (jnp.float32, jnp.bfloat16):
        z = jnp.array([8192.0, 0.0], dtype)
        assert log_loss(z, jnp.array(1)) == 8192
        assert log_loss(z, jnp.array(0)) == 0
        assert binary_log_loss(jnp.array(-800.0, dtype), jnp.array(1)) == 800
        assert jnp.isfinite(jax.grad(log_loss)(z, jnp.array(1))).all()


def test_half_precision_is_judged_in_float32():
    """A loss of bfloat16 logits is float32, computed from the logits as they are."""
    z = normal(0, 6, 3).astype(jnp.bfloat16)
    y = jnp.arange(6) % 3
    found = cross_entropy(same, (z, y))
    assert found.dtype == jnp.float32
    assert np.isclose(
        found, metrics.log_loss(y, softmax(np.asarray(z, np.float64), axis=1)), rtol=1e-6
    )
    assert squared_loss(z[0], jnp.zeros(3, jnp.float32)).dtype == jnp.float32


def test_error_rates():
    """1 − accuracy of scikit-learn; a soft label counts as its most probable class; z = 0 says
    class 0.
    """
    z = normal(0, 20, 4)
    y = jnp.arange(20) % 4
    assert np.isclose(error_rate(same, (z, y)), 1 - metrics.accuracy_score(y, z.argmax(axis=1)))
    assert error_rate(same, (z, jax.nn.softmax(z))) == 0
    coin = jnp.arange(20) % 2
    assert np.isclose(
        binary_error_rate(same, (z[:, :1], coin)), 1 - metrics.accuracy_score(coin, z[:, 0] > 0)
    )
    assert binary_zero_one_loss(jnp.zeros(1), jnp.array(0)) == 0
    assert zero_one_loss(jnp.array([2.0, 1.0]), jnp.array(1)) == 1


def test_average_is_a_mean_of_losses():
    """Any loss of one example; the mean of the loop."""
    f = normal(0, 5, 2)
    y = normal(1, 5, 2)
    objective = batch_mean(lambda f, y: jnp.abs(f - y).max())
    loop = [np.abs(np.asarray(a - b)).max() for a, b in zip(f, y)]
    assert np.isclose(objective(same, (f, y)), np.mean(loop), rtol=1e-14)


@pytest.mark.parametrize(
    ("loss", "prediction", "y"),
    [
        (log_loss, jnp.zeros(3), jnp.array(1.0)),
        (log_loss, jnp.zeros(3), jnp.ones(2) / 2),
        (squared_loss, jnp.zeros(3), jnp.zeros(2)),
        (binary_log_loss, jnp.zeros(2), jnp.array(1)),
    ],
    ids=["float label", "two of three probabilities", "narrow target", "two logits"],
)
@pytest.mark.usefixtures("unchecked")
def test_labels_that_do_not_fit_are_refused(loss, prediction, y):
    """A class given as a float, or a target of another width, is a ValueError that says what was
    expected.
    """
    with pytest.raises(ValueError, match="expected"):
        loss(prediction, y)

"""Calibration by two routes, on data whose calibration is known, and against scikit-learn."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from sklearn.metrics import log_loss

from thetax.explain import calibration, log_probabilities
from thetax.layers import BatchNorm, Chain, Linear
from thetax.models import MLP

identity = Linear(jnp.eye(4), jnp.zeros(4))  # the example is its own logits


def honest(n, *, key):
    """Logits, and labels sampled from their probabilities."""
    key_z, key_y = jr.split(key)
    z = 2 * jr.normal(key_z, (n, 4))
    return z, jr.categorical(key_y, z)


def test_bins_agree_with_a_loop():
    xs, ys = honest(500, key=jr.key(0))
    found = calibration(identity, (xs, ys), bins=7)
    p = np.asarray(jax.nn.softmax(xs), np.float64)
    error = 0.0
    for b in range(7):
        inside = [i for i in range(500) if b / 7 < p[i].max() <= (b + 1) / 7]
        assert found.count[b] == len(inside)
        if inside:
            c = np.mean([p[i].max() for i in inside])
            a = np.mean([p[i].argmax() == ys[i] for i in inside])
            assert found.confidence[b] == pytest.approx(c)
            assert found.accuracy[b] == pytest.approx(a)
            error += len(inside) / 500 * abs(a - c)
    assert found.error == pytest.approx(error)
    labels = np.asarray(ys)
    misses = [(p[i, j] - (j == labels[i])) ** 2 for i in range(500) for j in range(4)]
    assert found.brier == pytest.approx(sum(misses) / 500)
    assert found.nll == pytest.approx(log_loss(ys, p.astype(np.float32), labels=range(4)), rel=1e-5)


def test_calibration_of_a_calibrated_and_an_overconfident_network():
    data = honest(40_000, key=jr.key(1))
    found = calibration(identity, data)
    seen = found.count > 50
    spread = np.sqrt(found.confidence * (1 - found.confidence) / found.count)[seen]
    assert (np.abs(found.accuracy - found.confidence)[seen] < 4.5 * spread).all()
    assert found.error < 0.01
    assert abs(found.overconfidence) < 0.01
    boastful = calibration(Linear(3 * jnp.eye(4), jnp.zeros(4)), data)
    assert boastful.error > 0.1
    assert boastful.overconfidence == pytest.approx(boastful.error, abs=0.01)
    assert boastful.nll > found.nll
    assert boastful.brier > found.brier


def test_interval_covers_the_accuracy():
    found = calibration(identity, honest(300, key=jr.key(2)))
    low, high = found.interval
    seen = found.count > 0
    assert ((low <= found.accuracy + 1e-12) & (found.accuracy - 1e-12 <= high))[seen].all()
    assert np.isnan(low[~seen]).all()
    a, n = found.accuracy[-1], found.count[-1]  # the ends solve (p - a)² = z² p (1 - p) / n
    assert ((low[-1] - a) ** 2) == pytest.approx(1.96**2 * low[-1] * (1 - low[-1]) / n)


def test_one_logit_is_two_classes():
    xs = jr.normal(jr.key(3), (200, 5))
    ys = jr.bernoulli(jr.key(4), 0.5, (200,))
    one = MLP.init(5, 8, 1, key=jr.key(5))
    last = one.body.layers[-1]
    pair = Linear(
        jnp.concatenate([jnp.zeros_like(last.W), last.W]),
        jnp.concatenate([jnp.zeros_like(last.b), last.b]),
    )
    two = Chain(*one.body.layers[:-1], pair)
    a = calibration(one, (xs, ys.astype(jnp.int32)))
    b = calibration(two, (xs, ys.astype(jnp.int32)))
    assert a.error == pytest.approx(b.error, abs=1e-6)
    assert a.nll == pytest.approx(b.nll, rel=1e-5)
    assert calibration(one, (xs, ys.astype(jnp.float32))).error == a.error


def test_blocks_and_batches():
    """More examples than a block give the same beliefs; a batch norm sees them all."""
    xs = jr.normal(jr.key(6), (2500, 4))
    assert np.allclose(log_probabilities(identity, xs), jax.nn.log_softmax(xs), atol=1e-6)
    normed = Chain(identity, BatchNorm.init(4))
    z = (xs - xs.mean(axis=0)[None]) / jnp.sqrt(xs.var(axis=0) + 1e-5)[None]
    assert np.allclose(log_probabilities(normed, xs), jax.nn.log_softmax(z), atol=1e-4)


def test_regression_is_rejected():
    xs = jnp.ones((3, 4))
    with pytest.raises(ValueError, match="a regression has no classes"):
        calibration(identity, (xs, jnp.array([0.3, 1.0, 2.0])))
    with pytest.raises(ValueError, match="from 0 to 3, got 4"):
        calibration(identity, (xs, jnp.array([0, 1, 4])))
    with pytest.raises(ValueError, match="bins must be an integer >= 1; got 0"):
        calibration(identity, (xs, jnp.array([0, 1, 2])), bins=0)

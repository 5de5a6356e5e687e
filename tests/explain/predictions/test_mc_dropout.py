"""Dropout as an ensemble (§8.4): all masks, sampled masks, and the dropout penalty.

Statistical checks: fixed keys, 4 to 5 s.e., a false alarm in 16,000 or fewer.
"""

import itertools
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import close, normal
from scipy.special import expit, softmax

from thetax import layers
from thetax.explain import dropout_average, dropout_penalty, mc_dropout
from thetax.layers import BatchNorm, Chain, DropConnect, Dropout, Ensemble, Linear
from thetax.models import MLP
from thetax.train import binary_cross_entropy, cross_entropy, squared_error


def masks(units: int, keep: float) -> tuple[np.ndarray, np.ndarray]:
    b = np.array(list(itertools.product([0.0, 1.0], repeat=units)))
    return b, np.prod(np.where(b == 1, keep, 1 - keep), axis=1)


def two_layers(
    seed: int = 0, p: float = 0.4, q: float = 0.25
) -> tuple[Chain, tuple[np.ndarray, ...]]:
    """Dropout of two inputs and of three hidden units, and the weights in float64."""
    V = normal(seed, 3, 2)
    W = normal(seed + 1, 4, 3)
    model = Chain(Dropout(p), Linear(V), layers.tanh, Dropout(q), Linear(W))
    return model, (np.asarray(V, np.float64), np.asarray(W, np.float64))


def test_the_average_is_the_sum_over_all_masks():
    """Two layers of different rates, by a numpy loop over 2² · 2³ masks; the plain output and its
    probabilities.
    """
    model, (V, W) = two_layers()
    xs = normal(2, 3, 2)
    (a, weight_a), (b, weight_b) = masks(2, 0.6), masks(3, 0.75)
    total = np.zeros((3, 4))
    soft = np.zeros((3, 4))
    for first, p in zip(a, weight_a):
        for second, q in zip(b, weight_b):
            z = (np.tanh((np.asarray(xs) * first / 0.6) @ V.T) * second / 0.75) @ W.T
            total += p * q * z
            soft += p * q * softmax(z, axis=1)
    assert np.allclose(dropout_average(model, xs), total, atol=1e-5)
    assert np.allclose(dropout_average(model, xs, of=jax.nn.softmax), soft, atol=1e-5)


def test_masks_of_dropconnect_are_enumerated():
    """DropConnect of a 2 by 3 layer: 64 masks of W by hand."""
    W = normal(0, 2, 3)
    xs = normal(1, 4, 3)
    keep = 0.7
    b, weight = masks(6, keep)
    each = np.tanh(
        np.einsum("sij,nj->sni", b.reshape(-1, 2, 3) * np.asarray(W) / keep, np.asarray(xs))
    )
    model = Chain(DropConnect(Linear(W), 1 - keep), layers.tanh)
    assert np.allclose(dropout_average(model, xs), np.tensordot(weight, each, axes=1), atol=1e-5)


@pytest.mark.slow
def test_samples_agree_with_all_masks():
    """The mean over 4,000 draws is the average over 32 masks within 4.5 of its own errors; and so
    the doubt.
    """
    model, _ = two_layers()
    xs = normal(2, 6, 2)
    found = mc_dropout(model, xs, n_samples=4000, key=jr.key(0))
    p = np.asarray(dropout_average(model, xs, of=jax.nn.softmax), np.float64)
    member = lambda z: -(jax.nn.softmax(z) * jax.nn.log_softmax(z)).sum()
    inside = np.asarray(dropout_average(model, xs, of=member), np.float64)
    entropy = -(p * np.log(p)).sum(axis=1)
    assert np.all(np.abs(found.probability - p) < 4.5 * found.error)
    assert np.all(
        np.abs(found.mutual_information - (entropy - inside))
        < 4.5 * found.mutual_information_error + 1 / 4000
    )
    assert np.allclose(found.entropy, entropy, atol=0.02)
    square = np.asarray(dropout_average(model, xs, of=lambda z: jax.nn.softmax(z) ** 2), np.float64)
    assert np.allclose(found.std, np.sqrt(square - p**2), atol=0.02)


@pytest.mark.slow
def test_uncertainty_splits_into_entropy_and_mutual_information():
    """Against numpy on the very draws: example i, draw s has key split(split(key, n)[i],
    draws)[s].
    """
    model, _ = two_layers()
    xs = normal(2, 5, 2)
    found = mc_dropout(model, xs, n_samples=50, key=jr.key(3))
    z = [[model(x, key=k) for k in jr.split(key, 50)] for x, key in zip(xs, jr.split(jr.key(3), 5))]
    p = softmax(np.array(z, np.float64), axis=-1)  # n s k
    mean = p.mean(axis=1)
    entropy = -(mean * np.log(mean)).sum(axis=1)
    members = -(p * np.log(p)).sum(axis=2).mean(axis=1)
    assert np.allclose(found.probability, mean, atol=1e-6)
    assert np.allclose(found.entropy, entropy, atol=1e-5)
    assert np.allclose(found.mutual_information, entropy - members, atol=1e-5)
    assert np.all(found.mutual_information >= -1e-7)


@pytest.mark.slow
def test_result_does_not_depend_on_the_batch_size(monkeypatch):
    """The same results in batches or at once; the samples of an example depend on its key only."""
    model, _ = two_layers()
    xs = normal(2, 9, 2)
    whole = mc_dropout(model, xs, n_samples=10, key=jr.key(0))
    monkeypatch.setattr(sys.modules["thetax.explain.predictions.mc_dropout"], "MAX_BATCH_SIZE", 4)
    jax.clear_caches()
    blocks = mc_dropout(model, xs, n_samples=10, key=jr.key(0))
    assert np.allclose(whole.probability, blocks.probability, atol=1e-6)


def test_log_odds_count_as_two_classes():
    net = Chain(Dropout(0.5), Linear(jnp.array([[1.0, -2.0]])))
    found = mc_dropout(net, normal(0, 3, 2), n_samples=20, key=jr.key(0))
    assert found.probability.shape == (3, 2)
    assert np.allclose(found.probability.sum(axis=1), 1, atol=1e-6)


@pytest.mark.slow
def test_the_penalty_of_a_linear_model_is_its_quadratic_form():
    """Wager et al. 2013, (6): ½ φ/(1−φ) Σ_j x_j² w_j² for squared errors, exactly, at any rate."""
    w = normal(0, 1, 4)
    xs = normal(1, 10, 4)
    ys = normal(2, 10)
    phi = 0.3
    found = dropout_penalty(
        squared_error, Chain(Dropout(phi), Linear(w)), (xs, ys), n_samples=4000, key=jr.key(0)
    )
    exact = phi / (1 - phi) / 2 * (np.square(np.asarray(xs)) @ np.square(np.asarray(w[0]))).mean()
    assert abs(found.value - exact) < 4 * found.error
    assert abs(found.quadratic - exact) < 4 * found.quadratic_error
    assert found.error < exact / 20


@pytest.mark.slow
def test_the_penalty_of_logistic_regression():
    """All masks of four inputs by hand; the approximation ½ φ/(1−φ) σσ̄ Σ_j x_j² w_j², and near R
    for small φ.
    """
    w = np.asarray(normal(0, 1, 4), np.float64)
    xs = np.asarray(normal(1, 6, 4), np.float64)
    ys = jnp.arange(6) % 2
    batch = jnp.asarray(xs, jnp.float32), ys
    for phi in (0.02, 0.4):
        model = Chain(Dropout(phi), Linear(jnp.asarray(w, jnp.float32)))
        found = dropout_penalty(binary_cross_entropy, model, batch, n_samples=20_000, key=jr.key(0))
        b, weight = masks(4, 1 - phi)
        z = np.einsum("sj,nj,j->sn", b / (1 - phi), xs, w[0])
        loss = lambda z: np.logaddexp(0, z) - np.asarray(ys) * z
        plain = loss(xs @ w[0]).mean()
        s = expit(xs @ w[0])
        quadratic = phi / (1 - phi) / 2 * (s * (1 - s) * (xs**2 @ w[0] ** 2)).mean()
        assert abs(found.value - (weight @ loss(z).mean(axis=1) - plain)) < 4.5 * found.error
        assert abs(found.quadratic - quadratic) < 4.5 * found.quadratic_error
        assert np.isclose(found.objective, plain, rtol=1e-5)
    assert abs(found.value - found.quadratic) > 5 * found.error  # at φ = 0.4 it is an approximation


def with_dropout():
    return MLP.init(3, 6, 2, dropout=0.5, key=jr.key(0))


def with_drop_connect():
    return Chain(DropConnect(MLP.init(3, 4, 2, key=jr.key(0)), 0.3))


@pytest.mark.slow
@pytest.mark.parametrize("make", [with_dropout, with_drop_connect])
def test_the_penalty_of_a_network_is_the_mean_objective_less_the_plain_one(make):
    """The library's own objective with keys, averaged, within the errors of the two."""
    model = make()
    batch = (normal(1, 8, 3), jnp.arange(8) % 2)
    found = dropout_penalty(cross_entropy, model, batch, n_samples=2000, key=jr.key(0))
    plain = cross_entropy(model, batch)
    drawn = (
        jax.lax.map(lambda key: cross_entropy(model, batch, key=key), jr.split(jr.key(9), 4000))
        - plain
    )
    error = np.hypot(found.error, drawn.std() / np.sqrt(4000))
    assert abs(found.value - drawn.mean()) < 4 * error
    assert found.error < drawn.std() / np.sqrt(2000)  # the slope was taken off


class Keyless(eqx.Module):
    inner: Chain

    def __call__(self, x):
        return self.inner(x)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_models_that_cannot_be_averaged_are_rejected():
    xs = normal(0, 3, 17)
    wide = Chain(Dropout(0.5), Linear.init(17, 2, key=jr.key(0)))
    with pytest.raises(
        ValueError,
        match=r"17 units have dropout, and 2\^17 masks are too many to enumerate",
    ):
        dropout_average(wide, xs)
    with pytest.raises(ValueError, match="the model has no dropout"):
        dropout_average(Linear.init(17, 2, key=jr.key(0)), xs)
    with pytest.raises(ValueError, match="the model has no dropout"):
        mc_dropout(Chain(Dropout(0.0), Linear.init(17, 2, key=jr.key(0))), xs, key=jr.key(0))
    with pytest.raises(ValueError, match="fold the model first"):
        mc_dropout(Chain(BatchNorm.init(17), wide), xs, key=jr.key(0))
    with pytest.raises(ValueError, match="n_samples must be an integer >= 2; got 1"):
        mc_dropout(wide, xs, n_samples=1, key=jr.key(0))
    with pytest.raises(ValueError, match="n_samples must be an integer >= 2; got 0"):
        dropout_penalty(
            cross_entropy, wide, (xs, jnp.zeros(3, jnp.int32)), n_samples=0, key=jr.key(0)
        )
    with pytest.raises(ValueError, match="is it a classifier"):
        mc_dropout(Chain(Dropout(0.5), lambda x: x[:, None]), xs, key=jr.key(0))
    with pytest.raises(
        ValueError,
        match="the members of an Ensemble have separate masks; pass one member at a time",
    ):
        dropout_average(
            Ensemble.init(
                lambda key: Chain(Dropout(0.5), Linear.init(2, 2, key=key)), 3, key=jr.key(0)
            ),
            normal(0, 3, 2),
        )
    with pytest.raises(ValueError, match="the model takes no key"):
        mc_dropout(Keyless(wide), xs, key=jr.key(0))
    drop = Dropout(0.5)
    assert close(dropout_average(Chain(drop, drop), normal(0, 3, 2)), normal(0, 3, 2), atol=1e-5)


def test_the_error_of_the_mutual_information_falls_with_the_samples():
    """A standard error: a quarter as large with sixteen times the samples."""
    model, _ = two_layers()
    xs = normal(2, 3, 2)
    few = mc_dropout(model, xs, n_samples=200, key=jr.key(0))
    many = mc_dropout(model, xs, n_samples=3200, key=jr.key(1))
    ratio = many.mutual_information_error / few.mutual_information_error
    np.testing.assert_allclose(ratio, 0.25, rtol=0.4)
    difference = np.abs(few.mutual_information - many.mutual_information)
    assert (difference < 5 * few.mutual_information_error).all()

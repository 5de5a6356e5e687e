"""Functions from objectives to objectives (§8.2, §8.7, §8.8), and mixed precision."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from contracts import ObjectiveRow as Row
from contracts import close, generic, net, normal
from scipy.special import softmax

from thetax import layers, tree
from thetax.core import run
from thetax.layers import Pointwise
from thetax.models import MLP
from thetax.train import (
    cross_entropy,
    descend,
    lasso,
    mixed_precision,
    smooth_labels,
    soften_labels,
    squared_error,
    weight_decay,
    with_augmentation,
)

same = Pointwise(lambda x: x)
flat = lambda model, batch, *, key=None: jnp.zeros(())
slope = lambda model, batch, *, key=None: model @ jnp.array([0.3, 0.4])


def a_net(seed=0):
    return generic(Row("", None, net, None), seed)


def classes(n=8):
    return normal(0, n, 3), jnp.arange(n) % 3


def sgd_step(objective, theta, rate):
    iteration = descend(objective, optax.sgd(rate))
    return iteration.step(iteration.init(theta), None, key=jr.key(0))[0].model


def test_weight_decay_step():
    """8.2-weight-decay: θ = (2, −1), g = (.3, .4), η = .1, μ = .5 gives (1.87, −0.99), not the
    notes' (2.07, −1.09).
    """
    after = sgd_step(weight_decay(slope, strength=0.5), jnp.array([2.0, -1.0]), 0.1)
    assert np.allclose(after, [1.87, -0.99], atol=1e-6)


def test_weight_decay_shrinks_by_one_minus_rate_times_strength():
    """Where the loss is flat ‖θ_t‖ = (1 − ημ)ᵗ ‖θ₀‖."""
    start = jnp.array([2.0, -1.0, 0.5])
    batches = jnp.zeros((7, 1))
    state, _ = run(
        descend(weight_decay(flat, strength=0.5), optax.sgd(0.2)), start, batches, key=jr.key(0)
    )
    assert np.allclose(state.model, 0.9**7 * start, rtol=1e-5)


def test_weight_decay_is_decoupled_decay_for_sgd_but_not_for_adam():
    """8.2-wd-l2: descending ℓ + μ/2‖θ‖² is Optax's decayed step for SGD; for Adam the two part."""
    batch = classes()
    batches = jax.tree.map(lambda a: jnp.stack([a] * 20), batch)
    model = a_net()
    final = lambda objective, optimiser: (
        run(descend(objective, optimiser), model, batches, key=jr.key(0))[0].model
    )
    penalised = weight_decay(cross_entropy, strength=0.1)
    decoupled = optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.3))
    assert close(
        final(penalised, optax.sgd(0.3)), final(cross_entropy, decoupled), rtol=1e-4, atol=1e-5
    )
    apart = tree.axpy(
        -1.0,
        final(penalised, optax.adam(0.1)),
        final(cross_entropy, optax.adamw(0.1, weight_decay=0.1)),
    )
    assert tree.norm(apart) > 1e-2


def test_penalties_are_what_they_say():
    """μ/2 Σθ² and μ Σ|θ| over all leaves, by numpy; gradients μθ and μ sign θ are added."""
    batch = classes()
    model = a_net()
    theta = np.asarray(tree.ravel(model)[0], np.float64)
    loss = float(cross_entropy(model, batch))
    assert np.isclose(
        weight_decay(cross_entropy, strength=0.3)(model, batch),
        loss + 0.15 * theta @ theta,
        rtol=1e-5,
    )
    assert np.isclose(
        lasso(cross_entropy, strength=0.3)(model, batch),
        loss + 0.3 * np.abs(theta).sum(),
        rtol=1e-5,
    )
    plain = tree.ravel(jax.grad(cross_entropy)(model, batch))[0]
    for penalty, extra in ((weight_decay, theta), (lasso, np.sign(theta))):
        grad = tree.ravel(jax.grad(penalty(cross_entropy, strength=0.3))(model, batch))[0]
        assert np.allclose(grad, plain + 0.3 * extra, atol=1e-5)


def test_lasso_makes_zeros():
    """Soft thresholding: the minimiser of ½‖θ − a‖² + μ‖θ‖₁ is 0 where |a| ≤ μ; sub-gradients of θ
    = 0 are bounded.
    """
    a = jnp.array([2.0, 0.3, -1.0])
    mu = 0.5
    objective = lasso(
        lambda model, batch, *, key=None: jnp.square(model - a).sum() / 2, strength=mu
    )
    expected = jnp.sign(a) * jnp.maximum(jnp.abs(a) - mu, 0)
    values = [
        float(objective(expected + eps * normal(i, 3), None))
        for i in range(20)
        for eps in (0.01, 0.1)
    ]
    assert float(objective(expected, None)) < min(values)
    assert jnp.abs(jax.grad(objective)(jnp.zeros(3), None) + a).max() <= mu + 1e-6


@pytest.mark.parametrize("penalty", [weight_decay, lasso])
def test_negative_strength_is_refused(penalty):
    with pytest.raises(ValueError, match="negative"):
        penalty(flat, strength=-0.1)


# Labels


def test_confusion_by_the_identity_changes_nothing():
    batch = classes()
    model = a_net()
    assert close(
        soften_labels(cross_entropy, jnp.eye(3))(model, batch), cross_entropy(model, batch)
    )
    assert close(
        smooth_labels(cross_entropy, 3, strength=0.0)(model, batch), cross_entropy(model, batch)
    )


def test_smoothing_mixes_with_the_mean_over_classes():
    """8.8: (1 − ε) CE + ε · mean over classes of CE, exactly; and soft labels in are mixed
    alike.
    """
    (z, y), strength = (3 * normal(1, 8, 3), jnp.arange(8) % 3), 0.2
    found = smooth_labels(cross_entropy, 3, strength=strength)(same, (z, y))
    of_class = [cross_entropy(same, (z, jnp.full(8, k))) for k in range(3)]
    assert close(found, (1 - strength) * cross_entropy(same, (z, y)) + strength * sum(of_class) / 3)
    soft = jax.nn.one_hot(y, 3)
    assert close(found, smooth_labels(cross_entropy, 3, strength=strength)(same, (z, soft)))


def test_confusion_uses_columns():
    """Label y becomes column y of Π; the gradient in the logits is softmax − Πe_y
    (8.8-label-smoothing).
    """
    confusion = jnp.array([[0.7, 0.1, 0.0], [0.2, 0.9, 0.5], [0.1, 0.0, 0.5]])
    z = normal(2, 1, 3)
    y = jnp.array([1])
    objective = soften_labels(cross_entropy, confusion)
    log_p = np.log(softmax(np.asarray(z[0])))
    assert np.isclose(objective(same, (z, y)), -np.asarray(confusion)[:, 1] @ log_p, rtol=1e-5)
    grad = jax.grad(lambda z: objective(same, (z, y)))(z)[0]
    assert np.allclose(grad, np.exp(log_p) - np.asarray(confusion)[:, 1], atol=1e-6)


def test_smoothed_optimum_is_finite():
    """8.8-ls-optimum: at logits log Πe_y the gradient is 0, the gap log((1 − ε + ε/k)/(ε/k)) and
    the loss H(Πe_y).
    """
    strength, k = 0.1, 4
    target = np.full(k, strength / k) + (1 - strength) * np.eye(k)[2]
    objective = smooth_labels(cross_entropy, k, strength=strength)
    z = jnp.asarray(np.log(target))[None]
    assert np.allclose(jax.grad(lambda z: objective(same, (z, jnp.array([2]))))(z), 0, atol=1e-6)
    assert np.isclose(
        z[0, 2] - z[0, 0], np.log((1 - strength + strength / k) / (strength / k)), rtol=1e-5
    )
    assert np.isclose(objective(same, (z, jnp.array([2]))), -target @ np.log(target), rtol=1e-5)


@pytest.mark.parametrize(
    ("confusion", "message"),
    [
        ([[0.5, 0.5, 0.0], [0.5, 0.5, 1.0]], "square"),
        ([0.5, 0.5], "square"),
        ([[0.9, 0.2], [0.3, 0.8]], "distribution"),
        ([[1.1, 0.0], [-0.1, 1.0]], "distribution"),
        ([[0.9, 0.1], [0.3, 0.7]], "distribution"),
        ([[1.0, float("nan")], [0.0, 1.0]], "in column 1"),
    ],
    ids=["wide", "vector", "sum above 1", "negative", "rows instead of columns", "nan"],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_confusion_is_refused(confusion, message):
    with pytest.raises(ValueError, match=message):
        soften_labels(cross_entropy, jnp.array(confusion))


def test_a_confusion_matrix_may_be_known_or_traced():
    """Inside a compiled function a known matrix is checked, and one that is traced is used as it
    is.
    """
    batch = classes()
    model = a_net()
    Pi = np.array([[0.9, 0.2, 0.0], [0.1, 0.7, 0.0], [0.0, 0.1, 1.0]], np.float32)
    plain = soften_labels(cross_entropy, Pi)(model, batch)
    assert close(
        jax.jit(lambda model: soften_labels(cross_entropy, Pi)(model, batch))(model), plain
    )
    assert close(jax.jit(lambda Pi: soften_labels(cross_entropy, Pi)(model, batch))(Pi), plain)
    with pytest.raises(ValueError, match="in column 0"):
        jax.jit(lambda model: soften_labels(cross_entropy, 2 * Pi)(model, batch))(model)


@pytest.mark.parametrize("strength", [-0.1, 1.1, float("nan")])
def test_bad_smoothing_is_refused(strength):
    with pytest.raises(ValueError, match=r"strength must be in \[0, 1\]"):
        smooth_labels(cross_entropy, 3, strength=strength)
    with pytest.raises(ValueError, match="classes must be an integer >= 2; got 1"):
        smooth_labels(cross_entropy, 1, strength=0.1)


# Augmentation and precision


def test_augmentation_changes_each_example_by_itself():
    """The objective on the changed batch, where example i is changed with key i; without a key
    nothing is.
    """
    batch = normal(0, 4, 2), normal(1, 4, 2)
    objective = with_augmentation(squared_error, lambda x, *, key: x + jr.normal(key, x.shape))
    keys = jr.split(jr.split(jr.key(3))[0], 4)
    moved = batch[0] + jnp.stack([jr.normal(key, (2,)) for key in keys])
    assert close(objective(same, batch, key=jr.key(3)), squared_error(same, (moved, batch[1])))
    assert close(objective(same, batch), squared_error(same, batch))


def test_augmentation_leaves_the_model_a_key_of_its_own():
    """The model's dropout draws from another key than the augmentation."""
    seen = []

    def inner(model, batch, *, key=None):
        seen.append(key)
        return jnp.zeros(())

    with_augmentation(inner, lambda x, *, key: x)(
        same, (jnp.zeros((2, 1)), jnp.zeros(2)), key=jr.key(0)
    )
    assert seen[0] is not None
    assert (
        jr.key_data(seen[0]).tolist()
        not in jr.key_data(jr.split(jr.split(jr.key(0))[0], 2)).tolist()
    )
    assert jr.key_data(seen[0]).tolist() != jr.key_data(jr.key(0)).tolist()


def test_mixed_precision():
    """Inputs and weights are bfloat16 inside; loss and gradients are float32 and near the full
    ones; labels stay.
    """
    batch = classes()
    model = a_net()
    seen = []

    def spy(model, batch, *, key=None):
        seen.append(jax.tree.map(lambda leaf: leaf.dtype, (jax.tree.leaves(model), batch)))
        return cross_entropy(model, batch, key=key)

    loss, grad = jax.value_and_grad(mixed_precision(spy))(model, batch)
    weights, (xs, ys) = seen[0]
    assert set(weights) == {jnp.dtype(jnp.bfloat16)}
    assert xs == jnp.bfloat16
    assert ys == jnp.int32
    full, expected = jax.value_and_grad(cross_entropy)(model, batch)
    assert loss.dtype == jnp.float32
    assert {leaf.dtype.name for leaf in jax.tree.leaves(grad)} == {"float32"}
    assert abs(loss - full) < 2e-2
    assert 1e-6 < tree.norm(tree.axpy(-1.0, expected, grad)) / tree.norm(expected) < 5e-2


def test_mixed_precision_learns():
    """Twenty steps in bfloat16 lower the full-precision loss nearly as far as twenty in float32."""
    batch = classes()
    model = a_net()
    batches = jax.tree.map(lambda a: jnp.stack([a] * 20), batch)
    final = lambda objective: (
        run(descend(objective, optax.sgd(0.5)), model, batches, key=jr.key(0))[0].model
    )
    losses = [
        float(cross_entropy(final(f), batch))
        for f in (cross_entropy, mixed_precision(cross_entropy))
    ]
    assert abs(losses[1] - losses[0]) < 0.05
    assert losses[0] < float(cross_entropy(model, batch)) - 0.1


def test_transformers_compose():
    """weight_decay(smooth_labels(·)) is smoothing plus the penalty, whatever the order with mixed
    precision.
    """
    batch = classes()
    model = MLP.init(3, 4, 3, activation=layers.tanh, key=jr.key(0))
    both = weight_decay(smooth_labels(cross_entropy, 3, strength=0.1), strength=0.2)
    expected = smooth_labels(cross_entropy, 3, strength=0.1)(model, batch) + 0.1 * tree.dot(
        model, model
    )
    assert close(both(model, batch), expected)

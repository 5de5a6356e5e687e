"""Adversarial training: closed forms for linear models, gradients against finite differences, and
the effect of training.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from contracts import classes, derivative_errors, net, normal, targets

from thetax import tree
from thetax.attack import (
    PGD,
    MetricAlert,
    adversarial_objective,
    catastrophic_overfitting,
    fgsm,
    logit_pairing,
    margin_loss,
    perturb,
    random_start_fgsm,
    trades,
)
from thetax.core import predict
from thetax.layers import BatchNorm, Chain, Linear
from thetax.models import MLP
from thetax.threat import L1, L2, Linf
from thetax.train import Silent, cross_entropy, descend, error_rate, fit, log_loss, squared_error

ATTACK = PGD(log_loss, Linf(0.2), step_size=0.1, steps=3, output="last")


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("ball", [Linf(0.3), L2(0.3), L1(0.3)], ids=["Linf", "L2", "L1"])
def test_adversarial_loss_of_a_linear_classifier(ball):
    """log(1 + exp(−m + ε‖w‖_q)) with the margin m of two classes."""
    line, (xs, ys) = (
        Linear.init(3, 2, key=jr.key(0)),
        (normal(1, 6, 3), jnp.array([0, 1, 0, 1, 1, 0])),
    )
    w = line.W[1] - line.W[0]
    b = line.b[1] - line.b[0]
    m = (2 * ys - 1) * (xs @ w + b)
    expected = jnp.log1p(jnp.exp(-m + 0.3 * ball.dual_norm(w))).mean()
    found = adversarial_objective(cross_entropy, PGD(log_loss, ball, step_size=0.3, steps=5))(
        line, (xs, ys)
    )
    assert float(found) == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    "objective",
    [
        adversarial_objective(cross_entropy, ATTACK),
        logit_pairing(ATTACK, strength=0.7),
        trades(ATTACK, strength=3.0),
    ],
    ids=["adversarial_objective", "logit_pairing", "trades"],
)
def test_gradient_is_that_at_the_adversarial_input(objective):
    """Sign steps do not depend on θ locally, so finite differences give the gradient of Danskin's
    theorem.
    """
    model = net(key=jr.key(0))
    batch = classes()
    point, back = tree.ravel(model)
    errors = derivative_errors(lambda vector: objective(back(vector), batch), point)
    assert errors["length"] > 1e-2
    assert errors["gradient"] < 1e-6


@pytest.mark.slow
def test_trades_by_hand():
    model, (xs, ys) = net(key=jr.key(0)), classes()
    found = trades(ATTACK, strength=3.0)(model, (xs, ys), key=jr.key(1))
    key_attack, _ = jr.split(jr.key(1))
    p = jax.nn.softmax(predict(model, xs))
    worst = jnp.stack(
        [ATTACK(model, x, q, key=key) for x, q, key in zip(xs, p, jr.split(key_attack, len(xs)))]
    )
    q = jax.nn.softmax(predict(model, worst))
    divergence = (p * (jnp.log(p) - jnp.log(q))).sum(axis=-1).mean()
    np.testing.assert_allclose(found, cross_entropy(model, (xs, ys)) + 3 * divergence, rtol=1e-5)
    assert divergence > 0


def test_an_attack_of_radius_0_changes_nothing():
    model = net(key=jr.key(0))
    batch = classes()
    still = fgsm(log_loss, Linf(0.0))
    assert adversarial_objective(error_rate, still)(model, batch) == error_rate(model, batch)
    for objective in (
        adversarial_objective(cross_entropy, still),
        logit_pairing(still, strength=3.0),
        trades(still, strength=3.0),
    ):
        np.testing.assert_allclose(objective(model, batch), cross_entropy(model, batch), rtol=1e-6)


def test_regression_objective():
    """The attack has its own loss."""
    model = net(key=jr.key(0))
    batch = targets()
    attack = PGD(lambda f, y: jnp.square(f - y).sum(), L2(0.3), step_size=0.1, steps=5)
    assert adversarial_objective(squared_error, attack)(model, batch) > squared_error(model, batch)


@pytest.mark.slow
def test_with_batch_normalisation():
    first, second = jr.split(jr.key(0))
    model = Chain(Linear.init(3, 4, key=first), BatchNorm.init(4), Linear.init(4, 3, key=second))
    value, gradient = jax.value_and_grad(adversarial_objective(cross_entropy, ATTACK))(
        model, classes()
    )
    assert value > cross_entropy(model, classes())
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def strips(n: int, key):
    """Two classes that one feature separates by 0.2, and nine noisy ones by 2 on average."""
    ys = jnp.arange(n) % 2
    sign = (2.0 * ys - 1)[:, None]
    sharp = 0.1 * sign
    broad = sign + 1.5 * jr.normal(key, (n, 9))
    return jnp.concatenate([sharp, broad], axis=1), ys


@pytest.mark.slow
def test_adversarial_training_ignores_a_feature_that_is_not_robust():
    """At ε = 0.5 the feature that separates the classes by 0.2 is useless; plain training relies on
    it.
    """
    data = strips(512, jr.key(0))
    test = strips(512, jr.key(1))
    attack = PGD(log_loss, Linf(0.5), step_size=0.25, steps=4, output="last")
    model = Linear(jnp.zeros((2, 10)), jnp.zeros(2))
    learn = lambda objective: (
        (
            fit(
                descend(objective, optax.adam(0.05)),
                model,
                data,
                epochs=15,
                batch_size=64,
                key=jr.key(2),
                progress=Silent(),
            )
        ).model
    )
    plain = learn(cross_entropy)
    hardened = learn(adversarial_objective(cross_entropy, attack))
    under = lambda model: float(adversarial_objective(error_rate, attack)(model, test))
    assert under(hardened) < under(plain) - 0.05
    reliance = lambda model: float(
        abs((model.W[1] - model.W[0])[0]) / jnp.abs(model.W[1] - model.W[0]).sum()
    )
    assert reliance(hardened) < reliance(plain) / 2


def test_metric_alert():
    class Notes(Silent):
        def note(self, text):
            notes.append(text)

    notes = []
    alert = MetricAlert(Notes(), "valid overfitting", above=0.3)
    for epoch, gap in enumerate([0.0, 0.1, 0.5, 0.9], 1):
        alert.epoch({"epoch": epoch, "valid overfitting": gap})
    assert alert.alert_epoch == 3
    assert len(notes) == 1
    assert "epoch 3: valid overfitting is 0.50: catastrophic overfitting" in notes[0]
    with pytest.raises(
        ValueError,
        match="MetricAlert: no metric 'valid x' in the epoch's row; it has epoch, train loss",
    ):
        MetricAlert(Silent(), "valid x", above=0.3).epoch({"epoch": 1, "train loss": 0.0})


@pytest.mark.slow
def test_metric_alert_in_a_fit():
    """A single step of length 0 finds nothing, one of full length does."""
    data = strips(128, jr.key(0))
    ball = Linf(1.0)
    alert = MetricAlert(Silent(), "valid overfitting", above=0.2)
    weak, strong = (PGD(log_loss, ball, step_size=step_size, steps=1) for step_size in (0.0, 1.0))
    fit(
        descend(cross_entropy, optax.adam(0.05)),
        MLP.init(10, 2, key=jr.key(1)),
        data,
        epochs=3,
        batch_size=32,
        validation=0.25,
        metrics={"overfitting": catastrophic_overfitting(weak, strong)},
        key=jr.key(2),
        progress=alert,
    )
    assert alert.alert_epoch is not None


def test_random_start_fgsm():
    model, (xs, ys) = net(key=jr.key(0)), classes()
    attack = random_start_fgsm(Linf(0.2), box=(-3.0, 3.0))
    one, two = (perturb(model, (xs, ys), attack, key=jr.key(seed)).xs for seed in (0, 1))
    assert not np.allclose(one, two)
    assert np.abs(one - xs).max() <= 0.2 + 1e-6
    assert adversarial_objective(cross_entropy, attack)(
        model, (xs, ys), key=jr.key(0)
    ) > cross_entropy(model, (xs, ys))


def test_bad_input(unchecked):
    with pytest.raises(ValueError, match="trades: strength must be >= 0; got -1"):
        trades(ATTACK, strength=-1.0)
    with pytest.raises(
        ValueError, match=r"adversarial_objective: expected a batch \(xs, ys\), got ArrayImpl"
    ):
        adversarial_objective(cross_entropy, ATTACK)(net(key=jr.key(0)), jnp.zeros((3, 3)))
    with pytest.raises(ValueError, match="logit_pairing: strength must be >= 0"):
        logit_pairing(PGD(margin_loss, Linf(0.1), step_size=0.1, steps=1), strength=-2)
    boxed = PGD(log_loss, Linf(0.1), step_size=0.1, steps=1, box=(0.0, 1.0))
    batch = 255 * jnp.ones((2, 3)), jnp.zeros(2, int)
    for objective in (
        adversarial_objective(cross_entropy, boxed),
        trades(boxed, strength=1.0),
        logit_pairing(boxed, strength=1.0),
    ):
        with pytest.raises(
            ValueError, match=r": expected inputs from 0\.0 to 1\.0, but they go from 255 to 255"
        ):
            objective(net(key=jr.key(0)), batch)

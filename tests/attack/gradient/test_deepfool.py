"""DeepFool: closed forms, a trained network, and the properties of every attack."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from contracts import normal
from sklearn.datasets import load_digits

from thetax.attack import (
    PGD,
    DeepFool,
    MinimumNormAttack,
    affine_radius,
    fgsm,
    margin_loss,
    untargeted,
)
from thetax.core import run
from thetax.layers import Linear, tanh
from thetax.models import MLP
from thetax.threat import L0, L1, L2, Linf
from thetax.train import cross_entropy, descend

NORMS = [L1, L2, Linf]


@cache
def affine():
    """Random affine classifiers of five classes, an input for each and its predicted class."""
    with jax.enable_x64(True):
        models = jax.vmap(lambda key: Linear.init(6, 5, key=key))(jr.split(jr.key(0), 20))
        xs = normal(1, 20, 6)
        return models, xs, jax.vmap(lambda model, x: jnp.argmax(model(x)))(models, xs)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("norm", NORMS)
def test_one_step_is_exact_for_an_affine_classifier(norm):
    models, xs, ys = affine()
    exact = np.asarray(
        jax.vmap(lambda model, x, y: affine_radius(model, x, y, norm))(models, xs, ys)
    )
    found = {}
    for overshoot in (0.0, 0.02):
        attack = DeepFool(norm, steps=1, overshoot=overshoot)
        ends = jax.vmap(attack)(models, xs, ys)
        found[overshoot] = np.asarray(jax.vmap(norm(1.0).norm)(ends - xs))
        right = np.asarray(
            jax.vmap(lambda model, x, y: jnp.argmax(model(x)) == y)(models, ends, ys)
        )
        assert overshoot == 0 or not right.any()
    np.testing.assert_allclose(found[0.0], exact, rtol=1e-9)
    np.testing.assert_allclose(found[0.02], 1.02 * exact, rtol=1e-4)


@pytest.mark.usefixtures("x64")
def test_the_overshoot_is_a_share_of_the_distance():
    r"""Of an affine classifier $\eta = -(1 + o) \frac{f_y - f_j}{\|\Delta w\|^2} \Delta w$, here in
    NumPy.
    """
    W = np.array([[1.0, 2.0, 0.5], [0.5, -1.0, 1.0], [-2.0, 1.0, 0.0]])
    x = np.array([2.0, 1.5, -0.5])
    rows = W[0] - W[1:]
    lead = (W[0] - W[1:]) @ x
    nearest = np.argmin(lead / np.linalg.norm(rows, axis=1))
    step = -lead[nearest] / (rows[nearest] @ rows[nearest]) * rows[nearest]
    model = Linear(jnp.asarray(W), jnp.zeros(3))
    move = jax.jit(DeepFool.__call__)
    for overshoot in (0.0, 0.02, 0.5):
        eta = move(DeepFool(L2, overshoot=jnp.array(overshoot)), model, x, jnp.array(0)) - x
        np.testing.assert_allclose(eta, (1 + overshoot) * step, rtol=1e-3 * overshoot + 1e-9)


@cache
def trained():
    """A small network trained on scikit-learn's digits, and the correctly classified ones of 200
    others.
    """
    data: Any = load_digits()
    xs = jnp.asarray(data.data / 16, jnp.float32)
    ys = jnp.asarray(data.target, jnp.int32)
    batches = jax.tree.map(lambda a: a[jr.randint(jr.key(1), (400, 64), 0, 1500)], (xs, ys))
    model = MLP.init(64, 32, 10, key=jr.key(0))
    model = run(descend(cross_entropy, optax.adam(3e-3)), model, batches, key=jr.key(2))[0].model
    xs = xs[1500:1700]
    ys = ys[1500:1700]
    right = np.asarray(jnp.argmax(jax.vmap(model)(xs), axis=1) == ys)
    assert right.mean() > 0.85
    return model, xs[right], ys[right]


def lengths(attack):
    """How far each digit was moved, and whether its class changed."""
    model, xs, ys = trained()
    ends = jax.jit(jax.vmap(lambda x, y: attack(model, x, y)))(xs, ys)
    wrong = np.asarray(jnp.argmax(jax.vmap(model)(ends), axis=1) != ys)
    return np.linalg.norm(np.asarray(ends - xs), axis=1), wrong


@pytest.mark.slow
def test_digits():
    """At most 1.5 times as far as minimum-norm PGD on average, and nearly always nearer than
    minimum-norm FGSM.
    """
    ours, wrong = lengths(DeepFool(L2, steps=50))
    assert wrong.mean() >= 0.99
    ascent, reached = lengths(
        MinimumNormAttack(
            PGD(untargeted(margin_loss), L2(4.0), step_size=0.4, steps=20), binary_search_steps=8
        )
    )
    assert reached.all()
    assert ours.mean() <= 1.5 * ascent.mean()
    straight, reached = lengths(
        MinimumNormAttack(fgsm(untargeted(), Linf(2.0)), binary_search_steps=14)
    )
    assert (ours <= np.where(reached, straight, np.inf) * (1 + 1e-6)).mean() >= 0.95


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("norm", NORMS)
def test_vmap_and_finished_examples_do_not_move(norm):
    """Alone each example ends at its own step; in a batch all wait for the slowest."""
    net = MLP.init(6, 9, 4, activation=tanh, key=jr.key(3))
    xs = normal(4, 6, 6)
    ys = jax.vmap(lambda x: jnp.argmax(net(x)))(xs).at[0].add(1) % 4
    attack = DeepFool(norm, box=(-3.0, 3.0))
    together = jax.jit(jax.vmap(lambda x, y: attack(net, x, y)))(xs, ys)
    one = jax.jit(lambda x, y: attack(net, x, y))
    np.testing.assert_allclose(together, jnp.stack([one(x, y) for x, y in zip(xs, ys)]), atol=1e-9)
    np.testing.assert_allclose(together[1], attack(net, xs[1], ys[1]), atol=1e-9)
    assert jnp.array_equal(together[0], xs[0])  # already misclassified
    assert (np.abs(together) <= 3).all()
    wrong = np.asarray(jax.vmap(lambda x: jnp.argmax(net(x)))(together) != ys)
    stayed = (np.asarray(together) == np.asarray(xs)).all(axis=1)
    assert (wrong | stayed).all()
    assert norm is L1 or wrong.all()  # steps of single components may fail


@pytest.mark.usefixtures("x64")
def test_failure_returns_the_input():
    never = Linear(jnp.zeros((2, 3)), jnp.array([1.0, 0.0]))
    x = jnp.array([0.1, 0.2, 0.3])
    assert jnp.array_equal(DeepFool()(never, x, jnp.array(0)), x)
    walled = Linear(jnp.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]), jnp.array([1.0, 0.0]))
    assert jnp.array_equal(DeepFool(box=(0.0, 1.0))(walled, x, jnp.array(0)), x)


@pytest.mark.usefixtures("x64")
def test_only_the_most_likely_classes_are_considered():
    """The second class is the likelier rival, the third the nearer."""
    model = Linear(jnp.array([[0.0, 0.0], [1.0, 0.0], [0.0, 9.0]]), jnp.array([0.0, -1.0, -1.5]))
    x = jnp.zeros(2)
    y = jnp.array(0)
    assert jnp.argmax(model(DeepFool(classes=2)(model, x, y))) == 1
    assert jnp.argmax(model(DeepFool(classes=3)(model, x, y))) == 2


def test_bad_input(unchecked):
    with pytest.raises(ValueError, match="DeepFool: norm must be L1, L2 or Linf; got L0"):
        DeepFool(L0)
    with pytest.raises(
        ValueError, match=r"DeepFool: overshoot, a fraction of the distance.*got -1"
    ):
        DeepFool(overshoot=-1.0)
    with pytest.raises(ValueError, match="DeepFool: steps must be an integer >= 1; got 0"):
        DeepFool(steps=0)
    with pytest.raises(
        ValueError, match="DeepFool: classes must be at least 2, the true one included; got 1"
    ):
        DeepFool(classes=1)
    with pytest.raises(ValueError, match=r"DeepFool: box must be \(low, high\)"):
        DeepFool(box=(1.0, 0.0))
    with pytest.raises(ValueError, match=r"expected inputs from 0.0 to 1.0"):
        DeepFool(box=(0.0, 1.0))(lambda x: x, jnp.array([2.0, 0.0]), jnp.array(0))


def test_l1_continues_with_another_component_at_the_box():
    """The steepest component reaches 0 before the classes tie; the next one does the rest."""
    line = Linear(jnp.array([[1.0, 0.9, 0.9], [0.0, 0.0, 0.0]]), jnp.array([-0.5, 0.0]))
    found = DeepFool(L1, box=(0.0, 1.0))(line, jnp.array([0.4, 0.9, 0.9]), jnp.array(0))
    assert jnp.argmax(line(found)) == 1
    assert 1.5 < float(jnp.abs(found - jnp.array([0.4, 0.9, 0.9])).sum()) < 1.8

"""Distillation (§8.9): the loss, the objective, who gets a gradient, and what is refused."""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from contracts import close, normal
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax

from thetax import layers
from thetax.layers import BatchNorm, Chain, Dropout, Ensemble, Linear
from thetax.models import MLP
from thetax.train import batch_mean, cross_entropy, descend, distil, distillation_loss, fit

LOGITS = st.lists(st.floats(-20, 20, width=32), min_size=4, max_size=4)


def net(*sizes: int, seed: int = 0, **settings):
    return MLP.init(*sizes, activation=layers.tanh, key=jr.key(seed), **settings)


@given(F=LOGITS, G=LOGITS, T=st.floats(0.5, 20, width=32))
def test_the_loss_is_the_cross_entropy_of_tempered_probabilities(F, G, T):
    """Against scipy; at least the entropy of the teacher, which it is at G = F and at G = F +
    constant.
    """
    loss = lambda G: float(
        distillation_loss(jnp.array(G, jnp.float32), jnp.array(F, jnp.float32), temperature=T)
    )
    p = softmax(np.array(F) / T)
    entropy = -p @ log_softmax(np.array(F) / T)
    assert np.isclose(loss(G), -p @ log_softmax(np.array(G) / T), rtol=1e-4, atol=1e-4)
    assert loss(G) >= entropy - 1e-4
    assert np.isclose(loss(F), entropy, rtol=1e-4, atol=1e-4)
    assert np.isclose(loss([g + 3 for g in F]), entropy, rtol=1e-4, atol=1e-4)


def test_the_gradient_is_the_difference_of_tempered_probabilities():
    F = normal(0, 5)
    G = normal(1, 5)
    T = 3.0
    grad = jax.grad(lambda G: distillation_loss(G, F, temperature=T))(G)
    assert np.allclose(
        grad, (softmax(np.asarray(G) / T) - softmax(np.asarray(F) / T)) / T, atol=1e-6
    )


def test_the_objective_is_the_mean_loss_whatever_comes_with_the_inputs():
    """Batches xs, (xs,), (xs, ys) and (xs, anything) give the same number: without labels only xs
    is read.
    """
    teacher = net(3, 8, 4)
    student = net(3, 2, 4, seed=1)
    xs = normal(0, 7, 3)
    found = distil(teacher, temperature=2.0)
    each = [distillation_loss(student(x), teacher(x), temperature=2.0) for x in xs]
    for batch in (xs, (xs,), (xs, jnp.zeros(7, jnp.int32)), (xs, jnp.ones((7, 2)), jnp.ones(7))):
        assert close(found(student, batch), sum(each) / 7)


def test_labels_take_their_share():
    """λ · cross-entropy + (1 − λ) T² ℓ; all labels is the cross-entropy, and soft labels serve
    too.
    """
    teacher = net(3, 8, 4)
    student = net(3, 2, 4, seed=1)
    xs = normal(0, 7, 3)
    ys = jnp.arange(7) % 4
    soft = distil(teacher, temperature=3.0)(student, xs)
    hard = cross_entropy(student, (xs, ys))
    mixed = lambda share, ys: distil(teacher, temperature=3.0, label_weight=share)(
        student, (xs, ys)
    )
    assert close(mixed(0.3, ys), 0.3 * hard + 0.7 * 9 * soft)
    assert close(mixed(1.0, ys), hard)
    assert close(mixed(0.3, jax.nn.one_hot(ys, 4)), mixed(0.3, ys))


def test_the_objective_with_labels_in_numpy():
    """λ times the cross-entropy and (1 − λ) T² times the tempered one, written out."""
    W, V, xs = (
        np.random.default_rng(i).standard_normal(shape)
        for i, shape in enumerate([(3, 2), (3, 2), (5, 2)])
    )
    ys = np.array([0, 2, 1, 1, 0])
    share = 0.3
    T = 3.0
    line = lambda W: Linear(jnp.asarray(W, jnp.float32), jnp.zeros(3))
    objective = jax.jit(
        lambda student, xs: distil(line(W), temperature=T, label_weight=share)(student, (xs, ys))
    )
    hard = -log_softmax(xs @ V.T, axis=1)[np.arange(5), ys].mean()
    soft = -(softmax(xs @ W.T / T, axis=1) * log_softmax(xs @ V.T / T, axis=1)).sum(axis=1).mean()
    expected = share * hard + (1 - share) * T**2 * soft
    assert float(objective(line(V), jnp.asarray(xs, jnp.float32))) == pytest.approx(
        expected, rel=1e-5
    )


def test_the_share_of_the_soft_term_does_not_depend_on_a_high_temperature():
    """T² times the gradient has a limit, which is why the tempered term is weighed by T²."""
    teacher = net(3, 8, 4)
    student = net(3, 2, 4, seed=1)
    batch = (normal(0, 7, 3), jnp.arange(7) % 4)
    grads = [
        jax.grad(distil(teacher, temperature=T, label_weight=1e-6))(student, batch)
        for T in (50.0, 100.0)
    ]
    assert close(*grads, rtol=0.05, atol=1e-3)


def test_the_teacher_has_no_gradient_and_no_chance():
    """A gradient in the teacher is 0; dropout of the teacher is off; that of the student takes the
    key.
    """
    teacher = net(3, 8, 4, dropout=0.5)
    student = net(3, 6, 4, seed=1, dropout=0.5)
    xs = normal(0, 7, 3)
    grad = jax.grad(lambda teacher: distil(teacher, temperature=2.0)(student, xs))(teacher)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(grad))
    plain = net(3, 6, 4, seed=1)
    objective = distil(teacher, temperature=2.0)
    assert close(objective(plain, xs, key=jr.key(0)), objective(plain, xs))
    assert abs(objective(student, xs, key=jr.key(0)) - objective(student, xs)) > 1e-4


def test_an_ensemble_teaches_by_its_pooled_logits():
    """Pooled by mixture at T = 1, the soft labels are the average probabilities of the members."""
    make = partial(Linear.init, 3, 4)
    xs = normal(0, 5, 3)
    student = net(3, 2, 4)
    crowd = Ensemble.init(make, 6, pool=layers.mean_probabilities, key=jr.key(0))
    each = jax.vmap(lambda member: jax.nn.softmax(jax.vmap(member)(xs)))(crowd.members)
    assert close(distil(crowd)(student, xs), cross_entropy(student, (xs, each.mean(axis=0))))
    mean = Ensemble(crowd.members)
    logits = jax.vmap(lambda member: jax.vmap(member)(xs))(crowd.members).mean(axis=0)
    assert close(
        distil(mean, temperature=2.0)(student, xs), asked_before(2.0)(student, (xs, logits))
    )


def asked_before(temperature):
    return batch_mean(partial(distillation_loss, temperature=temperature))


@pytest.mark.slow
def test_a_teacher_may_be_asked_once(silent):
    """Fits on (xs, logits) computed before, and on xs with the teacher at hand, are the same
    descent.
    """
    teacher = net(3, 8, 4)
    student = net(3, 4, 4, seed=1)
    xs = normal(0, 64, 3)
    logits = jax.vmap(teacher)(xs)
    run = lambda objective, data: fit(
        descend(objective, optax.adam(1e-2)),
        student,
        data,
        epochs=3,
        batch_size=16,
        key=jr.key(0),
        progress=silent,
    )
    known = run(asked_before(2.0), (xs, logits))
    asked = run(distil(teacher, temperature=2.0), xs)
    assert close(known.model, asked.model, rtol=1e-4, atol=1e-5)
    assert known.history["train loss"][-1] < known.history["train loss"][0]


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("inf"), float("nan")])
def test_bad_temperatures_are_refused(temperature):
    for make in (
        lambda: distil(net(3, 4), temperature=temperature),
        lambda: distillation_loss(jnp.zeros(3), jnp.zeros(3), temperature=temperature),
    ):
        with pytest.raises(ValueError, match="temperature must be > 0 and finite"):
            make()


@pytest.mark.parametrize("labels", [-0.1, 1.1, float("nan")])
def test_bad_shares_are_refused(labels):
    with pytest.raises(ValueError, match=r"label_weight, .* must be in \[0, 1\]"):
        distil(net(3, 4), label_weight=labels)


@pytest.mark.usefixtures("unchecked")
def test_teachers_that_cannot_teach_are_refused():
    xs = normal(0, 5, 3)
    student = net(3, 3)
    with pytest.raises(ValueError, match="the same number of classes; got 10 and 3"):
        distil(net(3, 4, 10))(student, xs)
    with pytest.raises(
        ValueError, match="the teacher must return two or more logits for an example; got shape"
    ):
        distil(net(3, 4, 1))(student, xs)
    with pytest.raises(ValueError, match="Fold them first"):
        distil(Chain(BatchNorm.init(3), Linear.init(3, 3, key=jr.key(0))))
    with pytest.raises(ValueError, match="the teacher must be a model"):
        distil(jnp.zeros((5, 3)))
    with pytest.raises(ValueError, match=r"needs batches \(xs, ys\)"):
        distil(net(3, 4, 3), label_weight=0.5)(student, xs)
    with pytest.raises(ValueError, match="the same number of classes; got 4 and 3"):
        distillation_loss(jnp.zeros(3), jnp.zeros(4), temperature=1.0)


def test_a_student_with_dropout_and_batch_norm_learns(silent):
    """The student may be any model: here its batch norms see the batch and its dropout the key."""
    teacher = net(3, 8, 4)
    xs = normal(0, 64, 3)
    student = Chain(
        Linear.init(3, 8, key=jr.key(1)),
        BatchNorm.init(8),
        layers.tanh,
        Dropout(0.2),
        net(8, 4, seed=2),
    )
    found = fit(
        descend(distil(teacher, temperature=2.0), optax.adam(1e-2)),
        student,
        (xs,),
        epochs=5,
        batch_size=16,
        key=jr.key(0),
        progress=silent,
    )
    assert found.history["train loss"][-1] < found.history["train loss"][0]

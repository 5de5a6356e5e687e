"""Descent and its relatives against loops written by hand."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from contracts import IterationRow as Row
from contracts import close, dropped, generic, normal, same_bits

from thetax import tree
from thetax.core import run
from thetax.layers import Ensemble, Linear
from thetax.train import cross_entropy, descend, ema, per_member, squared_error, swa

plain = descend(squared_error, optax.sgd(0.1))
STEPS = 6


def start():
    return Linear(normal(0, 1, 3), normal(1, 1))


def batches(n=STEPS, size=8):
    return normal(2, n, size, 3), normal(3, n, size)


def by_hand(n=STEPS, rate=0.1):
    """θ_t by numpy: the gradient of ½ mean (Wx + b − y)² is the mean of error · [x, 1]."""
    W, b = (np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(start()))
    W = W[0]
    b = b[0]
    path = []
    for xs, ys in zip(*(np.asarray(a, np.float64) for a in batches(n))):
        error = xs @ W + b - ys
        W = W - rate * error @ xs / len(xs)
        b = b - rate * error.mean()
        path.append(
            (
                W,
                b,
                (error**2).mean() / 2,
                np.hypot(np.linalg.norm(error @ xs / len(xs)), error.mean()),
            )
        )
    return path


def test_sgd_is_the_loop():
    """Weights, losses and gradient lengths of every step, by numpy in float64."""
    state, (kept, info) = run(
        plain, start(), batches(), key=jr.key(0), record=lambda state: state.model
    )
    W, b, losses, lengths = (np.stack(column) for column in zip(*by_hand()))
    assert np.allclose(kept.W[:, 0], W, atol=1e-5)
    assert np.allclose(kept.b[:, 0], b, atol=1e-5)
    assert np.allclose(info.loss, losses, rtol=1e-5)
    assert np.allclose(info.gradient, lengths, rtol=1e-5)
    assert same_bits(state.model, jax.tree.map(lambda leaf: leaf[-1], kept))


def test_lbfgs_solves_least_squares():
    """On one quadratic batch it reaches in 15 steps the solution of the normal equations."""
    (xs,), (ys,) = batches(1, 20)
    repeated = jnp.stack([xs] * 15), jnp.stack([ys] * 15)
    state, _ = run(descend(squared_error, optax.lbfgs()), start(), repeated, key=jr.key(0))
    expected, *_ = np.linalg.lstsq(np.column_stack([xs, np.ones(20)]), np.asarray(ys), rcond=None)
    assert np.allclose(np.append(state.model.W[0], state.model.b), expected, atol=1e-3)


@pytest.mark.parametrize("parts", [2, 4, 8])
def test_accumulation_is_the_full_batch(parts):
    """The same step, loss and gradient length to 1e-6, for an objective without chance."""
    state, (_, info) = run(
        descend(squared_error, optax.sgd(0.1), accumulate=parts), start(), batches(), key=jr.key(0)
    )
    expected, (_, other) = run(plain, start(), batches(), key=jr.key(0))
    assert close(state.model, expected.model, rtol=1e-6, atol=1e-6)
    assert close(info, other, rtol=1e-5)


def test_accumulation_draws_anew_for_each_part():
    """The parts of a batch see different masks: four equal examples in four parts are not one in
    one.
    """
    model = generic(Row("", None))
    batch = (jnp.tile(normal(5, 1, 3), (4, 1)), jnp.zeros(4, jnp.int32))
    step = lambda parts: descend(cross_entropy, optax.sgd(0.1), accumulate=parts)
    seen = step(4).step(step(4).init(model), batch, key=jr.key(0))[1].loss
    alone = [
        cross_entropy(model, jax.tree.map(lambda a: a[:1], batch), key=jr.fold_in(jr.key(0), i))
        for i in range(4)
    ]
    assert len({float(loss) for loss in alone}) > 1
    assert close(seen, sum(alone) / 4)


def test_accumulation_refuses_a_batch_that_does_not_split():
    iteration = descend(squared_error, optax.sgd(0.1), accumulate=3)
    with pytest.raises(ValueError, match="accumulate must divide the batch size of 8; got 3"):
        iteration.step(iteration.init(start()), (jnp.zeros((8, 3)), jnp.zeros(8)), key=jr.key(0))
    with pytest.raises(ValueError, match="accumulate must be an integer >= 1; got 0"):
        descend(squared_error, optax.sgd(0.1), accumulate=0)


@pytest.mark.parametrize("decay", [0.0, 0.3, 0.99])
def test_ema_is_the_loop(decay):
    """θ̄_t = β_t θ̄ + (1 − β_t) θ_t with β_t = min(β, t/(t + 9)); the iteration beneath is
    untouched.
    """
    state, _ = run(ema(plain, decay=decay), start(), batches(), key=jr.key(0))
    mean = np.asarray(start().W[0], np.float64)
    for t, (W, *_) in enumerate(by_hand(), start=1):
        beta = min(decay, t / (t + 9))
        mean = beta * mean + (1 - beta) * W
    assert np.allclose(state.model.W[0], mean, atol=1e-5)
    assert np.allclose(state.inner.model.W[0], by_hand()[-1][0], atol=1e-5)
    assert state.steps == STEPS


@pytest.mark.parametrize("first", [1, 3, STEPS, STEPS + 1])
def test_swa_is_the_mean_from_its_start(first):
    """Before `start` the answer is the last weights, from then on the mean of θ_start … θ_t."""
    state, _ = run(swa(plain, start=first), start(), batches(), key=jr.key(0))
    weights = [W for W, *_ in by_hand()]
    expected = np.mean(weights[first - 1 :], axis=0) if first <= STEPS else weights[-1]
    assert np.allclose(state.model.W[0], expected, atol=1e-5)


@pytest.mark.parametrize("decay", [1.0, -0.1, 2.0])
def test_bad_decay_is_refused(decay):
    with pytest.raises(ValueError, match=r"\[0, 1\)"):
        ema(plain, decay=decay)


def test_restarts_train_each_member_alone():
    """Every member ends where it ends when trained by itself with its own keys; the pool is the
    ensemble's.
    """
    make = lambda key: dropped(key=key)
    net, (xs, ys) = (
        Ensemble.init(make, 3, key=jr.key(0)),
        (normal(2, 4, 8, 3), jnp.arange(32).reshape(4, 8) % 3),
    )
    inner = descend(cross_entropy, optax.adam(0.1))
    state, (_, info) = run(per_member(inner), net, (xs, ys), key=jr.key(1))
    step = jax.jit(lambda state, batch, key: inner.step(state, batch, key=key))
    for i in range(3):
        alone = inner.init(jax.tree.map(lambda leaf, i=i: leaf[i], net.members))
        for t in range(4):
            alone, seen = step(alone, (xs[t], ys[t]), jr.split(jr.fold_in(jr.key(1), t), 3)[i])
        member = jax.tree.map(lambda leaf, i=i: leaf[i], state.model.members)
        assert close(member, alone.model, rtol=1e-5, atol=1e-6)
        assert close(info.loss[-1, i], seen.loss)
    assert state.model.pool is net.pool
    assert info.loss.shape == (4, 3)


def test_clipping_and_schedule_reach_the_step():
    """With clipping to 1e-3 and a schedule that halves, the step lengths are rate(t) · 1e-3."""
    schedule = optax.exponential_decay(0.5, transition_steps=1, decay_rate=0.5)
    optimiser = optax.chain(optax.clip_by_global_norm(1e-3), optax.sgd(schedule))
    _, (kept, _) = run(
        descend(squared_error, optimiser),
        start(),
        batches(),
        key=jr.key(0),
        record=lambda s: s.model,
    )
    path = jnp.concatenate([start().W, kept.W[:, 0]]), jnp.concatenate([start().b[None], kept.b])
    moved = tree.norm  # of each difference
    lengths = [
        float(moved((path[0][t + 1] - path[0][t], path[1][t + 1] - path[1][t])))
        for t in range(STEPS)
    ]
    assert np.allclose(lengths, 1e-3 * 0.5 ** np.arange(1, STEPS + 1), rtol=2e-2)

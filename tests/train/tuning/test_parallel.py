"""Parallel training gives the same networks as training alone; traced dropout acts as `Dropout`."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from thetax import tree
from thetax.core import predict, run
from thetax.layers import Chain, Dropout, Linear
from thetax.models import MLP
from thetax.train import (
    Fold,
    Setting,
    TuningTask,
    cross_entropy,
    descend,
    error_rate,
    evaluate,
    k_folds,
    smooth_labels,
    weight_decay,
)
from thetax.train.tuning.parallel import (
    LaneHyperparameters,
    ParallelTrainer,
    lane_iteration,
    with_dropout,
)


def make(hidden, dropout, key):
    return MLP.init(3, *hidden, 2, dropout=dropout, key=key)


@pytest.fixture(scope="module")
def data():
    xs = np.asarray(jr.normal(jr.key(0), (46, 3)))
    return xs, (xs[:, 0] * xs[:, 1] > 0).astype(np.int32)


def trainer(data, **settings) -> ParallelTrainer:
    folds = k_folds(46, 4, key=jr.key(1), stratify=data[1])
    return ParallelTrainer(TuningTask(data, make), folds, jr.key(2), **settings)


ONE = Setting(
    width=5, depth=1, weight_decay=1e-2, dropout=0.0, learning_rate=3e-2, batch_size=8, epochs=4
)


@pytest.mark.slow
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_a_lane_is_a_network_trained_alone(data, smoothing):
    """The other route: one fold in a Python loop over Optax, with the same start and the same
    batches.
    """
    many = trainer(data, use_dropout=False, classes=2 if smoothing else 0)
    c = many.init_candidate(ONE._replace(label_smoothing=smoothing))
    start = jax.tree.map(lambda leaf: leaf[1], c.state).model
    many.train_until([c], lambda setting: setting.epochs)
    steps = many.steps(ONE.batch_size)
    assert steps == min(len(part.train) for part in many.folds) // ONE.batch_size
    schedule = optax.cosine_decay_schedule(ONE.learning_rate, ONE.epochs * steps)
    smooth = smooth_labels(cross_entropy, 2, strength=smoothing)
    alone = descend(weight_decay(smooth, strength=ONE.weight_decay), optax.adam(schedule))
    state = alone.init(start)
    part = many.folds[1]
    for epoch in range(ONE.epochs):
        for rows in many._rows(epoch, ONE.batch_size)[1]:
            assert set(rows) <= set(part.train)
            state, _ = alone.step(
                state, (jnp.asarray(data[0][rows]), jnp.asarray(data[1][rows])), key=None
            )
        held = tuple(a[part.valid] for a in data)
        assert c.errors[epoch][1] == pytest.approx(
            evaluate(state.model, held, {"e": error_rate})["e"], abs=1e-6
        )
    mine = jax.tree.map(lambda leaf: leaf[1], c.state).model
    np.testing.assert_allclose(
        tree.ravel(mine)[0], tree.ravel(state.model)[0], rtol=2e-4, atol=2e-5
    )


@pytest.mark.slow
def test_errors_do_not_depend_on_the_other_candidates(data):
    """Alone, in a pair, with others that train for longer, in parts: the same numbers."""
    settings = [
        ONE._replace(dropout=0.3, learning_rate=rate, epochs=epochs)
        for rate, epochs in [(0.03, 9), (0.01, 12), (0.1, 3)]
    ]
    apart = []
    for setting in settings:
        many = trainer(data, restarts=2, slots=1)
        apart.append(many.init_candidate(setting))
        many.train_until(apart[-1:], lambda s: s.epochs)
    many = trainer(data, restarts=2, slots=2)
    together = [many.init_candidate(setting) for setting in settings]
    for share in (0.34, 1.0):  # the second and the third meet at different epochs
        many.train_until(together, lambda s: max(1, round(share * s.epochs)))  # noqa: B023
    for a, b in zip(apart, together):
        assert len(a.errors) == len(b.errors) == a.setting.epochs
        np.testing.assert_allclose(a.errors, b.errors, atol=1e-6)
        np.testing.assert_allclose(a.losses, b.losses, rtol=1e-4, atol=1e-5)


def test_the_learning_rate_falls_along_a_cosine_to_zero():
    """Adam on a constant gradient moves by the learning rate at every step, so the path is the sum
    of the rates.
    """
    objective = lambda model, batch, *, key=None: model.W.sum() * batch
    hyperparameters = LaneHyperparameters(
        learning_rate=0.1, weight_decay=0.0, dropout=jnp.array(0.0), label_smoothing=0.0, steps=4
    )
    descent = lane_iteration(objective, hyperparameters, 0)
    rows = jax.jit(
        lambda model: run(
            descent, model, jnp.ones(6), key=jr.key(0), record=lambda state: state.model.W[0, 0]
        )
    )
    way = np.asarray(rows(Linear(jnp.zeros((1, 1)), jnp.zeros(1)))[1][0])
    rates = 0.05 * (1 + np.cos(np.pi * np.minimum(1, np.arange(6) / 4)))
    np.testing.assert_allclose(way, -np.cumsum(rates), atol=1e-5)


def test_batches_of_a_lane_come_from_its_fold(data):
    """Every epoch another order, no row twice; the restarts of a fold see the same; held-out rows
    are never seen.
    """
    parts = [Fold(np.arange(10, 46), np.arange(10)), Fold(np.arange(36), np.arange(36, 46))]
    many = ParallelTrainer(TuningTask(data, make), parts, jr.key(2), restarts=2)
    assert many.n_lanes == 4
    assert many.steps(8) == 4
    rows = many._rows(0, 8)
    assert rows.shape == (4, 4, 8)
    np.testing.assert_array_equal(rows[0], rows[1])
    np.testing.assert_array_equal(rows[2], rows[3])
    for lane_rows, part in zip(rows[::2], parts):
        assert len(set(lane_rows.ravel())) == 32
        assert set(lane_rows.ravel()) <= set(part.train)
    assert not np.array_equal(rows, many._rows(1, 8))


def test_validation_rows_are_padded_to_one_length(data):
    many = ParallelTrainer(
        TuningTask(data, make),
        [Fold(np.arange(3, 46), np.arange(3)), Fold(np.arange(44), np.arange(44, 46))],
        jr.key(2),
    )
    rows, weight = map(np.asarray, many._validation_rows)
    assert rows.tolist() == [[0, 1, 2], [44, 45, 0]] * 2  # the slots
    assert weight.tolist() == [[1, 1, 1], [1, 1, 0]] * 2


def test_a_finished_lane_does_not_change(data):
    many = trainer(data, slots=2)
    short = many.init_candidate(ONE)
    long = many.init_candidate(ONE._replace(epochs=9))
    many.train_until([short], lambda s: 4)
    before = short.state.model
    many._train_group([short, long], 5)
    assert len(short.errors) == 4
    np.testing.assert_array_equal(tree.ravel(before)[0], tree.ravel(short.state.model)[0])


def test_restarts_of_a_fold_differ_in_initial_weights_and_share_batches(data):
    many = trainer(data, restarts=3)
    W = np.asarray(many.init_candidate(ONE).state.model.body.layers[0].W)
    assert len({w.tobytes() for w in W}) == 12
    rows = many._rows(0, 8).reshape(4, 3, -1)
    assert (rows == rows[:, :1]).all()
    assert not np.array_equal(rows[0, 0], rows[1, 0])


def test_folds_of_unequal_size_are_evaluated_on_their_own_rows(data):
    parts = [Fold(np.arange(10, 46), np.arange(10)), Fold(np.arange(3, 46), np.arange(3))]
    many = ParallelTrainer(TuningTask(data, make), parts, jr.key(2), use_dropout=False)
    c = many.init_candidate(ONE)
    many.train_until([c], lambda s: 1)
    for place, part in enumerate(parts):
        model = jax.tree.map(lambda leaf: leaf[place], c.state).model  # noqa: B023
        alone = evaluate(model, tuple(a[part.valid] for a in data), {"e": error_rate})["e"]
        assert c.errors[0][place] == pytest.approx(alone, abs=1e-6)


@pytest.mark.parametrize("p", [0.0, 0.2, 0.7])
def test_traced_dropout_has_the_distribution_of_dropout(p):
    """Values 0 and 1/(1-p) only, zeros with probability p; independent over examples,
    layers and keys.
    """
    seen = []

    def outputs(model, xs, key=None):
        seen.append(predict(model, xs, key=key))
        return seen[-1].sum()

    xs = jnp.ones((200, 50))
    model = Chain(Dropout(0.9), Dropout(0.9))
    single = Chain(Dropout(0.9))
    with_dropout(outputs, jnp.array(p))(single, xs, key=jr.key(0))
    with_dropout(outputs, jnp.array(p))(single, xs, key=jr.key(1))
    with_dropout(outputs, jnp.array(p))(model, xs, key=jr.key(0))
    with_dropout(outputs, jnp.array(p))(single, xs)
    one, other, twice, plain = map(np.asarray, seen)
    np.testing.assert_array_equal(plain, 1.0)
    np.testing.assert_allclose(np.unique(one), [1.0] if p == 0 else [0.0, 1 / (1 - p)], rtol=1e-6)
    spread = np.sqrt(p * (1 - p))
    assert abs((one == 0).mean() - p) <= 5 * spread / np.sqrt(one.size)
    for axis in (0, 1):  # rows are examples, columns units
        counts = (one == 0).mean(axis)
        assert np.all(np.abs(counts - p) <= 5.5 * spread / np.sqrt(one.shape[axis]))
    both = ((one == 0) & (other == 0)).mean()
    assert abs(both - p**2) <= 5 * np.sqrt(p**2 * (1 - p**2) / one.size)
    assert abs((twice != 0).mean() - (1 - p) ** 2) <= 5 * 0.5 / np.sqrt(one.size)
    reference = np.asarray(predict(Chain(Dropout(p)), xs, key=jr.key(3)))
    assert abs(one.mean() - reference.mean()) <= 5 * np.sqrt(2 * p / (1 - p) / one.size)


def test_training_on_all_data_uses_every_row_and_as_many_steps(data):
    """Epochs have as many steps as those of a fold, so the compiled programs are reused; there are
    more epochs.
    """
    many = trainer(data, slots=2)
    found = many.train_on_all(ONE._replace(dropout=0.2), members=6, key=jr.key(7))
    W = np.asarray(found.state.model.body.layers[0].W)
    assert len({w.tobytes() for w in W}) == 6  # every member has a start of its own
    assert len(found.losses) == round(ONE.epochs * 46 / many.steps(1))
    assert np.mean(found.losses[-1]) < np.mean(found.losses[0])
    whole = ParallelTrainer(
        many.task, [Fold(np.arange(46), part.valid) for part in many.folds], jr.key(7), examples=34
    )
    assert {row for epoch in range(20) for row in whole._rows(epoch, 8).ravel().tolist()} == set(
        range(46)
    )

"""`fit`: what an epoch is, why it stops, and that the way it is cut into chunks does not show."""

import itertools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from contracts import normal, same_bits

from thetax.core import Iteration
from thetax.layers import BatchNorm, Chain, Dropout, Ensemble, Linear, Residual
from thetax.models import MLP
from thetax.train import (
    DivergenceError,
    Run,
    cross_entropy,
    descend,
    error_rate,
    evaluate,
    fit,
    mixed_precision,
    per_member,
    squared_error,
    squared_loss,
)
from thetax.train.loop import compiled as loop
from thetax.train.loop.settings import check_arrays

KEY = jr.key(0)


class Numbers(eqx.Module):
    """A model that is nothing but numbers, which an iteration may count with."""

    values: jax.Array

    def __call__(self, x):
        return x


class State(NamedTuple):
    model: Numbers


class Seen(NamedTuple):
    loss: jax.Array


def count(state, batch, *, key):
    """One counter an example; a step adds one for every example it sees."""
    return State(Numbers(state.model.values.at[batch].add(1.0))), Seen(
        batch.astype(jnp.float32).mean()
    )


counting = Iteration(State, count)
descent = descend(cross_entropy, optax.adam(0.05))
plain = descend(squared_error, optax.sgd(0.05))


def network():
    return Chain(
        Linear(normal(0, 6, 3), normal(1, 6)),
        jnp.tanh,
        Dropout(0.2),
        Linear(normal(2, 2, 6), normal(3, 2)),
    )


def data(n=24):
    xs = normal(4, n, 3)
    return xs, (xs[:, 0] > 0).astype(jnp.int32)


def quiet(iteration, model, data, silent, **settings):
    return fit(
        iteration,
        model,
        data,
        progress=silent,
        **{"epochs": 2, "batch_size": 8, "key": KEY, **settings},
    )


# An epoch


def test_an_epoch_visits_every_example_once(silent):
    """Where the batch divides n, after e epochs each example was seen exactly e times."""
    found = quiet(counting, Numbers(jnp.zeros(24)), jnp.arange(24), silent, epochs=3)
    assert found.model.values.tolist() == [3] * 24
    assert found.steps == 9
    assert np.allclose(found.history["train loss"], 11.5)


def test_an_epoch_never_repeats_an_example(silent):
    """Where it does not divide, the rest waits; over many epochs nobody is left out."""
    once = quiet(counting, Numbers(jnp.zeros(10)), jnp.arange(10), silent, epochs=1, batch_size=4)
    assert sorted(once.model.values.tolist()) == [0] * 2 + [1] * 8
    many = quiet(counting, Numbers(jnp.zeros(10)), jnp.arange(10), silent, epochs=30, batch_size=4)
    assert many.model.values.sum() == 240
    assert 15 < many.model.values.min() <= many.model.values.max() <= 30


def test_every_epoch_has_its_own_order(silent):
    """The first batch of an epoch has other examples than that of the last, and than the order
    given.
    """

    class Log(NamedTuple):
        model: Numbers
        step: jax.Array

    def note(state, batch, *, key):
        return Log(Numbers(state.model.values.at[state.step].set(batch)), state.step + 1), Seen(
            jnp.zeros(())
        )

    logging = Iteration(lambda model: Log(model, jnp.zeros((), jnp.int32)), note)
    found = quiet(
        logging,
        Numbers(jnp.zeros((6, 4), jnp.int32)),
        jnp.arange(12),
        silent,
        epochs=2,
        batch_size=4,
    )
    first = found.model.values[:3].ravel().tolist()
    second = found.model.values[3:].ravel().tolist()
    assert sorted(first) == sorted(second) == list(range(12))
    assert first != second
    assert first != list(range(12))


def test_same_key_same_bits(silent):
    """Dropout and order come from the key alone."""
    once, again = (quiet(descent, network(), data(), silent) for _ in range(2))
    assert same_bits(once.model, again.model)
    assert np.array_equal(once.history["train loss"], again.history["train loss"])
    assert not same_bits(once.model, quiet(descent, network(), data(), silent, key=jr.key(1)).model)


@pytest.mark.parametrize("beat", [1e-9, 10.0], ids=["one step a chunk", "one chunk an epoch"])
def test_chunks_do_not_show(silent, monkeypatch, beat):
    """However an epoch is cut, weights are the same bits."""
    expected = quiet(descent, network(), data(), silent, epochs=3)
    monkeypatch.setattr(loop, "CHUNK_SECONDS", beat)
    found = quiet(descent, network(), data(), silent, epochs=3)
    assert same_bits(found.model, expected.model)
    assert np.allclose(found.history["train loss"], expected.history["train loss"], rtol=1e-6)


def test_a_stream_in_the_same_order_is_the_same_fit(silent):
    """Fed the batches the arrays would give, with the keys the arrays would use, a stream ends at
    the same weights.
    """
    xs, ys = (np.asarray(a) for a in data())
    key_order = jr.split(KEY, 3)[0]

    def stream(epoch):
        rows = np.asarray(loop.epoch_order(key_order, epoch, 24))
        for part in rows.reshape(3, 8):
            yield xs[part], ys[part]

    streamed, expected = (quiet(descent, network(), d, silent) for d in (stream, data()))
    assert all(
        np.allclose(a, b, atol=1e-6)
        for a, b in zip(jax.tree.leaves(streamed.model), jax.tree.leaves(expected.model))
    )
    assert np.allclose(streamed.history["train loss"], expected.history["train loss"], rtol=1e-5)
    assert streamed.steps == expected.steps == 6


def test_one_full_batch_epoch_is_one_step_of_descent(silent):
    """By hand: θ − η · mean error · [x, 1]."""
    xs = normal(0, 8, 3)
    ys = normal(1, 8)
    found = quiet(plain, Linear(jnp.zeros((1, 3)), jnp.zeros(1)), (xs, ys), silent, epochs=1)
    assert np.allclose(found.model.W[0], 0.05 * np.asarray(ys) @ np.asarray(xs) / 8, atol=1e-6)
    assert np.isclose(found.history["train loss"][0], (np.asarray(ys) ** 2).mean() / 2, rtol=1e-6)


def test_numpy_arrays_and_dictionaries_will_do(silent):
    """Any tree of arrays, of numpy or of JAX."""
    xs, ys = (np.asarray(a) for a in data())
    expected = quiet(descent, network(), data(), silent, epochs=1)
    assert same_bits(quiet(descent, network(), (xs, ys), silent, epochs=1).model, expected.model)
    by_name = descend(
        lambda model, batch, *, key=None: cross_entropy(model, (batch["x"], batch["y"]), key=key),
        optax.adam(0.05),
    )
    assert same_bits(
        quiet(by_name, network(), {"x": xs, "y": ys}, silent, epochs=1).model, expected.model
    )


def test_the_callers_model_is_not_given_away(silent):
    """The loop donates its own buffers; model, data and key can be used again."""
    model = network()
    batch = data()
    before = jax.tree.map(np.array, (model, batch))
    quiet(descent, model, batch, silent, validation=0.25, metrics={"error": error_rate}, patience=3)
    assert same_bits(jax.tree.map(np.asarray, (model, batch)), before)


# Validation


def test_the_held_out_fraction_is_never_trained_on(silent):
    """Counters of a quarter of the examples stay at 0, those of the others reach the number of
    epochs.
    """
    held = lambda model, batch, *, key=None: batch.astype(jnp.float32).mean()
    found = quiet(
        counting,
        Numbers(jnp.zeros(32)),
        jnp.arange(32),
        silent,
        validation=0.25,
        metrics={"index": held},
    )
    seen = np.asarray(found.model.values)
    kept_out = np.flatnonzero(seen == 0)
    assert len(kept_out) == 8
    assert seen[seen > 0].tolist() == [2] * 24
    assert np.allclose(found.history["valid index"], kept_out.mean())


@pytest.mark.slow
def test_a_validation_set_of_its_own(silent):
    """Measured after every epoch on the whole set, also one of more than a block."""
    batch = data()
    valid = (normal(9, 5000, 3), jnp.arange(5000) % 2)
    metrics = {"error": error_rate, "loss": cross_entropy}
    found = quiet(descent, network(), batch, silent, validation=valid, metrics=metrics, epochs=3)
    assert found.history["valid error"].shape == found.history["valid loss"].shape == (3,)
    assert np.isclose(found.history["valid error"][-1], error_rate(found.model, valid), atol=1e-6)
    assert np.isclose(found.history["valid loss"][-1], cross_entropy(found.model, valid), rtol=1e-5)


def test_evaluate_is_the_objective_on_the_whole_set():
    """Blocks of 2,048 and a rest are weighed by their sizes; numpy arrays will do; nothing is
    drawn.
    """
    valid = np.asarray(normal(9, 5000, 3)), np.arange(5000) % 2
    found = evaluate(network(), valid, {"loss": cross_entropy, "error": error_rate})
    whole = tuple(jnp.asarray(a) for a in valid)
    assert np.isclose(found["loss"], cross_entropy(network(), whole), rtol=1e-5)
    assert np.isclose(found["error"], error_rate(network(), whole), rtol=1e-6)


def test_history_has_one_number_an_epoch(silent):
    found = quiet(
        descent, network(), data(), silent, epochs=4, validation=0.25, metrics={"error": error_rate}
    )
    assert set(found.history) == {"train loss", "train gradient", "valid error"}
    assert {len(column) for column in found.history.values()} == {4}
    assert found.reason == "all 4 epochs done"
    assert found.seconds > 0


def tick(state, batch, *, key):
    return State(Numbers(state.model.values + 1)), Seen(jnp.zeros(()))


ticking = Iteration(State, tick)  # counts the steps


@pytest.mark.parametrize(
    ("script", "patience", "epochs", "best"),
    [
        ([5, 4, 3, 3, 3, 1, 0], 2, 5, 3),  # equal is not better
        ([5, 4, 3, 3.5, 2, 9, 9, 9, 0], 3, 8, 5),  # an improvement resets the wait
        ([1, 2, 3, 4, 5, 6, 7], 1, 2, 1),
        ([7, 6, 5, 4, 3, 2, 1], 1, 7, 7),  # never stops early
    ],
)
def test_patience(silent, script, patience, epochs, best):
    """On a scripted metric the fit stops at the predicted epoch and returns the weights of the
    best.
    """
    table = jnp.array([0.0, *script])
    metric = lambda model, batch, *, key=None: table[model.values.astype(jnp.int32)]
    found = quiet(
        ticking,
        Numbers(jnp.zeros(())),
        jnp.arange(8),
        silent,
        epochs=len(script),
        validation=jnp.arange(2),
        metrics={"scripted": metric},
        patience=patience,
    )
    assert len(found.history["valid scripted"]) == epochs
    assert found.model.values == best == 1 + np.argmin(script[:epochs])
    early = epochs < len(script)
    waited = "1 epoch" if patience == 1 else f"{patience} epochs"
    assert found.reason == (
        f"no improvement for {waited}" if early else f"all {epochs} epochs done"
    )


def test_one_epoch_is_not_many(silent):
    assert (
        quiet(ticking, Numbers(jnp.zeros(())), jnp.arange(8), silent, epochs=1).reason
        == "the only epoch done"
    )


def test_the_first_metric_is_the_one_watched(silent):
    rising = lambda model, batch, *, key=None: model.values
    falling = lambda model, batch, *, key=None: -model.values
    settings = {"epochs": 5, "validation": jnp.arange(2), "patience": 2}
    first = quiet(
        ticking,
        Numbers(jnp.zeros(())),
        jnp.arange(8),
        silent,
        metrics={"a": rising, "b": falling},
        **settings,
    )
    second = quiet(
        ticking,
        Numbers(jnp.zeros(())),
        jnp.arange(8),
        silent,
        metrics={"b": falling, "a": rising},
        **settings,
    )
    assert len(first.history["valid a"]) == 3
    assert len(second.history["valid a"]) == 5


@pytest.mark.slow
def test_batch_norm_is_folded_for_validation(silent):
    """A validation set of one class only is judged with the moments of the training data."""
    xs, ys = data(64)
    net = MLP.init(3, 8, 2, normalise=BatchNorm.init, connect=Residual, key=jr.key(1))
    one_class = (xs[ys == 1], ys[ys == 1])
    found = quiet(
        descent,
        net,
        (xs, ys),
        silent,
        epochs=20,
        batch_size=16,
        validation=one_class,
        metrics={"error": error_rate},
    )
    assert found.history["valid error"][-1] < 0.1


def test_a_batch_of_one_is_refused_where_there_are_batch_norms(silent, monkeypatch):
    """It would train to chance; a validation set of one example is judged by folded norms. Nothing
    is computed.
    """
    net = MLP.init(3, 8, 2, normalise=BatchNorm.init, key=jr.key(1))
    data = normal(0, 6, 3), jnp.arange(6) % 2
    monkeypatch.setattr(loop, "_advance", None)
    with pytest.raises(ValueError, match="BatchNorm: the batch has one example"):
        fit(
            descend(cross_entropy, optax.sgd(0.1)),
            net,
            data,
            epochs=1,
            batch_size=1,
            key=KEY,
            progress=silent,
        )
    assert check_arrays("validation", jax.tree.map(lambda a: a[:1], data), net) == 1


def test_restarts_of_networks_with_batch_norm_are_validated(silent):
    """Each member is folded by itself."""
    make = lambda key: MLP.init(3, 4, 2, normalise=BatchNorm.init, key=key)
    net = Ensemble.init(make, 2, key=jr.key(0))
    found = quiet(
        per_member(descent), net, data(), silent, validation=0.25, metrics={"error": error_rate}
    )
    assert len(found.history["valid error"]) == 2


# Numbers that are not finite


def poisoned(step):
    """A stream of five batches whose batch at that step is all NaN."""
    xs, ys = (np.array(a) for a in data(40))
    xs[8 * step : 8 * step + 8] = np.nan
    return lambda epoch: ((xs[i : i + 8], ys[i : i + 8]) for i in range(0, 40, 8))


def burn(state, batch, *, key):
    """The fifth step is too hot."""
    heat = jnp.where(state.model.values == 4, jnp.inf, 1.0)
    return State(Numbers(state.model.values + 1)), {"loss": heat}


def reject(state, batch, *, key):
    """A sampler's fifth step has an infinite energy error: a rejection, not a failure."""
    error = jnp.where(state.model.values == 4, jnp.inf, 1.0)
    return State(Numbers(state.model.values + 1)), {"error": error}


def test_only_losses_and_gradients_must_be_finite(silent):
    found = quiet(
        Iteration(State, reject), Numbers(jnp.zeros(())), jnp.arange(24), silent, epochs=4
    )
    assert found.steps == 12
    assert np.isinf(found.history["train error"][1])


def test_an_info_without_names_is_refused(silent):
    bare = Iteration(State, lambda state, batch, *, key: (state, jnp.zeros(())))
    with pytest.raises(ValueError, match="info must be a NamedTuple or dict"):
        quiet(bare, Numbers(jnp.zeros(())), jnp.arange(24), silent)


def test_weights_that_are_not_finite_are_never_an_answer(silent):
    """An update that overflows on a finite loss and gradient is seen at the end of the epoch."""
    poison = optax.stateless(lambda updates, params: jax.tree.map(lambda u: u * jnp.inf, updates))
    with pytest.raises(DivergenceError, match="weights became nan"):
        quiet(
            descend(squared_error, poison),
            Linear(jnp.ones((1, 3)), jnp.zeros(1)),
            (normal(0, 8, 3), normal(1, 8)),
            silent,
            epochs=1,
            batch_size=8,
        )


def test_a_number_that_is_not_finite_stops_at_its_step(silent):
    """The fifth step, in the second epoch, is named, and so is the reading; later steps are not
    taken.
    """
    with pytest.raises(
        DivergenceError, match=r"loss became inf at step 5\. No checkpoint"
    ) as caught:
        quiet(Iteration(State, burn), Numbers(jnp.zeros(())), jnp.arange(24), silent, epochs=4)
    assert (caught.value.step, caught.value.name) == (5, "loss")


def test_divergence_of_a_descent(silent):
    """A rate far too large ends in Diverged with a word on what to try, not in NaN weights."""
    wild = descend(squared_error, optax.sgd(1e12))
    with pytest.raises(DivergenceError, match=r"smaller learning rate.*clip_by_global_norm"):
        quiet(
            wild,
            Linear(jnp.ones((1, 3)), jnp.zeros(1)),
            (normal(0, 16, 3), normal(1, 16)),
            silent,
            epochs=20,
        )


@pytest.mark.parametrize(
    ("dtype", "scale", "advice"),
    [
        (jnp.float16, 1e3, "float16, whose largest number is 65504 .* Compute in bfloat16"),
        (jnp.bfloat16, 1e30, "Try a smaller learning rate"),
    ],
    ids=["float16", "bfloat16"],
)
def test_an_overflow_of_float16_is_not_blamed_on_the_rate(silent, dtype, scale, advice):
    """1000² is beyond float16, and (1e30)² beyond bfloat16, whose range is that of float32."""
    objective = mixed_precision(squared_error, dtype=dtype)
    data = jnp.full((16, 3), scale), jnp.zeros(16)
    with pytest.raises(DivergenceError, match=f"became inf at step 1. .*{advice}"):
        quiet(
            descend(objective, optax.sgd(1e-9)),
            Linear(jnp.ones((1, 3)), jnp.zeros(1)),
            data,
            silent,
            epochs=1,
        )


def test_a_gradient_that_is_not_finite_is_seen_where_the_loss_is_finite(silent):
    """A NaN slope under a finite value: the fit must not take it for a gradient of length 0."""

    @jax.custom_jvp
    def trap(x):
        return x

    trap.defjvp(lambda primals, tangents: (primals[0], tangents[0] * jnp.nan))
    objective = lambda model, batch, *, key=None: trap(model.values.sum())
    with pytest.raises(DivergenceError, match="gradient became nan at step 1"):
        quiet(descend(objective, optax.sgd(0.1)), Numbers(jnp.ones(2)), jnp.arange(8), silent)


def test_a_stream_stops_too(silent):
    with pytest.raises(DivergenceError):
        quiet(descent, network(), poisoned(2), silent)


def test_a_stream_does_not_forget_a_bad_step(silent):
    """As with arrays: the loss of step 3 was NaN, and that is said, also where later steps are
    sound again.
    """
    patient = descend(cross_entropy, optax.apply_if_finite(optax.sgd(0.1), 10))
    with pytest.raises(DivergenceError, match="at step 3"):
        quiet(patient, network(), poisoned(2), silent, epochs=1)


# Watching


class Diary:
    """A progress that writes everything down."""

    def __init__(self):
        self.entries = []

    def start(self, epochs, steps, size):
        self.entries.append(("start", epochs, steps, size))

    def update(self, epoch, step, loss):
        self.entries.append(("update", epoch, step, loss))

    def epoch(self, row):
        self.entries.append(("epoch", row))

    def note(self, text):
        self.entries.append(("note", text))

    def close(self):
        self.entries.append(("close",))


def test_progress_is_told_everything(monkeypatch):
    """start, updates, epochs and close, in order; the loss is the mean loss so far, the row holds
    the history.
    """
    monkeypatch.setattr(loop, "CHUNK_SECONDS", 1e-9)  # an update a step
    diary = Diary()
    found = fit(
        plain,
        Linear(jnp.ones((1, 3)), jnp.zeros(1)),
        (normal(0, 24, 3), normal(1, 24)),
        epochs=2,
        batch_size=8,
        key=KEY,
        progress=diary,
    )
    kinds = [entry[0] for entry in diary.entries]
    assert kinds == ["start", *["update"] * 3, "epoch", *["update"] * 3, "epoch", "close"]
    assert diary.entries[0] == ("start", 2, 3, 8)
    assert [entry[1:3] for entry in diary.entries if entry[0] == "update"] == list(
        itertools.product(range(2), (1, 2, 3))
    )
    rows = [entry[1] for entry in diary.entries if entry[0] == "epoch"]
    assert [row["epoch"] for row in rows] == [1, 2]
    assert np.allclose([row["train loss"] for row in rows], found.history["train loss"])
    assert np.isclose(diary.entries[3][3], rows[0]["train loss"], rtol=1e-6)


def test_progress_is_closed_when_a_fit_fails():
    diary = Diary()
    with pytest.raises(DivergenceError):
        fit(
            Iteration(State, burn),
            Numbers(jnp.zeros(())),
            jnp.arange(24),
            epochs=4,
            batch_size=8,
            key=KEY,
            progress=diary,
        )
    assert diary.entries[-1] == ("close",)


def test_loss_per_example_is_comparable(silent):
    """The training loss of a still model is the objective over all the data, whatever the batch."""
    xs = normal(0, 24, 3)
    ys = normal(1, 24)
    still = descend(squared_error, optax.sgd(0.0))
    model = Linear(jnp.ones((1, 3)), jnp.zeros(1))
    expected = float(np.mean([squared_loss(model(x), y) for x, y in zip(xs, ys)]))
    for batch in (4, 24):
        found = quiet(still, model, (xs, ys), silent, epochs=1, batch_size=batch)
        assert np.isclose(found.history["train loss"][0], expected, rtol=1e-5)


@pytest.mark.slow
def test_batch_norms_are_folded_on_a_fair_sample(silent):
    """Data sorted by class, more than the sample: the validation is that of shuffled data."""
    n = 3000
    ys = jnp.repeat(jnp.arange(2), n // 2)
    xs = normal(0, n, 2) + 4.0 * ys[:, None] - 2.0
    model = MLP.init(2, 8, 2, normalise=BatchNorm.init, key=KEY)
    descent = descend(cross_entropy, optax.adam(1e-2))
    held_out = xs[::7], ys[::7]
    for order in (jnp.arange(n), jnp.asarray(np.random.default_rng(0).permutation(n))):
        found = fit(
            descent,
            model,
            (xs[order], ys[order]),
            epochs=3,
            batch_size=50,
            validation=held_out,
            metrics={"error": error_rate},
            key=KEY,
            progress=silent,
        )
        assert found.history["valid error"][-1] < 0.02


class Drawn(NamedTuple):
    model: Numbers
    step: jax.Array


def draw(state, batch, *, key):
    """Writes down one number of the step's chance."""
    values = state.model.values.at[state.step].set(jr.uniform(key))
    return Drawn(Numbers(values), state.step + 1), {"loss": jnp.zeros(())}


@pytest.mark.parametrize(
    "data", [jnp.arange(32), lambda epoch: [jnp.arange(8)] * 4], ids=["arrays", "stream"]
)
def test_every_step_of_every_epoch_has_chance_of_its_own(silent, data):
    """Twelve steps in three epochs draw twelve different numbers."""
    start = Iteration(lambda model: Drawn(model, jnp.zeros((), jnp.int32)), draw)
    found = quiet(start, Numbers(jnp.zeros(12)), data, silent, epochs=3, batch_size=8)
    assert len(set(found.model.values.tolist())) == 12


def test_the_seconds_of_the_epochs_add_up(silent, tmp_path):
    xs = normal(0, 8, 2)
    model = MLP.init(2, 3, 1, key=jr.key(0))
    iteration = descend(squared_error, optax.sgd(0.1))
    data = xs, xs[:, :1]
    run = Run(tmp_path)
    result = fit(
        iteration, model, data, epochs=4, batch_size=4, key=jr.key(1), run=run, progress=silent
    )
    seconds = [row["seconds"] for row in run.metrics()]
    assert len(seconds) == 4
    assert min(seconds) >= 0
    assert sum(seconds) <= result.seconds + 0.01

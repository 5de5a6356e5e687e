"""The recipes for sequences on small data, and their parts against plain loops."""

import math
from functools import partial
from importlib import import_module

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import data, recipes
from thetax.layers import Elman, Recurrent, unroll
from thetax.models import EncoderDecoder, NGram
from thetax.recipes import Job
from thetax.recipes.shared import cells, memory_tasks
from thetax.report.lenses.text import is_language_model
from thetax.train import Run, Silent, evaluate

chars = import_module("thetax.recipes.text.chars")
nyse = import_module("thetax.recipes.sequences.nyse")
seq2seq = import_module("thetax.recipes.sequences.seq2seq")

DAYS = 400


def job(run: Run | None = None) -> Job:
    return Job(run, jr.key(0), Silent())


@pytest.fixture
def small_data(monkeypatch):
    """A stock exchange whose volume depends on the previous day, and two books of one sentence."""
    rng = np.random.default_rng(0)
    days = np.zeros((DAYS + 1, 4), np.float32)
    days[:, :3] = rng.normal(size=(DAYS + 1, 3))
    for day in range(DAYS):
        days[day + 1, 1] = 0.6 * days[day, 1] + days[day, 0] + 0.1 * rng.normal()
    xs = days[:-1]
    ys = days[1:, 1]
    texts = np.array(["the cat sat. " * 400, "a dog ran off! " * 300], np.dtypes.StringDType())
    sets = {
        "nyse": data.Data((xs[:300], ys[:300]), (xs[300:], ys[300:]), (), ()),
        "gutenberg": data.Data((texts, np.arange(2, dtype=np.int32)), None, ("cat", "dog"), ()),
    }
    monkeypatch.setattr(data, "load", lambda name, **where: sets[name])
    return sets


@pytest.mark.parametrize("lags", [1, 5])
def test_lagged_windows(small_data, lags):
    full = small_data["nyse"]
    train, test = nyse.lagged_windows(full, lags)
    assert (len(train[1]), len(test[1])) == (301 - lags, 100)
    features = np.concatenate([full.train[0], full.test[0]])
    for (xs, ys), start in ((train, 0), (test, 301 - lags)):
        for i in range(0, len(ys), 29):
            np.testing.assert_array_equal(xs[i], features[start + i : start + i + lags, :3])
            if start + i + lags < DAYS:
                assert ys[i] == features[start + i + lags, 1]
    with pytest.raises(ValueError, match="lags: expected from 1 to 300 days; got 0"):
        nyse.lagged_windows(full, 0)


@pytest.mark.slow
def test_nyse(small_data, tmp_path, check_reread):
    """Autoregression agrees with NumPy; the table has the selected hyper-parameters; a second call
    reads the run.
    """
    run = Run.begin(tmp_path / "r", recipe="nyse", arguments={}, seed=0)
    call = lambda: recipes.nyse(job(run), members=2, width=4, epochs=30, learning_rate=1e-2)
    outcome = call()
    table = outcome.table
    assert list(table) == [
        "training mean",
        "previous day",
        "AR(5)",
        "Elman",
        "LSTM",
    ]
    (xs, ys), (test_xs, target) = nyse.lagged_windows(small_data["nyse"], 5)
    flat = lambda a: np.c_[np.ones(len(a)), a.reshape(len(a), -1).astype(float)]
    forecast = flat(test_xs) @ np.linalg.lstsq(flat(xs), ys.astype(float), rcond=None)[0]
    best = 100 - 100 * ((target - forecast) ** 2).sum() / ((target - target.mean()) ** 2).sum()
    assert abs(table["AR(5)"]["test R² %"] - best) < 1e-2
    assert table["previous day"]["test R² %"] < best - 20
    assert table["training mean"]["test R² %"] < 2
    for name in ("Elman", "LSTM"):
        assert best - 20 < table[name]["test R² %"] < 100
        assert table[name]["weight decay"] in nyse.WEIGHT_DECAYS
        assert 1 <= table[name]["epochs"] <= 30
    assert (tmp_path / "r" / "lstm-all" / "model.safetensors").is_file()
    check_reread(call, outcome)


def test_windows_drop_only_the_end():
    texts = [np.arange(11), np.arange(20, 24), np.arange(30, 32)]
    xs, ys = chars.windows(texts, 3)
    assert xs.tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [20, 21, 22]]
    np.testing.assert_array_equal(ys, xs + 1)


def test_bits_per_character():
    """On two alternating letters order 1 is certain, and order 0 costs one bit."""
    text = np.arange(2000) % 2
    model = Recurrent(NGram.fit([text], vocab_size=2, order=1, discount=0.0))
    assert (
        evaluate(model, chars.windows([text], 10), {"bits": chars.bits_per_character})["bits"]
        < 1e-5
    )
    unigram = Recurrent(NGram.fit([text], vocab_size=2, order=0, discount=0.0))
    assert (
        abs(
            evaluate(unigram, chars.windows([text], 10), {"bits": chars.bits_per_character})["bits"]
            - 1
        )
        < 1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["lstm", "lru"])
def test_chars(small_data, tmp_path, monkeypatch, cell, check_reread):
    monkeypatch.setattr(chars, "EVALUATION_LENGTH", 100)
    run = Run.begin(tmp_path / "r", recipe="chars", arguments={}, seed=0)
    options = {
        "books": ("cat", "dog"),
        "cell": cell,
        "width": 12,
        "depth": 1,
        "window": 20,
        "max_order": 2,
    }
    call = partial(recipes.chars, job(run), **options, learning_rate=2e-2, epochs=6, batch_size=20)
    outcome = call()
    table = {name: row["test bits per character"] for name, row in outcome.table.items()}
    letters = len(set("the cat sat. a dog ran off! "))
    assert abs(table["uniform"] - math.log2(letters + 1)) < 1e-6
    assert table["n-gram, order 0"] > table["n-gram, order 1"] > table["n-gram, order 2"]
    assert table["best n-gram, order 2"] == table["n-gram, order 2"]
    assert list(table)[-1] == f"network, {cell}"
    assert table[f"network, {cell}"] < table["n-gram, order 1"]
    assert is_language_model(outcome)
    assert len(outcome.tokens) == letters + 1
    xs, ys = outcome.test
    assert xs.shape == ys.shape == (9, 100)  # 520 characters less one, and 450 less one
    check_reread(call, outcome)


def test_chars_refuses_unknown_books(small_data):
    with pytest.raises(ValueError, match="books: expected names of cat, dog; got 'cow'"):
        recipes.chars(job(), books=("cow",))


def test_clipped_singular_values():
    """Singular values above the limit are clipped, and nothing else changes."""
    cell = Elman.init(2, 4, key=jr.key(0))
    step = jax.tree.map(lambda a: 0.5 * jr.normal(jr.key(1), a.shape), cell)
    update = memory_tasks.clip_singular_values(0.8)
    updates, _ = update.update([step], update.init([cell]), [cell])  # pyright: ignore[reportArgumentType]
    (after,) = eqx.apply_updates([cell], updates)
    left, s, right = np.linalg.svd(np.asarray(cell.U + step.U))
    np.testing.assert_allclose(after.U, left @ np.diag(np.minimum(s, 0.8)) @ right, atol=1e-6)
    assert (s < 0.8).any()
    assert (s > 0.8).any()
    np.testing.assert_allclose(after.V, cell.V + step.V, rtol=1e-6)


def test_a_contraction_forgets_within_its_bound():
    cell = Elman.init(2, 6, key=jr.key(0))
    cell = Elman(0.9 * cell.U, cell.V, cell.b)
    one, two = jr.normal(jr.key(1), (2, 6))
    xs = jr.normal(jr.key(2), (30, 2))
    gap = unroll(cell, xs, state=one)[1] - unroll(cell, xs, state=two)[1]
    bound = 0.9 ** np.arange(1, 31) * np.linalg.norm(one - two)
    assert (np.linalg.norm(gap, axis=1) <= bound * (1 + 1e-4) + 1e-6).all()


@pytest.mark.parametrize(
    "init",
    [
        cells.lstm,
        cells.gru,
        cells.lru,
        cells.residual_blocks("lru", 2),
        cells.residual_blocks("mingru", 1),
    ],
)
def test_a_cell_step_by_step_agrees_with_unroll(init):
    cell = init(2, 4, timescale=20, key=jr.key(0))
    xs = jr.normal(jr.key(1), (5, 2))
    state = cell.start
    ys = []
    for x in xs:
        state, y = cell(state, x)
        ys.append(y)
    np.testing.assert_allclose(unroll(cell, xs)[1], jnp.stack(ys), atol=1e-5)


@pytest.mark.slow
def test_initial_timescales_of_gates():
    """A forget gate σ(log u) = 1 - 1/(1 + u) has a timescale of 1 + u steps, up to `timescale`."""
    cell = cells.lstm(2, 200, timescale=50, key=jr.key(0))
    timescales = 1 / (1 - jax.nn.sigmoid(cell.b[200:400]))
    assert 2 <= float(timescales.min()) < 5
    assert 45 < float(timescales.max()) <= 50
    np.testing.assert_allclose(cell.b[:200], -cell.b[200:400])
    assert not cell.b[400:].any()
    bias = cells.gru(2, 200, timescale=50, key=jr.key(0)).b
    assert 0 <= float(bias[200:400].min()) < float(bias[200:400].max()) <= math.log(49)
    assert not bias[:200].any()


def tiny(**more):
    return {"width": 8, "n_seeds": 2, "epochs": 2, "batch_size": 20} | more


@pytest.mark.slow
def test_recall(tmp_path, check_reread):
    """The rows of the table, the contraction factor, and a second call that reads the run."""
    run = Run.begin(tmp_path / "r", recipe="recall", arguments={}, seed=0)
    call = partial(
        recipes.recall, job(run), **tiny(length=3, n_symbols=2, n_train=400, learning_rate=2e-2)
    )
    outcome = call()
    assert list(outcome.table) == ["chance", *memory_tasks.CELL_SPECS]
    assert outcome.table["chance"]["test error %"] == 50
    row = outcome.table["Elman, σ₁(U) ≤ 0.9"]
    assert row["σ₁(U)"] <= 0.9 + 1e-5
    assert abs(row["σ₁(U)^3"] - row["σ₁(U)"] ** 3) < 1e-9
    assert outcome.table["GRU"]["test error %"] < 5
    assert outcome.classes == ("0", "1")
    assert outcome.tokens == ("0", "1", "(0)", "(1)", "?")
    assert all(row["maximum"] >= row["test error %"] for row in list(outcome.table.values())[1:])
    check_reread(call, outcome)


@pytest.mark.slow
def test_adding():
    outcome = recipes.adding(job(), **tiny(length=4, n_train=1000, epochs=4, learning_rate=2e-2))
    table = {name: row["mean squared error"] for name, row in outcome.table.items()}
    assert abs(table["always 1"] - 1 / 6) < 0.02
    assert table["GRU"] < 0.02
    assert isinstance(outcome.model.cell, cells.CellWithInputNetwork)
    np.testing.assert_allclose(
        2 * float(outcome.objective(outcome.model, outcome.test)),
        np.mean(
            (
                np.asarray(jax.vmap(outcome.model)(outcome.test[0]))[:, 0]
                - np.asarray(outcome.test[1])
            )
            ** 2
        ),
        rtol=1e-4,
    )


@pytest.mark.slow
def test_listops():
    outcome = recipes.listops(
        job(),
        **tiny(
            max_length=8, max_depth=1, max_arguments=3, n_train=2000, epochs=6, learning_rate=2e-2
        ),
    )
    table = {name: row["test error %"] for name, row in outcome.table.items()}
    assert next(iter(table)) == "majority class"
    assert table["majority class"] > 80
    assert table["GRU"] < table["majority class"] - 15
    train_rows = {row.tobytes() for row in outcome.train[0]}
    assert not any(row.tobytes() in train_rows for row in outcome.test[0])


@pytest.mark.slow
def test_pairs_and_exact_match():
    """The inputs of the decoder are its targets after the start token; exact match is 0 for an
    untrained network, and 1 on the network's own answers.
    """
    dates, iso = data.date_pairs(5, key=jr.key(0))
    source = data.Characters.fit(dates)
    target = data.Characters("<>-0123456789")
    (sources, inputs), targets = seq2seq.encode_pairs(dates, iso, source, target, 30)
    assert [source.decode(row) for row in sources] == dates.tolist()
    assert [target.decode(row) for row in inputs] == [f"<{day}" for day in iso.tolist()]
    assert [target.decode(row) for row in targets] == [f"{day}>" for day in iso.tolist()]
    model = EncoderDecoder.init(len(source), len(target), 3, 4, attention_width=3, key=jr.key(1))
    assert seq2seq.exact_match(model, ((sources, inputs), targets), target) == 0
    own = np.stack([greedy_tokens(model, jnp.asarray(row)) for row in sources])
    assert seq2seq.exact_match(model, ((sources, inputs), own), target) == 1
    own[0, 0] += 1
    assert abs(seq2seq.exact_match(model, ((sources, inputs), own), target) - 0.8) < 1e-6


def greedy_tokens(model: EncoderDecoder, source) -> np.ndarray:
    """Greedy decoding in a plain loop."""
    cell, state = model.decoder(source)
    token = 0
    tokens = np.full(seq2seq.ANSWER_LENGTH, -1)
    for i in range(seq2seq.ANSWER_LENGTH):
        state, logits = cell(state, jnp.array(token))
        token = tokens[i] = int(np.argmax(logits))
        if token == 1:  # the end token
            break
    return tokens


@pytest.mark.slow
def test_seq2seq(tmp_path, check_reread):
    run = Run.begin(tmp_path / "r", recipe="seq2seq", arguments={}, seed=0)
    options = {
        "n_train": 300,
        "width": 6,
        "embedding_dim": 4,
        "beam_width": 2,
        "epochs": 1,
        "batch_size": 50,
    }
    outcome = recipes.seq2seq(job(run), **options)
    assert list(outcome.table) == ["without attention", "with attention"]
    assert set(outcome.table["with attention"]) == {
        "exact match, greedy %",
        "exact match, beam 2 %",
    }
    (sources, inputs), targets = outcome.test
    assert len(sources) == len(inputs) == len(targets) == 1000
    assert outcome.classes[0] == "<"
    assert outcome.model.alignment(jnp.asarray(sources[0]), jnp.asarray(inputs[0])).shape == (
        11,
        sources.shape[1],
    )
    days = lambda rows: {"".join(outcome.classes[t] for t in row) for row in rows}
    assert not days(targets) & days(outcome.train[1])
    check_reread(lambda: recipes.seq2seq(job(run), **options), outcome)

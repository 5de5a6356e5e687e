"""The recipes on sequences, on small data of the right form; and their parts, each against a plain
loop.
"""

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
from thetax.recipes.shared import memory
from thetax.recipes.shared import recurrent_encoders as cells
from thetax.report.lenses.text import speaks
from thetax.train import Run, Silent, evaluate

characters = import_module("thetax.recipes.chars")
series = import_module("thetax.recipes.nyse")
dates = import_module("thetax.recipes.seq2seq")

DAYS = 400


def job(run: Run | None = None) -> Job:
    return Job(run, jr.key(0), Silent())


@pytest.fixture
def little(monkeypatch):
    """An exchange whose volume tomorrow is a sum of today's figures, and two books of one
    sentence.
    """
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
def test_lagged_days_are_those_before(little, lags):
    full = little["nyse"]
    train, test = series.lagged(full, lags)
    assert (len(train[1]), len(test[1])) == (301 - lags, 100)
    every = np.concatenate([full.train[0], full.test[0]])
    for (xs, ys), start in ((train, 0), (test, 301 - lags)):
        for i in range(0, len(ys), 29):
            np.testing.assert_array_equal(xs[i], every[start + i : start + i + lags, :3])
            if start + i + lags < DAYS:
                assert ys[i] == every[start + i + lags, 1]
    with pytest.raises(ValueError, match="lags: expected from 1 to 300 days; got 0"):
        series.lagged(full, 0)


@pytest.mark.slow
def test_nyse_chooses_on_the_training_years(little, tmp_path):
    """The line is that of NumPy; what is chosen, and from what, is in the table; a second call
    gives the same.
    """
    run = Run.begin(tmp_path / "r", recipe="nyse", arguments={}, seed=0)
    outcome = recipes.nyse(job(run), members=2, width=4, epochs=30, rate=1e-2)
    table = outcome.table
    assert list(table) == [
        "the mean of the training years",
        "yesterday's volume",
        "AR(5)",
        "Elman",
        "LSTM",
    ]
    (xs, ys), (later, target) = series.lagged(little["nyse"], 5)
    flat = lambda a: np.c_[np.ones(len(a)), a.reshape(len(a), -1).astype(float)]
    line = flat(later) @ np.linalg.lstsq(flat(xs), ys.astype(float), rcond=None)[0]
    best = 100 - 100 * ((target - line) ** 2).sum() / ((target - target.mean()) ** 2).sum()
    assert abs(table["AR(5)"]["test R² %"] - best) < 1e-2
    assert table["yesterday's volume"]["test R² %"] < best - 20
    assert table["the mean of the training years"]["test R² %"] < 2
    for name in ("Elman", "LSTM"):
        assert best - 20 < table[name]["test R² %"] < 100
        assert table[name]["weight decay"] in series.DECAYS
        assert 1 <= table[name]["epochs"] <= 30
    assert (tmp_path / "r" / "lstm-all" / "model.safetensors").is_file()
    assert recipes.nyse(job(run), members=2, width=4, epochs=30, rate=1e-2).table == table


def test_windows_lose_only_the_end():
    texts = [np.arange(11), np.arange(20, 24), np.arange(30, 32)]
    xs, ys = characters.windows(texts, 3)
    assert xs.tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [20, 21, 22]]
    np.testing.assert_array_equal(ys, xs + 1)


def test_bits_of_a_counted_text():
    """Order 1 on a text of two letters in turn is sure; order 0 knows nothing, which costs a
    bit.
    """
    text = np.arange(2000) % 2
    model = Recurrent(NGram.fit([text], vocab_size=2, order=1, discount=0.0))
    assert evaluate(model, characters.windows([text], 10), {"bits": characters.bits})["bits"] < 1e-5
    flat = Recurrent(NGram.fit([text], vocab_size=2, order=0, discount=0.0))
    assert (
        abs(evaluate(flat, characters.windows([text], 10), {"bits": characters.bits})["bits"] - 1)
        < 1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["lstm", "lru"])
def test_chars(little, tmp_path, monkeypatch, cell):
    monkeypatch.setattr(characters, "STRETCH", 100)
    run = Run.begin(tmp_path / "r", recipe="chars", arguments={}, seed=0)
    options = {
        "books": ("cat", "dog"),
        "cell": cell,
        "width": 12,
        "depth": 1,
        "window": 20,
        "order": 2,
    }
    call = partial(recipes.chars, job(run), **options, rate=2e-2, epochs=6, batch=20)
    outcome = call()
    table = {name: row["test bits per character"] for name, row in outcome.table.items()}
    letters = len(set("the cat sat. a dog ran off! "))
    assert abs(table["all alike"] - math.log2(letters + 1)) < 1e-6
    assert table["n-gram, order 0"] > table["n-gram, order 1"] > table["n-gram, order 2"]
    assert table["n-gram chosen, order 2"] == table["n-gram, order 2"]
    assert list(table)[-1] == f"network, {cell}"
    assert table[f"network, {cell}"] < table["n-gram, order 1"]
    assert speaks(outcome)
    assert len(outcome.tokens) == letters + 1
    xs, ys = outcome.test
    assert xs.shape == ys.shape == (9, 100)  # 520 characters less one, and 450 less one
    assert call().table == outcome.table


def test_chars_refuses_a_book_it_has_not(little):
    with pytest.raises(ValueError, match="books: expected names of cat, dog; got 'cow'"):
        recipes.chars(job(), books=("cow",))


def test_contract_is_the_nearest_contraction():
    """After the step no singular value is above the limit, those below are as they were, and
    nothing else changes.
    """
    cell = Elman.init(2, 4, key=jr.key(0))
    step = jax.tree.map(lambda a: 0.5 * jr.normal(jr.key(1), a.shape), cell)
    update = memory.contract(0.8)
    found, _ = update.update([step], update.init([cell]), [cell])  # pyright: ignore[reportArgumentType]
    (after,) = eqx.apply_updates([cell], found)
    left, s, right = np.linalg.svd(np.asarray(cell.U + step.U))
    np.testing.assert_allclose(after.U, left @ np.diag(np.minimum(s, 0.8)) @ right, atol=1e-6)
    assert (s < 0.8).any()
    assert (s > 0.8).any()
    np.testing.assert_allclose(after.V, cell.V + step.V, rtol=1e-6)


def test_a_contracting_cell_forgets_within_its_bound():
    cell = Elman.init(2, 6, key=jr.key(0))
    cell = Elman(0.9 * cell.U, cell.V, cell.b)
    one, two = jr.normal(jr.key(1), (2, 6))
    xs = jr.normal(jr.key(2), (30, 2))
    gap = unroll(cell, xs, state=one)[1] - unroll(cell, xs, state=two)[1]
    bound = 0.9 ** np.arange(1, 31) * np.linalg.norm(one - two)
    assert (np.linalg.norm(gap, axis=1) <= bound * (1 + 1e-4) + 1e-6).all()


@pytest.mark.parametrize(
    "draw", [cells.lstm, cells.gru, cells.lru, cells.blocks("lru", 2), cells.blocks("mingru", 1)]
)
def test_cells_run_step_by_step_as_along(draw):
    cell = draw(2, 4, times=20, key=jr.key(0))
    xs = jr.normal(jr.key(1), (5, 2))
    state = cell.start
    said = []
    for x in xs:
        state, y = cell(state, x)
        said.append(y)
    np.testing.assert_allclose(unroll(cell, xs)[1], jnp.stack(said), atol=1e-5)


@pytest.mark.slow
def test_gates_begin_with_memories_of_all_lengths():
    """A forget gate that begins at σ(log u) keeps 1 - 1/(1 + u): it forgets in about 1 + u steps,
    up to `times`.
    """
    cell = cells.lstm(2, 200, times=50, key=jr.key(0))
    span = 1 / (1 - jax.nn.sigmoid(cell.b[200:400]))
    assert 2 <= float(span.min()) < 5
    assert 45 < float(span.max()) <= 50
    np.testing.assert_allclose(cell.b[:200], -cell.b[200:400])
    assert not cell.b[400:].any()
    keep = cells.gru(2, 200, times=50, key=jr.key(0)).b
    assert 0 <= float(keep[200:400].min()) < float(keep[200:400].max()) <= math.log(49)
    assert not keep[:200].any()


def tiny(**more):
    return {"width": 8, "members": 2, "epochs": 2, "batch": 20} | more


@pytest.mark.slow
def test_recall(tmp_path):
    """All rows are there, the bound is that of the cell, and a second call answers from the
    folder.
    """
    run = Run.begin(tmp_path / "r", recipe="recall", arguments={}, seed=0)
    call = partial(recipes.recall, job(run), **tiny(length=3, symbols=2, examples=400, rate=2e-2))
    outcome = call()
    assert list(outcome.table) == ["one of them", *memory.ENTRANTS]
    assert outcome.table["one of them"]["test error %"] == 50
    first = outcome.table["Elman, σ₁(U) ≤ 0.9"]
    assert first["σ₁(U)"] <= 0.9 + 1e-5
    assert abs(first["σ₁(U)^3"] - first["σ₁(U)"] ** 3) < 1e-9
    assert outcome.table["GRU"]["test error %"] < 5
    assert outcome.classes == ("0", "1")
    assert outcome.tokens == ("0", "1", "(0)", "(1)", "?")
    assert all(row["the worst"] >= row["test error %"] for row in list(outcome.table.values())[1:])
    assert call().table == outcome.table


@pytest.mark.slow
def test_adding():
    outcome = recipes.adding(job(), **tiny(length=4, examples=1000, epochs=4, rate=2e-2))
    table = {name: row["mean square error"] for name, row in outcome.table.items()}
    assert abs(table["always 1"] - 1 / 6) < 0.02
    assert table["GRU"] < 0.02
    assert isinstance(outcome.model.cell, cells.Reading)
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
        job(), **tiny(length=8, depth=1, arguments=3, examples=2000, epochs=6, rate=2e-2)
    )
    table = {name: row["test error %"] for name, row in outcome.table.items()}
    name = next(iter(table))
    assert name.startswith("always ")
    assert table[name] > 80
    assert table["GRU"] < table[name] - 15
    seen = {row.tobytes() for row in outcome.train[0]}
    assert not any(row.tobytes() in seen for row in outcome.test[0])


@pytest.mark.slow
def test_pairs_and_exact_answers():
    """What the decoder reads begins with the sign that says so, and is what it should say, one
    place later; an untrained network is wrong, and one that is judged by its own answers is right.
    """
    people, iso = data.dates(5, key=jr.key(0))
    known = data.Characters.fit(people)
    told = data.Characters("<>-0123456789")
    (sources, read), said = dates.pairs(people, iso, known, told, 30)
    assert [known.decode(row) for row in sources] == people.tolist()
    assert [told.decode(row) for row in read] == [f"<{day}" for day in iso.tolist()]
    assert [told.decode(row) for row in said] == [f"{day}>" for day in iso.tolist()]
    model = EncoderDecoder.init(len(known), len(told), 3, 4, attention_width=3, key=jr.key(1))
    assert dates.exact(model, ((sources, read), said), told) == 0
    own = np.stack([spoken(model, jnp.asarray(source)) for source in sources])
    assert dates.exact(model, ((sources, read), own), told) == 1
    own[0, 0] += 1
    assert abs(dates.exact(model, ((sources, read), own), told) - 0.8) < 1e-6


def spoken(model: EncoderDecoder, source) -> np.ndarray:
    """The likeliest characters, one after the other."""
    cell, state = model.decoder(source)
    token = 0
    said = np.full(dates.WRITTEN, -1)
    for place in range(dates.WRITTEN):
        state, logits = cell(state, jnp.array(token))
        token = said[place] = int(np.argmax(logits))
        if token == 1:  # the sign that ends
            break
    return said


@pytest.mark.slow
def test_seq2seq(tmp_path):
    run = Run.begin(tmp_path / "r", recipe="seq2seq", arguments={}, seed=0)
    options = {"examples": 300, "width": 6, "vector": 4, "beam_width": 2, "epochs": 1, "batch": 50}
    outcome = recipes.seq2seq(job(run), **options)
    assert list(outcome.table) == ["without attention", "with attention"]
    assert set(outcome.table["with attention"]) == {"exact, greedily, %", "exact by a beam of 2, %"}
    (sources, read), said = outcome.test
    assert len(sources) == len(read) == len(said) == 1000
    assert outcome.classes[0] == "<"
    assert outcome.model.alignment(jnp.asarray(sources[0]), jnp.asarray(read[0])).shape == (
        11,
        sources.shape[1],
    )
    days = lambda part: {"".join(outcome.classes[t] for t in row) for row in part}
    assert not days(said) & days(outcome.train[1])
    assert recipes.seq2seq(job(run), **options).table == outcome.table

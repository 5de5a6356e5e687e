"""The recipes `spam` and `imdb` on small data."""

import jax
import jax.random as jr
import numpy as np
import pytest

from thetax import data, recipes
from thetax.recipes import Job
from thetax.train import Run, Silent


@pytest.fixture
def small_data(monkeypatch):
    """E-mails whose class depends on two features, and reviews whose class depends on two words."""
    rng = np.random.default_rng(0)
    xs = rng.exponential(size=(4601, 57)).astype(np.float32)
    emails = xs, (xs[:, 3] > xs[:, 7]).astype(np.int32)

    def reviews(n):
        ys = np.arange(n, dtype=np.int32) % 2
        noise = [" ".join(rng.choice([f"w{j}" for j in range(30)], 8)) for _ in range(n)]
        texts = [f"{noise[i]} {'superb' if y else 'dreadful'}" for i, y in enumerate(ys)]
        return np.array(texts, np.dtypes.StringDType()), ys

    names = tuple(f"f{j}" for j in range(57))
    sets = {
        "spambase": data.Data(emails, None, ("not spam", "spam"), names),
        "imdb": data.Data(reviews(400), reviews(200), ("negative", "positive"), ()),
    }
    monkeypatch.setattr(data, "load", lambda name, **where: sets[name])


@pytest.mark.slow
def test_spam(small_data, tmp_path, check_reread):
    """The rows of the table, the two important features, and a second call that reads the run."""
    run = Run.begin(tmp_path / "r", recipe="spam", arguments={}, seed=0)
    job = Job(run, jr.key(0), Silent())
    outcome = recipes.spam(job, members=3, hidden=4, epochs=4)
    rows = list(outcome.table)
    assert rows[:3] == [
        "logistic regression",
        "additive logistic regression",
        "single network (mean)",
    ]
    assert rows[-1] == "ensemble"
    assert set(rows[3:5]) == {"... with f3 shuffled", "... with f7 shuffled"}
    errors = {name: row["test error %"] for name, row in outcome.table.items()}
    assert errors["ensemble"] < 6
    assert errors["ensemble"] <= errors["single network (mean)"] + 0.2
    assert errors["... with f3 shuffled"] > 15
    assert (len(outcome.train[1]), len(outcome.test[1])) == (3065, 1536)
    assert jax.tree.leaves(outcome.model)[0].shape[0] == 3
    check_reread(lambda: recipes.spam(job, members=3, hidden=4, epochs=4), outcome)


@pytest.mark.slow
def test_imdb(small_data, tmp_path):
    """The lasso finds the two words, and the network has a small error."""
    run = Run.begin(tmp_path / "r", recipe="imdb", arguments={}, seed=0)
    job = Job(run, jr.key(0), Silent())
    outcome = recipes.imdb(
        job, vocab_size=20, hidden=(8,), epochs=10, batch_size=20, learning_rate=1e-2
    )
    table = outcome.table
    assert table["lasso"]["test error %"] == 0
    assert table["lasso"]["non-zero weights"] < 12
    weights = {name: row["weight"] for name, row in table.items() if "weight" in row}
    assert max(weights, key=lambda name: weights[name]) == '... "superb"'
    assert min(weights, key=lambda name: weights[name]) == '... "dreadful"'
    assert list(table)[-1] == "network"
    assert table["network"]["test error %"] < 2
    assert (tmp_path / "r" / "network" / "model.safetensors").is_file()
    assert (
        recipes.imdb(
            job, vocab_size=20, hidden=(8,), epochs=10, batch_size=20, learning_rate=1e-2
        ).table
        == table
    )


@pytest.mark.parametrize("option", ["members", "epochs"])
def test_bad_options_are_refused(small_data, option):
    with pytest.raises(ValueError, match=f"{option} must be more than 0; got 0"):
        recipes.spam(Job(None, jr.key(0), Silent()), **{option: 0})

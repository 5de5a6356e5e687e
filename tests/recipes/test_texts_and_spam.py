"""The recipes on spam and on reviews, on small data of the right form."""

import jax
import jax.random as jr
import numpy as np
import pytest

from thetax import data, recipes
from thetax.recipes import Job
from thetax.train import Run, Silent


@pytest.fixture
def little(monkeypatch):
    """Mails told apart by two frequencies, and reviews by a few words among noise."""
    rng = np.random.default_rng(0)
    xs = rng.exponential(size=(4601, 57)).astype(np.float32)
    mails = xs, (xs[:, 3] > xs[:, 7]).astype(np.int32)

    def reviews(n):
        ys = np.arange(n, dtype=np.int32) % 2
        noise = [" ".join(rng.choice([f"w{j}" for j in range(30)], 8)) for _ in range(n)]
        texts = [f"{noise[i]} {'superb' if y else 'dreadful'}" for i, y in enumerate(ys)]
        return np.array(texts, np.dtypes.StringDType()), ys

    names = tuple(f"f{j}" for j in range(57))
    sets = {
        "spambase": data.Data(mails, None, ("not spam", "spam"), names),
        "imdb": data.Data(reviews(400), reviews(200), ("negative", "positive"), ()),
    }
    monkeypatch.setattr(data, "load", lambda name, **where: sets[name])


@pytest.mark.slow
def test_spam(little, tmp_path):
    """Every row is there, the two features that matter are found, and a second call answers from
    the folder.
    """
    run = Run.begin(tmp_path / "r", recipe="spam", arguments={}, seed=0)
    job = Job(run, jr.key(0), Silent())
    outcome = recipes.spam(job, members=3, hidden=4, epochs=4)
    rows = list(outcome.table)
    assert rows[:3] == [
        "logistic regression",
        "additive regression, splines",
        "network, mean of the members",
    ]
    assert rows[-1] == "networks averaged"
    assert set(rows[3:5]) == {"... with f3 shuffled", "... with f7 shuffled"}
    errors = {name: row["test error %"] for name, row in outcome.table.items()}
    assert errors["networks averaged"] < 6
    assert errors["networks averaged"] <= errors["network, mean of the members"] + 0.2
    assert errors["... with f3 shuffled"] > 15
    assert (len(outcome.train[1]), len(outcome.test[1])) == (3065, 1536)
    assert jax.tree.leaves(outcome.model)[0].shape[0] == 3
    assert recipes.spam(job, members=3, hidden=4, epochs=4).table == outcome.table


@pytest.mark.slow
def test_imdb(little, tmp_path):
    """The lasso finds the two words that tell, and the network tells too."""
    run = Run.begin(tmp_path / "r", recipe="imdb", arguments={}, seed=0)
    job = Job(run, jr.key(0), Silent())
    outcome = recipes.imdb(job, words=20, hidden=(8,), epochs=10, batch=20, rate=1e-2)
    table = outcome.table
    assert table["lasso"]["test error %"] == 0
    assert table["lasso"]["weights that are not 0"] < 12
    weights = {name: row["weight"] for name, row in table.items() if "weight" in row}
    assert max(weights, key=lambda name: weights[name]) == '... "superb"'
    assert min(weights, key=lambda name: weights[name]) == '... "dreadful"'
    assert list(table)[-1] == "network"
    assert table["network"]["test error %"] < 2
    assert (tmp_path / "r" / "network" / "model.safetensors").is_file()
    assert recipes.imdb(job, words=20, hidden=(8,), epochs=10, batch=20, rate=1e-2).table == table


@pytest.mark.parametrize("option", ["members", "epochs"])
def test_spam_refuses_nothing(little, option):
    with pytest.raises(ValueError, match=f"{option} must be more than 0; got 0"):
        recipes.spam(Job(None, jr.key(0), Silent()), **{option: 0})

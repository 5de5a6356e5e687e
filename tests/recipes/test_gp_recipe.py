"""The recipe `gp` on a few made cars, and its report; the real ones are marked `network`."""

import jax.random as jr
import numpy as np
import pytest

from thetax import data, recipes
from thetax.bayes import RBF, GaussianProcess
from thetax.recipes import Job, Outcome
from thetax.recipes.gp import fit_process, foretell, minus_log_evidence
from thetax.report import LENSES, look
from thetax.train import Silent

FEW = {
    "splits": 2,
    "held_out": 0.4,
    "depth": 1,
    "hidden": (8,),
    "members": 2,
    "epochs": 3,
    "batch": 10,
}


def cars(n: int) -> tuple[np.ndarray, np.ndarray]:
    """The second of two features bends what is to be foretold, the first does nothing."""
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(n, 2)).astype(np.float32)
    return xs, (20 + 5 * np.sin(2 * xs[:, 1]) + 0.5 * rng.normal(size=n)).astype(np.float32)


@pytest.fixture
def little(monkeypatch):
    monkeypatch.setattr(
        data, "load", lambda name, **where: data.Data(cars(60), None, (), ("idle", "bends"))
    )


@pytest.mark.slow
def test_gp_foretells_what_bends(little):
    outcome = recipes.gp(Job(None, jr.key(0), Silent()), **FEW)
    table = outcome.table
    assert list(table) == [
        "always the mean",
        "network",
        "ridge regression",
        "network of infinite width",
        "Gaussian process",
    ]
    assert table["Gaussian process"]["test RMSE"] < 0.5 * table["ridge regression"]["test RMSE"]
    assert (
        table["Gaussian process"]["− log density"]
        < table["ridge regression"]["− log density"] - 0.5
    )
    assert all(
        0 <= row["in 50 %"] <= row["in 80 %"] <= row["in 95 %"] <= 100 for row in table.values()
    )
    idle, bends = np.exp(np.asarray(outcome.model.kernel.log_length))
    assert idle > 3 * bends
    assert outcome.features == ("idle", "bends")
    assert (len(outcome.train[1]), len(outcome.test[1])) == (36, 24)


@pytest.mark.slow
def test_a_forecast_is_of_an_observation_and_about_the_mean():
    train = cars(30)
    far = np.full((1, 2), 100.0, np.float32)
    found = fit_process(RBF.init(scale=10.0), train)
    mean, deviation = foretell(found.model, train, far)
    assert mean == pytest.approx([train[1].mean()], rel=1e-5)
    assert deviation**2 == pytest.approx(
        [np.exp(float(found.model.kernel.log_scale)) + float(found.model.noise)]
    )
    assert minus_log_evidence(found.model, train) == pytest.approx(-found.evidence / 30)


def test_its_report_has_the_lenses_of_a_process_and_no_others(tmp_path):
    process = GaussianProcess.init(RBF.init(scale=10.0, length=np.array([5.0, 0.7])), noise=0.3)
    xs, ys = cars(40)
    half = (xs[:20], ys[:20] - 20), (xs[20:], ys[20:] - 20)
    outcome = Outcome(process, *half, minus_log_evidence, features=("idle", "bends"))
    assert [lens.title for lens in LENSES if lens.applies(outcome)] == [
        "Forecasts and their intervals",
        "Which inputs matter",
    ]
    text = look(outcome, tmp_path).read_text()
    assert "failed" not in text
    assert "looked at most" in text
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == [
        "forecasts-and-their-intervals.png",
        "which-inputs-matter.png",
    ]


@pytest.mark.parametrize(
    ("wrong", "message"), [({"splits": 1}, "at least 2"), ({"held_out": 1.0}, "between 0 and 1")]
)
def test_bad_options_are_refused(little, wrong, message):
    with pytest.raises(ValueError, match=message):
        recipes.gp(Job(None, jr.key(0), Silent()), **wrong)


@pytest.mark.network
@pytest.mark.slow
def test_gp_on_the_cars_of_isl():
    """Curves beat the line, and the intervals of a process hold what they say to within some
    points.
    """
    table = recipes.gp(Job(None, jr.key(0), Silent())).table
    line = table["ridge regression"]
    for name in ("network of infinite width", "Gaussian process"):
        assert table[name]["test RMSE"] < line["test RMSE"] - 0.3
        assert table[name]["− log density"] < line["− log density"] - 0.1
        assert abs(table[name]["in 80 %"] - 80) < 6
        assert abs(table[name]["in 95 %"] - 95) < 5

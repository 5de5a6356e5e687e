"""The recipe `gp` on synthetic cars, and its report; tests with the real ones are marked
`network`.
"""

import jax.random as jr
import numpy as np
import pytest

from thetax import data, recipes
from thetax.bayes import RBF, GaussianProcess
from thetax.recipes import Job, Outcome
from thetax.recipes.kernels.gp import fit_gp, negative_log_marginal_likelihood, predict_observations
from thetax.report import LENSES, look
from thetax.train import Silent

SMALL = {
    "n_splits": 2,
    "test_fraction": 0.4,
    "depth": 1,
    "hidden": (8,),
    "members": 2,
    "epochs": 3,
    "batch_size": 10,
}


def cars(n: int) -> tuple[np.ndarray, np.ndarray]:
    """The target is a sine of the second feature and independent of the first."""
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(n, 2)).astype(np.float32)
    return xs, (20 + 5 * np.sin(2 * xs[:, 1]) + 0.5 * rng.normal(size=n)).astype(np.float32)


@pytest.fixture
def small_data(monkeypatch):
    monkeypatch.setattr(
        data,
        "load",
        lambda name, **where: data.Data(cars(60), None, (), ("irrelevant", "relevant")),
    )


@pytest.mark.slow
def test_gp(small_data, check_reread):
    outcome = recipes.gp(Job(None, jr.key(0), Silent()), **SMALL)
    check_reread(lambda: outcome, outcome)
    table = outcome.table
    assert list(table) == [
        "constant mean",
        "network",
        "ridge regression",
        "infinite-width network",
        "Gaussian process",
    ]
    assert table["Gaussian process"]["test RMSE"] < 0.5 * table["ridge regression"]["test RMSE"]
    assert table["Gaussian process"]["NLPD"] < table["ridge regression"]["NLPD"] - 0.5
    assert all(
        0 <= row["coverage 50 %"] <= row["coverage 80 %"] <= row["coverage 95 %"] <= 100
        for row in table.values()
    )
    irrelevant, relevant = np.exp(np.asarray(outcome.model.kernel.log_length_scale))
    assert irrelevant > 3 * relevant
    assert outcome.features == ("irrelevant", "relevant")
    assert (len(outcome.train[1]), len(outcome.test[1])) == (36, 24)


@pytest.mark.slow
def test_far_from_the_data_the_prior_is_predicted():
    train = cars(30)
    far = np.full((1, 2), 100.0, np.float32)
    found = fit_gp(RBF.init(variance=10.0), train)
    mean, std = predict_observations(found.model, train, far)
    assert mean == pytest.approx([train[1].mean()], rel=1e-5)
    assert std**2 == pytest.approx(
        [np.exp(float(found.model.kernel.log_variance)) + float(found.model.noise)]
    )
    assert negative_log_marginal_likelihood(found.model, train) == pytest.approx(
        -found.log_marginal_likelihood / 30
    )


def test_the_lenses_of_its_report(tmp_path):
    process = GaussianProcess.init(
        RBF.init(variance=10.0, length_scale=np.array([5.0, 0.7])), noise=0.3
    )
    xs, ys = cars(40)
    half = (xs[:20], ys[:20] - 20), (xs[20:], ys[20:] - 20)
    outcome = Outcome(
        process, *half, negative_log_marginal_likelihood, features=("irrelevant", "relevant")
    )
    assert [lens.title for lens in LENSES if lens.applies(outcome)] == [
        "Prediction intervals and their coverage",
        "Feature relevance (ARD)",
    ]
    text = look(outcome, tmp_path).read_text()
    assert "failed" not in text
    assert "most relevant" in text
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == [
        "feature-relevance-ard.png",
        "prediction-intervals-and-their-coverage.png",
    ]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_splits": 1}, "n_splits must be at least 2"),
        ({"test_fraction": 1.0}, "test_fraction must lie between 0 and 1"),
    ],
)
def test_bad_options_are_refused(small_data, wrong, message):
    with pytest.raises(ValueError, match=message):
        recipes.gp(Job(None, jr.key(0), Silent()), **wrong)


@pytest.mark.network
@pytest.mark.slow
def test_gp_on_the_cars_of_isl():
    """The processes are better than ridge regression, and the coverage of their intervals is right
    to within some points.
    """
    table = recipes.gp(Job(None, jr.key(0), Silent())).table
    ridge = table["ridge regression"]
    for name in ("infinite-width network", "Gaussian process"):
        assert table[name]["test RMSE"] < ridge["test RMSE"] - 0.3
        assert table[name]["NLPD"] < ridge["NLPD"] - 0.1
        assert abs(table[name]["coverage 80 %"] - 80) < 6
        assert abs(table[name]["coverage 95 %"] - 95) < 5

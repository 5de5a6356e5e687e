"""The tables of tricks and of distillation, on little images of the right form; the real ones are
marked `slow`.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import data, recipes, tree
from thetax.layers import Ensemble, mixture
from thetax.models import MLP
from thetax.recipes import Job
from thetax.recipes.distil import answers, each_wrong
from thetax.recipes.tricks import each_error, seeds_error
from thetax.train import Run, Silent, error_rate

FEW = {
    "images": 300,
    "seeds": 2,
    "hidden": (16,),
    "average": 2,
    "epochs": 3,
    "batch": 30,
    "rate": 1e-2,
}
SMALL = {
    "teacher": (60, 20),
    "student": (4,),
    "seeds": 2,
    "lessons": 4,
    "epochs": 4,
    "batch": 20,
    "rate": 1e-2,
}


def job(run: Run | None = None) -> Job:
    return Job(run, jr.key(0), Silent())


@pytest.fixture(autouse=True)
def little(monkeypatch):
    """MNIST-shaped noise with the label written as a block that a shift by two pixels does not take
    away.
    """
    rng = np.random.default_rng(0)

    def images(n):
        ys = np.arange(n, dtype=np.int32) % 10
        xs = rng.random((n, 28, 28), np.float32) * 0.05
        for x, y in zip(xs, ys):
            x[4 + 10 * (y % 2) : 10 + 10 * (y % 2), 3 + 5 * (y // 2) : 6 + 5 * (y // 2)] = 1
        return xs, ys

    little = data.Data(images(600), images(200), tuple("0123456789"), ())
    real = data.load
    monkeypatch.setattr(
        data, "load", lambda name, **where: little if name == "mnist" else real(name, **where)
    )


@pytest.mark.slow
def test_tricks_has_a_row_for_each_and_answers_again_from_the_folder(tmp_path):
    run = Run.begin(tmp_path / "r", recipe="tricks", arguments={}, seed=0)
    outcome = recipes.tricks(job(run), **FEW)
    assert list(outcome.table) == [
        "nothing",
        "weight decay",
        "decoupled decay",
        "early stopping",
        "dropout",
        "layer norm",
        "shifted images",
        "label smoothing",
        "2 restarts averaged",
        "all together",
    ]
    first = outcome.table["nothing"]
    assert first["less than with nothing"] == 0
    for row in outcome.table.values():
        assert row["less than with nothing"] == pytest.approx(
            first["test error %"] - row["test error %"]
        )
        assert row["standard error"] >= 0
    assert (tmp_path / "r" / "all-together" / "model.safetensors").is_file()
    assert recipes.tricks(job(run), **FEW).table == outcome.table
    assert outcome.model(jnp.asarray(outcome.test[0][0])).shape == (10,)


@pytest.mark.slow
def test_early_stopping_stops_and_wrong_labels_are_drawn():
    outcome = recipes.tricks(job(), **FEW | {"epochs": 8, "patience": 1, "wrong": 1.0})
    epochs = [row["epochs"] for row in outcome.table.values()]
    assert epochs[0] == 8 > epochs[3]
    truth = np.bincount(np.arange(300) % 10)
    given = np.bincount(outcome.train[1], minlength=10)
    assert truth.tolist() != given.tolist()


@pytest.mark.slow
def test_a_seed_is_judged_by_the_average_of_its_own_networks():
    nets = Ensemble.init(lambda key: MLP.init(784, 5, 10, key=key), 6, key=jr.key(0))
    xs, ys = jax.tree.map(jnp.asarray, data.load("mnist").test)
    member = lambda i: jax.tree.map(lambda a: a[i], nets.members)
    beliefs = np.stack([jax.nn.softmax(jax.vmap(member(i))(xs)) for i in range(6)])
    by_hand = [
        100 * np.mean(beliefs[i : i + 3].mean(axis=0).argmax(axis=1) != np.asarray(ys))
        for i in (0, 3)
    ]
    assert seeds_error(nets, (xs, ys), average=3) == pytest.approx(by_hand)
    alone = [float(error_rate(member(i), (xs, ys))) for i in range(6)]
    assert seeds_error(nets, (xs, ys), average=1) == pytest.approx(100 * np.array(alone))
    assert float(each_error(Ensemble(nets.members, mixture), (xs, ys))) == pytest.approx(
        np.mean(alone)
    )
    assert each_wrong(nets, (xs, ys)) == pytest.approx(100 * np.array(alone))


@pytest.mark.slow
def test_distil_reports_the_gap_that_was_closed(tmp_path):
    run = Run.begin(tmp_path / "r", recipe="distil", arguments={}, seed=0)
    outcome = recipes.distil(job(run), **SMALL)
    teacher, alone, told = outcome.table.values()
    assert list(outcome.table) == ["teacher", "student alone", "student distilled"]
    gap = alone["test error %"] - teacher["test error %"]
    assert gap > 0
    assert told["gap closed %"] == pytest.approx(
        100 * (alone["test error %"] - told["test error %"]) / gap
    )
    sizes = tree.size(MLP.init(784, 60, 20, 10, key=jr.key(0))), tree.size(outcome.model)
    assert teacher["size"] == pytest.approx(sizes[0] / sizes[1])
    assert teacher["size"] >= 10
    assert {path.name for path in (tmp_path / "r").iterdir()} >= {"teacher", "alone", "distilled"}
    assert recipes.distil(job(run), **SMALL).table == outcome.table


def test_the_teacher_is_asked_about_every_image():
    net = MLP.init(784, 5, 10, dropout=0.5, key=jr.key(0))
    xs = data.load("mnist").train[0][:7]
    assert np.allclose(answers(net, xs), jax.vmap(lambda x: net(x))(jnp.asarray(xs)), atol=1e-5)


@pytest.mark.parametrize(
    ("recipe", "options", "says"),
    [
        ("distil", {"student": (60,)}, "at most 1/10 is meant"),
        ("distil", {"seeds": 1}, "seeds must be at least 2"),
        ("distil", {"temperature": 0.0}, "temperature must be more than 0"),
        ("tricks", {"wrong": 1.5}, "wrong is a share of the labels"),
        ("tricks", {"seeds": 1}, "seeds must be at least 2"),
        ("tricks", {"smoothing": 2.0}, "strength is a probability"),
        ("tricks", {"images": 0}, "images must be more than 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(recipe, options, says):
    given = SMALL if recipe == "distil" else FEW
    with pytest.raises(ValueError, match=says):
        getattr(recipes, recipe)(job(), **given | options)

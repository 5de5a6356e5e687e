"""The recipes `tricks` and `distil` on small images."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import data, recipes, tree
from thetax.layers import Ensemble, mean_probabilities
from thetax.models import MLP
from thetax.recipes import Job
from thetax.recipes.images.distil import error_per_student, teacher_logits
from thetax.recipes.images.tricks import error_per_seed, mean_member_error
from thetax.train import Run, Silent, error_rate

TRICKS = {
    "n_train": 300,
    "n_seeds": 2,
    "hidden": (16,),
    "members": 2,
    "epochs": 3,
    "batch_size": 30,
    "learning_rate": 1e-2,
}
DISTIL = {
    "teacher_hidden": (60, 20),
    "student_hidden": (4,),
    "n_seeds": 2,
    "teacher_epochs": 4,
    "epochs": 4,
    "batch_size": 20,
    "learning_rate": 1e-2,
}


def job(run: Run | None = None) -> Job:
    return Job(run, jr.key(0), Silent())


@pytest.fixture(autouse=True)
def small_images(monkeypatch):
    """Noise in the shape of MNIST with a block at a position that depends on the label, visible
    after a shift by two pixels.
    """
    rng = np.random.default_rng(0)

    def images(n):
        ys = np.arange(n, dtype=np.int32) % 10
        xs = rng.random((n, 28, 28), np.float32) * 0.05
        for x, y in zip(xs, ys):
            x[4 + 10 * (y % 2) : 10 + 10 * (y % 2), 3 + 5 * (y // 2) : 6 + 5 * (y // 2)] = 1
        return xs, ys

    small = data.Data(images(600), images(200), tuple("0123456789"), ())
    real = data.load
    monkeypatch.setattr(
        data, "load", lambda name, **where: small if name == "mnist" else real(name, **where)
    )


@pytest.mark.slow
def test_tricks(tmp_path, check_reread):
    run = Run.begin(tmp_path / "r", recipe="tricks", arguments={}, seed=0)
    outcome = recipes.tricks(job(run), **TRICKS)
    assert list(outcome.table) == [
        "baseline",
        "weight decay",
        "decoupled weight decay",
        "early stopping",
        "dropout",
        "layer norm",
        "random shifts",
        "label smoothing",
        "ensemble of 2",
        "all combined",
    ]
    first = outcome.table["baseline"]
    assert first["reduction"] == 0
    for row in outcome.table.values():
        assert row["reduction"] == pytest.approx(first["test error %"] - row["test error %"])
        assert row["standard error"] >= 0
    assert (tmp_path / "r" / "all-combined" / "model.safetensors").is_file()
    check_reread(lambda: recipes.tricks(job(run), **TRICKS), outcome)
    assert outcome.model(jnp.asarray(outcome.test[0][0])).shape == (10,)


@pytest.mark.slow
def test_early_stopping_and_label_noise():
    outcome = recipes.tricks(job(), **TRICKS | {"epochs": 8, "patience": 1, "label_noise": 1.0})
    epochs = [row["epochs"] for row in outcome.table.values()]
    assert epochs[0] == 8 > epochs[3]
    truth = np.bincount(np.arange(300) % 10)
    noisy = np.bincount(outcome.train[1], minlength=10)
    assert truth.tolist() != noisy.tolist()


@pytest.mark.slow
def test_the_error_of_a_seed_is_that_of_its_ensemble():
    nets = Ensemble.init(lambda key: MLP.init(784, 5, 10, key=key), 6, key=jr.key(0))
    xs, ys = jax.tree.map(jnp.asarray, data.load("mnist").test)
    member = lambda i: jax.tree.map(lambda a: a[i], nets.members)
    probabilities = np.stack([jax.nn.softmax(jax.vmap(member(i))(xs)) for i in range(6)])
    by_hand = [
        100 * np.mean(probabilities[i : i + 3].mean(axis=0).argmax(axis=1) != np.asarray(ys))
        for i in (0, 3)
    ]
    assert error_per_seed(nets, (xs, ys), members=3) == pytest.approx(by_hand)
    single = [float(error_rate(member(i), (xs, ys))) for i in range(6)]
    assert error_per_seed(nets, (xs, ys), members=1) == pytest.approx(100 * np.array(single))
    assert float(
        mean_member_error(Ensemble(nets.members, mean_probabilities), (xs, ys))
    ) == pytest.approx(np.mean(single))
    assert error_per_student(nets, (xs, ys)) == pytest.approx(100 * np.array(single))


@pytest.mark.slow
def test_distil(tmp_path, check_reread):
    run = Run.begin(tmp_path / "r", recipe="distil", arguments={}, seed=0)
    outcome = recipes.distil(job(run), **DISTIL)
    teacher, labels, distilled = outcome.table.values()
    assert list(outcome.table) == ["teacher", "student, labels", "student, distilled"]
    gap = labels["test error %"] - teacher["test error %"]
    assert gap > 0
    assert distilled["gap closed %"] == pytest.approx(
        100 * (labels["test error %"] - distilled["test error %"]) / gap
    )
    sizes = tree.size(MLP.init(784, 60, 20, 10, key=jr.key(0))), tree.size(outcome.model)
    assert teacher["relative size"] == pytest.approx(sizes[0] / sizes[1])
    assert teacher["relative size"] >= 10
    assert {path.name for path in (tmp_path / "r").iterdir()} >= {"teacher", "labels", "distilled"}
    check_reread(lambda: recipes.distil(job(run), **DISTIL), outcome)


def test_teacher_logits():
    net = MLP.init(784, 5, 10, dropout=0.5, key=jr.key(0))
    xs = data.load("mnist").train[0][:7]
    assert np.allclose(
        teacher_logits(net, xs), jax.vmap(lambda x: net(x))(jnp.asarray(xs)), atol=1e-5
    )


@pytest.mark.parametrize(
    ("recipe", "options", "message"),
    [
        ("distil", {"student_hidden": (60,)}, "may have at most 1/10"),
        ("distil", {"n_seeds": 1}, "n_seeds must be at least 2"),
        ("distil", {"temperature": 0.0}, "temperature must be more than 0"),
        ("tricks", {"label_noise": 1.5}, "label_noise is a share of the labels"),
        ("tricks", {"n_seeds": 1}, "n_seeds must be at least 2"),
        ("tricks", {"label_smoothing": 2.0}, r"strength must be in \[0, 1\]"),
        ("tricks", {"n_train": 0}, "n_train must be more than 0"),
    ],
)
def test_bad_options_are_refused(recipe, options, message):
    valid = DISTIL if recipe == "distil" else TRICKS
    with pytest.raises(ValueError, match=message):
        getattr(recipes, recipe)(job(), **valid | options)

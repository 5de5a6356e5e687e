"""The recipe `robust-mnist` on small synthetic images."""

import json
from importlib import import_module

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import data, recipes
from thetax.attack import PGD, Robustness, SanityCheck, perturb, untargeted
from thetax.recipes import Job
from thetax.threat import Linf
from thetax.train import Run, Silent

robust_mnist = import_module("thetax.recipes.robustness.robust_mnist")

SMALL = {
    "channels": (4,),
    "hidden": 16,
    "epochs": 3,
    "batch_size": 20,
    "learning_rate": 1e-2,
    "n_test": 12,
    "steps": 2,
}


@pytest.fixture
def small_images(monkeypatch):
    """Vertical and horizontal bars with noise."""

    def bars(n, seed):
        rng = np.random.default_rng(seed)
        ys = rng.integers(0, 2, n).astype(np.int32)
        xs = 0.2 * rng.uniform(size=(n, 28, 28)).astype(np.float32)
        xs[ys == 0, 10:16, 4:24] += 0.8
        xs[ys == 1, 4:24, 10:16] += 0.8
        return xs.clip(0, 1), ys

    full = data.Data(bars(240, 0), bars(60, 1), tuple("0123456789"), ())
    monkeypatch.setattr(data, "load", lambda name: full)


@pytest.fixture
def quick(monkeypatch):
    """One short PGD in place of all attacks and sanity checks, which take long to compile."""

    def short_attack(model, data, ball, **options):
        xs, ys = map(np.asarray, data)
        correct = lambda xs: np.asarray(jax.vmap(model)(jnp.asarray(xs)).argmax(axis=1)) == ys
        pgd = PGD(untargeted(), ball, step_size=ball.radius / 2, steps=4, box=options["box"])
        worst = perturb(model, data, pgd).xs
        checks = (SanityCheck("fails", 0.5, "none", False, "it fails"),)
        is_robust = correct(worst)
        return Robustness(
            is_robust.mean().item(), correct(xs).mean().item(), is_robust, worst, checks
        )

    monkeypatch.setattr(robust_mnist, "robustness", short_attack)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["trades", "pgd", "single-step", "pairing", "interval"])
def test_every_method_learns(small_images, quick, method, check_reread):
    outcome = recipes.robust_mnist(Job(None, jr.key(0), Silent()), method=method, eps=0.1, **SMALL)
    check_reread(lambda: outcome, outcome)
    standard = outcome.table["standard training"]
    robust = outcome.table["robust training"]
    assert robust["test error %"] < 20
    assert robust["error under attack %"] >= robust["test error %"] - 20
    assert standard["failed sanity checks"] == robust["failed sanity checks"] == 1
    assert ("not certified %" in robust) == (method == "interval")
    if method == "interval":
        assert robust["not certified %"] >= robust["error under attack %"]
    assert np.isfinite(outcome.objective(outcome.model, (outcome.test[0][:4], outcome.test[1][:4])))


@pytest.mark.slow
def test_a_second_call_reads_the_run(small_images, quick, tmp_path, monkeypatch, check_reread):
    options = {**SMALL, "method": "single-step", "epochs": 1}
    run = Run.begin(tmp_path / "run", recipe="robust-mnist", arguments=options, seed=0)
    first = recipes.robust_mnist(Job(run, jr.key(0), Silent()), **options)
    assert (
        json.loads((run.folder / "robust-attacked.json").read_text())["failed sanity checks"] == 1
    )
    monkeypatch.setattr(
        robust_mnist, "robustness", lambda *args, **options: pytest.fail("an attack was run")
    )
    again = recipes.robust_mnist(Job(Run.open(run.folder), jr.key(0), Silent()), **options)
    check_reread(lambda: again, first)


def test_the_radius_grows_and_single_steps_are_watched():
    objective = robust_mnist.robust_objective("interval", Linf(0.1), steps=1, strength=1.0)
    ramped = robust_mnist.training_iteration(
        "interval", Linf(0.1), objective, learning_rate=1e-3, n_steps=10
    )
    state = ramped.init(robust_mnist.strided_cnn((2,), 4, key=jr.key(0)))
    assert int(state.steps) == 0
    job = Job(None, jr.key(0), Silent())
    assert type(robust_mnist.progress_with_alert(job, "single-step")).__name__ == "MetricAlert"
    assert type(robust_mnist.progress_with_alert(job, "trades")).__name__ == "Silent"


def test_bad_input(unchecked):
    for name in ("eps", "steps", "n_test", "restarts", "epochs"):
        with pytest.raises(ValueError, match=f"{name} must be more than 0; got 0"):
            recipes.robust_mnist(Job(None, jr.key(0), Silent()), **{name: 0})

"""The recipe `robust-mnist` on a few made-up digits; every way to harden learns, and is judged."""

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

hardened = import_module("thetax.recipes.robust_mnist")

LITTLE = {
    "channels": (4,),
    "hidden": 16,
    "epochs": 3,
    "batch": 20,
    "rate": 1e-2,
    "judged": 12,
    "steps": 2,
}


@pytest.fixture
def little(monkeypatch):
    """Bars, upright or lying, and noise."""

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
    """One short ascent in place of all attacks and trials, which take long to compile."""

    def judge(model, some, ball, **options):
        right = lambda xs: (
            np.asarray(jax.vmap(model)(jnp.asarray(xs)).argmax(axis=1)) == np.asarray(some[1])
        )
        worst = perturb(
            PGD(untargeted(), ball, step_size=ball.radius / 2, steps=4, box=options["box"]),
            model,
            some,
        )
        checks = (SanityCheck("odd", 0.5, "none", False, "it is odd"),)
        return Robustness(
            right(worst).mean().item(), right(some[0]).mean().item(), right(worst), worst, checks
        )

    monkeypatch.setattr(hardened, "robustness", judge)


@pytest.mark.slow
@pytest.mark.parametrize("hardening", ["trades", "pgd", "single-step", "pairing", "interval"])
def test_every_way_learns(little, quick, hardening):
    outcome = recipes.robust_mnist(
        Job(None, jr.key(0), Silent()), hardening=hardening, radius=0.1, **LITTLE
    )
    plain = outcome.table["plain network"]
    hard = outcome.table["hardened network"]
    assert hard["test error %"] < 20
    assert hard["error under attack %"] >= hard["test error %"] - 20
    assert plain["doubts"] == hard["doubts"] == 1
    assert ("not certified %" in hard) == (hardening == "interval")
    if hardening == "interval":
        assert hard["not certified %"] >= hard["error under attack %"]
    assert np.isfinite(outcome.objective(outcome.model, (outcome.test[0][:4], outcome.test[1][:4])))


@pytest.mark.slow
def test_what_was_found_is_remembered(little, quick, tmp_path, monkeypatch):
    options = {**LITTLE, "hardening": "single-step", "epochs": 1}
    run = Run.begin(tmp_path / "run", recipe="robust-mnist", arguments=options, seed=0)
    first = recipes.robust_mnist(Job(run, jr.key(0), Silent()), **options)
    assert json.loads((run.folder / "hardened-attacked.json").read_text())["doubts"] == 1
    monkeypatch.setattr(
        hardened, "robustness", lambda *given, **named: pytest.fail("it attacked again")
    )
    again = recipes.robust_mnist(
        Job(Run.open(run.folder, look_only=True), jr.key(0), Silent()), **options
    )
    assert again.table == first.table


def test_the_bound_grows_and_the_alarm_is_for_single_steps():
    objective = hardened.hardened("interval", Linf(0.1), steps=1, strength=1.0)
    grown = hardened.climb("interval", Linf(0.1), objective, rate=1e-3, count=10)
    state = grown.init(hardened.strided((2,), 4, key=jr.key(0)))
    assert int(state.steps) == 0
    job = Job(None, jr.key(0), Silent())
    assert type(hardened.watched(job, "single-step")).__name__ == "MetricAlert"
    assert type(hardened.watched(job, "trades")).__name__ == "Silent"


def test_bad_input(unchecked):
    for name in ("radius", "steps", "judged", "restarts", "epochs"):
        with pytest.raises(ValueError, match=f"{name} must be more than 0; got 0"):
            recipes.robust_mnist(Job(None, jr.key(0), Silent()), **{name: 0})

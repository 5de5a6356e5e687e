"""The recipes of wide networks, narrow and short here; the real ones are run before a change
lands.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from thetax import data, recipes
from thetax.core import predict
from thetax.explain import WideBeliefs, Widths, infinite, lazy_ensemble
from thetax.recipes import Job
from thetax.recipes.nngp import believed, judged, likeliest_largest
from thetax.recipes.ntk import LAW, Centred, label_error, targets
from thetax.train import Run, Silent, squared_error

WIDTHS = {"widths": (16, 4), "depth": 1, "seeds": 2, "examples": 20, "steps": 3}
WIDE = {
    "images": 60,
    "held_out": 20,
    "tested": 30,
    "hidden": (8,),
    "members": 2,
    "epochs": 2,
    "batch": 20,
}


def job(run: Run | None = None) -> Job:
    return Job(run, jr.key(0), Silent())


@pytest.fixture
def little(monkeypatch):
    """MNIST-shaped noise with the label written as a block."""
    rng = np.random.default_rng(0)

    def images(n):
        ys = np.arange(n, dtype=np.int32) % 10
        xs = rng.random((n, 28, 28), np.float32) * 0.1
        for x, y in zip(xs, ys):
            x[10 * (y % 2) : 10 + 10 * (y % 2), 5 * (y // 2) : 5 + 5 * (y // 2)] = 1
        return xs, ys

    little = data.Data(images(200), images(60), tuple("0123456789"), ())
    real = data.load
    monkeypatch.setattr(
        data, "load", lambda name, **where: little if name == "mnist" else real(name, **where)
    )


@pytest.mark.slow
def test_ntk_has_a_row_for_each_width_and_answers_again_from_the_folder(tmp_path):
    run = Run.begin(tmp_path / "r", recipe="ntk", arguments={}, seed=0)
    found = recipes.ntk(job(run), **WIDTHS)
    assert list(found.table) == [
        "infinite width, mean of all",
        "power of the width",
        "width 4",
        "width 16",
    ]
    assert isinstance(found.measured, Widths)
    assert found.measured.widths.tolist() == [4, 16]
    assert found.table["width 4"]["kernel from its limit"] == pytest.approx(
        found.measured.distance[0].mean()
    )
    assert found.table["power of the width"]["parameters moved"] == pytest.approx(
        found.measured.powers[2]
    )
    assert found.measured.distance.shape == (2, 2)
    assert recipes.ntk(job(run), **WIDTHS).table == found.table
    xs, _ = found.train
    ends = [jax.flatten_util.ravel_pytree(model)[0] for model in (found.start, found.model)]
    moved = jnp.linalg.norm(ends[1] - ends[0]) / jnp.linalg.norm(ends[0])
    assert float(moved) == pytest.approx(found.measured.moved[1, 0], rel=1e-4)
    J = jax.vmap(jax.jacobian(lambda model, x: model(x)), (None, 0))(found.start, xs)
    J = np.concatenate([np.reshape(leaf, (20, 10, -1)) for leaf in jax.tree.leaves(J)], axis=2)
    K = np.einsum("nop,mqp->nmoq", J, J)
    Theta = np.asarray(infinite(found.start).ntk(xs))
    limit = np.einsum("nm,oq->nmoq", Theta, np.eye(10))
    assert found.measured.distance[1, 0] == pytest.approx(
        np.linalg.norm(K - limit) / np.linalg.norm(limit), rel=1e-3
    )


@pytest.mark.slow
def test_nngp_has_its_rows_and_agrees_with_the_library(little, tmp_path):
    run = Run.begin(tmp_path / "r", recipe="nngp", arguments={}, seed=0)
    found = recipes.nngp(job(run), **WIDE)
    names = ["NNGP, a posterior", "NTK, an ensemble", "2 networks", "one of them, on average"]
    assert list(found.table) == names
    assert found.table[names[0]]["test error %"] < 20
    assert isinstance(found.measured, WideBeliefs)
    assert found.measured.mean.shape == (2, 30, 10)
    assert recipes.nngp(job(run), **WIDE).table == found.table
    xs, ys = found.train
    limit = infinite(found.start)
    K = np.asarray(limit.nngp(xs), np.float64)
    k = np.asarray(limit.nngp(found.test[0], xs), np.float64)
    mean = k @ np.linalg.solve(K + 1e-3 * np.diag(K).mean() * np.eye(60), targets(ys))
    assert found.table[names[0]]["test error %"] == pytest.approx(
        100 * np.mean(mean.argmax(1) != found.test[1])
    )
    top = np.linalg.eigvalsh(np.asarray(limit.ntk(xs), np.float64))[-1] / 60
    theory = lazy_ensemble(limit.nngp, limit.ntk, xs, targets(ys), rate=0.5 / top, momentum=0.9)(
        6, found.test[0]
    )
    assert np.allclose(found.measured.mean[0], theory.mean, atol=1e-3)
    assert np.allclose(found.measured.deviation[0], theory.deviation, atol=1e-3)


def test_a_class_is_believed_as_far_as_its_output_is_likely_to_be_the_largest():
    rng = np.random.default_rng(1)
    mean = rng.normal(size=(3, 4))
    deviation = rng.uniform(0.5, 1.5, (3, 4))
    draws = mean + deviation * rng.normal(size=(200_000, 3, 4))
    share = np.stack([(draws.argmax(axis=2) == c).mean(axis=0) for c in range(4)], axis=1)
    found = likeliest_largest(mean, deviation)
    assert np.allclose(found, share, atol=5e-3)
    assert np.allclose(np.exp(believed((mean, deviation**2 - 0.04), 0.2)), found, atol=1e-9)


def test_the_noise_is_that_by_which_the_held_out_are_likeliest():
    rng = np.random.default_rng(2)
    ys = rng.integers(0, 2, 2000)
    outputs = 2.0 * np.eye(2)[ys] + rng.normal(size=(2000, 2))
    (a, b), (y, z) = np.split(outputs, 2), np.split(ys, 2)
    row = judged((a, np.full((1000, 2), 0.09)), y, (b, np.full((1000, 2), 0.09)), z)
    gap = lambda out, ys: (out[:, 1] - out[:, 0]) * (2 * ys - 1)  # of two, P = Φ(gap / s√2)
    nll = lambda noise, out, ys: -norm.logcdf(gap(out, ys) / np.sqrt(2 * (0.09 + noise**2))).mean()
    best = minimize_scalar(lambda log: nll(np.exp(log), a, y), bounds=(-3, 1.3), method="bounded")
    assert row["noise"] == pytest.approx(np.exp(best.x), rel=0.1)
    assert row["minus log-likelihood"] == pytest.approx(nll(row["noise"], b, z), rel=1e-4)
    assert row["test error %"] == pytest.approx(100 * np.mean(gap(b, z) < 0))


@pytest.mark.slow
def test_targets_and_their_objective_say_the_same():
    net = recipes.ntk(job(), **WIDTHS | {"steps": 1}).model
    xs = jr.normal(jr.key(0), (5, 64))
    ys = jnp.array([0, 3, 9, 1, 1])
    hit = jnp.asarray(targets(ys), jnp.float32)
    assert float(label_error(net, (xs, ys))) == pytest.approx(
        float(squared_error(net, (xs, hit))), rel=1e-5
    )
    assert predict(net, xs).shape == hit.shape
    assert LAW.scale_b == 0.1
    pictures = np.random.default_rng(0).random((6, 8, 8), np.float32)
    flat, _ = Centred.fit(pictures)((pictures, ys))
    assert np.allclose(flat.mean(axis=0), 0, atol=1e-6)
    assert np.square(flat).mean() == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize(
    ("recipe", "options", "says"),
    [
        ("ntk", {"widths": (4,)}, "widths must be two at least"),
        ("ntk", {"widths": (0, 4)}, "width must be more than 0"),
        ("ntk", {"examples": 1700}, "examples must lie between 10 and 1297"),
        ("nngp", {"members": 1}, "members must be at least 2"),
        ("nngp", {"images": 0}, "images must be more than 0"),
        ("nngp", {"images": 190}, "more than the 200 there are: 210"),
    ],
)
def test_what_cannot_be_meant_is_refused(little, recipe, options, says):
    given = WIDTHS if recipe == "ntk" else WIDE
    with pytest.raises(ValueError, match=says):
        getattr(recipes, recipe)(job(), **given | options)

"""The recipes `ntk` and `nngp` with small networks and few steps."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from thetax import data, recipes
from thetax.core import predict
from thetax.explain import (
    InfiniteWidthComparison,
    WidthScaling,
    infinite_width_limit,
    kernel_ensemble,
)
from thetax.recipes import Job
from thetax.recipes.kernels.nngp import log_class_probabilities, probability_of_largest, score
from thetax.recipes.kernels.ntk import INITIALISER, ImageScaler, centred_targets, label_error
from thetax.train import Run, Silent, squared_error

NTK = {"widths": (16, 4), "depth": 1, "n_seeds": 2, "n_train": 20, "steps": 3}
NNGP = {
    "n_train": 60,
    "n_valid": 20,
    "n_test": 30,
    "hidden": (8,),
    "members": 2,
    "epochs": 2,
    "batch_size": 20,
}


def job(run: Run | None = None) -> Job:
    return Job(run, jr.key(0), Silent())


@pytest.fixture
def small_images(monkeypatch):
    """Noise in the shape of MNIST with a block at a position that depends on the label."""
    rng = np.random.default_rng(0)

    def images(n):
        ys = np.arange(n, dtype=np.int32) % 10
        xs = rng.random((n, 28, 28), np.float32) * 0.1
        for x, y in zip(xs, ys):
            x[10 * (y % 2) : 10 + 10 * (y % 2), 5 * (y // 2) : 5 + 5 * (y // 2)] = 1
        return xs, ys

    small = data.Data(images(200), images(60), tuple("0123456789"), ())
    real = data.load
    monkeypatch.setattr(
        data, "load", lambda name, **where: small if name == "mnist" else real(name, **where)
    )


@pytest.mark.slow
def test_ntk(tmp_path, check_reread):
    run = Run.begin(tmp_path / "r", recipe="ntk", arguments={}, seed=0)
    found = recipes.ntk(job(run), **NTK)
    assert list(found.table) == [
        "infinite width (ensemble mean)",
        "exponent in the width",
        "width 4",
        "width 16",
    ]
    assert isinstance(found.measured, WidthScaling)
    assert found.measured.widths.tolist() == [4, 16]
    assert found.table["width 4"]["distance to the limit kernel"] == pytest.approx(
        found.measured.limit_distance[0].mean()
    )
    assert found.table["exponent in the width"]["parameter change"] == pytest.approx(
        found.measured.exponents[2]
    )
    assert found.measured.limit_distance.shape == (2, 2)
    check_reread(lambda: recipes.ntk(job(run), **NTK), found)
    xs, _ = found.train
    ends = [ravel_pytree(model)[0] for model in (found.start, found.model)]
    change = jnp.linalg.norm(ends[1] - ends[0]) / jnp.linalg.norm(ends[0])
    assert float(change) == pytest.approx(found.measured.parameter_change[1, 0], rel=1e-4)
    J = jax.vmap(jax.jacobian(lambda model, x: model(x)), (None, 0))(found.start, xs)
    J = np.concatenate([np.reshape(leaf, (20, 10, -1)) for leaf in jax.tree.leaves(J)], axis=2)
    K = np.einsum("nop,mqp->nmoq", J, J)
    Theta = np.asarray(infinite_width_limit(found.start).ntk(xs))
    limit = np.einsum("nm,oq->nmoq", Theta, np.eye(10))
    assert found.measured.limit_distance[1, 0] == pytest.approx(
        np.linalg.norm(K - limit) / np.linalg.norm(limit), rel=1e-3
    )


@pytest.mark.slow
def test_nngp(small_images, tmp_path, check_reread):
    run = Run.begin(tmp_path / "r", recipe="nngp", arguments={}, seed=0)
    found = recipes.nngp(job(run), **NNGP)
    names = [
        "NNGP posterior",
        "NTK ensemble",
        "ensemble of 2 networks",
        "single network (mean)",
    ]
    assert list(found.table) == names
    assert found.table[names[0]]["test error %"] < 20
    assert isinstance(found.measured, InfiniteWidthComparison)
    assert found.measured.mean.shape == (2, 30, 10)
    check_reread(lambda: recipes.nngp(job(run), **NNGP), found)
    xs, ys = found.train
    limit = infinite_width_limit(found.start)
    K = np.asarray(limit.nngp(xs), np.float64)
    k = np.asarray(limit.nngp(found.test[0], xs), np.float64)
    mean = k @ np.linalg.solve(K + 1e-3 * np.diag(K).mean() * np.eye(60), centred_targets(ys))
    assert found.table[names[0]]["test error %"] == pytest.approx(
        100 * np.mean(mean.argmax(1) != found.test[1])
    )
    top = np.linalg.eigvalsh(np.asarray(limit.ntk(xs), np.float64))[-1] / 60
    theory = kernel_ensemble(
        limit.nngp, limit.ntk, xs, centred_targets(ys), learning_rate=0.5 / top, momentum=0.9
    )(6, found.test[0])
    assert np.allclose(found.measured.mean[0], theory.mean, atol=1e-3)
    assert np.allclose(found.measured.std[0], theory.std, atol=1e-3)


def test_class_probabilities_by_sampling():
    rng = np.random.default_rng(1)
    mean = rng.normal(size=(3, 4))
    std = rng.uniform(0.5, 1.5, (3, 4))
    samples = mean + std * rng.normal(size=(200_000, 3, 4))
    frequency = np.stack([(samples.argmax(axis=2) == c).mean(axis=0) for c in range(4)], axis=1)
    found = probability_of_largest(mean, std)
    assert np.allclose(found, frequency, atol=5e-3)
    assert np.allclose(
        np.exp(log_class_probabilities((mean, std**2 - 0.04), 0.2)), found, atol=1e-9
    )


def test_the_noise_maximises_the_held_out_likelihood():
    rng = np.random.default_rng(2)
    ys = rng.integers(0, 2, 2000)
    outputs = 2.0 * np.eye(2)[ys] + rng.normal(size=(2000, 2))
    (a, b), (y, z) = np.split(outputs, 2), np.split(ys, 2)
    row = score((a, np.full((1000, 2), 0.09)), y, (b, np.full((1000, 2), 0.09)), z)
    gap = lambda out, ys: (out[:, 1] - out[:, 0]) * (2 * ys - 1)  # for two classes P = Φ(gap / s√2)
    nll = lambda noise, out, ys: -norm.logcdf(gap(out, ys) / np.sqrt(2 * (0.09 + noise**2))).mean()
    best: Any = minimize_scalar(
        lambda log: nll(np.exp(log), a, y), bounds=(-3, 1.3), method="bounded"
    )
    assert row["noise"] == pytest.approx(np.exp(best.x), rel=0.1)
    assert row["negative log-likelihood"] == pytest.approx(nll(row["noise"], b, z), rel=1e-4)
    assert row["test error %"] == pytest.approx(100 * np.mean(gap(b, z) < 0))


@pytest.mark.slow
def test_targets_and_their_objective_agree():
    net = recipes.ntk(job(), **NTK | {"steps": 1}).model
    xs = jr.normal(jr.key(0), (5, 64))
    ys = jnp.array([0, 3, 9, 1, 1])
    targets = jnp.asarray(centred_targets(ys), jnp.float32)
    assert float(label_error(net, (xs, ys))) == pytest.approx(
        float(squared_error(net, (xs, targets))), rel=1e-5
    )
    assert predict(net, xs).shape == targets.shape
    assert INITIALISER.scale_b == 0.1
    images = np.random.default_rng(0).random((6, 8, 8), np.float32)
    flat, _ = ImageScaler.fit(images)((images, ys))
    assert np.allclose(flat.mean(axis=0), 0, atol=1e-6)
    assert np.square(flat).mean() == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize(
    ("recipe", "options", "message"),
    [
        ("ntk", {"widths": (4,)}, "widths: expected at least two different widths"),
        ("ntk", {"widths": (0, 4)}, "width must be more than 0"),
        ("ntk", {"n_train": 1700}, "n_train must lie between 10 and 1297"),
        ("nngp", {"members": 1}, "members must be at least 2"),
        ("nngp", {"n_train": 0}, "n_train must be more than 0"),
        ("nngp", {"n_train": 190}, "may be at most 200, .* got 210"),
    ],
)
def test_bad_options_are_refused(small_images, recipe, options, message):
    valid = NTK if recipe == "ntk" else NNGP
    with pytest.raises(ValueError, match=message):
        getattr(recipes, recipe)(job(), **valid | options)

"""The recipes for sets and point clouds, with tiny sizes."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import data, recipes
from thetax.data import Meshes
from thetax.layers import Ensemble, Pointwise
from thetax.models import DeepSets
from thetax.recipes import Job
from thetax.recipes.sets import networks
from thetax.recipes.sets.pointnet import Clouds, distance_histogram_error, load_clouds, mean_iou
from thetax.recipes.sets.sets import STATISTICS, number_sets
from thetax.train import Run, Silent, squared_error

TINY = {"n_points": 8, "n_train": 24, "n_test": 12, "width_divisor": 32, "n_seeds": 1}
SHORT = {"epochs": 1, "batch_size": 12}


def job(run: Run | None = None) -> Job:
    return Job(run, jr.key(0), Silent())


@pytest.mark.parametrize("statistic", STATISTICS)
def test_statistics(statistic):
    xs, ys = number_sets(5, 4, statistic, key=jr.key(0))
    rows = np.sort(np.asarray(xs)[..., 0], axis=1)
    expected = {
        "median": (rows[:, 1] + rows[:, 2]) / 2,
        "max": rows[:, -1],
        "range": rows[:, -1] - rows[:, 0],
    }[statistic]
    np.testing.assert_allclose(ys[:, 0], expected, rtol=1e-6)


def test_metric_of_each_network():
    """In batches, the last of them smaller."""
    nets = Ensemble.init(
        lambda key: DeepSets.init(1, 1, latent=2, hidden=(3,), key=key), 2, key=jr.key(0)
    )
    test = number_sets(networks.EVALUATION_BATCH + 7, 3, "max", key=jr.key(1))
    found = networks.member_values(nets, test, squared_error)
    for seed, value in enumerate(found):
        net = jax.tree.map(lambda leaf, seed=seed: leaf[seed], nets.members)
        assert value == pytest.approx(float(squared_error(net, test)), rel=1e-5)
    first = jax.tree.leaves(networks.first_network(nets))[0]
    np.testing.assert_array_equal(first, jax.tree.leaves(nets.members)[0][0])


def test_intersection_over_union():
    logits = jnp.array([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]])
    model = Pointwise(lambda x: logits[0])
    ys = jnp.array([[0, 1, 0, 0]])  # part 0: 2 of 3; part 1: 1 of 2; part 2 does not occur
    assert mean_iou(model, (jnp.zeros((1, 4, 3)), ys), 3) == pytest.approx(7 / 12)


def test_distances_tell_a_plane_from_a_sphere():
    key = jr.key(0)
    draw = lambda n, key: data.primitive_clouds(n, shapes=("plane", "sphere"), key=key)[:2]
    clouds = Clouds(draw(40, key), draw(20, jr.key(1)), ("plane", "sphere"))
    assert distance_histogram_error(clouds, key=key) == 0.0


@pytest.fixture
def small_meshes(monkeypatch):
    """Ten meshes of two classes, with two parts, in place of the downloads."""
    rng = np.random.default_rng(0)
    triangles = [rng.normal(size=(6, 3, 3)).astype(np.float32) for _ in range(10)]
    parts = [np.arange(6, dtype=np.int32) % 2 for _ in range(10)]
    labels = np.arange(10, dtype=np.int32) % 2
    sets = {
        "cad": Meshes(triangles, parts, labels, ("resistor", "switch"), ("body", "metal")),
        "ycb": Meshes(triangles, [], np.arange(10, dtype=np.int32), tuple("abcdefghij"), ()),
    }
    monkeypatch.setattr(data, "load_meshes", lambda name: sets[name])


@pytest.mark.parametrize("rotation", ["z", "any"])
def test_clouds_of_meshes(small_meshes, rotation):
    options = {"rotation": rotation, "n_points": 9, "n_train": 16, "n_test": 4, "key": jr.key(0)}
    cad = load_clouds("cad", "segmentation", **options)
    assert cad.train[0].shape == (16, 9, 3)
    assert cad.test[0].shape == (4, 9, 3)
    assert cad.train[1].shape == (16, 9)
    assert cad.classes == ("body", "metal")
    np.testing.assert_allclose(np.linalg.norm(cad.train[0], axis=2).max(axis=1), 1, rtol=1e-4)
    ycb = load_clouds("ycb", "classification", **options | {"n_test": 10})
    assert np.bincount(np.asarray(ycb.train[1])).tolist() == [1] * 10
    assert ycb.classes == tuple("abcdefghij")
    np.testing.assert_allclose(np.asarray(ycb.train[0]).mean(axis=1), 0, atol=1e-5)
    with pytest.raises(ValueError, match="have no part labels"):
        load_clouds("ycb", "segmentation", **options)


@pytest.mark.slow
def test_sets(tmp_path, check_reread):
    run = Run.begin(tmp_path / "r", recipe="sets", arguments={}, seed=0)
    call = lambda: recipes.sets(
        job(run), size=4, latents=(2,), hidden=(4,), width=4, n_train=40, n_seeds=2, **SHORT
    )
    outcome = call()
    assert list(outcome.table) == [
        "training mean",
        "multi-layer perceptron",
        "Deep Sets, latent dimension 2",
        "Set Transformer",
    ]
    assert "on sets of 8" in outcome.table["Set Transformer"]
    assert "on sets of 8" not in outcome.table["multi-layer perceptron"]
    rows = outcome.table["training mean"]
    test = np.asarray(outcome.test[1])
    expected = np.mean((test - np.asarray(outcome.train[1]).mean()) ** 2)
    assert rows["mean squared error"] == pytest.approx(expected, rel=1e-4)
    check_reread(call, outcome)
    with pytest.raises(ValueError, match="latents: expected dimensions"):
        recipes.sets(job(), latents=())


@pytest.mark.slow
def test_pointnet_classification(tmp_path, check_reread):
    run = Run.begin(tmp_path / "r", recipe="pointnet", arguments={}, seed=0)
    call = lambda: recipes.pointnet(job(run), **TINY, **SHORT)
    outcome = call()
    assert list(outcome.table) == [
        "histogram of distances",
        "multi-layer perceptron",
        "Deep Sets",
        "PointNet without transforms",
        "PointNet++",
        "PointNet",
    ]
    assert outcome.classes == tuple(data.PRIMITIVES)
    check_reread(call, outcome)


@pytest.mark.slow
def test_pointnet_segmentation(small_meshes):
    outcome = recipes.pointnet(job(), data="cad", task="segmentation", **TINY, **SHORT)
    assert list(outcome.table) == [
        "most frequent part",
        "each point by itself",
        "equivariant Deep Sets",
        "PointNet without transforms",
        "PointNet",
    ]
    assert outcome.classes == ("body", "metal")
    assert 0 <= outcome.table["PointNet"]["mean IoU"] <= 1

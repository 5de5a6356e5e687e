"""Boundary distances against closed forms, and the least robust examples."""

import sys

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.special import softmax

from thetax.attack import (
    BoundaryDistances,
    DistancesByNorm,
    affine_distance,
    boundary_distance,
    least_robust,
)
from thetax.attack.boundary_distance import _radius_of_all_inputs, _with_predictions
from thetax.attack.perturb import Perturbed
from thetax.core import predict
from thetax.layers import Chain, Linear
from thetax.models import MLP
from thetax.threat import L1, L2, Linf

line = Linear(jr.normal(jr.key(0), (4, 5)), jr.normal(jr.key(1), (4,)))
xs = jr.normal(jr.key(2), (12, 5))
logits = predict(line, xs)
ys = jnp.argmax(logits, axis=1).at[3].set(jnp.argmin(logits[3]))


@pytest.mark.slow
@pytest.mark.parametrize("norm", [L2, Linf])
def test_affine_classifier(norm):
    found = boundary_distance(line, (xs, ys), norm, binary_search_steps=10)
    exact = [float(affine_distance(line, x, y, norm).min()) for x, y in zip(xs, ys)]
    right = np.asarray(jnp.argmax(predict(line, xs), axis=1) == ys)
    assert right.sum() == 11
    np.testing.assert_allclose(found.distances[right], np.array(exact)[right], rtol=0.02)
    assert (found.distances[right] >= np.array(exact)[right] * (1 - 1e-5)).all()
    assert (found.distances[~right] == 0).all()
    assert (found.nearest[~right] == found.xs[~right]).all()


def test_predictions_are_those_of_the_model():
    found = boundary_distance(line, (xs, ys), L2)
    p = np.exp(np.asarray(predict(line, jnp.asarray(found.nearest)), np.float64))
    p = p / p.sum(axis=1, keepdims=True)
    assert found.predictions[1].tolist() == p.argmax(axis=1).tolist()
    np.testing.assert_allclose(found.confidences[1], p.max(axis=1), rtol=1e-5)
    assert (found.predictions[1] != found.labels).all()
    moved = found.distances > 0
    assert (found.predictions[0] == found.labels).tolist() == moved.tolist()
    np.testing.assert_allclose(
        found.distances, np.linalg.norm(found.nearest - found.xs, axis=1), rtol=1e-5
    )


def test_inputs_stay_in_the_box():
    inside = jnp.clip(xs, -1.0, 1.0)
    data = inside, jnp.argmax(predict(line, inside), axis=1)
    found = boundary_distance(line, data, L2, box=(-1.0, 1.0))
    free = boundary_distance(line, data, L2)
    assert np.abs(found.nearest).max() <= 1
    assert (found.distances >= free.distances * 0.99).all()
    assert (found.distances > free.distances * 1.01).any()


@pytest.mark.slow
def test_constant_classifier_has_infinite_distances():
    never = Chain(Linear(jnp.zeros((2, 5)), jnp.array([1.0, 0.0])))
    found = boundary_distance(
        never, (xs[:3], jnp.zeros(3, int)), Linf, steps=3, binary_search_steps=2
    )
    assert np.isinf(found.distances).all()
    assert (found.nearest == found.xs).all()
    assert not len(least_robust(found, "Linf").indices)
    assert np.isnan(DistancesByNorm({"Linf": np.zeros(3)}).median("Linf"))


def test_predictions_of_two_inputs():
    """A linear model in NumPy: the classes and their probabilities before and after."""
    W, before, after = (
        np.random.default_rng(i).standard_normal(shape)
        for i, shape in enumerate([(3, 2), (4, 2), (4, 2)])
    )
    model = Linear(jnp.asarray(W, jnp.float32), jnp.zeros(3))
    given = [jnp.asarray(inputs, jnp.float32) for inputs in (before, after)]
    found = _with_predictions(model, given[0], jnp.array([0, 1, 2, 0]), jnp.arange(4.0), given[1])
    p = np.stack([softmax(inputs @ W.T, axis=1) for inputs in (before, after)])
    assert found.predictions.tolist() == p.argmax(axis=2).tolist()
    np.testing.assert_allclose(found.confidences, p.max(axis=2), rtol=1e-5)
    assert found.distances.tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("norm", [L2, Linf])
def test_the_ascents_walk_two_and_a_half_radii(monkeypatch, norm):
    """The radius is the largest distance that DeepFool found, here 11."""
    attacks = []

    def recorded(model, data, attack, *, batch_size):
        attacks.append(attack)
        return Perturbed(data[0], np.ones(12, bool), np.arange(12.0))

    monkeypatch.setattr(sys.modules["thetax.attack.boundary_distance"], "perturb", recorded)
    boundary_distance(line, (xs, ys), norm, steps=5)
    pgd = attacks[1].attack
    assert isinstance(pgd.ball, norm)
    assert float(pgd.ball.radius) == 11
    assert pgd.steps == 5
    assert pgd.steps * float(pgd.step_size) == pytest.approx(2.5 * 11)


def test_a_ball_that_holds_all_valid_inputs():
    points = jnp.array([[[-1.0, 0.0], [3.0, 0.5]]])
    assert _radius_of_all_inputs(points, Linf, (0.0, 5.0)) == 5
    assert _radius_of_all_inputs(points, L2, (0.0, 5.0)) == 10
    assert _radius_of_all_inputs(points, L2, None) == 8  # from -1 to 3
    assert _radius_of_all_inputs(0.1 * points, Linf, None) == 1  # at least that
    assert _radius_of_all_inputs(0.1 * points, Linf, (0.0, 0.5)) == 0.5


def test_least_robust_are_correct_and_in_order():
    n = 5
    distance = np.array([0.3, 0.0, 0.1, np.inf, 0.2])
    ints = np.arange(n)
    pair = np.stack([np.arange(n), np.arange(n) + 1])
    known = BoundaryDistances(
        distance, ints[:, None] + 0.5, ints[:, None] + 0.0, ints, pair, pair / 10
    )
    found = least_robust(known, "L2", n_examples=9, class_names=tuple("abcdef"))
    assert found.indices.tolist() == [2, 4, 0]
    assert found.examples.distances.tolist() == [0.1, 0.2, 0.3]
    assert found.examples.xs[:, 0].tolist() == [2.0, 4.0, 0.0]
    assert found.examples.predictions[1].tolist() == [3, 5, 1]
    assert least_robust(known, "L2", n_examples=2).indices.tolist() == [2, 4]
    assert DistancesByNorm({"L2": np.array([0.3, 0.0, 0.1, 0.2])}).median("L2") == 0.2


def test_bad_input(unchecked):
    data = xs, ys
    with pytest.raises(ValueError, match="boundary_distance: norm must be L2 or Linf; got L1"):
        boundary_distance(line, data, L1)
    with pytest.raises(ValueError, match=r"boundary_distance: box must be \(low, high\)"):
        boundary_distance(line, data, L2, box=(1.0, 0.0))
    with pytest.raises(ValueError, match="boundary_distance: ys"):
        boundary_distance(MLP.init(5, 3, 2, key=jr.key(0)), (xs, jnp.full(12, 7)), L2)
    with pytest.raises(ValueError, match="n_examples must be an integer >= 1; got 0"):
        least_robust(boundary_distance(line, data, L2), "L2", n_examples=0)

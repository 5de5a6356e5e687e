"""Robustness curves: certified radii are exact for affine models and never exceed the attack's
distances.
"""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.attack import affine_distance, boundary_distance
from thetax.certify import RobustnessCurves, certified_accuracy, certified_radii
from thetax.core import predict
from thetax.layers import Linear
from thetax.models import MLP
from thetax.threat import L0, L2, Linf

net = MLP.init(4, 12, 12, 3, key=jr.key(0))
xs = jr.uniform(jr.key(1), (24, 4))
logits = predict(net, xs)
ys = jnp.argmax(logits, axis=1).at[5].set(jnp.argmin(logits[5]))
BOX = (0.0, 1.0)


@pytest.fixture(scope="module")
def attacked():
    return boundary_distance(net, (xs, ys), Linf, box=BOX)


@pytest.mark.slow
@pytest.mark.parametrize("bounds", ["linear", "interval"])
def test_certified_radii_are_below_boundary_distances(attacked, bounds):
    far = np.where(np.isinf(attacked.distances), 1.0, attacked.distances)
    radii = certified_radii(net, (xs, ys), Linf, max_radius=2 * far, box=BOX, bounds=bounds)
    assert (radii <= attacked.distances).all()
    assert radii[attacked.distances > 0].max() > 0
    curves = RobustnessCurves({"Linf": attacked.distances}, {"Linf": radii}, bounds)
    r = np.linspace(0, 1, 200)
    assert (curves.certified_accuracy("Linf", r) <= curves.empirical_accuracy("Linf", r)).all()
    assert (
        curves.certified_accuracy("Linf", 0.0)
        == curves.empirical_accuracy("Linf", 0.0)
        == (attacked.distances > 0).mean()
    )


@pytest.mark.slow
def test_radii_agree_with_certified_accuracy_at_each_radius():
    radii = certified_radii(
        net, (xs, ys), Linf, max_radius=0.5, box=BOX, binary_search_steps=10, batch_size=7
    )
    for r in (0.02, 0.1):
        direct = certified_accuracy(net, (xs, ys), Linf(r), box=BOX).margins > 0
        clear = np.abs(radii - r) > 0.5 / 2**9
        assert clear.sum() > 20
        assert ((radii >= r) == direct)[clear].all()


@pytest.mark.slow
def test_affine_classifier():
    line = Linear(jr.normal(jr.key(0), (3, 4)), jr.normal(jr.key(1), (3,)))
    right = jnp.argmax(predict(line, xs), axis=1)
    exact = np.array([float(affine_distance(line, x, y, L2).min()) for x, y in zip(xs, right)])
    radii = certified_radii(line, (xs, right), L2, max_radius=2 * exact, binary_search_steps=12)
    np.testing.assert_allclose(radii, exact, rtol=2e-3)
    assert (certified_radii(line, (xs, (right + 1) % 3), L2, max_radius=1.0) == 0).all()


def test_accuracies_are_fractions():
    curves = RobustnessCurves(
        {"L2": np.array([0.0, 1.0, 2.0, np.inf])}, {"L2": np.array([0.0, 0.5, 1.0, 0.0])}, ""
    )
    assert curves.empirical_accuracy("L2", np.array([0.0, 1.0, 1.5, 9.0])).tolist() == [
        0.75,
        0.5,
        0.5,
        0.25,
    ]
    assert curves.certified_accuracy("L2", np.array([0.0, 0.5, 0.7, 9.0])).tolist() == [
        0.75,
        0.5,
        0.25,
        0.0,
    ]


def test_bad_input(unchecked):
    data = xs, ys
    with pytest.raises(
        ValueError, match=r"certified_radii: an L0 radius is a count and cannot be halved\. Use L1"
    ):
        certified_radii(net, data, L0, max_radius=1.0)
    with pytest.raises(
        ValueError, match="certified_radii: binary_search_steps must be an integer >= 1; got 0"
    ):
        certified_radii(net, data, L2, max_radius=1.0, binary_search_steps=0)
    for max_radius in (-1.0, np.inf):
        with pytest.raises(
            ValueError, match="max_radius, the largest radius to try, must be finite and >= 0"
        ):
            certified_radii(net, data, L2, max_radius=max_radius)
    with pytest.raises(ValueError, match="certified_radii: box"):
        certified_radii(net, data, L2, max_radius=1.0, box=(1.0, 1.0))
    with pytest.raises(ValueError, match=r"certified_radii: expected inputs from 0\.0 to 0\.1"):
        certified_radii(net, data, L2, max_radius=1.0, box=(0.0, 0.1))

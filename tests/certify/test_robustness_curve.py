"""Robust accuracy at every radius: certificates, exact where they can be, and never above what
attacks leave.
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
said = predict(net, xs)
ys = jnp.argmax(said, axis=1).at[5].set(jnp.argmin(said[5]))
BOX = (0.0, 1.0)


@pytest.fixture(scope="module")
def found():
    return boundary_distance(net, (xs, ys), Linf, box=BOX)


@pytest.mark.slow
@pytest.mark.parametrize("bounds", ["linear", "interval"])
def test_nothing_is_proven_that_an_attack_refutes(found, bounds):
    far = np.where(np.isinf(found.distance), 1.0, found.distance)
    radii = certified_radii(net, (xs, ys), Linf, most=2 * far, box=BOX, bounds=bounds)
    assert (radii <= found.distance).all()
    assert radii[found.distance > 0].max() > 0
    curves = RobustnessCurves({"Linf": found.distance}, {"Linf": radii}, bounds)
    r = np.linspace(0, 1, 200)
    assert (curves.proven("Linf", r) <= curves.empirical("Linf", r)).all()
    assert (
        curves.proven("Linf", 0.0) == curves.empirical("Linf", 0.0) == (found.distance > 0).mean()
    )


@pytest.mark.slow
def test_the_curve_of_one_search_is_that_of_a_certificate_at_each_radius():
    radii = certified_radii(net, (xs, ys), Linf, most=0.5, box=BOX, rounds=10, batch=7)
    for r in (0.02, 0.1):
        direct = certified_accuracy(net, (xs, ys), Linf(r), box=BOX).margins > 0
        clear = np.abs(radii - r) > 0.5 / 2**9
        assert clear.sum() > 20
        assert ((radii >= r) == direct)[clear].all()


@pytest.mark.slow
def test_of_an_affine_classifier_it_is_the_distance_to_the_nearest_plane():
    line = Linear(jr.normal(jr.key(0), (3, 4)), jr.normal(jr.key(1), (3,)))
    right = jnp.argmax(predict(line, xs), axis=1)
    exact = np.array([float(affine_distance(line, x, y, L2).min()) for x, y in zip(xs, right)])
    radii = certified_radii(line, (xs, right), L2, most=2 * exact, rounds=12)
    np.testing.assert_allclose(radii, exact, rtol=2e-3)
    assert (certified_radii(line, (xs, (right + 1) % 3), L2, most=1.0) == 0).all()


def test_shares_are_counted():
    curves = RobustnessCurves(
        {"L2": np.array([0.0, 1.0, 2.0, np.inf])}, {"L2": np.array([0.0, 0.5, 1.0, 0.0])}, ""
    )
    assert curves.empirical("L2", np.array([0.0, 1.0, 1.5, 9.0])).tolist() == [0.75, 0.5, 0.5, 0.25]
    assert curves.proven("L2", np.array([0.0, 0.5, 0.7, 9.0])).tolist() == [0.75, 0.5, 0.25, 0.0]


def test_bad_input(unchecked):
    data = xs, ys
    with pytest.raises(ValueError, match="certified_radii: L0 counts"):
        certified_radii(net, data, L0, most=1.0)
    with pytest.raises(
        ValueError, match="certified_radii: rounds and batch must be at least 1; got 0 and 32"
    ):
        certified_radii(net, data, L2, most=1.0, rounds=0)
    for most in (-1.0, np.inf):
        with pytest.raises(
            ValueError, match="most is the largest radius to try, so finite and not negative"
        ):
            certified_radii(net, data, L2, most=most)
    with pytest.raises(ValueError, match="certified_radii: box"):
        certified_radii(net, data, L2, most=1.0, box=(1.0, 1.0))
    with pytest.raises(ValueError, match=r"certified_radii: expected inputs from 0\.0 to 0\.1"):
        certified_radii(net, data, L2, most=1.0, box=(0.0, 0.1))

"""The norm in which the distance of a perturbed input is measured."""

from types import SimpleNamespace

import jax.numpy as jnp
import pytest

from thetax.attack.perturb import _norm_of
from thetax.threat import L1, L2, Linf

ETA = jnp.array([3.0, -4.0])


@pytest.mark.parametrize(
    ("attack", "distance"),
    [
        (SimpleNamespace(norm=L1), 7.0),
        (SimpleNamespace(norm=Linf), 4.0),
        (SimpleNamespace(ball=Linf(0.5)), 4.0),
        (SimpleNamespace(norm=None, attack=SimpleNamespace(ball=L2(0.5))), 5.0),
        (SimpleNamespace(), 5.0),
    ],
)
def test_the_norm_of_an_attack(attack, distance):
    assert float(_norm_of(attack)(ETA)) == pytest.approx(distance)

"""Critical points, against the roots of polynomials."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetax.explain import critical_points

pytestmark = pytest.mark.usefixtures("x64")


@pytest.mark.slow
@given(seed=st.integers(0, 10**6), degree=st.integers(1, 6))
def test_roots_of_a_polynomial(seed, degree):
    with jax.enable_x64(True):
        roots = np.sort(
            np.random.default_rng(seed).uniform(-0.1, 0.1, degree) + np.linspace(-1, 1, degree)
        )
        slope = np.poly1d(np.poly(roots))
        coefficients = jnp.asarray(slope.integ().coeffs)
        found = critical_points(
            lambda t: jnp.polyval(coefficients, t), low=-1.5, high=1.5, n_points=301
        )
        assert np.allclose(found.points, roots, atol=1e-9)
        bends = slope.deriv()(roots)
        assert [kind == "maximum" for kind in found.kinds] == (bends < 0).tolist()
        if (bends > 0).any():
            heights = slope.integ()(roots)
            least = min(heights[bends > 0].min(), *slope.integ()(np.array([-1.5, 1.5])))
            assert [kind == "global minimum" for kind in found.kinds] == (
                (bends > 0) & (heights <= least + 1e-9)
            ).tolist()
        assert np.allclose(found.minima, roots[bends > 0], atol=1e-9)


@pytest.mark.parametrize(
    ("h", "kinds", "places"),
    [
        (lambda t: (t - 0.3) ** 3, ["inflection"], [0.3]),
        (lambda t: jnp.maximum(jnp.abs(t) - 0.4, 0.0) ** 2, ["global minimum"], [0.0]),
        (
            lambda t: -(jnp.maximum(jnp.abs(t) - 0.4, 0.0) ** 2),
            ["local minimum"],
            [0.0],
        ),  # within a plateau
        (lambda t: -(t**6), ["maximum"], [0.0]),
        (
            lambda t: (t**2 - 0.25) ** 2,
            ["global minimum", "maximum", "global minimum"],
            [-0.5, 0.0, 0.5],
        ),
        (lambda t: 2 * t, [], []),
        # at no point of the grid
        (
            lambda t: t**3 / 3 - 0.1234 * t,
            ["maximum", "local minimum"],
            [-np.sqrt(0.1234), np.sqrt(0.1234)],
        ),
        (lambda t: (t - 0.1234) ** 3, ["inflection"], [0.1234]),
    ],
)
def test_inflections_plateaus_and_ties(h, kinds, places):
    found = critical_points(h, low=-1.0, high=1.0, n_points=401)
    assert list(found.kinds) == kinds
    assert np.allclose(found.points, places, atol=1e-6)
    assert np.allclose(found.values, [h(jnp.asarray(t)) for t in places], atol=1e-9)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"low": 1.0, "high": 1.0}, "low must be below high"),
        ({"low": 0.0, "high": np.inf}, "low must be below high"),
        ({"low": 0.0, "high": 1.0, "n_points": 2}, "n_points >= 3"),
        ({"low": -1.0, "high": 1.0}, "not finite"),
    ],
)
def test_bad_input_is_rejected(settings, words):
    with pytest.raises(ValueError, match=words):
        critical_points(jnp.log, **settings)

"""Positional encodings against their formulas and their properties under shifts."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import normal

from thetax.layers import ALiBi, LearnedPositions, Rotary, SinusoidalPositions, position_frequencies


def test_frequencies():
    np.testing.assert_allclose(
        position_frequencies(6, 100.0), [1, 100 ** (-1 / 3), 100 ** (-2 / 3)]
    )
    for d in (0, 1, 5):
        with pytest.raises(ValueError, match=f"d must be even, .*; got {d}"):
            position_frequencies(d)


@pytest.mark.usefixtures("x64", "strict")
def test_sinusoidal_table():
    table = SinusoidalPositions().table(9, 6)
    expected = np.zeros((9, 6))
    for t in range(9):
        for i in range(3):
            expected[t, 2 * i], expected[t, 2 * i + 1] = (
                np.sin(t / 1e4 ** (2 * i / 6)),
                np.cos(t / 1e4 ** (2 * i / 6)),
            )
    np.testing.assert_allclose(table, expected, atol=1e-12)
    np.testing.assert_allclose(
        SinusoidalPositions()(jnp.ones((4, 6)), offset=jnp.array(5, jnp.int32)),
        1 + expected[5:],
        atol=1e-12,
    )


@pytest.mark.usefixtures("x64")
def test_a_shift_is_one_rotation():
    table = np.asarray(SinusoidalPositions(50.0).table(12, 6))
    shift, *_ = np.linalg.lstsq(table[:-3], table[3:], rcond=None)
    np.testing.assert_allclose(table[:-3] @ shift, table[3:], atol=1e-10)
    np.testing.assert_allclose(shift @ shift.T, np.eye(6), atol=1e-8)


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_learned_positions(monkeypatch, backend):
    """Rows are read in another way on an accelerator."""
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    layer = LearnedPositions.init(5, 3, key=jr.key(0))
    x = normal(0, 2, 3)
    np.testing.assert_array_equal(layer(x), x + layer.P[:2])
    np.testing.assert_array_equal(
        jax.jit(lambda first: layer(x, offset=first))(jnp.array(3)), x + layer.P[3:]
    )
    slope = jax.grad(lambda layer: layer(x).sum())(layer).P
    assert slope.tolist() == [[1.0] * 3] * 2 + [[0.0] * 3] * 3


@pytest.mark.usefixtures("unchecked")
def test_sequence_longer_than_the_table():
    layer = LearnedPositions.init(5, 3, key=jr.key(0))
    for x, first in ((jnp.ones((6, 3)), 0), (jnp.ones((2, 3)), 4)):
        with pytest.raises(ValueError, match="has 5 positions, but the sequence has 6"):
            layer(x, offset=first)
    with pytest.raises(ValueError, match=r"expected one example of shape \(t, 3\)"):
        layer(jnp.ones((2, 4)))


@pytest.mark.usefixtures("x64", "strict")
def test_rotation_is_multiplication_by_a_phase():
    """The pair (x_i, x_{i+d/2}) is a complex number."""
    x = np.asarray(normal(0, 4, 2, 6))
    at = np.array([0, 3, 3, 11])
    z = (x[..., :3] + 1j * x[..., 3:]) * np.exp(
        1j * at[:, None, None] * position_frequencies(6, 50.0)
    )
    found = Rotary(50.0).rotate(jnp.asarray(x), jnp.asarray(at))
    np.testing.assert_allclose(found, np.concatenate([z.real, z.imag], axis=2), atol=1e-12)


@pytest.mark.usefixtures("x64")
def test_rotary_scores_depend_on_position_differences():
    q = normal(0, 1, 1, 8)
    k = normal(1, 1, 1, 8)
    score = jax.vmap(
        lambda t, s: jnp.vdot(Rotary().rotate(q, t[None]), Rotary().rotate(k, s[None]))
    )
    near = score(jnp.array([0, 5, 100, 4000]), jnp.array([3, 8, 103, 4003]))
    np.testing.assert_allclose(near, near[0], atol=1e-10)
    assert abs(score(jnp.array([0]), jnp.array([4]))[0] - near[0]) > 1e-2


def test_angles_are_not_rounded_in_half_precision():
    x = jnp.ones((1, 1, 2), jnp.bfloat16)
    found = Rotary().rotate(x, jnp.array([1001]))
    assert found.dtype == jnp.bfloat16
    angle = np.cos(1001.0) - np.sin(1001.0)
    assert float(found[0, 0, 0]) == pytest.approx(angle, abs=0.01)


def test_slopes_are_those_of_the_paper():
    """For 8, 16 and 12 heads; 12 are the slopes of 8 and every second one of 16."""
    np.testing.assert_allclose(ALiBi().slopes(8), [2.0**-n for n in range(1, 9)])
    np.testing.assert_allclose(ALiBi().slopes(16), [2 ** (-n / 2) for n in range(1, 17)])
    expected = [2.0**-n for n in range(1, 9)] + [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]
    np.testing.assert_allclose(ALiBi().slopes(12), expected)
    assert ALiBi().slopes(1).tolist() == [2.0**-8]

"""State-space models against convolutions, NumPy, and the continuous-time system."""

from functools import partial

import jax
import jax.random as jr
import numpy as np
import pytest
from contracts import filled, normal

from thetax.layers import LRU, DiagonalSSM, SelectiveSSM, discretise_bilinear, hippo, unroll

pytestmark = pytest.mark.usefixtures("x64")


@pytest.mark.slow
@pytest.mark.parametrize("discretisation", ["zoh", "bilinear"])
def test_output_is_a_convolution_with_the_kernel(discretisation):
    cell = DiagonalSSM.init(2, 5, 3, discretisation=discretisation, key=jr.key(0))
    cell = jax.tree.map(
        lambda leaf: leaf + 0.1 * jr.normal(jr.key(1), leaf.shape), cell
    )  # D is not 0
    xs = jr.normal(jr.key(2), (9, 2))
    kernel = np.asarray(cell.kernel(9))
    expected = [sum(kernel[j] @ np.asarray(xs[t - j]) for j in range(t + 1)) for t in range(9)]
    np.testing.assert_allclose(unroll(cell, xs)[1], expected, atol=1e-12)


@pytest.mark.parametrize("discretisation", ["zoh", "bilinear"])
def test_one_step_in_numpy(discretisation):
    cell = filled(partial(DiagonalSSM.init, 2, 3, 1, discretisation=discretisation), 0)
    z = np.array([0.3 - 0.2j, 1.0j, -0.5])
    x = np.array([0.7, -1.1])
    alpha, omega, log_step, B, C, D = (np.asarray(leaf) for leaf in jax.tree.leaves(cell))
    rate = -np.exp(alpha) + 1j * omega
    step = np.exp(log_step)
    held = np.exp(rate * step) if discretisation == "zoh" else (2 + rate * step) / (2 - rate * step)
    z_next = held * z + (held - 1) / rate * ((B[0] + 1j * B[1]) @ x)  # both: (held − 1) / rate
    y = ((C[0] + 1j * C[1]) @ z_next).real + D @ x
    found = jax.jit(lambda cell, z, x: cell(z, x))(cell, z, x)
    np.testing.assert_allclose(found[0], z_next, atol=1e-12)
    np.testing.assert_allclose(found[1], y, atol=1e-12)


def test_one_selective_step_in_numpy():
    cell = filled(partial(SelectiveSSM.init, 2, 3), 0)
    h = normal(1, 2, 3)
    x = normal(2, 2)
    A, S, s, B, C, D = (np.asarray(leaf) for leaf in jax.tree.leaves(cell))
    state = np.asarray(h)
    read = np.asarray(x)
    step = np.log1p(np.exp(S @ read + s))
    state = np.exp(-step[:, None] * np.exp(A)) * state + np.outer(step * read, B @ read)
    found = jax.jit(lambda cell, h, x: cell(h, x))(cell, h, x)
    np.testing.assert_allclose(found[0], state, atol=1e-12)
    np.testing.assert_allclose(found[1], state @ (C @ read) + D * read, atol=1e-12)


def test_zero_order_hold_is_the_exponential():
    """Against many small Euler steps with the input held constant."""
    cell = DiagonalSSM.init(1, 1, 1, key=jr.key(0))
    lam = complex(-np.exp(cell.alpha[0]), cell.omega[0] + 2.0)
    step = float(np.exp(cell.log_step[0]))
    moved = DiagonalSSM(cell.alpha, cell.omega + 2.0, cell.log_step, cell.B, cell.C, cell.D)
    held, B = moved.discrete
    b = complex(moved.B[0, 0, 0], moved.B[1, 0, 0])
    z = 0.3 - 0.2j
    small = step / 20_000
    for _ in range(20_000):
        z += small * (lam * z + b)
    assert complex(held[0] * (0.3 - 0.2j) + B[0, 0]) == pytest.approx(z, abs=1e-5)


def test_white_noise_gives_a_state_of_variance_one():
    r"""$\sum_t |\lambda|^{2t} \|C_i\|^2$ with so many inputs that $\|C_i\|^2$ is near its mean."""
    cell = jax.jit(lambda key: LRU.init(4000, 5, 1, radius=(0.3, 0.9), key=key))(jr.key(0))
    r = np.exp(-np.exp(np.asarray(cell.nu)))
    C = np.asarray(cell.C)
    variance = np.square(C).sum(axis=(0, 2)) / (1 - r**2)
    np.testing.assert_allclose(variance, 1.0, atol=5 / np.sqrt(4000))


def test_hippo_and_its_discretisation():
    A, B = hippo(6)
    np.testing.assert_allclose(np.sort(np.linalg.eigvals(A)), -np.arange(6.0, 0, -1), atol=1e-9)
    for step in (1e-3, 1.0, 100.0):
        discrete, _ = discretise_bilinear(A, B, step=step)
        assert np.abs(np.linalg.eigvals(discrete)).max() < 1
    discrete, held = discretise_bilinear(A, B, step=1e-5)
    np.testing.assert_allclose((discrete - np.eye(6)) / 1e-5, A, atol=1e-2)
    np.testing.assert_allclose(held / 1e-5, B, rtol=1e-3)


def test_initialisation():
    """The radii, and the time steps of a selective cell, lie in their ranges; radii outside the
    unit disk raise.
    """
    radii = np.abs(LRU.init(3, 200, 2, radius=(0.5, 0.7), key=jr.key(0)).eigenvalues)
    assert radii.min() > 0.5
    assert radii.max() < 0.7
    steps = jax.nn.softplus(SelectiveSSM.init(50, 2, step_range=(1e-2, 1e-1), key=jr.key(1)).s)
    assert float(steps.min()) > 0.99e-2
    assert float(steps.max()) < 1.01e-1
    with pytest.raises(
        ValueError, match=r"radius must be \(low, high\) with 0 < low < high < 1; got \(0.9, 1.0\)"
    ):
        LRU.init(3, 4, 2, radius=(0.9, 1.0), key=jr.key(0))

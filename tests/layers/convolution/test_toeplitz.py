"""Convolution by sums, matrices and spectra, and the matrices against SciPy."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal

from thetax.layers import (
    AveragePool,
    Convolution,
    Linear,
    MaxPool,
    circulant,
    convolve,
    correlate,
    fft_convolve,
    matrix_of,
    toeplitz,
)

pytestmark = pytest.mark.usefixtures("x64")
BOUNDARIES = ("valid", "same", "circular", "full")


def normal(seed: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


@partial(jax.jit, static_argnames="boundary")
def three_ways(h, x, *, boundary):
    """By sums, by spectra and by a matrix."""
    m = len(h)
    n = len(x)
    how = {"boundary": boundary}
    direct, spectral = (f(h[None, None], x[None], **how)[0] for f in (convolve, fft_convolve))
    if boundary == "circular":
        return direct, spectral, jnp.roll(circulant(h, n) @ x, -((m - 1) // 2))
    first = {"full": 0, "same": (m - 1) // 2, "valid": m - 1}[boundary]
    return direct, spectral, (toeplitz(h, n) @ x)[first : first + len(direct)]


@settings(max_examples=10)
@given(st.integers(1, 6), st.integers(0, 4), st.sampled_from(BOUNDARIES), st.integers(0, 99))
def test_direct_fft_and_matrix_agree(m, more, boundary, seed):
    direct, spectral, by_matrix = three_ways(
        normal(seed, m), normal(seed + 1, m + more), boundary=boundary
    )
    np.testing.assert_allclose(spectral, direct, atol=1e-12)
    np.testing.assert_allclose(by_matrix, direct, atol=1e-12)


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize(("size", "window"), [((7, 6), (3, 2)), ((5, 5), (5, 5)), ((4, 9), (1, 4))])
def test_images_of_several_channels(boundary, size, window):
    W = normal(0, 3, 2, *window)
    x = normal(1, 2, *size)
    ours = fft_convolve(W, x, boundary=boundary)
    if boundary == "circular":
        np.testing.assert_allclose(ours, convolve(W, x, boundary=boundary), atol=1e-12)
    else:
        per_channel = [
            sum(signal.convolve2d(x[c], w[c], mode=boundary) for c in range(2)) for w in W
        ]
        np.testing.assert_allclose(ours, per_channel, atol=1e-12)


def test_a_kernel_longer_than_the_signal():
    W = normal(0, 1, 1, 7)
    x = normal(1, 1, 4)
    np.testing.assert_allclose(
        fft_convolve(W, x, boundary="full")[0], np.convolve(W[0, 0], x[0]), atol=1e-12
    )
    np.testing.assert_allclose(
        fft_convolve(W, x, boundary="same"), convolve(W, x, boundary="same"), atol=1e-12
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_gradients_agree(boundary):
    W = normal(0, 2, 2, 3)
    x = normal(1, 2, 6)
    slopes = lambda f: jax.grad(
        lambda W, x: jnp.sum(jnp.sin(f(W, x, boundary=boundary))), argnums=(0, 1)
    )(W, x)
    for ours, direct in zip(slopes(fft_convolve), slopes(convolve)):
        np.testing.assert_allclose(ours, direct, atol=1e-12)


def test_half_precision_uses_float32_spectra():
    W = normal(0, 1, 1, 3)
    x = normal(1, 1, 8)
    y = fft_convolve(W.astype(jnp.bfloat16), x.astype(jnp.bfloat16), boundary="full")
    assert y.dtype == jnp.bfloat16
    np.testing.assert_allclose(y.astype(float), convolve(W, x, boundary="full"), atol=0.05)


def test_vmap_over_a_batch():
    W = normal(0, 2, 1, 3, 3)
    xs = normal(1, 4, 1, 5, 5)
    mapped = jax.jit(jax.vmap(lambda x: fft_convolve(W, x, boundary="same")))(xs)
    np.testing.assert_allclose(
        mapped, jnp.stack([convolve(W, x, boundary="same") for x in xs]), atol=1e-12
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("m", "n"), [(1, 1), (3, 5), (5, 2), (4, 4)])
def test_toeplitz_equals_scipy(m, n):
    h = normal(0, m)
    column = np.pad(h, (0, n - 1))
    row = np.pad(h[:1], (0, n - 1))
    np.testing.assert_array_equal(toeplitz(h, n), scipy.linalg.toeplitz(column, row))


@pytest.mark.parametrize(("m", "n"), [(1, 3), (3, 5), (4, 4)])
def test_circulant_equals_scipy_with_the_spectrum_as_eigenvalues(m, n):
    h = normal(0, m)
    C = np.asarray(circulant(h, n))
    np.testing.assert_array_equal(C, scipy.linalg.circulant(np.pad(h, (0, n - m))))
    waves = np.exp(2j * np.pi * np.outer(np.arange(n), np.arange(n)) / n)
    np.testing.assert_allclose(C @ waves, waves * np.fft.fft(h, n)[None], atol=1e-12)


def test_transpose_is_correlation():
    h = normal(0, 3)
    y = normal(1, 7)
    np.testing.assert_allclose(
        toeplitz(h, 5).T @ y, correlate(h[None, None], y[None])[0], atol=1e-12
    )


def test_the_matrices_are_linear_in_the_kernel():
    h = normal(0, 3)
    x = normal(1, 4)
    slope = jax.jacobian(lambda h: toeplitz(h, 4) @ x)(h)
    np.testing.assert_allclose(slope, toeplitz(x, 3), atol=1e-12)
    slope = jax.jacobian(lambda h: circulant(h, 4) @ x)(h)
    np.testing.assert_allclose(slope, circulant(x, 4)[:, :3], atol=1e-12)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "how",
    [
        {"boundary": "valid"},
        {"boundary": "same", "stride": 2},
        {"boundary": "circular", "dilation": 2},
        {"groups": 2},
    ],
    ids=str,
)
def test_matrix_of_layers(how):
    layer = Convolution(normal(0, 4, 2 // how.get("groups", 1), 3, 3), normal(3, 4), **how)
    x = normal(1, 2, 6, 5)
    y = layer(x)
    by_matrix = matrix_of(layer, x.shape) @ x.ravel() + layer(jnp.zeros_like(x)).ravel()
    np.testing.assert_allclose(by_matrix, y.ravel(), atol=1e-12)


def test_known_matrices():
    W = normal(0, 2, 3)
    np.testing.assert_allclose(matrix_of(Linear(W, jnp.ones(2)), (3,)), W, atol=0)
    halves = np.kron(np.eye(2), [[0.5, 0.5]])
    np.testing.assert_allclose(matrix_of(AveragePool((2,)), (1, 4)), halves, atol=0)
    full = Convolution(normal(1, 1, 1, 3), boundary="full", flip=True)
    np.testing.assert_allclose(matrix_of(full, (1, 4)), toeplitz(full.W[0, 0], 4), atol=0)
    np.testing.assert_allclose(
        jax.jit(lambda full: matrix_of(full, (1, 4)))(full), toeplitz(full.W[0, 0], 4), atol=0
    )


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: matrix_of(MaxPool((2,)), (1, 4)), "the map is not linear"),
        (lambda: matrix_of(lambda x: x * x.sum(), (3,)), "the map is not linear"),
        (lambda: matrix_of(jax.nn.relu, (3,)), "the map is not linear"),
        (lambda: circulant(jnp.ones(4), 3), "h has 4 entries, more than n=3; use n >= 4"),
        (
            lambda: toeplitz(jnp.ones((2, 2)), 3),
            r"h must be a non-empty vector .* got h of shape \(2, 2\)",
        ),
        (lambda: toeplitz(jnp.ones(2), 0), "and n >= 1; .* n=0"),
        (
            lambda: fft_convolve(jnp.ones((1, 1, 5)), jnp.ones((1, 4))),
            r"window of \(5,\) does not fit",
        ),
        (
            lambda: fft_convolve(jnp.ones((1, 2, 3)), jnp.ones((1, 4))),
            "expects 2 input channels, got 1",
        ),
        (
            lambda: fft_convolve(jnp.ones((1, 1, 3)), jnp.ones((1, 4)), boundary="reflect"),
            "boundary must be one of",
        ),
    ],
)
def test_invalid_arguments(make, says):
    with pytest.raises(ValueError, match=says):
        make()

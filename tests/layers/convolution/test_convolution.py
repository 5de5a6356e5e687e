"""Convolution against SciPy, loops and matrices; shift equivariance; errors."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import ndimage, signal

from thetax import tree
from thetax.layers import Convolution, convolve, correlate

pytestmark = pytest.mark.usefixtures("x64")

LAYER = Convolution(jnp.ones((2, 1, 3, 3), jnp.float32))


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def loop(W, x, stride=1, dilation=1, groups=1):
    """The definition, as loops over a padded signal."""
    m, g, *window = W.shape
    count = [(n - dilation * (k - 1) - 1) // stride + 1 for n, k in zip(x.shape[1:], window)]
    y = np.zeros((m, *count))
    for l in range(m):
        for at in np.ndindex(*count):
            for j in np.ndindex(*window):
                place = tuple(stride * i + dilation * k for i, k in zip(at, j))
                first = l // (m // groups) * g
                y[(l, *at)] += sum(W[(l, c, *j)] * x[(first + c, *place)] for c in range(g))
    return y


@pytest.mark.parametrize(("shape", "window"), [((4, 9), (3,)), ((4, 7, 6), (3, 2))])
@pytest.mark.parametrize(
    "how", [{}, {"stride": 2}, {"dilation": 2}, {"groups": 2}, {"stride": 3, "groups": 4}], ids=str
)
def test_valid_is_the_sum(shape, window, how):
    W = normal(0, 4, 4 // how.get("groups", 1), *window)
    x = normal(1, *shape)
    np.testing.assert_allclose(
        correlate(jnp.asarray(W), jnp.asarray(x), **how), loop(W, x, **how), atol=1e-12
    )


@pytest.mark.parametrize("boundary", ["valid", "same", "full"])
def test_images_against_scipy(boundary):
    w = normal(0, 3, 5)
    x = normal(1, 8, 9)
    ours = lambda f: f(jnp.asarray(w)[None, None], jnp.asarray(x)[None], boundary=boundary)[0]
    np.testing.assert_allclose(ours(correlate), signal.correlate2d(x, w, mode=boundary), atol=1e-12)
    np.testing.assert_allclose(ours(convolve), signal.convolve2d(x, w, mode=boundary), atol=1e-12)


@pytest.mark.parametrize("m", [2, 3, 4, 5])
def test_same_equals_ndimage(m):
    """Odd and even windows: the centre has index m // 2."""
    w = normal(0, m)
    x = normal(1, 9)
    ours = correlate(jnp.asarray(w)[None, None], jnp.asarray(x)[None], boundary="same")[0]
    np.testing.assert_allclose(ours, ndimage.correlate1d(x, w, mode="constant"), atol=1e-12)


@pytest.mark.parametrize("m", [1, 3, 4])
def test_circular_padding(m):
    w = normal(0, m)
    x = normal(1, 7)
    ours = correlate(jnp.asarray(w)[None, None], jnp.asarray(x)[None], boundary="circular")[0]
    np.testing.assert_allclose(ours, ndimage.correlate1d(x, w, mode="wrap"), atol=1e-12)
    centred = np.roll(np.pad(w, (0, 7 - m)), -(m // 2))
    np.testing.assert_allclose(
        ours, np.fft.ifft(np.fft.fft(x) * np.conj(np.fft.fft(centred))).real, atol=1e-12
    )


@given(st.integers(0, 6), st.integers(0, 6))
def test_shift_equivariance(a, b):
    layer = Convolution.init(2, 3, (3, 3), boundary="circular", key=jr.key(0))
    x = jr.normal(jr.key(1), (2, 6, 7))
    shift = lambda y: jnp.roll(y, (a, b), axis=(1, 2))
    np.testing.assert_allclose(layer(shift(x)), shift(layer(x)), atol=1e-12)


def test_stride_subsamples_the_output():
    W = jnp.asarray(normal(0, 3, 2, 3, 3))
    x = jnp.asarray(normal(1, 2, 7, 8))
    for boundary in ("valid", "same", "circular", "full"):
        whole = correlate(W, x, boundary=boundary)
        np.testing.assert_allclose(
            correlate(W, x, boundary=boundary, stride=2), whole[:, ::2, ::2], atol=1e-12
        )


def test_layer_adds_the_bias():
    layer = Convolution.init(2, 3, (3,), boundary="valid", key=jr.key(0))
    assert tree.size(layer) == 3 * 2 * 3 + 3
    b = jnp.array([1.0, 2.0, 3.0])
    x = jnp.asarray(normal(1, 2, 6))
    moved = Convolution(layer.W, b, "valid")(x)
    np.testing.assert_allclose(
        moved - correlate(layer.W, x), np.tile(b[:, None], (1, 4)), atol=1e-12
    )
    turned = Convolution(layer.W, None, "valid", flip=True)(x)
    np.testing.assert_allclose(turned, convolve(layer.W, x), atol=1e-12)


def test_gradients_are_convolutions():
    """For a full convolution the gradient in x is a valid correlation with w, and that in w one
    with x.
    """
    w = normal(0, 3, 2)
    x = normal(1, 5, 6)
    d = normal(2, 7, 7)
    full = lambda w, x: jnp.vdot(convolve(w[None, None], x[None], boundary="full")[0], d)
    dw, dx = jax.grad(full, argnums=(0, 1))(jnp.asarray(w), jnp.asarray(x))
    np.testing.assert_allclose(dx, signal.correlate2d(d, w, mode="valid"), atol=1e-12)
    np.testing.assert_allclose(dw, signal.correlate2d(d, x, mode="valid"), atol=1e-12)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Convolution.init(1, 1, (2,), key=jr.key(0)), r"a window of \(2,\) has no centre"),
        (
            lambda: Convolution.init(1, 1, (3,), stride=0, key=jr.key(0)),
            "stride must be an integer >= 1, or a tuple of 1",
        ),
        (
            lambda: Convolution.init(1, 1, (3,), dilation=(1, 2), key=jr.key(0)),
            "dilation must be an integer >= 1",
        ),
        (
            lambda: Convolution.init(3, 4, (3,), groups=2, key=jr.key(0)),
            "must be divisible by groups; got 3 and 4 channels and groups=2",
        ),
        (
            lambda: Convolution.init(1, 1, (3,), boundary="reflect", key=jr.key(0)),
            "boundary must be one of valid, same",
        ),
        (lambda: Convolution(jnp.ones((2, 1, 3)), jnp.ones(3)), r"W must be \(m, c, k\)"),
        (
            lambda: correlate(jnp.ones((1, 1, 5)), jnp.ones((1, 4))),
            r"window of \(5,\) does not fit",
        ),
        (
            lambda: correlate(jnp.ones((1, 1, 3)), jnp.ones((2, 1, 4))),
            "map over a batch with jax.vmap",
        ),
        (
            lambda: correlate(jnp.ones((1, 2, 3)), jnp.ones((3, 4))),
            "expects 2 input channels, got 3",
        ),
        (
            lambda: LAYER(jnp.ones((9, 9))),
            r"shape \(1, h, w\), got \(9, 9\); add the channel axis: x\[None\]",
        ),
        (lambda: LAYER(jnp.ones((5, 1, 9, 9))), "map over a batch with jax.vmap"),
        (lambda: LAYER(jnp.ones((9, 9, 1))), "channels come first"),
        (lambda: LAYER(jnp.ones((1, 0, 0))), "the input is empty"),
        (
            lambda: LAYER(jnp.ones((1, 9, 9), jnp.uint8)),
            "images are floats; divide pixels by 255; got uint8",
        ),
        (
            lambda: Convolution.init(3, 4, 3, key=jr.key(0)),
            r"window must be a tuple .*, such as \(3, 3\); got 3",
        ),  # pyright: ignore
        (
            lambda: Convolution.init(1, 1, (0, 3), key=jr.key(0)),
            r"sizes must be >= 1; .* window=\(0, 3\)",
        ),
        (lambda: Convolution.init(0, 1, (3, 3), key=jr.key(0)), "sizes must be >= 1; got c=0"),
    ],
)
def test_invalid_arguments(make, says):
    with pytest.raises(ValueError, match=says):
        make()

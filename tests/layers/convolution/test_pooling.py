"""Pooling against loops and SciPy, and its gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import ndimage

from thetax.layers import AdaptivePool, AveragePool, MaxPool, global_max, global_mean


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(("window", "stride"), [((2, 2), None), ((3, 2), (1, 2)), ((3, 3), (2, 2))])
def test_windows(window, stride):
    x = normal(0, 2, 7, 8)
    places = np.lib.stride_tricks.sliding_window_view(x, window, axis=(1, 2))
    s, t = stride or window
    np.testing.assert_array_equal(
        MaxPool(window, stride)(jnp.asarray(x)), places[:, ::s, ::t].max(axis=(3, 4))
    )
    np.testing.assert_allclose(
        AveragePool(window, stride)(jnp.asarray(x)),
        places[:, ::s, ::t].mean(axis=(3, 4)),
        atol=1e-6,
    )


def test_one_stride_for_all_axes():
    x = jnp.asarray(normal(0, 2, 7, 8))
    for pool in (MaxPool, AveragePool):
        np.testing.assert_array_equal(pool((3, 2), 2)(x), pool((3, 2), (2, 2))(x))


def test_same_is_a_subsampled_filter():
    x = normal(0, 1, 7, 6)
    found = MaxPool((3, 3), (2, 2), "same")(jnp.asarray(x))[0]
    np.testing.assert_array_equal(
        found, ndimage.maximum_filter(x[0], 3, mode="constant", cval=-np.inf)[::2, ::2]
    )


def test_gradient_goes_to_the_maximum():
    """For ties to the first; overlapping windows add up."""
    total = lambda x: MaxPool((2,), (1,))(x).sum()
    assert jax.grad(total)(jnp.array([[1.0, 3.0, 3.0, 2.0]])).tolist() == [[0.0, 2.0, 1.0, 0.0]]
    x = jnp.asarray(normal(1, 2, 6, 6))
    slope = jax.grad(lambda x: MaxPool((2, 2))(x).sum())(x)
    assert set(np.unique(slope)) == {0.0, 1.0}
    assert slope.sum() == 2 * 9


@pytest.mark.parametrize("window", [(2, 2), (3, 2)])
def test_ties_pass_the_gradient_to_the_first(window):
    """Adjacent windows, in forward and reverse mode, and entries outside all windows."""
    x = np.random.default_rng(0).integers(0, 3, (2, 7, 7)).astype(np.float32)
    slope, (r, q) = np.zeros_like(x), window
    for c, i, j in np.ndindex(2, 7 // r, 7 // q):
        k = int(x[c, i * r : (i + 1) * r, j * q : (j + 1) * q].argmax())
        slope[c, i * r + k // q, j * q + k % q] = 1
    total = lambda x: MaxPool(window)(x).sum()
    np.testing.assert_array_equal(jax.grad(total)(jnp.asarray(x)), slope)
    np.testing.assert_array_equal(jax.jacfwd(total)(jnp.asarray(x)), slope)
    for stride, curvature in [((2,), [0.0, 2.0, 2.0, 0.0]), ((1,), [0.0, 4.0, 2.0, 0.0])]:
        again = jax.hessian(lambda x, stride=stride: (MaxPool((2,), stride)(x) ** 2).sum())(
            jnp.array([[1.0, 3.0, 3.0, 3.0]])
        )
        np.testing.assert_array_equal(again.reshape(4, 4), np.diag(curvature))


@pytest.mark.parametrize("stride", [(2,), (1,), (3,)])
def test_nan_propagates(stride):
    """The maximum of a window with NaN is NaN, anywhere in it and with or without overlap."""
    x = np.array([1, np.nan, 2, 0, 3, 4, np.nan], np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(x, 2)[:: stride[0]]
    np.testing.assert_array_equal(
        MaxPool((2,), stride)(jnp.asarray(x)[None])[0], windows.max(axis=1)
    )


def test_adaptive_windows():
    x = normal(0, 2, 5, 7)
    found = AdaptivePool((2, 3))(jnp.asarray(x))
    for i, (a, b) in enumerate([(0, 3), (2, 5)]):
        for j, (c, d) in enumerate([(0, 3), (2, 5), (4, 7)]):
            np.testing.assert_allclose(found[:, i, j], x[:, a:b, c:d].mean(axis=(1, 2)), atol=1e-6)
    np.testing.assert_allclose(
        AdaptivePool((1, 1))(jnp.asarray(x))[:, 0, 0], global_mean(jnp.asarray(x)), atol=1e-6
    )
    largest = AdaptivePool((1, 1), jnp.max)(jnp.asarray(x))[:, 0, 0]
    np.testing.assert_array_equal(largest, global_max(jnp.asarray(x)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: MaxPool((0,)),
        lambda: MaxPool((2, 2), (1,)),
        lambda: MaxPool((2,), boundary="same"),
        lambda: AveragePool((2,), (0,)),
        lambda: MaxPool((3,))(jnp.ones((1, 2))),
    ],
)
def test_invalid_arguments(make):
    with pytest.raises(ValueError, match=r"got "):
        make()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("pool", [MaxPool, AveragePool])
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda pool: pool(2), r"window must be a tuple .*, such as \(3, 3\); got 2"),
        (lambda pool: pool((2, 2), 0), "window and stride must be integers >= 1"),
        (
            lambda pool: pool((2, 2))(jnp.ones((4, 4))),
            r"shape \(c, h, w\), got \(4, 4\); add the channel axis: x\[None\]",
        ),
        (lambda pool: pool((2, 2))(jnp.ones((5, 1, 4, 4))), "map over a batch with jax.vmap"),
        (
            lambda pool: pool((2, 2))(jnp.ones((1, 4, 4), jnp.uint8)),
            "images are floats; divide pixels by 255",
        ),
        (
            lambda pool: pool((3, 3))(jnp.ones((1, 4, 2))),
            r"window of \(3, 3\) does not fit into an input of \(4, 2\)",
        ),
    ],
)
def test_error_messages(pool, make, says):
    with pytest.raises(ValueError, match=f"^{pool.__name__}: .*{says}"):
        make(pool)

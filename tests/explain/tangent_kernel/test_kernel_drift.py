"""Drift of the tangent kernel: its values by hand, and its verdict on lazy and other networks."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from thetax.core import run
from thetax.explain import kernel_alignment, kernel_distance, kernel_drift
from thetax.explain.tangent_kernel.tangent_spectrum import mean_kernel
from thetax.layers import Linear, ntk_parametrisation
from thetax.models import MLP
from thetax.train import descend, squared_error

xs = jr.normal(jr.key(1), (12, 3))
labels = np.arange(12) % 3
start = MLP.init(3, 8, 2, key=jr.key(0))
end = jax.tree.map(
    lambda a: a + 0.3 * jnp.sin(jnp.arange(a.size, dtype=a.dtype)).reshape(a.shape), start
)


def test_the_numbers_are_those_of_the_kernels():
    found = kernel_drift([start, end, end], (xs, labels), times=[0, 5, 9])
    H = np.eye(12) - 1 / 12
    cosine = lambda A, B: np.trace(A @ B) / np.sqrt(np.trace(A @ A) * np.trace(B @ B))
    K = mean_kernel(start, xs)
    L = mean_kernel(end, xs)
    assert found.uncentred_distance.tolist() == pytest.approx(
        [0, *[1 - cosine(K, L)] * 2], rel=1e-6
    )
    assert found.distance.tolist() == pytest.approx(
        [0, *[1 - cosine(H @ K @ H, H @ L @ H)] * 2], rel=1e-6
    )
    assert found.alignment.tolist() == pytest.approx(
        [kernel_alignment(K, labels), *[kernel_alignment(L, labels)] * 2]
    )
    flat = lambda model: np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(model)])
    far = np.linalg.norm(flat(end) - flat(start)) / np.linalg.norm(flat(start))
    assert found.parameter_change.tolist() == pytest.approx([0, far, far], rel=1e-5)
    assert found.kernel_change == pytest.approx(np.sqrt(2 * found.distance[-1]))
    assert found.times.tolist() == [0, 5, 9]
    assert np.trace(found.initial_kernel) == pytest.approx(12)
    assert found.final_kernel[2, 5] / found.final_kernel[3, 3] == pytest.approx(L[2, 5] / L[3, 3])


def test_change_of_each_layer():
    found = kernel_drift([start, end], (xs, labels))
    pair = [(a.body.layers[i], b.body.layers[i]) for i in (0, 2) for a, b in [(start, end)]]
    size = lambda *arrays: np.sqrt(sum(np.square(a).sum() for a in arrays))
    by_hand = [size(b.W - a.W, b.b - a.b) / size(a.W, a.b) for a, b in pair]
    assert found.layers == ("Linear 1", "Linear 2")
    assert found.layer_change.tolist() == pytest.approx(by_hand, rel=1e-5)
    nothing = Linear(jnp.zeros((2, 3)), jnp.zeros(2))
    assert kernel_drift([nothing, nothing], (xs, labels)).layer_change.tolist() == [0.0]


def test_a_distance_keeps_its_digits_and_forgets_scale():
    K = np.asarray(mean_kernel(start, xs))
    turned = K + 1e-7 * np.diag(np.arange(12.0))
    exact = np.longdouble(1) - (K.astype(np.longdouble) * turned).sum() / np.sqrt(
        (K.astype(np.longdouble) ** 2).sum() * (turned.astype(np.longdouble) ** 2).sum()
    )
    assert kernel_distance(K, 5 * turned) == pytest.approx(float(exact), rel=1e-3)
    assert 0 < kernel_distance(K, turned) < 1e-14


def trained(width):
    """How far a network of this width drifts that learns a product of inputs."""
    net = MLP.init(3, width, 1, initialiser=ntk_parametrisation(bias=1.0), key=jr.key(2))
    ys = 10 * xs[:, 0] * xs[:, 1]
    batches = jax.tree.map(lambda a: jnp.broadcast_to(a, (800, *a.shape)), (xs, ys[:, None]))
    state, _ = jax.jit(
        lambda net: run(descend(squared_error, optax.sgd(0.01)), net, batches, key=jr.key(0))
    )(net)
    return kernel_drift([net, state.model], (xs, np.asarray(ys)))


@pytest.mark.slow
def test_wide_network_is_lazy_and_narrow_one_learns_features():
    wide = trained(2048)
    narrow = trained(4)
    assert wide.verdict == "lazy"
    assert narrow.verdict == "learnt features"
    assert wide.parameter_change[-1] < narrow.parameter_change[-1] / 4
    assert narrow.alignment[-1] > narrow.alignment[0]


def test_verdict_thresholds_are_a_fifth_and_a_half():
    found = kernel_drift([start, end], (xs, labels))
    said = lambda change: (
        type(found)(**vars(found) | {"distance": np.array([0.0, change**2 / 2])}).verdict
    )
    assert [said(0.19), said(0.21), said(0.49), said(0.51)] == [
        "lazy",
        *["in between"] * 2,
        "learnt features",
    ]


def test_invalid_arguments_are_rejected(unchecked):
    with pytest.raises(
        ValueError,
        match="expected at least two models, from the start and the end of training; got 1",
    ):
        kernel_drift([start], (xs, labels))
    with pytest.raises(
        ValueError, match=r"times must have one entry for each of the 2 models; got shape \(1,\)"
    ):
        kernel_drift([start, end], (xs, labels), times=[1.0])
    with pytest.raises(
        ValueError,
        match=r"expected two nonzero matrices of the same shape; got shapes \(2, 2\) and \(2, 2\)",
    ):
        kernel_distance(np.eye(2), np.zeros((2, 2)))

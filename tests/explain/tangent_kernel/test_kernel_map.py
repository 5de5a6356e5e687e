"""The kernel by class: cosines of gradients, sorted, and their means over pairs of classes by a
loop.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.explain import kernel_map
from thetax.explain.tangent_kernel.kernel_map import _class_means
from thetax.layers import Chain, Linear
from thetax.models import MLP

net = MLP.init(3, 8, 2, key=jr.key(0))
xs = jr.normal(jr.key(1), (9, 3))
ys = np.array([2, 0, 2, 2, 0, 3, 0, 2, 0])


@pytest.mark.slow
def test_values_and_means_are_those_of_gradients():
    found = kernel_map(net, (xs, ys), classes=("a", "b", "c", "d"))
    order = [1, 4, 6, 8, 0, 2, 3, 7, 5]
    flat, back = jax.flatten_util.ravel_pytree(net)
    J = np.asarray(jax.jacobian(lambda theta: jax.vmap(back(theta))(xs))(flat), np.float64).reshape(
        9, -1
    )
    J = J / np.linalg.norm(J, axis=1, keepdims=True)
    assert found.labels.tolist() == ys[order].tolist()
    assert np.allclose(found.values, (J @ J.T)[np.ix_(order, order)], atol=1e-4)
    mean = lambda a, b: [
        J[i] @ J[j] for i in range(9) for j in range(9) if i != j and ys[i] == a and ys[j] == b
    ]
    for a in (0, 2, 3):
        for b in (0, 2, 3):
            expected = np.mean(mean(a, b)) if mean(a, b) else np.nan
            assert found.class_means[a, b] == pytest.approx(expected, abs=1e-4, nan_ok=True)
    assert np.isnan(found.class_means[1]).all()
    pairs = [(i, j) for i in range(9) for j in range(9) if i != j]
    within = np.mean([J[i] @ J[j] for i, j in pairs if ys[i] == ys[j]])
    between = np.mean([J[i] @ J[j] for i, j in pairs if ys[i] != ys[j]])
    assert (found.within, found.between) == pytest.approx((within, between), abs=1e-4)


def test_one_pair_has_a_mean_and_none_has_not():
    values = np.array([[1.0, 0.2, 0.3], [0.2, 1.0, 0.4], [0.3, 0.4, 1.0]])
    means = _class_means(values, np.array([0, 1, 1]), 3)
    np.testing.assert_allclose(means[:2, :2], [[np.nan, 0.25], [0.25, 0.4]])
    np.testing.assert_allclose(
        _class_means(values[:2, :2], np.array([0, 1]), 2), [[np.nan, 0.2], [0.2, np.nan]]
    )
    assert np.isnan(means[2]).all()


def test_default_class_names_are_indices():
    assert kernel_map(net, (xs, ys)).classes == ("0", "1", "2", "3")


def test_invalid_arguments_are_rejected(unchecked):
    with pytest.raises(
        ValueError,
        match=r"ys must be integer labels >= 0, one per example; got float64 of shape \(9,\)",
    ):
        kernel_map(net, (xs, ys.astype(float)))
    with pytest.raises(ValueError, match="ys contains class 3, but classes has 2 names"):
        kernel_map(net, (xs, ys), classes=("a", "b"))
    with pytest.raises(
        ValueError, match="for some examples the gradient of all outputs is zero; remove them"
    ):
        kernel_map(Chain(Linear(jnp.ones((2, 3)), jnp.zeros(2)), jnp.sign), (xs, ys))

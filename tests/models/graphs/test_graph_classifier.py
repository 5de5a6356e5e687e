"""A classifier of stacked graphs goes through training and analysis like one of images."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from thetax import data, explain
from thetax.core import predict
from thetax.data import stack_graphs
from thetax.models import GNN
from thetax.train import Silent, cross_entropy, descend, fit

SHAPES = [make(n) for make in (data.cycle_graph, data.complete_graph) for n in (5, 6, 7)]
XS, YS = stack_graphs(SHAPES), jnp.repeat(jnp.arange(2), 3)
NET = GNN.init(1, 8, 2, layer="gin", activation=jnp.tanh, readout="mean", key=jr.key(0))


def test_it_is_fitted_in_batches_of_graphs():
    step = descend(cross_entropy, optax.adam(0.05))
    options = {"epochs": 60, "batch_size": 2, "key": jr.key(1), "progress": Silent()}
    model = fit(step, NET, (XS, YS), **options).model
    assert (predict(model, XS).argmax(axis=1) == YS).all()
    assert int(np.trace(explain.confusion_matrix(model, (XS, YS)).counts)) == len(YS)


def test_its_tangent_kernel_is_the_product_of_jacobians():
    K = explain.ntk(NET)(XS)
    jacobian = jax.jacobian(lambda model: predict(model, XS))(NET)
    J = np.concatenate([np.reshape(leaf, (6, 2, -1)) for leaf in jax.tree.leaves(jacobian)], axis=2)
    expected = np.einsum("ikp,jlp->ijkl", J, J)
    np.testing.assert_allclose(K, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


@pytest.mark.slow
def test_its_sharpness_is_the_largest_eigenvalue_of_the_hessian():
    leaves, unravel = jax.flatten_util.ravel_pytree(NET)
    H = jax.hessian(lambda theta: cross_entropy(unravel(theta), (XS, YS)))(leaves)
    found = explain.sharpness(cross_entropy, NET, (XS, YS), key=jr.key(0))
    largest = np.linalg.eigvalsh(np.asarray(H, np.float64))[-1]
    np.testing.assert_allclose(found.eigenvalue, largest, rtol=1e-2)

"""The loss on a plane, against direct evaluation; directions against dense eigenvectors and their
defining scales.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from contracts import close, normal

from thetax import tree
from thetax.core import run
from thetax.explain import (
    filter_normalised_direction,
    leading_eigenvectors,
    loss_landscape,
    trajectory_plane,
)
from thetax.layers import Linear, relu
from thetax.models import MLP
from thetax.train import cross_entropy, descend


def network():
    net = MLP.init(4, 6, 3, key=jr.key(0))
    return net, (normal(1, 30, 4), jnp.arange(30) % 3)


@pytest.mark.slow
def test_each_point_is_the_objective_there():
    net, batch = network()
    u, v = (tree.normal_like(jr.key(k), net) for k in (1, 2))
    alphas = np.array([-1.0, 0.0, 0.5])
    betas = np.array([0.0, 2.0])
    found = loss_landscape(cross_entropy, net, batch, directions=(u, v), alphas=alphas, betas=betas)
    for i, beta in enumerate(betas):
        for j, alpha in enumerate(alphas):
            moved = jax.tree.map(
                lambda t, a, b, alpha=alpha, beta=beta: t + alpha * a + beta * b, net, u, v
            )
            assert found.losses[i, j] == pytest.approx(float(cross_entropy(moved, batch)), rel=1e-5)
    assert found.loss == pytest.approx(float(cross_entropy(net, batch)))
    assert found.losses[0, 1] == pytest.approx(found.loss)
    assert found.path is None


@pytest.mark.slow
def test_filters_have_the_lengths_of_the_network_s():
    net, _ = network()
    u = filter_normalised_direction(net, key=jr.key(3))
    for part, other in zip(net.body.layers[::2], u.body.layers[::2]):
        assert np.allclose(
            np.linalg.norm(other.W, axis=1), np.linalg.norm(part.W, axis=1), rtol=1e-5
        )
        assert (np.asarray(other.b) == 0).all()
    again, differs = (filter_normalised_direction(net, key=jr.key(k)) for k in (3, 4))
    assert close(u, again)
    assert not close(u, differs)


@pytest.mark.slow
def test_rescaled_networks_look_alike():
    """Scaling a hidden unit up and what reads it down changes neither the function nor the
    landscape's horizontals.
    """
    net, batch = network()
    first = net.body.layers[0]
    last = net.body.layers[2]
    scaled = MLP(type(net.body)(Linear(5 * first.W, 5 * first.b), relu, Linear(last.W / 5, last.b)))
    row = lambda net: loss_landscape(
        cross_entropy,
        net,
        batch,
        directions=(filter_normalised_direction(net, key=jr.key(5)),) * 2,
        betas=np.zeros(1),
    ).losses[0]
    assert np.allclose(row(net), row(scaled), rtol=1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_leading_directions_are_the_dense_eigenvectors():
    net, batch = network()
    net = jax.tree.map(lambda a: a.astype(float), net)
    batch = batch[0].astype(float), batch[1]
    theta, back = tree.ravel(net)
    values, vectors = np.linalg.eigh(
        np.asarray(jax.hessian(lambda v: cross_entropy(back(v), batch))(theta))
    )
    u, v = leading_eigenvectors(cross_entropy, net, batch, tolerance=1e-10)
    for found, exact in ((u, vectors[:, -1]), (v, vectors[:, -2])):
        assert abs(np.asarray(tree.ravel(found)[0]) @ exact) == pytest.approx(1, abs=1e-6)
    assert values[-1] > values[-2]


@pytest.mark.slow
def test_the_plane_of_a_trajectory():
    """The path in the plane is the projection; the plane holds more of it than any coordinate
    plane.
    """
    net, batch = network()
    step = descend(lambda model, _, key: cross_entropy(model, batch), optax.sgd(0.3))
    _, (models, _) = run(step, net, jnp.zeros(20), key=jr.key(0), record=lambda state: state.model)
    found = trajectory_plane(models)
    flat = np.asarray(jax.vmap(lambda model: tree.ravel(model)[0])(models), np.float64)
    away = flat - flat[-1]
    u, v = (np.asarray(tree.ravel(direction)[0], np.float64) for direction in found.directions)
    assert np.allclose([u @ u, v @ v, u @ v], [1, 1, 0], atol=1e-4)
    assert np.allclose(found.path, np.stack([away @ u, away @ v], axis=1), atol=1e-4)
    s = np.linalg.svd(away, compute_uv=False)
    assert found.explained_variance == pytest.approx((s[:2] ** 2).sum() / (s**2).sum(), rel=1e-4)
    last = jax.tree.map(lambda a: a[-1], models)
    seen = loss_landscape(
        cross_entropy,
        last,
        batch,
        directions=found.directions,
        alphas=np.zeros(1),
        betas=np.zeros(1),
        path=found.path,
    )
    assert seen.path.shape == (20, 2)
    assert seen.path[-1] == pytest.approx([0, 0], abs=1e-5)


def test_bad_input_is_rejected():
    net, batch = network()
    with pytest.raises(ValueError, match="trees like the model"):
        loss_landscape(cross_entropy, net, batch, directions=(net, jnp.ones(3)))
    with pytest.raises(ValueError, match="at least 3 parameters; got 2"):
        leading_eigenvectors(lambda w, _: w @ w, jnp.ones(2), None)
    with pytest.raises(ValueError, match="at least 3 models"):
        trajectory_plane(jnp.ones((2, 5)))


@pytest.mark.parametrize(
    "along", [lambda u: u, lambda u: (u,), lambda u: (u, u, u), lambda u: (u, jnp.ones(2))]
)
def test_the_directions_are_two_models(along, unchecked):
    w = jnp.ones(3)
    with pytest.raises(ValueError, match=r"a pair \(u, v\) of trees like the model"):
        loss_landscape(lambda w, batch: w @ w, w, None, directions=along(w))

"""Version spaces by sampling, by angles and by definition; margins of linear models (§1.2)."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import normal
from hypothesis import given
from hypothesis import strategies as st

from thetax.explain import hyperplane, in_version_space, margins, version_cone, version_volume
from thetax.layers import Chain, Linear, ntk_parametrisation
from thetax.models import MLP, Perceptron, fit_perceptron, geometric_margin, logistic_regression


@pytest.mark.slow
@given(st.integers(0, 10**6))
def test_version_cone_agrees_with_a_fine_grid_of_directions(seed):
    """100,000 directions, none of them more than a step from an edge."""
    rng = np.random.default_rng(seed)
    n = rng.integers(1, 7)
    xs = rng.normal(size=(n, 2))
    ys = rng.choice([-1.0, 1.0], n)
    cone = version_cone(xs, ys)
    turn = np.linspace(0, 2 * np.pi, 100_000, endpoint=False)
    inside = ((ys[:, None] * xs) @ np.array([np.cos(turn), np.sin(turn)]) > 0).all(axis=0)
    assert abs(cone.fraction - inside.mean()) < 2e-5
    if inside.any():
        middle = (cone.low + cone.high) / 2
        assert in_version_space(
            Perceptron(jnp.array([np.cos(middle), np.sin(middle)])),
            jnp.asarray(xs),
            jnp.asarray(ys),
        )


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 3])
def test_volume_is_the_solid_angle(d):
    """The positive orthant holds 2⁻ᵈ of all directions; the error is that of a share."""
    found = version_volume(jnp.eye(d), jnp.ones(d), n_samples=40_000, key=jr.key(0))
    assert abs(found.fraction - 0.5**d) < 5 * found.error
    assert np.isclose(found.error, np.sqrt(0.5**d * (1 - 0.5**d) / 40_000), rtol=0.05)
    empty = version_volume(
        jnp.array([[1.0], [1.0]]), jnp.array([1.0, -1.0]), n_samples=100, key=jr.key(0)
    )
    assert empty.fraction == 0
    assert empty.error > 0


@pytest.mark.slow
def test_volume_with_a_bias():
    """One datum halves any space; with the origin as datum only the bias decides."""
    found = version_volume(
        jnp.zeros((1, 3)), jnp.ones(1), bias=True, n_samples=40_000, key=jr.key(1)
    )
    assert abs(found.fraction - 0.5) < 5 * found.error


def test_membership_needs_a_direction():
    xs = jnp.ones((2, 2))
    ys = jnp.ones(2)
    assert in_version_space(Perceptron(jnp.ones(2), jnp.array(0.0)), xs, ys)
    assert not in_version_space(Perceptron(jnp.zeros(2), jnp.array(1.0)), xs, ys)
    assert not in_version_space(Perceptron(jnp.array([1.0, -1.0])), xs, ys)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("ask", [in_version_space, geometric_margin])
def test_labels_and_shapes_are_checked(ask):
    """0 and 1 are refused, lists are points, and what is traced passes, constants beside it too."""
    unit = Perceptron(jnp.array([1.0, 0.0]))
    xs = np.array([[1.0, 2.0], [-2.0, 1.0]])
    ys = np.array([1, -1])
    with pytest.raises(ValueError, match="labels -1 or \\+1, but row 1 is 0"):
        ask(unit, xs, np.array([1, 0]))
    with pytest.raises(ValueError, match=r"got \(2, 2\) and \(3,\)"):
        ask(unit, xs, np.ones(3))
    with pytest.raises(ValueError, match="rows differ"):
        ask(unit, [[1.0, 2.0], [3.0]], [1, -1])
    with pytest.raises(ValueError, match="shape"):
        ask(unit, xs[:, :1], ys)
    assert ask(unit, xs.tolist(), ys.tolist()) == ask(unit, xs, ys) == 1
    points = jnp.asarray(xs)
    assert jax.jit(ask)(unit, xs, ys) == jax.jit(lambda unit: ask(unit, points, ys))(unit) == 1


def test_empty_cones():
    opposite = version_cone(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([1, -1]))
    assert opposite.fraction == 0
    assert version_cone(np.array([[1.0, 0.0], [0.0, 0.0]]), np.ones(2)).fraction == 0
    with pytest.raises(ValueError, match="labels -1 or"):
        version_cone(np.eye(2), np.array([0, 1]))


@pytest.mark.usefixtures("unchecked")
def test_version_cone_needs_two_dimensions():
    with pytest.raises(ValueError, match="in the plane"):
        version_cone(np.eye(3), np.ones(3))


@pytest.mark.slow
def test_margins_of_every_linear_model():
    """The same boundary as a perceptron, one logit, two logits, a network without hidden layers."""
    xs = normal(0, 30, 4)
    W = normal(1, 2, 4)
    b = normal(2, 2)
    w = W[1] - W[0]
    c = b[1] - b[0]
    labels = np.asarray(xs @ w + c > 0.3).astype(int)
    expected = np.where(labels, 1, -1) * np.asarray((xs @ w + c) / np.linalg.norm(w))
    one = Linear(w[None], c[None])
    for model in (Perceptron(w, c), one, Linear(W, b), Chain(Linear(W, b)), MLP(Chain(one))):
        for ys in (labels, 2 * labels - 1):
            found = margins(model, (xs, ys))
            assert np.allclose(found.distances, expected, rtol=1e-4, atol=1e-5)
            assert np.isclose(found.margin, expected.min(), rtol=1e-4)
            assert found.error == (expected <= 0).mean()
            assert found.separated == (expected > 0).all()
            assert (np.diff(np.abs(found.distances[found.nearest])) >= 0).all()


def test_ntk_scales_and_images():
    """The tangent parametrisation's scales belong to the weights; a picture is a vector."""
    model = Linear.init(4, 1, initialiser=ntk_parametrisation(bias=0.3), key=jr.key(0))
    xs = normal(0, 6, 2, 2)
    ys = jnp.array([0, 1, 0, 1, 1, 0])
    plane = hyperplane(model)
    assert np.allclose(
        jax.vmap(plane.score)(xs.reshape(6, 4)), jax.vmap(model)(xs.reshape(6, 4))[:, 0], atol=1e-6
    )
    assert margins(model, (xs, ys)).distances.shape == (6,)


def test_margins_of_a_separator():
    xs = normal(0, 40, 3)
    ys = jnp.sign(xs @ jnp.array([1.0, -2.0, 0.5]))
    found = margins(fit_perceptron(xs, ys).model, (xs, ys), n_nearest=3)
    assert found.separated
    assert found.margin > 0
    assert found.error == 0
    assert len(found.nearest) == 3


def test_models_without_a_hyperplane_are_rejected():
    data = normal(0, 5, 3), jnp.array([0, 1, 0, 1, 1])
    for model in (MLP.init(3, 4, 1, key=jr.key(0)), Linear.init(3, 3, key=jr.key(0)), jnp.tanh):
        assert hyperplane(model) is None
        with pytest.raises(ValueError, match="one output or two logits"):
            margins(model, data)
    for bad in ([0, 1, 2, 1, 0], [-1, 0, 1, 1, 0]):
        with pytest.raises(ValueError, match=r"labels must be -1 and \+1, or 0 and 1"):
            margins(logistic_regression(3), (data[0], jnp.array(bad)))

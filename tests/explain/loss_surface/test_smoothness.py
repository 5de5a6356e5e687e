"""The constants of descent against dense Hessians, closed forms and brute force."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thetax import tree
from thetax.explain import gradient_dominance, gradient_lipschitz, perturb_parameters, smoothness
from thetax.models import MLP
from thetax.train import cross_entropy

pytestmark = pytest.mark.usefixtures("x64")


def stack(model):
    return jax.tree.map(lambda a: a[None], model)


def network():
    net = jax.tree.map(
        lambda a: a.astype(float), MLP.init(3, 5, 3, activation=jnp.tanh, key=jr.key(0))
    )
    return net, (jr.normal(jr.key(1), (20, 3), float), jnp.arange(20) % 3)


def bowl(theta, A):
    return theta @ A @ theta / 2


@pytest.mark.slow
def test_smoothness_is_the_dense_hessian_s():
    net, batch = network()
    models = perturb_parameters(net, radius=1.0, n_models=3, key=jr.key(2))
    found = smoothness(cross_entropy, models, batch, steps=60, key=jr.key(3))
    for i, seen in enumerate(found.values):
        theta, back = tree.ravel(jax.tree.map(lambda a, i=i: a[i], models))
        H = jax.hessian(lambda v, back=back: cross_entropy(back(v), batch))(theta)
        assert seen == pytest.approx(np.abs(np.linalg.eigvalsh(np.asarray(H))).max(), rel=1e-8)
    assert found.constant == found.values.max()
    assert found.max_learning_rate == 2 / found.constant


@pytest.mark.slow
@settings(max_examples=10)
@given(seed=st.integers(0, 1000), steps=st.integers(1, 6))
def test_few_steps_give_a_lower_bound(seed, steps):
    A = np.random.default_rng(seed).normal(size=(8, 8))
    A = A + A.T
    found = smoothness(bowl, jnp.ones((1, 8)), jnp.asarray(A), steps=steps, key=jr.key(seed))
    assert found.constant <= np.abs(np.linalg.eigvalsh(A)).max() + 1e-9
    assert found.bound == "lower bound on L"


def test_negative_curvature_counts():
    A = jnp.diag(jnp.array([1.0, -7.0, 2.0]))
    assert smoothness(bowl, jnp.zeros((1, 3)), A, key=jr.key(0)).constant == pytest.approx(7)


@pytest.mark.slow
def test_pairs_stay_below_the_hessian_s_bound_and_reach_it():
    net, batch = network()
    a, b = (perturb_parameters(net, radius=0.5, n_models=300, key=jr.key(k)) for k in (4, 5))
    pairs = gradient_lipschitz(cross_entropy, a, b, batch)
    bends = smoothness(cross_entropy, a, batch, key=jr.key(6))
    assert pairs.values.shape == (300,)
    assert 0.02 * bends.constant < pairs.constant < 1.2 * bends.constant
    A = jnp.diag(jnp.array([1.0, 5.0]))
    eigen = jnp.array([[0.0, 1.0]])
    assert gradient_lipschitz(bowl, eigen, -eigen, A).constant == pytest.approx(5)
    assert gradient_lipschitz(bowl, eigen, eigen, A).constant == 0


def test_pairs_need_no_second_derivative():
    found = gradient_lipschitz(
        lambda t, _: jnp.square(jax.nn.relu(t)).sum() / 2,
        jnp.array([[-1.0]]),
        jnp.array([[2.0]]),
        None,
    )
    assert found.constant == pytest.approx(2 / 3)


@settings(max_examples=10)
@given(seed=st.integers(0, 1000))
def test_dominance_of_a_quadratic(seed):
    """Never below the smallest eigenvalue, and equal to it along its eigenvector."""
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    values = np.sort(rng.uniform(0.1, 3, size=4))
    A = jnp.asarray(Q * values @ Q.T)
    points = jnp.asarray(np.vstack([rng.normal(size=(50, 4)), Q[:, :1].T]))
    found = gradient_dominance(bowl, points, A)
    assert found.values.min() == found.constant
    assert found.constant == pytest.approx(values[0], rel=1e-8)
    assert found.bound == "upper bound on μ"


def test_dominance_above_the_least_value():
    """h = ½θ² + 3 with h* = 3 has μ = 1; a wrong h* shows; a minimum counts as infinite."""
    lifted = lambda t, _: (t @ t) / 2 + 3
    points = jnp.array([[0.0], [1.0], [2.0]])
    found = gradient_dominance(lifted, points, None, min_loss=3.0)
    assert found.constant == pytest.approx(1)
    assert found.values[0] == np.inf
    assert gradient_dominance(lifted, points, None).constant < 1e-9


@pytest.mark.slow
def test_perturbed_parameters_are_about_the_radius_away():
    net, _ = network()
    models = perturb_parameters(net, radius=2.0, n_models=200, key=jr.key(7))
    moved = jax.vmap(lambda other: tree.norm(tree.axpy(-1.0, net, other)))(models)
    assert float(jnp.square(moved).mean()) == pytest.approx(4, rel=0.1)
    assert jax.tree.structure(models) == jax.tree.structure(net)


@pytest.mark.slow
def test_bad_input_is_rejected():
    net, batch = network()
    for call in (
        lambda m: smoothness(cross_entropy, m, batch, key=jr.key(0)),
        lambda m: gradient_dominance(cross_entropy, m, batch),
    ):
        with pytest.raises(
            ValueError, match=r"stacked along the first axis of every leaf.*a\[None\]"
        ):
            call(net)
    with pytest.raises(ValueError, match="stacks of the same length"):
        gradient_lipschitz(bowl, jnp.ones((2, 3)), jnp.ones((3, 3)), jnp.eye(3))
    with pytest.raises(ValueError, match="no model has a loss above min_loss=5"):
        gradient_dominance(bowl, jnp.ones((2, 3)), jnp.eye(3), min_loss=5.0)
    with pytest.raises(ValueError, match="radius must be positive"):
        perturb_parameters(net, radius=0.0, n_models=1, key=jr.key(0))
    assert smoothness(cross_entropy, stack(net), batch, key=jr.key(0)).constant > 0

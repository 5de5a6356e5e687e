"""The closed form against solvers, brute force and random perturbations."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import normal
from scipy.optimize import linprog, minimize

from thetax.attack import AffineAttack, affine_distance, affine_radius
from thetax.attack.gradient.affine import distances
from thetax.layers import Linear, tanh
from thetax.models import MLP
from thetax.threat import L0, L1, L2, Linf

pytestmark = pytest.mark.usefixtures("x64")

NORMS = {L1: lambda eta: np.abs(eta).sum(-1), L2: lambda eta: np.linalg.norm(eta, axis=-1)}
NORMS[Linf] = lambda eta: np.abs(eta).max(-1)
norms = pytest.mark.parametrize("norm", NORMS)
D, K = 6, 4


def problem(seed):
    """A random affine classifier, an input and its predicted class."""
    model = Linear.init(D, K, key=jr.key(seed))
    x = normal(seed, D)
    model = Linear(model.W, normal(seed + 50, K))
    return model, x, jnp.argmax(model(x))


def test_distances_in_numpy():
    """The gap over the dual norm of the slope; a flat slope is infinitely far, or 0 at a tie."""
    slopes = np.array([[3.0, -4.0], [0.5, 2.0], [0.0, 0.0], [0.0, 0.0]])
    gaps = np.array([2.0, -1.0, 1.0, 0.0])
    dual = {
        L1: np.abs(slopes).max(1),
        L2: np.linalg.norm(slopes, axis=1),
        Linf: np.abs(slopes).sum(1),
    }
    for norm, size in dual.items():
        found = jax.jit(lambda *given: distances(*given, norm))(gaps, slopes)  # noqa: B023
        np.testing.assert_allclose(found, [2 / size[0], -1 / size[1], np.inf, 0.0], rtol=1e-12)


def solved(norm, gap, slope):
    """The smallest ‖η‖ with gap + ⟨slope, η⟩ ≤ 0, by a solver without dual norms."""
    if norm is L2:
        constraint = {
            "type": "ineq",
            "fun": lambda eta: -gap - slope @ eta,
            "jac": lambda eta: -slope,
        }
        options = {"ftol": 1e-15, "maxiter": 500}
        aim = lambda eta: (eta @ eta / 2, eta)
        begin = np.full(D, 0.1)
        return np.linalg.norm(
            minimize(aim, begin, jac=True, constraints=[constraint], options=options).x
        )
    if norm is L1:  # η = u − v
        return linprog(np.ones(2 * D), A_ub=[[*slope, *-slope]], b_ub=[-gap]).fun
    cap = -np.ones((D, 1))  # |η_i| ≤ t
    sides = np.block([[np.eye(D), cap], [-np.eye(D), cap], [slope, np.zeros(1)]])
    return linprog(
        [*np.zeros(D), 1],
        A_ub=sides,
        b_ub=[*np.zeros(2 * D), -gap],
        bounds=[(None, None)] * (D + 1),
    ).fun


@pytest.mark.slow
@norms
def test_distances_are_those_of_a_solver(norm):
    for seed in range(5):
        model, x, y = problem(seed)
        z = np.asarray(model(x))
        W = np.asarray(model.W)
        found = np.asarray(affine_distance(model, x, y, norm))
        assert found[y] == np.inf
        for j in set(range(K)) - {int(y)}:
            assert found[j] == pytest.approx(solved(norm, z[y] - z[j], W[y] - W[j]), rel=1e-6)
        assert float(affine_radius(model, x, y, norm)) == found.min()


@norms
def test_attack_ends_at_the_nearest_tie(norm):
    """At the tie two classes are equal; a little further the class is another, a little less and it
    is not.
    """
    go = jax.jit(lambda over, model, x, y: AffineAttack(norm, overshoot=over)(model, x, y))
    for seed in range(20):
        model, x, y = problem(seed)
        tie = go(0.0, model, x, y)
        top = np.sort(np.asarray(model(tie)))[::-1]
        assert top[0] - top[1] == pytest.approx(0, abs=1e-12)
        assert NORMS[norm](np.asarray(tie - x)) == pytest.approx(
            float(affine_radius(model, x, y, norm)), rel=1e-12
        )
        assert jnp.argmax(model(go(1e-6, model, x, y))) != y
        assert jnp.argmax(model(x + (1 - 1e-6) * (tie - x))) == y


@norms
def test_no_smaller_perturbation_changes_the_class(norm):
    model, x, y = problem(3)
    radius = float(affine_radius(model, x, y, norm))
    eta = np.random.default_rng(0).normal(size=(10_000, D))
    eta *= radius * (1 - 1e-9) / NORMS[norm](eta)[:, None]
    assert (
        np.argmax(np.asarray(jax.vmap(lambda eta: model(x + eta))(jnp.asarray(eta))), axis=1)
        == int(y)
    ).all()


def test_components_changed_in_each_norm():
    """A single component in L1, all by the same amount in Linf."""
    model, x, y = problem(0)
    moved = {norm: np.abs(np.asarray(AffineAttack(norm)(model, x, y) - x)) for norm in NORMS}
    assert (moved[L1] > 0).sum() == 1
    np.testing.assert_allclose(moved[Linf], moved[Linf].max(), rtol=1e-12)


def test_misclassified_and_constant_inputs_are_returned():
    model, x, y = problem(0)
    other = (y + 1) % K
    assert float(affine_radius(model, x, other)) == 0
    assert float(affine_distance(model, x, other)[y]) < 0
    assert jnp.array_equal(AffineAttack()(model, x, other), x)
    constant = Linear(jnp.zeros((K, D)), jnp.arange(K, dtype=float))
    assert float(affine_radius(constant, x, jnp.array(K - 1))) == np.inf
    assert jnp.array_equal(AffineAttack(overshoot=0.1)(constant, x, jnp.array(K - 1)), x)


def test_any_shape_and_vmap():
    model, x, y = problem(1)
    image = lambda x: model(2 * x.ravel()) + 1.0
    grid = (x / 2).reshape(2, 3)
    assert float(affine_radius(image, grid, y, Linf)) == pytest.approx(
        float(affine_radius(model, x, y, Linf)) / 2
    )
    xs = normal(7, 5, D)
    ys = jnp.arange(5) % K
    together = jax.jit(jax.vmap(lambda x, y: AffineAttack(L1, 0.1)(model, x, y)))(xs, ys)
    alone = jnp.stack([AffineAttack(L1, 0.1)(model, x, y) for x, y in zip(xs, ys)])
    np.testing.assert_allclose(together, alone, atol=1e-12)


def test_rounding_of_large_logits_is_not_taken_for_a_bend():
    """Float32 rounds logits of 10^7 by about 1; the logit of another class is 0."""
    W = jnp.asarray(1e7 * normal(0, 3, D), jnp.float32).at[1].set(0)
    model = Linear(W, jnp.zeros(3, jnp.float32))
    x = jnp.asarray(normal(1, D), jnp.float32)
    z, W = np.asarray(model(x)), np.asarray(W)
    y = int(z.argmax())
    slopes = np.linalg.norm(W[y] - W, axis=1)
    exact = [np.inf if j == y else (z[y] - z[j]) / slopes[j] for j in range(3)]
    np.testing.assert_allclose(affine_distance(model, x, jnp.array(y), L2), exact, rtol=1e-5)


def test_bad_input(unchecked):
    model, x, y = problem(0)
    with pytest.raises(ValueError, match="AffineAttack: norm must be L1, L2 or Linf; got L0"):
        AffineAttack(L0)
    with pytest.raises(ValueError, match="affine_distance: norm must be L1, L2 or Linf; got 2"):
        affine_distance(model, x, y, 2)  # pyright: ignore[reportArgumentType]
    with pytest.raises(
        ValueError, match=r"AffineAttack: overshoot, a fraction of the distance.*got -0\.1"
    ):
        AffineAttack(overshoot=-0.1)
    with pytest.raises(ValueError, match="affine_distance: expected a label from 0 to 3, got 4"):
        affine_distance(model, x, jnp.array(4))
    with pytest.raises(
        ValueError,
        match=r"the model is not affine in its input\. Use DeepFool, which takes any model",
    ):
        affine_radius(MLP.init(D, 8, K, activation=tanh, key=jr.key(0)), x, y)

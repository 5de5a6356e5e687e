"""Matrix-free curvature against the dense Hessian, in double precision, and quadratics in closed
form.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import tree
from thetax.explain import (
    curvature,
    hessian_spectrum,
    hessian_trace,
    hvp,
    lanczos,
    ritz_values,
    sharpness,
)
from thetax.explain.loss_surface.lanczos import RitzValues, trust_region_maximum
from thetax.models import MLP
from thetax.train import cross_entropy

pytestmark = pytest.mark.usefixtures("x64")


def problem():
    net = MLP.init(3, 6, 3, activation=jnp.tanh, key=jr.key(0))
    net = jax.tree.map(lambda a: a.astype(float), net)
    xs = jr.normal(jr.key(1), (20, 3), float)
    return net, (xs, jnp.arange(20) % 3)


def dense(net, batch):
    theta, back = tree.ravel(net)
    H = jax.hessian(lambda v: cross_entropy(back(v), batch))(theta)
    return np.asarray(H), np.asarray(jax.grad(lambda v: cross_entropy(back(v), batch))(theta))


def quadratic(A, b):
    return lambda w, batch: w @ A @ w / 2 + b @ w


@pytest.mark.slow
def test_products_are_the_dense_hessians():
    net, batch = problem()
    v = tree.normal_like(jr.key(2), net)
    product = tree.ravel(hvp(cross_entropy, net, batch, v))[0]
    assert np.allclose(product, dense(net, batch)[0] @ np.asarray(tree.ravel(v)[0]), atol=1e-12)


@pytest.mark.slow
def test_full_lanczos_finds_every_eigenvalue():
    net, batch = problem()
    exact = np.linalg.eigvalsh(dense(net, batch)[0])
    T = lanczos(lambda v: hvp(cross_entropy, net, batch, v), net, steps=1000, key=jr.key(3))
    assert len(T.alpha) == tree.size(net)
    assert np.allclose(ritz_values(T).values, exact, atol=1e-9)


@pytest.mark.slow
def test_few_steps_find_the_ends_within_their_bounds():
    net, batch = problem()
    exact = np.linalg.eigvalsh(dense(net, batch)[0])
    found = hessian_spectrum(
        cross_entropy, net, batch, steps=20, n_probes=3, n_eigenvalues=4, key=jr.key(4)
    )
    assert found.top[0] == pytest.approx(exact[-1], rel=1e-6)
    assert found.bottom[0] == pytest.approx(exact[0], abs=1e-3)
    for value, bound in zip([*found.top, *found.bottom], [*found.top_bounds, *found.bottom_bounds]):
        assert np.abs(exact - value).min() <= bound + 1e-9


@pytest.mark.slow
def test_density_is_that_of_the_eigenvalues():
    """Many probes: the density is the exact one under the same bump, up to the spread of the
    probes.
    """
    net, batch = problem()
    exact = np.linalg.eigvalsh(dense(net, batch)[0])
    found = hessian_spectrum(cross_entropy, net, batch, steps=45, n_probes=100, key=jr.key(5))
    width = (found.grid[-1] - found.grid[0]) / 110
    bumps = np.exp(-(((found.grid[:, None] - exact) / width) ** 2) / 2) / (
        width * np.sqrt(2 * np.pi)
    )
    area = np.trapezoid(np.abs(found.density - bumps.mean(axis=1)), found.grid)
    assert area < 0.15
    assert np.trapezoid(found.density, found.grid) == pytest.approx(1, abs=1e-6)


def test_trace_within_four_standard_errors():
    net, batch = problem()
    exact = np.trace(dense(net, batch)[0])
    found = hessian_trace(cross_entropy, net, batch, n_probes=200, key=jr.key(6))
    assert 0 < found.error < 0.1 * abs(exact)
    assert abs(found.value - exact) < 4 * found.error


@pytest.mark.parametrize("start", ["random", "eigenvector", "zero"])
def test_lanczos_restarts_in_an_invariant_subspace(start):
    """Repeated eigenvalues and a start inside an invariant space: the whole spectrum is still
    found.
    """
    A = jnp.diag(jnp.array([5.0, 2.0, 2.0, -1.0]))
    first = {"random": None, "eigenvector": jnp.array([0.0, 0.0, 0.0, 2.0]), "zero": jnp.zeros(4)}[
        start
    ]
    T = lanczos(lambda v: A @ v, jnp.zeros(4), steps=4, key=jr.key(7), start=first)
    assert np.allclose(ritz_values(T).values, [-1, 2, 2, 5], atol=1e-9)


def brute(A, b, radius):
    """The best of many points of the ball, polished by projected ascent."""
    e = np.random.default_rng(0).normal(size=(200, len(b)))
    e *= radius / np.linalg.norm(e, axis=1, keepdims=True)
    for _ in range(2000):
        e = e + 0.05 * (e @ A + b)
        e *= np.minimum(1, radius / np.linalg.norm(e, axis=1, keepdims=True))
    return (np.einsum("ni,ij,nj->n", e, A, e) / 2 + e @ b).max()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", ["convex", "saddle", "concave", "hard", "flat slope"])
def test_largest_increase_of_a_quadratic(kind):
    values = {"concave": [-1.0, -2.0, -3.0], "saddle": [3.0, 1.0, -2.0]}.get(kind, [3.0, 2.0, 0.5])
    Q = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    A = Q @ np.diag(values) @ Q.T
    b = {"hard": Q @ np.array([0.0, 0.3, 0.1]), "flat slope": np.zeros(3)}.get(
        kind, Q @ np.array([0.1, 0.3, -0.2])
    )
    found = sharpness(
        quadratic(jnp.asarray(A), jnp.asarray(b)), jnp.zeros(3), None, radius=0.7, key=jr.key(8)
    )
    assert found.eigenvalue == pytest.approx(values[0], abs=1e-9)
    assert found.increase == pytest.approx(brute(A, b, 0.7), rel=1e-6)
    assert found.gradient_norm == pytest.approx(np.linalg.norm(b))


def test_largest_increase_of_a_network_is_that_of_its_quadratic_model():
    net, batch = problem()
    H, g = dense(net, batch)
    values, S = np.linalg.eigh(H)
    norm = np.linalg.norm(g)
    exact = trust_region_maximum(
        norm, RitzValues(values, np.zeros_like(values), S.T @ g / norm), radius=0.05
    )
    found = sharpness(cross_entropy, net, batch, key=jr.key(9))
    assert found.increase == pytest.approx(exact, rel=1e-6)
    assert found.loss == pytest.approx(float(cross_entropy(net, batch)))
    tiny = sharpness(
        cross_entropy, net, batch, radius=1e-6, key=jr.key(9)
    )  # where only the slope counts
    assert tiny.increase == pytest.approx(1e-6 * norm, rel=1e-4)


@pytest.mark.slow
def test_curvature_agrees_with_its_parts():
    net, batch = problem()
    found = curvature(cross_entropy, net, batch, steps=25, key=jr.key(10))
    alone = sharpness(cross_entropy, net, batch, steps=25, key=jr.key(11))
    assert found.sharpness.eigenvalue == pytest.approx(alone.eigenvalue, rel=1e-6)
    assert found.sharpness.increase == pytest.approx(alone.increase, rel=1e-6)
    assert found.spectrum.parameters == tree.size(net)


def test_bad_settings_are_rejected():
    net, batch = problem()
    with pytest.raises(ValueError, match="radius must be positive"):
        sharpness(cross_entropy, net, batch, radius=0.0, key=jr.key(0))
    with pytest.raises(ValueError, match="n_probes must be >= 2"):
        hessian_trace(cross_entropy, net, batch, n_probes=1, key=jr.key(0))
    with pytest.raises(ValueError, match="steps must be >= 1"):
        lanczos(lambda v: v, jnp.ones(3), steps=0, key=jr.key(0))

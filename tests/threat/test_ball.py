"""Projections against a solver and the variational inequality; directions against their
definition.
"""

import itertools
from functools import cache

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from thetax.threat import L0, L1, L2, Linf, perturbation_bounds
from thetax.threat.ball import _shrinkage, _threshold

pytestmark = pytest.mark.usefixtures("x64")

D = 5
NORMS = {Linf: lambda eta: np.abs(eta).max(), L2: np.linalg.norm, L1: lambda eta: np.abs(eta).sum()}
shifts = arrays(np.float64, D, elements=st.floats(-4, 4))
inputs = arrays(np.float64, D, elements=st.floats(0, 1))
radii = st.floats(0.05, 3)


boxes = pytest.mark.parametrize("boxed", [True, False])


@cache
def units(kind):
    """Points of the ball of radius 1; of 2 components for L0."""
    ball = kind(2 if kind is L0 else 1)
    return np.asarray(jax.vmap(lambda key: ball.sample(key, (D,)))(jr.split(jr.key(0), 200)))


@boxes
@pytest.mark.parametrize("kind", NORMS)
@given(z=shifts, x=inputs, radius=radii)
def test_projection_satisfies_the_variational_inequality(kind, boxed, z, x, radius):
    """⟨z − Πz, η − Πz⟩ ≤ 0 for all η of the convex set, which holds for the nearest point
    only.
    """
    ball = kind(radius)
    limits = perturbation_bounds(jnp.asarray(x), (0.0, 1.0)) if boxed else None
    near = np.asarray(ball.project(jnp.asarray(z), limits))
    assert NORMS[kind](near) <= radius * (1 + 1e-12) + 1e-15
    if boxed:
        assert (x + near >= -1e-15).all()
        assert (x + near <= 1 + 1e-15).all()
    others = radius * units(kind)
    others = (
        np.clip(others, *limits) if boxed else others
    )  # clipping towards 0 keeps them in the ball
    assert ((others - near) @ (z - near)).max() <= 1e-9 * max(1.0, np.linalg.norm(z))


def solved(kind, z, radius, low, high):
    """The projection by SLSQP; η = u − v with u, v ≥ 0 makes every ball smooth."""
    split = lambda w: w[:D] - w[D:]
    bounds = [(0.0, most) for most in (*high, *-low)]
    constraints = []
    if kind is Linf:
        bounds = [(least, min(most, radius)) for least, most in bounds]
    else:
        size = (lambda w: w.sum()) if kind is L1 else (lambda w: np.linalg.norm(split(w)))
        constraints = [{"type": "ineq", "fun": lambda w: radius - size(w)}]
    aim = lambda w: np.square(split(w) - z).sum()
    options = {"ftol": 1e-14, "maxiter": 500}
    return split(
        minimize(
            aim, np.full(2 * D, 1e-3), bounds=bounds, constraints=constraints, options=options
        ).x
    )


@boxes
@pytest.mark.parametrize("kind", NORMS)
def test_projection_is_that_of_a_solver(kind, boxed):
    rng = np.random.default_rng(0)
    for _ in range(6):
        z = 2 * rng.normal(size=D)
        x = rng.uniform(size=D)
        radius = rng.uniform(0.2, 2)
        limits = perturbation_bounds(jnp.asarray(x), (0.0, 1.0)) if boxed else None
        low, high = (-x, 1 - x) if boxed else (np.full(D, -9.0), np.full(D, 9.0))
        np.testing.assert_allclose(
            kind(radius).project(jnp.asarray(z), limits),
            solved(kind, z, radius, low, high),
            atol=1e-5,
        )


def test_shrinkage_and_threshold():
    """The scale of L2 and the threshold of L1, against bisection in NumPy; 1 and 0 where the caps
    lie inside the ball.
    """
    a = np.array([0.5, 3.0, 1.5, 0.0, 0.8])
    caps = np.array([0.4, 0.7, 1.0, 0.2, 0.9])
    scale = jax.jit(_shrinkage)
    threshold = jax.jit(_threshold)

    def root(f, low, high):
        """The root of an increasing function."""
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if f(middle) < 0 else (low, middle)
        return low

    for radius in (0.1, 0.6, 1.2):
        s = root(lambda s: np.square(np.minimum(s * a, caps)).sum() - radius**2, 0.0, 1.0)  # noqa: B023
        assert float(scale(a, caps, radius)) == pytest.approx(s, rel=1e-12)
        lam = root(lambda lam: radius - np.clip(a - lam, 0, caps).sum(), 0.0, 3.0)  # noqa: B023
        assert float(threshold(a, caps, radius)) == pytest.approx(lam, rel=1e-12)
    assert scale(a, caps, 9.0) == 1
    assert threshold(a, caps, 9.0) == 0


@boxes
def test_l0_projection_by_brute_force(boxed):
    rng = np.random.default_rng(1)
    for count in (1, 2, 4):
        z = 2 * rng.normal(size=D)
        x = rng.uniform(size=D)
        limits = perturbation_bounds(jnp.asarray(x), (0.0, 1.0)) if boxed else None
        inside = z if limits is None else np.clip(z, *limits)
        masks = [np.isin(np.arange(D), kept) for kept in itertools.combinations(range(D), count)]
        best = min(np.square(np.where(mask, inside, 0) - z).sum() for mask in masks)
        near = L0(count).project(jnp.asarray(z), limits)
        assert L0(count).norm(near) <= count
        assert np.square(near - z).sum() == pytest.approx(best)


@pytest.mark.parametrize("kind", NORMS)
@given(z=shifts, w=shifts, radius=radii)
def test_projection_is_nonexpansive_and_idempotent(kind, z, w, radius):
    ball = kind(radius)
    a, b = (np.asarray(ball.project(jnp.asarray(part))) for part in (z, w))
    assert np.linalg.norm(a - b) <= np.linalg.norm(z - w) + 1e-9
    np.testing.assert_allclose(ball.project(jnp.asarray(a)), a, atol=1e-12)


@pytest.mark.parametrize("kind", [*NORMS, L0])
@given(g=shifts)
def test_the_steepest_direction(kind, g):
    """It has norm 1, and its slope is the dual norm, which no other direction exceeds."""
    ball = kind(2)
    steepest = np.asarray(ball.steepest(jnp.asarray(g)))
    dual = float(ball.dual_norm(jnp.asarray(g)))
    assert g @ steepest == pytest.approx(dual, abs=1e-9)
    assert (units(kind) @ g).max() <= dual + 1e-9
    if kind is not L0:
        assert NORMS[kind](steepest) <= 1 + 1e-12


@pytest.mark.parametrize("kind", NORMS)
def test_samples_are_uniform(kind):
    """A ball of half the radius has 2^-D of the volume, so that fraction of 20,000 samples, within
    4 standard errors.
    """
    eta = np.asarray(jax.vmap(lambda key: kind(3.0).sample(key, (D,)))(jr.split(jr.key(0), 20_000)))
    sizes = np.array([NORMS[kind](part) for part in eta])
    assert sizes.max() <= 3
    for share in (0.5, 0.9):
        p = share**D
        assert abs((sizes <= 3 * share).mean() - p) < 4 * np.sqrt(p * (1 - p) / 20_000)
    assert np.abs(eta.mean(axis=0)).max() < 4 * 3 / np.sqrt(20_000)


def test_l0_samples():
    eta = np.asarray(jax.vmap(lambda key: L0(2).sample(key, (D,)))(jr.split(jr.key(0), 2000)))
    assert ((eta != 0).sum(axis=1) == 2).all()
    assert np.abs((eta != 0).mean(axis=0) - 2 / D).max() < 4 * np.sqrt(0.24 / 2000)


@pytest.mark.parametrize("kind", [*NORMS, L0])
def test_radius_0_and_any_shape(kind):
    z = jnp.arange(6.0).reshape(2, 3) - 2
    assert not np.asarray(kind(0.0).project(z)).any()
    still = [
        kind(0.0).project(0 * z),
        kind(0.0).project(0 * z, perturbation_bounds(0 * z, (0.0, 1.0))),
    ]
    assert not np.asarray(still).any()  # NaN would count as True
    assert kind(2.0).project(z, perturbation_bounds(jnp.full((2, 3), 0.5), (0.0, 1.0))).shape == (
        2,
        3,
    )
    assert kind(2.0).steepest(z).shape == kind(2.0).sample(jr.key(0), (2, 3)).shape == (2, 3)


@pytest.mark.parametrize("kind", NORMS)
def test_a_sweep_over_radii_is_a_vmap(kind):
    z = jnp.arange(5.0) - 2
    radii = jnp.array([0.5, 1.0, 9.0])
    together = jax.vmap(lambda radius: kind(radius).project(z))(radii)
    for row, radius in zip(together, radii):
        np.testing.assert_allclose(row, kind(float(radius)).project(z), atol=1e-12)


def test_bad_input(unchecked):
    with pytest.raises(ValueError, match="L2: radius must be finite and >= 0; got -1"):
        L2(-1.0)
    with pytest.raises(ValueError, match="Linf: radius must be finite and >= 0; got nan"):
        Linf(float("nan"))
    with pytest.raises(ValueError, match=r"Linf: radius must be finite and >= 0; got -0\.5"):
        Linf(np.float32(-0.5))
    with pytest.raises(ValueError, match=r"L2: radius must be finite and >= 0; got -0\.5"):
        L2(jnp.array(-0.5))
    with pytest.raises(
        ValueError,
        match=r"L0: radius is the number of components that may change.*integer; got 1\.5",
    ):
        L0(1.5)

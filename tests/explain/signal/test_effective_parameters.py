"""What decay and stopping leave: closed forms against solved and descended quadratics, the sum
against a dense one.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetax import tree
from thetax.explain import (
    early_stopping_factor,
    effective_parameters,
    weight_decay_equivalent_steps,
    weight_decay_factor,
)
from thetax.models import MLP
from thetax.plot import draw
from thetax.train import cross_entropy

pytestmark = pytest.mark.usefixtures("x64")
curvatures = st.floats(1e-3, 5.0)


@given(st.lists(curvatures, min_size=1, max_size=6), st.floats(0.0, 10.0))
def test_decay_solves_the_decayed_quadratic(values, strength):
    """(H + μI)⁻¹ H θ* in a rotated basis."""
    rng = np.random.default_rng(len(values))
    Q, _ = np.linalg.qr(rng.normal(size=(len(values), len(values))))
    H = Q.T * values @ Q
    best = rng.normal(size=len(values))
    solved = np.linalg.solve(H + strength * np.eye(len(values)), H @ best)
    assert Q @ solved == pytest.approx(
        weight_decay_factor(values, strength=strength) * (Q @ best), abs=1e-9
    )


@given(st.lists(st.floats(-1.0, 25.0), min_size=1, max_size=6), st.integers(0, 30))
def test_early_stopping_is_gradient_descent_from_zero(values, steps):
    """Downhill, overshooting and fleeing: the loop agrees wherever it is."""
    lam = np.array(values)
    theta = np.zeros(len(values))
    for _ in range(steps):
        theta = theta - 0.1 * lam * (theta - 1)
    assert early_stopping_factor(lam, learning_rate=0.1, steps=steps) == pytest.approx(
        theta, rel=1e-9, abs=1e-12
    )


@given(curvatures, st.floats(1e-3, 10.0), st.floats(1e-4, 0.19))
def test_equivalent_steps_make_the_factors_equal(curvature, strength, rate):
    steps = weight_decay_equivalent_steps(curvature, learning_rate=rate, strength=strength)
    reached = early_stopping_factor(curvature, learning_rate=rate, steps=float(steps))
    assert float(reached) == pytest.approx(
        float(weight_decay_factor(curvature, strength=strength)), rel=1e-9
    )


def test_limits():
    """λ → 0 gives T = 1/(ημ), μ = 0 leaves all but flat directions, ∞ steps arrive, tiny ηλ keeps
    its digits.
    """
    assert weight_decay_equivalent_steps(
        np.array([0.0, 1e-12]), learning_rate=0.1, strength=2.0
    ) == pytest.approx([5.0, 5.0], rel=1e-9)
    assert weight_decay_equivalent_steps(-1.0, learning_rate=0.1, strength=2.0) == pytest.approx(
        np.log(0.5) / -np.log(1.1)
    )
    assert weight_decay_factor([0.0, 1e-9, 3.0], strength=0.0).tolist() == [0.0, 1.0, 1.0]
    assert early_stopping_factor([0.5, 1.5], learning_rate=1.0, steps=10_000).tolist() == [1.0, 1.0]
    assert early_stopping_factor(1e-18, learning_rate=1.0, steps=7) == pytest.approx(
        7e-18, rel=1e-12
    )


def test_negative_curvature_is_counted_separately():
    """Above −μ the minimum moves to the other side of 0; at and below it there is none."""
    found = weight_decay_factor([-0.5, -1.0, -2.0], strength=1.0)
    assert found[0] == -1.0
    assert np.isnan(found[1:]).all()
    assert np.isnan(early_stopping_factor(30.0, learning_rate=0.1, steps=2.5))
    saddle = lambda w, batch: (jnp.array([4.0, 1.0, 0.0, -0.5, -3.0]) * w**2).sum() / 2
    found = effective_parameters(saddle, jnp.zeros(5), None, strength=1.0, key=jr.key(0))
    assert found.factors[:4] == pytest.approx([0.8, 0.5, 0.0, -1.0], abs=1e-9)
    assert np.isnan(found.factors[4])
    assert (found.effective, found.error, found.negative) == pytest.approx(
        (1.3, 0.0, 2.0), abs=1e-9
    )
    left = effective_parameters(
        saddle, jnp.zeros(5), None, strength=1.0, learning_rate=0.1, steps=9, key=jr.key(0)
    )
    fled = 0.0
    for _ in range(9):
        fled = fled - 0.1 * (-3.0 * (fled - 1) + 1.0 * fled)
    assert left.factors[4] == pytest.approx(fled)


@pytest.mark.slow
def test_a_network_against_its_dense_hessian():
    """Curvatures within their bounds, factors by the formula, and the sum within 5 standard errors
    over 40 probes.
    """
    net = jax.tree.map(
        lambda a: a.astype(float), MLP.init(4, 16, 3, activation=jnp.tanh, key=jr.key(0))
    )
    batch = jr.normal(jr.key(1), (30, 4), float), jnp.arange(30) % 3
    theta, back = tree.ravel(net)
    exact = np.linalg.eigvalsh(jax.hessian(lambda v: cross_entropy(back(v), batch))(theta))
    up = exact[exact > 1e-12]
    settings = {"strength": 0.02, "learning_rate": 0.5, "steps": 40}
    found = effective_parameters(
        cross_entropy, net, batch, n_eigenvalues=10, n_probes=40, key=jr.key(2), **settings
    )
    assert (
        found.parameters == len(exact) > 3 * 10 + 12
    )  # fewer products than parameters: an estimate
    assert np.abs(found.curvatures - exact[::-1][:10]).max() <= found.bounds.max() + 1e-12
    factor = lambda lam: (1 - (1 - 0.5 * (lam + 0.02)) ** 40) * lam / (lam + 0.02)
    assert found.factors == pytest.approx(factor(found.curvatures), rel=1e-12)
    assert 0 < found.error < 2
    assert abs(found.effective - factor(up).sum()) < 5 * found.error
    whole = effective_parameters(
        cross_entropy, net, batch, n_eigenvalues=40, key=jr.key(2), **settings
    )
    assert (whole.effective, whole.negative) == pytest.approx(
        (factor(up).sum(), (exact < -1e-12).sum()), rel=1e-6
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "give strength > 0, or learning_rate and steps, or all three"),
        ({"learning_rate": 0.1}, "give strength > 0, or learning_rate and steps, or all three"),
        ({"strength": -1.0}, r"strength must be >= 0; got -1\.0"),
        ({"learning_rate": 0.0, "steps": 3}, "learning_rate must be positive"),
        ({"learning_rate": 0.1, "steps": -3}, "steps must be >= 0"),
        ({"strength": 1.0, "n_eigenvalues": 0}, "n_eigenvalues must be at least 1"),
        ({"strength": 1.0, "n_probes": 1}, "n_probes at least 2"),
    ],
)
def test_bad_settings(settings, said):
    with pytest.raises(ValueError, match=said):
        effective_parameters(lambda w, batch: w @ w, jnp.ones(2), None, key=jr.key(0), **settings)


@pytest.mark.parametrize(
    ("curvature", "settings", "said"),
    [
        (1.0, {"learning_rate": 0.1, "strength": 0.0}, "strength must be positive"),
        (1.0, {"learning_rate": -0.1, "strength": 1.0}, "learning_rate"),
        (10.0, {"learning_rate": 0.1, "strength": 1.0}, "below 1 / learning_rate = 10"),
        (-1.0, {"learning_rate": 0.1, "strength": 1.0}, "above"),
        (np.nan, {"learning_rate": 0.1, "strength": 1.0}, "got nan"),
    ],
)
def test_where_no_steps_are_equivalent(curvature, settings, said):
    with pytest.raises(ValueError, match=said):
        weight_decay_equivalent_steps(curvature, **settings)


def test_the_figure_holds_the_factors():
    bowl = lambda w, batch: (jnp.array([1.0, 3.0, 9.0, -1.0]) * w**2).sum() / 2
    decayed = draw(effective_parameters(bowl, jnp.ones(4), None, strength=1.0, key=jr.key(0))).axes[
        0
    ]
    law, points = decayed.lines
    assert points.get_ydata() == pytest.approx(
        [0.9, 0.75, 0.5]
    )  # directions of negative curvature are not drawn
    assert law.get_ydata() == pytest.approx(law.get_xdata() / (1 + law.get_xdata()))
    assert decayed.get_title(loc="left") == "about 2.1 effective parameters of 4"
    both = draw(
        effective_parameters(
            bowl, jnp.ones(4), None, strength=1.0, learning_rate=0.05, steps=3, key=jr.key(0)
        )
    ).axes[0]
    assert [text.get_text() for text in both.get_legend().get_texts()] == [
        "weight decay 1",
        "weight decay, 3 steps of learning rate 0.05",
        "largest Hessian eigenvalues",
    ]
    assert (
        len(
            draw(
                effective_parameters(
                    bowl, jnp.ones(4), None, learning_rate=0.05, steps=3, key=jr.key(0)
                )
            )
            .axes[0]
            .lines
        )
        == 2
    )

"""The proximal step against a grid, its law, scikit-learn's lasso, and the course's own loop."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from contracts import normal
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Lasso

from thetax.core import run
from thetax.layers import Linear
from thetax.train import descend, ista, lasso, soft_threshold, squared_error

pytestmark = pytest.mark.usefixtures("x64")


@given(z=st.floats(-4, 4), strength=st.floats(0, 3))
def test_soft_threshold_is_the_argmin(z, strength):
    """Of ½(θ − z)² + μ|θ|, by a grid of step 1/1000."""
    grid = np.arange(-5000, 5001) / 1000
    least = grid[np.argmin((grid - z) ** 2 / 2 + strength * np.abs(grid))]
    assert abs(float(soft_threshold(jnp.array(z), strength=strength)) - least) <= 5.001e-4


@given(seed=st.integers(0, 1000), strength=st.floats(0, 2))
def test_soft_threshold_never_spreads(seed, strength):
    """A proximal map is firmly non-expansive, and what is within the strength of 0 becomes 0, in
    sign too.
    """
    a, b = np.random.default_rng(seed).normal(size=(2, 5))
    found = [np.asarray(soft_threshold(jnp.asarray(v), strength=strength)) for v in (a, b)]
    step = found[0] - found[1]
    assert step @ step <= step @ (a - b) + 1e-12
    assert ((found[0] == 0) == (np.abs(a) <= strength)).all()


def test_ista_reaches_sklearns_lasso():
    """The same weights, the same zeros; descent on the lasso objective by its subgradient has
    none.
    """
    xs = normal(0, 40, 6)
    ys = normal(1, 40)
    ys = ys + xs[:, 0] * 2
    data = (xs, ys)
    rate = 0.2
    peer = Lasso(alpha=0.15, fit_intercept=False, tol=1e-14, max_iter=10**5).fit(xs, ys)
    origin = Linear(jnp.zeros((1, 6)))

    def trained(objective, optimiser):
        still = lambda model, batch, key: objective(model, data)
        return run(descend(still, optimiser), origin, jnp.zeros(500), key=jr.key(0))[0].model.W[0]

    found = trained(squared_error, ista(rate, strength=0.15))
    assert np.allclose(found, peer.coef_, atol=1e-9)
    assert ((np.asarray(found) == 0) == (peer.coef_ == 0)).all()
    assert 0 < np.sum(np.asarray(found) == 0) < 6
    hovering = trained(lasso(squared_error, strength=0.15), optax.sgd(rate))
    assert not (np.asarray(hovering) == 0).any()


def test_ista_takes_schedules_and_parts():
    """Without strength it is plain descent, along any schedule; by parts the offset is left
    alone.
    """
    schedule = lambda t: 0.5 / (1 + t)
    slope = lambda w, batch, key: jnp.square(w - 1.0).sum() / 2
    both = [
        run(descend(slope, optimiser), jnp.zeros(2), jnp.zeros(5), key=jr.key(0))[0].model
        for optimiser in (ista(schedule, strength=0.0), optax.sgd(schedule))
    ]
    assert np.allclose(*both, atol=1e-15)
    model = Linear(jnp.array([[0.1]]), jnp.array([0.1]))
    names = jax.tree.unflatten(jax.tree.structure(model), ["W", "b"])
    parts = optax.partition(
        {"W": ista(1.0, strength=1.0), "b": optax.sgd(1.0)}, lambda model: names
    )
    nothing = lambda model, batch, key: 0.0 * (model.W.sum() + model.b.sum())
    after = run(descend(nothing, parts), model, jnp.zeros(1), key=jr.key(0))[0].model
    assert after.W.item() == 0.0
    assert after.b.item() == 0.1


def test_bad_input():
    with pytest.raises(ValueError, match=r"strength must be >= 0; got -1\.0"):
        soft_threshold(jnp.ones(2), strength=-1.0)
    with pytest.raises(ValueError, match="rewards large weights"):
        ista(0.1, strength=-1.0)
    optimiser = ista(0.1, strength=1.0)
    with pytest.raises(ValueError, match="update needs the parameters"):
        optimiser.update(jnp.ones(2), optimiser.init(jnp.ones(2)))
    assert jax.jit(lambda mu: soft_threshold(jnp.ones(1), strength=mu))(0.25).item() == 0.75

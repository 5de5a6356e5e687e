"""Permutation importance, against the closed form and scikit-learn."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from sklearn.inspection import permutation_importance as sklearn_permutation_importance
from sklearn.linear_model import LinearRegression

from thetax.explain import permutation_importance
from thetax.layers import Linear
from thetax.train import squared_error

XS = jr.normal(jr.key(0), (2000, 3)) * jnp.array([[1.0, 2.0, 0.5]])
W = jnp.array([[2.0, 0.5, 0.0]])
YS = (XS @ W.T)[:, 0] + 0.1 * jr.normal(jr.key(1), (2000,))


def test_importance_in_a_linear_model_is_the_variance_of_the_term():
    r"""$\tfrac12 E(w_j x_j - w_j x_j')^2 = w_j^2 \mathrm{Var}(x_j)$."""
    seen = permutation_importance(Linear(W), (XS, YS), squared_error, n_repeats=8, key=jr.key(2))
    np.testing.assert_allclose(seen.increase, W[0] ** 2 * XS.var(axis=0), atol=0.12)
    assert (seen.ranking, seen.increase[2], seen.error[2]) == ((0, 1, 2), 0.0, 0.0)
    assert seen.baseline == pytest.approx(0.005, rel=0.1)
    assert seen.features == ("x1", "x2", "x3")


def test_it_agrees_with_scikit_learn():
    model = LinearRegression().fit(XS, YS)
    peer = sklearn_permutation_importance(
        model,
        np.asarray(XS),
        np.asarray(YS),
        n_repeats=8,
        random_state=0,
        scoring="neg_mean_squared_error",
    )
    mine = Linear(jnp.asarray(model.coef_)[None], jnp.asarray(model.intercept_)[None])
    seen = permutation_importance(
        mine, (XS, YS), squared_error, features=("a", "b", "c"), n_repeats=8, key=jr.key(2)
    )
    spread = 5 * np.hypot(2 * seen.error, peer.importances_std / 8**0.5) + 1e-3
    assert (
        np.abs(2 * seen.increase - peer.importances_mean) < spread
    ).all()  # the library's loss is half the square


def test_bad_input():
    with pytest.raises(ValueError, match=r"expected inputs of shape \(n, d\); got \(2000, 3, 1\)"):
        permutation_importance(Linear(W), (XS[:, :, None], YS), squared_error, key=jr.key(0))
    with pytest.raises(ValueError, match="got 2 names for 3 features; give one name for each"):
        permutation_importance(
            Linear(W), (XS, YS), squared_error, features=("a", "b"), key=jr.key(0)
        )
    with pytest.raises(
        ValueError, match="n_repeats must be at least 2 for a standard error; got 1"
    ):
        permutation_importance(Linear(W), (XS, YS), squared_error, n_repeats=1, key=jr.key(0))

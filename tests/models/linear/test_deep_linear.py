"""Deep linear networks: gradients against autodiff, what flow conserves, how modes grow, and the
rank bound.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import normal
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from thetax import tree
from thetax.layers import Chain, Linear, lecun, ntk_parametrisation, tanh
from thetax.models import (
    SecondMoments,
    balanced_factorisation,
    deep_linear,
    deep_linear_gradient,
    layer_imbalance,
    merge_linear_layers,
    mode_growth,
    principal_components,
    reduced_rank_regression,
    second_moments,
)
from thetax.models.linear.deep_linear import _pairs
from thetax.train import gradient_flow, squared_error

pytestmark = pytest.mark.usefixtures("x64", "strict")


def data(d=4, k=3, n=20):
    return normal(0, n, d), normal(1, n, k)


def test_drawn():
    net = deep_linear(4, 2, 3, key=jr.key(0))
    assert [layer.W.shape for layer in net.layers] == [(2, 4), (3, 2)]
    assert tree.size(net) == 14
    x = normal(2, 4)
    assert np.allclose(net(x), net.layers[1].W @ net.layers[0].W @ x)
    assert np.linalg.matrix_rank(merge_linear_layers(net).W) == 2
    for sizes in ((4,), (4, 0, 3)):
        with pytest.raises(ValueError, match="at least two positive widths"):
            deep_linear(*sizes, key=jr.key(0))


@pytest.mark.slow
@given(depth=st.integers(1, 5), m=st.integers(1, 4), n=st.integers(1, 4), seed=st.integers(0, 99))
def test_factors_are_balanced_and_compute_the_matrix(depth, m, n, seed):
    with jax.enable_x64(True):
        W = normal(seed, m, n)
        net = balanced_factorisation(W, depth=depth)
        assert len(net.layers) == depth
        assert np.allclose(merge_linear_layers(net).W, W, atol=1e-12)
        assert all(np.allclose(off, 0, atol=1e-12) for off in layer_imbalance(net))


def test_correlations_are_sums():
    xs, ys = data()
    found = second_moments(xs, ys)
    assert np.allclose(found.xx, sum(np.outer(x, x) for x in np.asarray(xs)))
    assert np.allclose(
        found.yx, sum(np.outer(y, x) for x, y in zip(np.asarray(xs), np.asarray(ys)))
    )


@pytest.mark.parametrize("sizes", [(4, 3), (4, 2, 3), (4, 5, 1, 6, 3)])
@pytest.mark.parametrize("initialiser", [lecun, ntk_parametrisation()], ids=["lecun", "tangent"])
def test_gradient_is_autodiffs(sizes, initialiser):
    """n times that of squared_error, in the same structure: scales of the tangent parametrisation
    included.
    """
    batch = data()
    net = deep_linear(*sizes, initialiser=initialiser, key=jr.key(0))
    found = deep_linear_gradient(net, second_moments(*batch))
    expected = jax.grad(squared_error)(net, batch)
    assert jax.tree.structure(found) == jax.tree.structure(net)
    assert all(
        np.allclose(a, 20 * b, atol=1e-11) for a, b in zip(*map(jax.tree.leaves, (found, expected)))
    )


@pytest.mark.slow
def test_gradient_flow_keeps_the_imbalance_and_descent_does_not():
    batch = data()
    net = deep_linear(4, 3, 2, 3, key=jr.key(0))
    way = gradient_flow(squared_error, net, batch, times=[0.5, 3.0], tolerance=1e-10)
    for before, after in zip(layer_imbalance(net), layer_imbalance(way.model)):
        assert np.allclose(before, after, atol=1e-7)
    stepped = tree.axpy(-0.5, jax.grad(squared_error)(net, batch), net)
    assert np.abs(np.asarray(layer_imbalance(stepped)[0] - layer_imbalance(net)[0])).max() > 1e-3
    # with any loss: Wᵀ of the gradient after is the gradient before times Wᵀ
    other = jax.grad(lambda net: jnp.abs(jax.vmap(net)(batch[0])).sum())(net)
    for before, after, g, then in zip(net.layers, net.layers[1:], other.layers, other.layers[1:]):
        assert np.allclose(after.W.T @ then.W, g.W @ before.W.T, atol=1e-10)


@given(s=st.floats(0.0, 3.0), a=st.floats(1e-4, 4.0))
def test_modes_grow_as_the_equation_says(s, a):
    with jax.enable_x64(True):
        times = np.array([0.0, 0.3, 1.0, 2.5])
        found = mode_growth(times, strengths=[s], start=[a])[:, 0]
        ode = solve_ivp(
            lambda t, a: 2 * a * (s - a), (0, 2.5), [a], t_eval=times, rtol=1e-9, atol=1e-11
        ).y[0]
        assert np.allclose(found, ode, atol=1e-6)


def test_modes_at_the_edges():
    found = mode_growth([0.0, 1.0, 1e4], strengths=[0.0, 2.0, 2.0], start=[0.5, 0.0, 0.1])
    assert np.allclose(
        found[:, 0], [0.5, 0.25, 0.5 / (1 + 1e4)]
    )  # no strength: it decays like 1 / t
    assert np.allclose(found[:, 1], 0.0)  # no start: it stays
    assert np.allclose(found[-1, 2], 2.0)  # and no overflow
    with pytest.raises(ValueError, match="must be vectors, the last two of equal"):
        mode_growth([0.0], strengths=[1.0, 2.0], start=[0.1])
    with pytest.raises(ValueError, match="must not be negative"):
        mode_growth([0.0], strengths=[1.0], start=[-0.1])


@pytest.mark.slow
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_reduced_rank_regression_is_the_optimum(rank):
    """The loss is the objective's, is what the eigenvalues say, and no descent goes below."""
    xs, ys = data()
    found = reduced_rank_regression(xs, ys, rank=rank)
    X = np.asarray(xs)
    Y = np.asarray(ys)
    fitted = X @ np.linalg.lstsq(X, Y, rcond=None)[0]
    least = (np.sum(Y**2) - np.linalg.eigvalsh(fitted.T @ fitted)[-rank:].sum()) / 40
    assert np.isclose(found.loss, least)
    assert np.isclose(squared_error(found.model, (xs, ys)), least)
    assert tree.norm(jax.grad(squared_error)(found.model, (xs, ys))) < 1e-12
    for seed in range(20):
        near = tree.axpy(0.1, tree.normal_like(jr.key(seed), found.model), found.model)
        assert squared_error(near, (xs, ys)) >= least
    if rank == 3:
        full = np.linalg.lstsq(X, Y, rcond=None)[0].T
        assert np.allclose(merge_linear_layers(found.model).W, full)


def test_reduced_rank_regression_of_data_without_full_rank():
    xs = np.array(normal(0, 20, 4))
    xs[:, 3] = xs[:, 0] - xs[:, 1]
    ys = normal(1, 20, 3)
    found = reduced_rank_regression(xs, ys, rank=2)
    assert np.isfinite(np.asarray(found.model.layers[0].W)).all()
    assert np.isclose(squared_error(found.model, (jnp.asarray(xs), ys)), found.loss)


def test_the_autoencoder_is_its_special_case():
    xs, _ = data(d=5)
    assert np.isclose(
        reduced_rank_regression(xs, xs, rank=2).loss, principal_components(xs, n_components=2).loss
    )


def test_integers_and_traced_data_are_taken():
    xs = np.arange(12).reshape(4, 3)
    ys = np.arange(8).reshape(4, 2)
    assert second_moments(xs, ys).yx.dtype == jnp.zeros(()).dtype
    inside = jax.jit(lambda xs, ys: reduced_rank_regression(xs, ys, rank=1).loss)(*data())
    assert np.isclose(inside, reduced_rank_regression(*data(), rank=1).loss)


def test_bad_input_is_refused():
    xs, ys = data()
    with pytest.raises(ValueError, match="got 20 xs and 19 ys"):
        _pairs("correlations", xs, ys[:19])
    with pytest.raises(ValueError, match="row 1, column 1 is nan"):
        second_moments(np.array([[1.0, 2.0], [3.0, np.nan]]), np.ones((2, 1)))
    with pytest.raises(ValueError, match="rank must be an integer from 1 to 3"):
        reduced_rank_regression(xs, ys, rank=4)
    with pytest.raises(ValueError, match="depth must be an integer >= 1; got 0"):
        balanced_factorisation(np.eye(2), depth=0)
    with pytest.raises(ValueError, match=r"needs correlations xx \(4, 4\) and yx \(3, 4\)"):
        deep_linear_gradient(
            deep_linear(4, 3, key=jr.key(0)), SecondMoments(jnp.eye(3), jnp.ones((3, 3)))
        )
    for wrong, name in (
        (Chain(Linear(jnp.eye(2), jnp.ones(2))), "Linear with a bias"),
        (Chain(Linear(jnp.eye(2)), tanh), "Pointwise"),
        (Chain(), "Chain"),
    ):
        with pytest.raises(
            ValueError, match=f"without bias, such as deep_linear returns; got {name}"
        ):
            layer_imbalance(wrong)

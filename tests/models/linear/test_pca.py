"""Low rank and the linear autoencoder, against NumPy, scikit-learn and descent."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import normal
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import PCA

from thetax import tree
from thetax.models import deep_linear, low_rank, principal_components
from thetax.models.linear.pca import as_matrix, expect_rank
from thetax.train import squared_error

pytestmark = pytest.mark.usefixtures("x64", "strict")


@pytest.mark.slow
@given(d=st.integers(1, 5), n=st.integers(1, 5), rank=st.integers(1, 5), seed=st.integers(0, 99))
def test_low_rank_is_the_truncation(d, n, rank, seed):
    rank = min(rank, d, n)
    with jax.enable_x64(True):
        X = np.asarray(normal(seed, d, n))
        found = low_rank(X, rank=rank)
        s = np.linalg.svd(X, compute_uv=False)
        assert np.linalg.matrix_rank(found.matrix) <= rank
        assert np.isclose(np.linalg.norm(X - np.asarray(found.matrix)), found.error, atol=1e-12)
        assert np.allclose(np.concatenate([found.s, found.discarded]), s)
        assert np.allclose(found.U * found.s[None] @ found.Vt, found.matrix)
        other = np.asarray(normal(seed + 1, d, rank)) @ np.asarray(normal(seed + 2, rank, n))
        assert np.linalg.norm(X - other) >= float(found.error) - 1e-12


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("width", [1, 3, 5])
def test_the_autoencoder_is_optimal(width, centred):
    xs = normal(0, 30, 5) + 1
    found = principal_components(xs, n_components=width, centred=centred)
    assert np.isclose(squared_error(found.model, (xs, xs)), found.loss, atol=1e-12)
    assert tree.norm(jax.grad(squared_error)(found.model, (xs, xs))) < 1e-10
    shifted = np.asarray(xs) - (np.asarray(xs).mean(axis=0) if centred else 0)
    values = np.linalg.eigvalsh(shifted.T @ shifted)[::-1]
    assert np.allclose(found.singular_values**2, values)
    assert np.isclose(found.loss, values[width:].sum() / 60, atol=1e-12)
    assert np.isclose(found.explained_variance_ratio.sum(), 1)
    for seed in range(10):
        rival = deep_linear(5, width, 5, key=jr.key(seed))
        assert squared_error(rival, (xs, xs)) >= found.loss - 1e-12


def test_centred_is_scikit_learns_and_better():
    xs = normal(0, 30, 5) + 1
    found = principal_components(xs, n_components=2, centred=True)
    peer = PCA(2).fit(xs)
    assert np.allclose(jax.vmap(found.model)(xs), peer.inverse_transform(peer.transform(xs)))
    assert np.allclose(found.explained_variance_ratio[:2], peer.explained_variance_ratio_)
    assert np.allclose(np.abs(found.model.layers[0].W), np.abs(peer.components_))
    assert found.loss < principal_components(xs, n_components=2).loss
    codes = jax.vmap(found.model.layers[0])(xs)
    assert np.allclose(np.abs(codes), np.abs(peer.transform(xs)))


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="n_components must be an integer from 1 to 3"):
        principal_components(np.ones((4, 3)), n_components=4)
    for rank in (0, -1, 2.0, True):
        with pytest.raises(ValueError, match=f"got {rank}"):
            expect_rank("low_rank", "rank", rank, 3)
    with pytest.raises(ValueError, match="rank must be an integer from 1 to 3"):
        low_rank(np.ones((4, 3)), rank=4)
    with pytest.raises(ValueError, match="row 0, column 1 is inf"):
        low_rank(np.array([[1.0, np.inf]]), rank=1)
    for shape in ((3,), (2, 0), (2, 2, 2)):
        with pytest.raises(ValueError, match="must be a non-empty matrix"):
            as_matrix("low_rank", "X", np.ones(shape))
    with pytest.raises(ValueError, match="expected numbers"):
        as_matrix("low_rank", "X", np.array([["a"]]))


def test_works_where_it_is_traced():
    X = normal(0, 4, 3)
    assert np.isclose(jax.jit(lambda X: low_rank(X, rank=1).error)(X), low_rank(X, rank=1).error)
    slope = jax.grad(lambda X: low_rank(X, rank=1).error ** 2)(X)
    found = low_rank(X, rank=1)
    assert np.allclose(
        slope, 2 * (X - jnp.asarray(found.matrix)), atol=1e-10
    )  # the rest, by the envelope theorem

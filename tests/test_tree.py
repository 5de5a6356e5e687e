"""Vector operations on trees of arrays, against NumPy on the flattened vector."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetax import tree

pytestmark = pytest.mark.usefixtures("x64", "strict")
seeds = st.integers(0, 2**32 - 1)
scalars = st.floats(-100, 100)


def a_tree(seed):
    draw = np.random.default_rng(seed).normal
    return {
        "W": jnp.asarray(draw(size=(2, 3))),
        "rest": (jnp.asarray(draw(size=3)), jnp.asarray(draw())),
    }


def flat(a):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(a)])


def near(a, b):
    return bool(np.allclose(flat(a), flat(b), rtol=1e-12, atol=1e-12))


@given(seeds, seeds, seeds, scalars)
def test_dot_is_a_bilinear_form(a, b, c, alpha):
    """Symmetric, bilinear, and NumPy's product of the flattened vectors."""
    a = a_tree(a)
    b = a_tree(b)
    c = a_tree(c)
    assert near(tree.dot(a, b), tree.dot(b, a))
    assert near(tree.dot(a, b), flat(a) @ flat(b))
    assert np.isclose(
        tree.dot(tree.axpy(alpha, a, b), c), alpha * tree.dot(a, c) + tree.dot(b, c), rtol=1e-10
    )


@given(seeds, seeds, scalars)
def test_norm_is_a_norm(a, b, alpha):
    """Homogeneous, subadditive, and NumPy's norm of the flattened vector."""
    a = a_tree(a)
    b = a_tree(b)
    assert near(tree.norm(a), np.linalg.norm(flat(a)))
    assert np.isclose(
        tree.norm(tree.axpy(alpha, a, tree.zeros_like(a))), abs(alpha) * tree.norm(a), rtol=1e-10
    )
    assert tree.norm(tree.axpy(1.0, a, b)) <= tree.norm(a) + tree.norm(b) + 1e-12


@given(seeds, seeds, scalars)
def test_axpy(a, b, alpha):
    a = a_tree(a)
    b = a_tree(b)
    assert near(tree.axpy(alpha, a, b), alpha * flat(a) + flat(b))


@given(seeds)
def test_ravel_round_trip(seed):
    """Exact, with the order of the leaves and the size of the tree."""
    a = a_tree(seed)
    vector, back = tree.ravel(a)
    assert np.array_equal(vector, flat(a))
    assert jax.tree.structure(back(vector)) == jax.tree.structure(a)
    assert np.array_equal(flat(back(vector)), flat(a))
    assert len(vector) == tree.size(a) == 10


def test_norm_at_the_origin_has_gradient_zero():
    """Not NaN, as of the square root alone; elsewhere a / ‖a‖."""
    a = a_tree(0)
    assert tree.norm(tree.zeros_like(a)) == 0
    assert near(jax.grad(tree.norm)(tree.zeros_like(a)), tree.zeros_like(a))
    assert near(jax.grad(tree.norm)(a), flat(a) / np.linalg.norm(flat(a)))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_norm_of_non_finite_values(bad):
    """The norm of a gradient with NaN must not be 0."""
    assert not np.isfinite(tree.norm({"w": jnp.array([1.0, bad])}))


def test_axpy_keeps_the_dtype():
    """A float64 scalar does not promote half-precision weights."""
    narrow = {"w": jnp.ones(2, jnp.bfloat16)}
    assert tree.axpy(jnp.array(0.5), narrow, narrow)["w"].dtype == jnp.bfloat16


def test_normal_like_is_standard_and_independent():
    """Mean 0, variance 1, no correlation between leaves: within 4 s.e. (false alarm 2e-4), fixed
    key.
    """
    n = 40_000
    draw = tree.normal_like(jr.key(0), {"a": jnp.zeros((200, 200)), "b": jnp.zeros(n)})
    a = draw["a"].ravel()
    b = draw["b"]
    for x in (a, b):
        assert abs(x.mean()) < 4 / np.sqrt(n)
        assert abs(x.var() - 1) < 4 * np.sqrt(2 / n)
    assert abs((a * b).mean()) < 4 / np.sqrt(n)
    again = tree.normal_like(jr.key(0), {"a": jnp.zeros((200, 200)), "b": jnp.zeros(n)})
    assert np.array_equal(again["b"], b)


def test_where():
    a = a_tree(1)
    b = a_tree(2)
    assert near(tree.where(jnp.array(True), a, b), a)
    assert near(tree.where(jnp.array(False), a, b), b)


def test_leaf_names():
    """One dotted path per leaf, all different, in the order of the leaves."""
    assert tree.leaf_names(a_tree(0)) == ["W", "rest.0", "rest.1"]
    assert tree.leaf_names(jnp.zeros(2)) == [""]


def test_empty_tree():
    """A layer without parameters is a vector of dimension 0."""
    assert tree.size(()) == 0
    assert tree.dot((), ()) == 0
    assert tree.norm(()) == 0
    assert tree.normal_like(jr.key(0), ()) == ()

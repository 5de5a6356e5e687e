"""The code paths for accelerators, run here on a CPU, give the results of the CPU paths."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.layers import Embedding, LearnedPositions, Linear, Stacked


@pytest.fixture
def accelerated(monkeypatch):
    """A call with a GPU as the default backend."""

    def call(f, *args):
        with monkeypatch.context() as patch:
            patch.setattr(jax, "default_backend", lambda: "gpu")
            return f(*args)

    return call


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.usefixtures("x64", "strict")
def test_small_table_accepts_any_integer_dtype(accelerated, dtype):
    """With strict promotion, and in double precision, where `arange` is int64."""
    E = np.arange(15.0).reshape(5, 3)
    tokens = jnp.array([4, 0], dtype)
    np.testing.assert_array_equal(accelerated(Embedding(jnp.asarray(E)), tokens), E[[4, 0]])


@pytest.mark.slow
def test_small_table_is_a_matrix_product(accelerated):
    table = Embedding(jr.normal(jr.key(0), (5, 3)))
    tokens = jnp.array([[0, 4, -1], [2, 2, 1]])
    look = lambda table: table(tokens)
    np.testing.assert_array_equal(accelerated(look, table), look(table))
    slope = jax.grad(lambda table: jnp.square(look(table)).sum())
    np.testing.assert_allclose(accelerated(slope, table).E, slope(table).E, rtol=1e-6)


def test_logits_of_a_padded_table(accelerated):
    table = Embedding(jr.normal(jr.key(0), (130, 3)))
    x = jr.normal(jr.key(1), (4, 3))
    found = accelerated(table.logits, x)
    assert found.shape == (4, 130)
    np.testing.assert_allclose(found, x @ table.E.T, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_positions_are_gathered(accelerated):
    places = LearnedPositions(jr.normal(jr.key(0), (7, 3)))
    x = jr.normal(jr.key(1), (2, 4, 3))
    add = lambda places: jax.vmap(lambda x: places(x, offset=2))(x)
    np.testing.assert_allclose(accelerated(add, places), add(places), rtol=1e-6)
    slope = jax.grad(lambda places: jnp.square(add(places)).sum())
    np.testing.assert_allclose(accelerated(slope, places).P, slope(places).P, rtol=1e-5)


@pytest.mark.slow
def test_stacked_layers_are_unrolled(accelerated):
    net = Stacked.init(lambda key: Linear.init(3, 3, key=key), 6, key=jr.key(0))
    step = lambda layer, x, item: (layer(x) + item, x.sum())
    through = lambda net: net.scan(step, jnp.ones(3), jnp.arange(6.0))
    for ours, theirs in zip(
        jax.tree.leaves(accelerated(through, net)), jax.tree.leaves(through(net)), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)

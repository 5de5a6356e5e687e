"""LSTM and GRU against their equations in NumPy, gate by gate."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thetax.layers import GRU, LSTM
from thetax.layers.initialise import Initialiser

N, M = 2, 3
RNG = np.random.default_rng(0)
X = RNG.standard_normal(N)
Z = RNG.standard_normal(M)
SHOWN = RNG.standard_normal(M)


def weights(blocks):
    """U, V and b as lists of blocks, one per gate."""
    return [[RNG.standard_normal(shape) for _ in range(blocks)] for shape in ((M, M), (M, N), (M,))]


def stack_gates(blocks):
    return jnp.asarray(np.concatenate(blocks), jnp.float32)


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


step = jax.jit(lambda cell, state, x: cell(state, x))


@pytest.mark.parametrize("mixed", [False, True])
def test_the_gates_of_an_lstm(mixed):
    U, V, b = weights(4)
    mixer = RNG.standard_normal((M, M)) if mixed else np.eye(M)
    cell = LSTM(
        stack_gates(U),
        stack_gates(V),
        stack_gates(b),
        jnp.asarray(mixer, jnp.float32) if mixed else None,
    )
    state, y = step(
        cell, type(cell.start)(jnp.asarray(SHOWN, jnp.float32), jnp.asarray(Z, jnp.float32)), X
    )
    i, f, g, o = (v @ X + u @ SHOWN + c for u, v, c in zip(U, V, b))
    z = sigmoid(f) * Z + sigmoid(i) * np.tanh(g)
    shown = sigmoid(o) * np.tanh(mixer @ z)
    np.testing.assert_allclose(state.c, z, atol=1e-5)
    np.testing.assert_allclose(state.h, shown, atol=1e-5)
    np.testing.assert_allclose(y, shown, atol=1e-5)


@pytest.mark.parametrize("reset_after", [False, True])
def test_the_gates_of_a_gru(reset_after):
    U, V, b = weights(3)
    offset = RNG.standard_normal(M)
    cell = GRU(
        stack_gates(U),
        stack_gates(V),
        stack_gates(b),
        jnp.asarray(offset, jnp.float32) if reset_after else None,
    )
    state, y = step(cell, jnp.asarray(Z, jnp.float32), X)
    r, s, v = (v @ X + c for v, c in zip(V, b))
    reset = sigmoid(r + U[0] @ Z)
    keep = sigmoid(s + U[1] @ Z)
    new = (
        np.tanh(v + reset * (U[2] @ Z + offset)) if reset_after else np.tanh(v + U[2] @ (reset * Z))
    )
    z = keep * Z + (1 - keep) * new
    np.testing.assert_allclose(state, z, atol=1e-5)
    np.testing.assert_allclose(y, z, atol=1e-5)


def test_initialisation():
    """The forget or update bias is as given, all other biases are 0; each gate is drawn with its
    own key.
    """
    keys = []

    def number(key, shape):
        keys.append(jax.random.key_data(key).tolist())
        return jnp.asarray(np.full(shape, len(keys), np.float32))

    drawn = {
        "initialiser": Initialiser(number),
        "recurrent_initialiser": Initialiser(number),
        "key": jax.random.key(0),
    }
    lstm = LSTM.init(N, M, **drawn)
    gru = GRU.init(N, M, update_bias=2.0, reset_after=True, **drawn)
    assert lstm.b.tolist() == [0.0] * M + [1.0] * M + [0.0] * 2 * M
    assert gru.b.tolist() == [0.0] * M + [2.0] * M + [0.0] * M
    assert gru.c.tolist() == [0.0] * M
    assert lstm.M is None
    assert np.asarray(lstm.U)[:, 0].reshape(4, M).tolist() == [[i] * M for i in (1, 2, 3, 4)]
    assert np.asarray(lstm.V)[:, 0].reshape(4, M).tolist() == [[i] * M for i in (5, 6, 7, 8)]
    assert gru.U.shape == (3 * M, M)
    assert gru.V.shape == (3 * M, N)
    assert len(set(map(tuple, keys[:8]))) == 8
    assert lstm.start.c.tolist() == lstm.start.h.tolist() == gru.start.tolist() == [0.0] * M

"""A cell along a sequence: the scan against a loop in NumPy, its laws in time, its gradient."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import tree
from thetax.core import predict
from thetax.layers import Chain, Elman, Linear, Recurrent, relu, tanh, unroll

CELL = Elman.init(3, 4, key=jr.key(0))
XS = jr.normal(jr.key(1), (6, 3))


def by_hand(cell, xs, z):
    U, V, b = (np.asarray(a) for a in (cell.U, cell.V, cell.b))
    states = []
    for x in np.asarray(xs):
        z = np.tanh(U @ z + V @ x + b)
        states.append(z)
    return np.array(states)


def test_it_is_the_loop():
    state, ys = unroll(CELL, XS)
    expected = by_hand(CELL, XS, np.zeros(4))
    np.testing.assert_allclose(ys, expected, atol=1e-6)
    np.testing.assert_allclose(state, expected[-1], atol=1e-6)
    np.testing.assert_allclose(Recurrent(CELL)(XS), expected, atol=1e-6)


def test_one_step_is_the_equation():
    cell = Elman(2 * jnp.eye(2), jnp.ones((2, 1)), jnp.array([0.0, -9.0]), relu)
    state, y = cell(jnp.array([1.0, 2.0]), jnp.array([3.0]))
    assert state.tolist() == y.tolist() == [5.0, 0.0]  # 2 + 3, and 4 + 3 - 9 cut at 0


def test_a_stretch_goes_on_where_the_last_one_ended():
    state, first = unroll(CELL, XS[:2])
    end, rest = unroll(CELL, XS[2:], state=state)
    np.testing.assert_allclose(jnp.concatenate([first, rest]), unroll(CELL, XS)[1], atol=1e-6)
    np.testing.assert_allclose(end, unroll(CELL, XS)[0], atol=1e-6)


def test_later_inputs_do_not_change_earlier_states():
    other = XS.at[4:].set(9.0)
    np.testing.assert_array_equal(unroll(CELL, XS)[1][:4], unroll(CELL, other)[1][:4])
    assert not jnp.allclose(unroll(CELL, XS)[1][4:], unroll(CELL, other)[1][4:])


def test_one_set_of_weights_serves_every_length():
    layer = Recurrent(CELL)
    assert tree.size(layer) == 4 * 4 + 4 * 3 + 4
    assert [layer(XS[:t]).shape for t in (1, 6)] == [(1, 4), (6, 4)]


@pytest.mark.usefixtures("x64")
def test_the_gradient_is_the_sum_over_times():
    """The gradient of a shared weight is the sum of the gradients of its copies, one a time."""
    cell = Elman.init(3, 4, key=jr.key(2))
    xs = jr.normal(jr.key(3), (5, 3))

    def unshared(cells):
        z = cell.start
        for t, x in enumerate(xs):
            z, _ = jax.tree.map(lambda a: a[t], cells)(z, x)  # noqa: B023
        return jnp.square(z).sum()

    copies = jax.tree.map(lambda a: jnp.stack([a] * 5), cell)
    summed = jax.tree.map(lambda a: a.sum(axis=0), jax.grad(unshared)(copies))
    shared = jax.grad(lambda cell: jnp.square(unroll(cell, xs)[0]).sum())(cell)
    for a, b in zip(jax.tree.leaves(shared), jax.tree.leaves(summed)):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_it_is_a_layer_of_a_network():
    net = Chain(Recurrent(CELL), lambda states: states[-1], Linear.init(4, 1, key=jr.key(4)))
    batch = jr.normal(jr.key(5), (7, 6, 3))
    np.testing.assert_allclose(predict(net, batch)[3], net(batch[3]), atol=1e-6)


def test_how_it_begins():
    """An orthogonal U keeps every norm; without a word read the state is zero."""
    np.testing.assert_allclose(CELL.U @ CELL.U.T, jnp.eye(4), atol=1e-6)
    assert CELL.start.tolist() == [0.0] * 4
    assert CELL.activation is tanh


@pytest.mark.usefixtures("unchecked")
def test_bad_shapes():
    with pytest.raises(ValueError, match=r"Elman: expected one example of shape \(3,\), got \(5,\)"):
        unroll(CELL, jnp.ones((2, 5)))
    with pytest.raises(ValueError, match=r"expected one sequence \(t, n\), got \(2, 6, 3\); map over a batch"):
        unroll(CELL, jnp.ones((2, 6, 3)))
    with pytest.raises(ValueError, match=r"Elman: U must be \(m, m\), V \(m, n\) and b \(m,\)"):
        Elman(jnp.ones((2, 3)), jnp.ones((2, 3)), jnp.ones(2))

"""A cell along a sequence: the scan against a loop in NumPy, causality, masks, gradients."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import CELLS

from thetax import tree
from thetax.core import predict
from thetax.layers import (
    LSTM,
    Bidirectional,
    Chain,
    DeepTransition,
    Elman,
    Linear,
    Recurrent,
    StackedCells,
    relu,
    tanh,
    unroll,
)

CELL = Elman.init(3, 4, key=jr.key(0))
XS = jr.normal(jr.key(1), (6, 3))


def rnn_in_numpy(cell, xs, z):
    U, V, b = (np.asarray(a) for a in (cell.U, cell.V, cell.b))
    states = []
    for x in np.asarray(xs):
        z = np.tanh(U @ z + V @ x + b)
        states.append(z)
    return np.array(states)


def test_equals_the_loop():
    state, ys = unroll(CELL, XS)
    expected = rnn_in_numpy(CELL, XS, np.zeros(4))
    np.testing.assert_allclose(ys, expected, atol=1e-6)
    np.testing.assert_allclose(state, expected[-1], atol=1e-6)
    np.testing.assert_allclose(Recurrent(CELL)(XS), expected, atol=1e-6)


def test_one_step():
    cell = Elman(2 * jnp.eye(2), jnp.ones((2, 1)), jnp.array([0.0, -9.0]), relu)
    state, y = cell(jnp.array([1.0, 2.0]), jnp.array([3.0]))
    assert state.tolist() == y.tolist() == [5.0, 0.0]  # 2 + 3, and 4 + 3 - 9 cut at 0


def test_segments_continue_from_the_last_state():
    state, first = unroll(CELL, XS[:2])
    end, rest = unroll(CELL, XS[2:], state=state)
    np.testing.assert_allclose(jnp.concatenate([first, rest]), unroll(CELL, XS)[1], atol=1e-6)
    np.testing.assert_allclose(end, unroll(CELL, XS)[0], atol=1e-6)


def test_causality():
    other = XS.at[4:].set(9.0)
    np.testing.assert_array_equal(unroll(CELL, XS)[1][:4], unroll(CELL, other)[1][:4])
    assert not jnp.allclose(unroll(CELL, XS)[1][4:], unroll(CELL, other)[1][4:])


def test_any_sequence_length():
    layer = Recurrent(CELL)
    assert tree.size(layer) == 4 * 4 + 4 * 3 + 4
    assert [layer(XS[:t]).shape for t in (1, 6)] == [(1, 4), (6, 4)]


@pytest.mark.usefixtures("x64")
def test_gradient_is_the_sum_over_time_steps():
    """The gradient of a shared weight is the sum of the gradients of its copies, one per
    time step.
    """
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


def test_in_a_network():
    net = Chain(Recurrent(CELL), lambda states: states[-1], Linear.init(4, 1, key=jr.key(4)))
    batch = jr.normal(jr.key(5), (7, 6, 3))
    np.testing.assert_allclose(predict(net, batch)[3], net(batch[3]), atol=1e-6)


def test_initialisation():
    """An orthogonal U preserves norms; the initial state is zero."""
    np.testing.assert_allclose(CELL.U @ CELL.U.T, jnp.eye(4), atol=1e-6)
    assert CELL.start.tolist() == [0.0] * 4
    assert CELL.activation is tanh


@pytest.mark.usefixtures("unchecked")
def test_bad_shapes():
    with pytest.raises(
        ValueError, match=r"Elman: expected one example of shape \(3,\), got \(5,\)"
    ):
        unroll(CELL, jnp.ones((2, 5)))
    with pytest.raises(
        ValueError, match=r"expected one sequence \(t, n\), got \(2, 6, 3\); map over a batch"
    ):
        unroll(CELL, jnp.ones((2, 6, 3)))
    with pytest.raises(ValueError, match=r"Elman: U must be \(m, m\), V \(m, n\) and b \(m,\)"):
        Elman(jnp.ones((2, 3)), jnp.ones((2, 3)), jnp.ones(2))
    with pytest.raises(ValueError, match="the sequence is empty"):
        unroll(CELL, jnp.ones((0, 3)))
    with pytest.raises(
        ValueError,
        match=r"mask must be bool with one entry for each of the 6 time steps; got bool \(5,\)",
    ):
        unroll(CELL, XS, mask=jnp.ones(5, bool))
    with pytest.raises(ValueError, match=r"got float32 \(6,\)"):
        unroll(CELL, XS, mask=jnp.ones(6))


@pytest.mark.usefixtures("unchecked")
def test_tokens_or_vectors():
    with pytest.raises(ValueError, match=r"got \(5, 3\); map .*or convert vectors to floats"):
        unroll(CELL, jnp.ones((5, 3), int))
    with pytest.raises(ValueError, match=r"got \(5,\); tokens must be integers"):
        unroll(CELL, jnp.ones(5))


@pytest.mark.usefixtures("unchecked")
def test_lists_as_input():
    there = [True, True, False, True, True, False]
    found = unroll(CELL, XS.tolist(), mask=there)[1]  # pyright: ignore
    np.testing.assert_array_equal(found, unroll(CELL, XS, mask=jnp.array(there))[1])


@pytest.mark.parametrize("reverse", [False, True])
def test_wrong_state_structure(reverse):
    with pytest.raises(ValueError, match=r"shapes of cell.start, \(4,\); got \(5,\)\."):
        unroll(CELL, XS, state=jnp.zeros(5), reverse=reverse)
    with pytest.raises(
        ValueError, match=r"start, LSTMState\(.*=\(2,\), .*=\(2,\)\); got \(\(2,\), \(2,\)\)\."
    ):
        unroll(
            LSTM.init(3, 2, key=jr.key(0)), XS, state=(jnp.zeros(2), jnp.zeros(2)), reverse=reverse
        )


def test_function_cell_with_a_given_state():
    total = lambda state, x: (state + x, state)
    state, _ = unroll(total, XS, state=jnp.zeros(3))
    np.testing.assert_allclose(state, XS.sum(axis=0), atol=1e-6)
    with pytest.raises(ValueError, match="unroll: expected a cell, got a function"):
        unroll(total, XS)


# What holds for every cell

cells = pytest.mark.parametrize("make", CELLS.values(), ids=CELLS.keys())
MASK = jnp.array([True, True, False, True, True, False])


def step_by_step(cell, xs, state=None):
    """A Python loop over the cell (streaming)."""
    state = cell.start if state is None else state
    ys = []
    for x in xs:
        state, y = cell(state, x)
        ys.append(y)
    return state, jnp.stack(ys)


def close(ours, expected, tolerance=1e-12):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.sampled(4)
@cells
@pytest.mark.usefixtures("x64")
def test_unroll_equals_streaming(make):
    """From the initial state, from another state, and in two segments."""
    cell = make(key=jr.key(0))
    xs = jr.normal(jr.key(1), (6, 3))
    close(unroll(cell, xs), step_by_step(cell, xs))
    middle, _ = unroll(cell, xs[:2])
    close(unroll(cell, xs[2:], state=middle), step_by_step(cell, xs[2:], middle))


@pytest.mark.sampled(4)
@cells
@pytest.mark.usefixtures("x64")
def test_mask_skips_time_steps(make):
    """The same as the sequence without the masked steps, whose outputs are 0."""
    cell = make(key=jr.key(0))
    xs = jr.normal(jr.key(1), (6, 3))
    state, ys = unroll(cell, xs, mask=MASK)
    expected, there = step_by_step(cell, xs[MASK])
    close((state, ys[MASK]), (expected, there))
    assert not ys[~MASK].any()
    back, turned = unroll(cell, xs, mask=MASK, reverse=True)
    expected, there = step_by_step(cell, xs[MASK][::-1])
    close((back, turned[MASK]), (expected, there[::-1]))


@pytest.mark.slow
@cells
@pytest.mark.usefixtures("x64")
def test_gradients_equal_the_loop(make):
    """Reverse and forward mode, in weights, inputs and initial state, with masked steps."""
    cell = make(key=jr.key(0))
    xs = jr.normal(jr.key(1), (4, 3))
    mask = jnp.array([True, False, True, True])

    def total(cell, xs, state):
        state, ys = unroll(cell, xs, state=state, mask=mask)
        return sum(jnp.square(jnp.abs(leaf)).sum() for leaf in (*jax.tree.leaves(state), ys))

    def looped(cell, xs, state):
        state, ys = step_by_step(cell, xs[np.array([0, 2, 3])], state)
        return sum(jnp.square(jnp.abs(leaf)).sum() for leaf in (*jax.tree.leaves(state), ys))

    start, _ = step_by_step(cell, xs[:1])
    given = cell, xs, start
    close(
        jax.grad(total, argnums=(0, 1, 2))(*given),
        jax.grad(looped, argnums=(0, 1, 2))(*given),
        1e-10,
    )
    change = jax.tree.map(
        lambda leaf: jnp.cos(jnp.arange(leaf.size)).reshape(leaf.shape).astype(leaf.dtype), given
    )
    close(jax.jvp(total, given, change)[1], jax.jvp(looped, given, change)[1], 1e-10)


def test_bidirectional():
    """The backward half is the other cell on the reversed sequence."""
    other = Elman.init(3, 2, key=jr.key(5))
    both = Bidirectional(CELL, other)(XS)
    np.testing.assert_allclose(both[:, :4], unroll(CELL, XS)[1], atol=1e-6)
    np.testing.assert_allclose(both[:, 4:], unroll(other, XS[::-1])[1][::-1], atol=1e-6)


def test_stacked_cells_equal_a_chain():
    upper = Elman.init(4, 2, key=jr.key(6))
    found = Recurrent(StackedCells(CELL, upper))(XS)
    np.testing.assert_allclose(found, Chain(Recurrent(CELL), Recurrent(upper))(XS), atol=1e-6)


def test_one_layer_deep_transition_is_elman():
    joined = Linear(jnp.concatenate([CELL.U, CELL.V], axis=1), CELL.b)
    found = unroll(DeepTransition(Chain(joined, tanh), 4), XS)[1]
    np.testing.assert_allclose(found, unroll(CELL, XS)[1], atol=1e-6)


def test_recurrent_weight_gradient_is_one_product():
    """No product of the backward scan has the shape of the matrix: its gradient is computed after
    the scan.
    """
    cell = CELLS["LSTM"](key=jr.key(0))
    loss = lambda cell, xs: unroll(cell, xs)[1].sum()
    program = jax.make_jaxpr(jax.grad(loss))(cell, XS)
    scans = [eqn for eqn in program.eqns if eqn.primitive.name == "scan"]
    assert len(scans) == 2  # there and back
    inside = [
        v.aval.shape for eqn in scans for e in eqn.params["jaxpr"].jaxpr.eqns for v in e.outvars
    ]
    assert cell.U.shape not in inside

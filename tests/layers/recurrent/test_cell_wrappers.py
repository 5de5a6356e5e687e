"""Truncated backpropagation: values and gradients of windows that know nothing of one another; what
is no cell.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.layers import (
    LSTM,
    Bidirectional,
    Block,
    Elman,
    Linear,
    Recurrent,
    Stack,
    Truncated,
    unroll,
)

CELL = Elman.init(3, 4, key=jr.key(0))
XS = jr.normal(jr.key(1), (7, 3))
WEIGHTS = jr.normal(jr.key(2), (7, 4))


@pytest.mark.parametrize("steps", [1, 3, 7, 20])
def test_the_values_are_those_of_the_cell(steps):
    mask = jnp.array([True, False, True, True, True, False, True])
    for given in (None, mask):
        state, ys = unroll(Truncated(CELL, steps), XS, mask=given)
        expected, zs = unroll(CELL, XS, mask=given)
        np.testing.assert_allclose(ys, zs, atol=1e-6)
        np.testing.assert_allclose(state, expected, atol=1e-6)


def test_a_state_of_parts():
    lstm = LSTM.init(3, 2, key=jr.key(0))
    state, _ = unroll(Truncated(lstm, 3), XS)
    np.testing.assert_allclose(state.cell, unroll(lstm, XS)[0].cell, atol=1e-6)


@pytest.mark.parametrize("steps", [2, 3])
def test_the_gradient_is_that_of_each_window_alone(steps):
    """Windows by hand: the states that each begins in are numbers, with no past."""
    states = [CELL.start, *unroll(CELL, XS)[1]]

    def windows(cell):
        total = 0.0
        for at in range(0, 7, steps):
            _, ys = unroll(cell, XS[at : at + steps], state=states[at])
            total += (ys * WEIGHTS[at : at + steps]).sum()
        return total

    cut = jax.grad(lambda cell: (unroll(Truncated(cell, steps), XS)[1] * WEIGHTS).sum())(CELL)
    full = jax.grad(lambda cell: (unroll(cell, XS)[1] * WEIGHTS).sum())(CELL)
    expected = jax.grad(windows)(CELL)
    np.testing.assert_allclose(cut.U, expected.U, atol=1e-5)
    np.testing.assert_allclose(cut.V, expected.V, atol=1e-5)
    assert not np.allclose(cut.U, full.U, atol=1e-3)


LAYER = Linear.init(3, 4, key=jr.key(3))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Recurrent(Recurrent(CELL)), "Recurrent: got a Recurrent"),
        (lambda: Recurrent(LAYER), "Recurrent: got a Linear"),
        (lambda: Recurrent(Elman), "Recurrent: got the class Elman"),
        (lambda: Bidirectional(Recurrent(CELL), CELL), "Bidirectional: got a Recurrent"),
        (lambda: Bidirectional(CELL, LAYER), "Bidirectional: got a Linear"),
        (lambda: Stack((CELL, CELL)), "Stack: got a tuple"),
        (lambda: Block(LAYER, LAYER, LAYER), "Block: got a Linear"),
        (lambda: Truncated(LAYER, 2), "Truncated: got a Linear"),
    ],
)
def test_what_is_no_cell_is_refused(make, says):
    with pytest.raises(
        ValueError, match=rf"^{says}, which is no cell: .* has a `start`.* Stack\(one, two\)"
    ):
        make()


def test_no_steps():
    with pytest.raises(ValueError, match="steps counts times and must be at least 1; got 0"):
        Truncated(CELL, 0)

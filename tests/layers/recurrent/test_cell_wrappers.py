"""Truncated backpropagation through time: values and gradients of the windows; arguments that are
not cells.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.layers import (
    LSTM,
    Bidirectional,
    Elman,
    Linear,
    Recurrent,
    ResidualCell,
    StackedCells,
    TruncatedBPTT,
    unroll,
)

CELL = Elman.init(3, 4, key=jr.key(0))
XS = jr.normal(jr.key(1), (7, 3))
WEIGHTS = jr.normal(jr.key(2), (7, 4))


@pytest.mark.parametrize("steps", [1, 3, 7, 20])
def test_truncation_keeps_the_values(steps):
    mask = jnp.array([True, False, True, True, True, False, True])
    for given in (None, mask):
        state, ys = unroll(TruncatedBPTT(CELL, steps), XS, mask=given)
        expected, zs = unroll(CELL, XS, mask=given)
        np.testing.assert_allclose(ys, zs, atol=1e-6)
        np.testing.assert_allclose(state, expected, atol=1e-6)


def test_structured_state():
    lstm = LSTM.init(3, 2, key=jr.key(0))
    state, _ = unroll(TruncatedBPTT(lstm, 3), XS)
    np.testing.assert_allclose(state.c, unroll(lstm, XS)[0].c, atol=1e-6)


@pytest.mark.parametrize("steps", [2, 3])
def test_gradient_stays_in_its_window(steps):
    """The windows computed separately, each from a constant initial state."""
    states = [CELL.start, *unroll(CELL, XS)[1]]

    def windows(cell):
        total = 0.0
        for at in range(0, 7, steps):
            _, ys = unroll(cell, XS[at : at + steps], state=states[at])
            total += (ys * WEIGHTS[at : at + steps]).sum()
        return total

    cut = jax.grad(lambda cell: (unroll(TruncatedBPTT(cell, steps), XS)[1] * WEIGHTS).sum())(CELL)
    full = jax.grad(lambda cell: (unroll(cell, XS)[1] * WEIGHTS).sum())(CELL)
    expected = jax.grad(windows)(CELL)
    np.testing.assert_allclose(cut.U, expected.U, atol=1e-5)
    np.testing.assert_allclose(cut.V, expected.V, atol=1e-5)
    assert not np.allclose(cut.U, full.U, atol=1e-3)


LAYER = Linear.init(3, 4, key=jr.key(3))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Recurrent(Recurrent(CELL)), "Recurrent: expected a cell, got a Recurrent"),
        (lambda: Recurrent(LAYER), "Recurrent: expected a cell, got a Linear"),
        (lambda: Recurrent(Elman), "Recurrent: expected a cell, got the class Elman"),
        (
            lambda: Bidirectional(Recurrent(CELL), CELL),
            "Bidirectional: expected a cell, got a Recurrent",
        ),
        (lambda: Bidirectional(CELL, LAYER), "Bidirectional: expected a cell, got a Linear"),
        (lambda: StackedCells((CELL, CELL)), "StackedCells: expected a cell, got a tuple"),
        (lambda: ResidualCell(LAYER, LAYER, LAYER), "ResidualCell: expected a cell, got a Linear"),
        (lambda: TruncatedBPTT(LAYER, 2), "TruncatedBPTT: expected a cell, got a Linear"),
    ],
)
def test_arguments_must_be_cells(make, says):
    with pytest.raises(
        ValueError, match=rf"^{says}\. .* initial state `start`.* StackedCells\(one, two\)"
    ):
        make()


def test_zero_steps():
    with pytest.raises(ValueError, match="TruncatedBPTT: steps must be an integer >= 1; got 0"):
        TruncatedBPTT(CELL, 0)

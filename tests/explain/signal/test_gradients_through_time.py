"""Signals through time against chains of finite steps, and eigenvalues against what they mean."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import explain
from thetax.explain.signal.recurrence import as_vector
from thetax.layers import (
    GRU,
    LRU,
    LSTM,
    AntisymmetricRNN,
    Bidirectional,
    Chain,
    DiagonalSSM,
    Elman,
    LayerNorm,
    Linear,
    MinGRU,
    Recurrent,
    ResidualCell,
    StackedCells,
    TruncatedBPTT,
    unroll,
)
from thetax.models import EncoderDecoder, LanguageModelCell, NGram, SequenceClassifier

CELLS = {
    "Elman": lambda key: Elman.init(2, 3, key=key),
    "LSTM": lambda key: LSTM.init(2, 3, key=key),
    "GRU": lambda key: GRU.init(2, 3, key=key),
    "MinGRU": lambda key: MinGRU.init(2, 3, key=key),
    "LRU": lambda key: LRU.init(2, 3, 2, key=key),
    "Stack": lambda key: StackedCells(Elman.init(2, 3, key=key), GRU.init(3, 2, key=key)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_norms_are_those_of_the_jacobian_of_all_steps_at_once(name, x64):
    """One route multiplies the Jacobians of steps; the other runs the rest of the sequence from a
    changed state.
    """
    cell = jax.tree.map(lambda a: a.astype(float), CELLS[name](jr.key(0)))
    xs = jr.normal(jr.key(1), (2, 4, 2))
    found = explain.gradients_through_time(cell, xs)
    state, _ = unroll(cell, xs[1, :1])
    z, back = as_vector(state)
    rest = lambda z: as_vector(unroll(cell, xs[1, 1:], state=back(jnp.asarray(z)))[0])[0]
    step = 1e-6
    columns = [(rest(z + step * e) - rest(z - step * e)) / (2 * step) for e in jnp.eye(len(z))]
    assert found.norms[1, 2] == pytest.approx(
        np.linalg.norm(np.stack(columns, axis=1), 2), rel=1e-6
    )
    assert found.state_size == len(z)
    assert found.norms[:, 0] == pytest.approx(found.max_singular_values[:, -1])  # one step back
    assert (found.min_singular_values <= found.max_singular_values).all()
    assert (found.norms[:, -1] <= found.max_singular_values.prod(axis=1) * (1 + 1e-9)).all()
    assert (found.norms[:, -1] >= found.min_singular_values.prod(axis=1) * (1 - 1e-9)).all()


@pytest.mark.slow
def test_the_bound_of_an_elman_cell_holds_and_is_met_by_a_linear_one():
    key_cell, key_xs = jr.split(jr.key(0))
    xs = jr.normal(key_xs, (3, 6, 2))
    cell = Elman.init(2, 4, key=key_cell)
    found = explain.gradients_through_time(cell, xs)
    assert found.bound == pytest.approx(np.ones(6), rel=1e-5)  # an orthogonal U and tanh
    assert found.bound is not None
    assert (found.norms <= found.bound[None] * (1 + 1e-5)).all()
    line = Elman(1.3 * cell.U, cell.V, cell.b, jax.nn.identity)
    grown = explain.gradients_through_time(line, xs)
    assert grown.norms == pytest.approx(np.tile(1.3 ** np.arange(1, 7), (3, 1)), rel=1e-4)
    assert grown.mean_factor == pytest.approx(1.3, rel=1e-4)
    assert explain.gradients_through_time(LSTM.init(2, 3, key=key_cell), xs).bound is None


@pytest.mark.slow
def test_product_below_the_smallest_float_is_computed():
    cell = Elman(1e-3 * jnp.eye(2), jnp.ones((2, 1)), jnp.zeros(2), jax.nn.identity)
    found = explain.gradients_through_time(cell, jnp.ones((1, 30, 1)))
    assert found.norms[0, -1] == pytest.approx(1e-90, rel=1e-3)


def test_dead_unit_has_zero_norms():
    cell = Elman(-jnp.eye(2), jnp.ones((2, 1)), -jnp.ones(2), jax.nn.relu)
    assert explain.gradients_through_time(cell, jnp.zeros((1, 3, 1))).norms.tolist() == [[0, 0, 0]]


@pytest.mark.slow
def test_only_the_last_times_and_only_what_is_there():
    cell = Elman.init(2, 3, key=jr.key(0))
    xs = jr.normal(jr.key(1), (2, 5, 2))
    whole = explain.gradients_through_time(cell, xs)
    few = explain.gradients_through_time(cell, xs, max_lag=2)
    assert few.norms == pytest.approx(whole.norms[:, :2])
    model = SequenceClassifier.init(3, 2, width=2, vocab_size=4, cell=Elman.init, key=jr.key(2))
    padded = explain.gradients_through_time(model, jnp.array([[1, 3, 0, -1, -1]]))
    short = explain.gradients_through_time(model, jnp.array([[1, 3, 0]]))
    assert padded.norms[0, :2] == pytest.approx([1, 1])
    assert padded.norms[0, 2:] == pytest.approx(short.norms[0], rel=1e-5)


TOKENS = jnp.array([[0, 3, 2], [1, 1, 0]])


@pytest.mark.slow
def test_a_cell_is_found_within_models():
    key = jr.key(0)
    elman = Elman.init(2, 3, key=key)
    xs = jr.normal(jr.key(1), (2, 4, 2))
    alone = explain.gradients_through_time(elman, xs)
    within = Chain(Recurrent(elman), lambda ys: ys[-1], Linear.init(3, 2, key=key))
    assert explain.gradients_through_time(within, xs).norms == pytest.approx(alone.norms, rel=1e-5)
    assert explain.gradients_through_time(
        Recurrent(TruncatedBPTT(elman, 2)), xs
    ).bound == pytest.approx(alone.bound)
    back = explain.gradients_through_time(Recurrent(elman, reverse=True), xs[:, ::-1])
    assert back.norms == pytest.approx(alone.norms, rel=1e-5)
    assert explain.gradients_through_time(Bidirectional(elman, elman), xs).norms == pytest.approx(
        alone.norms, rel=1e-5
    )
    words = LanguageModelCell.init(4, 2, 3, cell=Elman.init, key=key)
    inner = explain.gradients_through_time(words.cell, words.embed(TOKENS))
    for model in (words, Recurrent(words)):
        found = explain.gradients_through_time(model, TOKENS)
        assert found.norms == pytest.approx(inner.norms, rel=1e-5)
        assert found.layer == "Elman 1"
        assert found.bound is not None
    pairs = EncoderDecoder.init(4, 4, 2, 3, attention_width=2, key=key)
    assert (
        explain.gradients_through_time(pairs, (TOKENS, TOKENS)).layer == "LSTM 1"
    )  # the encoder's


def test_a_model_without_a_recurrence_is_rejected():
    assert explain.recurrent_cells(Linear.init(2, 3, key=jr.key(0))) == []
    with pytest.raises(ValueError, match="the model runs no recurrent cell"):
        explain.gradients_through_time(Linear.init(2, 3, key=jr.key(0)), jnp.ones((1, 2)))
    with pytest.raises(ValueError, match="recurrence_eigenvalues: the model has no recurrent cell"):
        explain.recurrence_eigenvalues(Linear.init(2, 3, key=jr.key(0)))
    with pytest.raises(ValueError, match="max_lag must be an integer >= 1; got 0"):
        explain.gradients_through_time(
            Elman.init(2, 3, key=jr.key(0)), jnp.ones((1, 4, 2)), max_lag=0
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda key: LRU.init(2, 4, 2, key=key),
        lambda key: DiagonalSSM.init(2, 4, 2, key=key),
        lambda key: DiagonalSSM.init(2, 4, 2, discretisation="bilinear", key=key),
    ],
)
def test_eigenvalues_of_a_linear_recurrence_are_by_what_the_state_is_multiplied(make):
    cell = make(jr.key(0))
    ones = jnp.ones_like(cell.start)
    factor = np.asarray(cell(ones, jnp.zeros(2))[0])
    found = explain.recurrence_eigenvalues(
        Recurrent(ResidualCell(LayerNorm.init(2), cell, jnp.tanh))
    )
    assert np.sort_complex(found.values) == pytest.approx(np.sort_complex(factor), abs=1e-6)
    assert found.source == "the linear recurrence"
    sizes = np.abs(found.values)
    assert (np.diff(sizes) <= 0).all()
    assert sizes**found.time_constants == pytest.approx(np.full(4, np.exp(-1)))


@pytest.mark.slow
def test_eigenvalues_of_other_cells():
    key = jr.key(0)
    elman = Elman.init(2, 3, key=key)
    found = explain.recurrence_eigenvalues(Chain(Recurrent(elman)))
    coefficients = np.poly(np.asarray(elman.U, np.float64))
    assert np.abs(np.polyval(coefficients, found.values)).max() < 1e-6
    assert found.spectral_radius == pytest.approx(1, rel=1e-5)
    gates = MinGRU.init(2, 3, key=key)
    xs = jr.normal(jr.key(1), (2, 4, 2))
    keep = np.asarray(gates.recurrence_terms(xs[0, 0])[0])
    assert np.sort(np.real(explain.recurrence_eigenvalues(gates, xs).values)) == pytest.approx(
        np.sort(keep), rel=1e-5
    )
    still = AntisymmetricRNN.init(2, 4, damping=0.0, key=key)
    calm = AntisymmetricRNN(still.W, jnp.zeros_like(still.V), still.b, 0.1, 0.0)
    values = explain.recurrence_eigenvalues(calm, xs).values
    assert np.real(values) == pytest.approx(np.ones(4), rel=1e-5)  # I + ε A, and A is antisymmetric
    assert (
        np.isinf(
            explain.signal.RecurrenceEigenvalues(np.array([1.0 + 0j, 2.0j]), "two").time_constants
        )
    ).all()
    with pytest.raises(ValueError, match="give xs"):
        explain.recurrence_eigenvalues(gates)


@pytest.mark.slow
def test_alignment_is_the_models_own_without_what_was_filled_up():
    model = EncoderDecoder.init(7, 5, 3, 4, attention_width=6, key=jr.key(0))
    source = jnp.array([2, 3, 6, -1])
    target = jnp.array([0, 4, 1, -1])
    found = explain.attention_alignment(model, source, target, vocabs=(tuple("abcdefg"), ()))
    assert found.weights == pytest.approx(np.asarray(model.alignment(source, target))[:3, :3])
    likeliest = str(int(model((source, target))[2].argmax()))
    assert (found.source, found.target) == (("c", "d", "g"), ("4", "1", likeliest))
    with pytest.raises(
        ValueError, match="token 6 of the source is outside the vocabulary of 2 strings"
    ):
        explain.attention_alignment(model, source, target, vocabs=(("a", "b"), ()))
    with pytest.raises(
        ValueError, match="Linear has no cross-attention; give a model with a method `alignment`"
    ):
        explain.attention_alignment(Linear.init(2, 2, key=jr.key(0)), source, target)


@pytest.mark.parametrize("m", [4, 16, 64])
def test_an_orthogonal_matrix_never_fades(m):
    """Its eigenvalues are rounded to either side of the circle; one that is truly inside has its
    time.
    """
    cell = Elman.init(2, m, key=jr.key(m))
    found = explain.recurrence_eigenvalues(cell)
    assert np.isinf(found.time_constants).all()
    assert not found.is_unstable.any()
    slow = explain.recurrence_eigenvalues(Elman((1 - 1e-4) * cell.U, cell.V, cell.b))
    assert slow.time_constants == pytest.approx(np.full(m, 1e4), rel=0.02)


def test_integer_state_is_rejected():
    counted = Recurrent(NGram.fit([0, 1, 0, 1], vocab_size=2, order=1))
    for lens in (explain.gradients_through_time, explain.recurrence_eigenvalues):
        with pytest.raises(
            ValueError,
            match="the state of the cell has integer entries, such as counts, and cannot be",
        ):
            lens(counted, jnp.zeros((1, 3), jnp.int32))

"""Threshold neurons: tables, gates, refusals (§1.1, §1.2)."""

from itertools import product

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import test_contracts as contract
from contracts import STEPS

from thetax.models import McCullochPitts, Perceptron


@pytest.mark.parametrize("row", STEPS, ids=lambda row: row.name)
@pytest.mark.usefixtures("strict", "unchecked")
def test_contracts_of_units_that_step(row, tmp_path):
    """Every contract of a model but the one on derivatives: theirs are 0."""
    contract.test_leaves_are_parameters(row)
    contract.test_compiled_model_contract(row)
    contract.test_jit_is_eager(row)
    contract.test_weights_round_trip(row, tmp_path)
    if row.wrong:
        contract.test_wrong_shape_raises(row)


def test_neuron_is_its_definition():
    """Against a loop over neurons and inputs; a sum equal to the threshold fires."""
    layer = McCullochPitts.init(3, 40, key=jr.key(0))
    layer = McCullochPitts(layer.sigma, jnp.round(layer.theta))
    assert set(np.unique(layer.sigma)) == {-1.0, 1.0}
    for x in product((0.0, 1.0), repeat=3):
        expected = [
            float(np.dot(s, x) >= t)
            for s, t in zip(np.asarray(layer.sigma), np.asarray(layer.theta))
        ]
        assert layer(jnp.array(x)).tolist() == expected


def test_synapses_are_signs():
    """0, 0.5 and NaN are no synapses; under jit nothing can be looked at, and nothing is."""
    for bad in (0.0, 0.5, np.nan):
        with pytest.raises(ValueError, match=r"\+1 or -1"):
            McCullochPitts(jnp.array([[1.0, bad]]), jnp.zeros(1))
    assert jax.jit(lambda s: McCullochPitts(s, jnp.zeros(1))(jnp.ones(2)))(
        jnp.zeros((1, 2))
    ).tolist() == [1.0]


@pytest.mark.usefixtures("unchecked")
def test_shapes_are_told():
    with pytest.raises(ValueError, match=r"theta \(m,\)"):
        McCullochPitts(jnp.ones((2, 3)), jnp.zeros(3))
    with pytest.raises(ValueError, match=r"w must be \(d,\)"):
        Perceptron(jnp.ones((2, 3)))
    with pytest.raises(ValueError, match="b a scalar"):
        Perceptron(jnp.ones(2), jnp.ones(1))


def test_perceptron_on_the_boundary_is_neither():
    """In integers, where the boundary can be met exactly; integers stay integers."""
    unit = Perceptron(jnp.array([2, -3]), jnp.array(1))
    assert [unit(x).item() for x in jnp.array([[1, 1], [2, 1], [0, 1]])] == [0, 1, -1]
    assert unit(jnp.array([1, 1])).dtype == jnp.int32
    assert unit.v.tolist() == [2, -3, 1]
    assert Perceptron(jnp.ones(2)).v.tolist() == [1.0, 1.0]

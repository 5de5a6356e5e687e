"""Tests of the lenses on optimisation."""

from dataclasses import replace

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from thetax import explain
from thetax.models import MLP
from thetax.recipes.engine.outcome import Outcome
from thetax.report import LENSES, look
from thetax.train import Silent, cross_entropy, descend, fit

TITLES = ("Loss landscape", "Convergence rate of the training loss")


@pytest.fixture
def lenses():
    before = list(LENSES)
    LENSES[:] = [shown for shown in LENSES if shown.title in TITLES]
    yield LENSES
    LENSES[:] = before


@pytest.fixture(scope="module")
def outcome():
    xs = jr.normal(jr.key(0), (256, 2))
    data = xs, (xs[:, 0] * xs[:, 1] > 0).astype(jnp.int32)
    found = fit(
        descend(cross_entropy, optax.adam(1e-2)),
        MLP.init(2, 16, 2, key=jr.key(1)),
        data,
        epochs=20,
        batch_size=32,
        key=jr.key(2),
        progress=Silent(),
    )
    return Outcome(found.model, data, data, cross_entropy, found.history, ("no", "yes"))


@pytest.mark.slow
def test_the_report_has_both_sections(outcome, lenses, tmp_path):
    text = look(outcome, tmp_path).read_text()
    assert [shown.title for shown in lenses] == list(TITLES)
    for name in ("loss-landscape", "convergence-rate-of-the-training-loss"):
        assert (tmp_path / "figures" / f"{name}.png").exists()
        assert f'id="{name}"' in text
    assert f"{float(cross_entropy(outcome.model, outcome.train)):.4g}" in text
    fitted = explain.fit_convergence_rate(outcome.history["train loss"], times=np.arange(1, 21))
    assert f"× {fitted.factor:.4g} per epoch" in text
    assert f"epoch to the power −{fitted.power:.3g}" in text
    spectrum = explain.hessian_spectrum(cross_entropy, outcome.model, outcome.train, key=jr.key(3))
    assert f"{2 / spectrum.top[0]:.2g}" in text


def test_without_a_history_there_is_no_rate(outcome, lenses, tmp_path):
    text = look(replace(outcome, history={}), tmp_path).read_text()
    assert "Loss landscape" in text
    assert "Convergence rate of the training loss" not in text


def test_a_model_of_vectors_has_no_filters(lenses):
    landscape = next(shown for shown in lenses if shown.title == TITLES[0])
    assert not landscape.applies(Outcome(jnp.ones(3), (), (), cross_entropy))

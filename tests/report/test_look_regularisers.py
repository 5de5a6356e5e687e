"""Tests of the lenses on weight decay and dropout."""

import re
from dataclasses import replace

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import explain, tree
from thetax.layers import Chain, DropConnect, Linear
from thetax.models import MLP
from thetax.recipes.engine.outcome import Outcome
from thetax.report import LENSES, look
from thetax.report.lenses.regularisers import describe_regularisation, without_weight_decay
from thetax.train import cross_entropy, squared_error, weight_decay

TITLES = (
    "Effective parameters under weight decay",
    "Dropout as a regulariser",
    "Uncertainty by MC dropout",
)


@pytest.fixture
def lenses():
    before = list(LENSES)
    LENSES[:] = [shown for shown in LENSES if shown.title in TITLES]
    yield LENSES
    LENSES[:] = before


def outcome(side=5, dropout=0.3, decay=0.01):
    xs = np.asarray(jr.normal(jr.key(0), (60, side * side)))
    data = xs, np.arange(60) % 3
    net = MLP.init(side * side, 6, 3, dropout=dropout, key=jr.key(1))
    objective = weight_decay(cross_entropy, strength=decay)
    return Outcome(net, data, data, objective, classes=("a", "b", "c"), decay=decay)


def headings(text):
    return re.findall(r"<h2>(.*?)</h2>", text)


@pytest.mark.slow
def test_the_report_has_all_three_sections_with_their_numbers(lenses, tmp_path):
    given = outcome()
    text = look(given, tmp_path).read_text()
    assert headings(text) == list(TITLES)
    assert text.count("<svg") == 3
    assert "weight decay 0.01, dropout of 30 % of units" in text
    found = explain.effective_parameters(
        without_weight_decay(given),
        given.model,
        given.train,
        strength=0.01,
        n_eigenvalues=12,
        key=jr.key(0),
    )
    assert f"about {100 * found.effective / found.parameters:.2g} % of 177" in text
    penalty = explain.dropout_penalty(
        given.objective, given.model, given.train, n_samples=30, key=jr.key(0)
    )
    assert f"{penalty.value:.3g} ± {penalty.error:.1g}" in text
    doubt = explain.dropout_uncertainty(given.model, given.test, n_samples=50, key=jr.key(0))
    assert f"<dd>{doubt.auroc:.3f}</dd>" in text


def test_the_weight_decay_is_removed_from_the_objective():
    given = outcome()
    plain = without_weight_decay(given)(given.model, given.train)
    assert float(plain) == pytest.approx(float(cross_entropy(given.model, given.train)), rel=1e-5)
    added = given.objective(given.model, given.train) - plain
    assert float(added) == pytest.approx(
        0.005 * float(tree.dot(given.model, given.model)), rel=1e-4
    )


@pytest.mark.parametrize(
    ("dropout", "decay", "titles"),
    [
        (0.0, 0.0, ()),
        (0.3, 0.0, TITLES[1:]),
        (0.0, 0.01, TITLES[:1]),
    ],
)
def test_sections_of_unused_regularisers_are_left_out(dropout, decay, titles, lenses, tmp_path):
    text = look(outcome(dropout=dropout, decay=decay), tmp_path).read_text()
    assert headings(text) == list(titles)
    assert ("<dt>regularisation</dt>" in text) == bool(titles)


def test_a_regression_with_dropout_has_the_penalty_only(lenses, tmp_path):
    given = outcome(decay=0.0)
    xs = given.train[0]
    data = xs, xs[:, :3]
    text = look(
        replace(given, train=data, test=data, objective=squared_error, classes=()), tmp_path
    ).read_text()
    assert headings(text) == [TITLES[1]]


@pytest.mark.slow
def test_examples_that_are_not_images_are_listed_in_a_table(lenses, tmp_path):
    text = look(outcome(side=3), tmp_path).read_text()
    assert text.count("<tr>") == 9  # a head, and the eight doubted most
    assert "mutual information" in text


def test_all_kinds_of_dropout_are_described():
    net = Chain(
        DropConnect(Linear.init(4, 5, key=jr.key(0)), 0.5),
        jnp.tanh,
        Linear.init(5, 3, key=jr.key(1)),
    )
    assert (
        describe_regularisation(Outcome(net, (), (), cross_entropy)) == "dropout of 50 % of weights"
    )
    two = MLP.init(4, 8, 8, 3, dropout=(0.4, 0.3), key=jr.key(0))
    assert (
        describe_regularisation(Outcome(two, (), (), cross_entropy))
        == "dropout of 40 % of units, dropout of 30 % of units"
    )
    assert (
        describe_regularisation(Outcome(MLP.init(4, 8, 3, key=jr.key(0)), (), (), cross_entropy))
        == ""
    )

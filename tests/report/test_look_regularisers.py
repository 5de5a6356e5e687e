"""The lenses on regularisers, through the report of a small network that decay and dropout held
back.
"""

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
from thetax.report.lenses.regularisers import acting, undecayed
from thetax.train import cross_entropy, squared_error, weight_decay

TITLES = ("Weight decay, direction by direction", "Dropout as a penalty", "Doubt by dropout")


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
def test_all_three_are_in_the_report_with_their_own_numbers(lenses, tmp_path):
    given = outcome()
    text = look(given, tmp_path).read_text()
    assert headings(text) == list(TITLES)
    assert text.count("<svg") == 3
    assert "weight decay 0.01, 30 % of units dropped" in text
    found = explain.shrinkage(
        undecayed(given), given.model, given.train, strength=0.01, count=12, key=jr.key(0)
    )
    assert f"about {100 * found.effective / found.parameters:.2g} % of 177" in text
    penalty = explain.dropout_penalty(
        given.objective, given.model, given.train, draws=30, key=jr.key(0)
    )
    assert f"{penalty.value:.3g} ± {penalty.error:.1g}" in text
    doubt = explain.doubt(given.model, given.test, draws=50, key=jr.key(0))
    assert f"{100 * doubt.ranking:.2f} % of the time" in text


def test_the_decay_is_taken_off_the_objective():
    given = outcome()
    plain = undecayed(given)(given.model, given.train)
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
def test_what_did_not_act_is_left_out(dropout, decay, titles, lenses, tmp_path):
    text = look(outcome(dropout=dropout, decay=decay), tmp_path).read_text()
    assert headings(text) == list(titles)
    assert ("held back by" in text) == bool(titles)


def test_a_regression_with_dropout_is_charged_but_doubts_nothing(lenses, tmp_path):
    given = outcome(decay=0.0)
    xs = given.train[0]
    data = xs, xs[:, :3]
    text = look(
        replace(given, train=data, test=data, objective=squared_error, classes=()), tmp_path
    ).read_text()
    assert headings(text) == [TITLES[1]]


@pytest.mark.slow
def test_examples_that_are_no_pictures_are_listed(lenses, tmp_path):
    text = look(outcome(side=3), tmp_path).read_text()
    assert text.count("<tr>") == 9  # a head, and the eight doubted most
    assert "disagreement" in text


def test_every_way_of_dropping_is_named():
    net = Chain(
        DropConnect(Linear.init(4, 5, key=jr.key(0)), 0.5),
        jnp.tanh,
        Linear.init(5, 3, key=jr.key(1)),
    )
    assert acting(Outcome(net, (), (), cross_entropy)) == "50 % of weights dropped"
    two = MLP.init(4, 8, 8, 3, dropout=(0.4, 0.3), key=jr.key(0))
    assert (
        acting(Outcome(two, (), (), cross_entropy))
        == "40 % of units dropped, 30 % of units dropped"
    )
    assert acting(Outcome(MLP.init(4, 8, 3, key=jr.key(0)), (), (), cross_entropy)) == ""

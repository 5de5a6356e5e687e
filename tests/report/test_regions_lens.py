"""Tests of the lens on linear regions and the decision boundary."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.explain import LinearRegions
from thetax.explain.predictions import DecisionBoundary
from thetax.layers import LayerNorm
from thetax.models import CNN, MLP, Perceptron
from thetax.recipes.engine.outcome import Outcome
from thetax.report import LENSES, look
from thetax.train import binary_cross_entropy, cross_entropy, squared_error

TITLE = "Linear regions and decision boundary"


@pytest.fixture
def only():
    before = list(LENSES)
    LENSES[:] = [shown for shown in LENSES if shown.title == TITLE]
    yield LENSES[0]
    LENSES[:] = before


def outcome(d, k, *, shape=None, classes=(), objective=cross_entropy, **options):
    xs = np.asarray(jr.normal(jr.key(1), (60, d))).reshape(60, *(shape or (d,)))
    ys = np.arange(60) % max(len(classes), 1) if classes else xs.reshape(60, -1)[:, 0]
    net = MLP.init(d, 8, 6, k, key=jr.key(0), **options)
    return Outcome(net, (xs[:30], ys[:30]), (xs[30:], ys[30:]), objective, classes=classes)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (outcome(2, 3, classes=("a", "b", "c")), DecisionBoundary),
        (
            outcome(2, 1, classes=("no", "yes"), objective=binary_cross_entropy, dropout=0.3),
            DecisionBoundary,
        ),
        (outcome(9, 3, shape=(3, 3), classes=("a", "b", "c")), DecisionBoundary),
        (outcome(5, 1, objective=squared_error), LinearRegions),
    ],
)
def test_piecewise_linear_networks(given, kind, only, tmp_path):
    assert only.applies(given)
    result = only.compute(given)
    assert isinstance(result, kind)
    text = look(given, tmp_path).read_text()
    found = result if isinstance(result, LinearRegions) else result.regions
    assert f"<dt>linear regions in view</dt><dd>{found.n_regions:,}</dd>" in text
    assert "This section could not be computed" not in text
    assert (tmp_path / "figures" / "linear-regions-and-decision-boundary.png").exists()


def test_the_plane_goes_through_three_classes(only):
    given = outcome(9, 3, classes=("a", "b", "c"))
    result = only.compute(given)
    on = result.distances < 1e-4
    assert on.sum() == 3
    assert sorted(result.labels[on]) == [0, 1, 2]


@pytest.mark.parametrize("options", [{"activation": jnp.tanh}, {"normalise": LayerNorm.init}])
def test_smooth_networks_have_a_boundary_without_regions(options, only, tmp_path):
    given = outcome(4, 3, classes=("a", "b", "c"), **options)
    assert only.compute(given).regions is None
    text = look(given, tmp_path).read_text()
    assert "<dt>linear regions</dt><dd>not counted: " in text
    assert text.count("<svg") == 1


def test_where_it_does_not_apply(only):
    assert not only.applies(outcome(4, 1, objective=squared_error, activation=jnp.tanh))
    assert not only.applies(outcome(1, 1, objective=squared_error))


def test_examples_on_a_line_define_no_plane(only, tmp_path):
    given = outcome(4, 3, classes=("a", "b", "c"))
    flat = np.outer(np.arange(30.0), np.ones(4)).astype(np.float32)
    line = Outcome(
        given.model, given.train, (flat, given.test[1]), given.objective, classes=given.classes
    )
    assert "all lie on one line" in look(line, tmp_path).read_text()


def test_the_regions_of_a_perceptron_are_described(only, tmp_path):
    xs = np.asarray(jr.normal(jr.key(1), (60, 2)))
    data = xs, (xs[:, 0] > 0).astype(np.int32)
    given = Outcome(
        Perceptron(jnp.array([1.0, 0.2])), data, data, binary_cross_entropy, classes=("no", "yes")
    )
    text = look(given, tmp_path).read_text()
    assert "not piecewise linear" not in text
    assert "constant on either side of its hyperplane" in text
    assert "<dt>linear segments of the boundary</dt><dd>1</dd>" in text


def test_a_convolutional_network_is_reported_as_not_supported(only, tmp_path):
    xs = np.asarray(jr.normal(jr.key(1), (9, 1, 4, 4)))
    data = xs, np.arange(9) % 3
    net = CNN.init((2,), classes=3, pool_size=1, key=jr.key(0))
    text = look(
        Outcome(net, data, data, cross_entropy, classes=("a", "b", "c")), tmp_path
    ).read_text()
    assert "not counted: CNN 1 is a CNN, a layer for which linear regions are not supported" in text
    assert "no linear regions" not in text
    assert "exactly" not in text

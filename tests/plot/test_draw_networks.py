"""Tests of the figures of network graphs, derivative costs, critical points and convexity."""

import jax
import jax.numpy as jnp
import jax.random as jr
import pytest
from matplotlib.collections import LineCollection, PathCollection

from thetax import explain
from thetax.models import MLP
from thetax.plot import DARK, LIGHT, draw


def drawn(result, kind):
    things = draw(result).axes[0].collections
    count = lambda thing: len(
        thing.get_segments() if kind is LineCollection else thing.get_offsets()
    )
    return sum(count(thing) for thing in things if isinstance(thing, kind))


def shape(*sizes):
    return jax.eval_shape(lambda: MLP.init(*sizes, key=jr.key(0)))


@pytest.mark.parametrize("sizes", [(1, 1), (3, 5, 2), (12, 12, 12)])
def test_small_networks_show_all_units(sizes):
    found = explain.network_graph(shape(*sizes))
    assert (drawn(found, PathCollection), drawn(found, LineCollection)) == (
        found.nodes,
        found.edges,
    )


def test_wide_layers_show_some_units_and_their_number():
    found = explain.network_graph(shape(784, 256, 3))
    assert (drawn(found, PathCollection), drawn(found, LineCollection)) == (10 + 10 + 3, 100 + 30)
    axes = draw(found).axes[0]
    assert axes.get_title(loc="left") == "1,043 nodes, 201,472 edges"
    assert sum(text.get_text() == "⋮" for text in axes.texts) == 2


@pytest.mark.parametrize("theme", [LIGHT, DARK])
@pytest.mark.parametrize("runs", [0, 1])
def test_costs(theme, runs):
    found = explain.derivative_cost(lambda w: jnp.sin(w).sum(), jnp.ones(4), n_runs=runs)
    figure = draw(found, theme=theme)
    assert len(figure.axes) == 1 + runs
    assert len(figure.axes[0].patches) == 6


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_critical_points_and_chords(theme):
    found = explain.critical_points(lambda t: t**4 - t**2, low=-1.0, high=1.0)
    assert len(draw(found, theme=theme).axes[0].lines) == 3  # the curve, the minima, the maximum
    chord = explain.convexity(lambda w, batch: jnp.sin(w), jnp.zeros(1), jnp.full(1, 3.0), None)
    assert "above its chord" in draw(chord, theme=theme).axes[0].get_title(loc="left")
    chord = explain.convexity(lambda w, batch: w**2, jnp.zeros(1), jnp.full(1, 3.0), None)
    assert "below every chord" in draw(chord, theme=theme).axes[0].get_title(loc="left")

"""Figures of graph networks hold the numbers of their results."""

import numpy as np
import pytest

from thetax.explain.graphs import (
    EdgeAttentionMaps,
    GraphAttribution,
    GraphSeparation,
    NodePredictions,
)
from thetax.plot import LIGHT, draw
from thetax.plot.networks import graphs
from thetax.plot.networks.graphs import graph_layout


def attribution(n: int, node: int | None = None) -> GraphAttribution:
    """A path whose last node and edge matter most."""
    senders = np.concatenate([np.arange(n - 1), np.arange(1, n)])
    receivers = np.concatenate([np.arange(1, n), np.arange(n - 1)])
    edges = np.minimum(senders, receivers) * -1.0
    return GraphAttribution(
        np.arange(n) * 1.0, np.arange(n) * 1.0, edges, edges, senders, receivers, 0, node, 1.5
    )


def test_a_layout_keeps_neighbours_close_and_is_always_the_same():
    u, v = np.arange(9), np.arange(1, 10)
    places = graph_layout(u, v, 10)
    np.testing.assert_array_equal(places, graph_layout(u, v, 10))
    length = lambda i, j: np.linalg.norm(places[i] - places[j])
    assert np.mean([length(i, i + 1) for i in range(9)]) < 0.5 * length(0, 9)


def test_nodes_and_edges_have_the_colours_and_widths_of_their_values():
    figure = draw(attribution(4, node=2))
    for axes in figure.axes:
        edges, nodes = axes.collections
        assert len(nodes.get_offsets()) == 4
        assert len(edges.get_segments()) == 6
        colours = nodes.get_facecolors()[:, :3]
        np.testing.assert_allclose(colours[3], _rgb(LIGHT.blue), atol=1e-6)
        np.testing.assert_allclose(edges.get_colors()[-1][:3], _rgb(LIGHT.orange), atol=1e-6)
        assert np.argmax(edges.get_linewidths()) >= 4
        assert np.argmax(nodes.get_linewidths()) == 2  # the explained node has a ring
        assert [note.get_text() for note in axes.texts] == ["0", "1", "2", "3"]
    assert "output 0 of node 2: 1.5" in figure.get_suptitle()


def test_of_a_large_graph_the_nodes_that_matter_are_drawn(monkeypatch):
    monkeypatch.setattr(graphs, "MAX_DRAWN_NODES", 5)
    axes = draw(attribution(12, node=0)).axes[0]
    assert [note.get_text() for note in axes.texts] == ["0", "8", "9", "10", "11"]
    assert len(axes.collections[0].get_segments()) == 6


def test_of_a_large_graph_a_connected_part_is_drawn(monkeypatch):
    """Around the mistake with most edges; a small component is not enough."""
    monkeypatch.setattr(graphs, "MAX_DRAWN_NODES", 5)
    senders = np.array([1, 0, 2, 1, 3, 2, 4, 3, 6, 5, 7, 6])
    receivers = np.array([0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 6, 7])
    labels = np.where(np.arange(9) == 6, 1, 0)
    result = NodePredictions(
        np.zeros(9, int), labels, np.ones(9), np.zeros((9, 2)), senders, receivers, ("a", "b")
    )
    left = draw(result).axes[0]
    drawn = [int(note.get_text()) for note in left.texts]
    assert drawn[-3:] == [5, 6, 7]  # the component of the mistake
    assert len(drawn) == 5
    rings = left.collections[1].get_linewidths()
    assert drawn[int(np.argmax(rings))] == 6


def test_the_legend_counts_the_pairs():
    model = np.array([[0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]], float)
    wl = np.array([[0, 1, 1, 0], [1, 0, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0]], bool)
    figure = draw(GraphSeparation(model, wl, "1-WL", tuple("abcd")))
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == [
        "told apart by both: 1",
        "by 1-WL only: 2",
        "by neither: 2",
        "by the model only: 1",
    ]


def test_effective_neighbours_are_drawn_against_their_number():
    result = EdgeAttentionMaps(
        ("GAT 1",),
        (np.array([[0.5], [0.25], [0.25], [0.5]]),),
        (np.full((3, 1), 0.5),),
        np.array([1, 0, 2, 1]),
        np.array([0, 1, 1, 2]),
    )
    points = draw(result).axes[1].lines[0]
    np.testing.assert_allclose(points.get_xdata(), [2, 3, 2], rtol=0.05)
    np.testing.assert_allclose(points.get_ydata(), [2, 2**1.5, 2], rtol=1e-6)


def _rgb(colour: str) -> list[float]:
    return [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]


@pytest.mark.parametrize("n", [1, 2])
def test_tiny_graphs(n):
    draw(attribution(n)).draw_without_rendering()

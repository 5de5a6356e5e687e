"""Label propagation against its closed form and a loop."""

import networkx as nx
import numpy as np
import pytest

from thetax.data import Graph
from thetax.models import label_propagation

CLUB = nx.karate_club_graph()
KARATE = Graph.from_edges(list(CLUB.edges))
FACTION = np.array([int(CLUB.nodes[v]["club"] == "Officer") for v in CLUB])
LEADERS = np.isin(np.arange(34), (0, 33))


def coupling(graph: nx.Graph) -> np.ndarray:
    A = nx.to_numpy_array(graph, weight=None)
    d = A.sum(axis=1)
    return A / np.sqrt(np.outer(d, d))


def test_the_limit_is_the_closed_form():
    S, Y = coupling(CLUB), np.eye(2)[FACTION] * LEADERS[:, None]
    scores = label_propagation(KARATE, FACTION, known=LEADERS, n_classes=2, alpha=0.8, steps=200)
    np.testing.assert_allclose(scores, 0.2 * np.linalg.solve(np.eye(34) - 0.8 * S, Y), atol=1e-5)


def test_steps_are_a_loop():
    S, Y = coupling(CLUB), np.eye(2)[FACTION] * LEADERS[:, None]
    F = Y
    for _ in range(3):
        F = 0.7 * S @ F + 0.3 * Y
    scores = label_propagation(KARATE, FACTION, known=LEADERS, n_classes=2, alpha=0.7, steps=3)
    np.testing.assert_allclose(scores, F, atol=1e-6)


def test_two_leaders_tell_the_factions_of_the_karate_club():
    scores = label_propagation(KARATE, FACTION, known=LEADERS, n_classes=2)
    assert (np.argmax(scores, axis=1) == FACTION).mean() > 0.9


def test_unknown_labels_are_not_used_and_other_components_are_not_reached():
    graph = Graph.from_edges([(0, 1), (2, 3)], n_nodes=5)
    known = np.array([True, False, False, False, False])
    scores = [
        label_propagation(graph, labels, known=known, n_classes=3)
        for labels in ([2, 0, 0, 0, 0], [2, -1, 1, 9, 1])
    ]
    np.testing.assert_array_equal(*scores)
    np.testing.assert_array_equal(scores[0][2:], 0)
    assert (scores[0][:2, 2] > 0).all()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": FACTION[:3]}, "expected a label and an entry of known for each of the 34"),
        ({"known": np.arange(34)}, "known is a mask of booleans"),
        ({"labels": FACTION + 0.5}, "labels are integers"),
        ({"n_classes": 1}, "expected labels from 0 to 0, but that of node 33 is 1"),
        ({"alpha": 1.0}, "alpha must be at least 0 and below 1"),
        ({"steps": 0}, "steps must be an integer >= 1"),
    ],
)
def test_bad_input(change, message):
    options = {"labels": FACTION, "known": LEADERS, "n_classes": 2} | change
    with pytest.raises(ValueError, match=message):
        label_propagation(KARATE, options.pop("labels"), **options)

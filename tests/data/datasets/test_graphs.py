"""Readers of graph datasets, on small files in their formats; the registry; and the real ones
(`pytest -m network`) against their published numbers.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from python2_pickles import array, links, matrix

from thetax import data
from thetax.data import load, load_arrays, load_graph, load_graphs
from thetax.data.datasets import graphs, store
from thetax.data.io.bounded_read import Blob
from thetax.data.io.pickled_arrays import CSRMatrix


def sparse(dense) -> CSRMatrix:
    dense = np.asarray(dense, np.float32)
    row, column = np.nonzero(dense)
    ends = np.cumsum(np.bincount(row, minlength=len(dense)))
    return CSRMatrix(
        dense.shape,
        dense[row, column],
        column.astype(np.int32),
        np.concatenate([[0], ends]).astype(np.int32),
    )


def planetoid(**changes) -> dict[str, Blob]:
    """Five nodes: 0 and 1 of allx, then test nodes 4 and 2; node 3 is in no file but the graph."""
    one_hot = lambda *ys: np.eye(3, dtype=np.int32)[list(ys)]
    parts = {
        "allx": matrix(sparse([[1, 0, 0, 2], [0, 1, 0, 0]])),
        "ally": array(one_hot(0, 1)),
        "tx": matrix(sparse([[0, 0, 7, 8], [5, 0, 6, 0]])),
        "ty": array(one_hot(2, 1)),
        "y": array(one_hot(0)),
        "graph": links({0: [1, 1, 4], 1: [0, 1], 2: [4], 3: [], 4: [0, 2]}),
        **changes,
    }
    blobs = {
        f"ind.toy.{name}": Blob(f"ind.toy.{name}", b"\x80\x02" + body + b".")
        for name, body in parts.items()
    }
    return blobs | {"ind.toy.test.index": Blob("ind.toy.test.index", b"4\n2\n")}


def test_planetoid_puts_test_nodes_in_their_places():
    arrays = graphs._from_planetoid(planetoid())
    data = _dense(arrays)
    np.testing.assert_array_equal(
        data, [[1, 0, 0, 2], [0, 1, 0, 0], [5, 0, 6, 0], [0, 0, 0, 0], [0, 0, 7, 8]]
    )
    assert arrays["labels"].tolist() == [0, 1, 1, -1, 2]
    assert arrays["test"].tolist() == [2, 4]
    assert arrays["train"].tolist() == [0]
    assert arrays["pairs"].tolist() == [[0, 1], [0, 4], [2, 4]]  # no loop, none doubled


def _dense(arrays):
    rows = np.zeros((len(arrays["row_ends"]), int(arrays["n_columns"])))
    start = 0
    for row, end in zip(rows, arrays["row_ends"]):
        row[arrays["columns"][start:end]] = arrays["values"][start:end]
        start = end
    return rows


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tx": matrix(sparse([[1, 0, 0, 0]]))}, "the indices do not fit"),
        ({"graph": links({0: [1], 1: [0]})}, "the indices do not fit"),
        ({"allx": array(np.eye(2))}, "expected sparse matrices and a dict"),
    ],
)
def test_planetoid_files_that_do_not_fit(changes, message):
    with pytest.raises(ValueError, match=message):
        graphs._from_planetoid(planetoid(**changes))


TU = {
    "A": "1, 2\n2, 1\n3, 4\n4, 3\n4, 5\n5, 4\n",
    "graph_indicator": "1\n1\n2\n2\n2\n",
    "graph_labels": "1\n-1\n",
    "node_labels": "0\n1\n0\n0\n2\n",
    "edge_labels": "0\n0\n1\n1\n0\n0\n",
}


def tu(**changes) -> dict[str, Blob]:
    parts = TU | changes
    return {
        f"TOY_{name}.txt": Blob(f"TOY_{name}.txt", body.encode()) for name, body in parts.items()
    }


def test_tu_format(monkeypatch):
    arrays = graphs._from_tu(tu())
    assert arrays["sizes"].tolist() == [2, 3]
    assert arrays["labels"].tolist() == [1, 0]  # -1 is the first class
    monkeypatch.setattr(store, "load_arrays", lambda name, folder: arrays)
    ours = load_graphs("mutag")
    assert ours.labels.tolist() == [1, 0]
    first, second = ours.graphs
    np.testing.assert_array_equal(first.nodes, [[1, 0, 0], [0, 1, 0]])
    np.testing.assert_array_equal(second.adjacency(), [[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    np.testing.assert_array_equal(second.edges, [[0, 1], [0, 1], [1, 0], [1, 0]])
    assert data.stack_graphs(ours.graphs).nodes.shape == (2, 3, 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"A": "1, 3\n3, 1\n3, 4\n4, 3\n4, 5\n5, 4\n"}, "edges do not fit the graphs"),
        ({"A": "1, 2\n2, 1\n3, 4\n4, 3\n4, 9\n9, 4\n"}, "edges do not fit the graphs"),
        ({"graph_indicator": "2\n1\n2\n2\n2\n"}, "edges do not fit the graphs"),
        ({"edge_labels": "0\n0\n"}, "different numbers of rows"),
        ({"graph_labels": "1\n"}, "different numbers of rows"),
        ({"node_labels": "0\n1\n"}, "different numbers of rows"),
    ],
)
def test_tu_files_that_do_not_fit(changes, message):
    with pytest.raises(ValueError, match=message):
        graphs._from_tu(tu(**changes))


def test_a_graph_without_edges_stacks_with_the_others(monkeypatch):
    arrays = graphs._from_tu(tu(A="3, 4\n4, 3\n4, 5\n5, 4\n", edge_labels="1\n1\n0\n0\n"))
    monkeypatch.setattr(store, "load_arrays", lambda name, folder: arrays)
    ours = load_graphs("mutag")
    assert ours.graphs[0].edges.shape == (0, 2)
    assert data.stack_graphs(ours.graphs).edges.shape == (2, 4, 2)


def test_cora_files_that_do_not_fit():
    content = Blob("cora.content", b"31336 0 1 0 Theory\n")
    with pytest.raises(ValueError, match="expected an id, 1,433 words and a class"):
        graphs._from_cora({"cora.content": content, "cora.cites": Blob("cora.cites", b"1 2\n")})
    content = Blob("cora.content", b"31336" + b" 1" * 1433 + b" Magic\n")
    with pytest.raises(ValueError, match="has the unknown class 'Magic'"):
        graphs._from_cora({"cora.content": content, "cora.cites": Blob("cora.cites", b"")})
    content = Blob("cora.content", b"31336" + b" 1" * 1433 + b" Theory\n")
    with pytest.raises(ValueError, match="expected two ids of papers"):
        graphs._from_cora({"cora.content": content, "cora.cites": Blob("cora.cites", b"1 2\n")})
    with pytest.raises(ValueError, match="expected 2,708 papers, got 1"):
        graphs._from_cora({"cora.content": content, "cora.cites": Blob("cora.cites", b"")})


SMALL = {
    "karate": (34, 78, [17, 17]),
    "les-miserables": (77, 254, None),
    "florentine": (15, 20, None),
    "davis": (32, 89, [18, 14]),
}


@pytest.mark.parametrize("name", SMALL)
def test_small_graphs_need_no_network(name):
    n, e, counts = SMALL[name]
    ours = load_graph(name)
    assert (ours.graph.n_nodes, ours.graph.n_edges) == (n, 2 * e)
    assert len(ours.names) == n
    assert np.array_equal(ours.graph.nodes, np.eye(n))
    assert ours.train.size == ours.test.size == 0
    if counts is None:
        assert set(ours.labels.tolist()) == {-1}
        assert ours.classes == ()
    else:
        assert np.bincount(ours.labels).tolist() == counts
    assert data.fetch(name) is None


def test_weights_of_small_graphs():
    assert load_graph("les-miserables").graph.weights.max() == 31
    assert load_graph("florentine").graph.weights is None


@pytest.mark.parametrize(
    ("call", "name", "message"),
    [
        (load, "cora", r"Use load_graph\('cora'\)"),
        (load, "mutag", r"Use load_graphs\('mutag'\)"),
        (load_graph, "mutag", "another kind of data. Use load_graphs"),
        (load_graphs, "cora", "another kind of data. Use load_graph"),
        (load_graph, "digits", "another kind of data. Use load"),
        (load_graph, "corra", "did you mean cora"),
    ],
)
def test_each_dataset_has_one_function(call, name, message):
    with pytest.raises(ValueError, match=message):
        call(name)


CITATIONS = {
    # nodes, edges, features, of each class, split, nodes without words, training labels
    "cora": (2708, 5278, 1433, [351, 217, 418, 818, 426, 298, 180], 140, 0),
    "citeseer": (3327, 4552, 3703, [249, 590, 668, 701, 596, 508], 120, 15),
    "pubmed": (19717, 44324, 500, [4103, 7739, 7875], 60, 0),
}


@pytest.mark.network
@pytest.mark.parametrize("name", CITATIONS)
def test_citation_networks_have_their_published_numbers(name):
    n, e, d, counts, n_train, n_empty = CITATIONS[name]
    ours = load_graph(name)
    graph = ours.graph
    assert (graph.n_nodes, graph.n_edges, graph.nodes.shape[1]) == (n, 2 * e, d)
    assert np.bincount(ours.labels[ours.labels >= 0]).tolist() == counts
    assert (len(ours.train), len(ours.valid), len(ours.test)) == (n_train, 500, 1000)
    assert len(np.unique(np.concatenate([ours.train, ours.valid, ours.test]))) == n_train + 1500
    assert np.bincount(ours.labels[ours.train]).tolist() == [20] * len(counts)
    assert int((np.asarray(graph.nodes).sum(axis=1) == 0).sum()) == n_empty
    assert int((ours.labels < 0).sum()) == n_empty
    assert not np.any(np.asarray(graph.senders) == np.asarray(graph.receivers))
    pairs = set(zip(graph.senders.tolist(), graph.receivers.tolist()))
    assert len(pairs) == graph.n_edges
    assert {(v, u) for u, v in pairs} == pairs
    rows = np.asarray(load_graph(name, normalise=True).graph.nodes).sum(axis=1)
    np.testing.assert_allclose(rows[rows > 0], 1, rtol=1e-5)


@pytest.mark.network
def test_the_test_set_of_cora_is_the_public_one():
    """Its classes are known, and so are the papers behind the first training nodes."""
    ours = load_graph("cora")
    counts = np.bincount(ours.labels[ours.test]).tolist()
    assert counts == [130, 91, 144, 319, 149, 103, 64]
    words = {
        tuple(np.flatnonzero(row).tolist()) for row in np.asarray(ours.graph.nodes)[ours.train]
    }
    assert (19, 81, 146, 315, 774, 877, 1194, 1247, 1274) in words  # node 0 of Planetoid


@pytest.mark.network
def test_molecules_and_signs():
    molecules = load_graphs("mutag")
    assert np.bincount(molecules.labels).tolist() == [63, 125]
    assert sum(graph.n_nodes for graph in molecules.graphs) == 3371
    assert sum(graph.n_edges for graph in molecules.graphs) == 7442
    for graph in molecules.graphs:
        A = np.asarray(graph.adjacency())
        np.testing.assert_array_equal(A, A.T)
        assert jnp.array_equal(graph.nodes.sum(axis=1), jnp.ones(graph.n_nodes))
    signs = load_graphs("cuneiform")
    assert (len(signs.graphs), len(signs.classes)) == (267, 30)
    assert sum(graph.n_nodes for graph in signs.graphs) == 5680
    assert signs.graphs[0].edges.shape[1] == 4


@pytest.mark.network
@pytest.mark.parametrize("name", ["citeseer", "pubmed"])
def test_the_reader_of_pickles_agrees_with_pickle(name, tmp_path):
    import pickle
    import warnings

    from thetax.data.io.pickled_arrays import read_pickled_arrays

    (source,) = store._find(name).sources
    for blob in source.files(tmp_path).values():
        if blob.name.endswith("test.index"):
            continue
        ours = read_pickled_arrays(blob)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = pickle.loads(blob.data, encoding="latin1")
        if isinstance(ours, CSRMatrix):
            np.testing.assert_array_equal(ours.dense(), theirs.toarray())
        elif isinstance(ours, dict):
            assert ours == dict(theirs)
        else:
            np.testing.assert_array_equal(ours, theirs)
    assert load_arrays(name)

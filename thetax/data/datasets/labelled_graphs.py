"""Loading graph datasets: one graph with labelled nodes, or many labelled graphs."""

from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from ..graphs import Graph
from ..io.readers import Arrays
from . import store


class LabelledNodes(NamedTuple):
    """A graph whose nodes are classified, and the nodes for training, validation and testing."""

    graph: Graph
    labels: Int[np.ndarray, " v"]  # -1 for a node without a label
    train: Int[np.ndarray, " n"]  # numbers of nodes; empty if there is no official split
    valid: Int[np.ndarray, " m"]
    test: Int[np.ndarray, " k"]
    classes: tuple[str, ...]
    names: tuple[str, ...]  # of the nodes, if they have any


class LabelledGraphs(NamedTuple):
    """Graphs that are classified; there is no official split."""

    graphs: list[Graph]
    labels: Int[np.ndarray, " n"]
    classes: tuple[str, ...]


def load_graph(
    name: str, *, normalise: bool = False, folder: str | Path | None = None
) -> LabelledNodes:
    """A graph with labelled nodes by name, downloaded unless it is in the cache.

    `"cora"`, `"citeseer"` and `"pubmed"` have the public split of Planetoid. Features are words of
    a paper, 0 or 1 (Pubmed: tf-idf); `normalise` divides each row by its sum, as Kipf & Welling do.
    `"karate"`, `"les-miserables"`, `"florentine"` and `"davis"` have no features and no split:
    their nodes have one-hot numbers, and networkx must be installed.

    >>> data = load_graph("karate")
    >>> data.graph.nodes.shape, data.graph.n_edges, data.classes
    ((34, 34), 156, ('Mr. Hi', 'Officer'))
    """
    dataset = store.find_graph_dataset(name, "load_graph")
    arrays = store.load_arrays(name, folder=folder)
    nodes = _features(arrays)
    if normalise:
        total = nodes.sum(axis=1, keepdims=True)
        nodes = nodes / np.where(total == 0, 1, total)
    graph = Graph.from_edges(arrays["pairs"], nodes, weights=arrays.get("weights"))
    empty = np.zeros(0, np.int32)
    train, valid, test = (arrays.get(part, empty) for part in ("train", "valid", "test"))
    names = tuple(arrays["names"].tolist()) if "names" in arrays else ()
    return LabelledNodes(graph, arrays["labels"], train, valid, test, dataset.classes, names)


def load_graphs(name: str, *, folder: str | Path | None = None) -> LabelledGraphs:
    """Labelled graphs by name, downloaded unless they are in the cache.

    In `"mutag"`, node features are one-hot atoms (C, N, O, F, I, Cl, Br) and edge features one-hot
    bonds (aromatic, single, double, triple). In `"cuneiform"`, node features are the one-hot part
    of a wedge (4), its one-hot kind (3) and three coordinates; edge features are the one-hot kind
    (2) and two attributes.
    """
    dataset = store.find_graph_dataset(name, "load_graphs")
    arrays = store.load_arrays(name, folder=folder)
    nodes, edges = (
        np.concatenate(
            [
                *(_one_hot(column) for column in arrays[f"{kind}_labels"].T),
                arrays.get(f"{kind}_attributes", np.zeros((len(arrays[f"{kind}_labels"]), 0))),
            ],
            axis=1,
            dtype=np.float32,
        )
        for kind in ("node", "edge")
    )
    sizes = arrays["sizes"]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    owner = np.repeat(np.arange(len(sizes)), sizes)[arrays["pairs"][:, 0]]
    graphs = []
    for i, (start, size) in enumerate(zip(starts, sizes)):
        own = np.flatnonzero(owner == i)
        senders, receivers = (arrays["pairs"][own] - start).T
        order = np.lexsort((senders, receivers))
        graph = Graph(
            jnp.asarray(nodes[start : start + size]),
            jnp.asarray(senders[order], jnp.int32),
            jnp.asarray(receivers[order], jnp.int32),
            jnp.asarray(edges[own[order]]),
            None,
            jnp.zeros(size, jnp.int32),
        )
        graphs.append(graph)
    return LabelledGraphs(graphs, arrays["labels"], dataset.classes)


def _features(arrays: Arrays) -> np.ndarray:
    if "columns" not in arrays:
        return np.eye(len(arrays["labels"]), dtype=np.float32)
    ends = arrays["row_ends"]
    nodes = np.zeros((len(ends), int(arrays["n_columns"])), np.float32)
    rows = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
    nodes[rows, arrays["columns"]] = arrays["values"]
    return nodes


def _one_hot(labels: np.ndarray) -> np.ndarray:
    return np.eye(int(labels.max()) + 1, dtype=np.float32)[labels]

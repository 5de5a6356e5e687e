r"""Graphs from and to networkx, SciPy, edge lists and PyTorch Geometric's `Data` (§7.4).

Which end is which: networkx and SciPy (`scipy.sparse.csgraph`) write an edge $u \to v$ as $A_{uv}$,
so their matrix is the transpose of `Graph.adjacency`, whose $a_{ij}$ is the edge $j \to i$. The
converters here transpose; `Graph.from_adjacency` does not. For undirected graphs there is no
difference.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Float, Int, Shaped

from .graph import Graph


class EdgeList(NamedTuple):
    """Directed edges: row (u, v) of `pairs` is the edge from node u to node v."""

    pairs: Int[np.ndarray, "e 2"]
    edges: Shaped[np.ndarray, "e *c"] | None  # features
    weights: Float[np.ndarray, " e"] | None


def to_edges(graph: Graph) -> EdgeList:
    """The edges of a graph, without padding; an undirected edge is listed in both directions.

    >>> to_edges(Graph.from_edges([(0, 1)])).pairs.tolist()
    [[1, 0], [0, 1]]
    """
    _expect_one("to_edges", graph)
    real = np.asarray(graph.edge_mask)
    take = lambda values: None if values is None else np.asarray(values)[real]
    pairs = np.stack([np.asarray(graph.senders), np.asarray(graph.receivers)], axis=1)[real]
    return EdgeList(pairs, take(graph.edges), take(graph.weights))


def from_scipy(A: Any, nodes: Any = None) -> Graph:
    r"""The graph of a SciPy sparse array, as `scipy.sparse.csgraph` reads it: entry $A_{uv}$ is the
    edge $u \to v$, and an entry other than 1 its weight.

    `Graph.from_adjacency` reads the transpose.

    >>> graph = from_scipy(scipy.sparse.coo_array(([2.0], ([0], [1])), shape=(2, 2)))
    >>> graph.senders.tolist(), graph.receivers.tolist(), graph.weights.tolist()
    ([0], [1], [2.0])
    """
    if not scipy.sparse.issparse(A):
        raise ValueError(
            f"from_scipy: expected a SciPy sparse array, got {type(A).__name__}. For a dense "
            "matrix with a_ij the edge from j to i, use Graph.from_adjacency."
        )
    return Graph.from_adjacency(A.T, nodes)


def to_scipy(graph: Graph) -> scipy.sparse.csr_array:
    r"""The weights of the edges as a SciPy sparse array, $A_{uv}$ for the edge $u \to v$; doubled
    edges are summed, padding is left out.

    >>> to_scipy(Graph.from_edges([(0, 1)], undirected=False)).toarray().tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """
    pairs, _, weights = to_edges(graph)
    n = int(np.asarray(graph.node_mask).sum())
    entries = np.ones(len(pairs), np.float32) if weights is None else weights
    return scipy.sparse.coo_array((entries, (pairs[:, 0], pairs[:, 1])), shape=(n, n)).tocsr()


def from_networkx(
    graph: Any,
    *,
    node_features: str | Sequence[str] | None = None,
    edge_features: str | Sequence[str] | None = None,
    weight: str | None = None,
) -> Graph:
    """A networkx graph, directed or not, simple or multigraph; nodes are numbered in its order.

    Attributes become features by name: numbers or vectors, several names concatenated. `weight` is
    the name of the edge attribute with the weight. Parallel edges of a multigraph stay doubled.

    >>> import networkx as nx
    >>> graph = nx.DiGraph()
    >>> graph.add_node("a", size=[1.0, 2.0])
    >>> graph.add_node("b", size=[3.0, 4.0])
    >>> graph.add_edge("a", "b", cost=0.5)
    >>> ours = from_networkx(graph, node_features="size", weight="cost")
    >>> ours.nodes.tolist(), ours.senders.tolist(), ours.weights.tolist()
    ([[1.0, 2.0], [3.0, 4.0]], [0], [0.5])
    """
    if not all(hasattr(graph, name) for name in ("nodes", "edges", "is_directed")):
        raise ValueError(
            f"from_networkx: expected a networkx graph, got {type(graph).__name__}. For an edge "
            "list use Graph.from_edges."
        )
    if not len(graph):
        raise ValueError("from_networkx: the graph has no nodes.")
    number = {node: i for i, node in enumerate(graph.nodes)}
    nodes = _attributes("node", list(graph.nodes(data=True)), node_features)
    triples = list(graph.edges(data=True))
    if not triples:
        return Graph.from_nodes(np.ones((len(graph), 1), np.float32) if nodes is None else nodes)
    weights = _attributes("edge", triples, weight)
    return Graph.from_edges(
        np.array([[number[u], number[v]] for u, v, _ in triples]),
        nodes,
        n_nodes=len(graph),
        undirected=not graph.is_directed(),
        edges=_attributes("edge", triples, edge_features),
        weights=None if weights is None else weights[:, 0],
    )


def to_networkx(graph: Graph, *, undirected: bool = False) -> Any:
    """A networkx `DiGraph`, or a `Graph` if `undirected`; a multigraph if an edge is doubled.

    Nodes get the attribute `features`, edges `features` and `weight` if the graph has them. Padding
    is left out. An undirected graph must have every edge in both directions.

    >>> theirs = to_networkx(Graph.from_edges([(0, 1), (1, 2)]), undirected=True)
    >>> sorted(theirs.edges), theirs.nodes[0]["features"].tolist()
    ([(0, 1), (1, 2)], [1.0])
    """
    import networkx as nx

    pairs, edges, weights = to_edges(graph)
    listed = list(map(tuple, pairs.tolist()))
    counts = Counter(listed)
    if undirected and any(counts[u, v] != counts[v, u] for u, v in counts):
        u, v = next((u, v) for u, v in counts if counts[u, v] != counts[v, u])
        raise ValueError(
            f"to_networkx: the edge from node {u} to node {v} has no reverse, so the graph is "
            "directed. Leave out undirected."
        )
    multiple = max(counts.values(), default=0) > 1
    kinds = {
        (False, False): nx.DiGraph,
        (False, True): nx.MultiDiGraph,
        (True, False): nx.Graph,
        (True, True): nx.MultiGraph,
    }
    theirs = kinds[undirected, multiple]()
    rows = np.asarray(graph.nodes)[np.asarray(graph.node_mask)]
    theirs.add_nodes_from((i, {"features": row}) for i, row in enumerate(rows))
    for k, (u, v) in enumerate(listed):
        if undirected and u > v:
            continue
        attributes = {} if edges is None else {"features": edges[k]}
        if weights is not None:
            attributes["weight"] = float(weights[k])
        theirs.add_edge(u, v, **attributes)
    return theirs


def from_pyg(data: Any) -> tuple[Graph, np.ndarray | None]:
    r"""The graph in the fields of PyTorch Geometric's `Data` or `Batch`, and its `y`.

    `data` is an object or a dict with `x` and `edge_index`, and optionally `edge_attr`,
    `edge_weight`, `y`, `num_nodes` and `batch`. Tensors are converted by `np.asarray`; torch is not
    imported. `edge_index[0]` are the senders and `edge_index[1]` the receivers, as here.

    >>> graph, y = from_pyg(
    ...     {"x": np.eye(2), "edge_index": np.array([[0], [1]]), "y": np.array([3])}
    ... )
    >>> graph.senders.tolist(), graph.receivers.tolist(), y.tolist()
    ([0], [1], [3])
    """
    fields = {
        name: _field(data, name)
        for name in ("x", "edge_index", "edge_attr", "edge_weight", "y", "batch", "num_nodes")
    }
    index = fields["edge_index"]
    if index is None or index.ndim != 2 or index.shape[0] != 2:
        shape = "no such field" if index is None else f"shape {index.shape}"
        raise ValueError(
            f"from_pyg: edge_index: expected shape (2, e), senders and receivers; got {shape}."
        )
    nodes, n = fields["x"], fields["num_nodes"]
    if nodes is None and n is None:
        n = index.max(initial=-1) + 1
    if nodes is None and not index.shape[1]:
        nodes = np.ones((int(n), 1), np.float32)
    graph = (
        Graph.from_edges(
            index.T,
            nodes,
            n_nodes=None if nodes is not None else int(n),
            undirected=False,
            edges=fields["edge_attr"],
            weights=fields["edge_weight"],
        )
        if index.shape[1]
        else Graph.from_nodes(nodes)
    )
    if (batch := fields["batch"]) is not None:
        if batch.shape != (graph.n_nodes,) or np.any(np.diff(batch) < 0):
            raise ValueError(
                "from_pyg: batch: expected the ascending number of a graph for each node, got "
                f"{batch.shape} for {graph.n_nodes} nodes."
            )
        ids = jnp.asarray(batch, jnp.int32)
        graph = Graph(
            graph.nodes,
            graph.senders,
            graph.receivers,
            graph.edges,
            graph.weights,
            ids,
            int(batch.max()) + 1,
        )
    return graph, fields["y"]


def to_pyg(graph: Graph, y: Any = None) -> dict[str, np.ndarray]:
    """The fields of PyTorch Geometric's `Data` as NumPy arrays, without padding:
    `Data(**{name: torch.from_numpy(array) for name, array in to_pyg(graph).items()})`.

    >>> to_pyg(Graph.from_edges([(0, 1)], np.eye(2), undirected=False))["edge_index"].tolist()
    [[0], [1]]
    """
    real = np.asarray(graph.node_mask)
    pairs, edges, weights = to_edges(graph)
    fields = {
        "x": np.asarray(graph.nodes)[real],
        "edge_index": pairs.T.astype(np.int64),
        "edge_attr": edges,
        "edge_weight": weights,
        "y": None if y is None else np.asarray(y),
        "batch": None
        if graph.n_graphs is None
        else np.asarray(graph.graph_ids)[real].astype(np.int64),
    }
    return {name: np.array(array) for name, array in fields.items() if array is not None}


def _expect_one(name: str, graph: Any) -> None:
    if not isinstance(graph, Graph) or graph.senders.ndim != 1:
        raise ValueError(
            f"{name}: expected one thetax.data.Graph, got {type(graph).__name__}. Convert stacked "
            "graphs one by one."
        )


def _attributes(
    kind: str, rows: Sequence[Any], names: str | Sequence[str] | None
) -> np.ndarray | None:
    """The named attributes as a matrix; the data of a row are its last entry."""
    if names is None:
        return None
    names = [names] if isinstance(names, str) else list(names)
    columns = []
    for name in names:
        missing = next((row for row in rows if name not in row[-1]), None)
        if missing is not None:
            raise ValueError(
                f"from_networkx: the {kind} {missing[:-1]} has no attribute {name!r}; it has "
                f"{sorted(map(str, missing[-1])) or 'none'}."
            )
        try:
            values = np.array([np.ravel(row[-1][name]) for row in rows], np.float32)
        except (ValueError, TypeError):
            raise ValueError(
                f"from_networkx: the {kind} attribute {name!r} must be a number, or vectors of the "
                "same length. Encode strings as numbers first."
            ) from None
        columns.append(values)
    return np.concatenate(columns, axis=1)


def _field(data: Any, name: str) -> Any:
    value = data.get(name) if isinstance(data, Mapping) else getattr(data, name, None)
    if value is None:
        return None
    try:
        return np.asarray(value)
    except (TypeError, RuntimeError) as error:
        raise ValueError(
            f"from_pyg: {name}: cannot be converted to NumPy ({error}). Give tensors on the CPU "
            "without gradients: data.detach().cpu()."
        ) from None

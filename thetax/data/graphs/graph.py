r"""Graphs as data: one type for a graph, for a batch of graphs and for padded ones (§7.4).

Edge $k$ points **from** node `senders[k]` **to** node `receivers[k]`, and messages go the same way:
node $i$ collects from the nodes $j$ with an edge $j \to i$, so the adjacency matrix is $a_{ij} = 1$
for an edge $j \to i$. (PyTorch Geometric calls the same pair `edge_index[0]`, the source, and
`edge_index[1]`, the target. networkx and SciPy write $a_{ji}$ for it; the converters transpose.) An
undirected edge is stored in both directions.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from ...check import check_numbers
from ...core import as_floats


class Graph(eqx.Module):
    r"""A graph, or a batch of graphs as one graph without edges between them.

    - `nodes`, shape `v *d`: the features of the nodes, by default a one each;
    - `senders` and `receivers`, shape `e`: edge $k$ points from node `senders[k]` to node
      `receivers[k]`, and the edges are sorted by receiver, then by sender;
    - `edges`, shape `e *c`, or None: the features of the edges;
    - `weights`, shape `e`, or None: the weights of the edges, which stand for the ones in the
      adjacency matrix;
    - `graph_ids`, shape `v`: the number of the graph to which a node belongs, ascending;
    - `n_graphs`: how many graphs these are, or None for one graph as an example: then a readout is
      one vector, and otherwise a row for each graph.

    **Padding** gives graphs of different sizes the same shapes, so that one compiled program serves
    all. The nodes after the last graph are padding; their `graph_ids` are `n_graphs` (1 for None).
    Edges that are padding go from the last of these nodes to itself. Hence no layer needs a mask
    for what it computes at a node; `node_mask` and `edge_mask` tell what is real. `pad_graph`,
    `batch_graphs` and `stack_graphs` pad.

    Use the class methods, which check and sort. Departs: the notes admit self-loops $\{v, v\}$;
    none is added here, and the GCN adds its own.

    >>> triangle = Graph.from_edges([(0, 1), (1, 2), (2, 0)])
    >>> triangle.senders.tolist(), triangle.receivers.tolist()
    ([1, 2, 0, 2, 0, 1], [0, 0, 1, 1, 2, 2])
    >>> arrow = Graph.from_edges([(0, 1)], undirected=False)
    >>> arrow.adjacency().tolist()
    [[0.0, 0.0], [1.0, 0.0]]
    """

    nodes: Shaped[Array, "v *d"]
    senders: Int[Array, " e"]
    receivers: Int[Array, " e"]
    edges: Shaped[Array, "e *c"] | None
    weights: Float[Array, " e"] | None
    graph_ids: Int[Array, " v"]
    n_graphs: int | None = eqx.field(static=True, default=None)

    @classmethod
    def from_edges(
        cls,
        pairs: Any,
        nodes: Any = None,
        *,
        n_nodes: int | None = None,
        undirected: bool = True,
        edges: Any = None,
        weights: Any = None,
    ) -> "Graph":
        """A graph with the edges `pairs`, shape `(e, 2)`: row $(u, v)$ is an edge from node $u$ to
        node $v$.

        Undirected graphs list each edge once; the reversed edge gets the same features and weight.
        Edges listed twice stay doubled, and a self-loop is one edge. The number of nodes is that of
        the rows of `nodes`, or `n_nodes`, or one more than the largest index.

        >>> Graph.from_edges([(0, 1), (1, 5)], np.zeros((4, 2)))
        Traceback (most recent call last):
        ValueError: pairs: row 1 is an edge from node 1 to node 5, but there are 4 nodes...
        """
        pairs = _check_pairs(pairs)
        if nodes is not None:
            nodes = check_numbers(nodes, name="nodes")
            if n_nodes not in (None, len(nodes)):
                raise ValueError(
                    f"nodes: {len(nodes)} rows, but n_nodes={n_nodes}. Leave out n_nodes."
                )
        n = (
            len(nodes)
            if nodes is not None
            else int(pairs.max()) + 1
            if n_nodes is None
            else n_nodes
        )
        _check_range(pairs, n)
        features = {"edges": edges, "weights": weights}
        for name, values in features.items():
            if values is not None:
                features[name] = values = check_numbers(values, name=name)
                if len(values) != len(pairs):
                    raise ValueError(
                        f"{name}: expected a row for each of the {len(pairs)} pairs, got "
                        f"{len(values)}. An undirected edge is listed once, and its reverse gets "
                        "the same row."
                    )
        if weights is not None and np.ndim(weights) != 1:
            raise ValueError(
                f"weights: expected shape ({len(pairs)},), got {np.shape(weights)}. Use edges for "
                "vectors."
            )
        rows = np.arange(len(pairs))
        if undirected:
            loops = pairs[:, 0] == pairs[:, 1]
            rows = np.concatenate([rows, rows[~loops]])
            pairs = np.concatenate([pairs, pairs[~loops, ::-1]])
        order = np.lexsort((pairs[:, 0], pairs[:, 1]))
        senders, receivers = pairs[order].T
        take = lambda values: None if values is None else jnp.asarray(values[rows[order]])
        return cls(
            jnp.ones((n, 1)) if nodes is None else jnp.asarray(nodes),
            jnp.asarray(senders, jnp.int32),
            jnp.asarray(receivers, jnp.int32),
            take(features["edges"]),
            None if weights is None else as_floats("weights", take(features["weights"])),
            jnp.zeros(n, jnp.int32),
        )

    @classmethod
    def from_nodes(cls, nodes: Any) -> "Graph":
        """A graph without edges.

        >>> Graph.from_nodes(np.eye(3)).n_edges
        0
        """
        nodes = jnp.asarray(check_numbers(nodes, name="nodes"))
        none = jnp.zeros(0, jnp.int32)
        return cls(nodes, none, none, None, None, jnp.zeros(len(nodes), jnp.int32))

    @classmethod
    def from_adjacency(cls, A: Any, nodes: Any = None) -> "Graph":
        """The graph of a matrix, $a_{ij} \\ne 0$ for an edge $j \\to i$: dense, or a SciPy sparse
        array.

        Entries other than 1 become weights.

        >>> Graph.from_adjacency([[0, 2.0], [2.0, 0]]).weights.tolist()
        [2.0, 2.0]
        """
        if hasattr(A, "tocoo"):
            A = A.tocoo()
            (receivers, senders), entries, shape = (A.row, A.col), A.data, A.shape
            receivers, senders, entries = (a[A.data != 0] for a in (receivers, senders, entries))
        else:
            A = check_numbers(A, name="A")
            shape = A.shape
            receivers, senders = np.nonzero(A) if A.ndim == 2 else ((), ())
            entries = A[receivers, senders] if A.ndim == 2 else ()
        if len(shape) != 2 or shape[0] != shape[1]:
            raise ValueError(
                f"A: expected a square matrix, a row and a column for each node; got shape {shape}."
            )
        if not len(receivers):
            return cls.from_nodes(np.ones((shape[0], 1)) if nodes is None else nodes)
        return cls.from_edges(
            np.stack([senders, receivers], axis=1),
            nodes,
            n_nodes=shape[0],
            undirected=False,
            weights=None if np.all(np.asarray(entries) == 1) else entries,
        )

    @property
    def n_nodes(self) -> int:
        """How many nodes there are, padding included."""
        return self.nodes.shape[0]

    @property
    def n_edges(self) -> int:
        """How many directed edges there are, padding included."""
        return self.senders.shape[0]

    @property
    def node_mask(self) -> Bool[Array, " v"]:
        """Which nodes are not padding."""
        return self.graph_ids < (1 if self.n_graphs is None else self.n_graphs)

    @property
    def edge_mask(self) -> Bool[Array, " e"]:
        """Which edges are not padding."""
        return self.node_mask[self.receivers]

    def with_nodes(self, nodes: Shaped[Array, "v *d"]) -> "Graph":
        """The same graph with other node features, what a layer returns."""
        if nodes.shape[:1] != self.nodes.shape[:1]:
            raise ValueError(
                f"nodes: expected a row for each of the {self.n_nodes} nodes, got shape "
                f"{nodes.shape}."
            )
        return eqx.tree_at(lambda graph: graph.nodes, self, nodes)

    def adjacency(self) -> Float[Array, "v v"]:
        """The adjacency matrix, $a_{ij}$ the sum of the weights of the edges $j \\to i$."""
        entries = jnp.ones(self.n_edges) if self.weights is None else self.weights
        entries = jnp.where(self.edge_mask, entries, 0)
        return (
            jnp.zeros((self.n_nodes, self.n_nodes), entries.dtype)
            .at[self.receivers, self.senders]
            .add(entries)
        )


def permute_nodes(graph: Graph, order: Any) -> Graph:
    """The same graph with its nodes renumbered: new node $i$ is old node `order[i]`, $(PX,
    PAP^\\top)$.

    >>> path = Graph.from_edges([(0, 1), (1, 2)], np.array([[1.0], [2.0], [3.0]]))
    >>> permute_nodes(path, [1, 0, 2]).nodes.ravel().tolist()
    [2.0, 1.0, 3.0]
    """
    order = np.asarray(order)
    if sorted(order.tolist()) != list(range(graph.n_nodes)):
        raise ValueError(
            f"order: expected a permutation of the {graph.n_nodes} nodes, got {order.tolist()}."
        )
    new = np.argsort(order)
    senders, receivers = new[np.asarray(graph.senders)], new[np.asarray(graph.receivers)]
    by = np.lexsort((senders, receivers))
    take = lambda values: None if values is None else values[by]
    return Graph(
        graph.nodes[order],
        jnp.asarray(senders[by], jnp.int32),
        jnp.asarray(receivers[by], jnp.int32),
        take(graph.edges),
        take(graph.weights),
        graph.graph_ids[order],
        graph.n_graphs,
    )


def pad_graph(graph: Graph, *, n_nodes: int, n_edges: int) -> Graph:
    """The graph with padding up to the given numbers of nodes and edges.

    Edges can be padded only if at least one node is: they need a node to point to.

    >>> padded = pad_graph(Graph.from_edges([(0, 1)]), n_nodes=4, n_edges=5)
    >>> padded.node_mask.tolist(), padded.edge_mask.tolist()
    ([True, True, False, False], [True, True, False, False, False])
    """
    v, e = graph.n_nodes, graph.n_edges
    if n_nodes < v or n_edges < e or (n_nodes == v and n_edges > e):
        raise ValueError(
            f"pad_graph: {v} nodes and {e} edges do not fit into n_nodes={n_nodes}, "
            f"n_edges={n_edges}. Both must be at least as large, and padded edges need one more "
            "node."
        )
    more = lambda values, n, fill: jnp.pad(
        values, ((0, n), *[(0, 0)] * (values.ndim - 1)), constant_values=fill
    )
    nodes, edges = n_nodes - v, n_edges - e
    return Graph(
        more(graph.nodes, nodes, 0),
        more(graph.senders, edges, n_nodes - 1),
        more(graph.receivers, edges, n_nodes - 1),
        None if graph.edges is None else more(graph.edges, edges, 0),
        None if graph.weights is None else more(graph.weights, edges, 0),
        more(graph.graph_ids, nodes, 1 if graph.n_graphs is None else graph.n_graphs),
        graph.n_graphs,
    )


def batch_graphs(
    graphs: Sequence[Graph], *, n_nodes: int | None = None, n_edges: int | None = None
) -> Graph:
    """Several graphs as one graph without edges between them, padded if sizes are given.

    A layer works on all at once, and a readout returns a row for each graph.

    >>> batch = batch_graphs([Graph.from_edges([(0, 1)]), Graph.from_edges([(0, 1), (1, 2)])])
    >>> batch.n_graphs, batch.graph_ids.tolist(), batch.senders.tolist()
    (2, [0, 0, 1, 1, 1], [1, 0, 3, 2, 4, 3])
    """
    _check_alike("batch_graphs", graphs)
    if any(graph.n_graphs is not None or not bool(graph.node_mask.all()) for graph in graphs):
        raise ValueError(
            "batch_graphs: expected single graphs without padding; pad the batch instead."
        )
    sizes = [graph.n_nodes for graph in graphs]
    starts = np.cumsum([0, *sizes[:-1]])
    union = Graph(
        jnp.concatenate([graph.nodes for graph in graphs]),
        jnp.concatenate([graph.senders + int(start) for graph, start in zip(graphs, starts)]),
        jnp.concatenate([graph.receivers + int(start) for graph, start in zip(graphs, starts)]),
        _join([graph.edges for graph in graphs]),
        _join([graph.weights for graph in graphs]),
        jnp.asarray(np.repeat(np.arange(len(graphs)), sizes), jnp.int32),
        len(graphs),
    )
    if n_nodes is None and n_edges is None:
        return union
    n_nodes = union.n_nodes + 1 if n_nodes is None else n_nodes
    return pad_graph(union, n_nodes=n_nodes, n_edges=union.n_edges if n_edges is None else n_edges)


def _join(parts: list[Array | None]) -> Array | None:
    given = [part for part in parts if part is not None]
    return jnp.concatenate(given) if given else None


def stack_graphs(
    graphs: Sequence[Graph], *, n_nodes: int | None = None, n_edges: int | None = None
) -> Graph:
    """Graphs as examples: padded to the same sizes and stacked along a new first axis of every
    array.

    So they are a batch as `fit`, `predict` and all lenses take it, and `jax.vmap` maps over it. By
    default the sizes are those of the largest graphs, and one node more if edges must be padded.

    >>> xs = stack_graphs([Graph.from_edges([(0, 1)]), Graph.from_edges([(0, 1), (1, 2)])])
    >>> xs.nodes.shape, xs.senders.shape
    ((2, 3, 1), (2, 4))
    """
    _check_alike("stack_graphs", graphs)
    e = max(graph.n_edges for graph in graphs) if n_edges is None else n_edges
    v = max(graph.n_nodes + (graph.n_edges < e) for graph in graphs) if n_nodes is None else n_nodes
    padded = [pad_graph(graph, n_nodes=v, n_edges=e) for graph in graphs]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *padded)


def _check_alike(name: str, graphs: Sequence[Graph]) -> None:
    if not len(graphs):
        raise ValueError(f"{name}: expected at least one graph, got an empty sequence.")
    shape = lambda values: None if values is None else (values.shape[1:], values.dtype.name)
    for i, graph in enumerate(graphs):
        for field in ("nodes", "edges", "weights"):
            first, this = shape(getattr(graphs[0], field)), shape(getattr(graph, field))
            if first != this:
                raise ValueError(
                    f"{name}: all graphs must have the same features; `{field}` of graph 0 is "
                    f"{first}, of graph {i} {this}."
                )


def _check_pairs(pairs: Any) -> np.ndarray:
    pairs = np.asarray(pairs)
    if pairs.size == 0:
        raise ValueError(
            "pairs: the graph has no edges. If this is meant, use Graph.from_nodes(nodes)."
        )
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        advice = " Transpose it: pairs.T." if pairs.ndim == 2 and pairs.shape[0] == 2 else ""
        raise ValueError(
            f"pairs: expected shape (e, 2), a row (u, v) for each edge; got {pairs.shape}.{advice}"
        )
    if not np.issubdtype(pairs.dtype, np.integer):
        raise ValueError(
            f"pairs: expected indices of nodes, integers; got {pairs.dtype}. Convert: "
            "pairs.astype(int)."
        )
    return pairs


def _check_range(pairs: np.ndarray, n: int) -> None:
    wrong = np.flatnonzero(((pairs < 0) | (pairs >= n)).any(axis=1))
    if len(wrong):
        u, v = pairs[wrong[0]]
        raise ValueError(
            f"pairs: row {wrong[0]} is an edge from node {u} to node {v}, but there are {n} nodes, "
            f"0 to {n - 1}. Give features of all nodes, or renumber the pairs from 0."
        )

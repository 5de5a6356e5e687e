r"""Weisfeiler-Leman tests: colour refinement of nodes (1-WL) and of pairs of nodes (2-FWL) (§7.4).

**1-WL.** All nodes start with the same colour, or one given by their features, and

$$c_{t+1}(v) = \mathrm{name}\bigl(c_t(v), \{\!\{ c_t(u) : u \to v \}\!\}\bigr)$$

until no round splits a colour. **2-FWL**, the folklore test of dimension 2, as strong as 3-WL,
colours pairs: a pair starts with its isomorphism type (equal or not, adjacent or not), and

$$c_{t+1}(i, j) = \mathrm{name}\bigl(c_t(i, j), \{\!\{ (c_t(i, k), c_t(k, j)) : k \}\!\}\bigr).$$

Isomorphic graphs have the same histogram of colours in every round. So different histograms prove
that two graphs are **not** isomorphic; equal histograms prove nothing. Departs: the notes say that
the test computes whether an isomorphism exists, but 1-WL cannot tell a cycle of six nodes from two
triangles.

Names are numbers that are comparable within one call only: refine all graphs together. There is no
hashing, so no collision. The graphs are refined on the host.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Bool, Int

from ...check import suggest
from .graph import Graph

WLTest = Literal["1-WL", "2-FWL"]
MAX_TRIPLES = 200_000_000  # of nodes, in one graph, for 2-FWL


@dataclass(frozen=True)
class ColourRefinement:
    """Colours of the nodes of several graphs, or of the pairs of nodes, after each round.

    - `colours`, shape `t c`: row $t$ after $t$ rounds, up to the first with the final partition;
    - `graph_ids`, shape `c`: the graph of each node or pair.
    """

    colours: Int[np.ndarray, "t c"]
    graph_ids: Int[np.ndarray, " c"]
    n_graphs: int

    @property
    def rounds(self) -> int:
        """How many rounds were run."""
        return len(self.colours) - 1

    @property
    def n_colours(self) -> Int[np.ndarray, " t"]:
        """How many colours there are after each round."""
        return self.colours.max(axis=1, initial=-1) + 1

    def histogram(self, t: int = -1) -> Int[np.ndarray, "g k"]:
        """How many nodes (pairs) of each graph have each colour after `t` rounds, by default the
        last.
        """
        k = int(self.n_colours[t])
        cells = self.graph_ids * k + self.colours[t]
        return np.bincount(cells, minlength=self.n_graphs * k).reshape(self.n_graphs, k)

    def classes(self, t: int = -1) -> Int[np.ndarray, " g"]:
        """The number of each graph's class: graphs with equal histograms after `t` rounds are in
        one class.

        Histograms that differ in one round differ in all later ones.
        """
        return _names(self.histogram(t))


def colour_refinement(
    graphs: Graph | Sequence[Graph],
    *,
    rounds: int | None = None,
    node_features: bool = False,
    edge_features: bool = False,
) -> ColourRefinement:
    r"""1-WL on all graphs together: on one graph, a batch, or a sequence of them.

    It stops when the partition is stable, after less than `n_nodes` rounds, or after `rounds`,
    which are then run in any case. `node_features` starts with the rows of `nodes` as colours;
    `edge_features` adds the row of `edges` to the colour of the neighbour that is reached along the
    edge. Weights are not used, doubled edges count twice, and padding is left out. With directed
    edges a node sees the senders of its edges.

    A round sorts the edges: $O(e \log e)$ operations for $e$ edges (Weisfeiler & Leman 1968).

    >>> path = Graph.from_edges([(0, 1), (1, 2), (2, 3)])
    >>> colour_refinement(path).colours.tolist()
    [[0, 0, 0, 0], [0, 1, 1, 0]]
    """
    union = _union(graphs, edge_features=edge_features)
    colours = [_initial(union, node_features)]
    while rounds is None or len(colours) <= rounds:
        refined = _refined(union, colours[-1])
        if rounds is None and refined.max(initial=-1) == colours[-1].max(initial=-1):
            break
        colours.append(refined)
    return ColourRefinement(np.stack(colours), union.graph_ids, union.n_graphs)


def pair_refinement(
    graphs: Graph | Sequence[Graph],
    *,
    rounds: int | None = None,
    node_features: bool = False,
    edge_features: bool = False,
) -> ColourRefinement:
    r"""2-FWL on all graphs together; the colours are those of the pairs $(i, j)$ of each graph, row
    by row.

    It needs $O(M^3)$ memory for $M$ nodes and refuses graphs of more than some 580 nodes. It is
    stronger than 1-WL, and as strong as 3-WL (Cai, Fürer & Immerman 1992; Morris et al. 2019).

    >>> pair_refinement(Graph.from_edges([(0, 1)])).histogram().tolist()
    [[2, 2]]
    """
    union = _union(graphs, edge_features=edge_features)
    sizes = np.bincount(union.graph_ids, minlength=union.n_graphs)
    if sizes.max(initial=0) ** 3 > MAX_TRIPLES:
        raise ValueError(
            f"pair_refinement: a graph of {sizes.max()} nodes has {sizes.max() ** 3:,} triples; at "
            f"most {MAX_TRIPLES:,} are admitted. Use colour_refinement (1-WL)."
        )
    colours = [_initial_pairs(union, sizes, node_features)]
    while rounds is None or len(colours) <= rounds:
        refined = _refined_pairs(sizes, colours[-1])
        if rounds is None and refined.max(initial=-1) == colours[-1].max(initial=-1):
            break
        colours.append(refined)
    ids = np.repeat(np.arange(union.n_graphs), sizes**2)
    return ColourRefinement(np.stack(colours), ids, union.n_graphs)


def distinguishable(
    graphs: Sequence[Graph],
    test: WLTest = "1-WL",
    *,
    node_features: bool = False,
    edge_features: bool = False,
) -> Bool[np.ndarray, "g g"]:
    """Which pairs of graphs the test proves not to be isomorphic.

    **One-sided**: True is a proof; False says only that this test cannot tell. Of graphs with
    `node_features` or `edge_features` it is about isomorphisms that keep the features.

    >>> hexagon = Graph.from_edges([(i, (i + 1) % 6) for i in range(6)])
    >>> triangles = Graph.from_edges([(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)])
    >>> distinguishable([hexagon, triangles], "1-WL")[0, 1].item()
    False
    >>> distinguishable([hexagon, triangles], "2-FWL")[0, 1].item()
    True
    """
    if test not in get_args(WLTest):
        raise ValueError(
            f"distinguishable: {suggest(str(test), get_args(WLTest))}test is one of "
            f"{', '.join(get_args(WLTest))}; got {test!r}."
        )
    refine = colour_refinement if test == "1-WL" else pair_refinement
    classes = refine(graphs, node_features=node_features, edge_features=edge_features).classes()
    return classes[:, None] != classes[None, :]


class _Union(NamedTuple):
    """Several graphs as one, without padding; `labels` number the features of the edges."""

    senders: np.ndarray
    receivers: np.ndarray
    labels: np.ndarray
    graph_ids: np.ndarray
    n_graphs: int
    nodes: list[np.ndarray]


def _union(graphs: Graph | Sequence[Graph], *, edge_features: bool) -> _Union:
    graphs = [graphs] if isinstance(graphs, Graph) else list(graphs)
    if not graphs:
        raise ValueError("colour_refinement: expected at least one graph, got an empty sequence.")
    senders, receivers, edges, ids, nodes = [], [], [], [], []
    n_nodes = n_graphs = 0
    for graph in graphs:
        kept = np.asarray(graph.graph_ids) < (1 if graph.n_graphs is None else graph.n_graphs)
        real = kept[np.asarray(graph.receivers)]
        senders.append(np.asarray(graph.senders, np.int64)[real] + n_nodes)
        receivers.append(np.asarray(graph.receivers, np.int64)[real] + n_nodes)
        ids.append(np.asarray(graph.graph_ids, np.int64)[kept] + n_graphs)
        nodes.append(np.asarray(graph.nodes)[kept])
        if edge_features:
            if graph.edges is None and graph.n_edges:
                raise ValueError(
                    "colour_refinement: edge_features=True, but a graph has no `edges`. Give "
                    "edges= to Graph.from_edges."
                )
            if graph.edges is not None:
                edges.append(np.asarray(graph.edges)[real])
        n_nodes += int(kept.sum())
        n_graphs += 1 if graph.n_graphs is None else graph.n_graphs
    receivers = np.concatenate(receivers)
    labels = _names(_rows(edges, "edges")) if edges else np.zeros(len(receivers), np.int64)
    return _Union(np.concatenate(senders), receivers, labels, np.concatenate(ids), n_graphs, nodes)


def _rows(parts: list[np.ndarray], name: str) -> np.ndarray:
    if len({part.shape[1:] for part in parts}) > 1:
        raise ValueError(
            f"colour_refinement: all graphs must have the same number of features; `{name}` have "
            f"shapes {', '.join(str(part.shape) for part in parts[:4])}."
        )
    rows = np.concatenate(parts)
    return rows.reshape(len(rows), -1)


def _names(rows: np.ndarray) -> np.ndarray:
    """The rows, numbered from 0 in lexicographic order; equal rows get the same number."""
    if not len(rows):
        return np.zeros(0, np.int64)
    if not rows.shape[1]:
        return np.zeros(len(rows), np.int64)
    order = np.lexsort(rows.T[::-1])
    is_new = (rows[order[1:]] != rows[order[:-1]]).any(axis=1)
    names = np.empty(len(rows), np.int64)
    names[order] = np.concatenate([[0], np.cumsum(is_new)])
    return names


def _initial(union: _Union, node_features: bool) -> np.ndarray:
    if node_features:
        return _names(_rows(union.nodes, "nodes"))
    return np.zeros(len(union.graph_ids), np.int64)


def _refined(union: _Union, colours: np.ndarray) -> np.ndarray:
    """One round of 1-WL: nodes of the same degree are compared as rows of a matrix, the own colour
    and the sorted colours of the neighbours.
    """
    n_labels = int(union.labels.max(initial=0)) + 1
    seen = colours[union.senders] * n_labels + union.labels
    order = np.lexsort((seen, union.receivers))
    seen = seen[order]
    in_degrees = np.bincount(union.receivers, minlength=len(colours))
    starts = np.cumsum(in_degrees) - in_degrees
    refined = np.empty_like(colours)
    count = 0
    for degree in np.unique(in_degrees):
        nodes = np.flatnonzero(in_degrees == degree)
        neighbours = seen[starts[nodes, None] + np.arange(degree)]
        names = _names(np.column_stack([colours[nodes], neighbours]))
        refined[nodes] = count + names
        count += int(names.max()) + 1
    return refined


def _initial_pairs(union: _Union, sizes: np.ndarray, node_features: bool) -> np.ndarray:
    """The isomorphism types of the pairs: equal or not, the edges both ways with their labels, and
    the colours of the nodes.
    """
    n = len(union.graph_ids)
    of_node = _initial(union, node_features)
    first_pair = np.cumsum(sizes**2) - sizes**2
    first_node = np.cumsum(sizes) - sizes
    graph = union.graph_ids
    position = np.arange(n) - first_node[graph]
    pair = lambda i, j: first_pair[graph[i]] + position[i] * sizes[graph[i]] + position[j]
    n_labels = int(union.labels.max(initial=0)) + 1
    edges, counts = np.unique(
        pair(union.receivers, union.senders) * n_labels + union.labels, return_counts=True
    )
    # An edge type is the multiset of the labels of the edges from j to i: one round of naming.
    to, label = edges // n_labels, edges % n_labels
    types = np.zeros(int((sizes**2).sum()), np.int64)
    for one in range(n_labels):
        here = label == one
        number = np.zeros(len(types), np.int64)
        number[to[here]] = counts[here]
        types = _names(np.stack([types, number], axis=1))
    i = np.repeat(np.arange(n), sizes[graph])
    j = np.concatenate(
        [np.tile(np.arange(start, start + size), size) for start, size in zip(first_node, sizes)]
    )
    back = types[pair(j, i)]
    return _names(np.stack([i == j, types, back, of_node[i], of_node[j]], axis=1).astype(np.int64))


def _refined_pairs(sizes: np.ndarray, colours: np.ndarray) -> np.ndarray:
    """One round of 2-FWL: graphs of the same size are compared as rows of one matrix."""
    n_colours = int(colours.max(initial=0)) + 1
    starts = np.cumsum(sizes**2) - sizes**2
    refined = np.empty_like(colours)
    count = 0
    for size in np.unique(sizes[sizes > 0]):
        at = starts[sizes == size, None] + np.arange(size**2)
        c = colours[at].reshape(-1, size, size)
        both = c[:, :, :, None] * n_colours + c[:, None, :, :]  # graph, i, k, j
        multisets = np.sort(both.transpose(0, 1, 3, 2).reshape(-1, size), axis=1)
        names = _names(np.column_stack([c.reshape(-1), multisets]))
        refined[at.reshape(-1)] = count + names
        count += int(names.max()) + 1
    return refined

r"""Training on graphs that do not fit: sampled neighbourhoods and clusters.

`sample_neighbours` draws, for a batch of nodes, a subgraph with a fixed number of neighbours of
each node in each layer (GraphSAGE, Hamilton et al. 2017). `cluster_nodes` divides the nodes into
clusters with few edges between them, and `cluster_batches` gives the graphs inside them
(Cluster-GCN, Chiang et al. 2019). All is done by NumPy on the host; memory is proportional to nodes
and edges. The subgraphs of a fan-out and a batch size have the same shapes, so that one compiled
program serves all.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Int, PRNGKeyArray

from ...check import expect_count
from .graph import Graph


class Subgraph(NamedTuple):
    """Part of a graph; padding has the node number -1."""

    graph: Graph
    nodes: Int[np.ndarray, " v"]  # the number in the whole graph of each node


class NeighbourTable(NamedTuple):
    """The edges of a graph by receiver: node i receives the edges `offsets[i]` to
    `offsets[i + 1]`.
    """

    graph: Graph  # with NumPy arrays
    offsets: Int[np.ndarray, " n"]


def neighbour_table(graph: Graph) -> NeighbourTable:
    """The table that `sample_neighbours` and `cluster_nodes` read; make it once for a graph.

    >>> neighbour_table(Graph.from_edges([(0, 1), (1, 2)])).offsets.tolist()
    [0, 1, 3, 4]
    """
    host = jax.tree.map(np.asarray, graph)
    if host.senders.ndim != 1 or not np.asarray(graph.node_mask).all():
        raise ValueError("neighbour_table: expected one graph without padding.")
    counts = np.bincount(host.receivers, minlength=graph.n_nodes)
    return NeighbourTable(host, np.concatenate([[0], np.cumsum(counts)]))


def sample_neighbours(
    table: NeighbourTable | Graph,
    seeds: Any,
    *,
    fan_out: Sequence[int],
    key: PRNGKeyArray,
) -> Subgraph:
    r"""The neighbourhood of the nodes `seeds` with at most `fan_out[l]` senders of each node in
    layer $l$, drawn at random without replacement.

    The seeds come first, so row $i$ of the output of a model is that of `seeds[i]`; a model with
    as many layers as `fan_out` has entries reaches no node outside. Layers are from the seeds
    outwards, and a node that is met again is not expanded again. The sizes depend on the number of
    seeds and on `fan_out` only: $s(1 + f_1 + f_1 f_2 + \dots)$ nodes and one more for padding.

    >>> from thetax.data.graphs.generate import star_graph
    >>> part = sample_neighbours(star_graph(100), [0, 5], fan_out=(3, 2), key=jr.key(0))
    >>> part.nodes[:2].tolist(), part.graph.n_nodes, int(part.graph.edge_mask.sum())
    ([0, 5], 21, 7)
    """
    table = table if isinstance(table, NeighbourTable) else neighbour_table(table)
    seeds = _check_seeds(seeds, table.graph.n_nodes)
    if not len(fan_out):
        raise ValueError("sample_neighbours: fan_out: expected a number for each layer, got none.")
    expect_count("sample_neighbours", **{f"fan_out[{i}]": f for i, f in enumerate(fan_out)})
    rng = np.random.default_rng(np.asarray(jr.key_data(key)).ravel())
    nodes = frontier = seeds
    chosen = []
    n_nodes, n_edges, width = len(seeds), 0, len(seeds)
    for f in fan_out:
        width *= f
        n_nodes += width
        n_edges += width
        edges = _draw_edges(table.offsets, frontier, f, rng)
        chosen.append(edges)
        senders = np.unique(table.graph.senders[edges])
        frontier = senders[~np.isin(senders, nodes)].astype(np.int64)
        nodes = np.concatenate([nodes, frontier])
    return _subgraph(
        table.graph,
        nodes,
        np.concatenate(chosen),
        n_nodes=n_nodes + 1,
        n_edges=n_edges,
    )


def cluster_nodes(
    table: NeighbourTable | Graph, n_clusters: int, *, rounds: int = 10, key: PRNGKeyArray
) -> Int[np.ndarray, " v"]:
    """The cluster of each node, from 0 to `n_clusters` - 1: about equal sizes, few edges between.

    Breadth-first searches from random nodes fill one cluster after another; then, for some
    `rounds`, nodes move to the cluster of most of their neighbours if it is not larger than a tenth
    above the mean (label propagation under a limit of size). A simple partition; METIS cuts fewer
    edges.

    >>> from thetax.data.graphs.generate import path_graph
    >>> np.bincount(cluster_nodes(path_graph(12), 3, key=jr.key(0))).tolist()
    [5, 3, 4]
    """
    table = table if isinstance(table, NeighbourTable) else neighbour_table(table)
    expect_count("cluster_nodes", n_clusters=n_clusters)
    n = table.graph.n_nodes
    if n_clusters > n:
        raise ValueError(f"cluster_nodes: n_clusters={n_clusters} clusters of {n} nodes.")
    rng = np.random.default_rng(np.asarray(jr.key_data(key)).ravel())
    clusters = _breadth_first(table, rng) * n_clusters // n
    limit = int(np.ceil(1.1 * n / n_clusters))
    for _ in range(rounds):
        wanted, gain = _majority(table, clusters, n_clusters)
        movers = np.flatnonzero((gain > 0) & (rng.random(n) < 0.5))
        if not len(movers):
            break
        movers = movers[np.argsort(-gain[movers], kind="stable")]
        free = np.maximum(limit - np.bincount(clusters, minlength=n_clusters), 0)
        rank = _rank_within(wanted[movers])
        movers = movers[rank < free[wanted[movers]]]
        clusters[movers] = wanted[movers]
    return clusters.astype(np.int32)


def cluster_batches(
    table: NeighbourTable | Graph,
    clusters: Any,
    *,
    clusters_per_batch: int = 1,
    key: PRNGKeyArray,
) -> Iterator[Subgraph]:
    """The graphs of random groups of clusters, with all edges inside, an epoch of batches; padded
    to the same sizes.

    >>> from thetax.data.graphs.generate import path_graph
    >>> batches = cluster_batches(path_graph(4), [0, 0, 1, 1], key=jr.key(0))
    >>> [(batch.nodes.tolist(), int(batch.graph.edge_mask.sum())) for batch in batches]
    [([0, 1, -1], 2), ([2, 3, -1], 2)]
    """
    table = table if isinstance(table, NeighbourTable) else neighbour_table(table)
    expect_count("cluster_batches", clusters_per_batch=clusters_per_batch)
    clusters = np.asarray(clusters)
    if clusters.shape != (table.graph.n_nodes,) or not np.issubdtype(clusters.dtype, np.integer):
        raise ValueError(
            f"cluster_batches: expected the number of a cluster for each of the "
            f"{table.graph.n_nodes} nodes, got {clusters.dtype} of shape {clusters.shape}."
        )
    n_clusters = int(clusters.max()) + 1
    order = np.asarray(jr.permutation(key, n_clusters))
    groups = np.empty(n_clusters, np.int64)
    groups[order] = np.arange(n_clusters) // clusters_per_batch
    group = groups[clusters]  # of each node
    inside = np.flatnonzero(group[table.graph.senders] == group[table.graph.receivers])
    edge_group = group[table.graph.receivers[inside]]
    n_nodes = int(np.bincount(group).max()) + 1
    n_edges = int(np.bincount(edge_group, minlength=1).max(initial=0))
    by_group, by_edge_group = (
        np.argsort(group, kind="stable"),
        np.argsort(edge_group, kind="stable"),
    )
    node_ends = np.cumsum(np.bincount(group))
    edge_ends = np.cumsum(np.bincount(edge_group, minlength=len(node_ends)))
    for nodes, edges in zip(
        np.split(by_group, node_ends[:-1]), np.split(inside[by_edge_group], edge_ends[:-1])
    ):
        yield _subgraph(table.graph, nodes, edges, n_nodes=n_nodes, n_edges=n_edges)


def _check_seeds(seeds: Any, n: int) -> Int[np.ndarray, " s"]:
    seeds = np.asarray(seeds)
    if seeds.ndim != 1 or not len(seeds) or not np.issubdtype(seeds.dtype, np.integer):
        raise ValueError(
            f"sample_neighbours: seeds: expected numbers of nodes, got {seeds.dtype} of shape "
            f"{seeds.shape}."
        )
    if seeds.min() < 0 or seeds.max() >= n or len(np.unique(seeds)) < len(seeds):
        raise ValueError(
            f"sample_neighbours: seeds: expected different nodes from 0 to {n - 1}, got "
            f"{seeds.min()} to {seeds.max()}, {len(np.unique(seeds))} of {len(seeds)} different."
        )
    return seeds.astype(np.int64)


def _draw_edges(
    offsets: np.ndarray, nodes: np.ndarray, f: int, rng: np.random.Generator
) -> Int[np.ndarray, " k"]:
    """At most `f` of the edges to each of the nodes, without replacement.

    Each edge gets a random number, and each node keeps its `f` smallest.
    """
    counts = offsets[nodes + 1] - offsets[nodes]
    owner = np.repeat(np.arange(len(nodes)), counts)
    starts = np.cumsum(counts) - counts
    edges = np.arange(len(owner)) - starts[owner] + offsets[nodes][owner]
    order = np.lexsort((rng.random(len(edges)), owner))
    rank = np.arange(len(owner)) - starts[owner]
    return np.sort(edges[order[rank < f]])


def _subgraph(
    whole: Graph, nodes: np.ndarray, edges: np.ndarray, *, n_nodes: int, n_edges: int
) -> Subgraph:
    """The given nodes and edges of a graph, renumbered and padded."""
    number = np.full(whole.n_nodes, -1, np.int32) if len(nodes) > whole.n_nodes // 16 else None
    if number is None:
        order = np.argsort(nodes)
        find = lambda old: order[np.searchsorted(nodes[order], old)]
    else:
        number[nodes] = np.arange(len(nodes))
        find = lambda old: number[old]
    senders, receivers = find(whole.senders[edges]), find(whole.receivers[edges])
    by = np.lexsort((senders, receivers))
    last = n_nodes - 1
    more = lambda values, n, fill: jnp.asarray(_lengthen(values, n, fill))
    take = lambda values: None if values is None else more(values[edges[by]], n_edges, 0)
    graph = Graph(
        more(whole.nodes[nodes], n_nodes, 0),
        more(senders[by].astype(np.int32), n_edges, last),
        more(receivers[by].astype(np.int32), n_edges, last),
        take(whole.edges),
        take(whole.weights),
        more(np.zeros(len(nodes), np.int32), n_nodes, 1),
    )
    return Subgraph(graph, _lengthen(nodes, n_nodes, -1))


def _lengthen(values: np.ndarray, n: int, fill: int) -> np.ndarray:
    rest = np.full((n - len(values), *values.shape[1:]), fill, values.dtype)
    return np.concatenate([values, rest])


def _breadth_first(table: NeighbourTable, rng: np.random.Generator) -> Int[np.ndarray, " v"]:
    """The place of each node in breadth-first searches from random nodes."""
    senders, offsets = table.graph.senders, table.offsets
    n = table.graph.n_nodes
    place = np.full(n, -1, np.int64)
    count = 0
    for start in rng.permutation(n):
        if place[start] >= 0:
            continue
        frontier = np.array([start])
        while len(frontier):
            place[frontier] = count + np.arange(len(frontier))
            count += len(frontier)
            edges = _draw_edges(offsets, frontier, n, rng)
            frontier = np.unique(senders[edges])
            frontier = frontier[place[frontier] < 0]
    return place


def _majority(
    table: NeighbourTable, clusters: np.ndarray, n_clusters: int
) -> tuple[np.ndarray, np.ndarray]:
    """The cluster of most senders of each node, and how many more they are than in its own."""
    graph = table.graph
    pairs = graph.receivers.astype(np.int64) * n_clusters + clusters[graph.senders]
    seen, counts = np.unique(pairs, return_counts=True)
    node, cluster = seen // n_clusters, seen % n_clusters
    own = np.zeros(graph.n_nodes, np.int64)
    here = cluster == clusters[node]
    own[node[here]] = counts[here]
    order = np.lexsort((counts, node))
    last = np.flatnonzero(np.append(np.diff(node[order]) != 0, len(order) > 0))
    best = order[last]
    wanted = clusters.copy()
    gain = np.zeros(graph.n_nodes, np.int64)
    wanted[node[best]] = cluster[best]
    gain[node[best]] = counts[best] - own[node[best]]
    return wanted, gain


def _rank_within(groups: np.ndarray) -> Int[np.ndarray, " k"]:
    """How many earlier entries are equal."""
    order = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups)
    starts = np.cumsum(sizes) - sizes
    rank = np.empty(len(groups), np.int64)
    rank[order] = np.arange(len(groups)) - starts[groups[order]]
    return rank

"""Graphs of networkx that several claims use, and their conversion."""

from typing import Any

import networkx as nx
import numpy as np

from ...data import Graph

HEXAGON = nx.cycle_graph(6)
TWO_TRIANGLES = nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3))
# The line graph of K(4, 4), and Shrikhande's graph: both strongly regular, srg(16, 6, 2, 2).
ROOK = nx.convert_node_labels_to_integers(nx.line_graph(nx.complete_bipartite_graph(4, 4)))
SHRIKHANDE = nx.convert_node_labels_to_integers(
    nx.Graph(
        ((i, j), ((i + a) % 4, (j + b) % 4))
        for i in range(4)
        for j in range(4)
        for a, b in ((0, 1), (1, 0), (1, 1))
    )
)


def graph_of(graph: nx.Graph, nodes: Any = None) -> Graph:
    """The graph with nodes 0 to M - 1 of networkx, in double precision."""
    nodes = np.ones((len(graph), 1)) if nodes is None else nodes
    if not graph.number_of_edges():
        return Graph.from_nodes(nodes)
    return Graph.from_edges(list(graph.edges), nodes)


def random_graph(rng: Any, *, max_nodes: int = 12) -> nx.Graph:
    """A random graph, often with several components and isolated nodes."""
    n = int(rng.integers(2, max_nodes + 1))
    return nx.gnp_random_graph(n, rng.uniform(0.05, 0.6), seed=int(rng.integers(2**31)))


def atlas(max_nodes: int, *, connected: bool = True) -> list[nx.Graph]:
    """All graphs with one to `max_nodes` nodes (at most 7), one of each isomorphism class."""
    every = [graph for graph in nx.graph_atlas_g() if 0 < len(graph) <= max_nodes]
    return [graph for graph in every if not connected or nx.is_connected(graph)]

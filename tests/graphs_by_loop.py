"""Random graphs with isolated nodes, self-loops and doubled edges, and loops over their edges in
NumPy: the second route to the numbers of graph layers.
"""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from thetax.data.graphs import Graph, permute_nodes

AGGREGATE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sum": lambda m: m.sum(axis=0),
    "mean": lambda m: m.mean(axis=0),
    "max": lambda m: m.max(axis=0),
    "min": lambda m: m.min(axis=0),
    "std": lambda m: m.std(axis=0),
    "softmax": lambda m: (np.exp(m) / np.exp(m).sum(axis=0) * m).sum(axis=0),
}


def random_graph(
    seed: int,
    *,
    n_nodes: int = 6,
    n_pairs: int = 7,
    d: int = 3,
    c: int = 2,
    weighted: bool = False,
    undirected: bool = False,
) -> Graph:
    """A graph with a self-loop, a doubled edge and at least one isolated node, the last."""
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, n_nodes - 1, (n_pairs, 2))
    pairs = np.concatenate([pairs, [[0, 0], pairs[0]]])
    weights = rng.uniform(0.5, 2.0, len(pairs)) if weighted else None
    return Graph.from_edges(
        pairs,
        rng.normal(size=(n_nodes, d)),
        undirected=undirected,
        edges=rng.normal(size=(len(pairs), c)),
        weights=weights,
    )


def edges_to(graph: Graph, i: int) -> list[tuple[int, int]]:
    """The edges to node i, as pairs of their number and their sender."""
    return [
        (k, int(j))
        for k, (j, receiver) in enumerate(zip(graph.senders, graph.receivers))
        if receiver == i
    ]


def collect(graph: Graph, message: Callable[[int, int, int], Any], how: str, width: int) -> Any:
    """The aggregation of message(i, j, k) over the edges k from j to i, for every node i."""
    rows = []
    for i in range(graph.n_nodes):
        messages = np.array([message(i, j, k) for k, j in edges_to(graph, i)])
        rows.append(AGGREGATE[how](messages) if len(messages) else np.zeros(width))
    return np.array(rows)


def dense(layer: Any, x: Any) -> np.ndarray:
    """The affine map of a Linear layer, or the MLP of a Chain with ReLU, for one vector or rows."""
    if hasattr(layer, "layers"):
        for part in layer.layers:
            x = dense(part, x) if hasattr(part, "W") else np.maximum(x, 0)
        return x
    y = np.asarray(x) @ np.asarray(layer.W).T
    return y if layer.b is None else y + np.asarray(layer.b)


def jittered(model: Any, seed: int = 7) -> Any:
    """The model with other parameters, so that no bias is 0 and no scale 1."""
    leaves, structure = jax.tree.flatten(model)
    keys = jr.split(jr.key(seed), max(len(leaves), 1))
    moved = [a + 0.3 * jr.normal(k, a.shape, a.dtype) for a, k in zip(leaves, keys)]
    return jax.tree.unflatten(structure, moved)


def permutations(n: int, *, n_random: int = 20) -> list[np.ndarray]:
    """All orders of up to 5 nodes, or some random ones of more."""
    if n <= 5:
        return [np.array(order) for order in itertools.permutations(range(n))]
    rng = np.random.default_rng(0)
    return [rng.permutation(n) for _ in range(n_random)]


def permuted_stack(graph: Graph, orders: list[np.ndarray]) -> Graph:
    """The graph in all the given orders of its nodes, stacked."""
    graphs = [permute_nodes(graph, order) for order in orders]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *graphs)

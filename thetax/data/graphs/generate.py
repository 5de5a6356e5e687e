"""Synthetic graphs: random ones from a key, and standard ones (§7.4).

Node features are a one each; `graph.with_nodes(...)` gives others.
"""

import jax.random as jr
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from ...check import expect_count
from .graph import Graph


def stochastic_block_model(
    sizes: tuple[int, ...] | list[int],
    *,
    p_in: float,
    p_out: float,
    key: PRNGKeyArray,
) -> tuple[Graph, Int[np.ndarray, " v"]]:
    """Communities of the given sizes: nodes of the same one are linked with probability `p_in`,
    others with `p_out`. Returns the graph and the community of each node.

    >>> graph, labels = stochastic_block_model((3, 4), p_in=1.0, p_out=0.0, key=jr.key(0))
    >>> graph.n_edges, labels.tolist()
    (18, [0, 0, 0, 1, 1, 1, 1])
    """
    if not len(sizes) or min(sizes) < 1:
        raise ValueError(
            f"stochastic_block_model: sizes: expected at least one, each 1 or more; got {sizes}."
        )
    _check_probabilities("stochastic_block_model", p_in=p_in, p_out=p_out)
    labels = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    rng = _generator(key)
    starts = np.cumsum([0, *sizes]).tolist()
    blocks = range(len(sizes))
    pairs = [
        _random_block(starts[a], sizes[a], starts[b], sizes[b], p_in if a == b else p_out, rng)
        for a in blocks
        for b in blocks[a:]
    ]
    return _undirected(np.concatenate(pairs), len(labels)), labels


def erdos_renyi(n: int, p: float, *, key: PRNGKeyArray) -> Graph:
    """A random graph of `n` nodes in which each pair is linked with probability `p`.

    >>> erdos_renyi(5, 1.0, key=jr.key(0)).n_edges
    20
    """
    expect_count("erdos_renyi", n=n)
    _check_probabilities("erdos_renyi", p=p)
    return _undirected(_random_block(0, n, 0, n, p, _generator(key)), n)


def random_tree(n: int, *, key: PRNGKeyArray) -> Graph:
    """A tree of `n` nodes, each of the $n^{n-2}$ labelled trees with the same probability (from its
    Prüfer sequence).

    >>> random_tree(6, key=jr.key(0)).n_edges
    10
    """
    expect_count("random_tree", n=n)
    if n < 3:
        return path_graph(n)
    code = _generator(key).integers(n, size=n - 2)
    degree = np.bincount(code, minlength=n) + 1
    pairs = []
    leaf = pointer = int(np.flatnonzero(degree == 1)[0])
    for node in code.tolist():
        pairs.append((leaf, node))
        degree[node] -= 1
        if degree[node] == 1 and node < pointer:
            leaf = node
        else:
            pointer += 1
            while degree[pointer] != 1:
                pointer += 1
            leaf = pointer
    pairs.append((leaf, n - 1))
    return _undirected(np.array(pairs), n)


def random_regular_graph(n: int, degree: int, *, key: PRNGKeyArray) -> Graph:
    """A random graph of `n` nodes, each with `degree` neighbours (Steger & Wormald 1999, by
    networkx).

    >>> import jax.numpy as jnp
    >>> jnp.bincount(random_regular_graph(8, 3, key=jr.key(0)).receivers).tolist()
    [3, 3, 3, 3, 3, 3, 3, 3]
    """
    import networkx as nx

    expect_count("random_regular_graph", n=n, degree=degree)
    if degree >= n or n * degree % 2:
        raise ValueError(
            f"random_regular_graph: there is none with n={n} nodes of degree={degree}: degree must "
            "be less than n, and n * degree even."
        )
    graph = nx.random_regular_graph(degree, n, seed=int(_generator(key).integers(1 << 31)))
    return _undirected(np.array(sorted(graph.edges)), n)


def path_graph(n: int) -> Graph:
    """A path, node i linked with node i + 1.

    >>> path_graph(3).senders.tolist()
    [1, 0, 2, 1]
    """
    expect_count("path_graph", n=n)
    return _undirected(np.stack([np.arange(n - 1), np.arange(1, n)], axis=1), n)


def cycle_graph(n: int) -> Graph:
    """A cycle of at least three nodes.

    >>> cycle_graph(4).n_edges
    8
    """
    expect_count("cycle_graph", n=n)
    if n < 3:
        raise ValueError(f"cycle_graph: n must be at least 3; got {n}. Use path_graph.")
    return _undirected(np.stack([np.arange(n), (np.arange(n) + 1) % n], axis=1), n)


def star_graph(n: int) -> Graph:
    """A star of `n` nodes, node 0 linked with each of the others.

    >>> star_graph(4).receivers.tolist()
    [0, 0, 0, 1, 2, 3]
    """
    expect_count("star_graph", n=n)
    return _undirected(np.stack([np.zeros(n - 1, int), np.arange(1, n)], axis=1), n)


def complete_graph(n: int) -> Graph:
    """Every node linked with every other.

    >>> complete_graph(4).n_edges
    12
    """
    expect_count("complete_graph", n=n)
    return _undirected(np.stack(np.triu_indices(n, 1), axis=1), n)


def grid_graph(rows: int, columns: int) -> Graph:
    """A grid in which neighbours in a row and in a column are linked; node $(i, j)$ is number
    `i * columns + j`.

    >>> grid_graph(2, 3).n_edges
    14
    """
    expect_count("grid_graph", rows=rows, columns=columns)
    number = np.arange(rows * columns).reshape(rows, columns)
    across = np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], axis=1)
    down = np.stack([number[:-1].ravel(), number[1:].ravel()], axis=1)
    return _undirected(np.concatenate([across, down]), rows * columns)


def _generator(key: PRNGKeyArray) -> np.random.Generator:
    return np.random.default_rng(np.asarray(jr.key_data(key)).ravel())


def _undirected(pairs: np.ndarray, n: int) -> Graph:
    if not len(pairs):
        return Graph.from_nodes(np.ones((n, 1), np.float32))
    return Graph.from_edges(pairs, np.ones((n, 1), np.float32))


def _random_block(
    start: int, size: int, other: int, other_size: int, p: float, rng: np.random.Generator
) -> Int[np.ndarray, "e 2"]:
    """Random pairs between two ranges of nodes, or within one; memory is that of the pairs drawn.

    The gaps between successive pairs that are drawn are geometric (Batagelj & Brandes 2005).
    """
    within = start == other
    total = size * (size - 1) // 2 if within else size * other_size
    if p == 0 or total == 0:
        return np.zeros((0, 2), np.int64)
    chosen = np.arange(total) if p == 1 else _geometric_steps(total, p, rng)
    if not within:
        return np.stack([start + chosen // other_size, other + chosen % other_size], axis=1)
    # Pair number k of a triangle is (row, column) with row (row - 1) / 2 + column = k.
    row = ((1 + np.sqrt(1 + 8 * chosen.astype(np.float64))) / 2).astype(np.int64)
    row += (row + 1) * row // 2 <= chosen
    row -= row * (row - 1) // 2 > chosen
    return np.stack([start + chosen - row * (row - 1) // 2, start + row], axis=1)


def _geometric_steps(total: int, p: float, rng: np.random.Generator) -> Int[np.ndarray, " k"]:
    steps = []
    last = -1
    while last < total:
        size = int(1.1 * p * (total - last)) + 16
        positions = last + np.cumsum(rng.geometric(p, size=size))
        steps.append(positions)
        last = int(positions[-1])
    chosen = np.concatenate(steps)
    return chosen[chosen < total]


def _check_probabilities(name: str, **values: float | Float[np.ndarray, ""]) -> None:
    for argument, p in values.items():
        if not 0 <= p <= 1:
            raise ValueError(f"{name}: {argument} is a probability, from 0 to 1; got {p}.")

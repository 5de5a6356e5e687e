"""§7.4: what depth does to a GCN: receptive field, over-smoothing and over-squashing."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import jax.random as jr
import networkx as nx
import numpy as np
import optax

from ... import data, tree
from ...data import Graph
from ...layers import GCN, Chain, Nodewise, gcn_propagate, he, relu
from ...models import GNN
from ...plot import Panel
from ...train import log_loss
from ..engine.check import at_least, at_most, close, equal, increasing, refuted
from ..engine.claim import Verdict, claim
from .coupling_matrix import coupling_matrices
from .graphs_by_loop import accuracy, train
from .known_graphs import graph_of, random_graph

LI = "Li, Han & Wu 2018; Oono & Suzuki 2020"


def distances(graph: nx.Graph) -> np.ndarray:
    """The lengths of shortest paths, infinite between components."""
    table = np.full((len(graph), len(graph)), np.inf)
    for i, lengths in nx.all_pairs_shortest_path_length(graph):
        for j, length in lengths.items():
            table[i, j] = length
    return table


@claim(
    "7.4-gcn-receptive",
    title="The receptive field of L layers",
    kind="theorem",
    of=("layers.GCN",),
)
def receptive_field(key, rng):
    r"""With $L$ layers $\partial y_i / \partial x_j = 0$ if the distance of $i$ and $j$ is more
    than $L$. So at least as many layers as the diameter are needed until every node can see every
    other.
    """
    path = nx.path_graph(8)
    graph = graph_of(path, rng.uniform(0.5, 1, (8, 2)))
    positive = jax.tree.map(jnp.abs, [GCN.init(2, 2, key=jr.fold_in(key, i)) for i in range(7)])
    apart = distances(path)
    reached = []
    for depth in range(1, 8):
        net = Chain(*[part for layer in positive[:depth] for part in (layer, Nodewise(relu))])
        slope = jax.jacobian(lambda x, net=net: net(graph.with_nodes(x)).nodes)(graph.nodes)
        reached.append(np.asarray(jnp.abs(slope).max(axis=(1, 3)) > 0))
    graphs = [random_graph(rng) for _ in range(20)]
    wrong = 0
    for g in graphs:
        A = nx.to_numpy_array(g) + np.eye(len(g))
        for depth in range(1, 6):
            balls = distances(g) <= depth
            wrong += int(np.sum((np.linalg.matrix_power(A, depth) > 0) != balls))
    everywhere = [bool(r.all()) for r in reached]
    return Verdict(
        *[
            equal(f"∂y_i/∂x_j ≠ 0 iff the distance is at most {depth}", r, apart <= depth)
            for depth, r in enumerate(reached, start=1)
        ],
        equal("layers until every node sees every other", 1 + everywhere.index(True), 7),
        equal("diameter", nx.diameter(path), 7),
        equal("entries of (A + I)^L ≠ 0, against balls: 20 graphs, L ≤ 5", wrong, 0),
        refuted(equal("two layers see nodes at distance 3", reached[1], apart <= 3)),
    )


@claim(
    "7.4-oversmoothing",
    title="Repeated propagation collapses the features",
    kind="theorem",
    of=("layers.gcn_propagate",),
    cites=LI,
)
def collapse(rng):
    r"""On a connected graph $\bar A^k X \to u u^\top X$ with $u = D^{1/2} 1 / \|D^{1/2} 1\|$, and
    $\|\bar A^k X - u u^\top X\|_F \le \lambda^k \|X\|_F$ with $\lambda = \max_{i \ge 2}
    |\lambda_i|$. So the rows become proportional to $\sqrt{d_i}$: of rank 1, and equal after
    division by $\sqrt{d_i}$. On a graph with several components each keeps a direction of its own.
    """
    graphs = []
    while len(graphs) < 20:
        g = random_graph(rng)
        graphs += [g] if nx.is_connected(g) and len(g) > 2 else []
    worst, spread = [], []
    for g, A in zip(graphs, coupling_matrices(graphs)):
        X = rng.normal(size=(len(g), 3))
        root = np.sqrt([1 + g.degree[i] for i in g])
        u = root / np.linalg.norm(root)
        rate = np.sort(np.abs(np.linalg.eigvalsh(A)))[-2]
        power = X
        for k in range(1, 61):
            power = A @ power
            bound = rate**k * np.linalg.norm(X)
            worst.append(np.linalg.norm(power - np.outer(u, u @ X)) - bound)
        far = np.linalg.matrix_power(A, 3000) @ X / root[:, None]
        spread.append(far.std(axis=0).max())
    parts = nx.disjoint_union(nx.path_graph(3), nx.cycle_graph(4))
    graph = graph_of(parts, rng.normal(size=(7, 3)))
    far = jax.lax.fori_loop(0, 3000, lambda _, x: gcn_propagate(graph, x), graph.nodes)
    rows = np.asarray(far) / np.sqrt([1 + parts.degree[i] for i in parts])[:, None]
    within = max(rows[:3].std(axis=0).max(), rows[3:].std(axis=0).max())
    return Verdict(
        at_most("‖Ā^k X - uu^T X‖ minus the bound, k ≤ 60", np.array(worst), 0.0, slack=1e-12),
        at_most("spread of the rows over √d, k = 3000", np.array(spread), 1e-12),
        at_most("two components: spread within each", within, 1e-12),
        at_least("two components: difference between them", np.abs(rows[0] - rows[3]).max(), 1e-2),
        refuted(at_most("two components: spread over all", rows.std(axis=0).max(), 1e-12)),
    )


def similarity(X: np.ndarray) -> float:
    """The mean cosine of two different rows."""
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    n = len(X)
    return float(((unit @ unit.T).sum() - n) / (n * (n - 1)))


@claim(
    "7.4-oversmoothing-exp",
    title="Over-smoothing of deep GCNs",
    kind="experiment",
    of=("models.GNN", "layers.GCN", "data.stochastic_block_model"),
    cites=LI,
)
def deep_networks(key, rng):
    r"""In a random GCN with ReLU the features of the nodes become more alike with every few layers,
    and a deep GCN classifies nodes worse than one with two layers.
    """
    graph, labels = data.stochastic_block_model((30, 30), p_in=0.3, p_out=0.05, key=key)
    graph = graph.with_nodes(jr.normal(key, (60, 16)))
    depths = np.array([1, 2, 4, 8, 16, 32, 64])
    keys = jr.split(key, 64)
    weights = jax.vmap(lambda k: GCN.init(16, 16, initialiser=he, bias=False, key=k))(keys)

    def layer(graph, weights):
        graph = Nodewise(relu)(weights(graph))
        return graph, graph.nodes

    features = np.asarray(jax.lax.scan(layer, graph, weights)[1])
    alike = [similarity(features[depth - 1]) for depth in depths]
    known = np.concatenate(
        [rng.choice(30, 8, replace=False), 30 + rng.choice(30, 8, replace=False)]
    )
    others = np.setdiff1d(np.arange(60), known)
    targets = jnp.asarray(labels)
    found = {}
    for depth in (2, 32):
        net = train(
            lambda net, key: (
                jax.vmap(log_loss)(net(graph)[known], targets[known]).mean()
                + 1e-3 * tree.dot(net, net)
            ),
            GNN.init(16, 16, 2, depth=depth, key=key),
            optax.adam(0.01),
            steps=100,
            key=key,
        )
        found[depth] = accuracy(net(graph)[others], labels[others])
    return Verdict(
        increasing("mean cosine at depth 1, 2, 4, ..., 64", alike),
        at_least("mean cosine at depth 64", alike[-1], 0.99),
        at_most("mean cosine at depth 1", alike[0], 0.9),
        at_least("accuracy of 2 layers minus that of 32", found[2] - found[32], 0.1),
        figure=Panel("depth", "mean cosine of two nodes", lines={"GCN": (depths, alike)}, log="x"),
    )


@jax.jit
def root_slope(net: Chain, graph: Graph) -> jax.Array:
    r"""$\partial y_{\text{root}} / \partial X$."""
    return jax.jacobian(lambda x: net(graph.with_nodes(x)).nodes[0])(graph.nodes)


@claim(
    "7.4-oversquashing",
    title="Over-squashing in trees",
    kind="experiment",
    of=("layers.GCN",),
    cites="Alon & Yahav 2021; Topping et al. 2022",
)
def sensitivity_in_trees(key):
    r"""In a complete binary tree of height $r$ a linear GCN of $r$ layers has $\partial
    y_{\text{root}} / \partial x_{\text{leaf}} = (\bar A^r)_{\text{root}, \text{leaf}}\, \prod_\ell
    W_\ell$, and the entry is $\frac{1}{\sqrt 6}\, 4^{1 - r}$. So the sensitivity falls
    exponentially with the distance, as the messages of $2^r$ leaves share one vector.
    """
    heights = range(1, 7)
    entries, errors = [], []
    for r in heights:
        tree_of = nx.balanced_tree(2, r)
        graph = graph_of(tree_of, jr.normal(key, (len(tree_of), 2)))
        (A,) = coupling_matrices([tree_of])
        entry = np.linalg.matrix_power(A, r)[0, -1]
        layers = [GCN.init(2, 2, bias=False, key=jr.fold_in(key, i)) for i in range(r)]
        product = np.linalg.multi_dot([np.eye(2), *[g.linear.W for g in layers[::-1]], np.eye(2)])
        slope = np.asarray(root_slope(Chain(*layers), graph))[:, -1]
        entries.append(entry)
        errors.append(np.abs(slope - entry * product).max() / np.linalg.norm(product))
    ratios = np.array([b / a for a, b in pairwise(entries)])
    return Verdict(
        close("(Ā^r) at root and leaf", entries, [4.0 ** (1 - r) / np.sqrt(6) for r in heights]),
        close("ratio of one height to the next", ratios, 0.25, tolerance=1e-10),
        close("∂y/∂x at root and leaf, over ∏W", np.array(errors), 0.0, tolerance=1e-12),
        refuted(close("ratio 1/2, as the number of leaves", ratios, 0.5, tolerance=1e-2)),
        figure=Panel("height r", "sensitivity", lines={"tree": (list(heights), entries)}, log="y"),
    )

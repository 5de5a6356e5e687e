"""§7.4: graphs, invariant and equivariant functions of them, node and graph classification."""

import jax
import jax.numpy as jnp
import jax.random as jr
import networkx as nx
import numpy as np
import optax

from ... import data
from ...core import predict
from ...data import Graph, permute_nodes, stack_graphs
from ...layers import GAT, GCN, Chain, MessagePassing, Readout, in_degrees, propagate
from ...models import GNN
from ...train import cross_entropy, log_loss
from ..engine.check import at_least, close, equal, refuted
from ..engine.claim import Verdict, claim
from .graphs_by_loop import (
    ORDERS,
    accuracy,
    equivariance_error,
    house,
    in_all_orders,
    invariance_error,
    result,
    train,
)
from .known_graphs import graph_of, random_graph
from .permutations import CYCLE, matrix_of
from .sets_by_loop import generic


@claim(
    "7.4-graph",
    title="Graph and adjacency matrix",
    kind="definition",
    of=("data.Graph", "layers.in_degrees"),
)
def graph_and_adjacency(rng):
    r"""An undirected graph has edges $\{v, v'\}$ and the adjacency matrix $a_{ij} = 1$ iff
    $\{v_i, v_j\} \in E$, so $A = A^\top$. Edges and matrix determine each other. The set notation
    admits self-loops; here the diagonal is 0 unless a self-loop is listed, and the GCN adds $I$.
    """
    graphs = [random_graph(rng) for _ in range(20)]
    wrong = {"adjacency": 0, "transpose": 0, "degrees": 0, "edges": 0, "diagonal": 0}
    for theirs in graphs:
        ours = graph_of(theirs)
        found = np.asarray(ours.adjacency())
        A = nx.to_numpy_array(theirs)
        pairs = {tuple(pair) for pair in data.to_edges(Graph.from_adjacency(A)).pairs.tolist()}
        expected = {(i, j) for a, b in theirs.edges for i, j in ((a, b), (b, a))}
        wrong["adjacency"] += int(np.sum(found != A))
        wrong["transpose"] += int(np.sum(found != found.T))
        wrong["degrees"] += int(np.sum(in_degrees(ours) != np.array([d for _, d in theirs.degree])))
        wrong["edges"] += len(pairs ^ expected)
        wrong["diagonal"] += int(np.sum(np.diag(found) != 0))
    loop = Graph.from_edges([(0, 0), (0, 1)])
    directed = Graph.from_edges([(0, 1)], undirected=False).adjacency()
    return Verdict(
        *[equal(f"{name}: entries that differ, 20 graphs", n, 0) for name, n in wrong.items()],
        equal("with a listed self-loop", loop.adjacency(), [[1.0, 1.0], [1.0, 0.0]]),
        refuted(equal("A = A^T for a directed edge", directed, directed.T)),
    )


def triangles(graph):
    r"""$\mathrm{tr}(A^3) / 6$."""
    A = graph.adjacency()
    return jnp.trace(A @ A @ A) / 6


def spectrum(graph):
    """The eigenvalues of A in ascending order."""
    return jnp.linalg.eigvalsh(graph.adjacency())


@claim(
    "7.4-graph-invariance",
    title="Invariant functions of graphs",
    kind="definition",
    of=("data.permute_nodes", "layers.Readout"),
)
def invariance(key, rng):
    r"""$f$ is invariant iff $f(PX, PAP^\top) = f(X, A)$ for every permutation matrix $P$."""
    graph = house(rng)
    layer = generic(GCN.init(3, 4, key=key), key)
    pooled = lambda graph: Readout("sum")(layer(graph))
    permuted = in_all_orders(graph)
    A = np.asarray(graph.adjacency())
    matrices = np.asarray(jax.vmap(lambda graph: graph.adjacency())(permuted))
    expected = np.stack([matrix_of(o) @ A @ matrix_of(o).T for o in ORDERS])
    error = lambda f: invariance_error(f, graph)
    return Verdict(
        equal("P A P^T, all 120 orders", matrices, expected),
        equal("P X, all 120 orders", permuted.nodes, np.asarray(graph.nodes)[ORDERS]),
        equal("number of triangles", float(triangles(graph)), 2.0),
        close("number of triangles", error(triangles), 0.0),
        close("spectrum of A", error(spectrum), 0.0),
        close("sum of the outputs of a GCN", error(pooled), 0.0),
        refuted(
            close(
                "sum of the first row of A",
                error(lambda graph: graph.adjacency()[0].sum()),
                0.0,
                tolerance=1e-3,
            )
        ),
    )


@claim(
    "7.4-graph-equivariance",
    title="Equivariant functions of graphs",
    kind="definition",
    of=("layers.GCN", "layers.GAT", "layers.propagate", "data.permute_nodes"),
)
def equivariance(key, rng):
    r"""$f$ is equivariant iff $f(PX, PAP^\top) = P f(X, A)$ for every permutation matrix $P$.

    The notes print $P f(PX, PAP^\top) = f(X, A)$, the mistake of definition 7.2 again, which a
    cycle of three nodes refutes.
    """
    graph = house(rng)
    cycle = np.concatenate([CYCLE, [3, 4]])
    P = matrix_of(cycle)
    gcn = generic(GCN.init(3, 4, key=key), key)
    gat = generic(GAT.init(3, 4, n_heads=2, edge_features=2, key=key), key)
    error = lambda f: equivariance_error(f, graph)
    y, permuted = (np.asarray(result(gcn, g)) for g in (graph, permute_nodes(graph, cycle)))
    return Verdict(
        close("A X", error(lambda graph: propagate(graph, graph.nodes)), 0.0),
        close("degrees", error(in_degrees), 0.0),
        close("GCN", error(gcn), 0.0),
        close("GAT with edge features", error(gat), 0.0),
        refuted(
            close("rows in reverse", error(lambda graph: graph.nodes[::-1]), 0.0, tolerance=1e-3)
        ),
        close("a cycle of three nodes: f(PX, PAP^T) against P f(X, A)", permuted, P @ y),
        refuted(
            close(
                "a cycle of three nodes: P f(PX, PAP^T) against f(X, A)",
                P @ permuted,
                y,
                tolerance=1e-6,
            )
        ),
    )


@claim(
    "7.4-isomorphic-features",
    title="Isomorphic graphs get the same features",
    kind="theorem",
    of=("layers.MessagePassing", "data.permute_nodes"),
    cites="Gilmer et al. 2017",
)
def isomorphic_graphs(key, rng):
    r"""If $A' = PAP^\top$ and $X' = PX$, every stack of message-passing layers gives the nodes of
    the two graphs the same features, up to the permutation.
    """
    keys = jr.split(key, 3)
    net = Chain(*[generic(MessagePassing.init(3, 3, key=k), k) for k in keys])
    graphs = [random_graph(rng) for _ in range(20)]
    graphs = [graph_of(g, rng.normal(size=(len(g), 3))) for g in graphs]
    orders = [rng.permutation(graph.n_nodes) for graph in graphs]
    both = stack_graphs(
        graphs + [permute_nodes(graph, order) for graph, order in zip(graphs, orders)]
    )
    features = np.asarray(jax.jit(lambda xs: predict(net, xs).nodes)(both))
    pairs = [
        (second[: len(order)], first[order])
        for first, second, order in zip(features[:20], features[20:], orders)
    ]
    ours, expected = (np.concatenate(rows) for rows in zip(*pairs))
    unpermuted = np.concatenate([f[: len(o)] for f, o in zip(features, orders)])
    return Verdict(
        close("features, 20 graphs", ours, expected, relative=True),
        refuted(close("features in the old order", ours, unpermuted, tolerance=1e-3)),
    )


@claim(
    "7.4-readout",
    title="Classification of nodes and of graphs",
    kind="model",
    of=("models.GNN", "data.stochastic_block_model", "data.cycle_graph", "data.complete_graph"),
    cites="Kipf & Welling 2017; Xu et al. 2019",
)
def node_and_graph_classification(key, rng):
    r"""For nodes, an equivariant network with a head at every node; for graphs, the invariant
    readout $\rho(\bigoplus_m h_m)$. Both learn: communities from the edges alone, and cycles
    against cliques.
    """
    graph = house(rng)
    of_nodes = generic(GNN.init(3, 4, 2, activation=jnp.tanh, key=key), key)
    of_graph = generic(GNN.init(3, 4, 2, activation=jnp.tanh, readout="sum", key=key), key)
    communities, labels = data.stochastic_block_model((20, 20), p_in=0.4, p_out=0.04, key=key)
    communities = communities.with_nodes(jnp.eye(40))
    adam = optax.adam(0.02)
    at_nodes = train(
        lambda net, key: jax.vmap(log_loss)(net(communities), jnp.asarray(labels)).mean(),
        GNN.init(40, 8, 2, key=key),
        adam,
        steps=100,
        key=key,
    )
    sizes = range(4, 10)
    shapes = [data.cycle_graph(n) for n in sizes] + [data.complete_graph(n) for n in sizes]
    batch = stack_graphs(shapes), jnp.repeat(jnp.arange(2), len(sizes))
    of_shapes = train(
        lambda net, key: cross_entropy(net, batch),
        GNN.init(1, 16, 2, layer="gin", activation=jnp.tanh, readout="mean", key=key),
        adam,
        steps=100,
        key=key,
    )
    return Verdict(
        close("at nodes: equivariant", equivariance_error(of_nodes, graph), 0.0),
        close("with a readout: invariant", invariance_error(of_graph, graph), 0.0),
        refuted(
            close("at nodes: invariant", invariance_error(of_nodes, graph), 0.0, tolerance=1e-3)
        ),
        at_least("communities: training accuracy", accuracy(at_nodes(communities), labels), 0.95),
        at_least(
            "cycles and cliques: training accuracy",
            accuracy(predict(of_shapes, batch[0]), batch[1]),
            0.95,
        ),
    )

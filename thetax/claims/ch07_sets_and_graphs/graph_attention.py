"""§7.4: graph attention, and GCN and GAT as message passing."""

import jax
import jax.numpy as jnp
import numpy as np

from ... import layers
from ...core import predict
from ...data import Graph, stack_graphs
from ...layers import GAT, GCN, MessagePassing, gcn_propagate, in_degrees
from ..engine.check import at_least, close, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from .graphs_by_loop import HOUSE, equivariance_error, house
from .known_graphs import graph_of, random_graph
from .sets_by_loop import generic, slope_and_differences

VELICKOVIC = "Veličković et al. 2018"


def leaky(s):
    """LeakyReLU with slope 0.2."""
    return np.where(s > 0, s, 0.2 * s)


def masked_attention(layer: GAT, A: np.ndarray, X: np.ndarray, E: np.ndarray) -> np.ndarray:
    r"""The matrix $q_{ij}$ of one head by loops: a softmax over the neighbours, 0 elsewhere."""
    V, u_i, u_j, u_e = (
        np.asarray(a)[0] for a in (layer.V, layer.u_receiver, layer.u_sender, layer.u_edge)
    )
    q = np.zeros_like(A)
    for i in range(len(A)):
        neighbours = np.flatnonzero(A[i])
        s = [
            leaky(np.concatenate([u_i, u_j, u_e]) @ np.concatenate([V @ X[i], V @ X[j], E[i, j]]))
            for j in neighbours
        ]
        q[i, neighbours] = np.exp(s) / np.exp(s).sum()
    return q


def edge_tensor(graph: Graph) -> np.ndarray:
    """The features of the edges as an array, 0 where there is none."""
    edges = np.asarray(graph.edges)
    E = np.zeros((graph.n_nodes, graph.n_nodes, edges.shape[1]))
    E[np.asarray(graph.receivers), np.asarray(graph.senders)] = edges
    return E


@claim(
    "7.4-gat",
    title="Graph attention",
    kind="layer",
    of=("layers.GAT",),
    cites=VELICKOVIC,
)
def graph_attention(key, rng):
    r"""Scores $s_{ij} = \rho(u^\top [V x_i, V x_j, x_{ij}])$ with a LeakyReLU $\rho$; $q_{ij} =
    e^{s_{ij}} / \sum_{k : a_{ik} = 1} e^{s_{ik}}$ for neighbours and 0 otherwise, so $\sum_j
    a_{ij} q_{ij} = 1$; and $\xi_i = \sigma(\sum_j q_{ij} V x_j)$. A softmax over all $j$, as
    printed, would contradict the sum; here it runs over the neighbours. `GAT` adds a self-loop at
    each node unless `self_loops` is False, as here.
    """
    graph = house(rng)
    layer = generic(GAT.init(3, 4, edge_features=2, self_loops=False, key=key), key)
    A, X, E = np.asarray(graph.adjacency()), np.asarray(graph.nodes), edge_tensor(graph)
    q = masked_attention(layer, A, X, E)
    V, b = np.asarray(layer.V[0]), np.asarray(layer.b)
    found = np.zeros_like(A)
    edges = layer.attention(graph).edges[:, 0]
    found[np.asarray(graph.receivers), np.asarray(graph.senders)] = np.asarray(edges)
    flat = GAT(layer.V, 0 * layer.u_receiver, 0 * layer.u_sender, self_loops=False)
    means = A / A.sum(axis=1, keepdims=True) @ X @ V.T
    weights = jnp.asarray(rng.normal(size=(5, 4)))
    value = lambda both: jnp.vdot(weights, jnp.tanh(both[0](graph.with_nodes(both[1])).nodes))
    slope, differences = slope_and_differences(value, (layer, graph.nodes))
    looped = Graph.from_edges(HOUSE + [(i, i) for i in range(5)], X, edges=rng.normal(size=(11, 2)))
    without = GAT(layer.V, layer.u_receiver, layer.u_sender, None, layer.b)
    listed = GAT(layer.V, layer.u_receiver, layer.u_sender, None, layer.b, self_loops=False)
    received, sent = (X @ V.T @ np.asarray(u[0]) for u in (layer.u_receiver, layer.u_sender))
    over_all = np.exp(leaky(np.add.outer(received, sent)))
    over_all = over_all / over_all.sum(axis=1, keepdims=True)
    return Verdict(
        close("q, by loops over neighbours", found, q),
        close("σ(Σ q V x), by a masked matrix", layer(graph).nodes, q @ X @ V.T + b),
        close("Σ_j a_ij q_ij", (A * found).sum(axis=1), 1.0),
        equal("weights off the graph", found[A == 0], 0.0),
        close("equivariant, edge features too", equivariance_error(layer, graph), 0.0),
        close("u = 0: the mean of the neighbours", flat(graph).nodes, means),
        close("added self-loops, and listed", without(graph).nodes, listed(looped).nodes),
        close(
            f"all {len(slope)} derivatives, by u, V, b and X",
            slope,
            differences,
            tolerance=1e-7,
            method="finite differences",
        ),
        refuted(
            close(
                "softmax over all j: Σ_j a_ij q_ij", (A * over_all).sum(axis=1), 1.0, tolerance=1e-3
            )
        ),
    )


@erratum(
    "7.4-gat",
    title="The weights of a GCN are fixed, but not equal",
    printed=r"\bar a_{ij} = \bar a_{ik} \text{ for all neighbours } j, k \text{ of } i",
    corrected=r"\bar a_{ij} = 1 / \sqrt{d_i d_j}",
    of=("layers.gcn_propagate",),
    slip=True,
)
def unequal_weights(rng):
    r"""The notes contrast attention with fixed equal weights. Those of a GCN are fixed by the
    graph; neighbours of higher degree have smaller ones. Equal weights are those of the mean.
    """
    graph = house(rng)
    A = np.asarray(graph.adjacency())
    weights = np.asarray(gcn_propagate(graph, jnp.eye(5)))
    d = 1 + A.sum(axis=1)
    spread = lambda i: np.ptp(weights[i][A[i] > 0])
    return Verdict(
        close("weights on the edges", weights[A > 0], (1 / np.sqrt(np.outer(d, d)))[A > 0]),
        printed=[
            close("difference between neighbours of node 0", spread(0), 0.0, tolerance=1e-3),
            close("difference between neighbours of node 3", spread(3), 0.0, tolerance=1e-3),
        ],
    )


def gcn_as_messages(layer: GCN, graph: Graph) -> jax.Array:
    r"""Messages $W x_j / \sqrt{d_j}$ and updates $(\sum_j m_{ij} + W x_i / \sqrt{d_i}) /
    \sqrt{d_i} + b$, with $1 / \sqrt{d_i}$ as one more feature.
    """
    W, b = layer.linear.W, layer.linear.b
    scale = 1 / jnp.sqrt(1 + in_degrees(graph).astype(W.dtype))
    send = lambda z: z[-1] * (W @ z[:-1])
    update = lambda z: z[3] * (z[4:] + send(z[:4])) + b
    given = graph.with_nodes(jnp.concatenate([graph.nodes, scale[:, None]], axis=1))
    return MessagePassing(send, update)(given).nodes


def gat_as_messages(layer: GAT, graph: Graph) -> jax.Array:
    r"""Messages $[e^{s_{ij}} V x_j, e^{s_{ij}}]$, and the update divides the sums, with the
    self-loop.
    """
    V, u_i, u_j = layer.V[0], layer.u_receiver[0], layer.u_sender[0]

    def send(z):
        e = jnp.exp(layers.leaky_relu(u_i @ V @ z[:3] + u_j @ V @ z[3:], 0.2))
        return jnp.append(e * (V @ z[3:]), e)

    def update(z):
        total = z[3:] + send(jnp.concatenate([z[:3], z[:3]]))
        return total[:-1] / total[-1] + layer.b

    return MessagePassing(send, update, inputs=("receiver", "sender"))(graph).nodes


@claim(
    "7.4-gcn-gat-as-mp",
    title="GCN and GAT are message passing",
    kind="identity",
    of=("layers.MessagePassing", "layers.GCN", "layers.GAT"),
    cites="Gilmer et al. 2017",
)
def as_message_passing(key, rng):
    r"""Both are instances of $\xi_i = \varphi(x_i, \bigoplus_j \psi(x_i, x_j))$: the GCN if a node
    knows its degree, and the GAT with the exponentials of the scores beside the messages.
    """
    gcn = generic(GCN.init(3, 2, key=key), key)
    gat = generic(GAT.init(3, 2, key=key), key)
    theirs = [random_graph(rng) for _ in range(10)]
    graphs = [graph_of(g, rng.normal(size=(len(g), 3))) for g in theirs]
    stacked = stack_graphs(graphs)
    real = np.asarray(jax.vmap(lambda graph: graph.node_mask)(stacked))
    rows = lambda f: np.asarray(jax.jit(lambda xs: predict(f, xs))(stacked))[real]
    plain = MessagePassing(lambda z: gcn.linear.W @ z, lambda z: z[3:] + gcn.linear.b)
    by_gcn = rows(lambda graph: gcn(graph).nodes)
    return Verdict(
        close("GCN, 10 graphs", by_gcn, rows(lambda graph: gcn_as_messages(gcn, graph))),
        close(
            "GAT, 10 graphs",
            rows(lambda graph: gat(graph).nodes),
            rows(lambda graph: gat_as_messages(gat, graph)),
        ),
        at_least("edges in all", sum(graph.n_edges for graph in graphs), 20),
        refuted(
            close(
                "GCN, without degrees",
                by_gcn,
                rows(lambda graph: plain(graph).nodes),
                tolerance=1e-3,
            )
        ),
    )

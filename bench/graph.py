"""Full-batch training of graph networks: an epoch of GCN and of GAT, against PyTorch Geometric.

Two layers as in the papers (GCN: 16 hidden features; GAT: 8 heads of 8), all nodes, cross-entropy
of the training nodes, one step of Adam per epoch, no dropout. The peer caches the normalised
adjacency, which its documentation advises for a graph that does not change. The synthetic graph has
a million nodes and ten million directed edges.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from thetax.core import Objective
from thetax.data import Graph, load_graph
from thetax.layers import GAT, GCN, Chain, Nodewise
from thetax.train import descend, log_loss

from .row import Row, Work, library

LEARNING_RATE = 0.01
SYNTHETIC = (1_000_000, 5_000_000, 16, 8)  # nodes, undirected edges, features, classes


class Problem(NamedTuple):
    """A graph, its training nodes and their labels."""

    graph: Graph
    nodes: jax.Array
    labels: jax.Array
    n_classes: int


def citations(name: str) -> Problem:
    """A citation network with its public split."""
    data = load_graph(name, normalise=True)
    return Problem(
        data.graph,
        jnp.asarray(data.train),
        jnp.asarray(data.labels[data.train]),
        len(data.classes),
    )


def synthetic() -> Problem:
    """A random graph; every node is a training node."""
    v, e, d, k = SYNTHETIC
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, v, (e, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    graph = Graph.from_edges(pairs, rng.standard_normal((v, d), np.float32))
    return Problem(graph, jnp.arange(v), jnp.asarray(rng.integers(0, k, v)), k)


def gcn(problem: Problem) -> Chain:
    """Two layers with 16 hidden features."""
    one, two = jr.split(jr.key(0))
    d = problem.graph.nodes.shape[1]
    return Chain(
        GCN.init(d, 16, key=one), Nodewise(jax.nn.relu), GCN.init(16, problem.n_classes, key=two)
    )


def gat(problem: Problem) -> Chain:
    """Eight heads of 8 features, then one head."""
    one, two = jr.split(jr.key(0))
    d = problem.graph.nodes.shape[1]
    return Chain(
        GAT.init(d, 64, n_heads=8, key=one),
        Nodewise(jax.nn.elu),
        GAT.init(64, problem.n_classes, key=two),
    )


def node_loss(model: Any, batch: Any, *, key: Any = None) -> jax.Array:
    """Mean cross-entropy of the training nodes."""
    graph, nodes, labels = batch
    return jax.vmap(log_loss)(model(graph).nodes[nodes], labels).mean()


def trainer(objective: Objective, epochs: int) -> Callable[[Any, Any], Any]:
    """A compiled function: the state and the losses after some epochs on one batch."""
    iteration = descend(objective, optax.adam(LEARNING_RATE))

    def epoch(batch, state, _):
        state, info = iteration.step(state, batch, key=None)
        return state, info.loss

    @jax.jit
    def run(model, batch):
        return jax.lax.scan(partial(epoch, batch), iteration.init(model), length=epochs)

    return run


@dataclass(frozen=True, eq=False)
class Pair:
    """A model on a graph, ours and the same in PyTorch Geometric."""

    name: str
    make_problem: Callable[[], Problem]
    make_model: Callable[[Problem], Chain]
    epochs: int
    pairs: int = 7
    target: float | None = None

    @cached_property
    def problem(self) -> Problem:
        return self.make_problem()

    @cached_property
    def model(self) -> Chain:
        return self.make_model(self.problem)

    @cached_property
    def run(self) -> Callable[[Any, Any], Any]:
        return trainer(node_loss, self.epochs)

    @cached_property
    def peer(self) -> tuple[Any, Any]:
        """Their network with our weights, and a function that runs one epoch."""
        torch, nn = library("torch"), library("torch_geometric.nn")
        graph = self.problem.graph
        edge_index = torch.tensor(np.stack([graph.senders, graph.receivers]), dtype=torch.long)
        x, ys = torch.tensor(np.asarray(graph.nodes)), torch.tensor(np.asarray(self.problem.labels))
        nodes = torch.tensor(np.asarray(self.problem.nodes))
        first, second = self.model.layers[0], self.model.layers[-1]
        if isinstance(first, GCN):
            layers = [_torch_gcn(torch, nn, layer) for layer in (first, second)]
            activation = torch.relu
        else:
            layers = [_torch_gat(torch, nn, layer) for layer in (first, second)]
            activation = torch.nn.functional.elu
        parameters = [p for layer in layers for p in layer.parameters()]
        adam = torch.optim.Adam(parameters, lr=LEARNING_RATE)

        def epoch() -> float:
            adam.zero_grad()
            out = layers[1](activation(layers[0](x, edge_index)), edge_index)
            loss = torch.nn.functional.cross_entropy(out[nodes], ys.long())
            loss.backward()
            adam.step()
            return loss.item()

        return layers, epoch

    def check(self) -> None:
        """Raises unless the losses of the first three epochs agree."""
        losses = trainer(node_loss, 3)(self.model, self._batch())[1]
        _, epoch = self.peer
        np.testing.assert_allclose(losses, [epoch() for _ in range(3)], rtol=1e-3)

    def _batch(self) -> Any:
        return self.problem[:3]

    def ours(self) -> float:
        """Milliseconds of an epoch."""
        start = time.perf_counter()
        jax.block_until_ready(self.run(self.model, self._batch()))
        return 1e3 * (time.perf_counter() - start) / self.epochs

    def theirs(self) -> float:
        """Milliseconds of an epoch."""
        _, epoch = self.peer
        start = time.perf_counter()
        for _ in range(self.epochs):
            epoch()
        return 1e3 * (time.perf_counter() - start) / self.epochs

    @property
    def work(self) -> Work:
        """Products of features and weights, forward and twice backward, and the sums over edges,
        for which every edge reads a row and every node writes one.
        """
        graph = self.problem.graph
        v, e = graph.n_nodes, graph.n_edges
        sizes = [(layer.shape[-1], layer.size // layer.shape[-1]) for layer in self._weights()]
        operations = sum(6 * v * d * m + 4 * e * m for d, m in sizes)
        traffic = sum(4 * (3 * v * (d + m) + 2 * e * (m + 2)) for d, m in sizes)
        return Work(operations, traffic)

    def _weights(self) -> list[jax.Array]:
        layers = (self.model.layers[0], self.model.layers[-1])
        return [layer.linear.W if isinstance(layer, GCN) else layer.V for layer in layers]


def _torch_gcn(torch: Any, nn: Any, ours: GCN) -> Any:
    m, d = ours.linear.W.shape
    theirs = nn.GCNConv(d, m, cached=True)
    _copy(torch, theirs.lin.weight, ours.linear.W)
    _copy(torch, theirs.bias, ours.linear.b)
    return theirs


def _torch_gat(torch: Any, nn: Any, ours: GAT) -> Any:
    h, m, d = ours.V.shape
    theirs = nn.GATConv(d, m, heads=h)
    _copy(torch, theirs.lin.weight, ours.V)
    _copy(torch, theirs.att_src, ours.u_sender)
    _copy(torch, theirs.att_dst, ours.u_receiver)
    _copy(torch, theirs.bias, ours.b)
    return theirs


def _copy(torch: Any, parameter: Any, values: Any) -> None:
    with torch.no_grad():
        parameter.copy_(torch.tensor(np.asarray(values)).reshape(parameter.shape))


def subjects() -> Iterator[Pair]:
    """Every comparison."""
    cora, pubmed = partial(citations, "cora"), partial(citations, "pubmed")
    yield Pair("GCN on Cora, an epoch", cora, gcn, 50, target=3)
    yield Pair("GAT on Cora, an epoch", cora, gat, 20, target=3)
    yield Pair("GCN on Pubmed, an epoch", pubmed, gcn, 20, target=1.5)
    yield Pair("GAT on Pubmed, an epoch", pubmed, gat, 5, target=1.5)
    yield Pair("GCN, 1 M nodes and 10 M edges, an epoch", synthetic, gcn, 2, pairs=3)


def rows() -> list[Row]:
    """The comparisons with PyTorch Geometric."""
    return [
        Row(
            pair.name,
            "PyTorch Geometric",
            pair.ours,
            pair.theirs,
            "ms",
            pair.check,
            pairs=pair.pairs,
            target=pair.target,
            work=pair.work,
        )
        for pair in subjects()
    ]


def describe() -> str:
    """What is computed."""
    return (__doc__ or "").partition("\n\n")[0]

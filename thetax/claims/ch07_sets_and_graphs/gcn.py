"""§7.4: the graph convolutional network, its layer and the two-layer node classifier."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ... import data, tree
from ...data import Graph
from ...layers import GCN, propagate, softmax
from ...models import GNN, MLP
from ...train import log_loss
from ..engine.check import at_least, at_most, close, refuted
from ..engine.claim import Verdict, claim
from .graphs_by_loop import accuracy, affine, coupling, equivariance_error, house, train
from .sets_by_loop import generic, slope_and_differences

KIPF = "Kipf & Welling 2017"


@claim(
    "7.4-gcn",
    title="Graph convolution",
    kind="layer",
    of=("layers.GCN", "layers.propagate"),
    cites=KIPF,
)
def graph_convolution(key, rng):
    r"""$\Xi = \sigma(\bar A X W)$, with a bias if wanted: $\bar A$ mixes nodes, $W$ features, and
    $(\bar A X) W = \bar A (X W)$. Without edges it is a dense layer at every node.
    """
    graph = house(rng)
    layer = generic(GCN.init(3, 2, key=key), key)
    wide = generic(GCN.init(3, 5, key=key), key)
    A, X = np.asarray(graph.adjacency()), np.asarray(graph.nodes)
    W, b = np.asarray(layer.linear.W).T, np.asarray(layer.linear.b)
    apart = Graph.from_nodes(X)
    weights = rng.normal(size=(5, 2))
    value = lambda both: jnp.vdot(
        jnp.asarray(weights), jnp.tanh(both[0](graph.with_nodes(both[1])).nodes)
    )
    slope, differences = slope_and_differences(value, (layer, graph.nodes))
    sparse, dense = (propagate(graph, graph.nodes, dense=form) for form in (False, True))
    return Verdict(
        close(
            "σ(ĀXW + b), by loops", jnp.tanh(layer(graph).nodes), np.tanh(coupling(A) @ X @ W + b)
        ),
        close("(ĀX)W and Ā(XW)", (coupling(A) @ X) @ W, coupling(A) @ (X @ W)),
        close("more features out than in", wide(graph).nodes, affine(wide.linear, coupling(A) @ X)),
        close("AX, by a sum over edges and by a matrix", sparse, dense),
        close("AX, by NumPy", sparse, A @ X),
        close("without edges: a dense layer", layer(apart).nodes, X @ W + b),
        close("equivariant", equivariance_error(layer, graph), 0.0),
        close(
            f"all {len(slope)} derivatives, by W, b and X",
            slope,
            differences,
            tolerance=1e-7,
            method="finite differences",
        ),
        refuted(close("without self-loops", layer(graph).nodes, A @ X @ W + b, tolerance=1e-3)),
    )


@claim(
    "7.4-gcn-2layer",
    title="The two-layer GCN for nodes",
    kind="model",
    of=("models.GNN", "layers.softmax", "data.stochastic_block_model"),
    cites=KIPF,
)
def two_layers(key, rng):
    r"""$Y = \mathrm{softmax}(\bar A\, \mathrm{ReLU}(\bar A X W_0)\, W_1)$, a softmax for every
    node. With 5 labels in each of two communities and no other features than the number of the
    node, the network labels the other 90 nodes, and an MLP on the same features cannot.
    """
    graph = house(rng)
    net = generic(GNN.init(3, 4, 2, key=key), key)
    first, second = (block.layers[0] for block in net.body.layers)
    hidden = jax.nn.relu(first(graph).nodes)
    A, X = np.asarray(graph.adjacency()), np.asarray(graph.nodes)
    by_loop = np.maximum(affine(first.linear, coupling(A) @ X), 0)
    by_loop = affine(second.linear, coupling(A) @ by_loop)
    by_loop = np.exp(by_loop) / np.exp(by_loop).sum(axis=1, keepdims=True)
    communities, labels = data.stochastic_block_model((50, 50), p_in=0.2, p_out=0.02, key=key)
    communities = communities.with_nodes(jnp.eye(100))
    known = np.concatenate(
        [rng.choice(50, 5, replace=False), 50 + rng.choice(50, 5, replace=False)]
    )
    others = np.setdiff1d(np.arange(100), known)
    targets = jnp.asarray(labels)

    def loss(rows, net):
        decay = 5e-3 * tree.dot(net, net)
        return jax.vmap(log_loss)(rows[known], targets[known]).mean() + decay

    adam = optax.adam(0.02)
    of_graph = train(
        lambda net, key: loss(net(communities), net),
        GNN.init(100, 16, 2, key=key),
        adam,
        steps=150,
        key=key,
    )
    of_rows = train(
        lambda net, key: loss(jax.vmap(net)(jnp.eye(100)), net),
        MLP.init(100, 16, 2, key=key),
        adam,
        steps=150,
        key=key,
    )
    found = accuracy(of_graph(communities)[others], labels[others])
    control = accuracy(jax.vmap(of_rows)(jnp.eye(100))[others], labels[others])
    return Verdict(
        close("Y, by loops", softmax(net(graph), axis=1), by_loop),
        close("two GCN layers", net(graph), second(graph.with_nodes(hidden)).nodes),
        close("row sums of Y", softmax(net(graph), axis=1).sum(axis=1), 1.0),
        at_least("GCN: accuracy at the 90 other nodes", found, 0.9),
        at_most("MLP: accuracy at the 90 other nodes", control, 0.65),
    )

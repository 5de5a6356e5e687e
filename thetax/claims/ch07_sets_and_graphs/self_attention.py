"""§7.4: softmax and self-attention are equivariant under permutations."""

from itertools import permutations, product

import jax
import jax.numpy as jnp
import numpy as np

from ... import layers
from ...data import Graph
from ...layers import (
    SinusoidalPositions,
    aggregate,
    dot_product_attention,
    edge_softmax,
    gather_receivers,
    gather_senders,
)
from ..engine.check import close, refuted
from ..engine.claim import Verdict, claim

N = 5
ORDERS = np.array(list(permutations(range(N))))
MATRICES = np.eye(N)[ORDERS]


@claim(
    "7.4-softmax-equivariant",
    title="The softmax is equivariant",
    kind="identity",
    of=("layers.softmax",),
)
def softmax(rng):
    r"""$\mathrm{softmax}(Pz) = P\, \mathrm{softmax}(z)$ for every permutation matrix $P$."""
    z = rng.normal(size=N)
    permuted = layers.softmax(jnp.asarray(MATRICES @ z), axis=1)
    by_formula = np.exp(z) / np.exp(z).sum()
    matrix = rng.normal(size=(N, N))
    mixed = layers.softmax(jnp.asarray(matrix @ z))
    return Verdict(
        close("softmax(Pz) = P softmax(z), all 120 orders", permuted, MATRICES @ by_formula),
        refuted(close("softmax(Mz) = M softmax(z), any matrix", mixed, matrix @ by_formula)),
    )


def attention(X, W_Q, W_K, W_V):
    """Self-attention of one head with the library."""
    heads = ((X @ jnp.asarray(W))[:, None] for W in (W_Q, W_K, W_V))
    return dot_product_attention(*heads)[:, 0]


def by_formula(X, W_Q, W_K, W_V):
    r"""$\mathrm{softmax}(X W_Q W_K^\top X^\top / \sqrt d)\, X W_V$ in NumPy."""
    A = np.exp(X @ W_Q @ W_K.T @ X.T / np.sqrt(W_Q.shape[1]))
    return A / A.sum(axis=1, keepdims=True) @ X @ W_V


def on_the_complete_graph(X, W_Q, W_K, W_V):
    """The same as message passing on the graph with all edges and self-loops."""
    pairs = list(product(range(len(X)), repeat=2))
    graph = Graph.from_edges(pairs, X, undirected=False)
    q, k, v = (jnp.asarray(X @ W) for W in (W_Q, W_K, W_V))
    scores = (gather_receivers(graph, q) * gather_senders(graph, k)).sum(axis=1)
    weights = edge_softmax(graph, scores / np.sqrt(W_Q.shape[1]))
    return aggregate(graph, weights[:, None] * gather_senders(graph, v))


@claim(
    "7.4-attention-equivariant",
    title="Self-attention is equivariant",
    kind="theorem",
    of=("layers.dot_product_attention", "layers.edge_softmax"),
    cites="Vaswani et al. 2017",
)
def self_attention(rng):
    r"""$f(X) = \mathrm{softmax}(X W_Q W_K^\top X^\top / \sqrt d)\, X W_V$ satisfies $f(PX) = P
    f(X)$ for every permutation matrix $P$: it is message passing on the complete graph. With a
    positional encoding added to $X$ it does not.
    """
    d = 4
    X = rng.normal(size=(N, d))
    weights = [rng.normal(size=(d, m)) for m in (3, 3, 2)]
    positions = SinusoidalPositions()
    in_all_orders = jax.jit(jax.vmap(lambda X: attention(X, *weights)))
    encoded = jax.jit(jax.vmap(lambda X: attention(positions(X), *weights)))
    Y = by_formula(X, *weights)
    Y_encoded = np.asarray(encoded(jnp.asarray(X)[None]))[0]
    return Verdict(
        close("f(X), by the formula", attention(jnp.asarray(X), *weights), Y),
        close("f(X), on the complete graph", on_the_complete_graph(X, *weights), Y),
        close("f(PX) = P f(X), all 120 orders", in_all_orders(jnp.asarray(X[ORDERS])), Y[ORDERS]),
        refuted(
            close(
                "the same with a positional encoding",
                encoded(jnp.asarray(X[ORDERS])),
                Y_encoded[ORDERS],
                tolerance=1e-2,
            )
        ),
    )

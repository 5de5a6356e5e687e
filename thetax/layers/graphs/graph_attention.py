r"""Graph attention networks: `GAT` (Veličković et al., ICLR 2018) and `GATv2` (Brody, Alon & Yahav,
ICLR 2022) (§7.4).
"""

from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ...data.graphs import Graph
from ..dropout import Dropout
from ..initialise import Initialiser, glorot
from .aggregation import (
    aggregate,
    edge_softmax,
    edge_softmax_with_loops,
    gather_receivers,
    gather_senders,
)
from .inputs import expect_edge_features, expect_features

Heads = Literal["concat", "mean"]


class EdgeAttention(NamedTuple):
    """The attention weights of a layer: on the edges, and on the self-loops that it adds."""

    edges: Float[Array, "e h"]
    loops: Float[Array, "v h"] | None


class GAT(eqx.Module):
    r"""Graph attention $\xi_i = \sum_j q_{ij} V x_j + b$ (§7.4; Veličković et al. 2018).

    $$q_{ij} = \mathrm{softmax}_{j \to i}\, s_{ij}, \qquad
    s_{ij} = \rho\big(u_r^\top V x_i + u_s^\top V x_j + u_e^\top x_{ij}\big)$$

    with $\rho$ the leaky ReLU of the given `slope`. Each of the heads has its own $V$ and $u$; the
    results are concatenated, or their mean is taken (`heads`). With `self_loops`, the default, a
    node attends to itself too: one edge to itself is added, whose features are the mean of those of
    the edges to the node. `dropout` is the probability that an attention weight is set to 0, in a
    call with a key. Weights of the graph multiply $e^{s_{ij}}$, so an edge of weight 0 is as good
    as none.

    Departs: in the notes the softmax runs over all nodes, which contradicts $\sum_j a_{ij} q_{ij} =
    1$; here it runs over the neighbours.

    >>> layer = GAT.init(3, 4, n_heads=2, key=jr.key(0))
    >>> graph = Graph.from_edges([(0, 1), (1, 2)], jnp.eye(3))
    >>> layer(graph).nodes.shape
    (3, 4)
    >>> edges, loops = layer.attention(graph)
    >>> edges.shape, loops.shape
    ((4, 2), (3, 2))
    """

    V: Float[Array, "h m d"]
    u_receiver: Float[Array, "h m"]
    u_sender: Float[Array, "h m"]
    u_edge: Float[Array, "h c"] | None = None
    b: Float[Array, " k"] | None = None
    heads: Heads = eqx.field(static=True, default="concat")
    slope: float = eqx.field(static=True, default=0.2)
    self_loops: bool = eqx.field(static=True, default=True)
    dropout: float = eqx.field(static=True, default=0.0)

    @classmethod
    def init(
        cls,
        d: int,
        m: int,
        *,
        n_heads: int = 1,
        heads: Heads = "concat",
        edge_features: int = 0,
        slope: float = 0.2,
        self_loops: bool = True,
        dropout: float = 0.0,
        initialiser: Initialiser = glorot,
        bias: bool = True,
        key: PRNGKeyArray,
    ) -> "GAT":
        """Initialises the layer for `d` features in and `m` out: concatenated heads have
        `m / n_heads` features each.
        """
        per_head = head_size("GAT", m, n_heads, heads)
        keys = jr.split(key, 4)
        vectors = lambda key, n: initialiser(key, (n_heads, n))
        return cls(
            initialiser(keys[0], (n_heads * per_head, d)).reshape(n_heads, per_head, d),
            vectors(keys[1], per_head),
            vectors(keys[2], per_head),
            vectors(keys[3], edge_features) if edge_features else None,
            jnp.zeros(m) if bias else None,
            heads,
            slope,
            self_loops,
            dropout,
        )

    def __check_init__(self):
        check_heads("GAT", self.heads, self.dropout)

    def attention(self, graph: Graph) -> EdgeAttention:
        r"""The attention weights $q_{ij}$ on the edges."""
        x = expect_features("GAT", graph, self.V.shape[2])
        return self._attention(graph, _map_heads(self.V, x))

    def __call__(self, graph: Graph, *, key: PRNGKeyArray | None = None) -> Graph:
        x = expect_features("GAT", graph, self.V.shape[2])
        values = _map_heads(self.V, x)
        q = drop_attention(self._attention(graph, values), self.dropout, key)
        return graph.with_nodes(attend(graph, q, values, self.heads, self.b))

    def _attention(self, graph: Graph, values: Float[Array, "v h m"]) -> EdgeAttention:
        received = (values * self.u_receiver[None]).sum(axis=-1)
        sent = (values * self.u_sender[None]).sum(axis=-1)
        scores = gather_receivers(graph, received) + gather_senders(graph, sent)
        loops = received + sent
        if self.u_edge is not None:
            edges = expect_edge_features("GAT", graph, self.u_edge.shape[1])
            by_edge = edges @ self.u_edge.T
            scores = scores + by_edge
            if self.self_loops:
                loops = loops + aggregate(graph, by_edge, "mean")
        rho = lambda s: jax.nn.leaky_relu(s, self.slope)
        return normalise_scores(graph, rho(scores), rho(loops) if self.self_loops else None)


class GATv2(eqx.Module):
    r"""Graph attention $\xi_i = \sum_j q_{ij} V x_j + b$ with scores in which the receiver changes
    the order of the senders (Brody, Alon & Yahav 2022):

    $$q_{ij} = \mathrm{softmax}_{j \to i}\, s_{ij}, \qquad
    s_{ij} = u^\top \rho\big(W x_i + c + V x_j + E x_{ij}\big)$$

    The scores of `GAT` rank the senders in the same order for every receiver; these need not. The
    options are those of `GAT`. With `shared`, $W = V$.

    >>> layer = GATv2.init(3, 4, n_heads=2, key=jr.key(0))
    >>> layer(Graph.from_edges([(0, 1), (1, 2)], jnp.eye(3))).nodes.shape
    (3, 4)
    """

    V: Float[Array, "h m d"]
    u: Float[Array, "h m"]
    W: Float[Array, "h m d"] | None = None
    c: Float[Array, "h m"] | None = None
    E: Float[Array, "h m c"] | None = None
    b: Float[Array, " k"] | None = None
    heads: Heads = eqx.field(static=True, default="concat")
    slope: float = eqx.field(static=True, default=0.2)
    self_loops: bool = eqx.field(static=True, default=True)
    dropout: float = eqx.field(static=True, default=0.0)

    @classmethod
    def init(
        cls,
        d: int,
        m: int,
        *,
        n_heads: int = 1,
        heads: Heads = "concat",
        edge_features: int = 0,
        shared: bool = False,
        slope: float = 0.2,
        self_loops: bool = True,
        dropout: float = 0.0,
        initialiser: Initialiser = glorot,
        bias: bool = True,
        key: PRNGKeyArray,
    ) -> "GATv2":
        """Initialises the layer for `d` features in and `m` out: concatenated heads have
        `m / n_heads` features each.
        """
        per_head = head_size("GATv2", m, n_heads, heads)
        keys = jr.split(key, 4)
        matrices = lambda key, n: initialiser(key, (n_heads * per_head, n)).reshape(
            n_heads, per_head, n
        )
        return cls(
            matrices(keys[0], d),
            initialiser(keys[1], (n_heads, per_head)),
            None if shared else matrices(keys[2], d),
            jnp.zeros((n_heads, per_head)) if bias else None,
            matrices(keys[3], edge_features) if edge_features else None,
            jnp.zeros(m) if bias else None,
            heads,
            slope,
            self_loops,
            dropout,
        )

    def __check_init__(self):
        check_heads("GATv2", self.heads, self.dropout)

    def attention(self, graph: Graph) -> EdgeAttention:
        r"""The attention weights $q_{ij}$ on the edges."""
        x = expect_features("GATv2", graph, self.V.shape[2])
        return self._attention(graph, x, _map_heads(self.V, x))

    def __call__(self, graph: Graph, *, key: PRNGKeyArray | None = None) -> Graph:
        x = expect_features("GATv2", graph, self.V.shape[2])
        values = _map_heads(self.V, x)
        q = drop_attention(self._attention(graph, x, values), self.dropout, key)
        return graph.with_nodes(attend(graph, q, values, self.heads, self.b))

    def _attention(
        self, graph: Graph, x: Float[Array, "v d"], values: Float[Array, "v h m"]
    ) -> EdgeAttention:
        received = values if self.W is None else _map_heads(self.W, x)
        if self.c is not None:
            received = received + self.c[None]
        hidden = gather_receivers(graph, received) + gather_senders(graph, values)
        loops = received + values
        if self.E is not None:
            edges = expect_edge_features("GATv2", graph, self.E.shape[2])
            by_edge = _map_heads(self.E, edges)
            hidden = hidden + by_edge
            if self.self_loops:
                loops = loops + aggregate(graph, by_edge, "mean")
        score = lambda z: (jax.nn.leaky_relu(z, self.slope) * self.u[None]).sum(axis=-1)
        return normalise_scores(graph, score(hidden), score(loops) if self.self_loops else None)


def head_size(name: str, m: int, n_heads: int, heads: Heads) -> int:
    """The number of features of one head of a layer with `m` features out.

    >>> head_size("GAT", 8, 2, "concat"), head_size("GAT", 8, 2, "mean")
    (4, 8)
    """
    if n_heads < 1 or (heads == "concat" and m % n_heads):
        raise ValueError(
            f"{name}: {m} features out cannot be divided among n_heads={n_heads}. Choose a "
            f'multiple, or heads="mean".'
        )
    return m // n_heads if heads == "concat" else m


def check_heads(name: str, heads: str, dropout: float) -> None:
    """Raises `ValueError` for an unknown way to combine heads, or a wrong probability."""
    if heads not in ("concat", "mean"):
        raise ValueError(
            f'{name}: heads says how the heads are combined, "concat" or "mean"; got {heads!r}. '
            "Their number is n_heads."
        )
    if not 0 <= dropout < 1:
        raise ValueError(
            f"{name}: dropout is the probability of dropping and must be in [0, 1); got {dropout}."
        )


def normalise_scores(
    graph: Graph, scores: Float[Array, "e h"], loops: Float[Array, "v h"] | None
) -> EdgeAttention:
    """The softmax of the scores of the edges to each node, and of the self-loops if there are."""
    if loops is None:
        return EdgeAttention(edge_softmax(graph, scores), None)
    return EdgeAttention(*edge_softmax_with_loops(graph, scores, loops))


def drop_attention(q: EdgeAttention, p: float, key: PRNGKeyArray | None) -> EdgeAttention:
    """Dropout of attention weights; without a key there is none."""
    if key is None or p == 0:
        return q
    key_edges, key_loops = jr.split(key)
    drop = Dropout(p)
    loops = None if q.loops is None else drop(q.loops, key=key_loops)
    return EdgeAttention(drop(q.edges, key=key_edges), loops)


def attend(
    graph: Graph,
    q: EdgeAttention,
    values: Float[Array, "v h m"],
    heads: Heads,
    b: Float[Array, " k"] | None,
) -> Float[Array, "v k"]:
    r"""$\sum_j q_{ij} V x_j + b$, the heads concatenated or averaged."""
    # q holds the weights of the graph already, so the sum here is a plain one.
    messages = q.edges[:, :, None] * gather_senders(graph, values)
    y = aggregate(graph, messages, "sum", weights=jnp.ones(graph.n_edges, messages.dtype))
    if q.loops is not None:
        y = y + q.loops[:, :, None] * values
    y = y.reshape(len(y), -1) if heads == "concat" else y.mean(axis=1)
    return y if b is None else y + b[None]


def _map_heads(W: Float[Array, "h m d"], x: Float[Array, "v d"]) -> Float[Array, "v h m"]:
    h, m, d = W.shape
    return (x @ W.reshape(h * m, d).T).reshape(len(x), h, m)

r"""The graph transformer: full attention among the nodes of each graph, optionally beside a message
passing layer (Dwivedi & Bresson 2021; Rampášek et al., NeurIPS 2022): `GraphTransformer`.
"""

from typing import Any

import equinox as eqx
import jax
import jax.random as jr
from jaxtyping import Array, Bool, PRNGKeyArray

from ...core import apply
from ...data.graphs import Graph
from ..activation import Activation, gelu
from ..attention import Attention, Mask
from ..dropout import Dropout
from ..feed_forward import FeedForward
from ..normalisation import LayerNorm
from .inputs import expect_features


class GraphTransformer(eqx.Module):
    r"""$h = x + \mathrm{MH}(\mathrm{LN}\,x) + \mathrm{MP}(\mathrm{LN}\,x)$ and then
    $\xi = h + \mathrm{FFN}(\mathrm{LN}\,h)$, with multi-head attention from every node to all nodes
    of its graph.

    Attention alone does not see the edges. Give positions as node features, by
    `data.append_features` of a `data.laplacian_encoding` or `data.random_walk_encoding`, or a
    `local` layer MP, any layer from `d` features to `d` (GraphGPS). The table of scores has $v^2$
    entries a head, over all graphs of a batch: stack small graphs rather than batch them.

    >>> layer = GraphTransformer.init(4, n_heads=2, hidden=8, key=jr.key(0))
    >>> layer(Graph.from_edges([(0, 1), (1, 2)], jax.numpy.ones((3, 4)))).nodes.shape
    (3, 4)
    """

    norm_attention: LayerNorm
    attention: Attention
    norm_feed_forward: LayerNorm
    feed_forward: FeedForward
    local: Any = None
    dropout: Dropout = Dropout(0.0)

    @classmethod
    def init(
        cls,
        d: int,
        *,
        n_heads: int,
        hidden: int | None = None,
        local: Any = None,
        dropout: float = 0.0,
        activation: Activation = gelu,
        key: PRNGKeyArray,
    ) -> "GraphTransformer":
        """Initialises the layer for `d` features; `hidden` is the width of the feed-forward layer,
        by default 2 `d`.
        """
        key_attention, key_feed_forward = jr.split(key)
        hidden = 2 * d if hidden is None else hidden
        return cls(
            LayerNorm.init(d),
            Attention.init(d, n_heads, dropout=dropout, key=key_attention),
            LayerNorm.init(d),
            FeedForward.init(d, hidden, activation=activation, key=key_feed_forward),
            local,
            Dropout(dropout),
        )

    def __call__(self, graph: Graph, *, key: PRNGKeyArray | None = None) -> Graph:
        x = expect_features("GraphTransformer", graph, self.attention.Q.W.shape[1])
        keys = [None] * 4 if key is None else jr.split(key, 4)
        normed = jax.vmap(self.norm_attention)(x)
        mask = Mask(allowed=same_graph(graph))
        attended = self.attention(normed, mask=mask, key=keys[0])
        h = x + self.dropout(attended, key=keys[1])
        if self.local is not None:
            h = h + apply(self.local, graph.with_nodes(normed), key=keys[2]).nodes
        inner = self.feed_forward(jax.vmap(self.norm_feed_forward)(h))
        return graph.with_nodes(h + self.dropout(inner, key=keys[3]))


def same_graph(graph: Graph) -> Bool[Array, "v v"]:
    """Which pairs of nodes belong to the same graph; padding counts as a graph of its own.

    >>> same_graph(Graph.from_edges([(0, 1)])).tolist()
    [[True, True], [True, True]]
    """
    ids = graph.graph_ids
    return ids[:, None] == ids[None]

r"""Graph neural networks for node and graph classification: `GNN` (§7.4)."""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import equinox as eqx
import jax
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ...check import expect_count, suggest
from ...core import Model, apply
from ...data.graphs import Graph
from ...layers import (
    GAT,
    GCN,
    GIN,
    Activation,
    AttentionReadout,
    Chain,
    ChebyshevFilter,
    DropEdge,
    Dropout,
    GATv2,
    GraphNorm,
    GraphResidual,
    GraphSAGE,
    Jump,
    JumpingKnowledge,
    LayerNorm,
    MessagePassing,
    Nodewise,
    PairNorm,
    Pooling,
    Readout,
    apply_to_rows,
)
from ..mlp import MLP

LayerInit = Callable[..., Model]  # init(d, m, *, key) -> a layer from graph to graph

# The graph layers of a `GNN` by name.
GRAPH_LAYERS: dict[str, LayerInit] = {
    "gcn": GCN.init,
    "sage": GraphSAGE.init,
    "gin": GIN.init,
    "gat": GAT.init,
    "gatv2": GATv2.init,
    "chebyshev": partial(ChebyshevFilter.init, order=2),
    "message_passing": MessagePassing.init,
}
# The norms of a `GNN` by name.
GRAPH_NORMS: dict[str, Callable[[int], Model]] = {
    "graph": GraphNorm.init,
    "pair": lambda d: PairNorm(),
    "layer": lambda d: Nodewise(LayerNorm.init(d)),
}


class GNN(eqx.Module):
    r"""A graph neural network (§7.4): graph layers with activations between them and, if asked, a
    readout and a head.

    Without a readout it returns a row for every node, `(v, k)`, which is node classification. With
    one it returns a vector for the graph, `(k,)`, or a row for each graph of a batch, `(g, k)`.

    `layer` is a name, one of gcn, sage, gin, gat, gatv2, chebyshev and message_passing, or a
    function `init(d, m, *, key)` such as `partial(GAT.init, n_heads=8)`; `last_layer` is the one of
    the last layer, by default the same.

    >>> graph = Graph.from_edges([(0, 1), (1, 2)], jax.numpy.eye(3))
    >>> GNN.init(3, 16, 2, key=jr.key(0))(graph).shape
    (3, 2)
    >>> net = GNN.init(3, 16, 2, depth=3, layer="gin", readout="sum", norm="graph", key=jr.key(0))
    >>> net(graph).shape
    (2,)
    """

    body: Any
    readout: Any = None
    head: Any = None

    @classmethod
    def init(
        cls,
        d_in: int,
        hidden: int,
        d_out: int,
        *,
        depth: int = 2,
        layer: str | LayerInit = "gcn",
        last_layer: str | LayerInit | None = None,
        edge_features: int = 0,
        activation: Activation = jax.nn.relu,
        dropout: float | Sequence[float] = 0.0,
        drop_edge: float = 0.0,
        norm: str | Callable[[int], Model] | None = None,
        residual: bool = False,
        jumping: Jump | None = None,
        readout: Pooling | Literal["attention"] | Sequence[Pooling] | None = None,
        head: Sequence[int] | None = None,
        key: PRNGKeyArray,
    ) -> "GNN":
        r"""Initialises `depth` layers of `hidden` features for `d_in` features in and `d_out` out.

        - `dropout` acts on what each layer takes in, the features of the nodes too: one probability
          or one for each layer. `drop_edge` is the fraction of edges that `DropEdge` leaves out.
        - `norm` is `"graph"`, `"pair"` or `"layer"`, or a function of the number of features that
          gives a layer; it stands before each activation. `residual` adds a skip connection around
          each hidden layer.
        - `jumping`, `"concat"`, `"max"` or `"last"`, combines the outputs of all layers.
        - `readout` is `"sum"`, `"mean"`, `"max"`, several of them, or `"attention"`.
        - `head` lists the hidden sizes of an MLP after all this, `()` for a linear map. By default
          it is linear if there is a readout or `jumping`; otherwise there is none, and the last
          layer has `d_out` features and no activation.
        """
        expect_count("GNN", d_in=d_in, hidden=hidden, d_out=d_out, depth=depth)
        if not callable(activation):
            raise ValueError(
                f"GNN: activation must be a function such as jax.nn.relu; got {activation!r}."
            )
        rates = [dropout] * depth if isinstance(dropout, int | float) else list(dropout)
        if len(rates) != depth:
            raise ValueError(
                f"GNN: dropout must be one probability or one for each layer; got {len(rates)} for "
                f"depth={depth}."
            )
        first = _layer_init(layer, edge_features)
        last = first if last_layer is None else _layer_init(last_layer, edge_features)
        make_norm = None if norm is None else _lookup("norm", norm, GRAPH_NORMS)
        with_head = head is not None or readout is not None or jumping is not None
        *keys, key_readout, key_head = jr.split(key, depth + 2)
        d = d_in
        blocks = []
        for number, (rate, key) in enumerate(zip(rates, keys), start=1):
            key_layer, key_skip = jr.split(key)
            ends = number == depth
            m = d_out if ends and not with_head else hidden
            block = [Nodewise(Dropout(rate))] if rate else []
            block += [(last if ends else first)(d, m, key=key_layer)]
            if not ends or with_head:
                block += [make_norm(m)] if make_norm else []
                block += [Nodewise(activation)]
            if residual and (not ends or with_head):
                blocks += [GraphResidual.init(Chain(*block), d, m, key=key_skip)]
            else:
                blocks += [Chain(*block)]
            d = m
        stack = Chain(*blocks) if jumping is None else JumpingKnowledge(*blocks, combine=jumping)
        d = depth * hidden if jumping == "concat" else d
        pool: Any = None
        if readout is not None:
            if readout == "attention":
                pool = AttentionReadout.init(d, key=key_readout)
            elif isinstance(readout, str):
                pool = Readout(readout)
            else:
                pool = Readout(tuple(readout))
                d = d * len(readout)
        return cls(
            Chain(DropEdge(drop_edge), stack) if drop_edge else stack,
            pool,
            MLP.init(d, *(head or ()), d_out, activation=activation, key=key_head)
            if with_head
            else None,
        )

    def embed(self, graph: Graph, *, key: PRNGKeyArray | None = None) -> Float[Array, "v h"]:
        """The features of the nodes after the last layer, before readout and head."""
        return apply(self.body, graph, key=key).nodes

    def __call__(self, graph: Graph, *, key: PRNGKeyArray | None = None) -> Float[Array, "*r k"]:
        key_body, key_readout, key_head = (None,) * 3 if key is None else jr.split(key, 3)
        x = self.embed(graph, key=key_body)
        if self.readout is not None:
            x = apply(self.readout, graph.with_nodes(x), key=key_readout)
        if self.head is None:
            return x
        return self.head(x, key=key_head) if x.ndim == 1 else apply_to_rows(self.head, x)


def _layer_init(layer: Any, edge_features: int) -> LayerInit:
    init = _lookup("layer", layer, GRAPH_LAYERS)
    if not edge_features:
        return init
    if "edge_features" not in inspect.signature(init).parameters:
        takers = [
            name
            for name, init in GRAPH_LAYERS.items()
            if "edge_features" in inspect.signature(init).parameters
        ]
        raise ValueError(
            f"GNN: the layer {layer!r} takes no edge features. Use one of {', '.join(takers)}, or "
            "leave out edge_features."
        )
    return partial(init, edge_features=edge_features)


def _lookup(what: str, given: Any, known: dict[str, Any]) -> Any:
    if callable(given):
        return given
    if given not in known:
        raise ValueError(
            f"GNN: {suggest(given, known)}{what} is one of {', '.join(known)}, or a function; got "
            f"{given!r}."
        )
    return known[given]

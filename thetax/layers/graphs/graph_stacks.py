r"""Stacks of graph layers: `GraphResidual`, and `JumpingKnowledge` (Xu et al., ICML 2018)."""

from functools import reduce
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import PRNGKeyArray

from ...core import apply
from ...data.graphs import Graph
from ..initialise import Initialiser, lecun
from ..linear import Linear
from .inputs import expect_graph

# How jumping knowledge combines the layers.
Jump = Literal["concat", "max", "last"]
JUMPS: tuple[Jump, ...] = ("concat", "max", "last")


class GraphResidual(eqx.Module):
    r"""$\xi_i = S x_i + F(G)_i$ with a graph layer $F$ and the skip connection $S$, by default the
    identity (He et al. 2016; Li et al., ICCV 2019).

    >>> from thetax.layers import MessagePassing
    >>> path = Graph.from_edges([(0, 1), (1, 2)], jnp.array([[1.0], [10.0], [100.0]]))
    >>> GraphResidual(MessagePassing())(path).nodes.ravel().tolist()
    [11.0, 111.0, 110.0]
    """

    inner: Any
    skip: Linear | None = None

    @classmethod
    def init(
        cls, inner: Any, d: int, m: int, *, initialiser: Initialiser = lecun, key: PRNGKeyArray
    ) -> "GraphResidual":
        """Initialises the skip connection: a linear projection if `d` and `m` differ."""
        skip = Linear.init(d, m, initialiser=initialiser, bias=False, key=key)
        return cls(inner, None if d == m else skip)

    def __call__(self, graph: Graph, *, key: PRNGKeyArray | None = None) -> Graph:
        x = expect_graph("GraphResidual", graph).nodes
        result = apply(self.inner, graph, key=key)
        skipped = x if self.skip is None else jax.vmap(self.skip)(x)
        if skipped.shape != result.nodes.shape:
            raise ValueError(
                f"GraphResidual: the inner layer maps nodes of shape {x.shape} to "
                f"{result.nodes.shape}, but the skip connection gives {skipped.shape}. Build the "
                "layer with GraphResidual.init, which adds a projection."
            )
        return result.with_nodes(skipped + result.nodes)


class JumpingKnowledge(eqx.Module):
    r"""Layers one after another whose outputs are combined at the end: concatenated, their maximum,
    or the last alone (Xu et al. 2018).

    So each node can use the neighbourhood of the size that it needs.

    >>> from thetax.layers import MessagePassing
    >>> net = JumpingKnowledge(MessagePassing(), MessagePassing())
    >>> net(Graph.from_edges([(0, 1)], jnp.array([[1.0], [5.0]]))).nodes.tolist()
    [[5.0, 1.0], [1.0, 5.0]]
    """

    layers: tuple[Any, ...]
    combine: Jump = eqx.field(static=True)

    def __init__(self, *layers: Any, combine: Jump = "concat"):
        if combine not in JUMPS or not layers:
            raise ValueError(
                f"JumpingKnowledge: expected at least one layer, and combine one of "
                f"{', '.join(JUMPS)}; got {len(layers)} layers and combine={combine!r}."
            )
        self.layers = layers
        self.combine = combine

    def __call__(self, graph: Graph, *, key: PRNGKeyArray | None = None) -> Graph:
        keys = [None] * len(self.layers) if key is None else jr.split(key, len(self.layers))
        outputs = []
        for layer, key in zip(self.layers, keys):
            graph = apply(layer, graph, key=key)
            outputs.append(graph.nodes)
        if self.combine == "concat":
            return graph.with_nodes(jnp.concatenate(outputs, axis=1))
        if self.combine == "last":
            return graph
        if len({x.shape for x in outputs}) > 1:
            raise ValueError(
                "JumpingKnowledge: for the maximum all layers must have the same number of "
                f"features; got {[x.shape[1] for x in outputs]}."
            )
        return graph.with_nodes(reduce(jnp.maximum, outputs))

"""A layer of vectors at every node of a graph: `Nodewise`."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ...core import Model, apply, takes_key
from ...data.graphs import Graph
from ..compose import Pointwise
from ..dropout import Dropout
from ..normalisation import BatchNorm
from .inputs import expect_graph


class Nodewise(eqx.Module):
    r"""Applies a layer of vectors, or a function, to the features of every node: $\xi_i = F(x_i)$.

    So `Linear`, `LayerNorm`, `Dropout`, an MLP and activations can stand between graph layers in a
    `Chain`. `BatchNorm` cannot, as it needs all nodes of a batch; use `GraphNorm`.

    >>> from thetax.layers import GCN, Chain
    >>> k1, k2 = jr.split(jr.key(0))
    >>> net = Chain(GCN.init(3, 8, key=k1), Nodewise(jax.nn.relu), GCN.init(8, 2, key=k2))
    >>> net(Graph.from_edges([(0, 1), (1, 2)], jax.numpy.eye(3))).nodes.shape
    (3, 2)
    """

    inner: Any

    def __init__(self, inner: Callable[..., Any]):
        self.inner = inner if isinstance(inner, eqx.Module) else Pointwise(inner)
        is_norm = lambda node: isinstance(node, BatchNorm)
        if any(map(is_norm, jax.tree.leaves(self.inner, is_leaf=is_norm))):
            raise ValueError(
                "Nodewise: BatchNorm would see each node by itself. Use GraphNorm, a layer of "
                "graphs, or LayerNorm."
            )

    def __call__(self, graph: Graph, *, key: PRNGKeyArray | None = None) -> Graph:
        expect_graph("Nodewise", graph)
        return graph.with_nodes(apply_to_rows(self.inner, graph.nodes, key=key))


def apply_to_rows(
    f: Model, x: Float[Array, "v d"], *, key: PRNGKeyArray | None = None
) -> Float[Array, "v m"]:
    """A model of vectors applied to every row, each with its own key.

    >>> apply_to_rows(jax.numpy.cumsum, jax.numpy.ones((2, 3))).tolist()
    [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]
    """
    if isinstance(f, Dropout):
        return f(x, key=key)
    if key is None or not takes_key(f):
        return jax.vmap(lambda row: f(row))(x)
    return jax.vmap(lambda row, key: apply(f, row, key=key))(x, jr.split(key, len(x)))

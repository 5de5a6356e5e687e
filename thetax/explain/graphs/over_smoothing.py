r"""Over-smoothing: how alike the features of the nodes become from layer to layer (§7.4).

The **Dirichlet energy** of the features $X$ of a layer, relative to their size, is
$\mathrm{tr}(X^\top \tilde L X) / \|X\|^2$ with the normalised Laplacian $\tilde L = I - \bar A$ of
the graph with self-loops; it lies in $[0, 2)$ and is 0 if the rows are proportional to $\sqrt{1 +
d_i}$, to which linear GCN layers converge (Cai & Wang 2020). The **mean cosine** is that of all
pairs of nodes; at 1 all rows have the same direction.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ...data.graphs import Graph, dirichlet_energy
from .layer_outputs import record_layers, single_graph


@dataclass(frozen=True)
class FeatureSmoothness:
    """Relative Dirichlet energy and mean cosine of the input features and of the features after
    each graph layer, before activations.
    """

    layers: tuple[str, ...]  # the input first
    energy: Float[np.ndarray, " l"]
    cosine: Float[np.ndarray, " l"]


def feature_smoothness(model: Any, graph: Graph) -> FeatureSmoothness:
    """Dirichlet energy and mean cosine of node features by layer: over-smoothing (§7.4).

    >>> import jax.random as jr
    >>> from thetax.models import GNN
    >>> graph = Graph.from_edges([(0, 1), (1, 2)], np.eye(3))
    >>> result = feature_smoothness(GNN.init(3, 4, 2, key=jr.key(0)), graph)
    >>> result.layers, result.cosine[0].item()
    (('input', 'GCN 1', 'GCN 2'), 0.0)
    """
    graph = single_graph("feature_smoothness", graph)

    def record(layer, x, y):
        return None if y.nodes is x.nodes else (_energy(y), mean_cosine(y.nodes))

    names, records = record_layers("feature_smoothness", model, graph, record)
    records = [(_energy(graph), mean_cosine(graph.nodes)), *records]
    energy, cosine = np.asarray(records, np.float64).T
    return FeatureSmoothness(("input", *names), energy, cosine)


def _energy(graph: Graph) -> Any:
    x = graph.nodes
    size = jnp.square(x).sum()
    energy = dirichlet_energy(graph, x, kind="normalised", self_loops=True)
    return energy / jnp.where(size > 0, size, 1)


def mean_cosine(x: Float[Any, "v d"]) -> Float[Any, ""]:
    r"""The mean of $\cos(x_i, x_j)$ over all pairs of rows that are not 0.

    >>> mean_cosine(jnp.array([[1.0, 0.0], [2.0, 0.0], [0.0, 0.0]])).item()
    1.0
    """
    norms = jnp.linalg.norm(x, axis=1, keepdims=True)
    units = jnp.where(norms > 0, x / jnp.where(norms > 0, norms, 1), 0)
    n = (norms > 0).sum()
    pairs = jnp.maximum(n * (n - 1), 1)
    return (jnp.square(units.sum(axis=0)).sum() - n) / pairs

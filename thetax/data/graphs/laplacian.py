r"""Graph Laplacians and the Dirichlet energy (§7.5).

| kind | matrix | $(Lx)_i$ |
|---|---|---|
| combinatorial | $D - A$ | $\sum_j a_{ij} (x_i - x_j)$ |
| normalised | $D^{-1/2} (D - A) D^{-1/2}$ | $\sum_j a_{ij} (x_i / d_i - x_j / \sqrt{d_i d_j})$ |
| random walk | $D^{-1} (D - A)$ | $x_i$ minus the mean of its neighbours |

$D$ is the diagonal matrix of the degrees $d_i = \sum_j a_{ij}$. At an isolated node $D^{-1/2}$ and
$D^{-1}$ are 0, so its row of $L$ is 0, and the multiplicity of the eigenvalue 0 is the number of
connected components. (For graphs without isolated nodes the normalised one is $I - D^{-1/2} A
D^{-1/2}$.) A self-loop counts once in the degree; it cancels in $D - A$. With `self_loops=True` a
self-loop is added to every node first, as the GCN does: then the normalised Laplacian is
$I - \bar A$ with the coupling matrix $\bar A$ of `GCN`.

The node features $x$ of a graph are constant on its components exactly if $x^\top L x = 0$; this
sum over edges is the Dirichlet energy.
"""

from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...check import suggest
from .graph import Graph

LaplacianKind = Literal["combinatorial", "normalised", "random walk"]


def laplacian(
    graph: Graph, kind: LaplacianKind = "combinatorial", *, self_loops: bool = False
) -> Float[Array, "v v"]:
    r"""The Laplacian matrix of a graph, with $a_{ij}$ the weight of the edge $j \to i$.

    Rows and columns of padding are 0. `layers.laplacian_propagate` multiplies with it without
    forming it.

    Departs: the notes use the letter $D$ in the GCN for the degrees plus 1; here it is without.

    >>> laplacian(Graph.from_edges([(0, 1), (1, 2)])).tolist()
    [[1.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.0]]
    """
    check_kind("laplacian", kind)
    A = graph.adjacency()
    if self_loops:
        A = A + jnp.diag(graph.node_mask.astype(A.dtype))
    d = A.sum(axis=1)
    L = jnp.diag(d) - A
    if kind == "normalised":
        scale = power_of_degrees(d, -0.5)
        return scale[:, None] * L * scale[None, :]
    if kind == "random walk":
        return power_of_degrees(d, -1.0)[:, None] * L
    return L


def dirichlet_energy(
    graph: Graph,
    x: Float[Array, "v *d"] | None = None,
    *,
    kind: Literal["combinatorial", "normalised"] = "combinatorial",
    self_loops: bool = False,
) -> Float[Array, "*g"]:
    r"""$\mathrm{tr}(X^\top L X) = \frac12 \sum_{ij} a_{ij} \|x_i - x_j\|^2$ of an undirected graph:
    how much the features differ along the edges.

    For the normalised Laplacian the terms are $\|x_i / \sqrt{d_i} - x_j / \sqrt{d_j}\|^2$. One
    number, or one for each graph of a batch. $X$ is by default the features of the nodes. Layers
    that smooth drive it to 0 (over-smoothing, Cai & Wang 2020); a GCN does so with
    `kind="normalised", self_loops=True`.

    >>> path = Graph.from_edges([(0, 1), (1, 2)])
    >>> float(dirichlet_energy(path, jnp.array([0.0, 1.0, 3.0])))
    5.0
    """
    check_kind("dirichlet_energy", kind, allowed=("combinatorial", "normalised"))
    x = graph.nodes if x is None else x
    if x.shape[:1] != graph.nodes.shape[:1]:
        raise ValueError(
            f"dirichlet_energy: expected a row of x for each of the {graph.n_nodes} nodes, got "
            f"shape {x.shape}."
        )
    w = edge_weights(graph).astype(x.dtype)
    x = x.reshape(graph.n_nodes, -1)
    if kind == "normalised":
        d = degrees(graph).astype(x.dtype) + (1 if self_loops else 0)
        x = power_of_degrees(d, -0.5)[:, None] * x
    squares = jnp.square(x[graph.receivers] - x[graph.senders]).sum(axis=1)
    count = 1 if graph.n_graphs is None else graph.n_graphs
    of_edge = graph.graph_ids[graph.receivers]
    energies = jax.ops.segment_sum(w * squares / 2, of_edge, count + 1)[:count]
    return energies[0] if graph.n_graphs is None else energies


def degrees(graph: Graph) -> Float[Array, " v"]:
    r"""$d_i = \sum_j a_{ij}$, the sum of the weights of the edges to each node.

    >>> degrees(Graph.from_edges([(0, 1), (1, 2)])).tolist()
    [1.0, 2.0, 1.0]
    """
    w = edge_weights(graph)
    return jnp.zeros(graph.n_nodes, w.dtype).at[graph.receivers].add(w)


def edge_weights(graph: Graph) -> Float[Array, " e"]:
    """The weights of the edges, by default ones; 0 for padding.

    >>> edge_weights(Graph.from_edges([(0, 1)])).tolist()
    [1.0, 1.0]
    """
    w = jnp.ones(graph.n_edges) if graph.weights is None else graph.weights
    return jnp.where(graph.edge_mask, w, 0)


def power_of_degrees(d: Float[Array, " v"], power: float) -> Float[Array, " v"]:
    """$d_i^p$, and 0 at nodes without edges.

    >>> power_of_degrees(jnp.array([4.0, 0.0]), -0.5).tolist()
    [0.5, 0.0]
    """
    positive = d > 0
    return jnp.where(positive, jnp.where(positive, d, 1) ** power, 0)


def check_kind(name: str, kind: Any, *, allowed: tuple[str, ...] = get_args(LaplacianKind)) -> None:
    """Raises `ValueError` unless `kind` is one of the allowed kinds of Laplacian."""
    if kind not in allowed:
        raise ValueError(
            f"{name}: {suggest(str(kind), allowed)}kind is one of {', '.join(allowed)}; got "
            f"{kind!r}."
        )

"""§7.5: the Laplace operator, the Laplacians of a graph, and their eigenvalues."""

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np

from ... import data, layers
from ...data import stack_graphs
from ...plot import Panel
from ..engine.check import at_least, at_most, between, close, equal, refuted
from ..engine.claim import Verdict, claim
from .known_graphs import graph_of, random_graph

CHUNG = "Chung 1997"
EXACT: Any = {"tolerance": 1e-10}


def laplacians(graphs, kind):
    """The matrices of several graphs of networkx, by one compiled program for all sizes."""
    stacked = jax.jit(jax.vmap(lambda graph: data.laplacian(graph, kind)))(
        stack_graphs([graph_of(graph) for graph in graphs])
    )
    return [np.asarray(L)[: len(g), : len(g)] for L, g in zip(stacked, graphs)]


@claim(
    "7.5-laplacian",
    title="The Laplace operator",
    kind="definition",
    of=("data.laplacian",),
)
def laplace_operator(rng):
    r"""$\Delta f = \sum_i \partial^2 f / \partial x_i^2$, the trace of the Hessian. On a grid of
    width $h$ it is $-L f / h^2$ up to $O(h^2)$, with the Laplacian $L$ of the grid as a graph.
    """
    f = lambda p: jnp.exp(p[0]) * jnp.sin(2 * p[1]) + p[2] ** 3
    point = rng.uniform(0.2, 1, 3)
    x, y, z = point
    closed_form = -3 * np.exp(x) * np.sin(2 * y) + 6 * z
    grid = nx.grid_graph((3, 3, 3))
    corners = np.array(list(grid)) - 1.0
    middle = list(grid).index((1, 1, 1))
    L = data.laplacian(graph_of(nx.convert_node_labels_to_integers(grid)))
    on_grid = {}
    for h in (1e-3, 0.2, 0.1, 0.05):
        values = jax.vmap(f)(jnp.asarray(point + h * corners))
        on_grid[h] = -float((L @ values)[middle]) / h**2
    errors = np.abs([on_grid[h] - closed_form for h in (0.2, 0.1, 0.05)])
    return Verdict(
        close(
            "Δf, the trace of the Hessian",
            jnp.trace(jax.hessian(f)(jnp.asarray(point))),
            closed_form,
        ),
        close(
            "Δf, by the Laplacian of a grid",
            on_grid[1e-3],
            closed_form,
            tolerance=1e-5,
            method="finite differences",
        ),
        *[
            between("order of the error in h", np.log2(a / b), 1.95, 2.05)
            for a, b in pairwise(errors)
        ],
    )


@claim(
    "7.5-laplacian-mean",
    title="The deviation from the mean",
    kind="theorem",
    of=("layers.laplacian_propagate",),
)
def deviation_from_mean(rng):
    r"""The mean of $f$ over a sphere of radius $r$ around $x \in \mathbb{R}^d$ is $f(x) +
    \frac{r^2}{2d} \Delta f(x) + O(r^4)$. On a graph, $x_i$ minus the mean of the neighbours is
    $(L x)_i$ with the random-walk Laplacian.
    """
    f = lambda p: np.exp(p[..., 0]) * np.sin(2 * p[..., 1])
    point = rng.uniform(0.2, 1, 2)
    laplace = -3 * f(point)
    n = 64
    angles = 2 * np.pi * np.arange(n) / n
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    star = graph_of(nx.star_graph(n))  # node 0 in the middle

    def deviation(f, r):
        values = f(np.concatenate([point[None], point + r * circle]))
        return -float(layers.laplacian_propagate(star, jnp.asarray(values), "random walk")[0])

    radii = np.array([0.1, 0.05, 0.025])
    errors = np.abs([deviation(f, r) * 4 / r**2 - laplace for r in radii])
    harmonic = lambda p: p[..., 0] ** 2 - p[..., 1] ** 2
    return Verdict(
        close(
            "the mean over the circle minus f, by NumPy",
            deviation(f, 0.1),
            f(point + 0.1 * circle).mean() - f(point),
        ),
        at_most("error of 4/r² of it, for Δf", errors, 3 * radii**2 * np.abs(laplace)),
        *[
            between("order of the error in r", np.log2(a / b), 1.9, 2.1)
            for a, b in pairwise(errors)
        ],
        close("harmonic f: the deviation", [deviation(harmonic, r) for r in radii], 0.0),
        refuted(close("f itself: the deviation", deviation(f, 0.1), 0.0, tolerance=1e-4)),
        figure=Panel(
            "radius r",
            "error of Δf",
            points={"mean over the circle": (radii, errors)},
            bounds={"r²": (radii, errors[0] * (radii / radii[0]) ** 2)},
            log="xy",
        ),
    )


@claim(
    "7.5-graph-laplacian",
    title="The Laplacian of a graph",
    kind="definition",
    of=("data.laplacian", "layers.laplacian_propagate"),
    cites=CHUNG,
)
def graph_laplacian(rng):
    r"""$L = D - A$ with $D = \mathrm{diag}(\sum_j a_{ij})$, so $(Lx)_i = \sum_j a_{ij} (x_i -
    x_j)$ and $L \mathbf{1} = 0$. On a path it is the negative second difference.
    """
    graphs = [random_graph(rng) for _ in range(50)]
    ours = laplacians(graphs, "combinatorial")
    theirs = [nx.laplacian_matrix(graph).toarray() for graph in graphs]
    graph = nx.gnp_random_graph(9, 0.4, seed=int(rng.integers(1000)))
    x = rng.normal(size=9)
    by_loop = [sum(x[i] - x[j] for j in graph[i]) for i in range(9)]
    path = laplacians([nx.path_graph(7)], "combinatorial")[0]
    interior = [-np.eye(7)[i - 1] + 2 * np.eye(7)[i] - np.eye(7)[i + 1] for i in range(1, 6)]
    A = nx.to_numpy_array(graph)
    gcn_degrees = np.diag(A.sum(axis=1) + 1)
    return Verdict(
        equal(
            "50 random graphs, as by networkx",
            np.concatenate([L.ravel() for L in ours]),
            np.concatenate([L.ravel() for L in theirs]),
        ),
        equal("L1", np.concatenate([L.sum(axis=1) for L in ours]), 0),
        close(
            "(Lx)_i, by the sum over neighbours",
            layers.laplacian_propagate(graph_of(graph), jnp.asarray(x)),
            by_loop,
        ),
        equal("rows inside a path", path[1:-1], interior),
        refuted(
            equal(
                "L1 with the degrees of the GCN, 1 + Σ a_ij",
                (gcn_degrees - A).sum(axis=1),
                np.zeros(9),
            )
        ),
    )


@claim(
    "7.5-laplacian-psd",
    title="The Laplacian is positive semi-definite",
    kind="theorem",
    of=("data.laplacian", "data.dirichlet_energy"),
    cites=CHUNG,
)
def positive_semidefinite(rng):
    r"""$x^\top L x = \frac12 \sum_{ij} a_{ij} (x_i - x_j)^2 \ge 0$, and the multiplicity of the
    eigenvalue 0 is the number of connected components.
    """
    graphs = [random_graph(rng) for _ in range(50)]
    matrices = laplacians(graphs, "combinatorial")
    signals = [rng.normal(size=len(graph)) for graph in graphs]
    by_edges = [
        sum((x[i] - x[j]) ** 2 for i, j in graph.edges) for x, graph in zip(signals, graphs)
    ]
    stacked = stack_graphs([graph_of(graph, x[:, None]) for graph, x in zip(graphs, signals)])
    spectra = [np.linalg.eigvalsh(L) for L in matrices]
    components = [nx.number_connected_components(graph) for graph in graphs]
    return Verdict(
        close(
            "x'Lx, by a sum over edges",
            [x @ L @ x for x, L in zip(signals, matrices)],
            by_edges,
            **EXACT,
        ),
        close(
            "the Dirichlet energy",
            jax.jit(jax.vmap(data.dirichlet_energy))(stacked),
            by_edges,
            **EXACT,
        ),
        at_least("smallest eigenvalue", [s.min() for s in spectra], 0.0, slack=1e-10),
        equal(
            "multiplicity of 0: components, by networkx",
            [int((s < 1e-9).sum()) for s in spectra],
            components,
        ),
        refuted(equal("graphs with one component", components, np.ones(50))),
    )


@claim(
    "7.5-norm-laplacian",
    title="The normalised Laplacian",
    kind="definition",
    of=("data.laplacian",),
    cites=CHUNG,
)
def normalised(rng):
    r"""$\tilde L = D^{-1/2} (D - A) D^{-1/2}$, which is $I - D^{-1/2} A D^{-1/2}$ without isolated
    nodes. Its eigenvalues lie in $[0, 2]$, and 2 is one exactly if a component with an edge is
    bipartite.

    At an isolated node $D^{-1/2} = 0$. There the two forms differ, by 1 on the diagonal; with the
    first, the multiplicity of 0 is the number of components.
    """
    graphs = [random_graph(rng, max_nodes=8) for _ in range(48)]
    graphs += [nx.complete_bipartite_graph(3, 3), nx.cycle_graph(5)]
    matrices = laplacians(graphs, "normalised")
    theirs = [nx.normalized_laplacian_matrix(graph).toarray() for graph in graphs]
    second_form = []
    for graph in graphs:
        A = nx.to_numpy_array(graph)
        d = A.sum(axis=1)
        scale = np.divide(1, np.sqrt(d), out=np.zeros_like(d), where=d > 0)
        second_form.append(np.eye(len(d)) - scale[:, None] * A * scale)
    isolated = [np.diag([float(d == 0) for _, d in graph.degree]) for graph in graphs]
    spectra = [np.linalg.eigvalsh(L) for L in matrices]
    zeros = lambda matrices: [int((np.linalg.eigvalsh(L) < 1e-9).sum()) for L in matrices]
    components = [nx.number_connected_components(graph) for graph in graphs]
    parts = [[graph.subgraph(c) for c in nx.connected_components(graph)] for graph in graphs]
    bipartite = [any(len(p) > 1 and nx.is_bipartite(p) for p in some) for some in parts]
    flat = lambda matrices: np.concatenate([M.ravel() for M in matrices])
    return Verdict(
        close("50 graphs, as by networkx", flat(matrices), flat(theirs)),
        close(
            "I - D^(-1/2) A D^(-1/2), less 1 at isolated nodes",
            flat(matrices),
            flat([S - one for S, one in zip(second_form, isolated)]),
        ),
        at_least("smallest eigenvalue", [s.min() for s in spectra], 0.0, slack=1e-10),
        at_most("largest eigenvalue", [s.max() for s in spectra], 2.0, slack=1e-10),
        equal(
            "eigenvalue 2: a bipartite component, by networkx",
            [bool(s.max() > 2 - 1e-9) for s in spectra],
            bipartite,
        ),
        close("largest eigenvalue of K(3, 3)", spectra[-2].max(), 2.0),
        close(
            "largest eigenvalue of C_5, 1 - cos(4π/5)", spectra[-1].max(), 1 - np.cos(4 * np.pi / 5)
        ),
        equal("multiplicity of 0: components", zeros(matrices), components),
        refuted(equal("the same with I - D^(-1/2) A D^(-1/2)", zeros(second_form), components)),
    )

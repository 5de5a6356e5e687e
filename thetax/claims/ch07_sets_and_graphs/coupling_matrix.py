r"""§7.4: the coupling matrix of the GCN, $\bar A = D^{-1/2} (A + I) D^{-1/2}$."""

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np

from ...data import stack_graphs
from ...layers import GCN, Linear, gcn_propagate, relu, tanh
from ..engine.check import at_most, between, close, equal, refuted
from ..engine.claim import Verdict, claim, erratum
from .graphs_by_loop import coupling
from .known_graphs import atlas, graph_of, random_graph

KIPF = "Kipf & Welling 2017"


def coupling_matrices(graphs: list[nx.Graph]) -> list[np.ndarray]:
    r"""$\bar A$ of several graphs, by `gcn_propagate` of the unit matrix."""
    size = max(map(len, graphs))
    stacked = stack_graphs([graph_of(g) for g in graphs], n_nodes=size + 1)
    matrices = jax.jit(jax.vmap(lambda graph: gcn_propagate(graph, jnp.eye(size + 1))))(stacked)
    return [np.asarray(M)[: len(g), : len(g)] for M, g in zip(matrices, graphs)]


@claim(
    "7.4-coupling",
    title="The coupling matrix of the GCN",
    kind="identity",
    of=("layers.gcn_propagate",),
    cites=KIPF,
)
def coupling_entries(rng):
    r"""$\bar A = D^{-1/2} (A + I) D^{-1/2}$ with $D = \mathrm{diag}(1 + \sum_n a_{nm})$ has the
    entries $1 / \sqrt{d_i d_j}$ on edges and $1 / d_i$ on the diagonal. It is symmetric, and $I -
    \bar A$ is the normalised Laplacian of the graph with self-loops.
    """
    graphs = [random_graph(rng) for _ in range(20)]
    ours = coupling_matrices(graphs)
    flat = lambda matrices: np.concatenate([np.ravel(M) for M in matrices])
    by_loop = flat([coupling(nx.to_numpy_array(g)) for g in graphs])
    entries = []
    for g in graphs:
        d = np.array([1 + g.degree[i] for i in g])
        M = np.diag(1 / d)
        for i, j in g.edges:
            M[i, j] = M[j, i] = 1 / np.sqrt(d[i] * d[j])
        entries.append(M)
    laplacians = []
    for g in graphs:
        looped = nx.Graph(g)
        looped.add_edges_from((i, i) for i in g)
        laplacians.append(nx.normalized_laplacian_matrix(looped).toarray())
    without = [np.eye(len(g)) - nx.normalized_laplacian_matrix(g).toarray() for g in graphs]
    return Verdict(
        close("entries, by loops", flat(ours), by_loop),
        close("entries, from the degrees", flat(ours), flat(entries)),
        close("symmetric", flat(ours), flat([M.T for M in ours])),
        close("I - Ā, by networkx", flat([np.eye(len(M)) - M for M in ours]), flat(laplacians)),
        refuted(close("Ā, without self-loops", flat(ours), flat(without), tolerance=1e-3)),
    )


def is_regular(graph: nx.Graph) -> bool:
    """Whether every component has nodes of one degree."""
    components = nx.connected_components(graph)
    return all(len({graph.degree[i] for i in part}) == 1 for part in components)


@claim(
    "7.4-coupling-average",
    title="Weights of the neighbours in a GCN",
    kind="identity",
    of=("layers.gcn_propagate",),
    cites=KIPF,
)
def row_sums():
    r"""The weights of $(\bar A X)_i$ sum to $\sum_j \bar a_{ij}$, which is 1 for all $i$ iff every
    connected component is regular. The random-walk form $D^{-1} (A + I)$ has rows with sum 1 but is
    not symmetric; the two have the same eigenvalues.
    """
    star = nx.star_graph(5)
    few = atlas(5, connected=False)
    sums = [M.sum(axis=1) for M in coupling_matrices(few)]
    unit_sums = [bool(np.abs(s - 1).max() < 1e-12) for s in sums]
    regular = [is_regular(g) for g in few]
    looped = [nx.to_numpy_array(g) + np.eye(len(g)) for g in few]
    walks = [A / A.sum(axis=1, keepdims=True) for A in looped]
    spectra = [np.linalg.eigvalsh(M) for M in coupling_matrices(few)]
    of_walks = [np.sort(np.linalg.eigvals(W).real) for W in walks]
    star_sums = coupling_matrices([star])[0].sum(axis=1)
    hub, leaf = 1 / 6 + 5 / np.sqrt(12), 1 / 2 + 1 / np.sqrt(12)
    (walk,) = [A / A.sum(axis=1, keepdims=True) for A in [nx.to_numpy_array(star) + np.eye(6)]]
    return Verdict(
        close("row sums, star of 5 leaves", star_sums, np.array([hub, *[leaf] * 5])),
        close("row sums, cycle of 7", coupling_matrices([nx.cycle_graph(7)])[0].sum(axis=1), 1.0),
        equal(f"row sums 1 iff regular: {len(few)} graphs", unit_sums, regular),
        equal("graphs of both kinds", len(set(regular)), 2),
        close("row sums of D⁻¹(A + I)", np.concatenate([W.sum(axis=1) for W in walks]), 1.0),
        close(
            "eigenvalues of D⁻¹(A + I)",
            np.concatenate(of_walks),
            np.concatenate(spectra),
            tolerance=1e-7,  # those of a matrix that is not symmetric
        ),
        refuted(close("D⁻¹(A + I) symmetric, star", walk, walk.T, tolerance=1e-3)),
    )


@erratum(
    "7.4-coupling-average",
    title="The GCN does not average",
    printed=r"\textstyle\sum_j \bar a_{ij} = \sum_i \bar a_{ij} = 1",
    corrected=r"\textstyle\sum_j \bar a_{ij} = 1 \text{ for all } i \iff \text{every component is "
    r"regular}",
    of=("layers.gcn_propagate",),
)
def not_an_average(rng):
    r"""The notes call $\bar A X$ an average of neighbours and say that scaling from both sides
    normalises rows and columns. On a star with 5 leaves the sums are 1.61 and 0.79. Scaling by
    $D^{-1}$ from the left normalises the rows.
    """
    star = graph_of(nx.star_graph(5))
    rough = graph_of(nx.gnp_random_graph(12, 0.3, seed=int(rng.integers(2**31))))
    ring = graph_of(nx.cycle_graph(6))
    ones = lambda graph: np.ones((graph.n_nodes, 1))
    sums = lambda graph: np.asarray(gcn_propagate(graph, jnp.asarray(ones(graph))))
    return Verdict(
        close("rows of a regular graph", sums(ring), ones(ring)),
        between("row sum at the hub of a star", sums(star)[0, 0], 1.61, 1.611),
        between("row sum at a leaf of a star", sums(star)[1, 0], 0.788, 0.789),
        printed=[
            close("row sums, star", sums(star), ones(star), tolerance=1e-3),
            close("row sums, random graph", sums(rough), ones(rough), tolerance=1e-3),
        ],
    )


@claim(
    "7.4-coupling-norm",
    title="The coupling matrix has norm 1",
    kind="theorem",
    of=("layers.gcn_propagate",),
    cites=KIPF,
)
def norm_one(rng):
    r"""$\|\bar A\|_2 = 1$: the vector $D^{1/2} 1$ has eigenvalue 1, and all eigenvalues lie in
    $(-1, 1]$. So $\|\sigma(\bar A X W)\|_F \le \|X\|_F \|W\|_2$ for every 1-Lipschitz $\sigma$ with
    $\sigma(0) = 0$: a propagation never increases the norm.
    """
    graphs = [random_graph(rng, max_nodes=30) for _ in range(100)]
    matrices = coupling_matrices(graphs)
    spectra = [np.linalg.eigvalsh(M) for M in matrices]
    roots = [np.sqrt([1 + g.degree[i] for i in g]) for g in graphs]
    residuals = [np.abs(M @ u - u).max() / np.linalg.norm(u) for M, u in zip(matrices, roots)]
    ratios = []
    for M in matrices[:20]:
        X, W = rng.normal(size=(len(M), 3)), rng.normal(size=(3, 4))
        bound = np.linalg.norm(X) * np.linalg.norm(W, 2)
        ratios += [float(jnp.linalg.norm(f(jnp.asarray(M @ X @ W)))) / bound for f in (relu, tanh)]
    graph = graph_of(graphs[0], rng.normal(size=(len(graphs[0]), 3)))
    features = [graph.nodes]
    for _ in range(50):
        features.append(gcn_propagate(graph, features[-1]))
    norms = np.linalg.norm(features, axis=(1, 2))
    plain = [np.linalg.norm(nx.to_numpy_array(g), 2) for g in graphs if g.number_of_edges() > 1]
    return Verdict(
        close("largest eigenvalue, 100 graphs", np.array([s[-1] for s in spectra]), 1.0),
        at_most("minus the smallest eigenvalue", np.array([-s[0] for s in spectra]), 1 - 1e-3),
        close("Ā D^½ 1 = D^½ 1", np.array(residuals), 0.0),
        at_most("‖σ(ĀXW)‖ over ‖X‖‖W‖", np.array(ratios), 1.0),
        at_most("growth of ‖X‖ in 50 propagations", norms[1:] / norms[:-1], 1.0, slack=1e-12),
        refuted(at_most("‖A‖, without normalisation", np.array(plain), 1.0)),
    )


@erratum(
    "7.4-coupling-norm",
    title="The weights must not increase the norm either",
    printed=r"\|\bar A\|_2 \le 1 \Rightarrow \|\sigma(\bar A X W)\| \le \|X\|",
    corrected=r"\|\sigma(\bar A X W)\|_F \le \|X\|_F\, \|W\|_2",
    of=("layers.GCN",),
    cites=KIPF,
)
def weights_increase_the_norm(rng):
    r"""The norm of $\bar A$ alone does not keep activations from growing: with $W = 2I$, the
    activations of five layers on $D^{1/2} 1$ are 32 times as large.
    """
    graph = random_graph(rng)
    root = np.sqrt([[1.0 + graph.degree[i]] for i in graph])
    layer = GCN(Linear(2 * jnp.eye(1)))
    features = [graph_of(graph, root)]
    for _ in range(5):
        features.append(layer(features[-1]))
    norms = np.array([np.linalg.norm(g.nodes) for g in features])
    growth = norms[1:] / norms[:-1]
    return Verdict(
        close("five layers with W = 2I", norms[-1] / norms[0], 32.0, tolerance=1e-10),
        at_most("growth of a layer over the norm of W", growth / 2, 1.0, slack=1e-12),
        printed=[at_most("growth of a layer", growth, 1.0, slack=1e-6)],
    )

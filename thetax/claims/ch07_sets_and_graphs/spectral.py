"""§7.5: the graph Fourier transform, spectral filters and polynomial filters."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import networkx as nx
import numpy as np
import scipy.linalg
import scipy.sparse
from threadpoolctl import threadpool_limits

from ...data import GraphFourier, graph_fourier, laplacian, permute_nodes
from ...data.graphs.graph_fourier import canonical_basis
from ...layers import PolynomialFilter, SpectralFilter, laplacian_propagate, spectral_filter
from ...plot import Panel
from ..engine.check import (
    at_least,
    at_most,
    between,
    close,
    close_derivative,
    equal,
    refuted,
)
from ..engine.claim import Verdict, claim, erratum
from ..engine.differences import jacobian
from .known_graphs import graph_of, random_graph

SHUMAN = "Shuman et al. 2013"
BRUNA = "Bruna et al. 2014"
DEFFERRARD = "Defferrard, Bresson & Vandergheynst 2016"
EXACT: Any = {"tolerance": 1e-10}


def connected_graph(rng, n, p=0.3):
    """A random connected graph of networkx with n nodes."""
    while True:
        graph = nx.gnp_random_graph(n, p, seed=int(rng.integers(2**31)))
        if nx.is_connected(graph):
            return graph


def rotated(basis, rng):
    """Another basis of the same eigenspaces: a random rotation in each."""
    lambdas, U = np.asarray(basis.eigenvalues), np.array(basis.vectors)
    for start in np.flatnonzero(np.diff(lambdas, prepend=-1.0) > 1e-9):
        same = np.abs(lambdas - lambdas[start]) < 1e-9
        U[:, same] @= np.linalg.qr(rng.normal(size=(same.sum(),) * 2))[0]
    return GraphFourier(basis.eigenvalues, jnp.asarray(U))


@claim(
    "7.5-graph-fourier",
    title="The graph Fourier transform",
    kind="definition",
    of=("data.graph_fourier",),
    cites=SHUMAN,
)
def fourier(rng):
    r"""$L = U \Lambda U^\top$, $\hat x = U^\top x$ and $x = U \hat x$. $u_i^\top L u_i =
    \lambda_i$: eigenvalues act as frequencies, and on a path eigenvector $i$ changes its sign $i$
    times.
    """
    graph = connected_graph(rng, 15)
    basis = graph_fourier(graph_of(graph))
    L = nx.laplacian_matrix(graph).toarray()
    U = np.asarray(basis.vectors)
    x = rng.normal(size=(15, 2))
    x_hat = np.asarray(basis.transform(jnp.asarray(x)))
    M = 12
    path = np.asarray(graph_fourier(graph_of(nx.path_graph(M))).vectors)
    signs = [np.sign(u[np.abs(u) > 1e-9]) for u in path.T]
    other = np.asarray(rotated(basis, rng).vectors)
    return Verdict(
        close("U Λ U'", U @ np.diag(basis.eigenvalues) @ U.T, L, **EXACT),
        close("U'U", U.T @ U, np.eye(15), **EXACT),
        close("x̂ = U'x, by a loop", x_hat, [[u @ column for column in x.T] for u in U.T], **EXACT),
        close("the inverse of the transform", basis.inverse(jnp.asarray(x_hat)), x, **EXACT),
        close("‖x̂‖", np.linalg.norm(x_hat), np.linalg.norm(x), **EXACT),
        close("u_i'L u_i", [u @ L @ u for u in U.T], basis.eigenvalues, **EXACT),
        close("the eigenvalues, by SciPy", basis.eigenvalues, scipy.linalg.eigh(L)[0], **EXACT),
        equal(
            "a path: sign changes of u_i", [int((np.diff(s) != 0).sum()) for s in signs], range(M)
        ),
        close(
            "the fixed basis from another one of the same eigenspaces",
            canonical_basis(np.asarray(basis.eigenvalues), other),
            U,
            **EXACT,
        ),
        figure=Panel(
            "node of the path",
            "u_i",
            lines={
                f"λ = {2 - 2 * np.cos(np.pi * i / M):.2f}": (np.arange(M), path[:, i])
                for i in (0, 1, 3)
            },
        ),
    )


def unitary(n):
    """The unitary matrix of the discrete Fourier transform; its columns are the frequencies."""
    k = np.arange(n)
    return np.exp(2j * np.pi * np.outer(k, k) / n) / np.sqrt(n)


@claim(
    "7.5-cycle-dft",
    title="On a cycle it is the discrete Fourier transform",
    kind="identity",
    of=("data.graph_fourier", "data.laplacian"),
    cites=SHUMAN,
)
def cycle():
    r"""The Laplacian of the cycle $C_n$ is circulant: its eigenvectors are those of the discrete
    Fourier transform, and its eigenvalues $2 - 2 \cos(2 \pi k / n)$.
    """
    checks = []
    for n in (6, 11):
        graph = graph_of(nx.cycle_graph(n))
        L, F = np.asarray(laplacian(graph)), unitary(n)
        formula = 2 - 2 * np.cos(2 * np.pi * np.arange(n) / n)
        checks += [
            close(f"C_{n}: F'L F", F.conj().T @ L @ F, np.diag(formula).astype(complex), **EXACT),
            close(
                f"C_{n}: the eigenvalues",
                graph_fourier(graph).eigenvalues,
                np.sort(formula),
                **EXACT,
            ),
        ]
    path = np.asarray(laplacian(graph_of(nx.path_graph(6))))
    diagonal = unitary(6).conj().T @ path @ unitary(6)
    return Verdict(
        *checks,
        refuted(
            close(
                "a path: F'L F off the diagonal",
                diagonal - np.diag(np.diag(diagonal)),
                np.zeros((6, 6)),
                tolerance=1e-3,
            )
        ),
    )


@claim(
    "7.5-graph-conv",
    title="Graph convolution",
    kind="definition",
    of=("data.GraphFourier", "data.graph_fourier"),
    cites=SHUMAN,
)
def convolution(rng):
    r"""$x * y = U (U^\top x \odot U^\top y)$ is commutative and bilinear, and equals $U\,
    \mathrm{diag}(U^\top y)\, U^\top x$. With the unitary Fourier basis of a cycle, $\sqrt n\, (x *
    y)$ is the circular convolution.

    It is not a function of the graph: other signs of the eigenvectors, or another basis of an
    eigenspace, give another product. The library fixes the basis by the numbers of the nodes.
    """
    n = 6
    basis = graph_fourier(graph_of(nx.cycle_graph(n)))
    x, y, z = (jnp.asarray(rng.normal(size=n)) for _ in range(3))
    U = np.asarray(basis.vectors)
    product = basis.convolve(x, y)
    flipped = GraphFourier(basis.eigenvalues, basis.vectors.at[:, 5].multiply(-1))
    turned = rotated(basis, rng)
    circular = [sum(x[j] * y[(i - j) % n] for j in range(n)) for i in range(n)]
    F = unitary(n)
    by_dft = np.sqrt(n) * F @ ((F.conj().T @ np.asarray(x)) * (F.conj().T @ np.asarray(y)))
    return Verdict(
        close("x * y = y * x", product, basis.convolve(y, x), **EXACT),
        close(
            "bilinear", basis.convolve(2 * x - z, y), 2 * product - basis.convolve(z, y), **EXACT
        ),
        close("U diag(U'y) U'x", product, U @ np.diag(U.T @ y) @ U.T @ x, **EXACT),
        close(
            "C_6, unitary basis: circular convolution, by a loop",
            by_dft,
            np.asarray(circular, complex),
            **EXACT,
        ),
        refuted(
            close("the same with a real basis", np.sqrt(n) * product, circular, tolerance=1e-3)
        ),
        refuted(
            close(
                "one eigenvector with the other sign",
                flipped.convolve(x, y),
                product,
                tolerance=1e-6,
            )
        ),
        refuted(close("eigenspaces rotated", turned.convolve(x, y), product, tolerance=1e-6)),
        close(
            "a rotated basis, brought to the fixed one",
            canonical_basis(np.asarray(basis.eigenvalues), np.asarray(turned.vectors)),
            U,
            **EXACT,
        ),
    )


@claim(
    "7.5-spectral-filter",
    title="Spectral filters",
    kind="layer",
    of=("layers.spectral_filter", "layers.SpectralFilter"),
    cites=BRUNA,
)
def filters(key, rng):
    r"""$g(L) X = U g(\Lambda) U^\top X$ is $X$ for $g = 1$, $LX$ for $g(\lambda) = \lambda$ and
    $e^{-tL} X$ for $g(\lambda) = e^{-t\lambda}$. If $g$ depends on $\lambda$ only, the filter does
    not depend on the basis and is equivariant under permutations; free parameters $\theta_i$, one
    for each eigenvector, are neither.
    """
    graph = graph_of(nx.petersen_graph(), rng.normal(size=(10, 3)))
    x, t = graph.nodes, 0.3
    L = np.asarray(laplacian(graph))
    filtered = lambda g: spectral_filter(graph, x, g, "combinatorial")
    heat = lambda z: jnp.exp(-t * z)
    basis = graph_fourier(graph)
    other = rotated(basis, rng)
    free = jnp.asarray(rng.normal(size=10))
    order = rng.permutation(10)
    permuted = permute_nodes(graph, order)
    layer = SpectralFilter(jr.normal(key, (2, 3, 4)), jr.normal(key, (2,)))
    lambdas, U = np.linalg.eigh(np.asarray(laplacian(graph, "normalised")))
    responses = [
        [np.interp(lambdas, np.linspace(0, 2, 4), theta) for theta in row]
        for row in np.asarray(layer.theta)
    ]
    by_loop = np.stack(
        [sum(U @ np.diag(responses[m][n]) @ U.T @ x[:, n] for n in range(3)) for m in range(2)],
        axis=1,
    ) + np.asarray(layer.b)
    y = layer(graph).nodes
    permuted_basis = graph_fourier(permuted)
    return Verdict(
        close("g = 1", filtered(jnp.ones_like), x, **EXACT),
        close("g(λ) = λ", filtered(lambda z: z), L @ x, **EXACT),
        close(
            "g(λ) = exp(-tλ), by scipy.linalg.expm",
            filtered(heat),
            scipy.linalg.expm(-t * L) @ x,
            **EXACT,
        ),
        close("heat with another basis", other.filter(heat, x), filtered(heat), **EXACT),
        close(
            "heat, nodes permuted",
            spectral_filter(permuted, permuted.nodes, heat, "combinatorial"),
            filtered(heat)[order],
            **EXACT,
        ),
        close("the learned filter, by loops over channels", y, by_loop, **EXACT),
        close("the same, nodes permuted", layer(permuted).nodes, y[order], **EXACT),
        refuted(
            close(
                "free θ_i with another basis",
                other.filter(lambda z: free, x),
                basis.filter(lambda z: free, x),
                tolerance=1e-3,
            )
        ),
        refuted(
            close(
                "free θ_i, nodes permuted",
                permuted_basis.filter(lambda z: free, permuted.nodes),
                basis.filter(lambda z: free, x)[order],
                tolerance=1e-3,
            )
        ),
    )


def processor_seconds(f, *, repeats=2):
    """The shortest of several processor times of a call on one thread, which other programs on the
    machine do not change.
    """
    times = []
    with threadpool_limits(1):
        for _ in range(repeats):
            start = time.thread_time()
            f()
            times.append(time.thread_time() - start)
    return min(times)


@claim(
    "7.5-filter-cost",
    title="The cost of spectral and polynomial filters",
    kind="experiment",
    of=("layers.laplacian_propagate", "data.laplacian"),
    cites=DEFFERRARD,
)
def cost(rng):
    r"""An eigendecomposition takes $O(M^3)$ operations. A polynomial filter of order $K$ takes $K$
    products with the sparse $L$: $K (2|E| + M)$ multiplications, $3KM$ on a ring.
    """
    sizes = np.array([200, 400, 800, 1600])
    times = []
    for M in sizes:
        S = rng.normal(size=(M, M))
        times += [processor_seconds(lambda S=S + S.T: np.linalg.eigh(S))]
    slope = np.polyfit(np.log(sizes), np.log(times), 1)[0]
    K, entries, flops = 5, [], []
    for M in (512, 1024, 2048):
        ring = graph_of(nx.cycle_graph(M))
        entries += [scipy.sparse.csr_array(np.asarray(laplacian(ring))).nnz]
        powers = jax.jit(lambda x, ring=ring: [x := laplacian_propagate(ring, x) for _ in range(K)])
        analysis: Any = powers.lower(jnp.ones(M)).compile().cost_analysis()
        flops += [analysis["flops"]]
    multiplications = K * np.array(entries)
    return Verdict(
        between("slope of the log of the time of eigh against log M", slope, 2.2, 3.5),
        equal(
            "K products with L on a ring, multiplications",
            multiplications,
            3 * K * np.array([512, 1024, 2048]),
        ),
        between(
            "operations of the compiled filter: M = 2048 to M = 1024",
            flops[2] / flops[1],
            1.95,
            2.05,
        ),
        at_most(
            "operations of the compiled filter by multiplication",
            flops / multiplications,
            4.0,
            method="trend",
        ),
        figure=Panel(
            "nodes M",
            "processor seconds",
            points={"eigendecomposition": (sizes, times)},
            bounds={"M³": (sizes, times[-1] * (sizes / sizes[-1]) ** 3)},
            log="xy",
        ),
    )


def by_powers(alpha, L, X, b=None):
    r"""$\xi_m = \sum_n \sum_k \alpha_{mnk} L^k x_n + b_m$ as a triple loop."""
    Y = np.zeros((len(X), len(alpha)))
    for m, of_output in enumerate(np.asarray(alpha)):
        for n, coefficients in enumerate(of_output):
            for k, a in enumerate(coefficients):
                Y[:, m] += a * np.linalg.matrix_power(L, k) @ X[:, n]
    return Y if b is None else Y + np.asarray(b)


def one_channel(alpha):
    """The polynomial filter of a signal."""
    return PolynomialFilter(jnp.asarray(alpha)[None, None], None, "combinatorial")


@claim(
    "7.5-poly-filter",
    title="Polynomial filters",
    kind="layer",
    of=("layers.PolynomialFilter",),
    cites=DEFFERRARD,
)
def polynomial(rng):
    r"""$U \bigl(\sum_{k=0}^K \alpha_k \Lambda^k\bigr) U^\top X = \sum_{k=0}^K \alpha_k L^k X$, by
    repeated products with $L$ and without eigenvectors.
    """
    M, K = 30, 5
    graph = graph_of(connected_graph(rng, M, 0.15), rng.normal(size=(M, 1)))
    alpha = rng.normal(size=K + 1) / 3.0 ** np.arange(K + 1)
    basis = graph_fourier(graph)
    by_spectrum = basis.filter(lambda z: jnp.polyval(jnp.asarray(alpha[::-1]), z), graph.nodes)
    y = one_channel(alpha)(graph).nodes
    L = np.asarray(laplacian(graph))
    upstream = rng.normal(size=M)
    value = lambda a: jnp.vdot(jnp.asarray(upstream), one_channel(a)(graph).nodes[:, 0])
    contracted = [upstream @ np.linalg.matrix_power(L, k) @ graph.nodes[:, 0] for k in range(K + 1)]
    slope = jax.grad(value)(jnp.asarray(alpha))
    by_differences = jacobian(value, alpha)
    return Verdict(
        close("the filter, by the spectrum", y, by_spectrum, tolerance=1e-9, relative=True),
        close(
            "the filter, by matrix powers",
            y,
            by_powers(alpha[None, None], L, graph.nodes),
            tolerance=1e-9,
            relative=True,
        ),
        close("∂/∂α_k = ⟨c, L^k x⟩", slope, contracted, tolerance=1e-9, relative=True),
        close_derivative("∂/∂α, by finite differences", slope, by_differences, relative=True),
    )


@erratum(
    "7.5-poly-filter",
    title="K + 1 coefficients",
    printed=r"\alpha \in \mathbb{R}^K",
    corrected=r"\alpha \in \mathbb{R}^{K+1}",
    of=("layers.PolynomialFilter",),
    slip=True,
)
def coefficients(key):
    r"""The sum runs from $k = 0$ to $K$: a filter of order $K$ has $K + 1$ coefficients, and $I, L,
    \dots, L^K$ are linearly independent on a path of more than $K$ nodes.
    """
    K = 3
    L = np.asarray(laplacian(graph_of(nx.path_graph(6))))
    powers = np.stack([np.linalg.matrix_power(L, k).ravel() for k in range(K + 1)])
    rank = np.linalg.matrix_rank(powers)
    layer = PolynomialFilter.init(1, 1, order=K, key=key)
    return Verdict(
        equal("dimension of the filters of order K", rank, K + 1),
        equal("coefficients of the layer", layer.alpha.shape[2], K + 1),
        printed=[
            equal("dimension of the filters of order K, as printed", rank, K),
            equal("coefficients of the layer, as printed", layer.alpha.shape[2], K),
        ],
    )


@claim(
    "7.5-poly-locality",
    title="The order is the radius",
    kind="theorem",
    of=("layers.PolynomialFilter",),
    cites=DEFFERRARD,
)
def locality(rng):
    r"""$(L^k)_{ij} = 0$ if the distance of $i$ and $j$ is more than $k$, and not 0 if it is $k$: a
    filter of order $K$ sees nodes up to $K$ hops away.
    """
    beyond, at = [], []
    for _ in range(20):
        graph = random_graph(rng)
        hops = distances(graph)
        L = nx.laplacian_matrix(graph).toarray()
        for k in range(6):
            power = np.linalg.matrix_power(L, k)
            beyond += [np.abs(power[hops > k]).sum()]
            at += np.abs(power[hops == k]).tolist()
    graph = connected_graph(rng, 12, 0.15)
    given = graph_of(graph, rng.normal(size=(12, 1)))
    hops = distances(graph)
    checks = []
    for K in (1, 2, 3):
        layer = one_channel(rng.uniform(1, 2, K + 1) * (-1.0) ** np.arange(K + 1))
        f = lambda x, layer=layer: layer(given.with_nodes(x)).nodes
        slope = np.asarray(jax.jacobian(f)(given.nodes))[:, 0, :, 0]
        checks += [equal(f"order {K}: node i depends on node j", slope != 0, hops <= K)]
    return Verdict(
        equal("20 graphs, k = 0..5: |L^k| beyond distance k", beyond, np.zeros(120)),
        at_least("|L^k| at distance k", at, 1.0),
        *checks,
    )


def distances(graph):
    """The distances of all pairs of nodes, by breadth-first search of networkx."""
    hops = np.full((len(graph),) * 2, np.inf)
    for i, lengths in nx.all_pairs_shortest_path_length(graph):
        for j, length in lengths.items():
            hops[i, j] = length
    return hops


def drawn_layer(key, d, m, K):
    """A polynomial layer with random coefficients and bias."""
    layer = PolynomialFilter.init(d, m, order=K, kind="combinatorial", key=key)
    return PolynomialFilter(layer.alpha, jr.normal(key, (m,)), "combinatorial")


@claim(
    "7.5-poly-layer",
    title="A layer of polynomial filters",
    kind="layer",
    of=("layers.PolynomialFilter",),
    cites=DEFFERRARD,
)
def polynomial_layer(key, rng):
    r"""$\xi_m = \sum_{n=1}^{d} p_{mn}(L)\, x_n + b_m \mathbf{1}$ with $p_{mn}(L) = \sum_{k=0}^K
    \alpha_{mnk} L^k$ and $\alpha \in \mathbb{R}^{d' \times d \times (K+1)}$; $x_n \in \mathbb{R}^M$
    is channel $n$. The number of parameters, $d' d (K + 1) + d'$, does not depend on $M$.
    """
    M, K = 8, 3
    checks = []
    for d, m in ((3, 2), (2, 3)):
        graph = graph_of(connected_graph(rng, M), rng.normal(size=(M, d)))
        layer = drawn_layer(key, d, m, K)
        y = layer(graph).nodes
        L = np.asarray(laplacian(graph))
        order = rng.permutation(M)
        c = jnp.asarray(rng.normal(size=(M, m)))
        by_alpha = lambda a, layer=layer, graph=graph, c=c: jnp.vdot(
            c, PolynomialFilter(a, layer.b, layer.kind)(graph).nodes
        )
        by_nodes = lambda x, layer=layer, graph=graph, c=c: jnp.vdot(
            c, layer(graph.with_nodes(x)).nodes
        )
        checks += [
            close(
                f"{d} to {m} channels: the triple loop",
                y,
                by_powers(layer.alpha, L, np.asarray(graph.nodes), layer.b),
                tolerance=1e-12,
                relative=True,
            ),
            close(
                "nodes permuted",
                layer(permute_nodes(graph, order)).nodes,
                y[order],
                tolerance=1e-12,
                relative=True,
            ),
            equal(
                "parameters, for any M",
                sum(a.size for a in jax.tree.leaves(layer)),
                m * d * (K + 1) + m,
            ),
            close_derivative(
                "∂/∂α",
                jax.grad(by_alpha)(layer.alpha),
                jacobian(by_alpha, layer.alpha),
                relative=True,
            ),
            close_derivative(
                "∂/∂X",
                jax.grad(by_nodes)(graph.nodes),
                jacobian(by_nodes, graph.nodes),
                relative=True,
            ),
        ]
    return Verdict(*checks)


@erratum(
    "7.5-poly-layer",
    title="The sum runs over channels",
    printed=r"\xi_m = \sum_{n=1}^{M} p_{mn}(L)\, x_n + b_n,\quad \alpha \in \mathbb{R}^{M \times M "
    r"\times K}",
    corrected=r"\xi_m = \sum_{n=1}^{d} p_{mn}(L)\, x_n + b_m \mathbf{1},\quad \alpha \in "
    r"\mathbb{R}^{d' \times d \times (K+1)}",
    of=("layers.PolynomialFilter",),
)
def over_channels(key, rng):
    r"""With $n$ over the $M$ nodes, $p_{mn}(L) \in \mathbb{R}^{M \times M}$ would act on the
    features $x_n \in \mathbb{R}^d$ of a node: the shapes fit only if $d = M$. Even then the layer
    is not equivariant, and its number of parameters grows with the graph.
    """
    M, d, K = 5, 5, 2
    graph = graph_of(connected_graph(rng, M), rng.normal(size=(M, d)))
    order = np.roll(np.arange(M), 1)
    permuted = permute_nodes(graph, order)
    layer = drawn_layer(key, d, M, K)

    def printed_form(graph):
        """Row m of the result is the sum over nodes n of p_mn(L) times the features of node n."""
        L, X = np.asarray(laplacian(graph)), np.asarray(graph.nodes)
        p = lambda m, n: sum(
            a * np.linalg.matrix_power(L, k) for k, a in enumerate(np.asarray(layer.alpha)[m, n])
        )
        return np.stack([sum(p(m, n) @ X[n] for n in range(M)) for m in range(M)])

    counted = lambda M: M * M * K
    own = lambda M: sum(a.size for a in jax.tree.leaves(drawn_layer(key, 3, 2, K)))
    return Verdict(
        close(
            "f(PX, PAP') = P f(X, A)",
            layer(permuted).nodes,
            layer(graph).nodes[order],
            tolerance=1e-12,
            relative=True,
        ),
        equal("parameters for M = 5 and M = 50", own(5), own(50)),
        printed=[
            close(
                "f(PX, PAP') = P f(X, A), as printed",
                printed_form(permuted),
                printed_form(graph)[order],
                tolerance=1e-3,
                relative=True,
            ),
            equal("parameters for M = 5 and M = 50, as printed", counted(5), counted(50)),
        ],
    )


@claim(
    "7.5-poly-affine",
    title="The layer is affine",
    kind="identity",
    of=("layers.PolynomialFilter",),
    cites=DEFFERRARD,
)
def affine(key, rng):
    r"""$\mathrm{vec}(\Xi) = W\, \mathrm{vec}(X) + b$, where $W$ has the blocks $p_{mn}(L)$ and $b$
    repeats $b_m$ for all nodes.
    """
    M, d, m, K = 6, 3, 2, 3
    graph = graph_of(connected_graph(rng, M), rng.normal(size=(M, d)))
    layer = drawn_layer(key, d, m, K)
    L = np.asarray(laplacian(graph))
    p = lambda a: sum(a[k] * np.linalg.matrix_power(L, k) for k in range(K + 1))
    W = np.block([[p(a) for a in row] for row in np.asarray(layer.alpha)])
    b = np.repeat(np.asarray(layer.b), M)
    vec = lambda X: np.asarray(X).T.ravel()  # channel by channel
    f = lambda x: layer(graph.with_nodes(x)).nodes
    slope = np.asarray(jax.jacobian(f)(graph.nodes)).transpose(1, 0, 3, 2).reshape(m * M, d * M)
    return Verdict(
        close(
            "vec(Ξ) = W vec(X) + b",
            vec(f(graph.nodes)),
            W @ vec(graph.nodes) + b,
            tolerance=1e-12,
            relative=True,
        ),
        close("at X = 0: b", vec(f(jnp.zeros((M, d)))), b),
        close("the Jacobian is W", slope, W, tolerance=1e-12, relative=True),
    )

"""The Fourier basis: eigenvectors, the fixed rule, the cycle against the DFT, heat."""

import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
import scipy.linalg

from thetax.data import Graph, graph_fourier, laplacian
from thetax.data.graphs.graph_fourier import canonical_basis

pytestmark = pytest.mark.usefixtures("x64")


def of(graph: nx.Graph) -> Graph:
    return Graph.from_edges(list(graph.edges), n_nodes=len(graph))


GRAPHS = {
    "karate": nx.karate_club_graph(),
    "cycle": nx.cycle_graph(8),
    "two components": nx.disjoint_union(nx.complete_graph(4), nx.path_graph(3)),
    "Petersen": nx.petersen_graph(),
}


@pytest.mark.parametrize("kind", ["combinatorial", "normalised"])
@pytest.mark.parametrize("name", GRAPHS)
def test_eigenvectors_transform_and_inverse(name, kind):
    graph = of(GRAPHS[name])
    basis = graph_fourier(graph, kind)
    U, lambdas = np.asarray(basis.vectors), np.asarray(basis.eigenvalues)
    n = graph.n_nodes
    np.testing.assert_allclose(U.T @ U, np.eye(n), atol=1e-10)
    np.testing.assert_allclose(U @ np.diag(lambdas) @ U.T, laplacian(graph, kind), atol=1e-10)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(n, 2)))
    np.testing.assert_allclose(basis.inverse(basis.transform(x)), x, atol=1e-10)
    np.testing.assert_allclose(
        basis.filter(lambda z: jnp.exp(-0.7 * z), x),
        scipy.linalg.expm(-0.7 * np.asarray(laplacian(graph, kind))) @ x,
        atol=1e-10,
    )


def test_the_basis_does_not_depend_on_the_solver():
    """Signs and rotations of the eigenspaces, which a solver could return, give the same basis."""
    rng = np.random.default_rng(0)
    L = np.asarray(laplacian(of(GRAPHS["Petersen"])))  # eigenvalues 0, 2 (5 times), 5 (4 times)
    lambdas, U = np.linalg.eigh(L)
    turned = U.copy()
    turned[:, 0] *= -1
    for start, stop in ((1, 6), (6, 10)):
        turned[:, start:stop] @= np.linalg.qr(rng.normal(size=(stop - start,) * 2))[0]
    assert not np.allclose(turned, U, atol=1e-3)
    expected = canonical_basis(lambdas, U)
    np.testing.assert_allclose(canonical_basis(lambdas, turned), expected, atol=1e-12)
    # The first of each eigenspace: the projection of the unit vector of node 0.
    projected = U[:, 1:6] @ U[0, 1:6]
    np.testing.assert_allclose(expected[:, 1], projected / np.linalg.norm(projected), atol=1e-12)


def test_on_a_path_the_frequency_counts_sign_changes():
    U = np.asarray(graph_fourier(of(nx.path_graph(9))).vectors)
    assert [(np.diff(np.sign(u[np.abs(u) > 1e-9])) != 0).sum() for u in U.T] == list(range(9))


def test_convolution_depends_on_the_basis_as_documented():
    graph = of(GRAPHS["cycle"])
    basis = graph_fourier(graph)
    x, y = jnp.asarray(np.random.default_rng(1).normal(size=(2, 8)))
    U = np.asarray(basis.vectors)
    np.testing.assert_allclose(basis.convolve(x, y), U @ ((U.T @ x) * (U.T @ y)), atol=1e-12)
    np.testing.assert_allclose(basis.convolve(x, y), basis.convolve(y, x), atol=1e-12)
    flipped = U * np.where(np.arange(8) == 3, -1, 1)
    assert np.abs(basis.convolve(x, y) - flipped @ ((flipped.T @ x) * (flipped.T @ y))).max() > 0.01


@pytest.mark.usefixtures("unchecked")
def test_bad_input():
    arrow = Graph.from_edges([(0, 1)], undirected=False)
    with pytest.raises(ValueError, match="expected an undirected graph"):
        graph_fourier(arrow)
    with pytest.raises(ValueError, match="not symmetric"):
        graph_fourier(of(GRAPHS["cycle"]), "random walk")
    with pytest.raises(ValueError, match="expected a row for each of the 8 nodes"):
        graph_fourier(of(GRAPHS["cycle"])).transform(jnp.ones(3))

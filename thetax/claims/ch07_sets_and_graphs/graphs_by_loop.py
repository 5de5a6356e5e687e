"""Graph layers as loops over matrices in NumPy, and checks over all orders of the nodes."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...core import iterate, predict
from ...data import Graph, permute_nodes, stack_graphs
from ...layers import Linear
from ...train import descend
from .permutations import all_orders

HOUSE = [(0, 1), (1, 2), (2, 3), (0, 3), (3, 4), (0, 2)]  # five nodes, no two alike
ORDERS = all_orders(5)


def house(rng: Any, d: int = 3, c: int = 2) -> Graph:
    """A graph of five nodes with random features of nodes and edges."""
    return Graph.from_edges(HOUSE, rng.normal(size=(5, d)), edges=rng.normal(size=(len(HOUSE), c)))


def in_all_orders(graph: Graph) -> Graph:
    r"""The graph as $(PX, PAP^\top)$ for all 120 permutations $P$, stacked."""
    return stack_graphs([permute_nodes(graph, order) for order in ORDERS])


def result(f: Callable[[Graph], Any], graph: Graph) -> Any:
    """f(X, A) as an array: of a layer, its node features."""
    y = f(graph)
    return y.nodes if isinstance(y, Graph) else y


def invariance_error(f: Callable[[Graph], Any], graph: Graph) -> float:
    r"""The largest $|f(PX, PAP^\top) - f(X, A)|$, relative to the largest $|f(X, A)|$."""
    y = np.asarray(result(f, graph))
    values = jax.jit(lambda xs: predict(lambda x: result(f, x), xs))(in_all_orders(graph))
    return float(np.abs(np.asarray(values) - y).max() / np.abs(y).max())


def equivariance_error(f: Callable[[Graph], Any], graph: Graph) -> float:
    r"""The largest $|f(PX, PAP^\top) - P f(X, A)|$, relative to the largest $|f(X, A)|$."""
    y = np.asarray(result(f, graph))
    values = jax.jit(lambda xs: predict(lambda x: result(f, x), xs))(in_all_orders(graph))
    return float(np.abs(np.asarray(values) - y[ORDERS]).max() / np.abs(y).max())


def coupling(A: np.ndarray) -> np.ndarray:
    r"""$\bar a_{ij} = (A + I)_{ij} / \sqrt{d_i d_j}$ with $d_i = 1 + \sum_n a_{ni}$, by loops."""
    M = len(A)
    d = [1 + sum(A[n, i] for n in range(M)) for i in range(M)]
    return np.array(
        [[(A[i, j] + (i == j)) / np.sqrt(d[i] * d[j]) for j in range(M)] for i in range(M)]
    )


def affine(layer: Linear, X: np.ndarray) -> np.ndarray:
    """An affine layer on every row."""
    return X @ np.asarray(layer.W).T + (0.0 if layer.b is None else np.asarray(layer.b))


def mlp(net: Any, x: np.ndarray) -> np.ndarray:
    """A chain of affine layers with ReLU between them."""
    for layer in net.layers:
        x = affine(layer, x) if isinstance(layer, Linear) else np.maximum(x, 0)
    return x


def train(objective: Any, model: Any, optimiser: Any, *, steps: int, key: Any) -> Any:
    """The model after `steps` steps on all data at once."""
    of_model = lambda model, batch, *, key=None: objective(model, key=key)
    fitted = jax.jit(lambda model: iterate(descend(of_model, optimiser), model, steps, key=key)[0])
    return fitted(model).model


def accuracy(logits: Any, labels: Any) -> float:
    """The fraction of rows whose largest entry is at the label."""
    return float(jnp.mean(jnp.argmax(logits, axis=-1) == jnp.asarray(labels)))

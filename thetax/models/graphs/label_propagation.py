r"""Label propagation: classes of nodes from the edges alone, a baseline without parameters (§7.4).

Zhou et al. (NeurIPS 2003): with the one-hot labels $Y$ of the known nodes (rows of 0 for the
others) and $S = D^{-1/2} A D^{-1/2}$,

$$F \leftarrow \alpha S F + (1 - \alpha) Y,$$

which converges to $(1 - \alpha) (I - \alpha S)^{-1} Y$ for $0 \le \alpha < 1$.
"""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from ...check import expect_count
from ...data.graphs import Graph
from ...data.graphs.laplacian import degrees, power_of_degrees
from ...layers.graphs import propagate


def label_propagation(
    graph: Graph,
    labels: Any,
    *,
    known: Any,
    n_classes: int,
    alpha: float = 0.9,
    steps: int = 50,
) -> Float[Array, "v {n_classes}"]:
    r"""Scores of the classes for every node after `steps` steps; `argmax` along the last axis
    predicts.

    `labels` are integers, one for each node, of which only those where the mask `known` is True are
    used. A node that no known one reaches within `steps` hops has only scores of 0.

    >>> path = Graph.from_edges([(0, 1), (1, 2), (2, 3)])
    >>> scores = label_propagation(
    ...     path, [0, -1, -1, 1], known=[True, False, False, True], n_classes=2
    ... )
    >>> scores.argmax(axis=1).tolist()
    [0, 0, 1, 1]
    """
    expect_count("label_propagation", n_classes=n_classes, steps=steps)
    labels, known = np.asarray(labels), np.asarray(known)
    if labels.shape != (graph.n_nodes,) or known.shape != (graph.n_nodes,):
        raise ValueError(
            f"label_propagation: expected a label and an entry of known for each of the "
            f"{graph.n_nodes} nodes, got shapes {labels.shape} and {known.shape}."
        )
    if known.dtype != bool or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"label_propagation: labels are integers and known is a mask of booleans; got "
            f"{labels.dtype} and {known.dtype}."
        )
    wrong = known & ((labels < 0) | (labels >= n_classes))
    if wrong.any():
        at = int(wrong.argmax())
        raise ValueError(
            f"label_propagation: expected labels from 0 to {n_classes - 1}, but that of node {at} "
            f"is {labels[at]}. Use more classes, or mark the node as unknown."
        )
    if not 0 <= alpha < 1:
        raise ValueError(f"label_propagation: alpha must be at least 0 and below 1; got {alpha}.")
    Y = jax.nn.one_hot(np.where(known, labels, -1), n_classes)
    return _propagated(graph, Y, alpha, steps)


@jax.jit
def _propagated(graph: Graph, Y: Any, alpha: Any, steps: Any) -> Any:
    scale = power_of_degrees(degrees(graph), -0.5).astype(Y.dtype)[:, None]
    smoothed = lambda F: alpha * scale * propagate(graph, scale * F) + (1 - alpha) * Y
    return jax.lax.fori_loop(0, steps, lambda _, F: smoothed(F), Y)

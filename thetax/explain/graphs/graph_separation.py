r"""Which graphs a model cannot tell apart, and whether the Weisfeiler-Leman test can (§7.4).

A message-passing network gives two graphs the same output if 1-WL does not separate them. The
pairs that 1-WL separates and the network does not show what its aggregation loses (means and maxima
lose counts); pairs that the network separates and 1-WL does not are possible only if it sees more,
such as positional encodings, edge weights, or random features.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float

from ...core import apply, predict
from ...data.graphs import Graph, batch_graphs, distinguishable
from ...data.graphs.colour_refinement import WLTest

RELATIVE_TOLERANCE = 1e-5  # of the largest output


@dataclass(frozen=True)
class GraphSeparation:
    """Distances of the outputs for all pairs of graphs, and which pairs a Weisfeiler-Leman test
    separates.
    """

    distance: Float[np.ndarray, "g g"]  # relative to the largest output
    by_wl: Bool[np.ndarray, "g g"]
    test: WLTest
    names: tuple[str, ...]

    @property
    def by_model(self) -> Bool[np.ndarray, "g g"]:
        """Which pairs the model separates: their outputs differ by more than rounding."""
        return self.distance > RELATIVE_TOLERANCE

    @property
    def missed(self) -> list[tuple[int, int]]:
        """Pairs that the test separates and the model does not."""
        return _pairs(self.by_wl & ~self.by_model)

    @property
    def beyond_wl(self) -> list[tuple[int, int]]:
        """Pairs that the model separates and the test does not."""
        return _pairs(self.by_model & ~self.by_wl)

    @property
    def same(self) -> list[tuple[int, int]]:
        """Pairs that neither separates."""
        return _pairs(~self.by_model & ~self.by_wl)


def graph_separation(
    model: Any,
    graphs: Graph | Sequence[Graph],
    *,
    test: WLTest = "1-WL",
    edge_features: bool = False,
    names: Sequence[str] = (),
) -> GraphSeparation:
    """Which pairs of graphs the model, which has a readout, and a Weisfeiler-Leman test tell apart.

    The test starts with the features of the nodes as colours, and with `edge_features` uses those
    of the edges. Outputs closer than 1e-5 of the largest count as equal. The graphs are a sequence,
    or stacked by `stack_graphs`.

    >>> from thetax.layers import Readout
    >>> path, star = (
    ...     Graph.from_edges([(0, 1), (1, 2), (2, 3)]),
    ...     Graph.from_edges([(0, i) for i in (1, 2, 3)]),
    ... )
    >>> graph_separation(Readout("sum"), [path, star]).missed
    [(0, 1)]
    """
    stacked = isinstance(graphs, Graph)
    if stacked and graphs.senders.ndim != 2:
        raise ValueError(
            "graph_separation: expected several graphs, as a sequence or from stack_graphs; got "
            "one."
        )
    xs = graphs if stacked else batch_graphs(graphs)
    if stacked:
        graphs = [jax.tree.map(lambda a, i=i: a[i], xs) for i in range(len(xs.senders))]
    if len(graphs) < 2:
        raise ValueError(f"graph_separation: expected at least two graphs, got {len(graphs)}.")
    if names and len(names) != len(graphs):
        raise ValueError(
            f"graph_separation: {len(names)} names for {len(graphs)} graphs; give one for each."
        )
    outputs = np.asarray(predict(model, xs) if stacked else apply(model, xs), np.float64)
    if len(outputs) != len(graphs) or outputs.ndim != 2:
        raise ValueError(
            f"graph_separation: expected a row of outputs for each of the {len(graphs)} graphs, "
            f"but the output has shape {outputs.shape}. Give a model with a readout."
        )
    distance = np.abs(outputs[:, None] - outputs[None]).max(axis=2)
    by_wl = distinguishable(list(graphs), test, node_features=True, edge_features=edge_features)
    labels = tuple(names) or tuple(f"graph {i}" for i in range(len(graphs)))
    return GraphSeparation(distance / max(np.abs(outputs).max(), 1e-300), by_wl, test, labels)


def _pairs(mask: np.ndarray) -> list[tuple[int, int]]:
    return [(int(i), int(j)) for i, j in zip(*np.nonzero(np.triu(mask, 1)))]

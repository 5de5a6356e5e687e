"""A network as a graph: a node for each unit, an edge for each weight between two layers (§2 of the
fundamentals).
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ...core import Model
from ...layers import Affine, BatchNorm, Chain, Dropout, LayerNorm, Pointwise
from ...models import MLP
from ...models.constructive.symmetry import Map, layers_of
from ..modules import module_names

UNITWISE_LAYERS = (
    Pointwise,
    Dropout,
    Affine,
    LayerNorm,
    BatchNorm,
)  # they keep the number of units


@dataclass(frozen=True)
class NetworkGraph:
    r"""$\sum_\ell d_\ell$ nodes, $\sum_\ell d_\ell d_{\ell+1}$ edges, and the width and name of
    each layer, input first.
    """

    nodes: int
    edges: int
    widths: tuple[int, ...]
    names: tuple[str, ...]


def network_graph(model: Model) -> NetworkGraph:
    r"""Graph of a feed-forward network: the affine map $\ell$ connects $d_\ell$ nodes to
    $d_{\ell+1}$ nodes.

    >>> import jax.random as jr
    >>> graph = network_graph(MLP.init(3, 4, 2, 1, key=jr.key(0)))
    >>> graph.nodes, graph.edges, graph.widths, graph.names
    (10, 22, (3, 4, 2, 1), ('input', 'relu', 'relu', 'output'))
    """
    parts = layers_of(model) if isinstance(model, MLP | Chain) else [model]
    maps = [part for part in parts if isinstance(part, Map)]
    unsupported = next(
        (type(part).__name__ for part in parts if not isinstance(part, (*UNITWISE_LAYERS, Map))),
        None,
    )
    if not maps or unsupported:
        raise ValueError(
            "network_graph: expected a chain of affine maps and activations; got "
            f"{unsupported or 'no affine map'}. Pass the inside of a residual block by itself."
        )
    widths = (maps[0].W.shape[1], *(len(part.W) for part in maps))
    edges = sum(n * m for n, m in pairwise(widths))
    return NetworkGraph(sum(widths), edges, widths, ("input", *_hidden_names(parts), "output"))


def _hidden_names(parts: list[Any]) -> list[str]:
    """The activation of each hidden layer, by name."""
    names: list[str] = []
    for part in parts:
        if isinstance(part, Map):
            names.append("linear")
        elif isinstance(part, Pointwise):
            # An activation names the layer before it.
            activation = next(iter(module_names(part).values())).rpartition(" ")[0]
            names[-1:] = [activation] if names else []
    return names[:-1]

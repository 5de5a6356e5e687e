"""A network as a graph: a node for each unit, an edge for each weight between two layers (§2 of the
fundamentals).
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ...core import Model
from ...layers import Affine, BatchNorm, Chain, Dropout, LayerNorm, Pointwise
from ...models import MLP
from ...models.constructive.symmetry import Map, parts_of
from ..modules import labels

ALONE = (
    Pointwise,
    Dropout,
    Affine,
    LayerNorm,
    BatchNorm,
)  # what acts on the units of a layer and adds none


@dataclass(frozen=True)
class Wiring:
    r"""$\sum_\ell d_\ell$ nodes and $\sum_\ell d_\ell d_{\ell+1}$ edges; the widths, input first;
    what each layer is.
    """

    nodes: int
    edges: int
    widths: tuple[int, ...]
    names: tuple[str, ...]


def wiring(model: Model) -> Wiring:
    r"""The layers of a chain of affine maps, from its weights: map $\ell$ joins $d_\ell$ nodes to
    $d_{\ell+1}$.

    >>> import jax.random as jr
    >>> found = wiring(MLP.init(3, 4, 2, 1, key=jr.key(0)))
    >>> found.nodes, found.edges, found.widths, found.names
    (10, 22, (3, 4, 2, 1), ('input', 'relu', 'relu', 'output'))
    """
    parts = parts_of(model) if isinstance(model, MLP | Chain) else [model]
    maps = [part for part in parts if isinstance(part, Map)]
    strange = next(
        (type(part).__name__ for part in parts if not isinstance(part, (*ALONE, Map))), None
    )
    if not maps or strange:
        raise ValueError(
            "wiring: expected affine maps one after another, with activations between; got "
            f"{strange or 'no map'}. What is inside a residual block is a chain of its own."
        )
    widths = (maps[0].W.shape[1], *(len(part.W) for part in maps))
    edges = sum(n * m for n, m in pairwise(widths))
    return Wiring(sum(widths), edges, widths, ("input", *_between(parts), "output"))


def _between(parts: list[Any]) -> list[str]:
    """The activation of each hidden layer, by name."""
    found: list[str] = []
    for part in parts:
        if isinstance(part, Map):
            found.append("linear")
        elif isinstance(part, Pointwise):
            found[-1:] = [next(iter(labels(part).values())).rpartition(" ")[0]] if found else []
    return found[:-1]

r"""Convex cells with an affine function on each (§2.6): the state that is propagated through a
piecewise linear network, and the interface by which a cell geometry is split.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int, Int8, Shaped


class Split(NamedTuple):
    """Result of splitting cells: the new geometry, the index of the parent cell of each new cell,
    and the index of the linear piece on which each unit is.
    """

    geometry: "CellGeometry"
    parent: Int[np.ndarray, " q"]
    piece: Int8[np.ndarray, "q m"]


@runtime_checkable
class CellGeometry(Protocol):
    """Convex cells in $n$ coordinates that can be split along hyperplanes."""

    def split(self, F: Shaped[np.ndarray, "p n1 m"], kinks: tuple[float, ...]) -> Split:
        """Splits each cell along the hyperplanes where a unit equals a kink.

        `F` holds the coefficients of $m$ affine units on each cell; piece $i$ of a unit lies
        between kinks $i - 1$ and $i$.
        """
        ...


@dataclass(frozen=True)
class AffineCells:
    r"""Cells, and the affine function of the network so far on each of them.

    On cell $i$ it is $t \mapsto \sum_j t_j F_{ij} + F_{in}$. The linear pieces on which the units
    are form the activation pattern of the cell.
    """

    geometry: CellGeometry
    F: Shaped[np.ndarray, "p n1 *s"]  # float64, or Fractions
    patterns: Int8[np.ndarray, "p u"]
    origin: Int[np.ndarray, " p"]  # index of the initial cell that contains each cell


def start_propagation(geometry: CellGeometry, F: Shaped[np.ndarray, "p n1 *s"]) -> AffineCells:
    """The state before the first layer: the identity function on the cells, with coefficients
    `F`.
    """
    return AffineCells(geometry, F, np.zeros((len(F), 0), np.int8), np.arange(len(F)))

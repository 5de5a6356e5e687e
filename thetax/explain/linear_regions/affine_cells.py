r"""Convex cells with an affine function on each: what is carried through a network (§2.6), and how
a cell is cut.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int, Int8, Shaped


class Split(NamedTuple):
    """Cells after a cut: what they are now, which of the old ones each lies in, and on which piece
    each unit is.
    """

    cells: "Cells"
    parent: Int[np.ndarray, " q"]
    piece: Int8[np.ndarray, "q m"]


@runtime_checkable
class Cells(Protocol):
    """A geometry of convex cells in $n$ coordinates; `F` has the coefficients of $m$ affine units
    on each cell.
    """

    def split(self, F: Shaped[np.ndarray, "p n1 m"], kinks: tuple[float, ...]) -> Split:
        """Cuts each cell wherever a unit equals a kink; piece $i$ of a unit lies between kinks $i$
        and $i + 1$.
        """
        ...


@dataclass(frozen=True)
class Sheet:
    r"""On cell $i$ the network so far is $t \mapsto \sum_j t_j F_{ij} + F_{in}$; its units' pieces
    are its pattern.
    """

    cells: Cells
    F: Shaped[np.ndarray, "p n1 *s"]  # float64, or Fractions
    patterns: Int8[np.ndarray, "p u"]
    origin: Int[np.ndarray, " p"]  # which of the cells it began with each lies in


def begin(cells: Cells, F: Shaped[np.ndarray, "p n1 *s"]) -> Sheet:
    """The input itself as a function on the cells."""
    return Sheet(cells, F, np.zeros((len(F), 0), np.int8), np.arange(len(F)))

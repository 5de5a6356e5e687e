r"""Lower and upper bounds on the number of linear regions of a ReLU network (§2.6), as exact
integers.

`zaslavsky_bound`     the maximum number of cells of $m$ hyperplanes in $\mathbb{R}^n$: one layer
`region_upper_bound`  no network of these widths has more regions
`montufar_bound`      some network of this depth and width has at least this many
`fold_network`        such a network for one input, which folds the line onto itself
"""

from functools import cache
from math import comb
from numbers import Integral

import jax.numpy as jnp
import numpy as np

from ..layers import Chain, Linear, relu
from ..models import MLP


def zaslavsky_bound(hyperplanes: int, *, inputs: int) -> int:
    r"""Maximum number of cells of $m$ hyperplanes in $\mathbb{R}^n$,
    $R(m, n) = \sum_{i=0}^{\min(n, m)} \binom{m}{i}$ (§2.6; Zaslavsky 1975).

    In general position the number is exact. For a ReLU network of one layer, $m$ is its width and
    $n$ the number of inputs. Departs: the notes write $R(m)$, but it depends on $n$ too.

    >>> [zaslavsky_bound(3, inputs=n) for n in range(4)]
    [1, 4, 7, 8]
    """
    _expect_integers("zaslavsky_bound", hyperplanes=(hyperplanes, 0), inputs=(inputs, 0))
    m, n = hyperplanes, inputs
    return sum(comb(m, i) for i in range(min(m, n) + 1))


def region_upper_bound(*widths: int, inputs: int) -> int:
    r"""Upper bound on the number of linear regions of ReLU networks with $n$ inputs and hidden
    layers of these widths (Serra et al. 2018, Theorem 1).

    It is $\sum_j \prod_l \binom{m_l}{j_l}$ over all
    $0 \le j_l \le \min(n, m_1 - j_1, \dots, m_{l-1} - j_{l-1}, m_l)$: where $j$ units of a layer
    are inactive, its output has at most $m - j$ dimensions. For one layer it is Zaslavsky's number.

    >>> (
    ...     region_upper_bound(3, inputs=2),
    ...     region_upper_bound(64, 64, inputs=2) <= zaslavsky_bound(64, inputs=2) ** 2,
    ... )
    (7, True)
    """
    minima = {f"width {i + 1}": (m, 1) for i, m in enumerate(widths)}
    _expect_integers("region_upper_bound", inputs=(inputs, 0), **minima)

    @cache
    def regions(layer: int, dimension: int) -> int:
        """The bound for the layers from `layer` on, whose input has that dimension."""
        if layer == len(widths):
            return 1
        m = widths[layer]
        return sum(
            comb(m, j) * regions(layer + 1, min(dimension, m - j))
            for j in range(min(dimension, m) + 1)
        )

    return regions(0, inputs)


def montufar_bound(*, inputs: int, width: int, depth: int) -> int:
    r"""Lower bound on the maximum number of linear regions,
    $R(m, n) \lfloor m / n \rfloor^{n (L - 1)}$ (§2.6; Montufar et al. 2014).

    Among the ReLU networks with $n$ inputs and $L$ hidden layers of width $m \ge n$ there is one
    with at least this many regions. Not every network has them: with zero weights there is one.

    >>> montufar_bound(inputs=1, width=4, depth=4), montufar_bound(inputs=2, width=4, depth=2)
    (320, 44)
    """
    _expect_integers("montufar_bound", inputs=(inputs, 1), depth=(depth, 1))
    _expect_integers("montufar_bound", width=(width, inputs))
    n, m, L = inputs, width, depth
    return zaslavsky_bound(m, inputs=n) * (m // n) ** (n * (L - 1))


def fold_network(*, width: int, depth: int) -> MLP:
    r"""A ReLU network of sizes $1, m, \dots, m, 1$ with $L$ hidden layers and at least
    $(m + 1)\, m^{L-1}$ linear pieces (§2.6; after Montufar et al. 2014).

    All layers but the last fold $[0, 1]$ onto itself $m$ times: with $h_0 = (mz)_+$ and
    $h_k = (2mz - 2k)_+$, the zigzag $g = \sum_k (-1)^k h_k$ has slope $\pm m$ and runs between 0
    and 1. The last layer has $m$ kinks there, each of which occurs once in every fold; its last
    unit is reversed, so that no kink is lost at a fold. The weights are integers except for the
    kinks $\frac{k}{m + 1}$.

    >>> fold_network(width=2, depth=3)(jnp.array([0.25])).shape
    (1,)
    """
    _expect_integers("fold_network", width=(width, 1), depth=(depth, 1))
    m, L = width, depth
    k = np.arange(m)
    slopes = np.where(k == 0, m, 2 * m)
    shifts = -2.0 * k
    signs = (-1.0) ** k
    reversal = np.where(k == m - 1, -1.0, 1.0)
    layers, read = [], np.ones((1, 1))  # read: row that maps the layer before to g, or the input
    for is_last in [False] * (L - 1) + [True]:
        W, b = (reversal, -reversal * (k + 1) / (m + 1)) if is_last else (slopes, shifts)
        layers += [Linear(jnp.asarray(W[:, None] * read, float), jnp.asarray(b, float)), relu]
        read = signs[None]
    return MLP(Chain(*layers, Linear(jnp.asarray(np.ones((1, m))), jnp.zeros(1))))


def _expect_integers(name: str, **values: tuple[int, int]) -> None:
    """Raises `ValueError` unless each value, given with its minimum, is an integer >= that."""
    for parameter, (value, minimum) in values.items():
        if not isinstance(value, Integral) or value < minimum:
            raise ValueError(f"{name}: {parameter} must be an integer >= {minimum}; got {value!r}.")

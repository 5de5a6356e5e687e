r"""How many linear regions a ReLU network can have (§2.6): exact integers from below and above.

`zaslavsky_bound`     the most cells that $m$ hyperplanes make of $\mathbb{R}^n$: one layer
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
    r"""$R(m, n) = \sum_{i=0}^{\min(n, m)} \binom{m}{i}$ for $m$ hyperplanes and $n$ inputs (§2.6;
    Zaslavsky 1975).

    $m$ hyperplanes cut $\mathbb{R}^n$ into at most so many cells, and into exactly so many in
    general position. Departs: the notes write $R(m)$, but it depends on $n$ too.

    >>> [zaslavsky_bound(3, inputs=n) for n in range(4)]
    [1, 4, 7, 8]
    """
    _whole("zaslavsky", hyperplanes=(hyperplanes, 0), inputs=(inputs, 0))
    m, n = hyperplanes, inputs
    return sum(comb(m, i) for i in range(min(m, n) + 1))


def region_upper_bound(*widths: int, inputs: int) -> int:
    r"""No ReLU network with $n$ inputs and hidden layers of these widths has more cells (Serra et
    al. 2018, Theorem 1).

    $\sum_j \prod_l \binom{m_l}{j_l}$ over all
    $0 \le j_l \le \min(n, m_1 - j_1, \dots, m_{l-1} - j_{l-1}, m_l)$: where $j$ units of a layer
    are off, what leaves it has at most $m - j$ dimensions. One layer gives Zaslavsky's number.

    >>> (
    ...     region_upper_bound(3, inputs=2),
    ...     region_upper_bound(64, 64, inputs=2) <= zaslavsky_bound(64, inputs=2) ** 2,
    ... )
    (7, True)
    """
    _whole(
        "region_bound",
        inputs=(inputs, 0),
        **{f"width {i + 1}": (m, 1) for i, m in enumerate(widths)},
    )

    @cache
    def below(layer: int, room: int) -> int:
        if layer == len(widths):
            return 1
        m = widths[layer]
        return sum(comb(m, j) * below(layer + 1, min(room, m - j)) for j in range(min(room, m) + 1))

    return below(0, inputs)


def montufar_bound(*, inputs: int, width: int, depth: int) -> int:
    r"""$R(m, n) \lfloor m / n \rfloor^{n (L - 1)}$, a lower bound on the maximum (§2.6; Montufar et
    al. 2014).

    Among the ReLU networks with $n$ inputs and $L$ hidden layers of width $m \ge n$ there is one
    with at least so many linear regions; with zero weights there is one region.

    >>> montufar_bound(inputs=1, width=4, depth=4), montufar_bound(inputs=2, width=4, depth=2)
    (320, 44)
    """
    _whole("montufar", inputs=(inputs, 1), depth=(depth, 1))
    _whole("montufar", width=(width, inputs))
    n, m, L = inputs, width, depth
    return zaslavsky_bound(m, inputs=n) * (m // n) ** (n * (L - 1))


def fold_network(*, width: int, depth: int) -> MLP:
    r"""A ReLU network $1, m, \dots, m, 1$ with $L$ hidden layers and at least $(m + 1)\, m^{L-1}$
    linear pieces (§2.6).

    All layers but the last fold $[0, 1]$ onto itself $m$ times: with $h_0 = (mz)_+$ and
    $h_k = (2mz - 2k)_+$, the zig-zag $g = \sum_k (-1)^k h_k$ has slope $\pm m$ and runs between 0
    and 1. The last layer has $m$ kinks there, each of which is seen once in every fold; its last
    unit is turned round, so that no kink is lost at a fold. The weights are whole numbers but for
    the kinks $\frac{k}{m + 1}$ (after Montufar et al. 2014).

    >>> fold_network(width=2, depth=3)(jnp.array([0.25])).shape
    (1,)
    """
    _whole("fold_network", width=(width, 1), depth=(depth, 1))
    m, L = width, depth
    k = np.arange(m)
    slopes = np.where(k == 0, m, 2 * m)
    shifts = -2.0 * k
    signs = (-1.0) ** k
    turned = np.where(k == m - 1, -1.0, 1.0)
    layers, read = [], np.ones((1, 1))  # how the layer before is read: g, or the input itself
    for last in [False] * (L - 1) + [True]:
        W, b = (turned, -turned * (k + 1) / (m + 1)) if last else (slopes, shifts)
        layers += [Linear(jnp.asarray(W[:, None] * read, float), jnp.asarray(b, float)), relu]
        read = signs[None]
    return MLP(Chain(*layers, Linear(jnp.asarray(np.ones((1, m))), jnp.zeros(1))))


def _whole(name: str, **numbers: tuple[int, int]) -> None:
    for word, (number, least) in numbers.items():
        if not isinstance(number, Integral) or number < least:
            raise ValueError(
                f"{name}: {word} must be a whole number, at least {least}; got {number!r}."
            )

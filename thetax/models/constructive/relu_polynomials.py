r"""Squares, products and maxima as deep narrow ReLU networks with explicit weights (§2 of the
fundamentals).

- `square_network`: $x^2$ on $[0, 1]$, to within $4^{-(m+1)}$ by $m$ layers of three units
- `product_network`: $x_1 \cdots x_k$, from squares by
  $x_1 x_2 = \frac14 [(x_1 + x_2)^2 - (x_1 - x_2)^2]$
- `max_affine_network`: $\max_j (a_j^\top x + b_j)$ exactly, one unit wider than its input

Each returns an `MLP`. Each additional layer reduces the error of the first two by a factor of four;
a network with one hidden layer needs twice the units for that.
"""

from functools import reduce
from math import isfinite

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Num

from ...check import expect_count
from ...layers import Chain, Linear, relu
from ..mlp import MLP

Maps = list[tuple[np.ndarray, np.ndarray]]  # (W, b) of each affine map, with ReLU between them


def square_network(depth: int) -> MLP:
    r"""ReLU network for $x^2$ on $[0, 1]$ with $m$ = `depth` hidden layers of three units:
    $x \mapsto x - \sum_{s=1}^m 4^{-s} g^{\circ s}(x)$ with $g(x) = \min(2x, 2 - 2x)$ (Yarotsky
    2017).

    It interpolates $x^2$ linearly between the multiples of $2^{-m}$, so on $[0, 1]$ it exceeds
    $x^2$ by at most $4^{-(m+1)}$, in the middle of each piece. Two units of a layer compute the
    fold $g(z) = 2(z)_+ - 4(z - \frac12)_+$, and the third carries the partial sum. Outside $[0, 1]$
    it is no approximation.

    >>> net = square_network(3)
    >>> [net(jnp.array([x])).item() for x in (0.5, 0.0625, 1.0)]
    [0.25, 0.0078125, 1.0]
    """
    expect_count("square_network", depth=depth)
    return _network(_square(depth))


def _square(depth: int) -> Maps:
    fold = np.array([2.0, -4.0, 0.0])
    maps = [(np.ones((3, 1)), np.array([0.0, -0.5, 0.0]))]
    for s in range(1, depth + 1):
        carried = np.array([0.0, 0.0, 1.0]) - fold / 4.0**s
        last = s == depth
        W, b = ([carried], [0.0]) if last else ([fold, fold, carried], [0.0, -0.5, 0.0])
        maps.append((np.array(W), np.array(b)))
    return maps


def product_network(factors: int = 2, *, depth: int, bound: float = 1.0) -> MLP:
    r"""ReLU network for the product $x_1 \cdots x_k$ of `factors` inputs on $[-M, M]^k$ with $M$ =
    `bound`, as a binary tree of pairwise products (Yarotsky 2017).

    A product of two numbers in $[-1, 1]$ is
    $\big(\frac{|x_1 + x_2|}{2}\big)^2 - \big(\frac{|x_1 - x_2|}{2}\big)^2$, each square by
    `square_network(depth)`; its error is at most $4^{-(m+1)}$ and it stays in $[-1, 1]$. The tree
    has $t = \lceil \log_2 k \rceil$ levels of $m + 1$ layers, is padded with factors 1, and has an
    error of at most $(2^t - 1)\, M^k\, 4^{-(m+1)}$.

    >>> net = product_network(2, depth=6, bound=3.0)
    >>> abs(net(jnp.array([2.0, -3.0])).item() + 6) <= 9 * 4**-7
    True
    """
    expect_count("product_network", depth=depth, factors=factors)
    if factors < 2:
        raise ValueError(f"product_network: factors must be at least 2; got {factors}.")
    if not (isfinite(bound) and bound > 0):
        raise ValueError(
            "product_network: bound, the largest absolute value of a factor, must be positive and "
            f"finite; got {bound}."
        )
    levels = (factors - 1).bit_length()
    spare = 2**levels - factors
    scaled = np.concatenate([np.eye(factors) / bound, np.zeros((spare, factors))])
    tree = [_beside(_gate(depth), 2 ** (levels - 1 - level)) for level in range(levels)]
    ones = np.concatenate([np.zeros(factors), np.ones(spare)])
    return _network(reduce(_then, tree, [(scaled, ones)]), scale=float(bound) ** factors)


def _gate(depth: int) -> Maps:
    """The product of two numbers in [-1, 1]."""
    halves = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]]) / 2
    sizes = [(halves, np.zeros(4)), (np.kron(np.eye(2), np.ones((1, 2))), np.zeros(2))]
    return reduce(
        _then, [_beside(_square(depth), 2), [(np.array([[1.0, -1.0]]), np.zeros(1))]], sizes
    )


def _beside(maps: Maps, copies: int) -> Maps:
    return [(np.kron(np.eye(copies), W), np.tile(b, copies)) for W, b in maps]


def _then(first: Maps, second: Maps) -> Maps:
    """Composes two networks: the last map of the first and the first of the second are merged."""
    (W, b), (V, c) = first[-1], second[0]
    return [*first[:-1], (V @ W, V @ b + c), *second[1:]]


def max_affine_network(
    A: Num[Array, "n d"] | Num[np.ndarray, "n d"],
    b: Num[Array, " n"] | Num[np.ndarray, " n"],
    *,
    low: float = 0.0,
) -> MLP:
    r"""ReLU network for the max-affine function $\max_j \ell_j(x)$, $\ell_j(x) = a_j^\top x + b_j$;
    exact wherever every input is at least `low` (Hanin 2019).

    $d$ units carry $x$ and one the difference $u_j = m_j - \ell_j$ of the running maximum $m_j$ and
    the next form, $u_j = (u_{j-1} + \ell_{j-1} - \ell_j)_+$ from $u_1 = 0$. So $n - 1$ hidden
    layers of width $d + 1$ represent every convex piecewise linear function, and approximate every
    convex function; width $d$ does not suffice.

    >>> net = max_affine_network(np.array([[1.0], [-1.0]]), np.array([0.0, 1.0]))
    >>> [net(jnp.array([x])).item() for x in (0.0, 0.25, 1.0)]
    [1.0, 0.75, 1.0]
    """
    forms = np.asarray(A, np.float64)
    offsets = np.asarray(b, np.float64)
    if forms.ndim != 2 or not forms.size or offsets.shape != forms.shape[:1]:
        raise ValueError(
            "max_affine_network: expected A of shape (n, d) and b of shape (n,); "
            f"got {forms.shape} and {offsets.shape}."
        )
    if not (np.isfinite(forms).all() and np.isfinite(offsets).all() and isfinite(low)):
        raise ValueError(
            "max_affine_network: A, b and low must be finite; they hold NaN or infinity."
        )
    d = forms.shape[1]
    offsets = offsets + low * forms.sum(axis=1)  # in terms of x − low, which is never negative
    differences = zip(-np.diff(forms, axis=0), -np.diff(offsets))
    first = (np.eye(d + 1, d), np.append(np.full(d, -low), 0.0))  # u_1 = 0
    steps = [
        (np.concatenate([np.eye(d, d + 1), np.append(a, 1.0)[None]]), np.append(np.zeros(d), c))
        for a, c in differences
    ]
    output = np.append(forms[-1], 1.0)[None], offsets[-1:]
    return _network(_then([first], [*steps, output]))


def _network(maps: Maps, *, scale: float = 1.0) -> MLP:
    """The affine maps with ReLU between them; the output is multiplied by `scale`."""
    array = lambda a: jnp.asarray(a, jnp.zeros(()).dtype)
    *hidden, (W, b) = [(array(W), array(b)) for W, b in maps]
    layers = [layer for W, b in hidden for layer in (Linear(W, b), relu)]
    return MLP(Chain(*layers, Linear(scale * W, scale * b)))

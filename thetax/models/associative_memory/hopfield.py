r"""The Hopfield network (§1.4): an energy whose local minima are the stored patterns.

$$H(x) = -\tfrac12 \sum_{i,j} w_{ij} x_i x_j + \sum_i b_i x_i, \quad x \in \{-1, +1\}^d, \quad
  H_i(x) = \sum_j w_{ij} x_j - b_i$$

With $w_{ij} = w_{ji}$ and $w_{ii} = 0$, $H(x_i = +1) - H(x_i = -1) = -2 H_i$: the update
$x_i \leftarrow \mathrm{spin}(H_i)$ never raises the energy, so asynchronous recall converges to a
local minimum.

- `hebb(patterns)`: Hebb's rule, $W = \frac1d \sum_t (x_t x_t^\top - I)$, a `Hopfield`; the update
  of a site costs $O(d)$
- `Hebbian(patterns)`: the same couplings without forming the matrix; caches the $n$ overlaps
  $x_t^\top x$, and the update of a site costs $O(n)$
- `pseudo_inverse(patterns)`: $W$ is the projection onto the span of the patterns, without its
  diagonal; the update of a site costs $O(d)$
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from ...core import Scalar, as_floats, expect_shape
from .memory import Memory, OverlapMemory, Patterns, State, as_patterns, as_signs


def _as_floats(x: Any) -> Any:
    return None if x is None else as_floats("Hopfield", x)


class Hopfield(Memory):
    r"""Hopfield network with couplings $W$ and thresholds $b$ (§1.4; Hopfield 1982).

    Departs: the notes sum thresholds and field up to $n$; both sums run over the $d$ sites.

    >>> net = Hopfield(jnp.array([[0.0, 1.0], [1.0, 0.0]]))
    >>> net.energy(jnp.array([1.0, 1.0])).item(), net(jnp.array([1.0, -1.0])).tolist()
    (-1.0, [-1.0, -1.0])
    >>> Hopfield(jnp.eye(2))
    Traceback (most recent call last):
    ValueError: Hopfield: W must have a zero diagonal, but w_00 is 1. A site does not act on ...
    """

    W: Float[Array, "d d"] = eqx.field(converter=_as_floats)
    b: Float[Array, " d"] | None = eqx.field(converter=_as_floats, default=None)

    def __check_init__(self):
        W, b = self.W, self.b
        if (
            W.ndim != 2
            or W.shape[0] != W.shape[1]
            or 0 in W.shape
            or (b is not None and b.shape != W.shape[:1])
        ):
            raise ValueError(
                f"Hopfield: W must be (d, d) and b (d,); got W {W.shape} and b "
                f"{None if b is None else b.shape}."
            )
        if not isinstance(W, Tracer):
            _check_couplings(np.asarray(W))

    @property
    def sites(self) -> int:
        return len(self.W)

    def energy(self, x: Float[Array, " d"]) -> Scalar:
        expect_shape("Hopfield", x, (self.sites,))
        pairs = -jnp.vdot(x, self.W @ x) / 2
        return pairs if self.b is None else pairs + jnp.vdot(self.b, x)

    def field(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        expect_shape("Hopfield", x, (self.sites,))
        return self.W @ x if self.b is None else self.W @ x - self.b

    def init_cache(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """The state itself: the field is recomputed from a row of $W$, so that rounding errors do
        not accumulate.
        """
        return x

    def field_at(self, cache: Float[Array, " d"], i: Int[Array, ""], x_i: Scalar) -> Scalar:
        return self.W[i] @ cache if self.b is None else self.W[i] @ cache - self.b[i]

    def update_cache(
        self, cache: Float[Array, " d"], i: Int[Array, ""], change: Scalar
    ) -> Float[Array, " d"]:
        return cache.at[i].add(change)

    def learn(self, x: State) -> "Hopfield":
        r"""Stores one more pattern by Hebb's rule: $W + \frac1d (x x^\top - I)$."""
        x = as_signs("learn", x)
        expect_shape("learn", x, (self.sites,))
        return Hopfield(
            self.W + (jnp.outer(x, x) - jnp.eye(self.sites, dtype=x.dtype)) / self.sites, self.b
        )


def _check_couplings(W: np.ndarray) -> None:
    if not np.isfinite(W).all():
        raise ValueError("Hopfield: W must be finite; it holds NaN or infinity.")
    if (own := np.flatnonzero(np.diagonal(W))).size:
        i = own[0]
        raise ValueError(
            f"Hopfield: W must have a zero diagonal, but w_{i}{i} is {W[i, i]:g}. A site does not "
            "act on itself; subtract jnp.diag(jnp.diag(W))."
        )
    gap = np.abs(W - W.T)
    if gap.max() > np.sqrt(np.finfo(W.dtype).eps) * np.abs(W).max():
        i, j = np.unravel_index(gap.argmax(), W.shape)
        raise ValueError(
            f"Hopfield: W must be symmetric, but w_{i}{j} is {W[i, j]:g} and w_{j}{i} is "
            f"{W[j, i]:g}. Only then is there an energy to descend; take (W + W.T) / 2."
        )


def hebb(patterns: Patterns) -> Hopfield:
    r"""Hopfield network by Hebb's rule: $w_{ij} = \frac1d \sum_t x_{t,i} x_{t,j}$ for $i \ne j$,
    $w_{ii} = 0$ (§1.4; Hebb 1949).

    Departs: the printed $\frac1d \sum_t x_t x_t^\top$ has the diagonal $n/d$; $\frac nd I$ is
    subtracted.

    >>> hebb(jnp.array([[1, 1, -1, -1]])).W[0].tolist()
    [0.0, 0.25, -0.25, -0.25]
    """
    X = as_patterns("hebb", patterns)
    n, d = X.shape
    return Hopfield((X.T @ X - n * jnp.eye(d, dtype=X.dtype)) / d)


def pseudo_inverse(patterns: Patterns) -> Hopfield:
    r"""Hopfield network by the pseudo-inverse (projection) rule: $P = X^+ X$, the projection onto
    the span of the patterns, without its diagonal.

    $Px_t = x_t$ even for correlated patterns, so each is stable where $P_{ii} < 1$: up to $n < d$
    of them (Personnaz, Guyon & Dreyfus 1986; Kanter & Sompolinsky 1987).

    >>> net = pseudo_inverse(jnp.array([[1, 1, 1, 1, -1, 1], [1, 1, 1, 1, 1, -1]]))
    >>> net(jnp.array([1, 1, -1, 1, -1, 1])).tolist()
    [1.0, 1.0, 1.0, 1.0, -1.0, 1.0]
    """
    X = as_patterns("pseudo_inverse", patterns)
    _, s, V = jnp.linalg.svd(X, full_matrices=False)
    span = s > s[0] * max(X.shape) * jnp.finfo(X.dtype).eps
    if not isinstance(X, Tracer) and int(span.sum()) == X.shape[1]:
        raise ValueError(
            f"pseudo_inverse: {len(X)} patterns span all {X.shape[1]} dimensions, so every state "
            "equals its projection and nothing is recalled; store fewer patterns than sites."
        )
    V = jnp.where(span[:, None], V, jnp.zeros_like(V))
    P = V.T @ V
    return Hopfield((P + P.T) / 2 * (1 - jnp.eye(len(P), dtype=P.dtype)))


class Hebbian(OverlapMemory):
    r"""Matrix-free `hebb(patterns)`: stores the patterns and computes the energy from the overlaps
    $m_t = x_t^\top x$.

    $$H(x) = \frac{n}{2d} \|x\|^2 - \frac{1}{2d} \|m\|^2, \quad H_i = \frac1d \sum_t x_{t,i} m_t -
    \frac nd x_i$$

    A sweep over all sites costs $O(nd)$ rather than $O(d^2)$. Overlaps are integers, so they are
    exact.

    >>> net = Hebbian(jnp.array([[1, 1, -1, -1]]))
    >>> net.field(jnp.array([1.0, 1.0, -1.0, 1.0])).tolist()
    [0.25, 0.25, -0.25, -0.75]
    """

    patterns: Float[Array, "n d"]

    def __init__(self, patterns: Patterns):
        self.patterns = as_patterns("Hebbian", patterns)

    def energy(self, x: Float[Array, " d"]) -> Scalar:
        m = self.overlaps(x)
        return (len(m) * jnp.vdot(x, x) - jnp.vdot(m, m)) / (2 * self.sites)

    def field_from_overlaps(
        self, m: Float[Array, " n"], columns: Float[Array, "n *k"], x: Float[Array, "*k"]
    ) -> Float[Array, "*k"]:
        return (m @ columns - len(m) * x) / self.sites

    def learn(self, x: State) -> "Hebbian":
        """Stores one more pattern."""
        x = as_signs("learn", x)
        expect_shape("learn", x, (self.sites,))
        return Hebbian(jnp.concatenate([self.patterns, x[None]]))

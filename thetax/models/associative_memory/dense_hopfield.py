r"""Dense associative memories, or modern Hopfield networks (§1.4): steeper energies store more
patterns.

$$E(x) = -\sum_{t=1}^n F(x_t^\top x), \quad x \in \{-1, +1\}^d$$

| memory | $F(z)$ | capacity (patterns) |
|---|---|---|
| `DenseMemory(patterns, 2)` | $z^2$: Hopfield's, $E = 2d H - nd$ | $d / (2 \ln d)$ |
| `DenseMemory(patterns, p)` | $z^p$ | $d^{p-1} / (2 (2p-3)!! \ln d)$ |
| `ExponentialMemory(patterns)` | $e^z$ | $2^{d/2}$ |

A flip changes the overlap $m_t = x_t^\top x$ by 2, so with $x_{t,i} = \pm 1$ the field at a site is
$$\tfrac12 (E(x_i = -1) - E(x_i = +1)) = \sum_t x_{t,i} \frac{F(m_t + 2) - F(m_t - 2)}{4}
  - x_i \sum_t \frac{F(m_t + 2) - 2 F(m_t) + F(m_t - 2)}{4}.$$
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core import Scalar
from .memory import OverlapMemory, Patterns, as_patterns


class DenseMemory(OverlapMemory):
    r"""Dense associative memory with $F(z) = z^p$, $p$ = `degree` (Krotov & Hopfield 2016).

    The differences of $F$ in the field are expanded by the binomial theorem to avoid cancellation.

    >>> patterns = jnp.array([[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1]])
    >>> jax.vmap(DenseMemory(patterns, 3))(patterns).tolist() == patterns.tolist()
    True
    """

    patterns: Float[Array, "n d"]
    degree: int = eqx.field(static=True)

    def __init__(self, patterns: Patterns, degree: int):
        self.patterns, self.degree = as_patterns("DenseMemory", patterns), degree
        n, d = self.patterns.shape
        if degree < 2:
            raise ValueError(
                f"DenseMemory: degree must be an integer >= 2 (2 is Hopfield's network); got "
                f"{degree}."
            )
        if math.log(n) + degree * math.log(d + 2) > math.log(
            float(jnp.finfo(self.patterns.dtype).max)
        ):
            raise ValueError(
                f"DenseMemory: {n} x {d}^{degree} overflows {self.patterns.dtype}; "
                "take a lower degree, or ExponentialMemory, which uses the log-sum-exp."
            )

    def energy(self, x: Float[Array, " d"]) -> Scalar:
        return -(self.overlaps(x) ** self.degree).sum()

    def field_from_overlaps(
        self, m: Float[Array, " n"], columns: Float[Array, "n *k"], x: Float[Array, "*k"]
    ) -> Float[Array, "*k"]:
        p = self.degree
        terms = [math.comb(p, k) * 2.0**k / 2 for k in range(p + 1)]  # of m^(p-k) in F(m + 2) / 2
        odd = jnp.array([term if k % 2 else 0.0 for k, term in enumerate(terms)], m.dtype)
        even = jnp.array(
            [0.0 if k % 2 or k == 0 else term for k, term in enumerate(terms)], m.dtype
        )
        return jnp.polyval(odd, m) @ columns - x * jnp.polyval(even, m).sum()


class ExponentialMemory(OverlapMemory):
    r"""Dense associative memory with $F(z) = e^z$ (Demircigil et al. 2017), computed as
    $E(x) = -\log \sum_t e^{m_t}$, which has the same minima.

    With $s = X^\top \mathrm{softmax}(m)$ the field is
    $-\tfrac12 x_i \log(\cosh 2 - x_i s_i \sinh 2)$: a site is stable if $x_i s_i \ge \tanh 1$. Here
    $s$ is the output of the modern Hopfield layer (`thetax.layers.ModernHopfield`). Departs: the
    energy is the logarithm of the paper's, since $e^d$ overflows.

    >>> patterns = jnp.array([[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1]])
    >>> jax.vmap(ExponentialMemory(patterns))(patterns).tolist() == patterns.tolist()
    True
    """

    patterns: Float[Array, "n d"]

    def __init__(self, patterns: Patterns):
        self.patterns = as_patterns("ExponentialMemory", patterns)

    def energy(self, x: Float[Array, " d"]) -> Scalar:
        return -jax.nn.logsumexp(self.overlaps(x))

    def field_from_overlaps(
        self, m: Float[Array, " n"], columns: Float[Array, "n *k"], x: Float[Array, "*k"]
    ) -> Float[Array, "*k"]:
        s = jax.nn.softmax(m) @ columns
        return -x * jnp.log(math.cosh(2) - x * s * math.sinh(2)) / 2

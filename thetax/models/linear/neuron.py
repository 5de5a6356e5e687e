r"""Threshold units (§1.1, §1.2): the McCulloch-Pitts neuron and Rosenblatt's perceptron."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jax.core import Tracer
from jaxtyping import Array, Float, Num, PRNGKeyArray

from ...core import expect_shape
from ...layers import heaviside, matvec


class McCullochPitts(eqx.Module):
    r"""A layer of threshold neurons $f[\sigma, \theta](x) = 1\{\sigma x \ge \theta\}$ on
    $x \in \{0, 1\}^n$ (§1.1).

    Each row of $\sigma \in \{-1, +1\}^{m \times n}$ is one neuron: a synapse of $+1$ excites it,
    one of $-1$ inhibits it. There is no learning rule. A network of neurons is a `Chain` of these.
    McCulloch & Pitts 1943.

    >>> import jax
    >>> from thetax.layers import Chain
    >>> both = jnp.array([[1.0, 1.0], [-1.0, -1.0]])
    >>> xor = Chain(
    ...     McCullochPitts(both, jnp.array([1.0, -1.0])), McCullochPitts(both[:1], jnp.array([2.0]))
    ... )
    >>> jax.vmap(xor)(jnp.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]))[:, 0].tolist()
    [0.0, 1.0, 1.0, 0.0]
    """

    sigma: Float[Array, "m n"]
    theta: Float[Array, " m"]

    @classmethod
    def init(cls, n: int, m: int, *, key: PRNGKeyArray) -> "McCullochPitts":
        """Draws signs with probability 1/2 each, and thresholds uniform on [-n, n]: the neuron
        always fires at -n, and almost never at n.
        """
        key_sigma, key_theta = jr.split(key)
        return cls(
            jr.rademacher(key_sigma, (m, n), float),
            jr.uniform(key_theta, (m,), minval=-n, maxval=n),
        )

    def __check_init__(self):
        if self.sigma.ndim != 2 or self.theta.shape != self.sigma.shape[:1]:
            raise ValueError(
                "McCullochPitts: sigma must be (m, n) and theta (m,); got sigma "
                f"{self.sigma.shape} and theta {self.theta.shape}. Each row of sigma is one neuron."
            )
        if not isinstance(self.sigma, Tracer) and not bool((jnp.abs(self.sigma) == 1).all()):
            raise ValueError(
                "McCullochPitts: a synapse is +1 or -1; got "
                f"{float(self.sigma[jnp.abs(self.sigma) != 1][0])}. "
                "For graded weights use Linear and heaviside."
            )

    def __call__(self, x: Float[Array, " n"]) -> Float[Array, " m"]:
        expect_shape("McCullochPitts", x, self.sigma.shape[1:])
        return heaviside(matvec(self.sigma, x) - self.theta)


class Perceptron(eqx.Module):
    r"""Perceptron, the linear threshold unit $f[w, b](x) = \mathrm{sgn}(w^\top x + b)$,
    $\mathrm{sgn}(0) = 0$ (§1.2).

    On the decision boundary the output is 0, an error for both labels $y \in \{-1, +1\}$. Without
    $b$ the boundary passes through the origin. Weights fitted to integer data are integers.
    Rosenblatt 1958. Departs: the notes place the boundary in $\mathbb{R}^n$; it lies in
    $\mathbb{R}^d$, as $x$ does.

    >>> unit = Perceptron(jnp.array([1.0, -1.0]), jnp.array(0.5))
    >>> [float(unit(x)) for x in jnp.array([[2.0, 1.0], [0.0, 0.5], [0.0, 1.0]])]
    [1.0, 0.0, -1.0]
    """

    w: Num[Array, " d"]
    b: Num[Array, ""] | None = None

    @classmethod
    def init(cls, d: int, *, bias: bool = True, key: PRNGKeyArray) -> "Perceptron":
        """Draws $(w, b)$ from a standard normal distribution, so its direction is uniform on the
        sphere.
        """
        v = jr.normal(key, (d + bias,))
        return cls(v[:d], v[d] if bias else None)

    def __check_init__(self):
        if self.w.ndim != 1 or (self.b is not None and self.b.ndim):
            raise ValueError(
                f"Perceptron: w must be (d,) and b a scalar; got w {self.w.shape} and b "
                f"{None if self.b is None else self.b.shape}. Many units are jax.vmap of one."
            )

    @property
    def v(self) -> Num[Array, "*k e"]:
        r"""The vector $(w, b)$, or $w$ if there is no $b$; works on stacked perceptrons too."""
        return self.w if self.b is None else jnp.concatenate([self.w, self.b[..., None]], axis=-1)

    def score(self, x: Num[Array, " d"]) -> Num[Array, ""]:
        r"""Decision function $w^\top x + b$."""
        expect_shape("Perceptron", x, self.w.shape)
        return self.w @ x if self.b is None else self.w @ x + self.b

    def __call__(self, x: Num[Array, " d"]) -> Num[Array, ""]:
        return jnp.sign(self.score(x))

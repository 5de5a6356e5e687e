r"""Affine layers (§2.2): `Linear` with a full weight matrix, `Affine` with a diagonal one."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..core import expect_shape
from .initialise import Initialiser, he


def matvec(W: Float[Array, "m n"], x: Float[Array, " n"]) -> Float[Array, " m"]:
    r"""The matrix-vector product $Wx$, written so that under `vmap` it is one matrix product with
    the batch as the leading axis.

    >>> matvec(jnp.array([[1.0, 2.0]]), jnp.array([3.0, 4.0])).tolist()
    [11.0]
    """
    return jnp.tensordot(x, W, axes=((0,), (1,)))


class Linear(eqx.Module):
    r"""The affine layer $f[W, b](x) = s_W W x + s_b b$, $W \in \mathbb{R}^{m \times n}$,
    $b \in \mathbb{R}^m$ (§2.2).

    The scales $s_W$ and $s_b$ are 1, except with `ntk_parametrisation`. Without $b$ the map is
    linear.

    Departs: the notes print $b \in \mathbb{R}^n$.

    >>> layer = Linear.init(3, 4, key=jr.key(0))
    >>> layer(jnp.ones(3)).shape
    (4,)
    >>> Linear(jnp.eye(2), jnp.ones(2))(jnp.array([1.0, 2.0])).tolist()
    [2.0, 3.0]
    """

    W: Float[Array, "m n"]
    b: Float[Array, " m"] | None = None
    scale_W: float = eqx.field(static=True, default=1.0)
    scale_b: float = eqx.field(static=True, default=1.0)

    @classmethod
    def init(
        cls, n: int, m: int, *, initialiser: Initialiser = he, bias: bool = True, key: PRNGKeyArray
    ) -> "Linear":
        """Draws $W_0$ and $b_0$ with the initialiser."""
        key_W, key_b = jr.split(key)
        b = initialiser.bias(key_b, m) if bias else None
        return cls(initialiser(key_W, (m, n)), b, initialiser.scale_W((m, n)), initialiser.scale_b)

    def __check_init__(self):
        if self.W.ndim != 2 or (self.b is not None and self.b.shape != self.W.shape[:1]):
            raise ValueError(
                f"Linear: W must be (m, n) and b (m,); got W {self.W.shape} and b "
                f"{None if self.b is None else self.b.shape}. "
                "The number of rows of W is the number of outputs."
            )

    def __call__(self, x: Float[Array, " n"]) -> Float[Array, " m"]:
        expect_shape("Linear", x, self.W.shape[1:])
        y = matvec(self.W, x)
        if self.scale_W != 1:
            y = self.scale_W * y
        if self.b is None:
            return y
        return y + (self.b if self.scale_b == 1 else self.scale_b * self.b)


class Affine(eqx.Module):
    r"""The layer $f[\gamma, \mu](x) = \gamma \odot x + \mu$ along the leading axis: a normalisation
    with fixed mean and variance (§8.5).

    >>> Affine(jnp.array([2.0, 3.0]), jnp.array([1.0, 0.0]))(jnp.ones(2)).tolist()
    [3.0, 3.0]
    """

    gamma: Float[Array, " d"]
    mu: Float[Array, " d"]

    @classmethod
    def init(cls, d: int) -> "Affine":
        """Initialises the identity, $\\gamma = 1$ and $\\mu = 0$."""
        return cls(jnp.ones(d), jnp.zeros(d))

    def __call__(self, x: Float[Array, "d *s"]) -> Float[Array, "d *s"]:
        expect_shape("Affine", x, self.gamma.shape + x.shape[1:])
        return broadcast_channels(self.gamma, x) * x + broadcast_channels(self.mu, x)


def broadcast_channels(v: Float[Array, " d"], x: Float[Array, "d *s"]) -> Float[Array, "..."]:
    """`v` reshaped to broadcast along the leading (channel) axis of `x`."""
    return v.reshape(v.shape + (1,) * (x.ndim - 1))

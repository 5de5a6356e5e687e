r"""Activation functions $\varphi$, those of `jax.nn` where it has them.

- `identity`: $z$
- `heaviside`: $1\{z \ge 0\}$
- `sign`: $+1, 0, -1$ for $z > 0$, $z = 0$, $z < 0$ (perceptron)
- `spin`: $+1$ for $z \ge 0$, else $-1$ (Hopfield network)
- `sigmoid`: $1 / (1 + e^{-z})$
- `tanh`: $2\sigma(2z) - 1$
- `relu`, `leaky_relu`: $\max(0, z)$; $\max(\alpha z, z)$ with $\alpha = 0.01$
- `softplus`: $\log(1 + e^z)$
- `gelu`: $z\,\Phi(z)$, with the normal distribution function $\Phi$
- `gelu_tanh`: the same with the approximation
  $\Phi(z) \approx \frac12 (1 + \tanh(\sqrt{2/\pi}\,(z + 0.044715 z^3)))$
- `silu`: $z\,\sigma(z)$
- `softmax`: $e^{z_i} / \sum_j e^{z_j}$, over the last axis
"""

from collections.abc import Callable
from functools import cache

import jax.numpy as jnp
from jax import nn
from jax.nn import identity as identity
from jax.nn import leaky_relu as leaky_relu
from jax.nn import relu as relu
from jax.nn import sigmoid as sigmoid
from jax.nn import silu as silu
from jax.nn import softmax as softmax
from jax.nn import softplus as softplus
from jax.numpy import tanh as tanh
from jaxtyping import Array, Float

from ..serialise import recorded

# An elementwise function of an array.
Activation = Callable[[Float[Array, "*s"]], Float[Array, "*s"]]


def heaviside(z: Float[Array, "*s"]) -> Float[Array, "*s"]:
    r"""Heaviside step function $1\{z \ge 0\}$, the activation of a threshold unit (§1.1). Its
    gradient is 0 everywhere.

    >>> heaviside(jnp.array([-1.0, 0.0, 2.0])).tolist()
    [0.0, 1.0, 1.0]
    """
    return jnp.where(z >= 0, jnp.ones_like(z), jnp.zeros_like(z))


def sign(z: Float[Array, "*s"]) -> Float[Array, "*s"]:
    r"""Sign with the value 0 at 0 (§1.2): a point on the boundary belongs to neither class.

    >>> sign(jnp.array([-3.0, 0.0, 2.0])).tolist()
    [-1.0, 0.0, 1.0]
    """
    return jnp.sign(z)


def spin(z: Float[Array, "*s"]) -> Float[Array, "*s"]:
    r"""Sign with the value $+1$ at 0 (§1.4): the state of a neuron is never 0.

    >>> spin(jnp.array([-3.0, 0.0, 2.0])).tolist()
    [-1.0, 1.0, 1.0]
    """
    return jnp.where(z >= 0, jnp.ones_like(z), -jnp.ones_like(z))


def gelu(z: Float[Array, "*s"]) -> Float[Array, "*s"]:
    r"""GELU, $z\,\Phi(z)$ (Hendrycks & Gimpel 2016), without the tanh approximation.

    >>> round(float(gelu(jnp.array(1.0))), 4)
    0.8413
    """
    return nn.gelu(z, approximate=False)


def gelu_tanh(z: Float[Array, "*s"]) -> Float[Array, "*s"]:
    r"""GELU with the tanh approximation, as in GPT-2:
    $\frac12 z\,(1 + \tanh(\sqrt{2/\pi}\,(z + 0.044715 z^3)))$.

    >>> round(float(gelu_tanh(jnp.array(1.0))), 4)
    0.8412
    """
    return nn.gelu(z, approximate=True)


@cache  # one function per activation, so that equal networks have equal tree structure
@recorded
def centred(activation: Activation) -> Activation:
    r"""The activation shifted to 0 at 0, $z \mapsto \varphi(z) - \varphi(0)$, so that a residual
    layer with zero weights is the identity (§2.4).

    >>> centred(sigmoid)(jnp.zeros(2)).tolist()
    [0.0, 0.0]
    """

    def shifted(z: Float[Array, "*s"]) -> Float[Array, "*s"]:
        return activation(z) - activation(jnp.zeros_like(z))

    return shifted


# The activation functions by name; tests check every row.
ACTIVATIONS: dict[str, Activation] = {
    "identity": identity,
    "heaviside": heaviside,
    "sign": sign,
    "spin": spin,
    "sigmoid": sigmoid,
    "tanh": tanh,
    "relu": relu,
    "leaky_relu": leaky_relu,
    "softplus": softplus,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "silu": silu,
    "softmax": softmax,
}

r"""Normalisation (§8.5, §8.6): $\bar f = (f - \mathbb{E} f)/\sqrt{\mathrm{Var} f}$, then
$\mu + \gamma \bar f$.

`LayerNorm` takes the moments over the features of one example, `BatchNorm` over the batch, and
`WeightNorm` moves them into the weights. None keeps running averages: `fold(model, xs)` turns each
`BatchNorm` into the affine map it is on the data, after which examples no longer depend on one
another.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..core import BATCH, expect_shape, wide
from ..tree import dotted
from .compose import Ensemble
from .initialise import Initialiser, he
from .linear import Affine, along, dense
from .tap import tap


class LayerNorm(eqx.Module):
    r"""$\mu + \gamma \odot (x - \bar x)/\sqrt{s^2 + \varepsilon}$ over the $d$ features of one
    example (§8.5).

    Ba, Kiros & Hinton 2016.

    >>> LayerNorm.init(4)(jnp.array([1.0, 3.0, 1.0, 3.0])).round(3).tolist()
    [-1.0, 1.0, -1.0, 1.0]
    """

    gamma: Float[Array, " d"]
    mu: Float[Array, " d"]
    epsilon: float = eqx.field(static=True, default=1e-5)

    @classmethod
    def init(cls, d: int, *, epsilon: float = 1e-5) -> "LayerNorm":
        """Begins as the plain standardisation, $\\gamma = 1$ and $\\mu = 0$."""
        return cls(jnp.ones(d), jnp.zeros(d), epsilon)

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        expect_shape("LayerNorm", x, self.gamma.shape)
        z = wide(x)
        normal = (z - z.mean()) * jax.lax.rsqrt(z.var() + self.epsilon)
        return (wide(self.mu) + wide(self.gamma) * normal).astype(x.dtype)


class RMSNorm(eqx.Module):
    r"""$\gamma \odot x / \sqrt{\|x\|^2 / d + \varepsilon}$: only the length is normalised (Zhang &
    Sennrich 2019).

    >>> RMSNorm.init(2)(jnp.array([3.0, 3.0])).round(3).tolist()
    [1.0, 1.0]
    """

    gamma: Float[Array, " d"]
    epsilon: float = eqx.field(static=True, default=1e-5)

    @classmethod
    def init(cls, d: int, *, epsilon: float = 1e-5) -> "RMSNorm":
        """Begins with $\\gamma = 1$."""
        return cls(jnp.ones(d), epsilon)

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        expect_shape("RMSNorm", x, self.gamma.shape)
        z = wide(x)
        return (wide(self.gamma) * z * jax.lax.rsqrt(jnp.square(z).mean() + self.epsilon)).astype(
            x.dtype
        )


class BatchNorm(eqx.Module):
    r"""$\mu + \gamma \odot (x - \mathbb{E}_B x)/\sqrt{\mathrm{Var}_B x + \varepsilon}$ over the
    batch (§8.5).

    The batch is the mapped axis named `"batch"`, which `thetax.core.predict` provides; features lie
    along the leading axis of the example, and the moments are taken over the others too. Outside a
    batch it has no meaning: `fold` first. One number has no variance: a batch of one example
    without axes of space is refused. Ioffe & Szegedy 2015.

    >>> from thetax.core import predict
    >>> xs = jnp.array([[1.0, 10.0], [3.0, 30.0]])
    >>> predict(BatchNorm.init(2), xs).round(2).tolist()
    [[-1.0, -1.0], [1.0, 1.0]]
    """

    gamma: Float[Array, " d"]
    mu: Float[Array, " d"]
    epsilon: float = eqx.field(static=True, default=1e-5)

    @classmethod
    def init(cls, d: int, *, epsilon: float = 1e-5) -> "BatchNorm":
        """Begins as the plain standardisation, $\\gamma = 1$ and $\\mu = 0$."""
        return cls(jnp.ones(d), jnp.zeros(d), epsilon)

    def moments(self, x: Float[Array, "d *s"]) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
        """Mean and biased variance of each feature over the batch."""
        near, _, mean, variance = self._centred(x)
        return near + mean, variance

    def _centred(self, x: Float[Array, "d *s"]) -> tuple[Array, Array, Array, Array]:
        r"""A point $k$ near the mean, $z = x - k$, and the moments of $z$.

        $\mathbb{E} z^2 - (\mathbb{E} z)^2$ needs one pass over the batch, where
        $\mathbb{E} (x - \mathbb{E} x)^2$ needs two, and loses no digits as long as $k$ is near.
        """
        x, space = wide(x), tuple(range(1, x.ndim))
        try:
            count = jax.lax.axis_size(BATCH) * math.prod(x.shape[1:])
            near = jax.lax.stop_gradient(jax.lax.pmean(x[(slice(None), *[0] * len(space))], BATCH))
        except NameError as unbound:
            raise ValueError(
                "BatchNorm: called on one example, but its statistics are those of a batch. "
                "Call thetax.core.predict(model, xs), or turn it into an affine map with "
                "fold(model, xs)."
            ) from unbound
        if count == 1:
            raise ValueError(
                f"BatchNorm: the batch has one example of shape {x.shape}, so that each feature "
                "has one number and no variance, and the output would not depend on the input. "
                "Take a batch of at least 2 examples; for one example after training, fold(model, "
                "xs) first."
            )
        z = x - along(near, x)
        mean, square = jax.lax.pmean((z.mean(axis=space), jnp.square(z).mean(axis=space)), BATCH)
        return near, z, mean, jnp.maximum(square - jnp.square(mean), 0)

    def fixed(self, mean: Float[Array, " d"], variance: Float[Array, " d"]) -> Affine:
        """The affine map this is when the moments are given."""
        scale = wide(self.gamma) * jax.lax.rsqrt(variance + self.epsilon)
        shift = wide(self.mu) - scale * mean
        return Affine(scale.astype(self.gamma.dtype), shift.astype(self.mu.dtype))

    def __call__(self, x: Float[Array, "d *s"]) -> Float[Array, "d *s"]:
        expect_shape("BatchNorm", x, self.gamma.shape + x.shape[1:])
        _, z, mean, variance = self._centred(x)
        scale = wide(self.gamma) * jax.lax.rsqrt(variance + self.epsilon)
        return (along(scale, x) * z + along(wide(self.mu) - scale * mean, x)).astype(x.dtype)


class WeightNorm(eqx.Module):
    r"""The affine layer with rows $w_i = \gamma_i v_i / \|v_i\|$: length and direction learned
    apart (§8.6).

    Salimans & Kingma 2016.

    >>> layer = WeightNorm(jnp.array([[3.0, 4.0]]), jnp.array([10.0]), jnp.zeros(1))
    >>> layer(jnp.array([1.0, 0.0])).tolist()
    [6.0]
    """

    V: Float[Array, "m n"]
    gamma: Float[Array, " m"]
    b: Float[Array, " m"]

    @classmethod
    def init(
        cls, n: int, m: int, *, initialiser: Initialiser = he, key: PRNGKeyArray
    ) -> "WeightNorm":
        """Begins as the `Linear` layer of the same law."""
        key_W, key_b = jr.split(key)
        W = initialiser.scale_W((m, n)) * initialiser(key_W, (m, n))
        return cls(W, jnp.linalg.norm(W, axis=1), initialiser.scale_b * initialiser.bias(key_b, m))

    @property
    def W(self) -> Float[Array, "m n"]:
        """The weights in use, of row lengths $|\\gamma_i|$."""
        return (self.gamma / jnp.linalg.norm(self.V, axis=1))[:, None] * self.V

    def __call__(self, x: Float[Array, " n"]) -> Float[Array, " m"]:
        expect_shape("WeightNorm", x, self.V.shape[1:])
        return dense(self.W, x) + self.b


def has_batch_norm(model: Any) -> bool:
    """Whether the model's output on one example depends on the batch around it."""
    nodes = jax.tree.leaves(model, is_leaf=lambda node: isinstance(node, BatchNorm))
    return any(isinstance(node, BatchNorm) for node in nodes)


def fold(model: Any, xs: Float[Array, "n ..."]) -> Any:
    r"""The model in which every `BatchNorm` is the affine map it is on the batch `xs` (§8.5).

    Runs once over `xs` as one batch, under `jit` if you like; the members of an `Ensemble` are
    folded each by itself. Norms inside a `scan` over layers are out of its sight.

    >>> from thetax.core import predict
    >>> from thetax.layers import Chain, Linear
    >>> xs = jr.normal(jr.key(1), (32, 3))
    >>> net = Chain(Linear.init(3, 4, key=jr.key(0)), BatchNorm.init(4), jnp.tanh)
    >>> bool(jnp.allclose(predict(net, xs), predict(fold(net, xs), xs), atol=1e-5))
    True
    """
    if isinstance(model, Ensemble):
        return Ensemble(jax.vmap(lambda member: fold(member, xs))(model.members), model.pool)
    is_norm = lambda node: isinstance(node, BatchNorm)
    nodes, structure = jax.tree.flatten_with_path(model, is_leaf=is_norm)

    def moments(x):
        seen = {}

        def visit(name, norm, call, x):
            if name in seen:
                raise ValueError(
                    f"fold: the BatchNorm at {name} is used twice; give each use a norm of its own."
                )
            seen[name] = norm.moments(x)
            return call(x)

        tap(model, select=is_norm, visit=visit)(x)
        return seen

    if not has_batch_norm(model):
        return model
    fixed = jax.vmap(moments, axis_name=BATCH, out_axes=None)(xs)
    replaced = [node.fixed(*fixed[dotted(path)]) if is_norm(node) else node for path, node in nodes]
    return jax.tree.unflatten(structure, replaced)

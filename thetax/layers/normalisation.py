r"""Normalisation (§8.5, §8.6): $\bar f = (f - \mathbb{E} f)/\sqrt{\mathrm{Var} f}$, then
$\mu + \gamma \bar f$.

`LayerNorm` computes mean and variance over the features of one example, `BatchNorm` over the
batch; `RMSNorm` divides by the root mean square, and `WeightNorm` normalises the weights. No layer
keeps running averages: `fold_batch_norm(model, xs)` replaces every `BatchNorm` by an affine map
with the mean and variance of the data `xs`. After that the output for one example no longer depends
on the others.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..core import BATCH_AXIS, expect_shape, upcast
from ..tree import path_name
from .compose import Ensemble, Stacked
from .initialise import Initialiser, he
from .linear import Affine, broadcast_channels, matvec
from .tap import tap


class LayerNorm(eqx.Module):
    r"""Layer normalisation, $\mu + \gamma \odot (x - \bar x)/\sqrt{s^2 + \varepsilon}$ over the $d$
    features of one example (§8.5; Ba, Kiros & Hinton 2016).

    >>> LayerNorm.init(4)(jnp.array([1.0, 3.0, 1.0, 3.0])).round(3).tolist()
    [-1.0, 1.0, -1.0, 1.0]
    """

    gamma: Float[Array, " d"]
    mu: Float[Array, " d"]
    eps: float = eqx.field(static=True, default=1e-5)

    @classmethod
    def init(cls, d: int, *, eps: float = 1e-5) -> "LayerNorm":
        """Initialises $\\gamma = 1$ and $\\mu = 0$."""
        return cls(jnp.ones(d), jnp.zeros(d), eps)

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        expect_shape("LayerNorm", x, self.gamma.shape)
        z = upcast(x)
        normal = (z - z.mean()) * jax.lax.rsqrt(z.var() + self.eps)
        return (upcast(self.mu) + upcast(self.gamma) * normal).astype(x.dtype)


class RMSNorm(eqx.Module):
    r"""Root mean square normalisation, $\gamma \odot x / \sqrt{\|x\|^2 / d + \varepsilon}$: the
    mean is not subtracted (Zhang & Sennrich 2019).

    >>> RMSNorm.init(2)(jnp.array([3.0, 3.0])).round(3).tolist()
    [1.0, 1.0]
    """

    gamma: Float[Array, " d"]
    eps: float = eqx.field(static=True, default=1e-5)

    @classmethod
    def init(cls, d: int, *, eps: float = 1e-5) -> "RMSNorm":
        """Initialises $\\gamma = 1$."""
        return cls(jnp.ones(d), eps)

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        expect_shape("RMSNorm", x, self.gamma.shape)
        z = upcast(x)
        return (upcast(self.gamma) * z * jax.lax.rsqrt(jnp.square(z).mean() + self.eps)).astype(
            x.dtype
        )


class BatchNorm(eqx.Module):
    r"""Batch normalisation,
    $\mu + \gamma \odot (x - \mathbb{E}_B x)/\sqrt{\mathrm{Var}_B x + \varepsilon}$ over the batch
    (§8.5; Ioffe & Szegedy 2015).

    The batch is the mapped axis named `"batch"`, which `thetax.core.predict` provides. Features (or
    channels) lie along the leading axis of the example; mean and variance are taken over the batch
    and all other axes. A call on one example outside a batch raises an error: apply
    `fold_batch_norm` first. So does a batch of one example without spatial axes, since one number
    has no variance.

    >>> from thetax.core import predict
    >>> xs = jnp.array([[1.0, 10.0], [3.0, 30.0]])
    >>> predict(BatchNorm.init(2), xs).round(2).tolist()
    [[-1.0, -1.0], [1.0, 1.0]]
    """

    gamma: Float[Array, " d"]
    mu: Float[Array, " d"]
    eps: float = eqx.field(static=True, default=1e-5)

    @classmethod
    def init(cls, d: int, *, eps: float = 1e-5) -> "BatchNorm":
        """Initialises $\\gamma = 1$ and $\\mu = 0$."""
        return cls(jnp.ones(d), jnp.zeros(d), eps)

    def moments(self, x: Float[Array, "d *s"]) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
        """Mean and biased variance of each feature over the batch."""
        shift, _, mean, variance = self._centred(x)
        return shift + mean, variance

    def _centred(self, x: Float[Array, "d *s"]) -> tuple[Array, Array, Array, Array]:
        r"""A shift $k$ near the mean, $z = x - k$, and the mean and variance of $z$.

        $\mathbb{E} z^2 - (\mathbb{E} z)^2$ needs one pass over the batch, where
        $\mathbb{E} (x - \mathbb{E} x)^2$ needs two, and is as accurate if $k$ is near the mean.
        """
        x = upcast(x)
        space = tuple(range(1, x.ndim))
        try:
            count = jax.lax.axis_size(BATCH_AXIS) * math.prod(x.shape[1:])
            shift = jax.lax.stop_gradient(
                jax.lax.pmean(x[(slice(None), *[0] * len(space))], BATCH_AXIS)
            )
        except NameError as unbound:
            raise ValueError(
                "BatchNorm: called on one example, but it needs the statistics of a batch. "
                "Call thetax.core.predict(model, xs), or turn it into an affine map with "
                "fold_batch_norm(model, xs)."
            ) from unbound
        if count == 1:
            raise ValueError(
                f"BatchNorm: the batch has one example of shape {x.shape}, so each feature has one "
                "value and no variance, and the output would not depend on the input. Use a batch "
                "of at least 2 examples; for one example after training, call "
                "fold_batch_norm(model, xs) first."
            )
        z = x - broadcast_channels(shift, x)
        mean, square = jax.lax.pmean(
            (z.mean(axis=space), jnp.square(z).mean(axis=space)), BATCH_AXIS
        )
        return shift, z, mean, jnp.maximum(square - jnp.square(mean), 0)

    def to_affine(self, mean: Float[Array, " d"], variance: Float[Array, " d"]) -> Affine:
        """The affine map that this layer is for a given mean and variance."""
        scale = upcast(self.gamma) * jax.lax.rsqrt(variance + self.eps)
        shift = upcast(self.mu) - scale * mean
        return Affine(scale.astype(self.gamma.dtype), shift.astype(self.mu.dtype))

    def __call__(self, x: Float[Array, "d *s"]) -> Float[Array, "d *s"]:
        expect_shape("BatchNorm", x, self.gamma.shape + x.shape[1:])
        _, z, mean, variance = self._centred(x)
        scale = upcast(self.gamma) * jax.lax.rsqrt(variance + self.eps)
        return (
            broadcast_channels(scale, x) * z + broadcast_channels(upcast(self.mu) - scale * mean, x)
        ).astype(x.dtype)


class WeightNorm(eqx.Module):
    r"""Weight normalisation: an affine layer whose rows are $w_i = \gamma_i v_i / \|v_i\|$, so
    their length and direction are separate parameters (§8.6; Salimans & Kingma 2016).

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
        """Initialises the layer as `Linear.init` with the same initialiser."""
        key_W, key_b = jr.split(key)
        W = initialiser.scale_W((m, n)) * initialiser(key_W, (m, n))
        return cls(W, jnp.linalg.norm(W, axis=1), initialiser.scale_b * initialiser.bias(key_b, m))

    @property
    def W(self) -> Float[Array, "m n"]:
        """The weight matrix, whose rows have length $|\\gamma_i|$."""
        return (self.gamma / jnp.linalg.norm(self.V, axis=1))[:, None] * self.V

    def __call__(self, x: Float[Array, " n"]) -> Float[Array, " m"]:
        expect_shape("WeightNorm", x, self.V.shape[1:])
        return matvec(self.W, x) + self.b


def has_batch_norm(model: Any) -> bool:
    """Whether the model contains a `BatchNorm`, so that its output for one example depends on the
    rest of the batch.
    """
    nodes = jax.tree.leaves(model, is_leaf=lambda node: isinstance(node, BatchNorm))
    return any(isinstance(node, BatchNorm) for node in nodes)


def fold_batch_norm(model: Any, xs: Float[Array, "n ..."]) -> Any:
    r"""The model with every `BatchNorm` replaced by an affine map with the mean and variance of the
    batch `xs` (§8.5).

    It runs the model once over `xs` as one batch, and works under `jit`. The members of an
    `Ensemble` are folded separately. A `BatchNorm` inside `Stacked` cannot be folded.

    >>> from thetax.core import predict
    >>> from thetax.layers import Chain, Linear
    >>> xs = jr.normal(jr.key(1), (32, 3))
    >>> net = Chain(Linear.init(3, 4, key=jr.key(0)), BatchNorm.init(4), jnp.tanh)
    >>> bool(jnp.allclose(predict(net, xs), predict(fold_batch_norm(net, xs), xs), atol=1e-5))
    True
    """
    if isinstance(model, Ensemble):
        return Ensemble(
            jax.vmap(lambda member: fold_batch_norm(member, xs))(model.members), model.pool
        )
    is_stacked = lambda node: isinstance(node, Stacked)
    if any(is_stacked(n) and has_batch_norm(n) for n in jax.tree.leaves(model, is_leaf=is_stacked)):
        raise ValueError(
            "fold_batch_norm: a BatchNorm inside Stacked cannot be folded, since Stacked scans "
            "over its layers; use a Chain of the layers."
        )
    is_norm = lambda node: isinstance(node, BatchNorm)
    nodes, structure = jax.tree.flatten_with_path(model, is_leaf=is_norm)

    def moments(x):
        seen = {}

        def visit(name, norm, call, x):
            if name in seen:
                raise ValueError(
                    f"fold_batch_norm: the BatchNorm at {name} is used twice; give each use its "
                    "own BatchNorm."
                )
            seen[name] = norm.moments(x)
            return call(x)

        tap(model, select=is_norm, visit=visit)(x)
        return seen

    if not has_batch_norm(model):
        return model
    statistics = jax.vmap(moments, axis_name=BATCH_AXIS, out_axes=None)(xs)
    new_nodes = [
        node.to_affine(*statistics[path_name(path)]) if is_norm(node) else node
        for path, node in nodes
    ]
    return jax.tree.unflatten(structure, new_nodes)

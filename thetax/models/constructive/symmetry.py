r"""Different weights, the same function (§2.2, §2.5): the symmetries of a network.

`permute`   the hidden units of a layer in another order
`rescale`   each hidden unit $c$ times as large, and heard $1/c$ times as loud
`widen`     more hidden units, to which nobody listens

Each takes a `Chain` or an `MLP` and returns one. Its affine maps are counted from 0, and the hidden
units of layer $\ell$ are the outputs of map $\ell$ until map $\ell + 1$ reads them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...layers import (
    Activation,
    Affine,
    BatchNorm,
    Chain,
    Dropout,
    LayerNorm,
    Linear,
    Pointwise,
    WeightNorm,
)
from ..mlp import MLP

Network = TypeVar("Network", MLP, Chain)
Map = Linear | WeightNorm


def permute(model: Network, layer: int, permutation: Sequence[int] | np.ndarray) -> Network:
    r"""The hidden units of a layer reordered: $W_1 \to PW_1$, $b_1 \to Pb_1$, $W_2 \to W_2 P^\top$
    (§2.2).

    New unit $i$ is old unit `permutation[i]`. The function is the same, since
    $P^{-1}\varphi(Pz) = \varphi(z)$ for a pointwise $\varphi$; norms between the two maps are
    permuted along. A layer of $m$ units has $m!$ orders.

    >>> import jax.random as jr
    >>> net = MLP.init(2, 3, 1, key=jr.key(0))
    >>> bool(jnp.allclose(permute(net, 0, [2, 0, 1])(jnp.ones(2)), net(jnp.ones(2)), atol=1e-6))
    True
    """
    parts, i, j = _around(
        "permute", model, layer, (Pointwise, Dropout, Affine, LayerNorm, BatchNorm)
    )
    order = np.asarray(permutation)
    width = len(parts[i].W)
    if not np.array_equal(np.sort(order), np.arange(width)):
        raise ValueError(f"permute: expected each of 0..{width - 1} once, got {order.tolist()}.")
    turned = lambda phi, z: np.allclose(phi(z[::-1]), phi(z)[::-1])
    expect_activations("permute", parts[i:j], turned, "acts on the units by their place")
    parts[i:j] = jax.tree.map(
        lambda a: a[order], parts[i:j]
    )  # the units lie along the leading axis of every leaf
    columns = "W" if isinstance(parts[j], Linear) else "V"
    parts[j] = replace(parts[j], **{columns: getattr(parts[j], columns)[:, order]})
    return rebuilt(model, parts)


def rescale(
    model: Network, layer: int, scales: Float[Array, " m"] | Float[np.ndarray, " m"]
) -> Network:
    r"""Hidden units scaled: $W_1 \to DW_1$, $b_1 \to Db_1$, $W_2 \to W_2 D^{-1}$ with
    $D = \mathrm{diag}(c)$ (§2.2).

    The same function wherever $\varphi(c_i z) = c_i \varphi(z)$: for $c > 0$ with `relu` and
    `leaky_relu`, for $c_i = \pm 1$ with odd functions such as `tanh`, for any $c \ne 0$ with
    `identity`. That is tried on a range of numbers, and an activation that does not scale is
    refused; so is a norm, which undoes scales.

    >>> import jax.random as jr
    >>> net = MLP.init(2, 3, 1, key=jr.key(0))
    >>> other = rescale(net, 0, np.array([0.5, 2.0, 4.0]))
    >>> bool(jnp.allclose(other(jnp.ones(2)), net(jnp.ones(2)), atol=1e-6))
    True
    """
    parts, i, j = _around("rescale", model, layer, (Pointwise, Dropout, Affine))
    c = np.asarray(scales, np.float64)
    width = len(parts[i].W)
    if c.shape != (width,) or not (np.isfinite(c) & (c != 0)).all():
        raise ValueError(f"rescale: expected {width} finite scales other than 0, got {c.tolist()}.")
    scaled = lambda phi, z: all(
        np.allclose(phi(a * z), a * phi(z), rtol=1e-4) for a in np.unique(c).tolist()
    )
    expect_activations(
        "rescale",
        parts[i:j],
        scaled,
        "does not scale by these; take positive scales for relu, -1 and 1 for tanh",
    )
    d = jnp.asarray(c, parts[i].W.dtype)
    parts[i:j] = [_scaled(part, d) for part in parts[i:j]]
    W = parts[j].W / d[None]
    is_plain = isinstance(parts[j], Linear)
    parts[j] = (
        replace(parts[j], W=W)
        if is_plain
        else WeightNorm(W, jnp.linalg.norm(W, axis=1), parts[j].b)
    )
    return rebuilt(model, parts)


def _scaled(part: Any, d: Float[Array, " m"]) -> Any:
    match part:
        case Linear():
            return Linear(
                d[:, None] * part.W,
                None if part.b is None else d * part.b,
                part.scale_W,
                part.scale_b,
            )
        case WeightNorm():
            return replace(part, gamma=d * part.gamma, b=d * part.b)
        case Affine():
            return replace(part, mu=d * part.mu)
    return part


def widen(model: Network, layer: int, units: Linear) -> Network:
    r"""More hidden units, with outgoing weights 0: $G_{n,m} \subset G_{n,m+1}$ (§2.5).

    The rows of `units` are the weights by which the new units read; the function stays what it was.

    >>> import jax.random as jr
    >>> net = MLP.init(2, 3, 1, key=jr.key(0))
    >>> wide = widen(net, 0, Linear.init(2, 5, key=jr.key(1)))
    >>> (
    ...     wide.body.layers[0].W.shape,
    ...     bool(jnp.allclose(wide(jnp.ones(2)), net(jnp.ones(2)), atol=1e-6)),
    ... )
    ((8, 2), True)
    """
    parts, i, j = _around("widen", model, layer, (Pointwise, Dropout))
    expect_pointwise("widen", parts[i:j])
    before = plain(parts[i])
    after = plain(parts[j])
    new = plain(units)
    if new.W.shape[1] != before.W.shape[1]:
        raise ValueError(
            f"widen: the new units read {new.W.shape[1]} numbers, those there {before.W.shape[1]}."
        )
    parts[i] = Linear(
        jnp.concatenate([before.W, new.W]), jnp.concatenate([bias(before), bias(new)])
    )
    deaf = jnp.zeros((len(after.W), len(new.W)), after.W.dtype)
    parts[j] = Linear(jnp.concatenate([after.W, deaf], axis=1), after.b)
    return rebuilt(model, parts)


def _around(
    name: str, model: MLP | Chain, layer: int, allowed: tuple[type, ...]
) -> tuple[list[Any], int, int]:
    """The parts of the network, and where among them are the map that makes the layer and the one
    that reads it.
    """
    parts = parts_of(model)
    maps = [i for i, part in enumerate(parts) if isinstance(part, Map)]
    if not 0 <= layer < len(maps) - 1:
        raise ValueError(
            f"{name}: layer {layer} is not between two affine maps of the chain; it has "
            f"{max(0, len(maps) - 1)} such layers, counted from 0. A chain inside a residual block "
            "has its own: take that block's inner chain."
        )
    i = maps[layer]
    j = maps[layer + 1]
    for part in parts[i + 1 : j]:
        if not isinstance(part, allowed):
            raise ValueError(
                f"{name}: a {type(part).__name__} follows layer {layer}; with it this is no "
                "symmetry of the network."
            )
    return parts, i, j


def expect_activations(
    name: str, parts: Sequence[Any], keeps: Callable[[Activation, Array], bool], trouble: str
) -> None:
    """Refuses an activation that does not keep a law, tried on numbers from 0.01 to 100 of both
    signs.
    """
    size = np.logspace(-2, 2, 17)
    z = jnp.asarray(np.concatenate([-size[::-1], [0.0], size]), jnp.zeros(()).dtype)
    for part in parts:
        if isinstance(part, Pointwise) and not keeps(part.activation, z):
            called = getattr(part.activation, "__name__", repr(part.activation))
            raise ValueError(f"{name}: the function would change, since {called} {trouble}.")


def expect_pointwise(name: str, parts: Sequence[Any]) -> None:
    """Refuses an activation, such as softmax, in which one unit hears of another."""
    alone = lambda phi, z: np.allclose(phi(z)[:9], phi(z[:9]))
    expect_activations(name, parts, alone, "mixes the units")


def parts_of(model: MLP | Chain) -> list[Any]:
    """The layers of the chain."""
    return list((model.body if isinstance(model, MLP) else model).layers)


def rebuilt(model: Any, parts: Sequence[Any]) -> Any:
    """A network of the model's type from other layers."""
    return MLP(Chain(*parts)) if isinstance(model, MLP) else Chain(*parts)


def plain(layer: Any) -> Linear:
    """An affine layer as $Wx + b$: directions and lengths, and scales, multiplied out."""
    if isinstance(layer, WeightNorm):
        return Linear(layer.W, layer.b)
    return Linear(layer.scale_W * layer.W, None if layer.b is None else layer.scale_b * layer.b)


def bias(layer: Linear) -> Float[Array, " m"]:
    """$b$, or zeros where there is none."""
    return jnp.zeros(len(layer.W), layer.W.dtype) if layer.b is None else layer.b

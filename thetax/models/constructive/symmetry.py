r"""Weight-space symmetries (§2.2, §2.5): other weights, the same function.

- `permute_units`: reorders the hidden units of a layer
- `rescale_units`: multiplies each hidden unit by $c$ and its outgoing weights by $1/c$
- `widen`: adds hidden units with outgoing weights 0

Each takes a `Chain` or an `MLP` and returns one. Affine maps are counted from 0, and the hidden
units of layer $\ell$ lie between map $\ell$ and map $\ell + 1$.
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


def permute_units(model: Network, layer: int, permutation: Sequence[int] | np.ndarray) -> Network:
    r"""Permutation symmetry: reorders the hidden units of a layer, $W_1 \to PW_1$,
    $b_1 \to Pb_1$, $W_2 \to W_2 P^\top$ (§2.2).

    New unit $i$ is old unit `permutation[i]`. The function is unchanged, since
    $P^{-1}\varphi(Pz) = \varphi(z)$ for a pointwise $\varphi$; normalisation layers between the two
    maps are permuted too. A layer of $m$ units has $m!$ orders.

    >>> import jax.random as jr
    >>> net = MLP.init(2, 3, 1, key=jr.key(0))
    >>> permuted = permute_units(net, 0, [2, 0, 1])
    >>> bool(jnp.allclose(permuted(jnp.ones(2)), net(jnp.ones(2)), atol=1e-6))
    True
    """
    layers, i, j = _find_layer(
        "permute_units", model, layer, (Pointwise, Dropout, Affine, LayerNorm, BatchNorm)
    )
    order = np.asarray(permutation)
    width = len(layers[i].W)
    if not np.array_equal(np.sort(order), np.arange(width)):
        raise ValueError(
            f"permute_units: permutation must hold each of 0..{width - 1} once; got "
            f"{order.tolist()}."
        )
    equivariant = lambda phi, z: np.allclose(phi(z[::-1]), phi(z)[::-1])
    expect_activations("permute_units", layers[i:j], equivariant, "depends on the order of units")
    # the units are the leading axis of every leaf
    layers[i:j] = jax.tree.map(lambda a: a[order], layers[i:j])
    columns = "W" if isinstance(layers[j], Linear) else "V"
    layers[j] = replace(layers[j], **{columns: getattr(layers[j], columns)[:, order]})
    return with_layers(model, layers)


def rescale_units(
    model: Network, layer: int, scales: Float[Array, " m"] | Float[np.ndarray, " m"]
) -> Network:
    r"""Scaling symmetry: multiplies hidden units by $c$, $W_1 \to DW_1$, $b_1 \to Db_1$,
    $W_2 \to W_2 D^{-1}$ with $D = \mathrm{diag}(c)$ (§2.2).

    The function is unchanged if $\varphi(c_i z) = c_i \varphi(z)$: for $c > 0$ with `relu` and
    `leaky_relu`, for $c_i = \pm 1$ with odd functions such as `tanh`, for any $c \ne 0$ with
    `identity`. This is tested on a range of numbers; raises for an activation without the property
    and for a normalisation layer, which undoes the scales.

    >>> import jax.random as jr
    >>> net = MLP.init(2, 3, 1, key=jr.key(0))
    >>> other = rescale_units(net, 0, np.array([0.5, 2.0, 4.0]))
    >>> bool(jnp.allclose(other(jnp.ones(2)), net(jnp.ones(2)), atol=1e-6))
    True
    """
    layers, i, j = _find_layer("rescale_units", model, layer, (Pointwise, Dropout, Affine))
    c = np.asarray(scales, np.float64)
    width = len(layers[i].W)
    if c.shape != (width,) or not (np.isfinite(c) & (c != 0)).all():
        raise ValueError(
            f"rescale_units: expected {width} finite non-zero scales; got {c.tolist()}."
        )
    homogeneous = lambda phi, z: all(
        np.allclose(phi(a * z), a * phi(z), rtol=1e-4) for a in np.unique(c).tolist()
    )
    expect_activations(
        "rescale_units",
        layers[i:j],
        homogeneous,
        "does not commute with these scales; use positive scales for relu, -1 and 1 for tanh",
    )
    d = jnp.asarray(c, layers[i].W.dtype)
    layers[i:j] = [_scale_outputs(each, d) for each in layers[i:j]]
    W = layers[j].W / d[None]
    if isinstance(layers[j], Linear):
        layers[j] = replace(layers[j], W=W)
    else:
        layers[j] = WeightNorm(W, jnp.linalg.norm(W, axis=1), layers[j].b)
    return with_layers(model, layers)


def _scale_outputs(layer: Any, d: Float[Array, " m"]) -> Any:
    match layer:
        case Linear():
            b = None if layer.b is None else d * layer.b
            return Linear(d[:, None] * layer.W, b, layer.scale_W, layer.scale_b)
        case WeightNorm():
            return replace(layer, gamma=d * layer.gamma, b=d * layer.b)
        case Affine():
            return replace(layer, mu=d * layer.mu)
    return layer


def widen(model: Network, layer: int, units: Linear) -> Network:
    r"""Widens a hidden layer by units with outgoing weights 0: $G_{n,m} \subset G_{n,m+1}$ (§2.5).

    `units` has the incoming weights of the new units; the function is unchanged.

    >>> import jax.random as jr
    >>> net = MLP.init(2, 3, 1, key=jr.key(0))
    >>> wider = widen(net, 0, Linear.init(2, 5, key=jr.key(1)))
    >>> wider.body.layers[0].W.shape
    (8, 2)
    >>> bool(jnp.allclose(wider(jnp.ones(2)), net(jnp.ones(2)), atol=1e-6))
    True
    """
    layers, i, j = _find_layer("widen", model, layer, (Pointwise, Dropout))
    expect_pointwise("widen", layers[i:j])
    before = as_linear(layers[i])
    after = as_linear(layers[j])
    new = as_linear(units)
    if new.W.shape[1] != before.W.shape[1]:
        raise ValueError(
            f"widen: the new units have {new.W.shape[1]} inputs, the layer has "
            f"{before.W.shape[1]}; give units with {before.W.shape[1]} inputs."
        )
    layers[i] = Linear(
        jnp.concatenate([before.W, new.W]), jnp.concatenate([bias(before), bias(new)])
    )
    zeros = jnp.zeros((len(after.W), len(new.W)), after.W.dtype)
    layers[j] = Linear(jnp.concatenate([after.W, zeros], axis=1), after.b)
    return with_layers(model, layers)


def _find_layer(
    name: str, model: MLP | Chain, layer: int, allowed: tuple[type, ...]
) -> tuple[list[Any], int, int]:
    """The layers of the network, and the indices of the affine maps before and after hidden layer
    number `layer`; raises if another layer than the allowed ones lies between.
    """
    layers = layers_of(model)
    maps = [i for i, each in enumerate(layers) if isinstance(each, Map)]
    if not 0 <= layer < len(maps) - 1:
        raise ValueError(
            f"{name}: the chain has {max(0, len(maps) - 1)} hidden layers between affine maps, "
            f"counted from 0; got layer {layer}. A chain inside a residual block has its own "
            "layers: pass that block's inner chain."
        )
    i = maps[layer]
    j = maps[layer + 1]
    for each in layers[i + 1 : j]:
        if not isinstance(each, allowed):
            raise ValueError(
                f"{name}: a {type(each).__name__} follows layer {layer}, so this is not a "
                "symmetry of the network."
            )
    return layers, i, j


def expect_activations(
    name: str, layers: Sequence[Any], holds: Callable[[Activation, Array], bool], reason: str
) -> None:
    """Raises if an activation violates a property, tested on numbers from 0.01 to 100 of both
    signs.
    """
    size = np.logspace(-2, 2, 17)
    z = jnp.asarray(np.concatenate([-size[::-1], [0.0], size]), jnp.zeros(()).dtype)
    for layer in layers:
        if isinstance(layer, Pointwise) and not holds(layer.activation, z):
            activation = getattr(layer.activation, "__name__", repr(layer.activation))
            raise ValueError(f"{name}: the function would change, since {activation} {reason}.")


def expect_pointwise(name: str, layers: Sequence[Any]) -> None:
    """Raises for an activation that mixes units, such as softmax."""
    pointwise = lambda phi, z: np.allclose(phi(z)[:9], phi(z[:9]))
    expect_activations(name, layers, pointwise, "mixes the units")


def layers_of(model: MLP | Chain) -> list[Any]:
    """The layers of a chain or MLP."""
    return list((model.body if isinstance(model, MLP) else model).layers)


def with_layers(model: Any, layers: Sequence[Any]) -> Any:
    """A network of the same type with other layers."""
    return MLP(Chain(*layers)) if isinstance(model, MLP) else Chain(*layers)


def as_linear(layer: Any) -> Linear:
    """An affine layer as $Wx + b$, with weight normalisation and scales multiplied out."""
    if isinstance(layer, WeightNorm):
        return Linear(layer.W, layer.b)
    return Linear(layer.scale_W * layer.W, None if layer.b is None else layer.scale_b * layer.b)


def bias(layer: Linear) -> Float[Array, " m"]:
    """The bias $b$, or zeros if there is none."""
    return jnp.zeros(len(layer.W), layer.W.dtype) if layer.b is None else layer.b

r"""Algebra of networks (§2.3, §2.5): merging affine maps, exchanging activations, sums and
multiples.

- `merge_linear_layers`: merges a chain of affine maps into one
- `as_sigmoid`, `as_tanh`: the same function with the other activation
- `add_networks`, `scale_network`: the sum of two networks, or a multiple of one, as a network
"""

from typing import Any, TypeVar

import jax.numpy as jnp
from jax.scipy.linalg import block_diag

from ...layers import (
    Affine,
    Chain,
    Linear,
    Pointwise,
    Residual,
    WeightNorm,
    identity,
    sigmoid,
    tanh,
)
from ..mlp import MLP
from .symmetry import Map, as_linear, bias, expect_pointwise, layers_of, with_layers

Network = TypeVar("Network", MLP, Chain)


def merge_linear_layers(model: Any) -> Linear:
    r"""Merges a linear network into one affine map: $W = W_L \cdots W_1$,
    $b = \sum_\ell W_L \cdots W_{\ell+1} b_\ell$ (§2.3).

    Takes a `Chain` or `MLP` of affine maps, the identity, and residual connections around them. The
    rank of $W$ is at most the smallest width.

    >>> net = Chain(
    ...     Linear(jnp.array([[2.0]]), jnp.array([1.0])),
    ...     Linear(jnp.array([[3.0]]), jnp.array([4.0])),
    ... )
    >>> merge_linear_layers(net).W.item(), merge_linear_layers(net).b.item()
    (6.0, 7.0)
    """
    match model:
        case Linear() | WeightNorm():
            return Linear(as_linear(model).W, bias(as_linear(model)))
        case Affine():
            return Linear(jnp.diag(model.gamma), model.mu)
        case Residual():
            inner = merge_linear_layers(model.inner)
            skip = (
                Linear(jnp.eye(len(inner.W), dtype=inner.W.dtype))
                if model.skip is None
                else merge_linear_layers(model.skip)
            )
            return Linear(inner.W + skip.W, bias(inner) + bias(skip))
        case MLP():
            return merge_linear_layers(model.body)
        case Chain() if maps := [
            merge_linear_layers(part) for part in model.layers if not _is_identity(part)
        ]:
            W = maps[0].W
            b = bias(maps[0])
            for then in maps[1:]:
                W = then.W @ W
                b = then.W @ b + bias(then)
            return Linear(W, b)
    if isinstance(model, Pointwise):
        what = getattr(model.activation, "__name__", "")
    else:
        what = type(model).__name__
    if what in ("", "<lambda>"):
        raise ValueError(
            "merge_linear_layers: cannot tell whether a lambda is linear; use layers.identity for "
            "no activation."
        )
    raise ValueError(
        f"merge_linear_layers: {what} is not an affine map; only networks of affine maps can be "
        "merged."
    )


def _is_identity(part: Any) -> bool:
    return isinstance(part, Pointwise) and part.activation is identity


def as_sigmoid(model: Network) -> Network:
    r"""Replaces tanh by sigmoid without changing the function:
    $v^\top \tanh(Wx + b) = 2 v^\top \sigma(2Wx + 2b) - 1^\top v$ (§2.5).

    The constant goes into the next bias: without an output bias the two function classes differ by
    one unit.

    >>> import jax.random as jr
    >>> net = MLP.init(2, 3, 1, activation=tanh, key=jr.key(0))
    >>> bool(jnp.allclose(as_sigmoid(net)(jnp.ones(2)), net(jnp.ones(2)), atol=1e-6))
    True
    """
    return _replace_activation(
        "as_sigmoid", model, tanh, sigmoid, inside=2.0, outside=2.0, constant=-1.0
    )


def as_tanh(model: Network) -> Network:
    r"""Replaces sigmoid by tanh without changing the function:
    $\sigma(z) = \frac12 (1 + \tanh \frac z2)$ (§2.5).
    """
    return _replace_activation(
        "as_tanh", model, sigmoid, tanh, inside=0.5, outside=0.5, constant=0.5
    )


def _replace_activation(name, model, old, new, *, inside, outside, constant):
    """Replaces the activation `old(z) = outside * new(inside * z) + constant`; the affine maps
    before and after absorb the constants.
    """
    layers = layers_of(model)
    indices = [
        i
        for i, layer in enumerate(layers)
        if isinstance(layer, Pointwise) and layer.activation is old
    ]
    between = all(0 < i < len(layers) - 1 and isinstance(layers[i - 1], Map) for i in indices)
    if not (indices and between and all(isinstance(layers[i + 1], Map) for i in indices)):
        raise ValueError(f"{name}: expected {old.__name__} between affine maps, and only there.")
    for i in indices:
        before = as_linear(layers[i - 1])
        after = as_linear(layers[i + 1])
        layers[i - 1] = Linear(inside * before.W, inside * bias(before))
        layers[i] = Pointwise(new)
        layers[i + 1] = Linear(outside * after.W, bias(after) + constant * after.W.sum(axis=1))
    return with_layers(model, layers)


def add_networks(f: Network, g: Network) -> Network:
    r"""The sum $f + g$ as one network: the hidden layers are concatenated, so the widths add up
    (§2.5).

    Both networks need the same input, output, depth and activations. So $G_n$ is closed under sums:
    it is the span of its units.

    >>> import jax.random as jr
    >>> f, g = MLP.init(2, 3, 1, key=jr.key(0)), MLP.init(2, 5, 1, key=jr.key(1))
    >>> x = jnp.ones(2)
    >>> total = add_networks(f, g)
    >>> total.body.layers[0].W.shape, bool(jnp.allclose(total(x), f(x) + g(x), atol=1e-6))
    ((8, 2), True)
    """
    left = layers_of(f)
    right = layers_of(g)
    kinds, others = ([_kind(layer) for layer in layers] for layers in (left, right))
    if kinds != others or None in kinds or len(kinds) < 3 or not kinds[0] == kinds[-1] == "map":
        raise ValueError(
            "add_networks: expected two networks of equal depth, affine maps with the same "
            f"activations between them; got {_describe(left)} and {_describe(right)}."
        )
    expect_pointwise("add_networks", left)
    maps = [i for i, kind in enumerate(kinds) if kind == "map"]
    for i in maps:
        left[i] = _concatenate(
            as_linear(left[i]), as_linear(right[i]), first=i == maps[0], last=i == maps[-1]
        )
    return with_layers(f, left)


def _kind(layer: Any) -> Any:
    """The activation of a pointwise layer, "map" for an affine map, None for any other layer."""
    if isinstance(layer, Pointwise):
        return layer.activation
    return "map" if isinstance(layer, Map) else None


def _describe(layers: list[Any]) -> str:
    return "-".join(
        layer.activation.__name__ if isinstance(layer, Pointwise) else type(layer).__name__
        for layer in layers
    )


def _concatenate(a: Linear, b: Linear, *, first: bool, last: bool) -> Linear:
    """The affine map of both networks side by side: stacked outputs in the first layer, summed
    outputs in the last, block-diagonal in between.
    """
    if first:
        return Linear(jnp.concatenate([a.W, b.W]), jnp.concatenate([bias(a), bias(b)]))
    if last:
        return Linear(jnp.concatenate([a.W, b.W], axis=1), bias(a) + bias(b))
    return Linear(block_diag(a.W, b.W), jnp.concatenate([bias(a), bias(b)]))


def scale_network(model: Network, factor: float) -> Network:
    r"""The multiple $c f$ as a network: scales the last affine map (§2.5).

    >>> import jax.random as jr
    >>> net = MLP.init(2, 3, 1, key=jr.key(0))
    >>> bool(scale_network(net, -2.0)(jnp.ones(2)) == -2 * net(jnp.ones(2)))
    True
    """
    *layers, last = layers_of(model)
    if not isinstance(last, Map):
        raise ValueError(
            "scale_network: the network must end with an affine map; it ends with "
            f"{type(last).__name__}."
        )
    last = as_linear(last)
    return with_layers(model, [*layers, Linear(factor * last.W, factor * bias(last))])

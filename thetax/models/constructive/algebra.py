r"""Arithmetic on networks (§2.3, §2.5): many maps as one, one activation for another, sums and
multiples.

`collapse`               affine maps one after another as one
`as_sigmoid`, `as_tanh`  one activation for the other
`add`, `multiply`        the sum of two networks, and the multiple of one, as a network
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
from .symmetry import Map, bias, expect_pointwise, parts_of, plain, rebuilt

Network = TypeVar("Network", MLP, Chain)


def collapse(model: Any) -> Linear:
    r"""One map for many: $W = W_L \cdots W_1$, $b = \sum_\ell W_L \cdots W_{\ell+1} b_\ell$ (§2.3).

    Takes a `Chain` or `MLP` of affine maps, the identity, and residual connections around them. The
    rank of $W$ is at most the least width.

    >>> net = Chain(
    ...     Linear(jnp.array([[2.0]]), jnp.array([1.0])),
    ...     Linear(jnp.array([[3.0]]), jnp.array([4.0])),
    ... )
    >>> collapse(net).W.item(), collapse(net).b.item()
    (6.0, 7.0)
    """
    match model:
        case Linear() | WeightNorm():
            return Linear(plain(model).W, bias(plain(model)))
        case Affine():
            return Linear(jnp.diag(model.gamma), model.mu)
        case Residual():
            inner = collapse(model.inner)
            skip = (
                Linear(jnp.eye(len(inner.W), dtype=inner.W.dtype))
                if model.skip is None
                else collapse(model.skip)
            )
            return Linear(inner.W + skip.W, bias(inner) + bias(skip))
        case MLP():
            return collapse(model.body)
        case Chain() if maps := [collapse(part) for part in model.layers if not _is_identity(part)]:
            W = maps[0].W
            b = bias(maps[0])
            for then in maps[1:]:
                W = then.W @ W
                b = then.W @ b + bias(then)
            return Linear(W, b)
    what = (
        getattr(model.activation, "__name__", "")
        if isinstance(model, Pointwise)
        else type(model).__name__
    )
    if what in ("", "<lambda>"):
        raise ValueError(
            "collapse: what a lambda does is not looked at; write layers.identity for no "
            "activation."
        )
    raise ValueError(
        f"collapse: {what} is not an affine map, so the network is not one; only affine maps "
        "collapse."
    )


def _is_identity(part: Any) -> bool:
    return isinstance(part, Pointwise) and part.activation is identity


def as_sigmoid(model: Network) -> Network:
    r"""The same function with sigmoids for tanh:
    $v^\top \tanh(Wx + b) = 2 v^\top \sigma(2Wx + 2b) - 1^\top v$ (§2.5).

    The constant goes into the next bias: without an output bias the two classes differ by one unit.

    >>> import jax.random as jr
    >>> net = MLP.init(2, 3, 1, activation=tanh, key=jr.key(0))
    >>> bool(jnp.allclose(as_sigmoid(net)(jnp.ones(2)), net(jnp.ones(2)), atol=1e-6))
    True
    """
    return _exchanged("as_sigmoid", model, tanh, sigmoid, inside=2.0, outside=2.0, constant=-1.0)


def as_tanh(model: Network) -> Network:
    r"""The same function with tanh for sigmoids: $\sigma(z) = \frac12 (1 + \tanh \frac z2)$
    (§2.5).
    """
    return _exchanged("as_tanh", model, sigmoid, tanh, inside=0.5, outside=0.5, constant=0.5)


def _exchanged(name, model, old, new, *, inside, outside, constant):
    """The old activation is `outside * new(inside * z) + constant`; the maps around it absorb the
    numbers.
    """
    parts = parts_of(model)
    found = [
        i for i, part in enumerate(parts) if isinstance(part, Pointwise) and part.activation is old
    ]
    inner = all(0 < i < len(parts) - 1 and isinstance(parts[i - 1], Map) for i in found)
    if not (found and inner and all(isinstance(parts[i + 1], Map) for i in found)):
        raise ValueError(f"{name}: expected {old.__name__} between affine maps, and only there.")
    for i in found:
        before = plain(parts[i - 1])
        after = plain(parts[i + 1])
        parts[i - 1] = Linear(inside * before.W, inside * bias(before))
        parts[i] = Pointwise(new)
        parts[i + 1] = Linear(outside * after.W, bias(after) + constant * after.W.sum(axis=1))
    return rebuilt(model, parts)


def add(f: Network, g: Network) -> Network:
    r"""$f + g$ as one network, side by side: the widths add up (§2.5).

    The networks share input, output, depth and activations. So $G_n$ is closed under sums: it is
    the span of its units.

    >>> import jax.random as jr
    >>> f, g = MLP.init(2, 3, 1, key=jr.key(0)), MLP.init(2, 5, 1, key=jr.key(1))
    >>> x = jnp.ones(2)
    >>> add(f, g).body.layers[0].W.shape, bool(jnp.allclose(add(f, g)(x), f(x) + g(x), atol=1e-6))
    ((8, 2), True)
    """
    left = parts_of(f)
    right = parts_of(g)
    kinds, others = ([_kind(part) for part in side] for side in (left, right))
    if kinds != others or None in kinds or len(kinds) < 3 or not kinds[0] == kinds[-1] == "map":
        raise ValueError(
            "add: expected two networks of one depth, affine maps with the same activations "
            f"between them; got {_told(left)} and {_told(right)}."
        )
    expect_pointwise("add", left)
    maps = [i for i, kind in enumerate(kinds) if kind == "map"]
    for i in maps:
        left[i] = _side_by_side(
            plain(left[i]), plain(right[i]), first=i == maps[0], last=i == maps[-1]
        )
    return rebuilt(f, left)


def _kind(part: Any) -> Any:
    return (
        part.activation if isinstance(part, Pointwise) else "map" if isinstance(part, Map) else None
    )


def _told(parts: list[Any]) -> str:
    return "-".join(
        part.activation.__name__ if isinstance(part, Pointwise) else type(part).__name__
        for part in parts
    )


def _side_by_side(a: Linear, b: Linear, *, first: bool, last: bool) -> Linear:
    if first:
        return Linear(jnp.concatenate([a.W, b.W]), jnp.concatenate([bias(a), bias(b)]))
    if last:
        return Linear(jnp.concatenate([a.W, b.W], axis=1), bias(a) + bias(b))
    return Linear(block_diag(a.W, b.W), jnp.concatenate([bias(a), bias(b)]))


def multiply(model: Network, factor: float) -> Network:
    r"""$c f$ as a network: the last map scaled (§2.5).

    >>> import jax.random as jr
    >>> net = MLP.init(2, 3, 1, key=jr.key(0))
    >>> bool(multiply(net, -2.0)(jnp.ones(2)) == -2 * net(jnp.ones(2)))
    True
    """
    *parts, last = parts_of(model)
    if not isinstance(last, Map):
        raise ValueError(
            "multiply: the network must end with an affine map; it ends with "
            f"{type(last).__name__}."
        )
    last = plain(last)
    return rebuilt(model, [*parts, Linear(factor * last.W, factor * bias(last))])

r"""The rules for images and sequences (§4.2): convolutions and means pass on the moments of places.

A convolution with windows of $|w|$ places averages along the diagonal of pairs of places, as its
stride, dilation and boundary say, and is then affine as any other (Novak et al. 2019, Arora et al.
2019):

$$k[i, i'] \mapsto \frac1{|w|} \sum_j k[si + dj,\; si' + dj].$$

A mean over places is a linear map of them, applied to both places of a pair.
"""

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...layers import AdaptivePool, AveragePool, Convolution, MaxPool, global_max, global_mean
from ...layers.convolution.convolution import each, padded
from ...models import CNN, ResNet
from .covariance_features import Features, Given, NeedsPairs
from .rules import FUNCTIONS, WHY, At, NoLimit, Seen, drawn, in_turn, known, limit_of, ravelled

LARGEST = (
    "takes the largest of dependent numbers, whose moments have no closed form; AveragePool has "
    "a limit."
)
WHY[MaxPool] = LARGEST
Numbers = Float[Array, "..."]


@limit_of.register
def _(layer: Convolution, seen: Seen, at: At) -> Features:
    if layer.groups != 1:
        raise NoLimit(
            "Convolution", at.path, f"has groups={layer.groups}, which see different channels."
        )
    window = layer.W.shape[2:]
    space = layer.W.ndim - 2
    stride = each("stride", layer.stride, space)
    dilation = each("dilation", layer.dilation, space)

    def windows(k: Numbers, lead: int) -> Numbers:
        for a, size in enumerate(window):
            axes = range(lead + a, k.ndim, space)
            k = _along(k, tuple(axes), size, stride[a], dilation[a], layer.boundary)
        return k / math.prod(window)

    return drawn(known(seen).mixed(windows), layer, at)


def _along(
    k: Numbers, axes: tuple[int, ...], size: int, stride: int, dilation: int, boundary: Any
) -> Numbers:
    """The sum over a window along one axis of space, the same step on both places of a pair."""
    reach = dilation * (size - 1)
    edges = [padded(boundary, reach) if axis in axes else (0, 0) for axis in range(k.ndim)]
    k = jnp.pad(k, edges, mode="wrap" if boundary == "circular" else "constant")
    last = (k.shape[axes[0]] - reach - 1) // stride * stride
    total = jnp.zeros((), k.dtype)
    for start in range(0, reach + 1, dilation):
        part = k
        for axis in axes:
            part = jax.lax.slice_in_dim(part, start, start + last + 1, stride, axis)
        total = part if start == 0 else total + part
    return total


def _pooled(pool: Any, seen: Seen) -> Seen:
    """A mean over places, by the layer itself."""
    if isinstance(seen, Given):
        return seen.map(pool)
    if not seen.pairs:
        raise NeedsPairs
    space = seen.space

    def both(k: Numbers, lead: int) -> Numbers:
        for _ in range((k.ndim - lead) // space):  # the last places, which then become the first
            front = k.shape[:-space]
            places = k.shape[-space:]
            k = pool(k.reshape(-1, *places))
            left = k.ndim - 1
            k = k.reshape(*front, *k.shape[1:])
            k = jnp.moveaxis(k, range(k.ndim - left, k.ndim), range(lead, lead + left))
        return k

    means = None if seen.means is None else (both(seen.means[0], 1), both(seen.means[1], 1))
    found = seen.mixed(both)
    left = (found.k.ndim - 2) // 2
    return replace(found, means=means, space=left, pairs=left > 0)


@limit_of.register
def _(layer: AveragePool, seen: Seen, at: At) -> Seen:
    return _pooled(layer, seen)


@limit_of.register
def _(layer: AdaptivePool, seen: Seen, at: At) -> Seen:
    if layer.of is not jnp.mean:
        raise NoLimit("AdaptivePool", at.path, LARGEST)
    return _pooled(layer, seen)


def _refused(f: Any, seen: Seen, at: At) -> Seen:
    raise NoLimit("global_max", at.path, LARGEST)


FUNCTIONS[global_mean] = lambda f, seen, at: _pooled(f, seen)
FUNCTIONS[global_max] = _refused


@limit_of.register
def _(layer: CNN, seen: Seen, at: At) -> Seen:
    seen = _pooled(
        AdaptivePool((layer.pool_size, layer.pool_size)),
        in_turn(layer.stages, seen, at.inside("stages")),
    )
    return limit_of(layer.head, ravelled(jnp.ravel, seen, at), at.inside("head"))


@limit_of.register
def _(layer: ResNet, seen: Seen, at: At) -> Seen:
    seen = in_turn(layer.stages, limit_of(layer.stem, seen, at.inside("stem")), at.inside("stages"))
    return limit_of(layer.head, _pooled(global_mean, seen), at.inside("head"))

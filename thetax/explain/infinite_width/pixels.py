r"""Rules for images and sequences (§4.2): convolutions and averages of positions.

A convolution whose window $w$ has $|w|$ positions averages along the diagonals of the pairs of
positions, with its stride, dilation and boundary, and is an affine layer otherwise (Novak et al.
2019, Arora et al. 2019):

$$k[i, i'] \mapsto \frac1{|w|} \sum_j k[si + dj,\; si' + dj].$$

An average over positions is a linear map, applied to both positions of a pair.
"""

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...layers import AdaptivePool, AveragePool, Convolution, MaxPool, global_max, global_mean
from ...layers.convolution.convolution import padding_sizes, per_axis
from ...models import CNN, ResNet
from .covariance_features import Features, Inputs, NeedsPositionPairs
from .rules import (
    FUNCTION_RULES,
    REASONS,
    Location,
    Moments,
    NoInfiniteWidthLimit,
    affine,
    as_features,
    propagate_moments,
    propagate_sequence,
    ravel_positions,
)

MAXIMUM = (
    "takes the maximum of dependent variables, whose moments have no closed form; use AveragePool."
)
REASONS[MaxPool] = MAXIMUM
Values = Float[Array, "..."]


@propagate_moments.register
def _(layer: Convolution, moments: Moments, location: Location) -> Features:
    if layer.groups != 1:
        raise NoInfiniteWidthLimit(
            "Convolution",
            location.path,
            f"has groups={layer.groups}, which read different channels.",
        )
    window = layer.W.shape[2:]
    spatial_axes = layer.W.ndim - 2
    stride = per_axis("stride", layer.stride, spatial_axes)
    dilation = per_axis("dilation", layer.dilation, spatial_axes)

    def average_windows(k: Values, n_example_axes: int) -> Values:
        for a, size in enumerate(window):
            axes = tuple(range(n_example_axes + a, k.ndim, spatial_axes))
            k = _window_sums(k, axes, size, stride[a], dilation[a], layer.boundary)
        return k / math.prod(window)

    return affine(as_features(moments).map_positions(average_windows), layer, location)


def _window_sums(
    k: Values, axes: tuple[int, ...], size: int, stride: int, dilation: int, boundary: Any
) -> Values:
    """Sums over windows along one spatial axis, at the same offset for both positions of a pair."""
    extent = dilation * (size - 1)
    padding = [
        padding_sizes(boundary, extent) if axis in axes else (0, 0) for axis in range(k.ndim)
    ]
    k = jnp.pad(k, padding, mode="wrap" if boundary == "circular" else "constant")
    last = (k.shape[axes[0]] - extent - 1) // stride * stride
    total = jnp.zeros((), k.dtype)
    for start in range(0, extent + 1, dilation):
        part = k
        for axis in axes:
            part = jax.lax.slice_in_dim(part, start, start + last + 1, stride, axis)
        total = part if start == 0 else total + part
    return total


def _average_positions(pool: Any, moments: Moments) -> Moments:
    """An average over positions, computed by the layer itself."""
    if isinstance(moments, Inputs):
        return moments.map(pool)
    if not moments.pairs:
        raise NeedsPositionPairs
    spatial_axes = moments.spatial_axes

    def pool_all(k: Values, n_example_axes: int) -> Values:
        # pools the last spatial axes and moves them to the front, once for each position of a pair
        for _ in range((k.ndim - n_example_axes) // spatial_axes):
            leading = k.shape[:-spatial_axes]
            k = pool(k.reshape(-1, *k.shape[-spatial_axes:]))
            remaining = k.ndim - 1
            k = k.reshape(*leading, *k.shape[1:])
            k = jnp.moveaxis(
                k,
                range(k.ndim - remaining, k.ndim),
                range(n_example_axes, n_example_axes + remaining),
            )
        return k

    means = moments.means
    if means is not None:
        means = pool_all(means[0], 1), pool_all(means[1], 1)
    pooled = moments.map_positions(pool_all)
    remaining = (pooled.k.ndim - 2) // 2
    return replace(pooled, means=means, spatial_axes=remaining, pairs=remaining > 0)


@propagate_moments.register
def _(layer: AveragePool, moments: Moments, location: Location) -> Moments:
    return _average_positions(layer, moments)


@propagate_moments.register
def _(layer: AdaptivePool, moments: Moments, location: Location) -> Moments:
    if layer.reduction is not jnp.mean:
        raise NoInfiniteWidthLimit("AdaptivePool", location.path, MAXIMUM)
    return _average_positions(layer, moments)


def _global_max(f: Any, moments: Moments, location: Location) -> Moments:
    raise NoInfiniteWidthLimit("global_max", location.path, MAXIMUM)


FUNCTION_RULES[global_mean] = lambda f, moments, location: _average_positions(f, moments)
FUNCTION_RULES[global_max] = _global_max


@propagate_moments.register
def _(layer: CNN, moments: Moments, location: Location) -> Moments:
    moments = propagate_sequence(layer.stages, moments, location.child("stages"))
    moments = _average_positions(AdaptivePool((layer.pool_size, layer.pool_size)), moments)
    moments = ravel_positions(jnp.ravel, moments, location)
    return propagate_moments(layer.head, moments, location.child("head"))


@propagate_moments.register
def _(layer: ResNet, moments: Moments, location: Location) -> Moments:
    moments = propagate_moments(layer.stem, moments, location.child("stem"))
    moments = propagate_sequence(layer.stages, moments, location.child("stages"))
    moments = _average_positions(global_mean, moments)
    return propagate_moments(layer.head, moments, location.child("head"))

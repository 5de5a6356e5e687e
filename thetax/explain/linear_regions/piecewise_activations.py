r"""Piecewise linear activation functions (§2.6): their kinks, slopes and offsets.

To add an activation, add one entry: `PIECEWISE_LINEAR[f] = PiecewiseLinear(kinks, slopes,
offsets)`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...layers import (
    centred,
    gelu,
    heaviside,
    identity,
    leaky_relu,
    relu,
    sigmoid,
    sign,
    softmax,
    softplus,
    spin,
    tanh,
)


class PiecewiseLinear(NamedTuple):
    """A continuous piecewise linear scalar function: its kinks, and slope and offset of each
    piece.
    """

    kinks: tuple[float, ...]
    slopes: tuple[float, ...]
    offsets: tuple[float, ...]


PIECEWISE_LINEAR: dict[Callable[..., Any], PiecewiseLinear] = {
    identity: PiecewiseLinear((), (1.0,), (0.0,)),
    relu: PiecewiseLinear((0.0,), (0.0, 1.0), (0.0, 0.0)),
    leaky_relu: PiecewiseLinear((0.0,), (0.01, 1.0), (0.0, 0.0)),
    jnp.abs: PiecewiseLinear((0.0,), (-1.0, 1.0), (0.0, 0.0)),
    jax.nn.relu6: PiecewiseLinear((0.0, 6.0), (0.0, 1.0, 0.0), (0.0, 0.0, 6.0)),
    jax.nn.hard_tanh: PiecewiseLinear((-1.0, 1.0), (0.0, 1.0, 0.0), (-1.0, 0.0, 1.0)),
}
PIECEWISE_LINEAR |= {
    centred(f): line for f, line in PIECEWISE_LINEAR.items()
}  # all of these are 0 at 0

STEP_FUNCTIONS = {f for step in (heaviside, sign, spin) for f in (step, centred(step))} | {jnp.sign}
SMOOTH_FUNCTIONS = {
    f
    for curve in (
        sigmoid,
        tanh,
        softplus,
        gelu,
        jax.nn.gelu,
        jax.nn.silu,
        jax.nn.elu,
        jax.nn.selu,
        jax.nn.celu,
        softmax,
        jnp.sin,
        jnp.cos,
        jnp.exp,
        jnp.square,
    )
    for f in (curve, centred(curve))
}


def piecewise_linear_form(f: Callable[..., Any]) -> PiecewiseLinear:
    """Kinks, slopes and offsets of an activation; raises a `ValueError` with the reason if it is
    not piecewise linear.

    >>> piecewise_linear_form(jax.nn.relu).slopes
    (0.0, 1.0)
    >>> piecewise_linear_form(jnp.tanh)
    Traceback (most recent call last):
    ValueError: is not piecewise linear, so the network has no linear regions.
    """
    if (
        isinstance(f, partial)
        and f.func is leaky_relu
        and set(f.keywords) == {"negative_slope"}
        and not f.args
    ):
        return PiecewiseLinear((0.0,), (float(f.keywords["negative_slope"]), 1.0), (0.0, 0.0))
    if f in PIECEWISE_LINEAR:
        return PIECEWISE_LINEAR[f]
    if f in STEP_FUNCTIONS:
        raise ValueError(
            "is a step function: the network is piecewise constant and has a decision boundary, "
            "but no linear regions."
        )
    if f in SMOOTH_FUNCTIONS:
        raise ValueError("is not piecewise linear, so the network has no linear regions.")
    raise ValueError(
        "is not known to be piecewise linear. Supported are relu, leaky_relu, abs, relu6, "
        "hard_tanh and identity; add others to "
        "thetax.explain.linear_regions.piecewise_activations.PIECEWISE_LINEAR: PIECEWISE_LINEAR[f] "
        "= PiecewiseLinear(kinks, slopes, offsets)."
    )

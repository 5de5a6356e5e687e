r"""Functions of one number with kinks (§2.6): what a network of linear regions is made of besides
affine maps.

A new one is one entry: `KINKED[f] = Kinked(kinks, slopes, offsets)`.
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


class Kinked(NamedTuple):
    """A continuous piecewise linear function of one number: its kinks, and the line on each
    piece.
    """

    kinks: tuple[float, ...]
    slopes: tuple[float, ...]
    offsets: tuple[float, ...]


KINKED: dict[Callable[..., Any], Kinked] = {
    identity: Kinked((), (1.0,), (0.0,)),
    relu: Kinked((0.0,), (0.0, 1.0), (0.0, 0.0)),
    leaky_relu: Kinked((0.0,), (0.01, 1.0), (0.0, 0.0)),
    jnp.abs: Kinked((0.0,), (-1.0, 1.0), (0.0, 0.0)),
    jax.nn.relu6: Kinked((0.0, 6.0), (0.0, 1.0, 0.0), (0.0, 0.0, 6.0)),
    jax.nn.hard_tanh: Kinked((-1.0, 1.0), (0.0, 1.0, 0.0), (-1.0, 0.0, 1.0)),
}
KINKED |= {centred(f): line for f, line in KINKED.items()}  # all of these are 0 at 0

STEPS = {f for step in (heaviside, sign, spin) for f in (step, centred(step))} | {jnp.sign}
SMOOTH = {
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


def kinked(f: Callable[..., Any]) -> Kinked:
    """The kinks and lines of a function, or a `ValueError` that says why it has none.

    >>> kinked(jax.nn.relu).slopes
    (0.0, 1.0)
    >>> kinked(jnp.tanh)
    Traceback (most recent call last):
    ValueError: is not piecewise linear, so that the network has no linear regions.
    """
    if (
        isinstance(f, partial)
        and f.func is leaky_relu
        and set(f.keywords) == {"negative_slope"}
        and not f.args
    ):
        return Kinked((0.0,), (float(f.keywords["negative_slope"]), 1.0), (0.0, 0.0))
    if f in KINKED:
        return KINKED[f]
    if f in STEPS:
        raise ValueError(
            "jumps, so that the network is piecewise constant there and has a boundary alone."
        )
    if f in SMOOTH:
        raise ValueError("is not piecewise linear, so that the network has no linear regions.")
    raise ValueError(
        "is not known to be piecewise linear. Known are relu, leaky_relu, abs, relu6, hard_tanh "
        "and identity of jax.nn, and what is added to "
        "thetax.explain.linear_regions.piecewise_activations.KINKED: KINKED[f] = Kinked(kinks, "
        "slopes, offsets)."
    )

r"""How layers transform the moments of infinitely many features (§9.4, §10.2): one rule for each
type of layer.

An affine layer $s_W W h + s_b b$ of $n$ inputs, with $\mathrm{Var}\,W_{ij} = \varsigma_W^2$ and
$\mathrm{Var}\,b_i = \varsigma_b^2$, maps $k = \frac1n \sum_j h_j h'_j$ and $\Theta$ to

$$k \mapsto \sigma_W^2\, k + \sigma_b^2, \qquad \Theta \mapsto n s_W^2\, k + s_b^2 + \sigma_W^2\,
\Theta, \qquad
\sigma_W^2 = n s_W^2 \varsigma_W^2, \quad \sigma_b^2 = s_b^2 \varsigma_b^2.$$

In the NTK parametrisation $n s_W^2 = \sigma_W^2$, and nothing depends on the width. In the standard
parametrisation $s_W = 1$ and $\Theta$ grows with the width; its leading order at the widths of the
model is returned (Sohl-Dickstein et al. 2020). Rules for other types of modules are added by
`propagate_moments.register`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ...layers import (
    Activation,
    Attention,
    BatchNorm,
    Cell,
    Chain,
    Concat,
    DropConnect,
    Dropout,
    Ensemble,
    Initialiser,
    Linear,
    Pointwise,
    Recurrent,
    Residual,
    Stacked,
    fan_in,
    mean_output,
)
from ...models import MLP, LeNet
from .covariance_features import Features, Inputs

Moments = Inputs | Features
Initialisers = Initialiser | Callable[[str], Initialiser] | None


class NoInfiniteWidthLimit(ValueError):
    """A module has no known infinite-width limit.

    >>> str(NoInfiniteWidthLimit("MaxPool", "layers.1", "takes a maximum."))
    'infinite_width_limit: MaxPool at layers.1 takes a maximum.'
    """

    def __init__(self, module: str, path: str, reason: str):
        location = f" at {path}" if path else ""
        super().__init__(f"infinite_width_limit: {module}{location} {reason}")


class Scales(NamedTuple):
    r"""$\sigma_W^2$ and $\sigma_b^2$, which scale the moments, and $n s_W^2$ and $s_b^2$, with
    which the layer's own parameters contribute to the tangent kernel.
    """

    W: float
    b: float
    trained_W: float
    trained_b: float


@dataclass(frozen=True)
class Location:
    """The position in the model at which a rule is applied, and the initialiser of its weights."""

    initialiser: Initialisers
    path: str = ""

    def child(self, name: str) -> "Location":
        """The location of a submodule."""
        return replace(self, path=f"{self.path}.{name}" if self.path else name)

    def scales(self, layer: Any) -> Scales:
        """The scales of an affine layer with `W`, `b`, `scale_W` and `scale_b`."""
        shape = tuple(layer.W.shape)
        initialiser = (
            self.initialiser
            if isinstance(self.initialiser, Initialiser | None)
            else self.initialiser(self.path)
        )
        n = fan_in(shape)
        kind = type(layer).__name__
        if initialiser is None and layer.scale_W == layer.scale_b == 1:
            reason = (
                "is in the standard parametrisation, where the initialiser is unknown; give it, as "
                "in initialiser=he."
            )
            raise NoInfiniteWidthLimit(kind, self.path, reason)
        if initialiser is None:
            s_W = layer.scale_W
            s_b = layer.scale_b
            std_W = 1.0
            std_b = 1.0
        elif initialiser.std_W is None:
            raise NoInfiniteWidthLimit(
                kind,
                self.path,
                "has an initialiser of unknown standard deviation; give it: "
                "Initialiser(..., std_W=...).",
            )
        else:
            s_W = initialiser.scale_W(shape)
            s_b = initialiser.scale_b
            std_W = initialiser.std_W(shape)
            std_b = initialiser.std_b
        s_b = 0.0 if layer.b is None else s_b
        return Scales(n * (s_W * std_W) ** 2, (s_b * std_b) ** 2, n * s_W**2, s_b**2)


RECURRENT = (
    "shares its weights across steps, so that the steps are dependent; there is no rule for it."
)
REASONS: dict[type, str] = {
    BatchNorm: "makes the examples of a batch dependent; use LayerNorm, or no norm.",
    Attention: "has a limit only with scores divided by d instead of its root, or without softmax "
    "(Hron et al. 2020).",
    Cell: RECURRENT,
    Recurrent: RECURRENT,
}


@singledispatch
def propagate_moments(module: Any, moments: Moments, location: Location) -> Moments:
    """The moments of the module's outputs, from those of its inputs. Rules for other types of
    modules are added by `propagate_moments.register`.

    A rule gets the module, with shapes in place of weights; the moments, which are `Features`, or
    `Inputs` before the first weight; and the location in the model. It calls `propagate_moments`
    for submodules.

    >>> import equinox as eqx
    >>> class Named(eqx.Module):
    ...     inner: Chain
    ...     name: str = eqx.field(static=True)
    ...
    ...     def __call__(self, x):
    ...         return self.inner(x)
    >>> @propagate_moments.register
    ... def _(module: Named, moments: Inputs | Features, location: Location):
    ...     return propagate_moments(module.inner, moments, location.child("inner"))
    """
    raise no_rule(module, location.path)


def no_rule(module: Any, path: str) -> NoInfiniteWidthLimit:
    """The error for a module without a rule."""
    default = (
        "has no known limit; add a rule for it with thetax.explain.propagate_moments.register."
    )
    reasons = (reason for kind, reason in REASONS.items() if isinstance(module, kind))
    reason = next(reasons, default)
    return NoInfiniteWidthLimit(type(module).__name__, path, reason)


def as_features(moments: Moments) -> Features:
    """The moments as features; the channels of the inputs are their features."""
    return moments.features() if isinstance(moments, Inputs) else moments


def affine(features: Features, layer: Any, location: Location) -> Features:
    """The outputs of an affine layer, from features that have been averaged over its window."""
    s = location.scales(layer)
    k = features.k
    return replace(
        features,
        k=s.W * k + s.b,
        theta=s.trained_W * k + s.trained_b + s.W * features.theta,
        k_xx=s.W * features.k_xx + s.b,
        k_yy=s.W * features.k_yy + s.b,
        means=None,
        width=layer.W.shape[0],
        is_gaussian=True,
        sources=frozenset({location.path}),
    )


@propagate_moments.register
def _(layer: Linear, moments: Moments, location: Location) -> Features:
    if isinstance(moments, Inputs):
        moments = moments.map(jnp.ravel)
    return affine(as_features(moments).flatten(), layer, location)


FUNCTION_RULES: dict[Callable[..., Array], Callable[[Activation, Moments, Location], Moments]] = {}


@propagate_moments.register
def _(layer: Pointwise, moments: Moments, location: Location) -> Moments:
    f = layer.activation
    if f in FUNCTION_RULES:
        return FUNCTION_RULES[f](f, moments, location)
    if isinstance(moments, Inputs):
        return moments.map(f)
    if not moments.is_gaussian:
        reason = (
            "is applied to features that are not Gaussian in the limit; put an affine layer before "
            "it."
        )
        raise NoInfiniteWidthLimit(function_name(f), location.path, reason)
    return moments.apply_activation(f)


def function_name(f: Any) -> str:
    """The name of a function, or of the type of a callable."""
    return getattr(f, "__name__", type(f).__name__)


def ravel_positions(f: Activation, moments: Moments, location: Location) -> Moments:
    """Flattens the positions."""
    return moments.map(f) if isinstance(moments, Inputs) else moments.at_equal_positions()


FUNCTION_RULES[jnp.ravel] = ravel_positions


@propagate_moments.register
def _(layer: Dropout, moments: Moments, location: Location) -> Moments:
    return moments  # dropout is the identity without a key


@propagate_moments.register
def _(layer: DropConnect, moments: Moments, location: Location) -> Moments:
    return propagate_moments(layer.inner, moments, location.child("inner"))


@propagate_moments.register
def _(layer: Chain, moments: Moments, location: Location) -> Moments:
    return propagate_sequence(layer.layers, moments, location.child("layers"))


@propagate_moments.register
def _(layer: Stacked, moments: Moments, location: Location) -> Moments:
    layers = [member_shapes(layer.layers)] * n_members(layer.layers)
    return propagate_sequence(layers, moments, location.child("layers"))


def propagate_sequence(layers: Sequence[Any], moments: Moments, location: Location) -> Moments:
    """Applies the rules of the layers in order."""
    for i, layer in enumerate(layers):
        moments = propagate_moments(layer, moments, location.child(str(i)))
    return moments


def n_members(stack: Any) -> int:
    """The number of stacked modules."""
    return jax.tree.leaves(stack)[0].shape[0]


def member_shapes(stack: Any) -> Any:
    """One of the stacked modules, with shapes in place of arrays."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), stack)


@propagate_moments.register
def _(layer: Residual, moments: Moments, location: Location) -> Features:
    skip = moments
    if layer.skip is not None:
        skip = propagate_moments(layer.skip, moments, location.child("skip"))
    skip = as_features(skip)
    inner = as_features(propagate_moments(layer.inner, moments, location.child("inner")))
    if skip.sources & inner.sources:
        reason = "adds dependent features; one of its two branches needs an affine layer."
        raise NoInfiniteWidthLimit("Residual", location.path, reason)
    return skip.add(inner)


@propagate_moments.register
def _(layer: Concat, moments: Moments, location: Location) -> Features:
    inner = propagate_moments(layer.inner, moments, location.child("inner"))
    return as_features(moments).concatenate(as_features(inner))


@propagate_moments.register
def _(layer: Ensemble, moments: Moments, location: Location) -> Features:
    if layer.pool is not mean_output:
        raise NoInfiniteWidthLimit(
            "Ensemble",
            location.path,
            f"pools by {function_name(layer.pool)}; only the mean of Gaussians is Gaussian.",
        )
    member = propagate_moments(member_shapes(layer.members), moments, location.child("members"))
    member = as_features(member).with_averaged_ntk
    n = n_members(layer.members)
    if not member.is_gaussian:
        raise NoInfiniteWidthLimit(
            "Ensemble",
            location.path,
            "has members whose outputs are not Gaussian; end them in a Linear.",
        )
    return replace(
        member,
        k=member.k / n,
        theta=member.theta / n,
        k_xx=member.k_xx / n,
        k_yy=member.k_yy / n,
    )


@propagate_moments.register
def _(layer: MLP, moments: Moments, location: Location) -> Moments:
    moments = ravel_positions(jnp.ravel, moments, location)
    return propagate_moments(layer.body, moments, location.child("body"))


@propagate_moments.register
def _(layer: LeNet, moments: Moments, location: Location) -> Moments:
    return propagate_moments(layer.body, moments, location.child("body"))

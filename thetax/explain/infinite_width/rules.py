r"""How each kind of layer passes on the moments of infinitely many features (§9.4, §10.2), one rule
a kind.

An affine layer $s_W W h + s_b b$ of $n$ inputs, with $\mathrm{Var}\,W_{ij} = \varsigma_W^2$ and
$\mathrm{Var}\,b_i = \varsigma_b^2$, makes of $k = \frac1n \sum_j h_j h'_j$ and $\Theta$

$$k \mapsto \sigma_W^2\, k + \sigma_b^2, \qquad \Theta \mapsto n s_W^2\, k + s_b^2 + \sigma_W^2\,
\Theta, \qquad
\sigma_W^2 = n s_W^2 \varsigma_W^2, \quad \sigma_b^2 = s_b^2 \varsigma_b^2.$$

In the tangent parametrisation $n s_W^2 = \sigma_W^2$, and nothing depends on the width. In the
standard one $s_W = 1$: $\Theta$ grows with the width, and what is told is its leading order at the
widths the model has (Sohl-Dickstein et al. 2020). A module of your own is made known by
`limit_of.register`.
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
    mean,
)
from ...models import MLP, LeNet
from .covariance_features import Features, Given

Seen = Given | Features
Initialisers = Initialiser | Callable[[str], Initialiser] | None


class NoLimit(ValueError):
    """What has no known limit, where it is, and why.

    >>> str(NoLimit("MaxPool", "layers.1", "takes the largest."))
    'infinite: MaxPool at layers.1 takes the largest.'
    """

    def __init__(self, what: str, path: str, why: str):
        super().__init__(f"infinite: {what}{f' at {path}' if path else ''} {why}")


class Scales(NamedTuple):
    r"""$\sigma_W^2$ and $\sigma_b^2$, by which moments go on, and $n s_W^2$ and $s_b^2$, which
    training adds.
    """

    W: float
    b: float
    trained_W: float
    trained_b: float


@dataclass(frozen=True)
class At:
    """Where in the model a rule is applied, and by what law weights are drawn there."""

    initialiser: Initialisers
    path: str = ""

    def inside(self, name: str) -> "At":
        """The same for a part."""
        return replace(self, path=f"{self.path}.{name}" if self.path else name)

    def scales(self, layer: Any) -> Scales:
        """Of an affine layer with `W`, `b` and their scales."""
        shape = tuple(layer.W.shape)
        initialiser = (
            self.initialiser
            if isinstance(self.initialiser, Initialiser | None)
            else self.initialiser(self.path)
        )
        n = fan_in(shape)
        kind = type(layer).__name__
        if initialiser is None and layer.scale_W == layer.scale_b == 1:
            why = (
                "is in the standard parametrisation, and does not tell how it was drawn; say it, "
                "as in initialiser=he."
            )
            raise NoLimit(kind, self.path, why)
        if initialiser is None:
            s_W = layer.scale_W
            s_b = layer.scale_b
            spread_W = 1.0
            spread_b = 1.0
        elif initialiser.spread_W is None:
            raise NoLimit(
                kind,
                self.path,
                "has a law that does not tell its spread; say it: Initialiser(draw, spread_W=...).",
            )
        else:
            s_W = initialiser.scale_W(shape)
            s_b = initialiser.scale_b
            spread_W = initialiser.spread_W(shape)
            spread_b = initialiser.spread_b
        s_b = 0.0 if layer.b is None else s_b
        return Scales(n * (s_W * spread_W) ** 2, (s_b * spread_b) ** 2, n * s_W**2, s_b**2)


AGAIN = (
    "uses its weights again at every step, so that the steps depend on one another; it has no "
    "rule here."
)
WHY: dict[type, str] = {
    BatchNorm: "ties the examples of a batch together; take LayerNorm, or leave it out.",
    Attention: "has a limit with scores divided by d, not by its root as here, or without softmax "
    "(Hron et al. 2020).",
    Cell: AGAIN,
    Recurrent: AGAIN,
}


@singledispatch
def limit_of(module: Any, seen: Seen, at: At) -> Seen:
    """What the module makes of the moments seen before it; `limit_of.register` takes a rule for a
    kind of your own.

    A rule gets the module with shapes for weights, what was seen, and where it is: `Given` data, or
    the moments of `Features`. It calls `limit_of` on its parts.

    >>> import equinox as eqx
    >>> class Named(eqx.Module):
    ...     inner: Chain
    ...     name: str = eqx.field(static=True)
    ...
    ...     def __call__(self, x):
    ...         return self.inner(x)
    >>> @limit_of.register
    ... def _(module: Named, seen: Given | Features, at: At):
    ...     return limit_of(module.inner, seen, at.inside("inner"))
    """
    raise unknown(module, at.path)


def unknown(module: Any, path: str) -> NoLimit:
    """The refusal of a module without a rule."""
    why = next((why for kind, why in WHY.items() if isinstance(module, kind)), None)
    why = (
        why
        or "has no limit that is known here; give it a rule with thetax.explain.limit_of.register."
    )
    return NoLimit(type(module).__name__, path, why)


def known(seen: Seen) -> Features:
    """The moments, also of data."""
    return seen.features() if isinstance(seen, Given) else seen


def drawn(seen: Features, layer: Any, at: At) -> Features:
    """An affine layer over averages that have been taken."""
    s = at.scales(layer)
    k = seen.k
    return replace(
        seen,
        k=s.W * k + s.b,
        theta=s.trained_W * k + s.trained_b + s.W * seen.theta,
        left=s.W * seen.left + s.b,
        right=s.W * seen.right + s.b,
        means=None,
        width=layer.W.shape[0],
        gaussian=True,
        origin=frozenset({at.path}),
    )


@limit_of.register
def _(layer: Linear, seen: Seen, at: At) -> Features:
    if isinstance(seen, Given):
        seen = seen.map(jnp.ravel)
    return drawn(known(seen).averaged(), layer, at)


FUNCTIONS: dict[Callable[..., Array], Callable[[Activation, Seen, At], Seen]] = {}


@limit_of.register
def _(layer: Pointwise, seen: Seen, at: At) -> Seen:
    f = layer.activation
    if f in FUNCTIONS:
        return FUNCTIONS[f](f, seen, at)
    if isinstance(seen, Given):
        return seen.map(f)
    if not seen.gaussian:
        why = (
            "bends features that are not Gaussian in the limit; only an affine layer makes them so."
        )
        raise NoLimit(name_of(f), at.path, why)
    return seen.through(f)


def name_of(f: Any) -> str:
    """What a function is called."""
    return getattr(f, "__name__", type(f).__name__)


def ravelled(f: Activation, seen: Seen, at: At) -> Seen:
    """All places one after another."""
    return seen.map(f) if isinstance(seen, Given) else seen.apart()


FUNCTIONS[jnp.ravel] = ravelled


@limit_of.register
def _(layer: Dropout, seen: Seen, at: At) -> Seen:
    return seen  # as a call without a key


@limit_of.register
def _(layer: DropConnect, seen: Seen, at: At) -> Seen:
    return limit_of(layer.inner, seen, at.inside("inner"))


@limit_of.register
def _(layer: Chain, seen: Seen, at: At) -> Seen:
    return in_turn(layer.layers, seen, at.inside("layers"))


@limit_of.register
def _(layer: Stacked, seen: Seen, at: At) -> Seen:
    return in_turn([one_of(layer.layers)] * layer_count(layer.layers), seen, at.inside("layers"))


def in_turn(layers: Sequence[Any], seen: Seen, at: At) -> Seen:
    """One layer after another."""
    for i, layer in enumerate(layers):
        seen = limit_of(layer, seen, at.inside(str(i)))
    return seen


def layer_count(stack: Any) -> int:
    """How many modules are stacked."""
    return jax.tree.leaves(stack)[0].shape[0]


def one_of(stack: Any) -> Any:
    """The shapes of one of them."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), stack)


@limit_of.register
def _(layer: Residual, seen: Seen, at: At) -> Features:
    straight = seen if layer.skip is None else limit_of(layer.skip, seen, at.inside("skip"))
    straight = known(straight)
    bent = known(limit_of(layer.inner, seen, at.inside("inner")))
    if straight.origin & bent.origin:
        why = (
            "adds features that depend on one another; there must be an affine layer on one of "
            "its ways."
        )
        raise NoLimit("Residual", at.path, why)
    return straight.plus(bent)


@limit_of.register
def _(layer: Concat, seen: Seen, at: At) -> Features:
    return known(seen).beside(known(limit_of(layer.inner, seen, at.inside("inner"))))


@limit_of.register
def _(layer: Ensemble, seen: Seen, at: At) -> Features:
    if layer.pool is not mean:
        raise NoLimit(
            "Ensemble",
            at.path,
            f"pools by {name_of(layer.pool)}; only the mean keeps Gaussians Gaussian.",
        )
    one = known(limit_of(one_of(layer.members), seen, at.inside("members"))).settled
    members = layer_count(layer.members)
    if not one.gaussian:
        raise NoLimit(
            "Ensemble",
            at.path,
            "has members whose outputs are not Gaussian; let them end in a Linear.",
        )
    share = lambda a: a / members
    return replace(
        one, k=share(one.k), theta=share(one.theta), left=share(one.left), right=share(one.right)
    )


@limit_of.register
def _(layer: MLP, seen: Seen, at: At) -> Seen:
    return limit_of(layer.body, ravelled(jnp.ravel, seen, at), at.inside("body"))


@limit_of.register
def _(layer: LeNet, seen: Seen, at: At) -> Seen:
    return limit_of(layer.body, seen, at.inside("body"))

r"""A network of affine maps and kinked functions is affine on each of finitely many cells (§2.6).

`through(layer, sheet)` carries a `Sheet`, an affine function on each of some cells, through one
layer. An affine layer changes the functions; a kinked one also cuts the cells, where a unit crosses
a kink. What a cell is (a polygon, a polyhedron, an interval, a point) is the business of its
geometry, which need only know how to be `split`. A layer of a new kind is one function registered
with `through.register`.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import singledispatch
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int8, Shaped

from ...core import Model
from ...layers import (
    Affine,
    BatchNorm,
    Chain,
    Concat,
    Dropout,
    Ensemble,
    LayerNorm,
    Linear,
    Pointwise,
    Residual,
    WeightNorm,
    identity,
    mean,
)
from ...models import MLP, Perceptron
from ..modules import labels, modules
from .affine_cells import Sheet, Split, begin
from .piecewise_activations import SMOOTH, STEPS, kinked


def follow(model: Model, sheet: Sheet, *, name: str) -> Sheet:
    """The whole network, for the function of that name; one that has no cells is refused before any
    is cut.
    """
    network = model if isinstance(model, eqx.Module) else Pointwise(model)
    try:
        through(network, begin(sheet.cells, sheet.F[:0]))
    except Refusal as refusal:
        raise type(refusal)(
            refusal.layer, f"{_place(network, refusal.layer)} {refusal.reason}", name=name
        ) from None
    return through(network, sheet)


def _place(network: Any, layer: Any) -> str:
    """What a reader calls the layer: a function by its name, anything else by its kind and which of
    that kind it is.
    """
    path = next((path for path, module in modules(network) if module is layer), None)
    if path is None:
        return "the model"
    label = labels(network)[path]
    kind = label.rpartition(" ")[0] if isinstance(layer, Pointwise) else label
    return kind if kind != "lambda" else f"the lambda at {path}" if path else "the lambda"


def is_piecewise_linear(model: Model, x: Shaped[np.ndarray, "*s"] | jax.Array) -> bool | None:
    """Whether the network is affine on cells, or None if it has a layer of which this cannot be
    told.

    `x` is an example, of which only the shape matters.

    >>> is_piecewise_linear(jax.nn.relu, np.zeros(2)), is_piecewise_linear(jax.nn.tanh, np.zeros(2))
    (True, False)
    """
    try:
        follow(model, begin(Points(), np.zeros((0, 1, *x.shape))), name="is_piecewise_linear")
    except NotPiecewiseLinear as refusal:
        return None if isinstance(refusal, NotFollowed) else False
    return True


class Refusal(ValueError):
    """The network cannot be followed, and which layer is the reason."""

    hint = ""

    def __init__(self, layer: Any, reason: str, *, name: str = "regions"):
        super().__init__(f"{name}: {reason}{self.hint}")
        self.layer, self.reason = layer, reason


class NotPiecewiseLinear(Refusal):
    """The network has no linear regions, or none that can be found."""

    hint = (
        " thetax.explain.predictions.decision_boundary shows where any classifier changes its mind."
    )


class NotFollowed(NotPiecewiseLinear):
    """There is a layer through which no sheet is carried: the network may have linear regions all
    the same.
    """


class WrongSize(Refusal):
    """A layer reads more or fewer numbers than it is given."""


@singledispatch
def through(layer: Any, sheet: Sheet) -> Sheet:
    """The sheet behind the layer."""
    raise NotFollowed(
        layer,
        f"is a {type(layer).__name__}, through which linear regions cannot be followed, be there "
        "any: this is known of Linear, WeightNorm, Affine, Dropout and kinked functions such as "
        "relu, and of MLP, Chain, Residual, Concat and Ensemble of these.",
    )


@through.register
def _(layer: LayerNorm, sheet: Sheet) -> Sheet:
    raise NotPiecewiseLinear(
        layer,
        "is a LayerNorm, which is not piecewise linear, so that the network has no linear regions.",
    )


@through.register
def _(layer: Perceptron, sheet: Sheet) -> Sheet:
    raise NotPiecewiseLinear(
        layer, "answers with a sign: it is constant on either side of its hyperplane."
    )


@through.register
def _(layer: BatchNorm, sheet: Sheet) -> Sheet:
    raise NotPiecewiseLinear(
        layer, "depends on the batch; make it the affine map it is with layers.fold(model, xs)."
    )


@through.register
def _(layer: Linear, sheet: Sheet) -> Sheet:
    bias = None if layer.b is None else layer.scale_b * np.asarray(layer.b, np.float64)
    return _affine(layer, sheet, layer.scale_W * np.asarray(layer.W, np.float64), bias)


@through.register
def _(layer: WeightNorm, sheet: Sheet) -> Sheet:
    V = np.asarray(layer.V, np.float64)
    gamma = np.asarray(layer.gamma, np.float64)
    return _affine(
        layer,
        sheet,
        gamma[:, None] * V / np.linalg.norm(V, axis=1, keepdims=True),
        np.asarray(layer.b),
    )


def _affine(
    layer: Any, sheet: Sheet, W: Float[np.ndarray, "m n"], b: Shaped[np.ndarray, " m"] | None
) -> Sheet:
    if sheet.F.shape[2:] != W.shape[1:]:
        given = " × ".join(map(str, sheet.F.shape[2:]))
        raise WrongSize(
            layer,
            f"reads {W.shape[1]} numbers, but is given {given}. `pieces` is for one input and a "
            "`window` for two; `window_through` makes a plane of inputs of any size, and "
            "`count_regions` takes a box of them.",
        )
    F = sheet.F @ _numbers(W.T, sheet.F)
    if b is not None:
        F[:, -1] += _numbers(b, F)[None]
    return replace(sheet, F=F)


@through.register
def _(layer: Affine, sheet: Sheet) -> Sheet:
    rest = (1,) * (sheet.F.ndim - 3)
    gamma, mu = (
        _numbers(np.asarray(v).reshape(1, -1, *rest), sheet.F) for v in (layer.gamma, layer.mu)
    )
    F = sheet.F * gamma[None]
    F[:, -1] += mu
    return replace(sheet, F=F)


@through.register
def _(layer: Dropout, sheet: Sheet) -> Sheet:
    return sheet  # without a key


@through.register
def _(layer: Chain, sheet: Sheet) -> Sheet:
    for part in layer.layers:
        sheet = through(part, sheet)
    return sheet


@through.register
def _(layer: MLP, sheet: Sheet) -> Sheet:
    return through(layer.body, replace(sheet, F=_flat(sheet.F)))


@through.register
def _(layer: Residual, sheet: Sheet) -> Sheet:
    sheet, (straight, bent) = _together(sheet, layer.skip or Pointwise(identity), layer.inner)
    return replace(sheet, F=straight + bent)


@through.register
def _(layer: Concat, sheet: Sheet) -> Sheet:
    sheet, parts = _together(sheet, Pointwise(identity), layer.inner)
    return replace(sheet, F=np.concatenate(parts, axis=2))


@through.register
def _(layer: Ensemble, sheet: Sheet) -> Sheet:
    if layer.pool is not mean:
        raise NotPiecewiseLinear(
            layer, "pools its members by more than their mean, which is not piecewise linear."
        )
    size = len(jax.tree.leaves(layer.members)[0])
    members = [jax.tree.map(lambda leaf, i=i: leaf[i], layer.members) for i in range(size)]
    sheet, made = _together(sheet, *members)
    return replace(sheet, F=sum(made[1:], made[0]) / size)


def _together(sheet: Sheet, *layers: Any) -> tuple[Sheet, list[np.ndarray]]:
    """What several layers make of one input, each on the cells of them all."""
    now = replace(sheet, origin=np.arange(len(sheet.F)))
    made = []
    for layer in layers:
        behind = through(layer, begin_again(now, sheet.F[now.origin]))
        made = [F[behind.origin] for F in made] + [behind.F]
        now = replace(behind, origin=now.origin[behind.origin])
    return replace(now, origin=sheet.origin[now.origin]), made


def begin_again(sheet: Sheet, F: np.ndarray) -> Sheet:
    """The same cells and patterns under another function."""
    return replace(sheet, F=F, origin=np.arange(len(F)))


@through.register
def _(layer: Pointwise, sheet: Sheet) -> Sheet:
    shape = sheet.F.shape[2:]
    F = _flat(sheet.F)
    try:
        line = kinked(layer.activation)
    except ValueError as reason:
        known = layer.activation in STEPS | SMOOTH
        raise (NotPiecewiseLinear if known else NotFollowed)(layer, str(reason)) from None
    if not line.kinks:
        return sheet
    cells, parent, piece = (
        sheet.cells.split(F, line.kinks) if len(F) else Split(sheet.cells, sheet.origin, _none(F))
    )
    slopes, offsets = (_numbers(np.asarray(numbers), F) for numbers in (line.slopes, line.offsets))
    F = F[parent]
    F *= slopes[piece][:, None]
    F[:, -1] += offsets[piece]
    patterns = np.concatenate([sheet.patterns[parent], piece], axis=1)
    return Sheet(cells, F.reshape(*F.shape[:2], *shape), patterns, sheet.origin[parent])


def _none(F: np.ndarray) -> np.ndarray:
    return np.zeros((0, F.shape[2]), np.int8)


def _flat(F: np.ndarray) -> np.ndarray:
    return F.reshape(*F.shape[:2], int(np.prod(F.shape[2:])))


def _numbers(a: Any, like: np.ndarray) -> np.ndarray:
    """The array in the numbers of another: float64, or Fractions, which are exact."""
    if like.dtype != object:
        return np.asarray(a, np.float64)
    exact = np.frompyfunc(Fraction, 1, 1)
    return np.asarray(exact(np.asarray(a, np.float64)), object)


@dataclass(frozen=True)
class Points:
    """Cells of no extent, which nothing cuts: the network at some examples."""

    def split(self, F: Shaped[np.ndarray, "p 1 m"], kinks: tuple[float, ...]) -> Split:
        """A unit on a kink is on the lower piece, as a ReLU at 0 is off."""
        piece = sum((F[:, 0] > kink).astype(np.int8) for kink in kinks)
        return Split(self, np.arange(len(F)), np.asarray(piece, np.int8))


def activation_patterns(
    model: Model, xs: Shaped[np.ndarray, "p ..."] | jax.Array
) -> Int8[np.ndarray, "p u"]:
    r"""$\kappa(x) = 1\{Wx + b > 0\}$ of every kinked unit, layer after layer, at each example
    (§2.6).

    A unit with several kinks counts the pieces from below. Two examples of one pattern lie in one
    convex cell, on which the network is one affine map. The weights are taken as they are and
    multiplied in float64.

    >>> from thetax.layers import Chain, Linear
    >>> net = Chain(Linear(jax.numpy.eye(2), jax.numpy.zeros(2)), jax.nn.relu)
    >>> activation_patterns(net, np.array([[1.0, -1.0], [0.0, 2.0]])).tolist()
    [[1, 0], [0, 1]]
    """
    xs = np.asarray(xs, np.float64)
    return follow(model, begin(Points(), xs[:, None]), name="activation_patterns").patterns

r"""Propagates cells with affine functions through a piecewise linear network (§2.6).

A network of affine maps and piecewise linear activations is affine on each of finitely many cells.
`propagate_layer(layer, state)` takes `AffineCells`, an affine function on each cell, through one
layer: an affine layer changes the functions, and an activation also splits the cells where a unit
crosses a kink. A cell can be a polygon, a polyhedron, an interval or a point; the geometry need
only implement `split`. To support a new layer, register one function with
`propagate_layer.register`.
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
    mean_output,
)
from ...models import MLP, Perceptron
from ..modules import module_names, named_modules
from .affine_cells import AffineCells, Split, start_propagation
from .piecewise_activations import SMOOTH_FUNCTIONS, STEP_FUNCTIONS, piecewise_linear_form


def propagate_network(model: Model, state: AffineCells, *, name: str) -> AffineCells:
    """Propagates cells through the whole network; `name` is the calling function, for error
    messages.

    A network that is not supported is rejected before any cell is split: it is first run on no
    cells at all.
    """
    network = model if isinstance(model, eqx.Module) else Pointwise(model)
    try:
        propagate_layer(network, start_propagation(state.geometry, state.F[:0]))
    except PropagationError as error:
        raise type(error)(
            error.layer, f"{_layer_name(network, error.layer)} {error.reason}", name=name
        ) from None
    return propagate_layer(network, state)


def _layer_name(network: Any, layer: Any) -> str:
    """The name of a layer in error messages: a function's own name, otherwise the type and a
    running number.
    """
    path = next((path for path, module in named_modules(network) if module is layer), None)
    if path is None:
        return "the model"
    label = module_names(network)[path]
    kind = label.rpartition(" ")[0] if isinstance(layer, Pointwise) else label
    return kind if kind != "lambda" else f"the lambda at {path}" if path else "the lambda"


def is_piecewise_linear(model: Model, x: Shaped[np.ndarray, "*s"] | jax.Array) -> bool | None:
    """Whether the network is piecewise linear, or None if it has a layer for which this is unknown.

    `x` is an example; only its shape matters.

    >>> is_piecewise_linear(jax.nn.relu, np.zeros(2)), is_piecewise_linear(jax.nn.tanh, np.zeros(2))
    (True, False)
    """
    try:
        propagate_network(
            model,
            start_propagation(Points(), np.zeros((0, 1, *x.shape))),
            name="is_piecewise_linear",
        )
    except NotPiecewiseLinear as error:
        return None if isinstance(error, UnsupportedLayer) else False
    return True


class PropagationError(ValueError):
    """Cells cannot be propagated through the network; `layer` is the layer that prevents it."""

    hint = ""

    def __init__(self, layer: Any, reason: str, *, name: str = "enumerate_regions"):
        super().__init__(f"{name}: {reason}{self.hint}")
        self.layer, self.reason = layer, reason


class NotPiecewiseLinear(PropagationError):
    """The network has no linear regions, or none that can be enumerated."""

    hint = (
        " thetax.explain.predictions.decision_boundary shows the decision boundary of any "
        "classifier."
    )


class UnsupportedLayer(NotPiecewiseLinear):
    """No rule is registered for a layer; the network may have linear regions all the same."""


class InputSizeError(PropagationError):
    """The input size of a layer differs from the size of its input."""


@singledispatch
def propagate_layer(layer: Any, state: AffineCells) -> AffineCells:
    """The state after the layer."""
    raise UnsupportedLayer(
        layer,
        f"is a {type(layer).__name__}, a layer for which linear regions are not supported. "
        "Supported are Linear, WeightNorm, Affine, Dropout, piecewise linear activations such as "
        "relu, and MLP, Chain, Residual, Concat and Ensemble of these.",
    )


@propagate_layer.register
def _(layer: LayerNorm, state: AffineCells) -> AffineCells:
    raise NotPiecewiseLinear(
        layer,
        "is a LayerNorm, which is not piecewise linear, so the network has no linear regions.",
    )


@propagate_layer.register
def _(layer: Perceptron, state: AffineCells) -> AffineCells:
    raise NotPiecewiseLinear(
        layer, "outputs a sign, which is constant on either side of its hyperplane."
    )


@propagate_layer.register
def _(layer: BatchNorm, state: AffineCells) -> AffineCells:
    raise NotPiecewiseLinear(
        layer,
        "depends on the batch; turn it into an affine map with layers.fold_batch_norm(model, xs).",
    )


@propagate_layer.register
def _(layer: Linear, state: AffineCells) -> AffineCells:
    bias = None if layer.b is None else layer.scale_b * np.asarray(layer.b, np.float64)
    return _affine(layer, state, layer.scale_W * np.asarray(layer.W, np.float64), bias)


@propagate_layer.register
def _(layer: WeightNorm, state: AffineCells) -> AffineCells:
    V = np.asarray(layer.V, np.float64)
    gamma = np.asarray(layer.gamma, np.float64)
    return _affine(
        layer,
        state,
        gamma[:, None] * V / np.linalg.norm(V, axis=1, keepdims=True),
        np.asarray(layer.b),
    )


def _affine(
    layer: Any, state: AffineCells, W: Float[np.ndarray, "m n"], b: Shaped[np.ndarray, " m"] | None
) -> AffineCells:
    if state.F.shape[2:] != W.shape[1:]:
        given = " × ".join(map(str, state.F.shape[2:]))
        raise InputSizeError(
            layer,
            f"expects {W.shape[1]} inputs, but gets {given}. Use `breakpoints_1d` for one input, "
            "an `input_plane` for two, an `input_plane_through` three examples for any number, and "
            "`count_regions` for a box.",
        )
    F = state.F @ _as_dtype_of(state.F, W.T)
    if b is not None:
        F[:, -1] += _as_dtype_of(F, b)[None]
    return replace(state, F=F)


@propagate_layer.register
def _(layer: Affine, state: AffineCells) -> AffineCells:
    rest = (1,) * (state.F.ndim - 3)
    gamma, mu = (
        _as_dtype_of(state.F, np.asarray(v).reshape(1, -1, *rest)) for v in (layer.gamma, layer.mu)
    )
    F = state.F * gamma[None]
    F[:, -1] += mu
    return replace(state, F=F)


@propagate_layer.register
def _(layer: Dropout, state: AffineCells) -> AffineCells:
    return state  # without a key


@propagate_layer.register
def _(layer: Chain, state: AffineCells) -> AffineCells:
    for part in layer.layers:
        state = propagate_layer(part, state)
    return state


@propagate_layer.register
def _(layer: MLP, state: AffineCells) -> AffineCells:
    return propagate_layer(layer.body, replace(state, F=_flatten(state.F)))


@propagate_layer.register
def _(layer: Residual, state: AffineCells) -> AffineCells:
    state, (skip, inner) = _parallel(state, layer.skip or Pointwise(identity), layer.inner)
    return replace(state, F=skip + inner)


@propagate_layer.register
def _(layer: Concat, state: AffineCells) -> AffineCells:
    state, parts = _parallel(state, Pointwise(identity), layer.inner)
    return replace(state, F=np.concatenate(parts, axis=2))


@propagate_layer.register
def _(layer: Ensemble, state: AffineCells) -> AffineCells:
    if layer.pool is not mean_output:
        raise NotPiecewiseLinear(
            layer, "does not pool its members by their mean, so it is not piecewise linear."
        )
    n_members = len(jax.tree.leaves(layer.members)[0])
    members = [jax.tree.map(lambda leaf, i=i: leaf[i], layer.members) for i in range(n_members)]
    state, outputs = _parallel(state, *members)
    return replace(state, F=sum(outputs[1:], outputs[0]) / n_members)


def _parallel(state: AffineCells, *layers: Any) -> tuple[AffineCells, list[np.ndarray]]:
    """Applies several layers to one input; all outputs are on the common refinement of their
    cells.
    """
    # the next layer starts from the cells of the layers before; `origin` leads back to their input
    refined = replace(state, origin=np.arange(len(state.F)))
    outputs = []
    for layer in layers:
        after = propagate_layer(layer, with_function(refined, state.F[refined.origin]))
        outputs = [F[after.origin] for F in outputs] + [after.F]
        refined = replace(after, origin=refined.origin[after.origin])
    return replace(refined, origin=state.origin[refined.origin]), outputs


def with_function(state: AffineCells, F: np.ndarray) -> AffineCells:
    """The same cells and patterns with another function."""
    return replace(state, F=F, origin=np.arange(len(F)))


@propagate_layer.register
def _(layer: Pointwise, state: AffineCells) -> AffineCells:
    shape = state.F.shape[2:]
    F = _flatten(state.F)
    try:
        form = piecewise_linear_form(layer.activation)
    except ValueError as reason:
        known = layer.activation in STEP_FUNCTIONS | SMOOTH_FUNCTIONS
        raise (NotPiecewiseLinear if known else UnsupportedLayer)(layer, str(reason)) from None
    if not form.kinks:
        return state
    if len(F):
        geometry, parent, piece = state.geometry.split(F, form.kinks)
    else:
        no_pieces = np.zeros((0, F.shape[2]), np.int8)
        geometry, parent, piece = Split(state.geometry, state.origin, no_pieces)
    slopes, offsets = (_as_dtype_of(F, np.asarray(a)) for a in (form.slopes, form.offsets))
    F = F[parent]
    F *= slopes[piece][:, None]
    F[:, -1] += offsets[piece]
    patterns = np.concatenate([state.patterns[parent], piece], axis=1)
    return AffineCells(geometry, F.reshape(*F.shape[:2], *shape), patterns, state.origin[parent])


def _flatten(F: np.ndarray) -> np.ndarray:
    return F.reshape(*F.shape[:2], int(np.prod(F.shape[2:])))


def _as_dtype_of(reference: np.ndarray, a: Any) -> np.ndarray:
    """The array as float64, or as exact Fractions if `reference` holds these."""
    if reference.dtype != object:
        return np.asarray(a, np.float64)
    exact = np.frompyfunc(Fraction, 1, 1)
    return np.asarray(exact(np.asarray(a, np.float64)), object)


@dataclass(frozen=True)
class Points:
    """Single points as cells, which are never split: the network at given examples."""

    def split(self, F: Shaped[np.ndarray, "p 1 m"], kinks: tuple[float, ...]) -> Split:
        """The piece of each unit; a unit on a kink is on the lower piece, as a ReLU at 0 is
        inactive.
        """
        piece = sum((F[:, 0] > kink).astype(np.int8) for kink in kinks)
        return Split(self, np.arange(len(F)), np.asarray(piece, np.int8))


def activation_patterns(
    model: Model, xs: Shaped[np.ndarray, "p ..."] | jax.Array
) -> Int8[np.ndarray, "p u"]:
    r"""Activation pattern $\kappa(x) = 1\{Wx + b > 0\}$ of all piecewise linear units, layer by
    layer, at each example (§2.6).

    For a unit with several kinks it is the index of the linear piece, counted from below. Two
    examples with the same pattern lie in one convex cell, on which the network is a single affine
    map. Products are computed in float64 from the weights as given.

    >>> from thetax.layers import Chain, Linear
    >>> net = Chain(Linear(jax.numpy.eye(2), jax.numpy.zeros(2)), jax.nn.relu)
    >>> activation_patterns(net, np.array([[1.0, -1.0], [0.0, 2.0]])).tolist()
    [[1, 0], [0, 1]]
    """
    xs = np.asarray(xs, np.float64)
    return propagate_network(
        model, start_propagation(Points(), xs[:, None]), name="activation_patterns"
    ).patterns

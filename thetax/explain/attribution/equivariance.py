r"""Translation equivariance of a network (§4.1): $f(\tau_s x) = \tau_{s/r} f(x)$ for a layer of
total stride $r$.

Convolutions commute with shifts, exactly with a circular boundary and otherwise in the interior,
where the receptive field does not reach beyond the edge. With a stride this holds only for shifts
by its multiples; the error of other shifts is not a boundary effect. Here $\tau_s$ rolls an image
by $s$ pixels to the right.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ...core import Model, predict
from ...layers import has_batch_norm
from ..modules import module_names
from ..signal.activation_statistics import layer_output_shapes, layer_outputs
from .receptive_field import ReceptiveField, receptive_fields

DEFAULT_SHIFTS = (1, 2, 3, 4, 5, 6, 7, 8)


@dataclass(frozen=True)
class Equivariance:
    r"""Relative equivariance error $\|f(\tau_s x) - \tau f(x)\| / \|f(x)\|$ for each layer and
    shift, over all examples.

    If $s$ is not a multiple of the stride, $\tau$ shifts by the nearest integer number of
    positions.
    """

    interior: Float[np.ndarray, "l shifts"]  # without boundary effects; NaN if there is no interior
    everywhere: Float[np.ndarray, "l shifts"]
    # relative change of the network's output, which should be invariant
    output: Float[np.ndarray, " shifts"]
    unchanged: Float[np.ndarray, " shifts"]  # fraction of examples whose predicted class stays
    shifts: Int[np.ndarray, " shifts"]
    stride: Int[np.ndarray, " l"]
    layers: tuple[str, ...]

    @property
    def is_multiple(self) -> Bool[np.ndarray, "l shifts"]:
        """Whether a shift is a multiple of the layer's stride."""
        return self.shifts[None] % self.stride[:, None] == 0


def equivariance(
    model: Model, xs: Float[Array | np.ndarray, "n c *s"], *, shifts: Sequence[int] = DEFAULT_SHIFTS
) -> Equivariance:
    """Translation equivariance error of each layer, and invariance error of the output (§4.1,
    §4.2).

    The layers are those with a feature map and a known receptive field: only convolutions, pooling
    and pointwise layers lie between them and the image.

    >>> from thetax.layers import Chain, Convolution, global_mean
    >>> net = Chain(
    ...     Convolution(jnp.ones((2, 1, 3, 3)), boundary="circular"), jax.nn.relu, global_mean
    ... )
    >>> result = equivariance(net, jnp.ones((3, 1, 6, 6)).at[:, 0, 2, 2].set(0.0), shifts=(1, 2))
    >>> result.layers, bool(result.everywhere.max() < 1e-6), result.unchanged.tolist()
    (('Convolution 1', 'relu 1'), True, [1.0, 1.0])
    """
    xs = jnp.asarray(xs)
    steps = np.asarray(shifts, int)
    if has_batch_norm(model):
        raise ValueError(
            "equivariance: the model has batch norms, which depend on the batch; fold the model "
            "first."
        )
    if xs.ndim not in (3, 4):
        raise ValueError(
            f"equivariance: expected signals (n, c, w) or images (n, c, h, w), got {xs.shape}."
        )
    if not len(steps) or steps.min() < 0 or steps.max() >= xs.shape[-1]:
        raise ValueError(
            f"equivariance: shifts must be between 0 and the width minus 1, {xs.shape[-1] - 1}; "
            f"got {shifts}."
        )
    fields = receptive_fields(model, xs[0])
    names = module_names(model)
    paths, shapes = layer_output_shapes(model, xs)
    selected = [i for i, h in enumerate(shapes) if h.ndim == xs.ndim and paths[i] in fields]
    if not selected:
        raise ValueError(
            "equivariance: no layer of the model has a feature map; this lens is for convolutional "
            "networks."
        )
    selected_fields = [fields[paths[i]] for i in selected]
    before = _outputs(model, xs)
    rows = []
    for step in steps:
        after = _outputs(model, jnp.roll(xs, step, axis=-1))
        pairs = [
            _errors(before[0][i], after[0][i], field, int(step), xs.shape)
            for i, field in zip(selected, selected_fields)
        ]
        rows.append(
            (
                *map(list, zip(*pairs)),
                _relative_error(after[1], before[1]),
                _unchanged(after[1], before[1]),
            )
        )
    interior, everywhere, output, unchanged = (np.array(column, float).T for column in zip(*rows))
    stride = np.array([field.stride[-1] for field in selected_fields])
    layers = tuple(names[paths[i]] for i in selected)
    return Equivariance(interior, everywhere, output, unchanged, steps, stride, layers)


@jax.jit
def _run(model: Any, xs: Any) -> tuple[list[Any], Any]:
    return layer_outputs(model, xs)[1], predict(model, xs)


def _outputs(model: Any, xs: Any) -> tuple[list[np.ndarray], np.ndarray]:
    """The outputs of every layer and of the network."""
    return jax.tree.map(lambda h: np.asarray(h, np.float64), _run(model, xs))


def _errors(
    before: Any, after: Any, field: ReceptiveField, step: int, shape: tuple[int, ...]
) -> tuple[float, float]:
    """The relative error in the interior and at all positions."""
    positions = round(step / field.stride[-1])
    expected = np.roll(before, positions, axis=-1)
    inside = field.interior(before.shape[2:], shape[2:])
    # The shifted position must be in the interior, before the shift and after it.
    shifted = np.concatenate([np.zeros(positions, bool), inside[-1]])[: len(inside[-1])]
    inside[-1] = inside[-1] & shifted
    interior = np.ix_(*(np.ones(size, bool) for size in before.shape[:2]), *inside)
    return (
        _relative_error(after[interior], expected[interior]),
        _relative_error(after, expected),
    )


def _relative_error(result: np.ndarray, expected: np.ndarray) -> float:
    size = np.linalg.norm(expected)
    return float(np.linalg.norm(result - expected) / size) if size > 0 else float("nan")


def _unchanged(after: np.ndarray, before: np.ndarray) -> float:
    """The fraction of examples whose predicted class (for one output: its sign) is unchanged."""
    label = lambda z: z.reshape(len(z), -1).argmax(axis=1) if z[0].size > 1 else z.ravel() > 0
    return float((label(after) == label(before)).mean())

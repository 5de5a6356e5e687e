r"""Does a network move with the image? (§4.1): $f(\tau_s x) = \tau_{s/r} f(x)$ for a layer of total
stride $r$.

Convolutions commute with shifts, exactly with a circular boundary and otherwise in the interior,
where a place sees nothing from beyond the edge. With a stride they do so for shifts by its
multiples only: those between are an error that no boundary causes. Here $\tau_s$ moves an image by
$s$ pixels to the right, and what leaves comes in again at the left.
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
from ..modules import labels
from ..signal.activation_statistics import heard, heard_paths
from .receptive_field import View, views

SHIFTS = (1, 2, 3, 4, 5, 6, 7, 8)


@dataclass(frozen=True)
class Equivariance:
    r"""$\|f(\tau_s x) - \tau f(x)\| / \|f(x)\|$ for each layer and shift, over all examples at
    once.

    Where $s$ is no multiple of the stride, $\tau$ moves by the nearest whole number of places.
    """

    inside: Float[np.ndarray, "l shifts"]  # in the interior; NaN where there is none
    everywhere: Float[np.ndarray, "l shifts"]
    output: Float[
        np.ndarray, " shifts"
    ]  # the relative change of the network's output, which should not move
    kept: Float[np.ndarray, " shifts"]  # the share of examples whose class stays
    shifts: Int[np.ndarray, " shifts"]
    stride: Int[np.ndarray, " l"]
    layers: tuple[str, ...]

    @property
    def whole(self) -> Bool[np.ndarray, "l shifts"]:
        """Whether a shift is a whole number of the layer's places."""
        return self.shifts[None] % self.stride[:, None] == 0


def equivariance(
    model: Model, xs: Float[Array | np.ndarray, "n c *s"], *, shifts: Sequence[int] = SHIFTS
) -> Equivariance:
    """How nearly each layer moves with the image, and how nearly the output stays (§4.1, §4.2).

    Layers are those with places: their outputs are maps, and all that lies between them and the
    image are convolutions, pools, and what acts place by place.

    >>> from thetax.layers import Chain, Convolution, global_mean
    >>> net = Chain(
    ...     Convolution(jnp.ones((2, 1, 3, 3)), boundary="circular"), jax.nn.relu, global_mean
    ... )
    >>> found = equivariance(net, jnp.ones((3, 1, 6, 6)).at[:, 0, 2, 2].set(0.0), shifts=(1, 2))
    >>> found.layers, bool(found.everywhere.max() < 1e-6), found.kept.tolist()
    (('Convolution 1', 'relu 1'), True, [1.0, 1.0])
    """
    xs = jnp.asarray(xs)
    moves = np.asarray(shifts, int)
    if has_batch_norm(model):
        raise ValueError(
            "equivariance: the model has batch norms, which depend on the batch; fold(model, xs) "
            "it first."
        )
    if xs.ndim not in (3, 4):
        raise ValueError(
            f"equivariance: expected signals (n, c, w) or images (n, c, h, w), got {xs.shape}."
        )
    if not len(moves) or moves.min() < 0 or moves.max() >= xs.shape[-1]:
        raise ValueError(
            f"equivariance: shifts lie between 0 and the width less 1, {xs.shape[-1] - 1}; got "
            f"{shifts}."
        )
    seen, name, (paths, shapes) = views(model, xs[0]), labels(model), heard_paths(model, xs)
    chosen = [i for i, h in enumerate(shapes) if h.ndim == xs.ndim and paths[i] in seen]
    if not chosen:
        raise ValueError(
            "equivariance: no layer of the model has places; this lens is for convolutional "
            "networks."
        )
    look = [seen[paths[i]] for i in chosen]
    before = _outputs(model, xs)
    rows = []
    for move in moves:
        after = _outputs(model, jnp.roll(xs, move, axis=-1))
        pairs = [
            _errors(before[0][i], after[0][i], view, int(move), xs.shape)
            for i, view in zip(chosen, look)
        ]
        rows.append(
            (*map(list, zip(*pairs)), _relative(after[1], before[1]), _same(after[1], before[1]))
        )
    inside, everywhere, output, kept = (np.array(column, float).T for column in zip(*rows))
    stride = np.array([view.stride[-1] for view in look])
    return Equivariance(
        inside, everywhere, output, kept, moves, stride, tuple(name[paths[i]] for i in chosen)
    )


@jax.jit
def _run(model: Any, xs: Any) -> tuple[list[Any], Any]:
    return heard(model, xs)[1], predict(model, xs)


def _outputs(model: Any, xs: Any) -> tuple[list[np.ndarray], np.ndarray]:
    """What every layer puts out, and the network itself."""
    return jax.tree.map(lambda h: np.asarray(h, np.float64), _run(model, xs))


def _errors(
    before: Any, after: Any, view: View, move: int, shape: tuple[int, ...]
) -> tuple[float, float]:
    """The error in the interior, and at all places."""
    places = round(move / view.stride[-1])
    target = np.roll(before, places, axis=-1)
    inside = view.inside(before.shape[2:], shape[2:])
    came = np.concatenate([np.zeros(places, bool), inside[-1]])[
        : len(inside[-1])
    ]  # from where it was inside too
    inside[-1] = inside[-1] & came
    interior = np.ix_(*(np.ones(size, bool) for size in before.shape[:2]), *inside)
    return _relative(after[interior], target[interior]), _relative(after, target)


def _relative(found: np.ndarray, expected: np.ndarray) -> float:
    size = np.linalg.norm(expected)
    return float(np.linalg.norm(found - expected) / size) if size > 0 else float("nan")


def _same(after: np.ndarray, before: np.ndarray) -> float:
    """The share of examples whose class stays: that of the largest output, or the sign of a single
    one.
    """
    label = lambda z: z.reshape(len(z), -1).argmax(axis=1) if z[0].size > 1 else z.ravel() > 0
    return float((label(after) == label(before)).mean())

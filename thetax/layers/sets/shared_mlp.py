r"""The shared MLP of point networks: the same network for every element of a set (§7.3)."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.random as jr
from jaxtyping import PRNGKeyArray

from ...core import Model
from ..activation import Activation, relu
from ..initialise import Initialiser, he
from ..linear import Linear
from ..normalisation import LayerNorm, RMSNorm, has_batch_norm
from .inputs import Elements, join_set, split_set


class SharedMLP(eqx.Module):
    r"""The same affine maps, norms and activations for every element,
    $x_i \mapsto \varphi(A_L \cdots \varphi(A_1 x_i))$ (§7.3; Qi et al. 2017).

    An array gives an array, a `PointSet` a `PointSet`. The last activation is left out with
    `activate_last=False`. With `normalise=BatchNorm.init` the statistics are those of all elements
    of all sets of the batch; then a `PointSet` is refused, since its padding would count.

    >>> layer = SharedMLP.init(3, 16, 8, key=jr.key(0))
    >>> layer(jax.numpy.ones((5, 3))).shape
    (5, 8)
    """

    layers: tuple[Linear, ...]
    norms: tuple[Any, ...]
    activation: Activation = eqx.field(static=True, default=relu)
    activate_last: bool = eqx.field(static=True, default=True)

    @classmethod
    def init(
        cls,
        *sizes: int,
        activation: Activation = relu,
        activate_last: bool = True,
        normalise: Callable[[int], Model] | None = None,
        initialiser: Initialiser = he,
        key: PRNGKeyArray,
    ) -> "SharedMLP":
        """Initialises the layers with the given widths, from input to output."""
        if len(sizes) < 2 or min(sizes) < 1:
            raise ValueError(
                "SharedMLP: expected an input and an output width, all positive, as in init(3, 64, "
                f"128, key=key); got {sizes}."
            )
        keys = jr.split(key, len(sizes) - 1)
        layers = tuple(
            Linear.init(n, m, initialiser=initialiser, key=k)
            for k, (n, m) in zip(keys, pairwise(sizes))
        )
        n_norms = 0 if normalise is None else len(layers) - (not activate_last)
        norms = tuple(normalise(m) for m in sizes[1 : 1 + n_norms]) if normalise else ()
        return cls(layers, norms, activation, activate_last)

    @property
    def n_outputs(self) -> int:
        """The number of features of an element after the layer."""
        return self.layers[-1].W.shape[-2]

    def __call__(self, x: Elements) -> Any:
        points, mask = split_set("SharedMLP", x, self.layers[0].W.shape[1])
        if mask is not None and has_batch_norm(self.norms):
            raise ValueError(
                "SharedMLP: batch normalisation would count the padding of a PointSet. Use "
                "normalise=LayerNorm.init, or sets of one size."
            )
        for i, layer in enumerate(self.layers):
            points = jax.vmap(layer)(points)
            if i < len(self.norms):
                points = _normalise(self.norms[i], points)
            if i < len(self.layers) - 1 or self.activate_last:
                points = self.activation(points)
        return join_set(x, points)


def _normalise(norm: Any, points: Any) -> Any:
    """Norms of vectors act on every element; the others have the channels first."""
    if isinstance(norm, LayerNorm | RMSNorm):
        return jax.vmap(norm)(points)
    return norm(points.T).T

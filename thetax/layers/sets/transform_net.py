r"""The T-net of PointNet: a linear map of the points that depends on the whole cloud (§7.3)."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ...core import Model, Scalar
from ..activation import Activation, relu
from ..linear import Linear
from .aggregation import aggregate_set
from .inputs import Elements, split_set
from .shared_mlp import SharedMLP


class TNet(eqx.Module):
    r"""A matrix $T(X) \in \mathbb{R}^{d \times d}$ for a set, which multiplies every element,
    $X \mapsto X\, T(X)$ (§7.3; Qi et al. 2017).

    A shared MLP (64, 128, 1024), the maximum over the elements, layers of 512 and 256 units, and a
    linear layer to the $d^2$ entries, which is initialised to give the identity. $T$ is invariant
    under permutations, so $X\, T(X)$ is equivariant.

    Departs: the notes call the map rigid, but any matrix can result; `orthogonality_penalty`
    encourages an orthogonal one.

    >>> net = TNet.init(3, widths=(8, 16), head_widths=(8,), key=jr.key(0))
    >>> x = jr.normal(jr.key(1), (5, 3))
    >>> bool(jnp.all(x @ net(x) == x))
    True
    """

    points: SharedMLP
    head: SharedMLP | None
    last: Linear

    @classmethod
    def init(
        cls,
        d: int,
        *,
        widths: Sequence[int] = (64, 128, 1024),
        head_widths: Sequence[int] = (512, 256),
        activation: Activation = relu,
        normalise: Callable[[int], Model] | None = None,
        key: PRNGKeyArray,
    ) -> "TNet":
        """Initialises the network for elements of `d` features; $T(X) = I$ for every $X$."""
        key_points, key_head = jr.split(key)
        options = {"activation": activation, "normalise": normalise}
        points = SharedMLP.init(d, *widths, **options, key=key_points)
        sizes = (widths[-1], *head_widths)
        head = SharedMLP.init(*sizes, **options, key=key_head) if head_widths else None
        return cls(points, head, Linear(jnp.zeros((d * d, sizes[-1])), jnp.eye(d).ravel()))

    def __call__(self, x: Elements) -> Float[Array, "d d"]:
        d = self.points.layers[0].W.shape[1]
        split_set("TNet", x, d)
        h = aggregate_set(self.points(x), "max")
        if self.head is not None:
            h = self.head(h[None])[0]
        return self.last(h).reshape(d, d)


def orthogonality_penalty(T: Float[Array, "d d"]) -> Scalar:
    r"""$\|I - T T^\top\|_F^2$, which is 0 for orthogonal matrices only (§7.3; Qi et al. 2017).

    Its gradient is $-4 (I - T T^\top)\, T$.

    >>> float(orthogonality_penalty(2 * jnp.eye(3)))
    27.0
    """
    return jnp.square(jnp.eye(len(T), dtype=T.dtype) - T @ T.T).sum()

r"""The affine map of a set: an input of a few ones among many zeros, given by the places of the
ones.
"""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .initialise import Initialiser, lecun


class Bag(eqx.Module):
    r"""$f[W, b](S) = \sum_{j \in S} W_j + b$, the affine layer at the $x \in \{0, 1\}^V$ with
    $x_j = 1$ for $j \in S$.

    $S$ is a list of distinct numbers, filled up with -1; that, and whatever else is not from 0 to
    $V - 1$, stands for nothing. $W_j$ is a column of $W$: what a bag of one word maps to, its
    embedding. The price is that of $|S|$ columns, not of all $V$ (L10 §6.1).

    >>> layer = Bag(jnp.array([[1.0, 2.0, 4.0]]), jnp.array([0.5]))
    >>> layer(jnp.array([2, 0, -1])).tolist()
    [5.5]
    """

    W: Float[Array, "m V"]
    b: Float[Array, " m"] | None = None

    @classmethod
    def init(
        cls,
        size: int,
        m: int,
        *,
        initialiser: Initialiser = lecun,
        bias: bool = True,
        key: PRNGKeyArray,
    ) -> "Bag":
        """Draws the columns of `size` words."""
        key_W, key_b = jr.split(key)
        return cls(initialiser(key_W, (m, size)), initialiser.bias(key_b, m) if bias else None)

    def __check_init__(self):
        if self.W.ndim != 2 or (self.b is not None and self.b.shape != self.W.shape[:1]):
            raise ValueError(
                f"Bag: W must be (m, V), a column for each word, and b (m,); got W {self.W.shape} "
                f"and b {None if self.b is None else self.b.shape}."
            )

    def __call__(self, x: Int[Array, " k"]) -> Float[Array, " m"]:
        if x.ndim != 1 or not jnp.issubdtype(x.dtype, jnp.integer):
            raise ValueError(
                "Bag: expected one example's words as whole numbers of shape (k,), got "
                f"{x.dtype}{x.shape}; map over a batch with jax.vmap."
            )
        columns = self.W.T.at[x].get(mode="fill", fill_value=0, wrap_negative_indices=False)
        y = columns.sum(axis=0)
        return y if self.b is None else y + self.b

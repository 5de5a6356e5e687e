r"""What a model leans on: how much worse it does when one feature is shuffled among the examples.

A shuffled feature keeps its own law but says nothing of the example it stands in. So the rise of
the error is what the model gets from it, as it is, without another fit; of two features that say
the same, each looks dispensable.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ...core import Batch, Model, Objective


@dataclass(frozen=True)
class Importance:
    """By feature, how much the metric rises once it is shuffled, and the standard error of that;
    `base` is the metric with nothing shuffled.
    """

    rise: Float[np.ndarray, " d"]
    error: Float[np.ndarray, " d"]
    base: float
    features: tuple[str, ...]

    @property
    def order(self) -> tuple[int, ...]:
        """The features, that of the largest rise first."""
        return tuple(np.argsort(-self.rise, kind="stable").tolist())


def importance(
    model: Model,
    batch: Batch,
    metric: Objective,
    *,
    features: Sequence[str] = (),
    repeats: int = 5,
    key: PRNGKeyArray,
) -> Importance:
    r"""$m(f, \{(\pi_j x_i, y_i)\}) - m(f, \{(x_i, y_i)\})$ for each feature $j$, where $\pi_j$ puts
    in place of $x_{ij}$ that of another example, by a random permutation; the mean over `repeats`
    of them.

    The batch is `(xs, ys)` with rows of features; take one that was not trained on. Breiman 2001,
    §10.

    >>> import jax.numpy as jnp
    >>> from thetax.layers import Linear
    >>> from thetax.train import squared_error
    >>> xs = jr.normal(jr.key(0), (500, 3))
    >>> model = Linear(jnp.array([[0.0, 2.0, 1.0]]))
    >>> seen = importance(model, (xs, 2 * xs[:, 1] + xs[:, 2]), squared_error, key=jr.key(1))
    >>> seen.order, float(seen.rise[0])
    ((1, 2, 0), 0.0)
    """
    xs, _ = batch
    if xs.ndim != 2:
        raise ValueError(
            f"importance: expected rows of features, (n, d); the inputs have the shape {xs.shape}."
        )
    if features and len(features) != xs.shape[1]:
        raise ValueError(
            f"importance: there are {len(features)} names for {xs.shape[1]} features; give one "
            "for each."
        )
    if repeats < 2:
        raise ValueError(f"importance: a standard error takes two repeats or more; got {repeats}.")
    base, shuffled = _judged(model, batch, key, metric=metric, repeats=repeats)
    rises = np.asarray(shuffled, float) - float(base)
    names = tuple(features) or tuple(f"x{j + 1}" for j in range(xs.shape[1]))
    return Importance(
        rises.mean(axis=1), rises.std(axis=1, ddof=1) / np.sqrt(repeats), float(base), names
    )


@partial(jax.jit, static_argnames=("metric", "repeats"))
def _judged(model, batch, key, *, metric, repeats) -> tuple[Array, Array]:
    xs, ys = batch

    def once(item):
        column, key = item
        other = jr.permutation(key, xs[:, column])
        return metric(model, (xs.at[:, column].set(other), ys))

    columns = jax.numpy.repeat(jax.numpy.arange(xs.shape[1]), repeats)
    seen = jax.lax.map(once, (columns, jr.split(key, len(columns))))
    return metric(model, batch), seen.reshape(-1, repeats)

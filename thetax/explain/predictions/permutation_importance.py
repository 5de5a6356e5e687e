r"""Permutation importance: the increase of a metric when one feature is shuffled.

A shuffled feature keeps its marginal distribution but carries no information about the example. So
the increase of the error measures what this model uses the feature for, without another fit. Of two
redundant features, each looks unimportant.
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
class PermutationImportance:
    """The increase of the metric when each feature is shuffled, with its standard error;
    `baseline` is the metric without shuffling.
    """

    increase: Float[np.ndarray, " d"]
    error: Float[np.ndarray, " d"]
    baseline: float
    features: tuple[str, ...]

    @property
    def ranking(self) -> tuple[int, ...]:
        """The indices of the features, the most important first."""
        return tuple(np.argsort(-self.increase, kind="stable").tolist())


def permutation_importance(
    model: Model,
    batch: Batch,
    metric: Objective,
    *,
    features: Sequence[str] = (),
    n_repeats: int = 5,
    key: PRNGKeyArray,
) -> PermutationImportance:
    r"""Permutation importance of each feature $j$:
    $m(f, \{(\pi_j x_i, y_i)\}) - m(f, \{(x_i, y_i)\})$ for a metric $m$.

    $\pi_j$ replaces $x_{ij}$ by the value of another example, by a random permutation; the result
    is the mean over `n_repeats` permutations. The batch is `(xs, ys)` with `xs` of shape `(n, d)`;
    use data that was not trained on. `features` are the names of the features. Breiman 2001, §10.

    >>> import jax.numpy as jnp
    >>> from thetax.layers import Linear
    >>> from thetax.train import squared_error
    >>> xs = jr.normal(jr.key(0), (500, 3))
    >>> model = Linear(jnp.array([[0.0, 2.0, 1.0]]))
    >>> batch = xs, 2 * xs[:, 1] + xs[:, 2]
    >>> result = permutation_importance(model, batch, squared_error, key=jr.key(1))
    >>> result.ranking, float(result.increase[0])
    ((1, 2, 0), 0.0)
    """
    xs, _ = batch
    if xs.ndim != 2:
        raise ValueError(
            f"permutation_importance: expected inputs of shape (n, d); got {xs.shape}."
        )
    if features and len(features) != xs.shape[1]:
        raise ValueError(
            f"permutation_importance: got {len(features)} names for {xs.shape[1]} features; give "
            "one name for each."
        )
    if n_repeats < 2:
        raise ValueError(
            "permutation_importance: n_repeats must be at least 2 for a standard error; got "
            f"{n_repeats}."
        )
    baseline, shuffled = _metrics(model, batch, key, metric=metric, n_repeats=n_repeats)
    increases = np.asarray(shuffled, float) - float(baseline)
    names = tuple(features) or tuple(f"x{j + 1}" for j in range(xs.shape[1]))
    return PermutationImportance(
        increase=increases.mean(axis=1),
        error=increases.std(axis=1, ddof=1) / np.sqrt(n_repeats),
        baseline=float(baseline),
        features=names,
    )


@partial(jax.jit, static_argnames=("metric", "n_repeats"))
def _metrics(model, batch, key, *, metric, n_repeats) -> tuple[Array, Array]:
    """The metric on the batch, and with each feature (rows) shuffled `n_repeats` times
    (columns).
    """
    xs, ys = batch

    def shuffled_metric(item):
        column, key = item
        permuted = jr.permutation(key, xs[:, column])
        return metric(model, (xs.at[:, column].set(permuted), ys))

    columns = jax.numpy.repeat(jax.numpy.arange(xs.shape[1]), n_repeats)
    metrics = jax.lax.map(shuffled_metric, (columns, jr.split(key, len(columns))))
    return metric(model, batch), metrics.reshape(-1, n_repeats)

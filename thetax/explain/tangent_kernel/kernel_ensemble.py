r"""What infinitely wide networks believe while they are trained (§9.4, §10.2): a Gaussian process
at every time.

At the start a network is a draw of $GP(0, \mathcal{K})$; training with the squared error maps it
linearly, by $A_t = \Theta(x, X)\, \Theta^{-1} (I - e^{-\Theta t/n})$, and the outputs of all
networks so trained have
$$E f_t(x) = A_t y, \qquad \mathrm{Cov}(f_t(x), f_t(x')) = \mathcal{K}(x, x') - A_t \mathcal{K}(X,
x') -
\mathcal{K}(x, X) A_t'^\top + A_t \mathcal{K} A_t'^\top.$$
It is the spread of an ensemble, and no posterior; where the last layer alone is trained,
$\Theta = \mathcal{K}$, it ends as that of the Gaussian process $\mathcal{K}$. (Lee et al. 2019)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ...core import Batch
from .kernel_gradient_descent import Lazy, Times, lazy_training


@dataclass(frozen=True)
class Spread:
    """The mean of an ensemble and the covariance of one output of it, at each time."""

    mean: Float[np.ndarray, "..."]
    covariance: Float[np.ndarray, "*t m m"]

    @property
    def deviation(self) -> Float[np.ndarray, "*t m"]:
        """The standard deviation of an output."""
        return np.sqrt(np.maximum(np.diagonal(self.covariance, axis1=-2, axis2=-1), 0.0))


@dataclass(frozen=True)
class LazyEnsemble:
    """`ensemble(t, xs)` is the spread at time t; see `lazy_ensemble`."""

    lazy: Lazy
    nngp: Callable[..., Any]
    start: Float[np.ndarray, "n n"]  # the covariance of the outputs at the examples

    def __call__(self, t: Times, xs: Batch | None = None) -> Spread:
        """At other examples, or at those of training."""
        xs = self.lazy.xs if xs is None else xs
        lazy = self.lazy
        mean = lazy(t, xs)
        V = lazy.modes.vectors
        cross = np.asarray(self.nngp(xs, lazy.xs), np.float64)
        A = (
            np.asarray(lazy.kernel(xs, lazy.xs), np.float64) @ V * lazy.spent(t)[..., None, :]
        ) @ V.T
        shared = A @ cross.T
        own = np.asarray(self.nngp(xs), np.float64)
        return Spread(
            mean,
            own - shared - np.swapaxes(shared, -1, -2) + A @ self.start @ np.swapaxes(A, -1, -2),
        )


def lazy_ensemble(
    nngp: Callable[..., Any],
    ntk: Callable[..., Any],
    xs: Batch,
    ys: Any,
    *,
    rate: float | None = None,
    momentum: float = 0.0,
) -> LazyEnsemble:
    r"""The ensemble of all networks of infinite width, drawn and then trained on the
    `squared_error` (§9.4).

    The two kernels are those of `infinite(model)`, each one number for a pair of examples. Time is
    that of `lazy_training`, and may be infinity.

    >>> import jax.random as jr
    >>> from thetax.explain import infinite
    >>> from thetax.layers import tangent
    >>> from thetax.models import MLP
    >>> limit = infinite(MLP.init(2, 8, 1, initialiser=tangent(weight=2**0.5), key=jr.key(0)))
    >>> xs = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> found = lazy_ensemble(limit.nngp, limit.ntk, xs, np.array([1.0, 3.0]))(np.inf)
    >>> found.mean.round(3).tolist(), found.deviation.round(2).tolist()
    ([1.0, 3.0], [0.0, 0.0])
    """
    if not callable(nngp):
        raise ValueError(
            f"lazy_ensemble: nngp must be a function k(xs, ys=None); got {type(nngp).__name__}."
        )
    lazy = lazy_training(ntk, xs, ys, rate=rate, momentum=momentum)
    start = np.asarray(nngp(xs), np.float64)
    if lazy.modes.vectors.shape != start.shape:
        raise ValueError(
            "lazy_ensemble: both kernels must give one number for a pair of examples; they are "
            f"{np.shape(ntk(xs))} and {start.shape}."
        )
    return LazyEnsemble(lazy, nngp, start)

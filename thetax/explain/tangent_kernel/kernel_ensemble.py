r"""Ensemble of trained networks of infinite width (§9.4, §10.2): a Gaussian process at every time.

At initialisation a network is a sample of $GP(0, \mathcal{K})$; training with the squared error
maps it linearly, by $A_t = \Theta(x, X)\, \Theta^{-1} (I - e^{-\Theta t/n})$, and the outputs of
all networks trained this way have
$$E f_t(x) = A_t y, \qquad \mathrm{Cov}(f_t(x), f_t(x')) = \mathcal{K}(x, x') - A_t \mathcal{K}(X,
x') -
\mathcal{K}(x, X) A_t'^\top + A_t \mathcal{K} A_t'^\top.$$
This is the distribution of an ensemble, not a posterior; where only the last layer is trained,
$\Theta = \mathcal{K}$, it ends as the posterior of the Gaussian process $\mathcal{K}$. (Lee et al.
2019)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ...core import Batch
from .kernel_gradient_descent import KernelGradientDescent, Times, kernel_gradient_descent


@dataclass(frozen=True)
class EnsemblePrediction:
    """Mean of the ensemble, and covariance of one output between examples, at each time."""

    mean: Float[np.ndarray, "..."]
    covariance: Float[np.ndarray, "*t m m"]

    @property
    def std(self) -> Float[np.ndarray, "*t m"]:
        """Standard deviation of an output."""
        return np.sqrt(np.maximum(np.diagonal(self.covariance, axis1=-2, axis2=-1), 0.0))


@dataclass(frozen=True)
class KernelEnsemble:
    """`ensemble(t, xs)` is the prediction at time t; see `kernel_ensemble`."""

    descent: KernelGradientDescent
    nngp: Callable[..., Any]
    initial_covariance: Float[np.ndarray, "n n"]  # of the outputs at the training examples

    def __call__(self, t: Times, xs: Batch | None = None) -> EnsemblePrediction:
        """At other inputs, or at the training examples."""
        descent = self.descent
        xs = descent.xs if xs is None else xs
        mean = descent(t, xs)
        V = descent.eigenmodes.eigenvectors
        cross = np.asarray(self.nngp(xs, descent.xs), np.float64)
        s = descent.spectral_filter(t)[..., None, :]
        A = (np.asarray(descent.kernel(xs, descent.xs), np.float64) @ V * s) @ V.T
        shared = A @ cross.T
        own = np.asarray(self.nngp(xs), np.float64)
        trained = A @ self.initial_covariance @ np.swapaxes(A, -1, -2)
        return EnsemblePrediction(mean, own - shared - np.swapaxes(shared, -1, -2) + trained)


def kernel_ensemble(
    nngp: Callable[..., Any],
    ntk: Callable[..., Any],
    xs: Batch,
    ys: Any,
    *,
    learning_rate: float | None = None,
    momentum: float = 0.0,
) -> KernelEnsemble:
    r"""Mean and covariance of all networks of infinite width, randomly initialised and trained on
    the `squared_error` (§9.4).

    The two kernels are those of `infinite_width_limit(model)`, each a scalar for a pair of
    examples. Time is that of `kernel_gradient_descent`, and may be infinity.

    >>> import jax.random as jr
    >>> from thetax.explain import infinite_width_limit
    >>> from thetax.layers import ntk_parametrisation
    >>> from thetax.models import MLP
    >>> model = MLP.init(2, 8, 1, initialiser=ntk_parametrisation(weight=2**0.5), key=jr.key(0))
    >>> limit = infinite_width_limit(model)
    >>> xs = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> ensemble = kernel_ensemble(limit.nngp, limit.ntk, xs, np.array([1.0, 3.0]))
    >>> prediction = ensemble(np.inf)
    >>> prediction.mean.round(3).tolist(), prediction.std.round(2).tolist()
    ([1.0, 3.0], [0.0, 0.0])
    """
    if not callable(nngp):
        raise ValueError(
            f"kernel_ensemble: nngp must be a function k(xs, ys=None); got {type(nngp).__name__}."
        )
    descent = kernel_gradient_descent(ntk, xs, ys, learning_rate=learning_rate, momentum=momentum)
    covariance = np.asarray(nngp(xs), np.float64)
    if descent.eigenmodes.eigenvectors.shape != covariance.shape:
        raise ValueError(
            "kernel_ensemble: both kernels must be a scalar for a pair of examples; their shapes "
            f"are {np.shape(ntk(xs))} and {covariance.shape}."
        )
    return KernelEnsemble(descent, nngp, covariance)

r"""Kernel gradient descent in closed form (§9.2, §9.4): training in function space with a constant
tangent kernel, the lazy regime.

Gradient flow on a loss $h = \frac1n \sum_i l(f(x_i), y_i)$ moves the outputs by
$\dot f(x) = -\frac1n \sum_i k(x, x_i)\, \nabla_f l(f(x_i), y_i)$: the parameters enter through the
kernel alone. With a constant kernel and the squared loss each eigenmode $\lambda$ of $K$ decays
independently,
$$f_t(X) = y + e^{-Kt/n} (f_0(X) - y), \qquad f_t(x) = f_0(x) + k(x)^\top a_t, \quad
a_t = K^{-1} (I - e^{-Kt/n}) (y - f_0(X)),$$
and steps of gradient descent have $(1 - \eta\lambda/n)^t$ in place of the exponential. This is
exactly the training of the linearised network and of a network of infinite width, and approximates
a finite network in the lazy regime. (Jacot et al. 2018, Lee et al. 2019)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from ...check import check_examples
from ...core import Batch, Model, predict
from ...layers import has_batch_norm
from .kernel_eigenmodes import KernelEigenmodes, kernel_eigenmodes, predicted_change

Times = Any  # a time, or an array of times


@dataclass(frozen=True)
class TrainingDynamics:
    r"""Gradient descent with momentum, or gradient flow if `learning_rate` is None, as a spectral
    filter: $a_t = s(\lambda, t)\,r_0$ along an eigenvector.

    Gradient descent has $s_{t+1} = s_t + \eta (1 - \lambda s_t) + \mu (s_t - s_{t-1})$, gradient
    flow $\dot s = 1 - \lambda s$.
    """

    learning_rate: float | None
    momentum: float

    def spectral_filter(
        self, eigenvalues: Float[np.ndarray, " k"], t: float
    ) -> Float[np.ndarray, " k"]:
        r"""$s(\lambda, t)$ for each eigenvalue at a finite time."""
        if self.learning_rate is None:
            positive = eigenvalues > 0
            with np.errstate(invalid="ignore"):
                return np.where(
                    positive, -np.expm1(-eigenvalues * t) / np.where(positive, eigenvalues, 1.0), t
                )
        eta = self.learning_rate
        mu = self.momentum
        one = np.ones_like(eigenvalues)
        # the recursion is linear in (s_t, s_{t-1}, 1): t steps are the t-th power of its matrix
        step = np.array(
            [
                [1 + mu - eta * eigenvalues, -mu * one, eta * one],
                [one, 0 * one, 0 * one],
                [0 * one, 0 * one, one],
            ]
        )
        return np.linalg.matrix_power(step.transpose(2, 0, 1), int(t))[:, 0, 2]

    def check_times(
        self, eigenvalues: Float[np.ndarray, " k"], times: Float[np.ndarray, " t"]
    ) -> None:
        """Raises if times are invalid, or if the limit of an infinite time does not exist."""
        if not len(times) or not (times >= 0).all():
            raise ValueError(
                "kernel_gradient_descent: expected at least one time, all >= 0; got "
                f"{times.tolist()}."
            )
        if self.learning_rate is None:
            return
        if (times[np.isfinite(times)] % 1).any():
            raise ValueError(
                "kernel_gradient_descent: with a learning_rate, times are numbers of steps and "
                f"must be integers; got {times.tolist()}."
            )
        largest = 2 * (1 + self.momentum) / eigenvalues[-1] if eigenvalues[-1] > 0 else np.inf
        if np.isinf(times).any() and self.learning_rate >= largest:
            raise ValueError(
                f"kernel_gradient_descent: learning_rate={self.learning_rate:g} diverges; it must "
                f"be below {largest:.3g}, 2 (1 + momentum) over the largest eigenvalue of K/n."
            )


@dataclass(frozen=True)
class KernelGradientDescent:
    """`descent(t)` are the outputs at the training examples at time t, `descent(t, xs)` those at
    other inputs; see `kernel_gradient_descent`.
    """

    eigenmodes: KernelEigenmodes
    kernel: Callable[..., Any]
    xs: Any
    initial_model: Callable[..., Any] | None
    dynamics: TrainingDynamics

    def __call__(self, t: Times, xs: Batch | None = None) -> Float[np.ndarray, "..."]:
        """The outputs at each time, which may be infinity."""
        if xs is None:
            s = self.spectral_filter(t)
            return self.initial_outputs(self.xs) + self.eigenmodes.training_change(s)
        check_examples(xs, name="kernel_gradient_descent: xs")
        a = self.coefficients(np.atleast_1d(t))
        outputs = self.initial_outputs(xs)[None] + predicted_change(self.kernel(xs, self.xs), a)
        return outputs if np.ndim(t) else outputs[0]

    def coefficients(self, t: Times) -> Float[np.ndarray, "..."]:
        r"""$a_t$ in $f_t(x) = f_0(x) + k(x, X)\, a_t$."""
        return self.eigenmodes.coefficients(self.spectral_filter(t))

    def loss(self, t: Times) -> Float[np.ndarray, "*t"]:
        r"""Training loss, $\frac{1}{2n} \|f_t(X) - y\|^2$."""
        modes = self.eigenmodes
        residual = (1 - modes.eigenvalues * self.spectral_filter(t))[..., None] * modes.residual
        return np.asarray(np.square(residual).sum(axis=(-2, -1)) / (2 * modes.shape[0]))

    def initial_outputs(self, xs: Any) -> Float[np.ndarray, "m *o"]:
        """$f_0$, the outputs before training."""
        if self.initial_model is None:
            return np.zeros((len(jax.tree.leaves(xs)[0]), *self.eigenmodes.shape[1:]))
        return np.asarray(predict(self.initial_model, xs), np.float64)

    def spectral_filter(self, t: Times) -> Float[np.ndarray, "*t k"]:
        r"""$s(\lambda, t)$ of every eigenvalue of $K$."""
        n = self.eigenmodes.shape[0]
        times = np.asarray(t, np.float64)
        eigenvalues = self.eigenmodes.eigenvalues / n
        self.dynamics.check_times(eigenvalues, times.ravel())
        at_time = lambda t: (
            self.eigenmodes.inverse()
            if np.isinf(t)
            else self.dynamics.spectral_filter(eigenvalues, t) / n
        )
        return np.stack([at_time(t) for t in times.ravel()]).reshape(*times.shape, -1)


def kernel_gradient_descent(
    kernel: Callable[..., Any],
    xs: Batch,
    ys: Any,
    *,
    initial_model: Model | None = None,
    learning_rate: float | None = None,
    momentum: float = 0.0,
) -> KernelGradientDescent:
    r"""Gradient descent or gradient flow on the `squared_error` of stacked examples with a constant
    tangent kernel (the lazy regime), solved for all times (§9.2).

    `kernel` is `ntk(model)` together with `initial_model=model`, or the kernel of an
    `infinite_width_limit`, or any `k(xs, ys)` that is a scalar for a pair of examples or a matrix
    over pairs of outputs. `initial_model` is $f_0$; None means 0. Time is that of `gradient_flow`;
    with a `learning_rate` it is the number of steps of full-batch gradient descent,
    `optax.sgd(learning_rate, momentum)`. Computed in float64 from one eigendecomposition of $K$.

    Departs: the notes sum the losses of the examples where `squared_error` takes their mean, so
    that their time runs $n$ times as fast; and they leave out $f_0(x)$ at the end of training.

    >>> import jax.numpy as jnp
    >>> import jax.random as jr
    >>> from thetax.explain import ntk
    >>> from thetax.models import MLP
    >>> model = MLP.init(3, 16, 1, key=jr.key(0))
    >>> xs = jr.normal(jr.key(1), (5, 3))
    >>> ys = jnp.ones((5, 1))
    >>> descent = kernel_gradient_descent(ntk(model), xs, ys, initial_model=model)
    >>> descent([0.0, 1.0], xs[:2]).shape, descent(jnp.inf).round(3).ravel().tolist()
    ((2, 2, 1), [1.0, 1.0, 1.0, 1.0, 1.0])
    """
    name = "kernel_gradient_descent"
    if not callable(kernel):
        raise ValueError(
            f"{name}: kernel must be a function k(xs, ys=None); got {type(kernel).__name__}."
        )
    n = check_examples(xs, name=f"{name}: xs")
    if learning_rate is not None and not 0 < learning_rate < np.inf:
        raise ValueError(f"{name}: learning_rate must be positive and finite; got {learning_rate}.")
    if momentum and learning_rate is None:
        raise ValueError(
            f"{name}: gradient flow has no momentum; got momentum={momentum}. Give a "
            "learning_rate too."
        )
    if not 0 <= momentum < 1:
        raise ValueError(f"{name}: momentum must lie in [0, 1); got {momentum}.")
    check_no_batch_norm(name, initial_model)
    if np.ndim(ys) == 0 or len(ys) != n:
        raise ValueError(
            f"{name}: xs has {n} examples, but ys has shape {np.shape(ys)}; give one row of ys "
            "for each example."
        )
    f = np.zeros(np.shape(ys)) if initial_model is None else predict(initial_model, xs)
    modes = kernel_eigenmodes(kernel(xs), ys, f)
    dynamics = TrainingDynamics(learning_rate, momentum)
    return KernelGradientDescent(modes, kernel, xs, initial_model, dynamics)


def check_no_batch_norm(name: str, initial_model: Model | None) -> None:
    """Raises if the output of the model for one example depends on the other examples."""
    if initial_model is not None and has_batch_norm(initial_model):
        raise ValueError(
            f"{name}: the outputs of batch norm depend on the batch; use "
            "fold_batch_norm(initial_model, xs) first."
        )

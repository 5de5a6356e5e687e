r"""Training of a network compared with training of its linearisation (§9.2): same examples, same
steps, test error of both.

Both minimise the squared error $\frac{1}{2n} \sum_i \|f(x_i) - f_0(x_i) - y_i\|^2$ from $\theta_0$
by the same steps,
$$v \leftarrow \mu v + \nabla L(\theta), \qquad \theta \leftarrow \theta - \eta v.$$
The outputs of the linearised network at every step are known in closed form from the tangent kernel
at $\theta_0$. As long as the two agree the network is in the lazy regime; if the true network ends
with a lower error, it has learnt features that the initial kernel lacks. (Lee et al. 2019; Chizat,
Oyallon & Bach 2019 for subtracting $f_0$)
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Shaped

from ... import tree
from ...check import expect_count
from ...core import Batch, Model, predict
from ...train import squared_error
from .kernel_gradient_descent import TrainingDynamics, kernel_gradient_descent
from .ntk import ntk
from .tangent_spectrum import are_classes

N_EVALUATIONS = 14  # steps at which both networks are evaluated
MOMENTUM = 0.9
# learning rate times the largest eigenvalue of K/n; training diverges from 2 (1 + momentum) on
RELATIVE_LEARNING_RATE = 0.5


@dataclass(frozen=True)
class LinearisedComparison:
    r"""Test errors and training losses of the linearised network (first) and of the true network,
    at some steps.

    The error is the misclassification rate or, for regression targets, the fraction of variance
    unexplained. `gap` is $\|f_t - h_t\| / \|f_t - f_0\|$ on the test examples: the fraction of the
    learnt change that linearisation misses.
    """

    errors: Float[np.ndarray, "2 t"]
    losses: Float[np.ndarray, "2 t"]
    gap: Float[np.ndarray, " t"]
    steps: Int[np.ndarray, " t"]
    n_examples: int
    learning_rate: float
    is_classification: bool


def compare_linearised(
    model: Model, train: Batch, test: Batch, *, steps: int = 500
) -> LinearisedComparison:
    r"""Trains a network and its linearisation from the same parameters on a few examples
    `(xs, ys)`, and tests both (§9.2).

    Classes (integers) become one-hot targets minus their mean, or -1 and 1 for two classes and one
    output. The initial outputs, which are random, are subtracted. Training is full-batch gradient
    descent with $\mu = 0.9$ and $\eta$ one half over the largest eigenvalue of $\frac1n K$. The
    kernel of all pairs of outputs is stored and decomposed: $(no)^3$ operations for $n$ examples
    and $o$ outputs.

    >>> import jax.random as jr
    >>> from thetax.models import MLP
    >>> xs = jr.normal(jr.key(1), (30, 3))
    >>> data = xs, (xs[:, 0] > 0).astype(int)
    >>> result = compare_linearised(MLP.init(3, 64, 2, key=jr.key(0)), data, data, steps=50)
    >>> result.errors.shape == (2, len(result.steps))
    True
    >>> bool(result.losses[0, -1] < result.losses[0, 0])
    True
    """
    expect_count("compare_linearised", steps=steps)
    (xs, ys), (test_xs, test_ys) = train, test
    f = predict(model, xs)
    Y, test_Y = (_targets(labels, f.shape[1:]) for labels in (ys, test_ys))
    shifted = Y + np.asarray(f, np.float64)
    descent = kernel_gradient_descent(ntk(model), xs, shifted, initial_model=model)
    learning_rate = float(RELATIVE_LEARNING_RATE * len(Y) / descent.eigenmodes.eigenvalues[-1])
    descent = replace(descent, dynamics=TrainingDynamics(learning_rate, MOMENTUM))
    at_steps = np.unique(np.geomspace(1, steps, N_EVALUATIONS).round().astype(int))
    at_steps = np.concatenate([[0], at_steps])
    batch = (xs, jnp.asarray(shifted, f.dtype))
    outputs, losses = _train(model, batch, test_xs, at_steps, learning_rate)
    linearised = descent(at_steps, test_xs) - outputs[:1]
    outputs = outputs - outputs[:1]
    is_classification = are_classes(ys)
    error = partial(
        _misclassification_rate if is_classification else _unexplained_variance, targets=test_Y
    )
    flat = (len(at_steps), -1)
    change = np.linalg.norm(outputs.reshape(flat), axis=1)
    missed = np.linalg.norm((outputs - linearised).reshape(flat), axis=1)
    return LinearisedComparison(
        errors=np.array([[error(f) for f in path] for path in (linearised, outputs)]),
        losses=np.array([descent.loss(at_steps), losses]),
        gap=np.divide(missed, change, out=np.zeros(len(at_steps)), where=change > 0),
        steps=at_steps,
        n_examples=len(Y),
        learning_rate=learning_rate,
        is_classification=is_classification,
    )


def _targets(ys: Shaped[Any, "n ..."], shape: tuple[int, ...]) -> Float[np.ndarray, "n ..."]:
    """Regression targets for outputs of this shape."""
    labels = np.asarray(ys)
    n_outputs = int(np.prod(shape))
    if not are_classes(ys):
        if labels[0].size != n_outputs:
            raise ValueError(
                f"compare_linearised: the model has {n_outputs} outputs, but ys has shape "
                f"{labels.shape}."
            )
        return labels.astype(np.float64).reshape(-1, *shape)
    if n_outputs == 1:
        return np.where(labels > 0, 1.0, -1.0).reshape(-1, *shape)
    if not 0 <= labels.min() <= labels.max() < n_outputs:
        raise ValueError(
            f"compare_linearised: classes must lie in 0 to {n_outputs - 1}; got {labels.min()} to "
            f"{labels.max()}."
        )
    return np.eye(n_outputs)[labels] - 1 / n_outputs


def _misclassification_rate(
    f: Float[np.ndarray, "m *o"], *, targets: Float[np.ndarray, "m *o"]
) -> float:
    predicted = lambda out: out.argmax(axis=1) if out.size > len(out) else out.ravel() > 0
    return float(np.mean(predicted(f) != predicted(targets)))


def _unexplained_variance(
    f: Float[np.ndarray, "m *o"], *, targets: Float[np.ndarray, "m *o"]
) -> float:
    variance = np.square(targets - targets.mean(axis=0)).sum()
    return float(np.square(f - targets).sum() / variance)


def _train(
    model: Any, data: Any, test_xs: Any, at_steps: Any, learning_rate: float
) -> tuple[Any, Any]:
    """Test outputs and training loss of the true network at the given steps."""
    (theta, v), outputs, losses = (model, tree.zeros_like(model)), [], []
    for previous, step in zip([0, *at_steps[:-1]], at_steps):
        theta, v = _momentum_steps(theta, v, data, learning_rate, step - previous)
        outputs.append(np.asarray(predict(theta, test_xs), np.float64))
        losses.append(float(squared_error(theta, data)))
    return np.stack(outputs), np.array(losses)


@jax.jit
def _momentum_steps(
    theta: Any, v: Any, data: Any, learning_rate: Any, steps: Any
) -> tuple[Any, Any]:
    r"""$\theta$ and $v$ after full-batch gradient steps with momentum."""

    def step(_: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        theta, v = state
        v = tree.axpy(MOMENTUM, v, jax.grad(squared_error)(theta, data))
        return tree.axpy(-learning_rate, v, theta), v

    return jax.lax.fori_loop(0, steps, step, (theta, v))

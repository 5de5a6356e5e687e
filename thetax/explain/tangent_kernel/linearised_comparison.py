r"""The linearised network beside the true one (§9.2): the same examples, the same steps, and what
each has learnt.

Both descend the squared error $\frac{1}{2n} \sum_i \|f(x_i) - f_0(x_i) - y_i\|^2$ from $\theta_0$
by the same steps,
$$v \leftarrow \mu v + \nabla L(\theta), \qquad \theta \leftarrow \theta - \eta v.$$ What the
linearised one says at every step is known in closed form from the tangent kernel at $\theta_0$. As
long as the two agree the network is lazy; if the true one ends with fewer mistakes, it has learnt
features that the kernel at the start lacks. (Lee et al. 2019; Chizat, Oyallon & Bach 2019 for
counting from $f_0$)
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Shaped

from ... import tree
from ...core import Batch, Model, predict
from ...train import squared_error
from .kernel_gradient_descent import Clock, lazy_training
from .ntk import ntk
from .tangent_spectrum import are_classes

COUNT = 14  # steps at which both are judged
MOMENTUM = 0.9
RATE = (
    0.5  # in units of one over the largest eigenvalue, of which 2 (1 + momentum) would be too many
)


@dataclass(frozen=True)
class Laziness:
    r"""Errors on the test examples of the linearised network (first) and the true one, at some
    steps, and their losses.

    An error is the share of wrong classes or, where targets are numbers, of their variance that is
    not explained. `gap` is $\|f_t - h_t\| / \|f_t - f_0\|$ on the test examples: how much of what
    was learnt the line misses.
    """

    errors: Float[np.ndarray, "2 t"]
    losses: Float[np.ndarray, "2 t"]
    gap: Float[np.ndarray, " t"]
    steps: Int[np.ndarray, " t"]
    examples: int
    rate: float
    classes: bool


def laziness(start: Model, train: Batch, test: Batch, *, steps: int = 500) -> Laziness:
    r"""Trains a network and its Taylor model from the same start on a few examples `(xs, ys)`, and
    tests both (§9.2).

    Classes (whole numbers) become targets of 1 in their own output and 0 elsewhere, less the mean;
    of two classes and one output, -1 and 1. Outputs count from those of the start, which are
    chance. Steps see all examples, with $\mu = 0.9$ and $\eta$ one half over the largest eigenvalue
    of $\frac1n K$. The kernel of all pairs of outputs is held and decomposed: $(no)^3$ operations
    for $n$ examples and $o$ outputs.

    >>> import jax.random as jr
    >>> from thetax.models import MLP
    >>> xs = jr.normal(jr.key(1), (30, 3))
    >>> data = xs, (xs[:, 0] > 0).astype(int)
    >>> found = laziness(MLP.init(3, 64, 2, key=jr.key(0)), data, data, steps=50)
    >>> found.errors.shape == (2, len(found.steps)), bool(found.losses[0, -1] < found.losses[0, 0])
    (True, True)
    """
    if steps < 1:
        raise ValueError(f"laziness: steps must be at least 1; got {steps}.")
    (xs, ys), (test_xs, test_ys) = train, test
    f = predict(start, xs)
    Y, truth = (_targets(part, f.shape[1:]) for part in (ys, test_ys))
    hit = Y + np.asarray(f, np.float64)
    lazy = lazy_training(ntk(start), xs, hit, start=start)
    rate = float(RATE * len(Y) / lazy.modes.values[-1])
    lazy = replace(lazy, clock=Clock(rate, MOMENTUM))
    at = np.unique(np.geomspace(1, steps, COUNT).round().astype(int))
    at = np.concatenate([[0], at])
    outputs, losses = _trained(start, (xs, jnp.asarray(hit, f.dtype)), test_xs, at, rate)
    straight = lazy(at, test_xs) - outputs[:1]
    outputs = outputs - outputs[:1]
    classes = are_classes(ys)
    error = partial(_wrong if classes else _unexplained, truth=truth)
    far = np.linalg.norm(outputs.reshape(len(at), -1), axis=1)
    missed = np.linalg.norm((outputs - straight).reshape(len(at), -1), axis=1)
    return Laziness(
        errors=np.array([[error(f) for f in way] for way in (straight, outputs)]),
        losses=np.array([lazy.loss(at), losses]),
        gap=np.divide(missed, far, out=np.zeros(len(at)), where=far > 0),
        steps=at,
        examples=len(Y),
        rate=rate,
        classes=classes,
    )


def _targets(ys: Shaped[Any, "n ..."], shape: tuple[int, ...]) -> Float[np.ndarray, "n ..."]:
    """What the outputs, of this shape, are to be."""
    labels = np.asarray(ys)
    size = int(np.prod(shape))
    if not are_classes(ys):
        if labels[0].size != size:
            raise ValueError(
                f"laziness: expected targets of {size} numbers, as the outputs are; got "
                f"{labels.shape}."
            )
        return labels.astype(np.float64).reshape(-1, *shape)
    if size == 1:
        return np.where(labels > 0, 1.0, -1.0).reshape(-1, *shape)
    if not 0 <= labels.min() <= labels.max() < size:
        raise ValueError(
            f"laziness: classes must lie in 0 to {size - 1}; got {labels.min()} to {labels.max()}."
        )
    return np.eye(size)[labels] - 1 / size


def _wrong(f: Float[np.ndarray, "m *o"], *, truth: Float[np.ndarray, "m *o"]) -> float:
    choice = lambda out: out.argmax(axis=1) if out.size > len(out) else out.ravel() > 0
    return float(np.mean(choice(f) != choice(truth)))


def _unexplained(f: Float[np.ndarray, "m *o"], *, truth: Float[np.ndarray, "m *o"]) -> float:
    return float(np.square(f - truth).sum() / np.square(truth - truth.mean(axis=0)).sum())


def _trained(start: Any, data: Any, test_xs: Any, at: Any, rate: float) -> tuple[Any, Any]:
    """The outputs of the true network on the test inputs, and its loss, after so many steps."""
    (theta, v), outputs, losses = (start, tree.zeros_like(start)), [], []
    for done, upto in zip([0, *at[:-1]], at):
        theta, v = _descended(theta, v, data, rate, upto - done)
        outputs.append(np.asarray(predict(theta, test_xs), np.float64))
        losses.append(float(squared_error(theta, data)))
    return np.stack(outputs), np.array(losses)


@jax.jit
def _descended(theta: Any, v: Any, data: Any, rate: Any, steps: Any) -> tuple[Any, Any]:
    r"""$\theta$ and $v$ after so many steps, each on all examples."""

    def step(_: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        theta, v = state
        v = tree.axpy(MOMENTUM, v, jax.grad(squared_error)(theta, data))
        return tree.axpy(-rate, v, theta), v

    return jax.lax.fori_loop(0, steps, step, (theta, v))

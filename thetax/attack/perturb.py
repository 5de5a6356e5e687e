"""Runs an attack on every example of a dataset in batches, as one compiled program: another radius
or step size does not recompile.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..check import expect_count
from ..core import BATCH_AXIS, Model, Scalar
from ..progress import count_progress
from ..threat.ball import L2, Ball, Perturbation
from ..threat.inputs import check_attack_data
from .base import Attack
from .continuous_batching import IterativeAttack, run_batched
from .goal import Goal, maximise_loss, untargeted


@dataclass(frozen=True)
class Perturbed:
    r"""Adversarial inputs, and for each example whether the attack succeeded and how far the input
    was moved.

    `success` is the attack's goal, evaluated again at `xs`; NaN logits never count as success.
    `distance` is $\|x' - x\|$ in the attack's norm.
    """

    xs: Float[Array, "n *s"]
    success: Bool[np.ndarray, " n"]
    distance: Float[np.ndarray, " n"]


def perturb(
    model: Model,
    data: tuple[Any, Any],
    attack: Attack,
    *,
    goal: Goal | None = None,
    batch_size: int = 64,
    key: PRNGKeyArray | None = None,
) -> Perturbed:
    """Adversarial examples: runs the attack on every example of `(xs, ys)`, `batch_size` at a time;
    with a key, each example gets a key of its own.

    `success` is whether `goal`, by default the attack's own, is reached at the returned inputs,
    after every clipping and rounding. If the goal is a plain loss, which is never reached, or the
    attack has none, success means that the predicted class differs from the label; where the labels
    are no integers it is False. The distance is measured in the attack's norm, that of its ball,
    or else in the Euclidean norm.

    A finished example's slot in the batch goes to the next one (continuous batching). On an
    accelerator a larger `batch_size` is faster; on a CPU it is not.

    >>> from thetax.attack import PGD, margin_loss
    >>> from thetax.layers import Linear
    >>> from thetax.threat import Linf
    >>> line = Linear(jnp.array([[0.5, 0.0], [1.0, -2.0]]), jnp.array([1.0, 0.0]))
    >>> attack = PGD(margin_loss, Linf(0.5), step_size=0.5, steps=1)
    >>> result = perturb(line, (jnp.array([[0.0, 0.0], [-2.0, 0.0]]), jnp.zeros(2, int)), attack)
    >>> result.xs.tolist(), result.success.tolist(), result.distance.tolist()
    ([[0.5, -0.5], [-1.5, -0.5]], [True, False], [0.5, 0.5])
    """
    xs, ys = check_attack_data("perturb", attack, model, data)
    expect_count("perturb", batch_size=batch_size)
    n = len(xs)
    size = min(batch_size, n)
    keys = None if key is None else jr.split(key, n)
    # numbers become arrays, so that the compiled program takes them as arguments
    attack = jax.tree.map(
        lambda leaf: jnp.asarray(leaf) if isinstance(leaf, float | int) else leaf, attack
    )
    # the last block is padded with its last example to the size of the others
    blocks = [np.minimum(np.arange(i, i + size), n - 1) for i in range(0, n, size)]
    points = np.empty(xs.shape, xs.dtype)
    with count_progress(f"perturb, {type(attack).__name__}: examples", n) as update:
        if isinstance(attack, IterativeAttack):
            points = run_batched(attack, model, xs, ys, keys, slots=size, on_progress=update)
        else:
            for rows in blocks:
                block_keys = None if keys is None else keys[rows]
                points[rows] = _run_block(attack, model, xs[rows], ys[rows], block_keys)
                update(int(rows[-1]) + 1)
    goal = goal or getattr(attack, "goal", None)
    norm = _norm_of(attack)
    success = np.empty(n, bool)
    distance = np.empty(n, xs.dtype)
    for rows in blocks:
        success[rows], distance[rows] = _evaluate_block(
            goal, norm, model, xs[rows], ys[rows], jnp.asarray(points[rows])
        )
    return Perturbed(jnp.asarray(points), success, distance)


def attack_examples(attack: Attack, model: Model, xs: Array, ys: Array, keys: Any) -> Array:
    """The attack's outputs for a batch of examples; `keys` holds one key for each, or is None."""
    call = lambda x, y, key: attack(model, x, y, key=key)
    return jax.vmap(call, in_axes=(0, 0, None if keys is None else 0), axis_name=BATCH_AXIS)(
        xs, ys, keys
    )


_run_block = eqx.filter_jit(attack_examples)


@eqx.filter_jit
def _evaluate_block(
    goal: Goal | None,
    norm: Callable[[Perturbation], Scalar],
    model: Model,
    xs: Array,
    ys: Array,
    points: Array,
) -> tuple[Bool[Array, " n"], Float[Array, " n"]]:
    """Whether the goal is reached at each point, and the point's distance from its example."""

    def evaluate(x, y, point):
        return _is_success(goal, model(point), y), norm(point - x).astype(x.dtype)

    return jax.vmap(evaluate, axis_name=BATCH_AXIS)(xs, ys, points)


def _is_success(goal: Goal | None, logits: Any, y: Any) -> Bool[Array, ""]:
    """The goal's success; without a goal that can be reached, misclassification."""
    if isinstance(goal, Goal) and goal != maximise_loss(goal.gain):
        return goal.success(logits, y)
    has_label = y.ndim == 0 and jnp.issubdtype(y.dtype, jnp.integer)
    if not has_label or logits.ndim != 1 or len(logits) < 2:
        return jnp.zeros((), bool)
    return untargeted().success(logits, y)


def _norm_of(attack: Any) -> Callable[[Perturbation], Scalar]:
    """The norm an attack minimises or is bounded in: its `norm`, that of its `ball`, that of the
    attack that it wraps, or the Euclidean norm.
    """
    norm = getattr(attack, "norm", None)
    if isinstance(norm, type) and issubclass(norm, Ball):
        return norm(1.0).norm
    ball = getattr(attack, "ball", None)
    if isinstance(ball, Ball):
        return ball.norm
    inner = getattr(attack, "attack", None)
    return L2(1.0).norm if inner is None else _norm_of(inner)

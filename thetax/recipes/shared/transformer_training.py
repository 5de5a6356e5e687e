"""Optimisers, learning rate schedules and evaluation of the recipes for transformers."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from ...core import Batch, Scalar, upcast
from ...layers import Initialiser, Stacked, gaussian
from ...serialise import recorded
from ...train import log_loss, per_token
from ...train.objectives.loss import Loss

MAX_GRADIENT_NORM = 1.0
EVALUATION_BLOCK = 32  # examples evaluated at once


def width_scaled(width: int) -> Initialiser:
    """Initialiser of a narrow transformer: standard deviation one over the root of the width.

    With the 0.02 of wide transformers its attention stays uniform for many steps.
    """
    return gaussian(1 / math.sqrt(width))


def matrix_mask(model: Any) -> Any:
    """True for weight matrices, in stacked layers too; false for biases and gains.

    >>> import jax.random as jr
    >>> from functools import partial
    >>> from thetax.layers import Linear
    >>> matrix_mask(Stacked.init(partial(Linear.init, 3, 3), 5, key=jr.key(0))).layers.b
    False
    """
    stacked = lambda node: isinstance(node, Stacked)
    mask = lambda node: jax.tree.map(lambda leaf: leaf.ndim > (2 if stacked(node) else 1), node)
    return jax.tree.map(mask, model, is_leaf=stacked)


def adamw_on_matrices(
    learning_rate: optax.Schedule, *, weight_decay: float, beta2: float = 0.999
) -> optax.GradientTransformation:
    """AdamW with gradient clipping and weight decay on weight matrices only."""
    adam = optax.adamw(learning_rate, b2=beta2, weight_decay=weight_decay, mask=matrix_mask)
    return optax.chain(optax.clip_by_global_norm(MAX_GRADIENT_NORM), adam)


def warmup_cosine(learning_rate: float, steps: int, *, warmup: float) -> optax.Schedule:
    """Linear warmup over a fraction `warmup` of the steps, then cosine decay to zero."""
    n = max(1, round(warmup * steps))
    return optax.warmup_cosine_decay_schedule(0.0, learning_rate, n, max(n + 1, steps))


def inverse_sqrt_schedule(learning_rate: float, *, warmup_steps: int) -> optax.Schedule:
    r"""$\eta\, \min(n / w, \sqrt{w / n})$ in step $n$: linear warmup over $w$ steps, then
    decay (Vaswani et al. 2017).

    >>> [round(float(inverse_sqrt_schedule(1.0, warmup_steps=4)(n)), 3) for n in (0, 1, 3, 15)]
    [0.25, 0.5, 1.0, 0.5]
    """

    def schedule(count):
        n = jnp.asarray(count, jnp.float32) + 1
        return learning_rate * jnp.minimum(n / warmup_steps, jnp.sqrt(warmup_steps / n))

    return schedule


@recorded
def label_smoothed_log_loss(strength: float) -> Loss:
    r"""The log loss of smoothed labels $(1 - \epsilon) e_y + \frac{\epsilon}{k} 1$ (§8.8).

    >>> round(float(label_smoothed_log_loss(0.2)(jnp.array([5.0, 0.0]), jnp.array(0))), 4)
    0.5067
    """
    if not 0 <= strength < 1:
        raise ValueError(f"label_smoothed_log_loss: strength must lie in [0, 1); got {strength}.")

    def loss(logits: Float[Array, " k"], y: Int[Array, ""]) -> Scalar:
        z = upcast(logits)
        uniform = jax.nn.logsumexp(z) - z.mean()
        return (1 - strength) * log_loss(logits, y) + strength * uniform

    return loss


def blockwise_token_cross_entropy(model: Any, batch: Batch, *, key: Any = None) -> Scalar:
    """`token_cross_entropy` in blocks of examples, to save the memory of the logits."""
    n_targets = (batch[1] >= 0).sum(axis=1).astype(jnp.float32)
    objective = per_token(log_loss)

    def loss(example):
        return objective(model, jax.tree.map(lambda a: a[None], example))

    losses = jax.lax.map(loss, batch, batch_size=EVALUATION_BLOCK)
    return losses @ n_targets / jnp.maximum(n_targets.sum(), 1)

"""What the recipes of transformers share: how they are descended, and how they are judged token by
token.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from ...core import Batch, Scalar, wide
from ...layers import Initialiser, Stacked, gaussian
from ...train import log_loss, per_token
from ...train.objectives.loss import Loss

CLIP = 1.0  # the longest gradient
BLOCK = 32  # examples whose logits are held at once while a model is judged


def narrow(width: int) -> Initialiser:
    """The law of the weights of a narrow network; with 0.02, as of a wide one, it looks at nothing
    for long.
    """
    return gaussian(1 / math.sqrt(width))


def matrices(model: Any) -> Any:
    """True for the matrices among the parameters, those of stacked layers too; false for offsets
    and gains.

    >>> import jax.random as jr
    >>> from functools import partial
    >>> from thetax.layers import Linear
    >>> matrices(Stacked.init(partial(Linear.init, 3, 3), 5, key=jr.key(0))).layers.b
    False
    """
    stacked = lambda node: isinstance(node, Stacked)
    told = lambda node: jax.tree.map(lambda leaf: leaf.ndim > (2 if stacked(node) else 1), node)
    return jax.tree.map(told, model, is_leaf=stacked)


def decayed_adam(
    rate: optax.Schedule, *, decay: float, late: float = 0.999
) -> optax.GradientTransformation:
    r"""Adam with $\beta_2$ = `late` on gradients of bounded length, and decay of the matrices
    alone.
    """
    adam = optax.adamw(rate, b2=late, weight_decay=decay, mask=matrices)
    return optax.chain(optax.clip_by_global_norm(CLIP), adam)


def warm_cosine(rate: float, steps: int, *, warm: float) -> optax.Schedule:
    """Up to `rate` in a line over the share `warm` of the steps, then down to zero along a
    cosine.
    """
    rise = max(1, round(warm * steps))
    return optax.warmup_cosine_decay_schedule(0.0, rate, rise, max(rise + 1, steps))


def warm_root(rate: float, *, warm: int) -> optax.Schedule:
    r"""$\eta\, \min(n / w, \sqrt{w / n})$ in step $n$: up in a line for $w$ steps, then down
    (Vaswani et al. 2017).

    >>> [round(float(warm_root(1.0, warm=4)(n)), 3) for n in (0, 1, 3, 15)]
    [0.25, 0.5, 1.0, 0.5]
    """

    def schedule(count):
        n = jnp.asarray(count, jnp.float32) + 1
        return rate * jnp.minimum(n / warm, jnp.sqrt(warm / n))

    return schedule


def smooth_log_loss(strength: float) -> Loss:
    r"""The loss under labels $(1 - \epsilon) e_y + \frac{\epsilon}{k} 1$, without making them
    (§8.8).

    >>> round(float(smooth_log_loss(0.2)(jnp.array([5.0, 0.0]), jnp.array(0))), 4)
    0.5067
    """
    if not 0 <= strength < 1:
        raise ValueError(
            f"smoothing is a share of the label, from 0 on and less than 1; got {strength}."
        )

    def loss(logits: Float[Array, " k"], y: Int[Array, ""]) -> Scalar:
        z = wide(logits)
        even = jax.nn.logsumexp(z) - z.mean()
        return (1 - strength) * log_loss(logits, y) + strength * even

    return loss


def token_loss(model: Any, batch: Batch, *, key: Any = None) -> Scalar:
    """`token_cross_entropy` a few examples at a time, for logits of a whole set over many tokens
    would not fit.
    """
    xs, ys = batch
    there = (ys >= 0).sum(axis=1).astype(jnp.float32)
    judged = per_token(log_loss)

    def one(item):
        return judged(model, jax.tree.map(lambda a: a[None], item))

    return jax.lax.map(one, (xs, ys), batch_size=BLOCK) @ there / jnp.maximum(there.sum(), 1)

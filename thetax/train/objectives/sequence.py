r"""Per-token objectives of sequences (§5): $L = \sum_t \ell(\hat y_t, y_t)$ over the positions that
have a target.

A model returns logits for every position; a target is a token, or -1 for none (padding). The mean
is over all targets of a batch, so each target has the same weight, whatever the length of its
sequence.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...core import Batch, Model, Objective, Scalar, predict
from ...layers import expect_tokens
from ...serialise import recorded
from .loss import Loss, log_loss, zero_one_loss


@recorded
def per_token(loss: Loss) -> Objective:
    r"""The mean of a loss over all tokens of a batch that have a target, as an objective:
    $\frac{1}{|\{(i,t) : y_{it} \ge 0\}|} \sum_{y_{it} \ge 0} \ell(\hat y_{it}, y_{it})$ (§5).

    >>> import jax.random as jr
    >>> from thetax.layers import Recurrent
    >>> from thetax.models import LanguageModelCell
    >>> model = Recurrent(LanguageModelCell.init(5, 3, 4, key=jr.key(0)))
    >>> tokens = jnp.array([[0, 1, 2], [3, 4, -1]])
    >>> targets = jnp.array([[1, 2, 3], [4, -1, -1]])
    >>> per_token(log_loss)(model, (tokens, targets)).shape
    ()
    """

    def objective(model: Model, batch: Batch, *, key: PRNGKeyArray | None = None) -> Scalar:
        xs, ys = batch
        losses = jax.vmap(jax.vmap(loss))(_logits(model, xs, ys, key), jnp.maximum(ys, 0))
        has_target = ys >= 0
        n_targets = jnp.maximum(has_target.sum(), 1)
        return jnp.where(has_target, losses, 0).sum() / n_targets.astype(losses.dtype)

    return objective


token_cross_entropy = per_token(log_loss)  # Mean cross-entropy per token, in nats.
token_error_rate = per_token(zero_one_loss)  # Fraction of tokens that are predicted wrongly.


def sequence_error_rate(model: Model, batch: Batch, *, key: PRNGKeyArray | None = None) -> Scalar:
    r"""Fraction of sequences with at least one wrong token."""
    xs, ys = batch
    wrong = (jnp.argmax(_logits(model, xs, ys, key), axis=-1) != ys) & (ys >= 0)
    return wrong.any(axis=1).astype(jnp.float32).mean()


def _logits(
    model: Model, xs: Batch, ys: Int[Array, "n t"], key: PRNGKeyArray | None
) -> Float[Array, "n t v"]:
    logits = predict(model, xs, key=key)
    if (
        logits.ndim != 3
        or logits.shape[:2] != ys.shape
        or not jnp.issubdtype(ys.dtype, jnp.integer)
    ):
        raise ValueError(
            "per_token: expected logits of shape (n, t, v) and integer targets of shape (n, t); "
            f"got {logits.shape} and {ys.dtype}{ys.shape}."
        )
    expect_tokens("per_token: targets", ys, logits.shape[2])
    return logits

r"""Objectives of BERT (§6.5): masked language modelling, next-sentence prediction, span prediction.

A batch for `BERTPretraining` is `((tokens, segments), labels)`, where a label is 0 if the second
sentence follows the first and 1 if it does not. Masks are sampled from the key at every step
(dynamic masking). Without a key they are always the same, so that validation losses are comparable.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...core import Batch, Objective, Scalar, predict
from ...data import mask_tokens
from ...layers import tanh
from ...models import BERTPretraining, best_span
from ...serialise import recorded
from .loss import batch_mean, log_loss, zero_one_loss

MASK_RATE = 0.15  # fraction of the tokens to predict
SPARE_DEVIATIONS = 6  # standard deviations above the mean number of masked tokens with room
MAX_ANSWER_LENGTH = 30  # tokens


@recorded
def bert_pretraining(
    *, mask_id: int, special_ids: Sequence[int], mask_rate: float = MASK_RATE
) -> Objective:
    r"""BERT's pretraining loss, masked language modelling plus next-sentence prediction:
    $-\frac{1}{|M|}\sum_{i \in M} \log p(x_i \mid \tilde x) - \frac1n \sum_j \log p(y_j \mid
    \tilde x_j)$ (§6.5).

    $M$ are the positions of the batch that `mask_tokens` selects, $\tilde x$ is the masked text,
    and $y$ the next-sentence label. Logits over the vocabulary are computed only at masked
    positions, of which a batch may have up to six standard deviations more than the mean. (Devlin
    et al. 2019)

    >>> from thetax.models import BERT
    >>> bert = BERT.init(11, 8, depth=1, heads=2, max_length=6, key=jr.key(0))
    >>> tokens, segments = jnp.array([[1, 5, 6, 2, 7, 2]]), jnp.array([[0, 0, 0, 0, 1, 1]])
    >>> objective = bert_pretraining(mask_id=4, special_ids=(0, 1, 2, 3, 4), mask_rate=0.5)
    >>> loss = objective(
    ...     BERTPretraining.init(bert, key=jr.key(1)), ((tokens, segments), jnp.array([0]))
    ... )
    >>> bool(abs(loss - jnp.log(11) - jnp.log(2)) < 0.2)
    True
    """

    def objective(
        model: BERTPretraining, batch: Batch, *, key: PRNGKeyArray | None = None
    ) -> Scalar:
        vectors, targets, labels = _encode_masked(
            model, batch, mask_id, special_ids, mask_rate, key
        )
        mlm_loss = _mean(_losses_at_masks(log_loss, model, vectors, targets, mask_rate))
        return mlm_loss + jax.vmap(log_loss)(_next_sentence_logits(model, vectors), labels).mean()

    return objective


@recorded
def masked_cross_entropy(
    *, mask_id: int, special_ids: Sequence[int], mask_rate: float = MASK_RATE
) -> Objective:
    r"""Masked language modelling loss, $-\frac{1}{|M|}\sum_{i \in M} \log p(x_i \mid \tilde x)$.

    Its exponential is the perplexity.
    """
    return _masked_objective(log_loss, mask_id, special_ids, mask_rate)


@recorded
def masked_error_rate(
    *, mask_id: int, special_ids: Sequence[int], mask_rate: float = MASK_RATE
) -> Objective:
    """Fraction of masked tokens that are not predicted correctly."""
    return _masked_objective(zero_one_loss, mask_id, special_ids, mask_rate)


@recorded
def next_sentence_error_rate(
    *, mask_id: int, special_ids: Sequence[int], mask_rate: float = MASK_RATE
) -> Objective:
    """Error rate of next-sentence prediction on masked pairs."""

    def objective(
        model: BERTPretraining, batch: Batch, *, key: PRNGKeyArray | None = None
    ) -> Scalar:
        vectors, _, labels = _encode_masked(model, batch, mask_id, special_ids, mask_rate, key)
        return jax.vmap(zero_one_loss)(_next_sentence_logits(model, vectors), labels).mean()

    return objective


def _masked_objective(loss, mask_id, special_ids, mask_rate) -> Objective:
    def objective(
        model: BERTPretraining, batch: Batch, *, key: PRNGKeyArray | None = None
    ) -> Scalar:
        vectors, targets, _ = _encode_masked(model, batch, mask_id, special_ids, mask_rate, key)
        return _mean(_losses_at_masks(loss, model, vectors, targets, mask_rate))

    return objective


def _encode_masked(model, batch, mask_id, special_ids, mask_rate, key):
    """The last hidden vectors of masked texts, the targets, and the next-sentence labels."""
    (tokens, segments), labels = batch
    key_mask, key_drop = (jr.key(0), None) if key is None else jr.split(key)
    inputs, targets = mask_tokens(
        tokens,
        mask_id=mask_id,
        vocab_size=len(model.b),
        special_ids=special_ids,
        mask_rate=mask_rate,
        key=key_mask,
    )
    return predict(model.bert, (inputs, segments), key=key_drop), targets, labels


def _losses_at_masks(
    loss,
    model: BERTPretraining,
    vectors: Float[Array, "n t d"],
    targets: Int[Array, "n t"],
    mask_rate: float,
) -> tuple[Float[Array, " m"], Int[Array, " m"]]:
    """The losses at masked positions and their targets, padded to m positions with target -1.

    The number of masked tokens is random, but shapes must be static: m is an upper bound that is
    exceeded with negligible probability.
    """
    n_tokens = targets.size
    deviation = math.sqrt(mask_rate * (1 - mask_rate) * n_tokens)
    max_masked = min(n_tokens, math.ceil(mask_rate * n_tokens + SPARE_DEVIATIONS * deviation))
    (indices,) = jnp.nonzero(targets.ravel() >= 0, size=max_masked, fill_value=n_tokens)
    masked_targets = targets.ravel().at[indices].get(mode="fill", fill_value=-1)
    masked_vectors = vectors.reshape(n_tokens, -1).at[indices].get(mode="fill", fill_value=0)
    losses = jax.vmap(loss)(model.fill(masked_vectors), jnp.maximum(masked_targets, 0))
    return losses, masked_targets


def _mean(losses_and_targets: tuple[Float[Array, " m"], Int[Array, " m"]]) -> Scalar:
    losses, targets = losses_and_targets
    has_target = targets >= 0
    n_targets = jnp.maximum(has_target.sum(), 1)
    return jnp.where(has_target, losses, 0).sum() / n_targets.astype(losses.dtype)


def _next_sentence_logits(
    model: BERTPretraining, vectors: Float[Array, "n t d"]
) -> Float[Array, "n 2"]:
    return jax.vmap(lambda x: model.next_sentence(tanh(model.pool(x))))(vectors[:, 0])


def span_loss(scores: Float[Array, "2 t"], span: Int[Array, " 2"]) -> Scalar:
    r"""Loss of extractive question answering: $-\frac12(\log \mathrm{softmax}_i(s) + \log
    \mathrm{softmax}_j(e))$ for an answer span from token $i$ to $j$ (§6.5).

    A score may be $-\infty$, but not at the start or end of the answer. (Devlin et al. 2019)

    >>> scores = jnp.array([[0.0, 0.0, -jnp.inf], [-jnp.inf, 0.0, 0.0]])
    >>> float(span_loss(scores, jnp.array([0, 1]))) == float(jnp.log(2.0))
    True
    """
    if scores.shape[0] != 2 or span.shape != (2,):
        raise ValueError(
            f"span_loss: expected scores of shape (2, t) and a span of shape (2,); got "
            f"{scores.shape} and {span.shape}."
        )
    return (log_loss(scores[0], span[0]) + log_loss(scores[1], span[1])) / 2


def span_zero_one_loss(scores: Float[Array, "2 t"], span: Int[Array, " 2"]) -> Scalar:
    r"""1 unless the best span of at most 30 tokens is exactly the answer (1 - exact match).

    >>> float(span_zero_one_loss(jnp.array([[0.0, 1.0], [0.0, 1.0]]), jnp.array([1, 1])))
    0.0
    """
    return (
        (jnp.stack(best_span(scores, max_length=MAX_ANSWER_LENGTH)) != span)
        .any()
        .astype(jnp.float32)
    )


span_cross_entropy = batch_mean(span_loss)  # Mean over the batch of `span_loss`.
# Fraction of examples whose predicted span is wrong.
span_error_rate = batch_mean(span_zero_one_loss)

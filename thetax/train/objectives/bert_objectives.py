r"""What BERT is trained for (§6.5): to fill gaps, to tell whether a sentence follows another, and
to find a span.

A batch for `BERTPretraining` is `((tokens, segments), follows)`, where `follows` is 0 if the second
sentence follows the first and 1 if it does not. The gaps are no part of it: they are drawn from the
key at every step, so that no two epochs show the same ones. Without a key they are always the same,
so that a validation can be compared with the last.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...core import Batch, Objective, Scalar, predict
from ...data import cloze
from ...layers import tanh
from ...models import BERTPretraining, best_span
from .loss import average, log_loss, mistake

SHARE = 0.15  # of the tokens are asked for
SPARE = 6  # standard deviations above the mean for which there is room
LONGEST = 30  # tokens of an answer


def pretraining(*, mask: int, special: Sequence[int], share: float = SHARE) -> Objective:
    r"""$-\frac{1}{|M|}\sum_{i \in M} \log p(x_i \mid \tilde x) - \frac1n \sum_j \log p(y_j \mid
    \tilde x_j)$
    (§6.5).

    $M$ are the places of the batch that `cloze` chose, $\tilde x$ is the text with its gaps, and
    $y$ says whether the second sentence follows: both are learned jointly. Only the vectors at $M$
    are multiplied by the vocabulary, for which there is room up to six standard deviations above
    the mean. (Devlin et al. 2019)

    >>> from thetax.models import BERT
    >>> bert = BERT.init(11, 8, depth=1, heads=2, max_length=6, key=jr.key(0))
    >>> tokens, segments = jnp.array([[1, 5, 6, 2, 7, 2]]), jnp.array([[0, 0, 0, 0, 1, 1]])
    >>> objective = pretraining(mask=4, special=(0, 1, 2, 3, 4), share=0.5)
    >>> loss = objective(
    ...     BERTPretraining.init(bert, key=jr.key(1)), ((tokens, segments), jnp.array([0]))
    ... )
    >>> bool(abs(loss - jnp.log(11) - jnp.log(2)) < 0.2)
    True
    """

    def objective(
        model: BERTPretraining, batch: Batch, *, key: PRNGKeyArray | None = None
    ) -> Scalar:
        found, targets, follows = _read(model, batch, mask, special, share, key)
        fill = _mean(_judged(log_loss, model, found, targets, share))
        return fill + jax.vmap(log_loss)(_follows(model, found), follows).mean()

    return objective


def masked_cross_entropy(*, mask: int, special: Sequence[int], share: float = SHARE) -> Objective:
    r"""$-\frac{1}{|M|}\sum_{i \in M} \log p(x_i \mid \tilde x)$, the first half; its exponential is
    the perplexity.
    """
    return _at_gaps(log_loss, mask, special, share)


def masked_error_rate(*, mask: int, special: Sequence[int], share: float = SHARE) -> Objective:
    """The share of gaps that the likeliest token does not fill rightly."""
    return _at_gaps(mistake, mask, special, share)


def follow_error_rate(*, mask: int, special: Sequence[int], share: float = SHARE) -> Objective:
    """The share of pairs, read with their gaps, in which it is mistaken whether the second sentence
    follows.
    """

    def objective(
        model: BERTPretraining, batch: Batch, *, key: PRNGKeyArray | None = None
    ) -> Scalar:
        found, _, follows = _read(model, batch, mask, special, share, key)
        return jax.vmap(mistake)(_follows(model, found), follows).mean()

    return objective


def _at_gaps(loss, mask, special, share) -> Objective:
    def objective(
        model: BERTPretraining, batch: Batch, *, key: PRNGKeyArray | None = None
    ) -> Scalar:
        found, targets, _ = _read(model, batch, mask, special, share, key)
        return _mean(_judged(loss, model, found, targets, share))

    return objective


def _read(model, batch, mask, special, share, key):
    """The last vectors of texts with gaps, what stood in the gaps, and which pairs follow."""
    (tokens, segments), follows = batch
    key_gaps, key_drop = (jr.key(0), None) if key is None else jr.split(key)
    inputs, targets = cloze(
        tokens, mask=mask, size=len(model.b), special=special, share=share, key=key_gaps
    )
    return predict(model.bert, (inputs, segments), key=key_drop), targets, follows


def _judged(
    loss,
    model: BERTPretraining,
    found: Float[Array, "n t d"],
    targets: Int[Array, "n t"],
    share: float,
) -> tuple[Float[Array, " m"], Int[Array, " m"]]:
    """The loss at each of the m places there is room for, and the targets; that of a place that
    stays empty is -1.
    """
    count = targets.size
    room = min(count, math.ceil(share * count + SPARE * math.sqrt(share * (1 - share) * count)))
    (places,) = jnp.nonzero(targets.ravel() >= 0, size=room, fill_value=count)
    asked = targets.ravel().at[places].get(mode="fill", fill_value=-1)
    vectors = found.reshape(count, -1).at[places].get(mode="fill", fill_value=0)
    return jax.vmap(loss)(model.fill(vectors), jnp.maximum(asked, 0)), asked


def _mean(judged: tuple[Float[Array, " m"], Int[Array, " m"]]) -> Scalar:
    losses, targets = judged
    there = targets >= 0
    return jnp.where(there, losses, 0).sum() / jnp.maximum(there.sum(), 1).astype(losses.dtype)


def _follows(model: BERTPretraining, found: Float[Array, "n t d"]) -> Float[Array, "n 2"]:
    return jax.vmap(lambda x: model.next_sentence(tanh(model.pool(x))))(found[:, 0])


def span_loss(scores: Float[Array, "2 t"], span: Int[Array, " 2"]) -> Scalar:
    r"""$-\frac12(\log \mathrm{softmax}_i(s) + \log \mathrm{softmax}_j(e))$ for an answer from token
    $i$ to $j$ (§6.5).

    A score may be $-\infty$, but not where the answer begins or ends. (Devlin et al. 2019)

    >>> scores = jnp.array([[0.0, 0.0, -jnp.inf], [-jnp.inf, 0.0, 0.0]])
    >>> float(span_loss(scores, jnp.array([0, 1]))) == float(jnp.log(2.0))
    True
    """
    if scores.shape[0] != 2 or span.shape != (2,):
        raise ValueError(
            f"span_loss: expected scores (2, t) and a span (2,); got {scores.shape} and "
            f"{span.shape}."
        )
    return (log_loss(scores[0], span[0]) + log_loss(scores[1], span[1])) / 2


def span_mistake(scores: Float[Array, "2 t"], span: Int[Array, " 2"]) -> Scalar:
    r"""1 if the best span, of at most 30 tokens, does not begin and end where the answer does.

    >>> float(span_mistake(jnp.array([[0.0, 1.0], [0.0, 1.0]]), jnp.array([1, 1])))
    0.0
    """
    return (jnp.stack(best_span(scores, max_length=LONGEST)) != span).any().astype(jnp.float32)


span_cross_entropy = average(span_loss)
span_error_rate = average(span_mistake)

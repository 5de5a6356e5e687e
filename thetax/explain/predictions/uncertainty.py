r"""Predictive uncertainty of a network with dropout, compared with its mistakes (§8.4).

Monte-Carlo dropout gives a mean prediction $\bar p$ for each example and an uncertainty, the
entropy $H(\bar p)$. The uncertainty is useful if wrong predictions have a higher one than correct
predictions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int, PRNGKeyArray, Shaped

from ...check import expect_count
from ...core import Batch, Model
from ..class_probabilities import integer_labels
from .mc_dropout import MCDropout, mc_dropout
from .mistakes import class_names


@dataclass(frozen=True)
class DropoutUncertainty:
    """Monte-Carlo dropout predictions with the true labels, and the most uncertain examples in
    descending order.
    """

    prediction: MCDropout
    truth: Int[np.ndarray, " n"]
    indices: Int[np.ndarray, " m"]  # of the most uncertain examples in the data
    x: Shaped[np.ndarray, "m ..."]
    classes: tuple[str, ...]

    @property
    def predicted(self) -> Int[np.ndarray, " n"]:
        r"""The predicted class, $\arg\max_j \bar p_j$."""
        return self.prediction.probability.argmax(axis=1)

    @property
    def correct(self) -> Bool[np.ndarray, " n"]:
        """Whether the mean prediction is correct."""
        return self.predicted == self.truth

    @property
    def auroc(self) -> float:
        """Area under the ROC curve for detecting mistakes by their entropy: the probability that a
        wrong prediction is more uncertain than a correct one, ties counted half.

        A value of 0.5 means that the uncertainty is uninformative, 1 that it separates mistakes
        from correct predictions; NaN without mistakes or without correct predictions (Mann &
        Whitney 1947).
        """
        correct = np.sort(self.prediction.entropy[self.correct])
        wrong = self.prediction.entropy[~self.correct]
        if not len(correct) or not len(wrong):
            return float("nan")
        below = [np.searchsorted(correct, wrong, side) for side in ("left", "right")]
        return float(np.mean(below) / len(correct))

    @property
    def n_mistakes(self) -> int:
        """The number of wrong predictions."""
        return int((~self.correct).sum())


def dropout_uncertainty(
    model: Model,
    data: Batch,
    *,
    n_samples: int = 100,
    n_examples: int = 8,
    classes: Sequence[str] = (),
    key: PRNGKeyArray,
) -> DropoutUncertainty:
    r"""Predictive uncertainty by Monte-Carlo dropout on labelled data `(xs, ys)`, with the
    `n_examples` examples of the highest entropy $H(\bar p)$ (§8.4).

    Gal & Ghahramani 2016.

    >>> import jax.numpy as jnp
    >>> import jax.random as jr
    >>> from thetax.layers import Chain, Dropout, Linear
    >>> model = Chain(Dropout(0.5), Linear(jnp.array([[4.0], [-4.0]]), jnp.zeros(2)))
    >>> data = jnp.array([[3.0], [0.1], [-3.0]]), jnp.array([0, 1, 1])
    >>> result = dropout_uncertainty(model, data, key=jr.key(0))
    >>> result.indices.tolist(), result.correct.tolist(), result.auroc
    ([1, 2, 0], [True, False, True], 1.0)
    """
    expect_count("dropout_uncertainty", n_examples=n_examples)
    xs, ys = data
    prediction = mc_dropout(model, xs, n_samples=n_samples, key=key)
    k = prediction.probability.shape[1]
    top = np.argsort(-prediction.entropy, kind="stable")[:n_examples]
    return DropoutUncertainty(
        prediction, integer_labels(ys, k), top, np.asarray(xs)[top], class_names(classes, k)
    )

r"""Mistakes of a classifier: its confusion matrix, and the errors with the highest confidence."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Shaped

from ...check import expect_count
from ...core import Batch, Model
from ..class_probabilities import integer_labels, log_probabilities


@dataclass(frozen=True)
class ConfusionMatrix:
    r"""$C_{ij}$, the number of examples of class $i$ predicted as class $j$, and the error rate of
    each class.
    """

    counts: Int[np.ndarray, "k k"]
    errors: Float[np.ndarray, " k"]  # NaN for a class without examples
    classes: tuple[str, ...]

    @property
    def error(self) -> float:
        """The error rate over all examples."""
        return float(1 - np.trace(self.counts) / self.counts.sum())

    def without_empty_classes(self) -> "ConfusionMatrix":
        """The matrix without classes that no example has and that were never predicted.

        >>> matrix = ConfusionMatrix(
        ...     np.array([[1, 0, 2], [0, 0, 0], [0, 0, 0]]), np.array([0.5, 0, 0]), ("a", "b", "c")
        ... )
        >>> matrix = matrix.without_empty_classes()
        >>> matrix.counts.tolist(), matrix.classes
        ([[1, 2], [0, 0]], ('a', 'c'))
        """
        kept = np.flatnonzero(self.counts.any(axis=0) | self.counts.any(axis=1))
        return ConfusionMatrix(
            self.counts[np.ix_(kept, kept)],
            self.errors[kept],
            tuple(self.classes[i] for i in kept),
        )


def confusion_matrix(model: Model, data: Batch, classes: Sequence[str] = ()) -> ConfusionMatrix:
    r"""Confusion matrix of a classifier on labelled data `(xs, ys)`: rows are true classes, columns
    predicted ones.

    >>> import jax.numpy as jnp
    >>> from thetax.layers import Linear
    >>> model = Linear(jnp.eye(2), jnp.zeros(2))
    >>> data = jnp.array([[2.0, 1.0], [0.0, 1.0], [0.0, 3.0]]), jnp.array([0, 0, 1])
    >>> matrix = confusion_matrix(model, data, ("cat", "dog"))
    >>> matrix.counts.tolist(), matrix.errors.tolist()
    ([[1, 1], [0, 1]], [0.5, 0.0])
    """
    xs, ys = data
    log_p = np.asarray(log_probabilities(model, xs))
    k = log_p.shape[1]
    y = integer_labels(ys, k)
    counts = np.bincount(k * y + log_p.argmax(axis=1), minlength=k * k).reshape(k, k)
    total = counts.sum(axis=1)
    errors = 1 - np.diagonal(counts) / np.where(total > 0, total, np.nan)
    return ConfusionMatrix(counts, errors, class_names(classes, k))


@dataclass(frozen=True)
class ConfidentMistakes:
    """The misclassified examples with the highest confidence, in descending order."""

    indices: Int[np.ndarray, " m"]  # of the examples in the data
    x: Shaped[np.ndarray, "m ..."]
    truth: Int[np.ndarray, " m"]
    predicted: Int[np.ndarray, " m"]
    confidence: Float[np.ndarray, " m"]  # probability of the predicted class
    truth_probability: Float[np.ndarray, " m"]  # probability of the true class
    n_mistakes: int  # in all the data
    n_examples: int
    classes: tuple[str, ...]
    vocab: tuple[str, ...] = ()  # token strings, if x is a sequence of tokens


def confident_mistakes(
    model: Model,
    data: Batch,
    *,
    n_examples: int = 12,
    classes: Sequence[str] = (),
    vocab: Sequence[str] = (),
) -> ConfidentMistakes:
    r"""The `n_examples` misclassified examples with the highest confidence $\max_j P(j \mid x)$, or
    all if there are fewer.

    >>> import jax.numpy as jnp
    >>> from thetax.layers import Linear
    >>> model = Linear(jnp.eye(2), jnp.zeros(2))
    >>> data = jnp.array([[1.0, 0.0], [9.0, 0.0], [0.0, 1.0]]), jnp.array([1, 1, 1])
    >>> result = confident_mistakes(model, data)
    >>> result.indices.tolist(), result.predicted.tolist()
    ([1, 0], [0, 0])
    """
    expect_count("confident_mistakes", n_examples=n_examples)
    xs, ys = data
    log_p = np.asarray(log_probabilities(model, xs), np.float64)
    n, k = log_p.shape
    y = integer_labels(ys, k)
    predicted = log_p.argmax(axis=1)
    wrong = np.flatnonzero(predicted != y)
    top = wrong[np.argsort(-log_p[wrong, predicted[wrong]], kind="stable")[:n_examples]]
    return ConfidentMistakes(
        indices=top,
        x=np.asarray(xs)[top],
        truth=y[top],
        predicted=predicted[top],
        confidence=np.exp(log_p[top, predicted[top]]),
        truth_probability=np.exp(log_p[top, y[top]]),
        n_mistakes=len(wrong),
        n_examples=n,
        classes=class_names(classes, k),
        vocab=tuple(vocab),
    )


def class_names(classes: Sequence[str], k: int) -> tuple[str, ...]:
    """The names of $k$ classes; their indices if no names are given."""
    if classes and len(classes) != k:
        raise ValueError(
            f"classes: the model has {k} classes, but {len(classes)} names were given. "
            "Give one name for each class."
        )
    return tuple(str(name) for name in classes) or tuple(str(j) for j in range(k))

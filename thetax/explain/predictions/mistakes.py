r"""Where a classifier goes wrong: which classes it confuses, and the mistakes it was surest of."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Shaped

from ...core import Batch, Model
from ..class_probabilities import belief, truth


@dataclass(frozen=True)
class Confusion:
    r"""$C_{ij}$, how many examples of class $i$ were taken for class $j$, and the error of each
    class.
    """

    counts: Int[np.ndarray, "k k"]
    errors: Float[np.ndarray, " k"]  # NaN for a class without examples
    classes: tuple[str, ...]

    @property
    def error(self) -> float:
        """The share of all examples off the diagonal."""
        return float(1 - np.trace(self.counts) / self.counts.sum())

    def met(self) -> "Confusion":
        """Of the classes only those that an example is of, or was taken for.

        >>> found = Confusion(
        ...     np.array([[1, 0, 2], [0, 0, 0], [0, 0, 0]]), np.array([0.5, 0, 0]), ("a", "b", "c")
        ... )
        >>> found.met().counts.tolist(), found.met().classes
        ([[1, 2], [0, 0]], ('a', 'c'))
        """
        at = np.flatnonzero(self.counts.any(axis=0) | self.counts.any(axis=1))
        return Confusion(
            self.counts[np.ix_(at, at)], self.errors[at], tuple(self.classes[i] for i in at)
        )


def confusion(model: Model, data: Batch, classes: Sequence[str] = ()) -> Confusion:
    r"""Counts truth (rows) against guess (columns) over labelled data `(xs, ys)`.

    >>> import jax.numpy as jnp
    >>> from thetax.layers import Linear
    >>> net = Linear(jnp.eye(2), jnp.zeros(2))
    >>> found = confusion(
    ...     net,
    ...     (jnp.array([[2.0, 1.0], [0.0, 1.0], [0.0, 3.0]]), jnp.array([0, 0, 1])),
    ...     ("cat", "dog"),
    ... )
    >>> found.counts.tolist(), found.errors.tolist()
    ([[1, 1], [0, 1]], [0.5, 0.0])
    """
    xs, ys = data
    log_p = np.asarray(belief(model, xs))
    k = log_p.shape[1]
    y = truth(ys, k)
    counts = np.bincount(k * y + log_p.argmax(axis=1), minlength=k * k).reshape(k, k)
    total = counts.sum(axis=1)
    errors = 1 - np.diagonal(counts) / np.where(total > 0, total, np.nan)
    return Confusion(counts, errors, class_names(classes, k))


@dataclass(frozen=True)
class Worst:
    """The most confidently wrong examples, the worst first."""

    index: Int[np.ndarray, " m"]  # their places in the data
    x: Shaped[np.ndarray, "m ..."]
    truth: Int[np.ndarray, " m"]
    guess: Int[np.ndarray, " m"]
    confidence: Float[np.ndarray, " m"]  # the probability given to the guess
    chance: Float[np.ndarray, " m"]  # the probability given to the truth
    mistakes: int  # in all the data
    examples: int
    classes: tuple[str, ...]
    tokens: tuple[str, ...] = ()  # names of what x is made of, where it is a sequence of tokens


def worst(
    model: Model,
    data: Batch,
    *,
    count: int = 12,
    classes: Sequence[str] = (),
    tokens: Sequence[str] = (),
) -> Worst:
    r"""The `count` mistakes with the greatest $\max_j P(j \mid x)$; fewer if there are fewer
    mistakes.

    >>> import jax.numpy as jnp
    >>> from thetax.layers import Linear
    >>> net = Linear(jnp.eye(2), jnp.zeros(2))
    >>> found = worst(net, (jnp.array([[1.0, 0.0], [9.0, 0.0], [0.0, 1.0]]), jnp.array([1, 1, 1])))
    >>> found.index.tolist(), found.guess.tolist()
    ([1, 0], [0, 0])
    """
    if count < 1:
        raise ValueError(f"worst: count must be at least 1; got {count}.")
    xs, ys = data
    log_p = np.asarray(belief(model, xs), np.float64)
    n, k = log_p.shape
    y = truth(ys, k)
    guess = log_p.argmax(axis=1)
    wrong = np.flatnonzero(guess != y)
    top = wrong[np.argsort(-log_p[wrong, guess[wrong]], kind="stable")[:count]]
    return Worst(
        index=top,
        x=np.asarray(xs)[top],
        truth=y[top],
        guess=guess[top],
        confidence=np.exp(log_p[top, guess[top]]),
        chance=np.exp(log_p[top, y[top]]),
        mistakes=len(wrong),
        examples=n,
        classes=class_names(classes, k),
        tokens=tuple(tokens),
    )


def class_names(classes: Sequence[str], k: int) -> tuple[str, ...]:
    """The names of $k$ classes, which are their numbers unless given."""
    if classes and len(classes) != k:
        raise ValueError(
            f"classes: the model tells {k} classes apart, but {len(classes)} names were given."
        )
    return tuple(str(name) for name in classes) or tuple(str(j) for j in range(k))

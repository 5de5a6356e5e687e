r"""Does a network doubt where it errs? Monte-Carlo dropout held against the truth (§8.4).

The crowd of thinned networks has an opinion $\bar p$ of each example and a doubt, the entropy
$H(\bar p)$. The doubt is worth something if the answers that turn out wrong are the doubtful ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int, PRNGKeyArray, Shaped

from ...core import Batch, Model
from ..class_probabilities import truth
from .mc_dropout import DropoutBelief, dropout_belief
from .mistakes import class_names


@dataclass(frozen=True)
class Doubt:
    """The doubt about each example and whether the crowd is right; then the most doubtful, the
    worst first.
    """

    belief: DropoutBelief
    truth: Int[np.ndarray, " n"]
    index: Int[np.ndarray, " m"]  # the places of the most doubtful in the data
    x: Shaped[np.ndarray, "m ..."]
    classes: tuple[str, ...]

    @property
    def guess(self) -> Int[np.ndarray, " n"]:
        r"""$\arg\max_j \bar p_j$."""
        return self.belief.probability.argmax(axis=1)

    @property
    def right(self) -> Bool[np.ndarray, " n"]:
        """Whether the crowd is right."""
        return self.guess == self.truth

    @property
    def ranking(self) -> float:
        """The chance that a wrong answer is doubted more than a right one, ties halved; NaN without
        any of either.

        A half says that the doubt is worth nothing, 1 that it tells every mistake: the area under
        the ROC curve (Mann & Whitney 1947).
        """
        right = np.sort(self.belief.entropy[self.right])
        wrong = self.belief.entropy[~self.right]
        if not len(right) or not len(wrong):
            return float("nan")
        below = [np.searchsorted(right, wrong, side) for side in ("left", "right")]
        return float(np.mean(below) / len(right))

    @property
    def mistakes(self) -> int:
        """How often the crowd is wrong."""
        return int((~self.right).sum())


def doubt(
    model: Model,
    data: Batch,
    *,
    draws: int = 100,
    count: int = 8,
    classes: Sequence[str] = (),
    key: PRNGKeyArray,
) -> Doubt:
    r"""Monte-Carlo dropout on labelled data `(xs, ys)`, with the `count` examples of the greatest
    $H(\bar p)$ (§8.4).

    Gal & Ghahramani 2016.

    >>> import jax.numpy as jnp
    >>> import jax.random as jr
    >>> from thetax.layers import Chain, Dropout, Linear
    >>> net = Chain(Dropout(0.5), Linear(jnp.array([[4.0], [-4.0]]), jnp.zeros(2)))
    >>> found = doubt(net, (jnp.array([[3.0], [0.1], [-3.0]]), jnp.array([0, 1, 1])), key=jr.key(0))
    >>> found.index.tolist(), found.right.tolist(), found.ranking
    ([1, 2, 0], [True, False, True], 1.0)
    """
    if count < 1:
        raise ValueError(f"doubt: count must be at least 1; got {count}.")
    xs, ys = data
    belief = dropout_belief(model, xs, draws=draws, key=key)
    k = belief.probability.shape[1]
    top = np.argsort(-belief.entropy, kind="stable")[:count]
    return Doubt(belief, truth(ys, k), top, np.asarray(xs)[top], class_names(classes, k))

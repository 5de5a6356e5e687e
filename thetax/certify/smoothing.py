r"""A certificate for any classifier, by chance (randomised smoothing; Cohen, Rosenfeld & Kolter
2019).

The smoothed classifier says what the classifier says most often when noise is added to its input,
$g(x) = \arg\max_c P(f(x + \sigma \xi) = c)$ with $\xi \sim N(0, 1)$. If the class has a probability
of at least $p > \frac12$ there, then $g$ says the same everywhere within the Euclidean distance

$$R = \sigma\, \Phi^{-1}(p),$$

whatever $f$ is. The probability is not known, but bounded: some draws choose the class, and others
count how often it comes, $k$ times of $n$. With a probability of at least $1 - \alpha$ it is above
the number of Clopper & Pearson (1934), the $p$ at which $k$ or more would come with probability
$\alpha$.

$f$ should know the noise. It is trained with it: `augmented(cross_entropy, gaussian(noise))`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from scipy.special import betaincinv, ndtri

from ..check import check_examples
from ..core import Model, expect_floats
from ..layers import has_batch_norm
from ..progress import counted

MAX_SAMPLES_AT_ONCE = 512  # so many draws at once


@dataclass(frozen=True)
class SmoothedPredictions:
    """The distance within which the label of each example is the same; where the draws do not tell,
    0 and label -1.
    """

    radius: Float[np.ndarray, " n"]
    labels: Int[np.ndarray, " n"]
    counts: Int[np.ndarray, " n"]  # how often the class that was chosen came
    draws: int

    def accuracy(self, ys: Any, radius: float = 0.0) -> float:
        """The share of examples whose label is right, and is so at least within `radius`."""
        right = (self.labels == np.asarray(ys)) & (self.radius > 0) & (self.radius >= radius)
        return float(right.mean())


def randomised_smoothing(
    model: Model,
    xs: Float[Array, "n *s"],
    *,
    noise: float,
    key: PRNGKeyArray,
    choose: int = 100,
    draws: int = 1000,
    failure: float = 0.001,
) -> SmoothedPredictions:
    r"""What the smoothed classifier says of each example, and how far around it:
    $R = \sigma\,\Phi^{-1}(p)$.

    `noise` is $\sigma$; `choose` draws choose the class and `draws` others count it; each example
    is wrong with a probability of at most `failure`, $\alpha$. However sure the classifier is, the
    radius is no more than $\sigma\, \Phi^{-1}(\alpha^{1/n})$. Cohen, Rosenfeld & Kolter 2019.

    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[0.0], [1.0]]), jnp.zeros(2))
    >>> found = randomised_smoothing(line, jnp.array([[0.3], [0.0]]), noise=0.2, key=jr.key(0))
    >>> found.labels.tolist(), bool(0.2 < found.radius[0] < 0.3), found.radius[1].item()
    ([1, -1], True, 0.0)
    """
    expect_floats("smoothed: xs", xs)
    n = check_examples(xs, name="smoothed: xs")
    if not 0 < noise < np.inf or choose < 1 or draws < 1 or not 0 < failure < 1:
        came = f"noise={noise}, choose={choose}, draws={draws}, failure={failure}"
        raise ValueError(
            "smoothed: noise must be positive and finite, draws at least 1, failure in (0, 1); "
            f"got {came}."
        )
    if has_batch_norm(model):
        raise ValueError(
            "smoothed: batch normalisation ties the examples together; fold it in: fold(model, xs)."
        )
    labels = np.zeros(n, int)
    counts = np.zeros(n, int)
    with counted("smoothed: examples", n) as update:
        for at, x in enumerate(jnp.asarray(xs)):
            first, last = jr.split(jr.fold_in(key, at))
            labels[at] = np.argmax(vote_counts(model, x, noise=noise, draws=choose, key=first))
            counts[at] = vote_counts(model, x, noise=noise, draws=draws, key=last)[labels[at]]
            update(at + 1)
    p = clopper_pearson_lower_bound(counts, draws, failure=failure)
    radius = np.where(p > 0.5, noise * ndtri(np.maximum(p, 0.5)), 0.0)
    return SmoothedPredictions(radius, np.where(p > 0.5, labels, -1), counts, draws)


def vote_counts(
    model: Model, x: Float[Array, "*s"], *, noise: float, draws: int, key: PRNGKeyArray
) -> Int[np.ndarray, " k"]:
    """How often each class comes when noise is added to an input.

    >>> vote_counts(
    ...     lambda x: jnp.stack([x, -x]), jnp.array(3.0), noise=1.0, draws=10, key=jr.key(0)
    ... ).tolist()
    [10, 0]
    """
    return np.asarray(_votes(model, x, jnp.asarray(noise, x.dtype), jr.split(key, draws)))


@eqx.filter_jit
def _votes(model, x, noise, keys):
    draw = lambda key: model(x + noise * jr.normal(key, x.shape, x.dtype))
    classes = jax.eval_shape(draw, keys[0]).shape[-1]
    said = jax.lax.map(
        lambda key: jnp.argmax(draw(key)), keys, batch_size=min(MAX_SAMPLES_AT_ONCE, len(keys))
    )
    return (said[:, None] == jnp.arange(classes)[None]).sum(0)


def clopper_pearson_lower_bound(successes: Any, draws: int, *, failure: float) -> Any:
    r"""The $p$ at which so many successes or more have probability $\alpha$: below the true one but
    for $\alpha$.

    $p = I^{-1}_\alpha(k, n - k + 1)$ by the incomplete beta function; 0 for $k = 0$. Clopper &
    Pearson 1934.

    >>> float(clopper_pearson_lower_bound(100, 100, failure=0.001)) == 0.001**0.01
    True
    """
    k = np.asarray(successes)
    if (k < 0).any() or (k > draws).any():
        raise ValueError(
            f"least_probability: successes lie between 0 and draws={draws}; got {successes}."
        )
    return np.where(k > 0, betaincinv(np.maximum(k, 1), draws - k + 1, failure), 0.0)


def gaussian_noise(noise: float) -> Callable[..., Array]:
    r"""$x + \sigma\xi$, to train with by `thetax.train.augmented`.

    >>> gaussian_noise(0.5)(jnp.zeros(3), key=jr.key(0)).shape
    (3,)
    """
    return lambda x, *, key: x + noise * jr.normal(key, x.shape, x.dtype)

r"""Randomised smoothing: a probabilistic certificate for any classifier (Cohen, Rosenfeld & Kolter
2019).

The smoothed classifier returns the class that the base classifier $f$ returns most often under
Gaussian noise, $g(x) = \arg\max_c P(f(x + \sigma \xi) = c)$ with $\xi \sim N(0, 1)$. If that
class has probability at least $p > \frac12$ there, then $g$ is constant within Euclidean distance

$$R = \sigma\, \Phi^{-1}(p),$$

whatever $f$ is. The probability is not known, so it is bounded: some samples select the class, and
others count how often it occurs, $k$ times of $n$. With confidence $1 - \alpha$ it is at least the
Clopper-Pearson bound (1934), the $p$ for which $k$ or more occurrences have probability $\alpha$.

Train $f$ on the same noise: `with_augmentation(cross_entropy, gaussian_noise(noise))`.
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

from ..check import check_examples, expect_count
from ..core import Model, expect_floats
from ..layers import has_batch_norm
from ..progress import count_progress
from ..serialise import recorded

MAX_SAMPLES_AT_ONCE = 512  # noisy copies that are evaluated in one batch


@dataclass(frozen=True)
class SmoothedPredictions:
    """For each example the class of the smoothed classifier and its certified radius; where the
    votes are not conclusive, radius 0 and class -1 (abstained).
    """

    radii: Float[np.ndarray, " n"]
    labels: Int[np.ndarray, " n"]
    counts: Int[np.ndarray, " n"]  # how often the selected class occurred
    n_samples: int

    def accuracy(self, ys: Any, radius: float = 0.0) -> float:
        """The fraction of examples whose class is correct, and certified within `radius`."""
        right = (self.labels == np.asarray(ys)) & (self.radii > 0) & (self.radii >= radius)
        return float(right.mean())


def randomised_smoothing(
    model: Model,
    xs: Float[Array, "n *s"],
    *,
    noise: float,
    n_selection_samples: int = 100,
    n_samples: int = 1000,
    failure_probability: float = 0.001,
    key: PRNGKeyArray,
) -> SmoothedPredictions:
    r"""Randomised smoothing: the class of the smoothed classifier for each example, and its
    certified radius $R = \sigma\,\Phi^{-1}(p)$ in the Euclidean norm (Cohen, Rosenfeld & Kolter
    2019).

    `noise` is $\sigma$. Of each example `n_selection_samples` noisy copies select the class, and
    `n_samples` others bound its probability. Each certificate is wrong with a probability of at
    most `failure_probability`, $\alpha$. Even if all samples agree, the radius is at most
    $\sigma\, \Phi^{-1}(\alpha^{1/n})$, so large radii need many samples.

    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[0.0], [1.0]]), jnp.zeros(2))
    >>> result = randomised_smoothing(line, jnp.array([[0.3], [0.0]]), noise=0.2, key=jr.key(0))
    >>> result.labels.tolist(), bool(0.2 < result.radii[0] < 0.3), result.radii[1].item()
    ([1, -1], True, 0.0)
    """
    expect_floats("randomised_smoothing: xs", xs)
    n = check_examples(xs, name="randomised_smoothing: xs")
    expect_count(
        "randomised_smoothing", n_selection_samples=n_selection_samples, n_samples=n_samples
    )
    if not 0 < noise < np.inf:
        raise ValueError(f"randomised_smoothing: noise must be positive and finite; got {noise}.")
    if not 0 < failure_probability < 1:
        raise ValueError(
            "randomised_smoothing: failure_probability must lie in (0, 1); got "
            f"{failure_probability}."
        )
    if has_batch_norm(model):
        raise ValueError(
            "randomised_smoothing: batch normalisation couples the examples of a batch. Fold it "
            "into the model first: fold_batch_norm(model, xs)."
        )
    labels = np.zeros(n, int)
    counts = np.zeros(n, int)
    with count_progress("randomised_smoothing: examples", n) as update:
        for i, x in enumerate(jnp.asarray(xs)):
            # independent samples select and count, or the bound would be biased
            key_select, key_count = jr.split(jr.fold_in(key, i))
            votes = vote_counts(
                model, x, noise=noise, n_samples=n_selection_samples, key=key_select
            )
            labels[i] = np.argmax(votes)
            votes = vote_counts(model, x, noise=noise, n_samples=n_samples, key=key_count)
            counts[i] = votes[labels[i]]
            update(i + 1)
    p = clopper_pearson_lower_bound(counts, n_samples, failure_probability=failure_probability)
    radii = np.where(p > 0.5, noise * ndtri(np.maximum(p, 0.5)), 0.0)
    return SmoothedPredictions(radii, np.where(p > 0.5, labels, -1), counts, n_samples)


def vote_counts(
    model: Model, x: Float[Array, "*s"], *, noise: float, n_samples: int, key: PRNGKeyArray
) -> Int[np.ndarray, " k"]:
    """How often each class is predicted for `n_samples` noisy copies of an input.

    >>> vote_counts(
    ...     lambda x: jnp.stack([x, -x]), jnp.array(3.0), noise=1.0, n_samples=10, key=jr.key(0)
    ... ).tolist()
    [10, 0]
    """
    return np.asarray(_votes(model, x, jnp.asarray(noise, x.dtype), jr.split(key, n_samples)))


@eqx.filter_jit
def _votes(model, x, noise, keys):
    noisy_logits = lambda key: model(x + noise * jr.normal(key, x.shape, x.dtype))
    n_classes = jax.eval_shape(noisy_logits, keys[0]).shape[-1]
    predictions = jax.lax.map(
        lambda key: jnp.argmax(noisy_logits(key)),
        keys,
        batch_size=min(MAX_SAMPLES_AT_ONCE, len(keys)),
    )
    return (predictions[:, None] == jnp.arange(n_classes)[None]).sum(0)


def clopper_pearson_lower_bound(
    successes: Any, n_samples: int, *, failure_probability: float
) -> Any:
    r"""Clopper-Pearson lower confidence bound of a binomial probability: the $p$ for which
    $k$ or more successes in $n$ samples have probability $\alpha$.

    $p = I^{-1}_\alpha(k, n - k + 1)$, by the incomplete beta function; 0 for $k = 0$. The true
    probability is below it with probability at most $\alpha$, `failure_probability`. Clopper &
    Pearson 1934.

    >>> float(clopper_pearson_lower_bound(100, 100, failure_probability=0.001)) == 0.001**0.01
    True
    """
    k = np.asarray(successes)
    if (k < 0).any() or (k > n_samples).any():
        raise ValueError(
            "clopper_pearson_lower_bound: successes must lie between 0 and "
            f"n_samples={n_samples}; got {successes}."
        )
    bound = betaincinv(np.maximum(k, 1), n_samples - k + 1, failure_probability)
    return np.where(k > 0, bound, 0.0)


@recorded
def gaussian_noise(noise: float) -> Callable[..., Array]:
    r"""$x + \sigma\xi$, to train with by `thetax.train.with_augmentation`.

    >>> gaussian_noise(0.5)(jnp.zeros(3), key=jr.key(0)).shape
    (3,)
    """
    return lambda x, *, key: x + noise * jr.normal(key, x.shape, x.dtype)

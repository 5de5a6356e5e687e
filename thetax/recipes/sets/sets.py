"""Order statistics of sets of numbers: `thetax train sets`."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ...core import Model
from ...layers import tanh
from ...models import MLP, DeepSets, SetTransformer
from ...train import squared_error
from ..engine.job import Job, check_positive, recipe
from ..engine.outcome import Outcome
from ..shared.metrics import mean_squared_error
from .networks import first_network, fit_networks, member_values

N_TEST = 2000  # sets
STATISTICS = {
    "median": lambda xs: jnp.median(xs, axis=1),
    "max": lambda xs: jnp.max(xs, axis=1),
    "range": lambda xs: jnp.max(xs, axis=1) - jnp.min(xs, axis=1),
}
Sets = tuple[Float[Array, "n m 1"], Float[Array, "n 1"]]


def number_sets(n: int, size: int, statistic: str, *, key: PRNGKeyArray) -> Sets:
    """Sets of numbers, uniform in [-1, 1], and a statistic of each.

    >>> xs, ys = number_sets(4, 3, "max", key=jr.key(0))
    >>> bool((ys == xs.max(axis=1)).all())
    True
    """
    xs = jr.uniform(key, (n, size, 1), minval=-1.0, maxval=1.0)
    return xs, STATISTICS[statistic](xs)


@recipe
def sets(
    job: Job,
    *,
    statistic: Literal["median", "max", "range"] = "median",
    size: int = 10,
    latents: tuple[int, ...] = (1, 2, 20),
    hidden: tuple[int, ...] = (32, 32),
    width: int = 16,
    heads: int = 2,
    n_seeds: int = 3,
    n_train: int = 4000,
    learning_rate: float = 5e-3,
    epochs: int = 10,
    batch_size: int = 50,
) -> Outcome:
    """The median, maximum or range of a set of numbers: Deep Sets of several latent dimensions, a
    Set Transformer, and a perceptron on the concatenated numbers.

    The networks for sets are also tested on sets of twice as many numbers, which a perceptron
    cannot take.

    Parameters
    ----------
    statistic
        What to learn of each set.
    size
        Numbers in a set.
    latents
        Dimensions of the sum of Deep Sets, one table row each.
    width
        Width of the Set Transformer.
    """
    check_positive(size=size, width=width, heads=heads, n_train=n_train)
    if not latents or min(latents) < 1:
        raise ValueError(f"latents: expected dimensions of at least 1; got {latents}.")
    key_train, key_test, key_larger, key = jr.split(job.key, 4)
    train = number_sets(n_train, size, statistic, key=key_train)
    test = number_sets(N_TEST, size, statistic, key=key_test)
    larger = number_sets(N_TEST, 2 * size, statistic, key=key_larger)
    perceptron = "multi-layer perceptron"
    networks: dict[str, Callable[..., Model]] = {
        perceptron: partial(MLP.init, size, *hidden, 1, activation=tanh)
    }
    networks |= {
        f"Deep Sets, latent dimension {d}": partial(
            DeepSets.init, 1, 1, latent=d, hidden=hidden, activation=tanh
        )
        for d in latents
    }
    networks["Set Transformer"] = partial(
        SetTransformer.init, 1, 1, width=width, heads=heads, n_inducing=8, depth=1, normalise=None
    )
    fits = fit_networks(
        job,
        networks,
        train,
        objectives=dict.fromkeys(networks, squared_error),
        n_seeds=n_seeds,
        learning_rate=learning_rate,
        epochs=epochs,
        batch_size=batch_size,
        key=key,
    )
    constant = train[1].mean(axis=0, keepdims=True)
    table = {
        "training mean": {
            "mean squared error": float(jnp.mean((test[1] - constant) ** 2)),
            f"on sets of {2 * size}": float(jnp.mean((larger[1] - constant) ** 2)),
        }
    }
    for name, result in fits.items():
        errors = member_values(result.model, test, mean_squared_error)
        table[name] = {"mean squared error": float(errors.mean()), "maximum": float(errors.max())}
        if name != perceptron:
            on_larger = member_values(result.model, larger, mean_squared_error)
            table[name][f"on sets of {2 * size}"] = float(on_larger.mean())
    last = fits["Set Transformer"]
    return Outcome.of_fit(
        last,
        model=first_network(last.model),
        train=train,
        test=test,
        objective=squared_error,
        table=table,
        start=first_network(last.start),
    )

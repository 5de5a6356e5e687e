"""Fits of several kinds of networks for sets, each from several seeds."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import optax
from jaxtyping import Float, PRNGKeyArray

from ...core import Batch, Model, Objective
from ...layers import Ensemble
from ...train import FitResult, descend, fit, per_member
from ..engine.job import Job, check_positive

EVALUATION_BATCH = 128  # examples
MAX_GRADIENT_NORM = 1.0


def fit_networks(
    job: Job,
    networks: Mapping[str, Callable[..., Model]],
    train: Batch,
    *,
    objectives: Mapping[str, Objective],
    n_seeds: int,
    learning_rate: float,
    epochs: int,
    batch_size: int,
    key: PRNGKeyArray,
) -> dict[str, FitResult]:
    """Fits `n_seeds` networks of each kind at once, by Adam with clipping and cosine decay.

    `networks` has the initialisers, `objectives` the objective of each kind.
    """
    check_positive(
        n_seeds=n_seeds, learning_rate=learning_rate, epochs=epochs, batch_size=batch_size
    )
    steps = max(1, epochs * (len(train[1]) // batch_size))
    optimiser = optax.chain(
        optax.clip_by_global_norm(MAX_GRADIENT_NORM),
        optax.adam(optax.cosine_decay_schedule(learning_rate, steps)),
    )
    results = {}
    for i, (name, init) in enumerate(networks.items()):
        job.note(name)
        key_init, key_fit = jax.random.split(jax.random.fold_in(key, i))
        results[name] = fit(
            per_member(descend(objectives[name], optimiser)),
            Ensemble.init(init, n_seeds, key=key_init),
            train,
            epochs=epochs,
            batch_size=batch_size,
            key=key_fit,
            run=job.part(f"network-{i}"),
            progress=job.progress,
        )
    return results


def member_values(nets: Ensemble, test: Batch, metric: Objective) -> Float[np.ndarray, " seeds"]:
    """A metric that is a mean over examples, for each network, a batch of examples at a time."""
    n = len(test[1])
    value = jax.jit(jax.vmap(lambda net, batch: metric(net, batch), in_axes=(0, None)))
    total = 0.0
    for start in range(0, n, EVALUATION_BATCH):
        batch = jax.tree.map(lambda a, start=start: a[start : start + EVALUATION_BATCH], test)
        total = total + len(batch[1]) * np.asarray(value(nets.members, batch))
    return np.asarray(total) / n


def first_network(nets: Ensemble) -> Any:
    """The first network of an ensemble."""
    return jax.tree.map(lambda leaf: leaf[0], nets.members)

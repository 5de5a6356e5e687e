"""The tricks of the trade, each alone and all together, on a few images of MNIST (§8)."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from .. import data
from ..core import Batch, Objective, Scalar
from ..layers import Ensemble, LayerNorm, mixture
from ..models import MLP
from ..train import (
    Fit,
    augmented,
    cross_entropy,
    descend,
    error_rate,
    fit,
    restarts,
    smooth_labels,
    weight_decay,
)
from .engine.job import Job, positive, recipe
from .engine.outcome import Outcome

CLASSES = 10
HELD_OUT = 0.1  # of the images, for early stopping


class Trick(NamedTuple):
    """What a row of the table changes."""

    objective: Objective = cross_entropy
    optimiser: Callable[..., optax.GradientTransformation] = optax.adam  # of a rate
    parts: Mapping[str, Any] = {}  # of the network
    average: int = 1  # networks
    patience: int | None = None


def every_trick(
    *,
    decay: float,
    decoupled: float,
    patience: int,
    dropout: float,
    pixels: int,
    smoothing: float,
    average: int,
) -> dict[str, Trick]:
    """The table's rows: nothing, each trick alone, all of them."""
    shift = data.augment.shift(pixels=pixels)
    smooth = partial(smooth_labels, classes=CLASSES, strength=smoothing)
    adamw = partial(optax.adamw, weight_decay=decoupled)
    return {
        "nothing": Trick(),
        "weight decay": Trick(weight_decay(cross_entropy, strength=decay)),
        "decoupled decay": Trick(optimiser=adamw),
        "early stopping": Trick(patience=patience),
        "dropout": Trick(parts={"dropout": dropout}),
        "layer norm": Trick(parts={"normalise": LayerNorm.init}),
        "shifted images": Trick(augmented(cross_entropy, shift)),
        "label smoothing": Trick(smooth(cross_entropy)),
        f"{average} restarts averaged": Trick(average=average),
        "all together": Trick(
            augmented(smooth(cross_entropy), shift),
            adamw,
            {"dropout": dropout, "normalise": LayerNorm.init},
            average,
            patience,
        ),
    }


def seeds_error(ensemble: Ensemble, test: Batch, *, average: int) -> Float[np.ndarray, " seeds"]:
    """The test error in percent of each seed, whose networks lie side by side and are averaged."""
    groups = jax.tree.map(lambda a: a.reshape(-1, average, *a.shape[1:]), ensemble.members)
    return 100 * np.asarray(_errors(groups, test))


@jax.jit
def _errors(groups: Any, test: Batch) -> Float[Array, " seeds"]:
    return jax.lax.map(lambda members: error_rate(Ensemble(members, mixture), test), groups)


def each_error(ensemble: Ensemble, batch: Batch, *, key: PRNGKeyArray | None = None) -> Scalar:
    """The mean over the members of their own error rates, not that of their average."""
    return jax.vmap(lambda member: error_rate(member, batch))(ensemble.members).mean()


@recipe
def tricks(
    job: Job,
    *,
    images: int = 1000,
    wrong: float = 0.0,
    seeds: int = 6,
    hidden: tuple[int, ...] = (256, 256),
    decay: float = 1e-4,
    decoupled: float = 1.0,
    patience: int = 20,
    dropout: float = 0.2,
    pixels: int = 2,
    smoothing: float = 0.2,
    average: int = 3,
    rate: float = 1e-3,
    epochs: int = 60,
    batch: int = 50,
) -> Outcome:
    """Nothing, each trick of the trade alone, and all together, on a thousand images of MNIST; the
    mean over seeds.

    The seeds of a row are trained at once. They differ in the start and in all chance but the order
    of the images. One network of the last row is handed on to be looked at.

    Parameters
    ----------
    images
        Training images, the digits in their usual proportions.
    wrong
        Share of the training labels to replace by random ones, so that there is something to fit
        too well.
    seeds
        Times that each row is trained.
    hidden
        Widths of the hidden layers.
    decay
        Strength of the weight decay in the objective, as in the course.
    decoupled
        Strength of the decay that acts on the step, past Adam's scaling.
    patience
        Epochs without a lower validation error after which early stopping stops; it holds out a
        tenth of the images.
    dropout
        Probability of dropping a hidden unit.
    pixels
        How far an image is shifted, at most, each way.
    smoothing
        Share of the label that is spread over all classes.
    average
        Networks whose predictions are averaged.
    rate
        Initial learning rate of Adam; it falls to zero along a cosine.
    epochs
        Passes over the training images.
    batch
        Examples in a batch.
    """
    positive(images=images, rate=rate, epochs=epochs, batch=batch, average=average)
    if seeds < 2:
        raise ValueError(f"seeds must be at least 2, for a spread; got {seeds}.")
    if not 0 <= wrong <= 1:
        raise ValueError(f"wrong is a share of the labels, from 0 to 1; got {wrong}.")
    key_images, key_wrong, key_init, key_fit = jr.split(job.key, 4)
    job.say("loading mnist")
    full = data.load("mnist")
    train, _ = data.split(full.train, images / len(full.train[1]), key=key_images, by=full.train[1])
    train = train[0], _relabelled(train[1], wrong, key=key_wrong)
    test = jax.tree.map(jnp.asarray, full.test)
    listed = every_trick(
        decay=decay,
        decoupled=decoupled,
        patience=patience,
        dropout=dropout,
        pixels=pixels,
        smoothing=smoothing,
        average=average,
    )
    table = {}
    seconds = 0.0
    for name, trick in listed.items():
        job.say(name)
        make = partial(MLP.init, 784, *hidden, CLASSES, **trick.parts)
        nets = Ensemble.init(make, seeds * trick.average, key=key_init)
        found = _fit(
            job, name, trick, nets, train, rate=rate, epochs=epochs, batch=batch, key=key_fit
        )
        epochs_done = len(found.history["train loss"])
        table[name] = _row(seeds_error(found.model, test, average=trick.average), table) | {
            "epochs": epochs_done
        }
        seconds += found.seconds
    one, start = (jax.tree.map(lambda a: a[0], nets.members) for nets in (found.model, found.start))
    return Outcome(
        one,
        train,
        full.test,
        trick.objective,
        found.history,
        full.classes,
        table,
        found.reason,
        seconds,
        start=start,
    )


def _relabelled(labels: Any, wrong: float, *, key: PRNGKeyArray) -> np.ndarray:
    key_which, key_label = jr.split(key)
    random = jr.randint(key_label, (len(labels),), 0, CLASSES, labels.dtype)
    return np.asarray(jnp.where(jr.bernoulli(key_which, wrong, (len(labels),)), random, labels))


def _fit(
    job: Job,
    name: str,
    trick: Trick,
    nets: Ensemble,
    train: Batch,
    *,
    rate: float,
    epochs: int,
    batch: int,
    key: PRNGKeyArray,
) -> Fit:
    watched = trick.patience is not None
    steps = epochs * (len(train[1]) // batch)
    return fit(
        restarts(
            descend(
                trick.objective, trick.optimiser(optax.cosine_decay_schedule(rate, max(1, steps)))
            )
        ),
        nets,
        train,
        epochs=epochs,
        batch_size=batch,
        validation=HELD_OUT if watched else None,
        metrics={"error": each_error} if watched else None,
        patience=trick.patience,
        key=key,
        run=job.part(name.replace(" ", "-")),
        progress=job.progress,
    )


def _row(
    errors: Float[np.ndarray, " seeds"], table: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    mean = float(errors.mean())
    first = next(iter(table.values()), {"test error %": mean})
    return {
        "test error %": mean,
        "standard error": float(errors.std(ddof=1) / np.sqrt(len(errors))),
        "less than with nothing": first["test error %"] - mean,
    }

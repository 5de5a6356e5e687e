"""An ablation of regularisation tricks on a few images of MNIST (§8)."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from ... import data
from ...core import Batch, Objective, Scalar
from ...layers import Ensemble, LayerNorm, mean_probabilities
from ...models import MLP
from ...train import (
    FitResult,
    cross_entropy,
    descend,
    error_rate,
    fit,
    per_member,
    smooth_labels,
    with_augmentation,
)
from ...train import (
    weight_decay as with_weight_decay,
)
from ..engine.job import Job, check_positive, recipe
from ..engine.outcome import Outcome

CLASSES = 10
VALID_FRACTION = 0.1  # of the images, with early stopping


class Trick(NamedTuple):
    """What a row of the table changes in training."""

    objective: Objective = cross_entropy
    optimiser: Callable[..., optax.GradientTransformation] = optax.adam  # of a learning rate
    network: Mapping[str, Any] = {}  # arguments of `MLP.init`
    members: int = 1  # of the ensemble
    patience: int | None = None


def all_tricks(
    *,
    weight_decay: float,
    decoupled_weight_decay: float,
    patience: int,
    dropout: float,
    max_shift: int,
    label_smoothing: float,
    members: int,
) -> dict[str, Trick]:
    """The rows of the table: the baseline, each trick alone, all of them."""
    shift = data.augment.shift(pixels=max_shift)
    smooth = partial(smooth_labels, classes=CLASSES, strength=label_smoothing)
    adamw = partial(optax.adamw, weight_decay=decoupled_weight_decay)
    return {
        "baseline": Trick(),
        "weight decay": Trick(with_weight_decay(cross_entropy, strength=weight_decay)),
        "decoupled weight decay": Trick(optimiser=adamw),
        "early stopping": Trick(patience=patience),
        "dropout": Trick(network={"dropout": dropout}),
        "layer norm": Trick(network={"normalise": LayerNorm.init}),
        "random shifts": Trick(with_augmentation(cross_entropy, shift)),
        "label smoothing": Trick(smooth(cross_entropy)),
        f"ensemble of {members}": Trick(members=members),
        "all combined": Trick(
            with_augmentation(smooth(cross_entropy), shift),
            adamw,
            {"dropout": dropout, "normalise": LayerNorm.init},
            members,
            patience,
        ),
    }


def error_per_seed(ensemble: Ensemble, test: Batch, *, members: int) -> Float[np.ndarray, " seeds"]:
    """Test error in percent of each seed, the ensemble of `members` consecutive networks."""
    groups = jax.tree.map(lambda a: a.reshape(-1, members, *a.shape[1:]), ensemble.members)
    return 100 * np.asarray(_errors(groups, test))


@jax.jit
def _errors(groups: Any, test: Batch) -> Float[Array, " seeds"]:
    return jax.lax.map(
        lambda members: error_rate(Ensemble(members, mean_probabilities), test), groups
    )


def mean_member_error(
    ensemble: Ensemble, batch: Batch, *, key: PRNGKeyArray | None = None
) -> Scalar:
    """Mean error rate of the members, not the error rate of their ensemble."""
    return jax.vmap(lambda member: error_rate(member, batch))(ensemble.members).mean()


@recipe
def tricks(
    job: Job,
    *,
    n_train: int = 1000,
    label_noise: float = 0.0,
    n_seeds: int = 6,
    hidden: tuple[int, ...] = (256, 256),
    weight_decay: float = 1e-4,
    decoupled_weight_decay: float = 1.0,
    patience: int = 20,
    dropout: float = 0.2,
    max_shift: int = 2,
    label_smoothing: float = 0.2,
    members: int = 3,
    learning_rate: float = 1e-3,
    epochs: int = 60,
    batch_size: int = 50,
) -> Outcome:
    """Ablation of regularisation tricks on a thousand images of MNIST.

    The rows are a baseline, each trick alone and all combined, as means over seeds. The seeds of a
    row are trained at once. They differ in initialisation and in all randomness except the order of
    the images. The model of the outcome is one network of the last row.

    Parameters
    ----------
    n_train
        Training images, with the classes in their usual proportions.
    label_noise
        Share of the training labels to replace by random ones, so that there is something to
        overfit.
    n_seeds
        Random seeds of each row.
    weight_decay
        L2 penalty in the objective, as in the course.
    decoupled_weight_decay
        Weight decay of AdamW, outside of Adam's scaling.
    patience
        Epochs without a lower validation error before early stopping, which holds out a tenth of
        the images.
    """
    check_positive(
        n_train=n_train,
        learning_rate=learning_rate,
        epochs=epochs,
        batch_size=batch_size,
        members=members,
    )
    if n_seeds < 2:
        raise ValueError(f"n_seeds must be at least 2, for a standard error; got {n_seeds}.")
    if not 0 <= label_noise <= 1:
        raise ValueError(f"label_noise is a share of the labels, from 0 to 1; got {label_noise}.")
    key_images, key_noise, key_init, key_fit = jr.split(job.key, 4)
    job.note("loading mnist")
    full = data.load("mnist")
    train, _ = data.split(
        full.train, n_train / len(full.train[1]), key=key_images, stratify=full.train[1]
    )
    train = train[0], _with_label_noise(train[1], label_noise, key=key_noise)
    test = jax.tree.map(jnp.asarray, full.test)
    tricks_by_name = all_tricks(
        weight_decay=weight_decay,
        decoupled_weight_decay=decoupled_weight_decay,
        patience=patience,
        dropout=dropout,
        max_shift=max_shift,
        label_smoothing=label_smoothing,
        members=members,
    )
    table = {}
    seconds = 0.0
    for name, trick in tricks_by_name.items():
        job.note(name)
        init = partial(MLP.init, 784, *hidden, CLASSES, **trick.network)
        nets = Ensemble.init(init, n_seeds * trick.members, key=key_init)
        result = _fit(
            job,
            name,
            trick,
            nets,
            train,
            learning_rate=learning_rate,
            epochs=epochs,
            batch_size=batch_size,
            key=key_fit,
        )
        epochs_done = len(result.history["train loss"])
        table[name] = _row(error_per_seed(result.model, test, members=trick.members), table) | {
            "epochs": epochs_done
        }
        seconds += result.seconds
    network, start = (
        jax.tree.map(lambda a: a[0], nets.members) for nets in (result.model, result.start)
    )
    return Outcome.of_fit(
        result,
        model=network,
        train=train,
        test=full.test,
        objective=trick.objective,
        classes=full.classes,
        table=table,
        seconds=seconds,
        start=start,
    )


def _with_label_noise(labels: Any, label_noise: float, *, key: PRNGKeyArray) -> np.ndarray:
    key_which, key_label = jr.split(key)
    random = jr.randint(key_label, (len(labels),), 0, CLASSES, labels.dtype)
    return np.asarray(
        jnp.where(jr.bernoulli(key_which, label_noise, (len(labels),)), random, labels)
    )


def _fit(
    job: Job,
    name: str,
    trick: Trick,
    nets: Ensemble,
    train: Batch,
    *,
    learning_rate: float,
    epochs: int,
    batch_size: int,
    key: PRNGKeyArray,
) -> FitResult:
    early_stopping = trick.patience is not None
    steps = epochs * (len(train[1]) // batch_size)
    return fit(
        per_member(
            descend(
                trick.objective,
                trick.optimiser(optax.cosine_decay_schedule(learning_rate, max(1, steps))),
            )
        ),
        nets,
        train,
        epochs=epochs,
        batch_size=batch_size,
        validation=VALID_FRACTION if early_stopping else None,
        metrics={"error": mean_member_error} if early_stopping else None,
        patience=trick.patience,
        key=key,
        run=job.part(name.replace(" ", "-")),
        progress=job.progress,
    )


def _row(
    errors: Float[np.ndarray, " seeds"], table: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    mean = float(errors.mean())
    baseline = next(iter(table.values()), {"test error %": mean})
    return {
        "test error %": mean,
        "standard error": float(errors.std(ddof=1) / np.sqrt(len(errors))),
        "reduction": baseline["test error %"] - mean,
    }

"""Data and training settings of the recipes for convolutional networks (§4.2)."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PRNGKeyArray

from ... import data as stored
from ...core import Batch, Objective
from ...data.augment import Augmentation, chain, cutout, flip, shift
from ...layers import fold_batch_norm
from ...train import FitResult
from ...train.loop.fit import CALIBRATION
from ..engine.job import Job
from ..engine.outcome import Outcome
from .classifier import test_error_percent

VALID_FRACTION = 1 / 12  # of the training images: 5,000 of MNIST
FLIPPED = ("fashion-mnist", "cifar-10")  # not the digits: a mirrored 3 is not a digit
WARMUP_FRACTION = 0.2  # of the steps of a residual network


def load_images(job: Job, name: str) -> stored.Data:
    """A dataset of images `n c h w`."""
    job.note(f"loading {name}")
    full = stored.load(name)
    assert full.test is not None
    with_channels = lambda xs, ys: (xs[:, None] if xs.ndim == 3 else xs, ys)
    return full._replace(train=with_channels(*full.train), test=with_channels(*full.test))


def image_augmentation(name: str, *, max_shift: int, cutout_size: int = 0) -> Augmentation:
    """Random shifts, flips (except of digits) and cutout."""
    flips = [flip()] if name in FLIPPED else []
    cutouts = [] if cutout_size == 0 else [cutout(size=cutout_size)]
    return chain(shift(pixels=max_shift), *flips, *cutouts)


def fold_norms(model: Any, train: Batch) -> Any:
    """The network with batch norms replaced by the affine maps that they are on some training
    images, so that it can be applied to a single image.
    """
    return jax.jit(fold_batch_norm)(model, jnp.asarray(train[0][:CALIBRATION]))  # a random sample


def nesterov(learning_rate: float, steps: int) -> optax.GradientTransformation:
    """SGD with Nesterov momentum, linear warmup and cosine decay of the learning rate."""
    warmup = max(1, round(WARMUP_FRACTION * steps))
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, learning_rate, warmup, max(warmup + 1, steps)
    )
    return optax.sgd(schedule, momentum=0.9, nesterov=True)


def split_images(job: Job, name: str, *, key: PRNGKeyArray) -> tuple[Batch, Batch, stored.Data]:
    """Training and validation images, and the whole dataset."""
    full = load_images(job, name)
    return *stored.split(full.train, 1 - VALID_FRACTION, key=key, stratify=full.train[1]), full


def image_outcome(
    name: str,
    result: FitResult,
    train: Batch,
    full: stored.Data,
    objective: Objective,
    weight_decay: float = 0.0,
) -> Outcome:
    """The outcome of a fit to images, with batch norms folded."""
    model = fold_norms(result.model, train)
    table = {name: {"test error %": test_error_percent(model, full.test)}}
    return Outcome.of_fit(
        result,
        model=model,
        train=train,
        test=full.test,
        objective=objective,
        classes=full.classes,
        table=table,
        decay=weight_decay,
        start=fold_norms(result.start, train),
    )

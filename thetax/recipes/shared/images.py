"""Pictures by convolutions (§4.2): a small network for digits and clothes, and a residual one, for
photographs too.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PRNGKeyArray

from ... import data as stored
from ...core import Batch, Objective
from ...data.augment import Augmentation, chain, cutout, flip, shift
from ...layers import fold
from ...train import Fit
from ...train.loop.fit import CALIBRATION
from ..engine.job import Job
from ..engine.outcome import Outcome
from .classify import percent_wrong

HELD_OUT = 1 / 12  # of the training images, for validation: 5,000 of MNIST's
MIRRORED = ("fashion-mnist", "cifar-10")  # the digits are not: a mirrored 3 is no digit
WARM = 0.2  # of the steps, in which the rate of a residual network rises


def pictures(job: Job, name: str) -> stored.Data:
    """A set of pictures, `n c h w`."""
    job.say(f"loading {name}")
    full = stored.load(name)
    assert full.test is not None
    coloured = lambda part: (part[0][:, None] if part[0].ndim == 3 else part[0], part[1])
    return full._replace(train=coloured(full.train), test=coloured(full.test))


def otherwise(name: str, *, pixels: int, hole: int = 0) -> Augmentation:
    """How the pictures of a set may be seen and stay what they are."""
    mirrored = [flip()] if name in MIRRORED else []
    hidden = [] if hole == 0 else [cutout(size=hole)]
    return chain(shift(pixels=pixels), *mirrored, *hidden)


def folded(model: Any, train: Batch) -> Any:
    """The network with its norms as the affine maps they are on some training pictures, for one
    picture at a time.
    """
    return jax.jit(fold)(model, jnp.asarray(train[0][:CALIBRATION]))  # they lie in random order


def _nesterov(rate: float, steps: int) -> optax.GradientTransformation:
    warm = max(1, round(WARM * steps))
    schedule = optax.warmup_cosine_decay_schedule(0.0, rate, warm, max(warm + 1, steps))
    return optax.sgd(schedule, momentum=0.9, nesterov=True)


def _parts(job: Job, name: str, *, key: PRNGKeyArray) -> tuple[Batch, Batch, stored.Data]:
    full = pictures(job, name)
    return *stored.split(full.train, 1 - HELD_OUT, key=key, by=full.train[1]), full


def _outcome(
    name: str, found: Fit, train: Batch, full: stored.Data, objective: Objective, decay: float = 0.0
) -> Outcome:
    model = folded(found.model, train)
    table = {name: {"test error %": percent_wrong(model, full.test)}}
    return Outcome(
        model,
        train,
        full.test,
        objective,
        found.history,
        full.classes,
        table,
        found.reason,
        found.seconds,
        decay,
        start=folded(found.start, train),
    )

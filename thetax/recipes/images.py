"""Pictures by convolutions (§4.2): a small network for digits and clothes, and a residual one, for photographs too."""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import PRNGKeyArray

from .. import data as stored
from ..core import Batch, Objective
from ..data.augment import Augmentation, chain, cutout, flip, shift
from ..layers import BatchNorm, fold
from ..models import CNN, ResNet
from ..models.resnet import Layout
from ..train import Fit, augmented, cross_entropy, descend, fit, mixed_precision, smooth_labels, weight_decay
from ..train.fit import CALIBRATION
from .classify import METRICS, classify, percent_wrong
from .job import Job, positive, recipe
from .outcome import Outcome

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
    mirrored, hidden = [flip()] if name in MIRRORED else [], [] if hole == 0 else [cutout(size=hole)]
    return chain(shift(pixels=pixels), *mirrored, *hidden)


def folded(model: Any, train: Batch) -> Any:
    """The network with its norms as the affine maps they are on some training pictures, for one picture at a time."""
    return jax.jit(fold)(model, jnp.asarray(train[0][:CALIBRATION]))  # they lie in random order


@recipe
def cnn(
    job: Job,
    *,
    data: Literal["mnist", "fashion-mnist"] = "mnist",
    widths: tuple[int, ...] = (32, 64, 128),
    depth: int = 1,
    dropout: float = 0.1,
    pixels: int = 1,
    rate: float = 3e-3,
    epochs: int = 16,
    batch: int = 128,
) -> Outcome:
    """A small convolutional network with batch norms on MNIST or Fashion-MNIST, in a dozen minutes or so on two cores.

    Of the 60,000 images 5,000 are for validation; 10,000 others are the test. Images are shifted as they are learnt,
    and clothes mirrored.

    Parameters
    ----------
    data
        The images.
    widths
        Channels of each stage; between stages height and width are halved.
    depth
        Convolutions in a stage.
    dropout
        Probability of dropping a number that the last, linear layer reads.
    pixels
        How far an image is shifted, at most, each way.
    rate
        Initial learning rate of Adam; it falls to zero along a cosine.
    epochs
        Passes over the training set.
    batch
        Examples in a batch.
    """
    positive(rate=rate, epochs=epochs, batch=batch)
    key_valid, key_init, key_fit = jr.split(job.key, 3)
    net = CNN.init(widths, classes=10, depth=depth, dropout=dropout, normalise=BatchNorm.init, key=key_init)
    see = otherwise(data, pixels=pixels)
    train, valid, full = _parts(job, data, key=key_valid)
    objective = augmented(cross_entropy, see)
    found = classify(
        job, net, train, valid, objective=objective, rate=rate, epochs=epochs, batch=batch, key=key_fit, run=job.run
    )
    return _outcome("convolutional network", found, train, full, objective)


@recipe
def resnet(
    job: Job,
    *,
    data: Literal["fashion-mnist", "mnist", "cifar-10"] = "fashion-mnist",
    blocks: tuple[int, ...] = (2, 2, 2),
    width: int = 32,
    pixels: int = 2,
    hole: int = 8,
    smoothing: float = 0.1,
    decay: float = 5e-4,
    rate: float = 0.1,
    epochs: int = 24,
    batch: int = 128,
    precision: Literal["float32", "bfloat16"] = "float32",
) -> Outcome:
    """A residual network on Fashion-MNIST; for CIFAR-10 take --data cifar-10 --blocks 2 2 2 2 --width 64 --pixels 4
    --epochs 60.

    It is meant for an accelerator: on two cores an epoch takes many minutes. A twelfth of the training images are for
    validation. Images are shifted as they are learnt, mirrored unless they are digits, and a square of them is hidden.

    Parameters
    ----------
    data
        The images.
    blocks
        Blocks of two convolutions in each stage; 2 2 2 2 is ResNet-18.
    width
        Channels of the first stage; each stage has twice as many as the one before.
    pixels
        How far an image is shifted, at most, each way.
    hole
        Side of the square that is hidden; 0 for none.
    smoothing
        Share of the label that is spread over all classes.
    decay
        Strength of the weight decay.
    rate
        Highest learning rate of Nesterov's momentum; a fifth of the steps lead up to it, the others down to zero.
    epochs
        Passes over the training set.
    batch
        Examples in a batch.
    precision
        In what the network is computed; weights, norms and losses stay float32.
    """
    positive(rate=rate, epochs=epochs, batch=batch)
    key_valid, key_init, key_fit = jr.split(job.key, 3)
    channels = 3 if data == "cifar-10" else 1
    net = ResNet.init(Layout(blocks), classes=10, channels=channels, width=width, small=True, key=key_init)
    soft, see = smooth_labels(cross_entropy, 10, strength=smoothing), otherwise(data, pixels=pixels, hole=hole)
    train, valid, full = _parts(job, data, key=key_valid)
    computed = mixed_precision if precision == "bfloat16" else lambda objective: objective
    decayed = lambda objective: weight_decay(augmented(objective, see), strength=decay)
    found = fit(
        descend(decayed(computed(soft)), _nesterov(rate, epochs * (len(train[1]) // batch))),
        net,
        train,
        epochs=epochs,
        batch=batch,
        validation=valid,
        metrics=METRICS,
        key=key_fit,
        run=job.run,
        progress=job.progress,
    )
    return _outcome("residual network", found, train, full, decayed(soft), decay)


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
        model, train, full.test, objective, found.history, full.classes, table, found.reason, found.seconds, decay,
        start=folded(found.start, train),
    )  # fmt: skip

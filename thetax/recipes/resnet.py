"""`thetax train resnet`: a residual network for small images."""

from typing import Literal

import jax.random as jr

from ..models import ResNet
from ..models.vision.resnet import ResNetLayout
from ..train import (
    augmented,
    cross_entropy,
    descend,
    fit,
    mixed_precision,
    smooth_labels,
    weight_decay,
)
from .engine.job import Job, positive, recipe
from .engine.outcome import Outcome
from .shared.classify import METRICS
from .shared.images import _nesterov, _outcome, _parts, otherwise


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
    """A residual network on Fashion-MNIST; for CIFAR-10 take --data cifar-10 --blocks 2 2 2 2
    --width 64 --pixels 4 --epochs 60.

    It is meant for an accelerator: on two cores an epoch takes many minutes. A twelfth of the
    training images are for validation. Images are shifted as they are learnt, mirrored unless they
    are digits, and a square of them is hidden.

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
        Highest learning rate of Nesterov's momentum; a fifth of the steps lead up to it, the others
        down to zero.
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
    net = ResNet.init(
        ResNetLayout(blocks), classes=10, channels=channels, width=width, small=True, key=key_init
    )
    soft = smooth_labels(cross_entropy, 10, strength=smoothing)
    see = otherwise(data, pixels=pixels, hole=hole)
    train, valid, full = _parts(job, data, key=key_valid)
    computed = mixed_precision if precision == "bfloat16" else lambda objective: objective
    decayed = lambda objective: weight_decay(augmented(objective, see), strength=decay)
    found = fit(
        descend(decayed(computed(soft)), _nesterov(rate, epochs * (len(train[1]) // batch))),
        net,
        train,
        epochs=epochs,
        batch_size=batch,
        validation=valid,
        metrics=METRICS,
        key=key_fit,
        run=job.run,
        progress=job.progress,
    )
    return _outcome("residual network", found, train, full, decayed(soft), decay)

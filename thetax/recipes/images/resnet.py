"""A residual network for small images: `thetax train resnet`."""

from typing import Literal

import jax.random as jr

from ...models import ResNet
from ...models.vision.resnet import ResNetLayout
from ...train import (
    cross_entropy,
    descend,
    fit,
    mixed_precision,
    smooth_labels,
    with_augmentation,
)
from ...train import (
    weight_decay as with_weight_decay,
)
from ..engine.job import Job, check_positive, recipe
from ..engine.outcome import Outcome
from ..shared.classifier import METRICS
from ..shared.images import image_augmentation, image_outcome, nesterov, split_images


@recipe
def resnet(
    job: Job,
    *,
    data: Literal["fashion-mnist", "mnist", "cifar-10"] = "fashion-mnist",
    blocks: tuple[int, ...] = (2, 2, 2),
    width: int = 32,
    max_shift: int = 2,
    cutout: int = 8,
    label_smoothing: float = 0.1,
    weight_decay: float = 5e-4,
    learning_rate: float = 0.1,
    epochs: int = 24,
    batch_size: int = 128,
    precision: Literal["float32", "bfloat16"] = "float32",
) -> Outcome:
    """A residual network on Fashion-MNIST or CIFAR-10.

    For CIFAR-10: `--data cifar-10 --blocks 2 2 2 2 --width 64 --max-shift 4 --epochs 60`. Meant for
    an accelerator: on two cores an epoch takes many minutes. A twelfth of the training images are
    for validation. Training images are shifted at random, flipped (except digits) and partly hidden
    by cutout.

    Parameters
    ----------
    blocks
        Blocks of two convolutions in each stage; 2 2 2 2 is ResNet-18.
    width
        Channels of the first stage; they double from stage to stage.
    cutout
        Side of the cutout square in pixels; 0 for none.
    learning_rate
        Peak learning rate of SGD with Nesterov momentum, after a warmup over a fifth of the steps;
        it then decays to zero along a cosine.
    """
    check_positive(learning_rate=learning_rate, epochs=epochs, batch_size=batch_size)
    key_valid, key_init, key_fit = jr.split(job.key, 3)
    channels = 3 if data == "cifar-10" else 1
    net = ResNet.init(
        ResNetLayout(blocks), classes=10, channels=channels, width=width, small=True, key=key_init
    )
    smoothed = smooth_labels(cross_entropy, 10, strength=label_smoothing)
    augment = image_augmentation(data, max_shift=max_shift, cutout_size=cutout)
    train, valid, full = split_images(job, data, key=key_valid)
    in_precision = mixed_precision if precision == "bfloat16" else lambda objective: objective
    penalised = lambda objective: with_weight_decay(
        with_augmentation(objective, augment), strength=weight_decay
    )
    result = fit(
        descend(
            penalised(in_precision(smoothed)),
            nesterov(learning_rate, epochs * (len(train[1]) // batch_size)),
        ),
        net,
        train,
        epochs=epochs,
        batch_size=batch_size,
        validation=valid,
        metrics=METRICS,
        key=key_fit,
        run=job.run,
        progress=job.progress,
    )
    return image_outcome("residual network", result, train, full, penalised(smoothed), weight_decay)

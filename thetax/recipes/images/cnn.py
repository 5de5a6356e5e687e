"""A convolutional network for small images: `thetax train cnn`."""

from typing import Literal

import jax.random as jr

from ...layers import BatchNorm
from ...models import CNN
from ...train import cross_entropy, with_augmentation
from ..engine.job import Job, check_positive, recipe
from ..engine.outcome import Outcome
from ..shared.classifier import fit_classifier
from ..shared.images import image_augmentation, image_outcome, split_images


@recipe
def cnn(
    job: Job,
    *,
    data: Literal["mnist", "fashion-mnist"] = "mnist",
    widths: tuple[int, ...] = (32, 64, 128),
    depth: int = 1,
    dropout: float = 0.1,
    max_shift: int = 1,
    learning_rate: float = 3e-3,
    epochs: int = 16,
    batch_size: int = 128,
) -> Outcome:
    """A small convolutional network on MNIST or Fashion-MNIST.

    About a dozen minutes on two cores. 5,000 of the 60,000 training images are for validation; the
    test set has 10,000. Training images are shifted at random, and those of Fashion-MNIST are
    flipped.

    Parameters
    ----------
    widths
        Channels of each stage; height and width are halved between stages.
    depth
        Convolutions per stage.
    dropout
        Dropout probability before the last, linear layer.
    """
    check_positive(learning_rate=learning_rate, epochs=epochs, batch_size=batch_size)
    key_valid, key_init, key_fit = jr.split(job.key, 3)
    net = CNN.init(
        widths, classes=10, depth=depth, dropout=dropout, normalise=BatchNorm.init, key=key_init
    )
    augment = image_augmentation(data, max_shift=max_shift)
    train, valid, full = split_images(job, data, key=key_valid)
    objective = with_augmentation(cross_entropy, augment)
    result = fit_classifier(
        job,
        net,
        train,
        valid,
        objective=objective,
        learning_rate=learning_rate,
        epochs=epochs,
        batch_size=batch_size,
        key=key_fit,
        run=job.run,
    )
    return image_outcome("convolutional network", result, train, full, objective)

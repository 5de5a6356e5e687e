"""`thetax train cnn`: a convolutional network for small images."""

from typing import Literal

import jax.random as jr

from ..layers import BatchNorm
from ..models import CNN
from ..train import augmented, cross_entropy
from .engine.job import Job, positive, recipe
from .engine.outcome import Outcome
from .shared.classify import classify
from .shared.images import _outcome, _parts, otherwise


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
    """A small convolutional network with batch norms on MNIST or Fashion-MNIST, in a dozen minutes
    or so on two cores.

    Of the 60,000 images 5,000 are for validation; 10,000 others are the test. Images are shifted as
    they are learnt, and clothes mirrored.

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
    net = CNN.init(
        widths, classes=10, depth=depth, dropout=dropout, normalise=BatchNorm.init, key=key_init
    )
    see = otherwise(data, pixels=pixels)
    train, valid, full = _parts(job, data, key=key_valid)
    objective = augmented(cross_entropy, see)
    found = classify(
        job,
        net,
        train,
        valid,
        objective=objective,
        rate=rate,
        epochs=epochs,
        batch=batch,
        key=key_fit,
        run=job.run,
    )
    return _outcome("convolutional network", found, train, full, objective)

"""Clothes by attention (§6.6): a vision transformer beside a convolutional network and a
perceptron.
"""

from functools import partial
from typing import Any, Literal

import jax.random as jr

from .. import data as stored
from ..core import Batch, Objective
from ..layers import BatchNorm
from ..models import CNN, MLP, ViT
from ..train import Fit, augmented, cross_entropy, descend, fit, mixed_precision
from .engine.job import Job, positive, recipe
from .engine.outcome import Outcome
from .shared.classify import METRICS, classify, percent_wrong
from .shared.images import HELD_OUT, folded, otherwise, pictures
from .shared.transformer_training import decayed_adam, narrow, warm_cosine

SIDE = 28  # of an image
WARM = 0.1  # of the steps, in which the rate rises
HIDDEN = (256, 128)  # of the perceptron
WIDTHS = (32, 64, 128)  # channels of the convolutional network, as in the recipe `cnn`
OTHERS = 3e-3  # the learning rate of both


@recipe
def vit(
    job: Job,
    *,
    data: Literal["fashion-mnist", "mnist"] = "fashion-mnist",
    patch: int = 7,
    width: int = 64,
    depth: int = 4,
    heads: int = 4,
    dropout: float = 0.0,
    decay: float = 0.05,
    pixels: int = 1,
    rate: float = 1e-3,
    epochs: int = 18,
    lessons: int = 4,
    batch: int = 128,
    precision: Literal["float32", "bfloat16"] = "float32",
) -> Outcome:
    """A small vision transformer on Fashion-MNIST, beside a perceptron and the convolutional
    network of `cnn`.

    All see the same images, shifted as they are learnt, and clothes mirrored; the perceptron sees
    them as they are. Of the 60,000 images 5,000 are for validation; 10,000 others are the test.
    With so few images and so little time the convolutions, which know what a neighbour is, do
    better.

    Parameters
    ----------
    data
        The images, 28 by 28.
    patch
        Side of the squares into which an image is cut: 2, 4, 7 or 14.
    width
        Numbers that stand for a patch.
    depth
        Layers.
    heads
        Heads of attention in a layer.
    dropout
        Probability of dropping a number.
    decay
        How fast matrices decay, as a share of the learning rate.
    pixels
        How far an image is shifted, at most, each way.
    rate
        Highest learning rate of Adam; a tenth of the steps lead up to it, the others down to zero.
    epochs
        Passes of the transformer over the training set.
    lessons
        Passes of the two others; 0 to leave them out.
    batch
        Examples in a batch.
    precision
        In what the transformer is computed; weights, norms and losses stay float32.
    """
    positive(width=width, depth=depth, heads=heads, rate=rate, epochs=epochs, batch=batch)
    if patch < 1 or SIDE % patch:
        raise ValueError(
            f"patch: squares must tile an image of {SIDE} by {SIDE}: 2, 4, 7 or 14; got {patch}."
        )
    key_valid, key_init, key_fit, key_others = jr.split(job.key, 4)
    full = pictures(job, data)
    size = full.train[0].shape[2:]
    draw = partial(
        ViT.init, d=width, depth=depth, heads=heads, dropout=dropout, initialiser=narrow(width)
    )
    net = draw(10, image_size=size, channels=1, patch_size=patch, key=key_init)
    train, valid = stored.split(full.train, 1 - HELD_OUT, key=key_valid, by=full.train[1])
    objective = augmented(cross_entropy, otherwise(data, pixels=pixels))
    table = {}
    if lessons:
        table = _others(
            job, train, valid, full, objective, epochs=lessons, batch=batch, key=key_others
        )
    job.say("vision transformer")
    computed = augmented(mixed_precision(cross_entropy), otherwise(data, pixels=pixels))
    schedule = warm_cosine(rate, epochs * (len(train[1]) // batch), warm=WARM)
    found = fit(
        descend(
            objective if precision == "float32" else computed, decayed_adam(schedule, decay=decay)
        ),
        net,
        train,
        epochs=epochs,
        batch_size=batch,
        validation=valid,
        metrics=METRICS,
        key=key_fit,
        run=job.part("transformer"),
        progress=job.progress,
    )
    table["vision transformer"] = _row(found, found.model, full, epochs)
    return Outcome(
        found.model,
        train,
        full.test,
        objective,
        found.history,
        full.classes,
        table,
        found.reason,
        found.seconds,
        start=found.start,
    )


def _others(
    job: Job,
    train: Batch,
    valid: Batch,
    full: stored.Data,
    objective: Objective,
    *,
    epochs: int,
    batch: int,
    key: Any,
) -> dict[str, dict[str, float]]:
    """A row for the perceptron and one for the convolutional network."""
    key_flat, key_cnn, *keys = jr.split(key, 4)
    nets = {
        "perceptron": (
            MLP.init(full.train[0][0].size, *HIDDEN, 10, dropout=0.2, key=key_flat),
            cross_entropy,
        ),
        "convolutions": (
            CNN.init(WIDTHS, classes=10, dropout=0.1, normalise=BatchNorm.init, key=key_cnn),
            objective,
        ),
    }
    table = {}
    for (name, (net, loss)), key_fit in zip(nets.items(), keys):
        job.say(name)
        found = classify(
            job,
            net,
            train,
            valid,
            objective=loss,
            rate=OTHERS,
            epochs=epochs,
            batch=batch,
            key=key_fit,
            run=job.part(name),
        )
        table[name] = _row(found, folded(found.model, train), full, epochs)
    return table


def _row(found: Fit, model: Any, full: stored.Data, epochs: int) -> dict[str, float]:
    return {"test error %": percent_wrong(model, full.test), "epochs": float(epochs)}

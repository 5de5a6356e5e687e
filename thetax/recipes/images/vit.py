"""A vision transformer (§6.6), compared with a convolutional network and a perceptron."""

from typing import Any, Literal

import jax.random as jr

from ... import data as stored
from ...core import Batch, Objective
from ...layers import BatchNorm
from ...models import CNN, MLP, ViT
from ...train import FitResult, cross_entropy, descend, fit, mixed_precision, with_augmentation
from ..engine.job import Job, check_positive, recipe
from ..engine.outcome import Outcome
from ..shared.classifier import METRICS, fit_classifier, test_error_percent
from ..shared.images import VALID_FRACTION, fold_norms, image_augmentation, load_images
from ..shared.transformer_training import adamw_on_matrices, warmup_cosine, width_scaled

SIDE = 28  # of an image
WARMUP_FRACTION = 0.1  # share of the steps
MLP_HIDDEN = (256, 128)  # of the perceptron
CNN_WIDTHS = (32, 64, 128)  # channels of the convolutional network, as in the recipe `cnn`
BASELINE_LEARNING_RATE = 3e-3


@recipe
def vit(
    job: Job,
    *,
    data: Literal["fashion-mnist", "mnist"] = "fashion-mnist",
    patch_size: int = 7,
    width: int = 64,
    depth: int = 4,
    heads: int = 4,
    dropout: float = 0.0,
    weight_decay: float = 0.05,
    max_shift: int = 1,
    learning_rate: float = 1e-3,
    epochs: int = 18,
    baseline_epochs: int = 4,
    batch_size: int = 128,
    precision: Literal["float32", "bfloat16"] = "float32",
) -> Outcome:
    """A small vision transformer on Fashion-MNIST.

    A perceptron and the convolutional network of `cnn` are the baselines. All train on the same
    images, with random shifts and, for Fashion-MNIST, flips; the perceptron without augmentation.
    5,000 of the 60,000 training images are for validation; the test set has 10,000. With so few
    images the convolutional network is better, since its architecture contains locality.

    Parameters
    ----------
    data
        Dataset, of 28 by 28 images.
    patch_size
        Side of a patch in pixels: 2, 4, 7 or 14.
    weight_decay
        Decoupled weight decay of AdamW, on weight matrices only.
    learning_rate
        Peak learning rate of AdamW, after a linear warmup over a tenth of the steps; it then decays
        to zero along a cosine.
    epochs
        Passes over the training set for the transformer.
    """
    check_positive(
        width=width,
        depth=depth,
        heads=heads,
        learning_rate=learning_rate,
        epochs=epochs,
        batch_size=batch_size,
    )
    if patch_size < 1 or SIDE % patch_size:
        raise ValueError(
            f"patch_size: patches must tile an image of {SIDE} by {SIDE}: 2, 4, 7 or 14; got "
            f"{patch_size}."
        )
    key_valid, key_init, key_fit, key_baselines = jr.split(job.key, 4)
    full = load_images(job, data)
    size = full.train[0].shape[2:]
    net = ViT.init(
        10,
        image_size=size,
        channels=1,
        patch_size=patch_size,
        d=width,
        depth=depth,
        heads=heads,
        dropout=dropout,
        initialiser=width_scaled(width),
        key=key_init,
    )
    train, valid = stored.split(
        full.train, 1 - VALID_FRACTION, key=key_valid, stratify=full.train[1]
    )
    augment = image_augmentation(data, max_shift=max_shift)
    objective = with_augmentation(cross_entropy, augment)
    table = {}
    if baseline_epochs:
        table = _baselines(
            job,
            train,
            valid,
            full,
            objective,
            epochs=baseline_epochs,
            batch_size=batch_size,
            key=key_baselines,
        )
    job.note("vision transformer")
    schedule = warmup_cosine(
        learning_rate, epochs * (len(train[1]) // batch_size), warmup=WARMUP_FRACTION
    )
    result = fit(
        descend(
            objective
            if precision == "float32"
            else with_augmentation(mixed_precision(cross_entropy), augment),
            adamw_on_matrices(schedule, weight_decay=weight_decay),
        ),
        net,
        train,
        epochs=epochs,
        batch_size=batch_size,
        validation=valid,
        metrics=METRICS,
        key=key_fit,
        run=job.part("transformer"),
        progress=job.progress,
    )
    table["vision transformer"] = _row(result, result.model, full, epochs)
    return Outcome.of_fit(
        result,
        train=train,
        test=full.test,
        objective=objective,
        classes=full.classes,
        table=table,
        start=result.start,
    )


def _baselines(
    job: Job,
    train: Batch,
    valid: Batch,
    full: stored.Data,
    objective: Objective,
    *,
    epochs: int,
    batch_size: int,
    key: Any,
) -> dict[str, dict[str, float]]:
    """A row for the perceptron and one for the convolutional network."""
    key_flat, key_cnn, *keys = jr.split(key, 4)
    nets = {
        "MLP": (
            MLP.init(full.train[0][0].size, *MLP_HIDDEN, 10, dropout=0.2, key=key_flat),
            cross_entropy,
        ),
        "CNN": (
            CNN.init(CNN_WIDTHS, classes=10, dropout=0.1, normalise=BatchNorm.init, key=key_cnn),
            objective,
        ),
    }
    table = {}
    for (name, (net, loss)), key_fit in zip(nets.items(), keys):
        job.note(name)
        result = fit_classifier(
            job,
            net,
            train,
            valid,
            objective=loss,
            learning_rate=BASELINE_LEARNING_RATE,
            epochs=epochs,
            batch_size=batch_size,
            key=key_fit,
            run=job.part(name.lower()),
        )
        table[name] = _row(result, fold_norms(result.model, train), full, epochs)
    return table


def _row(result: FitResult, model: Any, full: stored.Data, epochs: int) -> dict[str, float]:
    return {"test error %": test_error_percent(model, full.test), "epochs": float(epochs)}

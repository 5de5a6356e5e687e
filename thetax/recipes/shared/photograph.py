"""Adversarial attack on the classification of a photograph by a ResNet-50 (§13).

The input is the image with pixels in [0, 1], and normalisation is part of the network, so that the
attack budget is in units of the pixels. The adversarial image is rounded to 256 levels, as in a
file, and the reported probabilities are those of the rounded image.
"""

import io
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import UInt8

from ... import files as disk
from ...attack import PGD, AdversarialExample, targeted, untargeted
from ...check import suggest
from ...data import read_image
from ...models import resnet_imagenet
from ...models.interop.imagenet import IMAGE_SIZE
from ...threat import Ball, p_norm
from ...train import cross_entropy
from ..engine.job import Job
from ..engine.outcome import Outcome
from ..engine.runs import begin, finish

LEVELS = 255
SAMPLE_PHOTO = "china.jpg"  # comes with scikit-learn
BEFORE = "before.png"
AFTER = "after.png"
DIFFERENCE = "difference.png"
FIGURE = "attack.png"

Image8 = UInt8[np.ndarray, "3 h w"]


def photograph(
    job: Job, ball: Ball, file: str | None, target_class: str | None, *, steps: int, restarts: int
) -> Outcome:
    """Attacks a ResNet-50 with a perturbation of a photograph in the ball."""
    before = _read_saved(job, BEFORE)
    before = read_image(file or sample_photo(), image_size=IMAGE_SIZE) if before is None else before
    job.note("loading a ResNet-50 trained on ImageNet")
    model, classes = resnet_imagenet()
    target = None if target_class is None else find_class(target_class, classes)
    p = _probabilities(model, before)
    label = int(p.argmax())
    if target == label:
        raise ValueError(
            f"target_class: the photograph is already classified as {classes[label]}; choose "
            "another class."
        )
    after = _read_saved(job, AFTER)
    if after is None:
        begin(job, {"image": file or SAMPLE_PHOTO})
        job.note(f"prediction: {classes[label]}, {p[label]:.1%}; attacking in {steps} steps")
        after = _attack(job, model, before, ball, label, target, steps=steps, restarts=restarts)
    q = _probabilities(model, after)
    prediction = int(q.argmax())
    result = AdversarialExample(
        before,
        after,
        (classes[label], classes[prediction]),
        (float(p[label]), float(q[prediction])),
    )
    _save(job, result)
    other = prediction if prediction != label else int(np.argsort(-q)[1])
    percent = lambda p: {
        f"{classes[i]} %": 100 * float(p[i])
        for i in dict.fromkeys((label, other, target))
        if i is not None
    }
    table = {
        f"before: {classes[label]}": percent(p),
        f"after: {classes[prediction]}": percent(q) | _change_sizes(result),
    }
    success = prediction != label if target is None else prediction == target
    reason = "attack succeeded" if success else "attack failed; use more steps or a larger eps"
    finish(job, reason)
    pair = np.stack([before, after]).astype(np.float32) / LEVELS, np.array([label, label], np.int32)
    return Outcome(
        model=model,
        train=pair,
        test=pair,
        objective=cross_entropy,
        classes=classes,
        table=table,
        reason=reason,
        measured=result,
    )


def sample_photo() -> Path:
    """A photograph that comes with scikit-learn: a palace in China."""
    from sklearn import datasets

    return Path(datasets.__file__).with_name("images") / SAMPLE_PHOTO


def find_class(name: str, classes: tuple[str, ...]) -> int:
    """The index of a class by its name; raises `ValueError` with similar names if there is none.

    >>> find_class("Goose", ("cat", "goose"))
    1
    >>> find_class("gose", ("cat", "goose"))
    Traceback (most recent call last):
    ValueError: target_class: there is no class 'gose'; did you mean goose?
    """
    indices = {known.lower(): i for i, known in reversed(list(enumerate(classes)))}
    if name.lower() in indices:
        return indices[name.lower()]
    hint = suggest(name, indices).strip() or "give the name of an ImageNet class, such as goose."
    raise ValueError(f"target_class: there is no class {name!r}; {hint}")


def round_to_levels(before: Image8, after: Any, ball: Ball) -> Image8:
    """Rounds an adversarial image to 256 levels, shrinking the perturbation until it is in the
    ball.

    >>> from thetax.threat import Linf
    >>> x = np.full((3, 1, 1), 10, np.uint8)
    >>> round_to_levels(x, (x + 1.4) / 255, Linf(1.5 / 255)).ravel().tolist()
    [11, 11, 11]
    """
    x = before.astype(np.float32)
    perturbation = np.asarray(after, np.float32) * LEVELS - before
    for scale in np.linspace(1, 0, 101, dtype=np.float32):
        eta = np.round(scale * perturbation)
        if float(ball.norm(jnp.asarray(eta / LEVELS))) <= float(ball.radius) * (1 + 1e-5):
            break
    return np.clip(x + eta, 0, LEVELS).astype(np.uint8)


def _attack(
    job: Job,
    model: Any,
    before: Image8,
    ball: Ball,
    label: int,
    target: int | None,
    *,
    steps: int,
    restarts: int,
) -> Image8:
    goal, label = (untargeted(), label) if target is None else (targeted(), target)
    x = jnp.asarray(before, jnp.float32) / LEVELS
    box = (0.0, 1.0)
    attack = PGD(  # a plain loss: all steps are taken, and rounding does not undo the success
        goal.gain,
        ball,
        step_size=2.5 * float(ball.radius) / steps,
        steps=steps,
        restarts=restarts,
        box=box,
    )
    adversarial = eqx.filter_jit(attack)(model, x, jnp.asarray(label), key=jr.fold_in(job.key, 0))
    return round_to_levels(before, adversarial, ball)


_softmax = jax.jit(lambda model, x: jax.nn.softmax(model(x)))


def _probabilities(model: Any, image: Image8) -> np.ndarray:
    """The probability of each class."""
    return np.asarray(_softmax(model, jnp.asarray(image, jnp.float32) / LEVELS))


def _change_sizes(result: AdversarialExample) -> dict[str, float]:
    """The norms of the perturbation in levels of 255."""
    length = float(p_norm(jnp.asarray(result.perturbation, jnp.float32), 2))
    return {"Linf norm /255": float(result.max_perturbation), "L2 norm /255": length}


def _read_saved(job: Job, name: str) -> Image8 | None:
    """An image in the folder of the run, if it is there."""
    if job.run is None or not (job.run.folder / name).is_file():
        return None
    return read_image(job.run.folder / name, image_size=IMAGE_SIZE)


def _save(job: Job, result: AdversarialExample) -> None:
    if job.run is None or (job.run.folder / AFTER).is_file():
        return
    from ...plot import draw  # imports matplotlib

    figure = io.BytesIO()
    draw(result).savefig(figure, format="png", dpi=200)
    disk.write(job.run.folder / FIGURE, figure.getvalue())
    images = {
        BEFORE: result.original,
        DIFFERENCE: result.perturbation_image,
        AFTER: result.adversarial,  # last, since this file marks the attack as done
    }
    for name, image in images.items():
        disk.write(job.run.folder / name, _png(image))


def _png(image: Image8) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(np.moveaxis(image, 0, -1))).save(file, "PNG")
    return file.getvalue()

"""A photograph that a network knows, and one that looks the same and fools it (§13).

The pixels go in as they are, from 0 to 1: what scales them is part of the network, so that a radius
means what it says. The picture that is found is made of whole levels of 255, as a file has them,
and what is said of it is what the network says of the file.
"""

import difflib
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
from ...data import read_picture
from ...models import resnet_imagenet
from ...models.interop.imagenet import SIDE
from ...threat import Ball, p_norm
from ...train import cross_entropy
from ..engine.job import Job
from ..engine.outcome import Outcome
from ..engine.reopen import begin, finish

LEVELS = 255
AT_HAND = "china.jpg"  # comes with scikit-learn
BEFORE = "before.png"
AFTER = "after.png"
DIFFERENCE = "difference.png"
FIGURE = "attack.png"

Picture = UInt8[np.ndarray, "3 h w"]


def photograph(
    job: Job, ball: Ball, file: str | None, target: str | None, *, steps: int, restarts: int
) -> Outcome:
    """A picture in the ball around a photograph that the trained ResNet-50 takes for something
    else.
    """
    before = _kept(job, BEFORE)
    before = read_picture(file or at_hand(), side=SIDE) if before is None else before
    job.say("loading a ResNet-50 that knows ImageNet")
    model, classes = resnet_imagenet()
    wanted = None if target is None else find_class(target, classes)
    p = _seen(model, before)
    seen = int(p.argmax())
    if wanted == seen:
        raise ValueError(
            f"target: the picture is taken for {classes[seen]} as it is; choose another class."
        )
    after = _kept(job, AFTER)
    if after is None:
        begin(job, {"picture": file or AT_HAND})
        job.say(f"it sees: {classes[seen]}, {p[seen]:.1%}; attacking in {steps} steps")
        after = _attacked(job, model, before, ball, seen, wanted, steps=steps, restarts=restarts)
    q = _seen(model, after)
    now = int(q.argmax())
    result = AdversarialExample(
        before, after, (classes[seen], classes[now]), (float(p[seen]), float(q[now]))
    )
    _keep(job, result)
    other = now if now != seen else int(np.argsort(-q)[1])
    of = lambda p: {
        f"{classes[i]} %": 100 * float(p[i])
        for i in dict.fromkeys((seen, other, wanted))
        if i is not None
    }
    table = {f"before: {classes[seen]}": of(p), f"after: {classes[now]}": of(q) | _sizes(result)}
    fooled = now != seen if wanted is None else now == wanted
    reason = "fooled" if fooled else "not fooled; try more steps, or a larger radius"
    finish(job, reason)
    pair = np.stack([before, after]).astype(np.float32) / LEVELS, np.array([seen, seen], np.int32)
    return Outcome(
        model,
        pair,
        pair,
        cross_entropy,
        classes=classes,
        table=table,
        reason=reason,
        measured=result,
    )


def at_hand() -> Path:
    """A photograph that needs no network: a palace in China."""
    from sklearn import datasets

    return Path(datasets.__file__).with_name("images") / AT_HAND


def find_class(name: str, classes: tuple[str, ...]) -> int:
    """The number of a class, by its name, or a `ValueError` with the nearest names.

    >>> find_class("Goose", ("cat", "goose"))
    1
    >>> find_class("gose", ("cat", "goose"))
    Traceback (most recent call last):
    ValueError: target: there is no class 'gose'; did you mean goose?
    """
    known = {known.lower(): i for i, known in reversed(list(enumerate(classes)))}
    if name.lower() in known:
        return known[name.lower()]
    near = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    hint = (
        f"did you mean {' or '.join(near)}?"
        if near
        else "ImageNet's names are wanted, such as goose."
    )
    raise ValueError(f"target: there is no class {name!r}; {hint}")


def whole_levels(before: Picture, after: Any, ball: Ball) -> Picture:
    """The nearest picture of whole levels that is in the ball, on the way from one to the other.

    >>> from thetax.threat import Linf
    >>> x = np.full((3, 1, 1), 10, np.uint8)
    >>> whole_levels(x, (x + 1.4) / 255, Linf(1.5 / 255)).ravel().tolist()
    [11, 11, 11]
    """
    x = before.astype(np.float32)
    shift = np.asarray(after, np.float32) * LEVELS - before
    for share in np.linspace(1, 0, 101, dtype=np.float32):
        eta = np.round(share * shift)
        if float(ball.norm(jnp.asarray(eta / LEVELS))) <= float(ball.radius) * (1 + 1e-5):
            break
    return np.clip(x + eta, 0, LEVELS).astype(np.uint8)


def _attacked(
    job: Job,
    model: Any,
    before: Picture,
    ball: Ball,
    seen: int,
    wanted: int | None,
    *,
    steps: int,
    restarts: int,
) -> Picture:
    goal, label = (untargeted(), seen) if wanted is None else (targeted(), wanted)
    x = jnp.asarray(before, jnp.float32) / LEVELS
    box = (0.0, 1.0)
    ascent = PGD(  # to the end, so that it is still wrong when every pixel is one of 256 levels
        goal.gain,
        ball,
        step_size=2.5 * float(ball.radius) / steps,
        steps=steps,
        restarts=restarts,
        box=box,
    )
    found = eqx.filter_jit(ascent)(model, x, jnp.asarray(label), key=jr.fold_in(job.key, 0))
    return whole_levels(before, found, ball)


_judge = jax.jit(lambda model, x: jax.nn.softmax(model(x)))


def _seen(model: Any, picture: Picture) -> np.ndarray:
    """The probability of each class."""
    return np.asarray(_judge(model, jnp.asarray(picture, jnp.float32) / LEVELS))


def _sizes(result: AdversarialExample) -> dict[str, float]:
    """The change in levels: of most, and its Euclidean length."""
    length = float(p_norm(jnp.asarray(result.shift, jnp.float32), 2))
    return {"largest change /255": float(result.most), "length /255": length}


def _kept(job: Job, name: str) -> Picture | None:
    """A picture of the run, as it was written."""
    if job.run is None or not (job.run.folder / name).is_file():
        return None
    return read_picture(job.run.folder / name, side=SIDE)


def _keep(job: Job, result: AdversarialExample) -> None:
    if job.run is None or job.run.look_only or (job.run.folder / AFTER).is_file():
        return
    from ...plot import draw  # brings matplotlib, which nothing else here needs

    figure = io.BytesIO()
    draw(result).savefig(figure, format="png", dpi=200)
    disk.write(job.run.folder / FIGURE, figure.getvalue())
    pictures = {
        BEFORE: result.before,
        DIFFERENCE: result.difference,
        AFTER: result.after,
    }  # the last says: all done
    for name, picture in pictures.items():
        disk.write(job.run.folder / name, _png(picture))


def _png(picture: Picture) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(np.moveaxis(picture, 0, -1))).save(file, "PNG")
    return file.getvalue()

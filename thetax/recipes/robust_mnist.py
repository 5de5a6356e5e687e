"""Digits that stay what they are when every pixel is moved a little (§13.2): a network trained on
the worst it can meet, beside one that was not, both judged by attacks that are tried themselves.
"""

from functools import partial
from typing import Any, Literal

import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import PRNGKeyArray

from .. import data
from ..attack import (
    APGD,
    PGD,
    AttackEnsemble,
    MetricAlert,
    MultiTargeted,
    adversarial_objective,
    catastrophic_overfitting,
    logit_pairing,
    margin_loss,
    random_start_fgsm,
    robustness,
    trades,
    untargeted,
    via_target,
)
from ..certify import certified_accuracy, interval_cross_entropy, ramp_objective
from ..core import Batch, Iteration, Objective
from ..layers import Chain, Convolution, Linear, relu
from ..threat import Ball, Linf
from ..train import Progress, cross_entropy, descend, error_rate, fit, log_loss, watch
from .engine.job import Job, positive, recipe
from .engine.outcome import Outcome
from .shared.classify import percent_wrong
from .shared.images import pictures

BOX = (0.0, 1.0)
HELD_OUT = 1 / 60  # of the training images, for validation: 1,000
WARM = 0.2  # of the steps, in which the rate rises
TRIAL = 64  # of the images that are attacked, the attacks themselves are tried on
LOUD = 0.2  # of the validation images withstand one step and not many: the alarm

Hardening = Literal["trades", "pgd", "single-step", "pairing", "interval"]


def strided(channels: tuple[int, ...], hidden: int, *, key: PRNGKeyArray) -> Chain:
    """Convolutions of 5 by 5 that halve an image of 28 by 28, one for each number of channels, and
    a hidden layer.
    """
    key_hidden, key_out, *keys = jr.split(key, 2 + len(channels))
    layers: list[Any] = []
    side = 28
    for c, m, key_layer in zip((1, *channels), channels, keys):
        layers += [Convolution.init(c, m, (5, 5), stride=2, key=key_layer), relu]
        side = -(-side // 2)
    wide = Linear.init(channels[-1] * side**2, hidden, key=key_hidden)
    return Chain(*layers, jnp.ravel, wide, relu, Linear.init(hidden, 10, key=key_out))


@recipe
def robust_mnist(
    job: Job,
    *,
    hardening: Hardening = "trades",
    radius: float = 0.3,
    steps: int = 5,
    strength: float = 1.0,
    channels: tuple[int, ...] = (16, 32),
    hidden: int = 128,
    rate: float = 2e-3,
    epochs: int = 8,
    batch: int = 128,
    judged: int = 300,
    restarts: int = 1,
) -> Outcome:
    """A network for MNIST that withstands any change of every pixel by up to 0.3, in about ten
    minutes on two cores.

    A plain network of the same kind is trained beside it for a third of the time, and both are
    judged: by projected ascent of 100 steps on two losses, by an ensemble of attacks, and by trials
    of the attacks themselves, whose warnings are printed.

    Parameters
    ----------
    hardening
        What is made small: trades asks for the same answer all around each image, pgd for the right
        one at the worst place that several steps find, single-step at that of one; pairing ties the
        logits to each other besides; interval makes a bound small that holds for every change, with
        which the network is certified.
    radius
        How far a pixel may be moved; they go from 0 to 1.
    steps
        Of the attack in training; together two and a half times as long as the radius.
    strength
        Of the tie between an image and its surroundings, for trades and pairing.
    channels
        Of the convolutions, each of which halves height and width.
    hidden
        Width of the hidden layer.
    rate
        Highest learning rate of Adam; a fifth of the steps lead up to it, the others down to zero
        along a cosine.
    epochs
        Passes over the training set.
    batch
        Examples in a batch.
    judged
        Test images that are attacked.
    restarts
        Starts of the attacks that they are judged by.
    """
    positive(
        rate=rate,
        epochs=epochs,
        batch=batch,
        radius=radius,
        steps=steps,
        judged=judged,
        restarts=restarts,
    )
    key_valid, key_init, key_fit, key_judge = jr.split(job.key, 4)
    full = pictures(job, "mnist")
    train, valid = data.split(full.train, 1 - HELD_OUT, key=key_valid, by=full.train[1])
    assert full.test is not None
    ball = Linf(radius)
    some = (full.test[0][:judged], full.test[1][:judged])
    objective = hardened(hardening, ball, steps=steps, strength=strength)
    net = strided(channels, hidden, key=key_init)
    table = {}
    for name, aim, passes in (
        ("plain", "none", max(1, epochs // 3)),
        ("hardened", hardening, epochs),
    ):
        job.say(f"training the {name} network")
        iteration = climb(aim, ball, objective, rate=rate, count=passes * (len(train[1]) // batch))
        found = fit(
            iteration,
            net,
            train,
            epochs=passes,
            batch_size=batch,
            validation=valid,
            metrics=metrics(ball),
            key=key_fit,
            run=job.part(name),
            progress=watched(job, aim),
        )
        judge = partial(judgement, job, found.model, some, ball, restarts, aim, key_judge)
        row = {"test error %": percent_wrong(found.model, full.test)} | job.remember(
            f"{name}-attacked", judge
        )
        table[f"{name} network"] = row
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


def hardened(hardening: str, ball: Linf, *, steps: int, strength: float) -> Objective:
    """The objective of a way to harden a network."""
    attack = PGD(
        log_loss, ball, step_size=2.5 * ball.radius / steps, steps=steps, box=BOX, output="last"
    )
    made = {
        "trades": lambda: trades(attack, strength=strength),
        "pgd": lambda: adversarial_objective(cross_entropy, attack),
        "single-step": lambda: adversarial_objective(
            cross_entropy, random_start_fgsm(ball, box=BOX)
        ),
        "pairing": lambda: logit_pairing(attack, strength=strength),
        "interval": lambda: interval_cross_entropy(ball, box=BOX),
    }
    return made[hardening]()


def climb(
    hardening: str, ball: Linf, objective: Objective, *, rate: float, count: int
) -> Iteration:
    """So many steps of Adam. A bound has to grow from nothing, or the network learns to say the
    same of everything.
    """
    warm = max(1, round(WARM * count))
    schedule = optax.warmup_cosine_decay_schedule(0.0, rate, warm, max(warm + 1, count))
    adam = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))
    if hardening == "none":
        return descend(cross_entropy, adam)
    if hardening != "interval":
        return descend(objective, adam)
    grown = lambda t: interval_cross_entropy(Linf(ball.radius * t), box=BOX, strength=0.5 * t)
    return ramp_objective(grown, adam, start=count // 20, steps=max(1, count // 2))


def metrics(ball: Linf) -> dict[str, Objective]:
    """The error, that under attack, and whether one step is no longer enough to find what many
    do.
    """
    many = PGD(untargeted(margin_loss), ball, step_size=ball.radius / 4, steps=10, box=BOX)
    one = PGD(log_loss, ball, step_size=ball.radius, steps=1, box=BOX)
    return {
        "error": error_rate,
        "error under attack": adversarial_objective(error_rate, many),
        "overfitting": catastrophic_overfitting(one, many),
    }


def watched(job: Job, hardening: str) -> Progress:
    """Training on single steps has an alarm."""
    progress = job.progress or watch()
    return (
        MetricAlert(progress, "valid overfitting", above=LOUD)
        if hardening == "single-step"
        else progress
    )


def judgement(
    job: Job, model: Any, some: Batch, ball: Linf, restarts: int, hardening: str, key: PRNGKeyArray
) -> dict[str, float]:
    """The error under attack of some test images in percent, and what cannot be certified; doubts
    are said.
    """
    job.say(f"attacking it on {len(some[1]):,} test images")
    batch = max(TRIAL, len(some[1]) // 10)
    found = robustness(
        model,
        some,
        ball,
        box=BOX,
        steps=50,
        restarts=restarts,
        white=_white,
        trial=TRIAL,
        batch=batch,
        key=key,
    )
    for warning in found.warnings:
        job.say(warning)
    numbers = {
        "error under attack %": 100 * (1 - found.robust),
        "doubts": float(len(found.warnings)),
    }
    if hardening != "interval":
        return numbers
    sure = certified_accuracy(model, some, ball, box=BOX, bounds="interval", batch=256)
    return numbers | {"not certified %": 100 * (1 - sure.accuracy)}


def _white(ball: Ball, steps: int, restarts: int) -> AttackEnsemble:
    """Projected ascent of twice as many short steps on two losses, and the ensemble that follows
    gradients.
    """
    long = [
        PGD(
            untargeted(loss),
            ball,
            step_size=ball.radius / 30,
            steps=2 * steps,
            restarts=restarts,
            box=BOX,
        )
        for loss in (log_loss, margin_loss)
    ]
    ascents = (
        APGD(untargeted(), ball, steps=steps, restarts=restarts, box=BOX),
        APGD(via_target(), ball, steps=steps, box=BOX),
    )
    return AttackEnsemble(ball, *long, ascents[0], MultiTargeted(ascents[1]), box=BOX)

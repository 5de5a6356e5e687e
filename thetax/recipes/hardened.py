"""Digits that stay what they are when every pixel is moved a little (§13.2): a network trained on the worst it can
meet, beside one that was not, both judged by attacks that are tried themselves."""

from functools import partial
from typing import Any, Literal

import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import PRNGKeyArray

from .. import data
from ..attack import (
    PGD,
    Alarm,
    Linf,
    away,
    margin,
    overfitting,
    pair_logits,
    robust,
    robustness,
    single_step,
    trades,
)
from ..core import Batch, Objective
from ..layers import Chain, Convolution, Linear, relu
from ..train import cross_entropy, descend, error_rate, fit, log_loss, watch
from .classify import percent_wrong
from .images import pictures
from .job import Job, positive, recipe
from .outcome import Outcome

BOX = (0.0, 1.0)
HELD_OUT = 1 / 60  # of the training images, for validation: 1,000
WARM = 0.2  # of the steps, in which the rate rises
LOUD = 0.2  # of the validation images withstand one step and not many: the alarm

Hardening = Literal["trades", "pgd", "single-step", "pairing", "none"]


def strided(channels: tuple[int, ...], hidden: int, *, key: PRNGKeyArray) -> Chain:
    """Convolutions of 5 by 5 that halve an image of 28 by 28, one for each number of channels, and a hidden layer."""
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
    epochs: int = 10,
    batch: int = 128,
    judged: int = 500,
    restarts: int = 1,
) -> Outcome:
    """A network for MNIST that withstands any change of every pixel by up to 0.3, in about ten minutes on two cores.

    A plain network of the same kind is trained beside it for a third of the time, and both are judged: by projected
    ascent of 100 steps on two losses, by an ensemble of attacks, and by trials of the attacks themselves, whose
    warnings are printed.

    Parameters
    ----------
    hardening
        What is made small: trades asks for the same answer all around each image, pgd for the right one at the worst
        place that several steps find, single-step at that of one; pairing ties the logits to each other besides.
    radius
        How far a pixel may be moved; they go from 0 to 1.
    steps
        Of the attack in training, each half as long as the radius.
    strength
        Of the tie between an image and its surroundings, for trades and pairing.
    channels
        Of the convolutions, each of which halves height and width.
    hidden
        Width of the hidden layer.
    rate
        Highest learning rate of Adam; a fifth of the steps lead up to it, the others down to zero along a cosine.
    epochs
        Passes over the training set.
    batch
        Examples in a batch.
    judged
        Test images that are attacked.
    restarts
        Starts of the attacks that they are judged by.
    """
    positive(rate=rate, epochs=epochs, batch=batch, radius=radius, steps=steps, judged=judged, restarts=restarts)
    key_valid, key_init, key_fit, key_judge = jr.split(job.key, 4)
    full = pictures(job, "mnist")
    train, valid = data.split(full.train, 1 - HELD_OUT, key=key_valid, by=full.train[1])
    objective = hardened(hardening, Linf(radius), steps=steps, strength=strength)
    net = strided(channels, hidden, key=key_init)
    table, ball, some = {}, Linf(radius), tuple(part[:judged] for part in full.test)
    plans = {"plain network": (cross_entropy, max(1, epochs // 3)), "hardened network": (objective, epochs)}
    for name, (aim, passes) in plans.items():
        job.say(f"training the {name}")
        found = harden(job, name, net, train, valid, aim, ball, rate=rate, epochs=passes, batch=batch, key=key_fit)
        judge = partial(_judged, job, found.model, some, ball, restarts, key_judge)
        numbers = job.remember(name.replace(" ", "-"), judge)
        table[name] = {"test error %": percent_wrong(found.model, full.test)} | numbers
    return Outcome(
        found.model, train, full.test, objective, found.history, full.classes, table, found.reason, found.seconds,
        start=found.start,
    )  # fmt: skip


def hardened(hardening: Hardening, ball: Linf, *, steps: int, strength: float) -> Objective:
    """The objective of a way to harden a network."""
    attack = PGD(log_loss, ball, rate=ball.radius / 2, steps=steps, box=BOX, keep="last")
    made = {
        "trades": lambda: trades(attack, strength=strength),
        "pgd": lambda: robust(cross_entropy, attack),
        "single-step": lambda: robust(cross_entropy, single_step(ball, box=BOX)),
        "pairing": lambda: pair_logits(attack, strength=strength),
        "none": lambda: cross_entropy,
    }
    return made[hardening]()


def harden(
    job: Job, name: str, net: Any, train: Batch, valid: Batch, objective: Objective, ball: Linf, *, rate: float,
    epochs: int, batch: int, key: PRNGKeyArray,
) -> Any:  # fmt: skip
    """Fits a network by Adam, with its error under attack as a metric and an alarm for catastrophic overfitting."""
    steps = epochs * (len(train[1]) // batch)
    schedule = optax.warmup_cosine_decay_schedule(0.0, rate, max(1, round(WARM * steps)), max(2, steps))
    many = PGD(away(margin), ball, rate=ball.radius / 4, steps=10, box=BOX)
    one = PGD(log_loss, ball, rate=ball.radius, steps=1, box=BOX)
    metrics = {
        "error": error_rate,
        "error under attack": robust(error_rate, many),
        "overfitting": overfitting(one, many),
    }
    watched = job.progress or watch()
    return fit(
        descend(objective, optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))),
        net,
        train,
        epochs=epochs,
        batch=batch,
        validation=valid,
        metrics=metrics,
        key=key,
        run=job.part(name.split()[0]),
        progress=watched if objective is cross_entropy else Alarm(watched, "valid overfitting", above=LOUD),
    )


def _judged(job: Job, model: Any, some: Batch, ball: Linf, restarts: int, key: PRNGKeyArray) -> dict[str, float]:
    """The error under attack of some test images, in percent; what makes it doubtful is said."""
    job.say(f"attacking it on {len(some[1]):,} test images")
    found = robustness(model, some, ball, box=BOX, steps=50, restarts=restarts, key=key)
    for warning in found.warnings:
        job.say(warning)
    return {"error under attack %": 100 * (1 - found.robust), "doubts": float(len(found.warnings))}

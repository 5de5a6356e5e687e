"""A large teacher's knowledge in small students: MNIST distilled (§8.9; Hinton, Vinyals & Dean
2015).
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from .. import data, tree
from ..core import Batch, Model, Objective
from ..layers import Ensemble
from ..models import MLP
from ..train import (
    Fit,
    augmented,
    average,
    cross_entropy,
    descend,
    error_rate,
    fit,
    restarts,
    tempered_loss,
)
from .engine.job import Job, positive, recipe
from .engine.outcome import Outcome
from .shared.classify import classify, percent_wrong

CLASSES = 10
BLOCK = 2000  # images that the teacher answers at once
LEAST = 10  # times that the teacher is larger


@recipe
def distil(
    job: Job,
    *,
    teacher: tuple[int, ...] = (1200, 1200),
    student: tuple[int, ...] = (256, 128),
    seeds: int = 5,
    temperature: float = 5.0,
    dropout: float = 0.1,
    pixels: int = 2,
    lessons: int = 30,
    rate: float = 4e-3,
    epochs: int = 40,
    batch: int = 128,
) -> Outcome:
    """A teacher on MNIST and small students: some learn from the labels, some from the teacher's
    logits.

    Both kinds of student see the same images in the same order, from the same starts and at the
    same rate, and none of them sees a shifted image; the teacher does, and what its students know
    of shifts they have from its logits. The students of a kind are trained at once and judged one
    by one. The gap closed is the share of the way from the error of the students alone to that of
    the teacher. A distilled student is handed on.

    Parameters
    ----------
    teacher
        Widths of the teacher's hidden layers.
    student
        Widths of the students' hidden layers; at most a tenth of the teacher's parameters.
    seeds
        Students of each kind.
    temperature
        By which the logits are divided before they are compared.
    dropout
        Probability of dropping a hidden unit of the teacher.
    pixels
        How far the teacher's images are shifted, at most, each way.
    lessons
        Passes of the teacher over the training set, at half the students' rate and in batches twice
        as large.
    rate
        Initial learning rate of Adam for the students; it falls to zero along a cosine.
    epochs
        Passes of the students over the training set.
    batch
        Examples in a batch of the students.
    """
    positive(temperature=temperature, lessons=lessons, rate=rate, epochs=epochs, batch=batch)
    if seeds < 2:
        raise ValueError(f"seeds must be at least 2, for a spread; got {seeds}.")
    key_teacher, key_lessons, key_student, key_fit = jr.split(job.key, 4)
    large = MLP.init(784, *teacher, CLASSES, dropout=dropout, key=key_teacher)
    small = Ensemble.init(partial(MLP.init, 784, *student, CLASSES), seeds, key=key_student)
    ratio = _ratio(large, small, seeds)
    job.say("loading mnist, then the teacher")
    full = data.load("mnist")
    shifted = augmented(cross_entropy, data.augment.shift(pixels=pixels))
    taught = classify(
        job,
        large,
        full.train,
        None,
        objective=shifted,
        rate=rate / 2,
        epochs=lessons,
        batch=2 * batch,
        key=key_lessons,
        run=job.part("teacher"),
    )
    learn = partial(_learn, job, small, rate=rate, epochs=epochs, batch=batch, key=key_fit)
    job.say(f"{seeds} students alone")
    alone = learn("alone", cross_entropy, full.train)
    job.say(f"{seeds} students of the teacher")
    soft = average(partial(tempered_loss, temperature=temperature))
    told = learn("distilled", soft, (full.train[0], answers(taught.model, full.train[0])))
    wrong = percent_wrong(taught.model, full.test)
    table = _table(
        wrong, each_wrong(alone.model, full.test), each_wrong(told.model, full.test), ratio
    )
    one, start = (jax.tree.map(lambda a: a[0], nets.members) for nets in (told.model, told.start))
    seconds = taught.seconds + alone.seconds + told.seconds
    return Outcome(
        one,
        full.train,
        full.test,
        cross_entropy,
        told.history,
        full.classes,
        table,
        told.reason,
        seconds,
        start=start,
    )


def _ratio(teacher: Model, students: Ensemble, seeds: int) -> float:
    ratio = tree.size(teacher) / (tree.size(students) // seeds)
    if ratio < LEAST:
        raise ValueError(
            f"student: a student has 1/{ratio:.1f} of the teacher's parameters, and at most "
            f"1/{LEAST} is meant; choose a narrower student or a wider teacher."
        )
    return ratio


def _learn(
    job: Job,
    students: Ensemble,
    name: str,
    objective: Objective,
    train: Batch,
    *,
    rate: float,
    epochs: int,
    batch: int,
    key: PRNGKeyArray,
) -> Fit:
    schedule = optax.cosine_decay_schedule(rate, max(1, epochs * (len(train[1]) // batch)))
    iteration = restarts(descend(objective, optax.adam(schedule)))
    return fit(
        iteration,
        students,
        train,
        epochs=epochs,
        batch_size=batch,
        key=key,
        run=job.part(name),
        progress=job.progress,
    )


@jax.jit
def answers(teacher: Any, xs: Any) -> Float[Array, "n k"]:
    """The logits of the teacher, asked once for each image."""
    return jax.lax.map(lambda x: teacher(x), jnp.asarray(xs), batch_size=BLOCK)


def each_wrong(students: Ensemble, test: Batch) -> Float[np.ndarray, " seeds"]:
    """The test error in percent of each student by itself."""
    return 100 * np.asarray(_errors(students.members, jax.tree.map(jnp.asarray, test)))


@jax.jit
def _errors(members: Any, test: Batch) -> Float[Array, " seeds"]:
    return jax.lax.map(lambda member: error_rate(member, test), members)


def _table(
    teacher: float,
    alone: Float[np.ndarray, " seeds"],
    told: Float[np.ndarray, " seeds"],
    ratio: float,
) -> dict[str, dict[str, float]]:
    spread = lambda errors: {
        "test error %": float(errors.mean()),
        "spread": float(errors.std(ddof=1)),
    }
    gap = float(alone.mean()) - teacher
    closed = (
        100 * float(alone.mean() - told.mean()) / gap if gap > 0 else float("nan")
    )  # none to close
    return {
        "teacher": {"test error %": teacher, "size": ratio},
        "student alone": spread(alone) | {"size": 1.0},
        "student distilled": spread(told) | {"size": 1.0, "gap closed %": closed},
    }

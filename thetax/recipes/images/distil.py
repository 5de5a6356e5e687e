"""Knowledge distillation on MNIST (§8.9; Hinton, Vinyals & Dean 2015)."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from ... import data, tree
from ...core import Batch, Model, Objective
from ...layers import Ensemble
from ...models import MLP
from ...train import (
    FitResult,
    batch_mean,
    cross_entropy,
    descend,
    distillation_loss,
    error_rate,
    fit,
    per_member,
    with_augmentation,
)
from ..engine.job import Job, check_positive, recipe
from ..engine.outcome import Outcome
from ..shared.classifier import fit_classifier, test_error_percent

CLASSES = 10
TEACHER_BLOCK = 2000  # images that the teacher classifies at once
MIN_SIZE_RATIO = 10  # parameters of the teacher over those of a student


@recipe
def distil(
    job: Job,
    *,
    teacher_hidden: tuple[int, ...] = (1200, 1200),
    student_hidden: tuple[int, ...] = (256, 128),
    n_seeds: int = 5,
    temperature: float = 5.0,
    dropout: float = 0.1,
    max_shift: int = 2,
    teacher_epochs: int = 30,
    learning_rate: float = 4e-3,
    epochs: int = 40,
    batch_size: int = 128,
) -> Outcome:
    """Knowledge distillation on MNIST: students trained on labels or on a teacher's logits.

    Both groups of students start from the same parameters and see the same images in the same order
    at the same learning rate, without augmentation. Only the teacher sees shifted images, so what
    its students know of shifts comes from its logits. The students of a group are trained at once
    and evaluated one by one. The gap closed is the share of the difference between the error of the
    students trained on labels and that of the teacher. The model of the outcome is a distilled
    student.

    Parameters
    ----------
    teacher_hidden
        Widths of the teacher's hidden layers.
    student_hidden
        Widths of the students' hidden layers; a student may have at most a tenth of the teacher's
        parameters.
    n_seeds
        Students in each group.
    temperature
        Softmax temperature of the distillation.
    dropout
        Dropout probability of the teacher.
    max_shift
        Largest random shift of the teacher's training images, in pixels.
    teacher_epochs
        Passes over the training set for the teacher, at half the learning rate and twice the batch
        size of the students.
    epochs
        Passes over the training set for the students.
    """
    check_positive(
        temperature=temperature,
        teacher_epochs=teacher_epochs,
        learning_rate=learning_rate,
        epochs=epochs,
        batch_size=batch_size,
    )
    if n_seeds < 2:
        raise ValueError(f"n_seeds must be at least 2, for a standard deviation; got {n_seeds}.")
    key_teacher, key_teacher_fit, key_student, key_fit = jr.split(job.key, 4)
    teacher = MLP.init(784, *teacher_hidden, CLASSES, dropout=dropout, key=key_teacher)
    students = Ensemble.init(
        partial(MLP.init, 784, *student_hidden, CLASSES), n_seeds, key=key_student
    )
    ratio = _size_ratio(teacher, students, n_seeds)
    job.note("loading mnist, then the teacher")
    full = data.load("mnist")
    augmented = with_augmentation(cross_entropy, data.augment.shift(pixels=max_shift))
    teacher_fit = fit_classifier(
        job,
        teacher,
        full.train,
        None,
        objective=augmented,
        learning_rate=learning_rate / 2,
        epochs=teacher_epochs,
        batch_size=2 * batch_size,
        key=key_teacher_fit,
        run=job.part("teacher"),
    )
    fit_students = partial(
        _fit_students,
        job,
        students,
        learning_rate=learning_rate,
        epochs=epochs,
        batch_size=batch_size,
        key=key_fit,
    )
    job.note(f"{n_seeds} students trained on labels")
    labels = fit_students("labels", cross_entropy, full.train)
    job.note(f"{n_seeds} distilled students")
    soft_loss = batch_mean(partial(distillation_loss, temperature=temperature))
    distilled = fit_students(
        "distilled", soft_loss, (full.train[0], teacher_logits(teacher_fit.model, full.train[0]))
    )
    teacher_error = test_error_percent(teacher_fit.model, full.test)
    table = _table(
        teacher_error,
        error_per_student(labels.model, full.test),
        error_per_student(distilled.model, full.test),
        ratio,
    )
    student, start = (
        jax.tree.map(lambda a: a[0], nets.members) for nets in (distilled.model, distilled.start)
    )
    seconds = teacher_fit.seconds + labels.seconds + distilled.seconds
    return Outcome.of_fit(
        distilled,
        model=student,
        train=full.train,
        test=full.test,
        objective=cross_entropy,
        classes=full.classes,
        table=table,
        seconds=seconds,
        start=start,
    )


def _size_ratio(teacher: Model, students: Ensemble, n_seeds: int) -> float:
    ratio = tree.size(teacher) / (tree.size(students) // n_seeds)
    if ratio < MIN_SIZE_RATIO:
        raise ValueError(
            f"student_hidden: a student has 1/{ratio:.1f} of the teacher's parameters and may "
            f"have at most 1/{MIN_SIZE_RATIO}; choose a narrower student or a wider teacher."
        )
    return ratio


def _fit_students(
    job: Job,
    students: Ensemble,
    name: str,
    objective: Objective,
    train: Batch,
    *,
    learning_rate: float,
    epochs: int,
    batch_size: int,
    key: PRNGKeyArray,
) -> FitResult:
    schedule = optax.cosine_decay_schedule(
        learning_rate, max(1, epochs * (len(train[1]) // batch_size))
    )
    iteration = per_member(descend(objective, optax.adam(schedule)))
    return fit(
        iteration,
        students,
        train,
        epochs=epochs,
        batch_size=batch_size,
        key=key,
        run=job.part(name),
        progress=job.progress,
    )


@jax.jit
def teacher_logits(teacher: Any, xs: Any) -> Float[Array, "n k"]:
    """The teacher's logits of all images."""
    return jax.lax.map(lambda x: teacher(x), jnp.asarray(xs), batch_size=TEACHER_BLOCK)


def error_per_student(students: Ensemble, test: Batch) -> Float[np.ndarray, " seeds"]:
    """The test error in percent of each student."""
    return 100 * np.asarray(_errors(students.members, jax.tree.map(jnp.asarray, test)))


@jax.jit
def _errors(members: Any, test: Batch) -> Float[Array, " seeds"]:
    return jax.lax.map(lambda member: error_rate(member, test), members)


def _table(
    teacher: float,
    labels: Float[np.ndarray, " seeds"],
    distilled: Float[np.ndarray, " seeds"],
    ratio: float,
) -> dict[str, dict[str, float]]:
    summary = lambda errors: {
        "test error %": float(errors.mean()),
        "standard deviation": float(errors.std(ddof=1)),
    }
    gap = float(labels.mean()) - teacher
    closed = float("nan")  # if there is no gap
    if gap > 0:
        closed = 100 * float(labels.mean() - distilled.mean()) / gap
    return {
        "teacher": {"test error %": teacher, "relative size": ratio},
        "student, labels": summary(labels) | {"relative size": 1.0},
        "student, distilled": summary(distilled) | {"relative size": 1.0, "gap closed %": closed},
    }

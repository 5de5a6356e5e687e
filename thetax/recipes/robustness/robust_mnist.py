"""Robust and standard training on MNIST (§13.2), evaluated by attacks with sanity checks."""

from functools import partial
from typing import Any, Literal

import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import PRNGKeyArray

from ... import data
from ...attack import (
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
from ...certify import certified_accuracy, interval_cross_entropy, scheduled_objective
from ...core import Batch, Iteration, Objective
from ...layers import Chain, Convolution, Linear, relu
from ...threat import Ball, Linf
from ...train import Progress, cross_entropy, default_progress, descend, error_rate, fit, log_loss
from ..engine.job import Job, check_positive, recipe
from ..engine.outcome import Outcome
from ..shared.classifier import test_error_percent
from ..shared.images import load_images

BOX = (0.0, 1.0)
VALID_FRACTION = 1 / 60  # of the training images: 1,000
WARMUP_FRACTION = 0.2  # share of the steps
N_CHECK_EXAMPLES = 64  # attacked images for the sanity checks of the attacks
OVERFITTING_THRESHOLD = 0.2  # share of validation images robust to one step but not to many

Method = Literal["trades", "pgd", "single-step", "pairing", "interval"]


def strided_cnn(channels: tuple[int, ...], hidden: int, *, key: PRNGKeyArray) -> Chain:
    """Convolutions of 5 by 5 with stride 2 on images of 28 by 28, and a hidden layer."""
    key_hidden, key_out, *keys = jr.split(key, 2 + len(channels))
    layers: list[Any] = []
    side = 28
    for c, m, key_layer in zip((1, *channels), channels, keys):
        layers += [Convolution.init(c, m, (5, 5), stride=2, key=key_layer), relu]
        side = -(-side // 2)
    dense = Linear.init(channels[-1] * side**2, hidden, key=key_hidden)
    return Chain(*layers, jnp.ravel, dense, relu, Linear.init(hidden, 10, key=key_out))


@recipe
def robust_mnist(
    job: Job,
    *,
    method: Method = "trades",
    eps: float = 0.3,
    steps: int = 5,
    strength: float = 1.0,
    channels: tuple[int, ...] = (16, 32),
    hidden: int = 128,
    learning_rate: float = 2e-3,
    epochs: int = 8,
    batch_size: int = 128,
    n_test: int = 300,
    restarts: int = 1,
) -> Outcome:
    """Robust training on MNIST against perturbations of every pixel by up to 0.3.

    About ten minutes on two cores. A network of the same architecture is trained without attacks
    for a third of the epochs as a baseline. Both are evaluated by PGD of 100 steps on two losses
    and by an ensemble of attacks; sanity checks of the attacks are run, and their warnings are
    printed.

    Parameters
    ----------
    method
        Robust training: trades (regularise the change of the output around each image), pgd
        (adversarial training with PGD), single-step (adversarial training with FGSM from a random
        start), pairing (adversarial logit pairing) or interval (interval bound propagation, whose
        bounds certify the network).
    eps
        Attack budget per pixel; pixels lie in [0, 1].
    steps
        Steps of the attack in training, of 2.5 eps / steps each.
    strength
        Strength of the regulariser, for trades and pairing.
    hidden
        Width of the hidden layer.
    learning_rate
        Peak learning rate of Adam, after a warmup over a fifth of the steps; it then decays to zero
        along a cosine.
    n_test
        Test images to attack.
    restarts
        Random restarts of the attacks in the evaluation.
    """
    check_positive(
        learning_rate=learning_rate,
        epochs=epochs,
        batch_size=batch_size,
        eps=eps,
        steps=steps,
        n_test=n_test,
        restarts=restarts,
    )
    key_valid, key_init, key_fit, key_attack = jr.split(job.key, 4)
    full = load_images(job, "mnist")
    train, valid = data.split(full.train, 1 - VALID_FRACTION, key=key_valid, stratify=full.train[1])
    assert full.test is not None
    ball = Linf(eps)
    attacked = (full.test[0][:n_test], full.test[1][:n_test])
    objective = robust_objective(method, ball, steps=steps, strength=strength)
    net = strided_cnn(channels, hidden, key=key_init)
    table = {}
    for name, training, n_epochs in (
        ("standard", "none", max(1, epochs // 3)),
        ("robust", method, epochs),
    ):
        job.note(f"{name} training")
        iteration = training_iteration(
            training,
            ball,
            objective,
            learning_rate=learning_rate,
            n_steps=n_epochs * (len(train[1]) // batch_size),
        )
        result = fit(
            iteration,
            net,
            train,
            epochs=n_epochs,
            batch_size=batch_size,
            validation=valid,
            metrics=metrics(ball),
            key=key_fit,
            run=job.part(name),
            progress=progress_with_alert(job, training),
        )
        evaluate_attacks = partial(
            _robustness_row, job, result.model, attacked, ball, restarts, training, key_attack
        )
        row = {"test error %": test_error_percent(result.model, full.test)}
        table[f"{name} training"] = row | job.cached(f"{name}-attacked", evaluate_attacks)
    return Outcome.of_fit(
        result,
        train=train,
        test=full.test,
        objective=objective,
        classes=full.classes,
        table=table,
        start=result.start,
    )


def robust_objective(method: str, ball: Linf, *, steps: int, strength: float) -> Objective:
    """The training objective of a method."""
    attack = PGD(
        log_loss, ball, step_size=2.5 * ball.radius / steps, steps=steps, box=BOX, output="last"
    )
    objectives = {
        "trades": lambda: trades(attack, strength=strength),
        "pgd": lambda: adversarial_objective(cross_entropy, attack),
        "single-step": lambda: adversarial_objective(
            cross_entropy, random_start_fgsm(ball, box=BOX)
        ),
        "pairing": lambda: logit_pairing(attack, strength=strength),
        "interval": lambda: interval_cross_entropy(ball, box=BOX),
    }
    return objectives[method]()


def training_iteration(
    method: str, ball: Linf, objective: Objective, *, learning_rate: float, n_steps: int
) -> Iteration:
    """Adam with gradient clipping, linear warmup and cosine decay.

    For interval bound propagation the radius grows from 0 in the first half of the steps; with the
    full radius from the start, the network learns a constant.
    """
    warmup = max(1, round(WARMUP_FRACTION * n_steps))
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, learning_rate, warmup, max(warmup + 1, n_steps)
    )
    adam = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))
    if method == "none":
        return descend(cross_entropy, adam)
    if method != "interval":
        return descend(objective, adam)
    objective_at = lambda t: interval_cross_entropy(
        Linf(ball.radius * t), box=BOX, strength=0.5 * t
    )
    return scheduled_objective(
        objective_at, adam, start_step=n_steps // 20, steps=max(1, n_steps // 2)
    )


def metrics(ball: Linf) -> dict[str, Objective]:
    """Clean error, error under attack, and catastrophic overfitting to single-step attacks."""
    many = PGD(untargeted(margin_loss), ball, step_size=ball.radius / 4, steps=10, box=BOX)
    one = PGD(log_loss, ball, step_size=ball.radius, steps=1, box=BOX)
    return {
        "error": error_rate,
        "error under attack": adversarial_objective(error_rate, many),
        "overfitting": catastrophic_overfitting(one, many),
    }


def progress_with_alert(job: Job, method: str) -> Progress:
    """The progress of a job, with an alert on catastrophic overfitting to single-step attacks."""
    progress = job.progress or default_progress()
    return (
        MetricAlert(progress, "valid overfitting", above=OVERFITTING_THRESHOLD)
        if method == "single-step"
        else progress
    )


def _robustness_row(
    job: Job, model: Any, test: Batch, ball: Linf, restarts: int, method: str, key: PRNGKeyArray
) -> dict[str, float]:
    """Error under attack in percent, the number of failed sanity checks, and for interval bound
    propagation the share of examples that is not certified.

    Warnings of the sanity checks are printed.
    """
    job.note(f"attacking {len(test[1]):,} test images")
    result = robustness(
        model,
        test,
        ball,
        box=BOX,
        steps=50,
        restarts=restarts,
        white_box=_white_box_attacks,
        n_check_examples=N_CHECK_EXAMPLES,
        batch_size=max(N_CHECK_EXAMPLES, len(test[1]) // 10),
        key=key,
    )
    for warning in result.warnings:
        job.note(warning)
    row = {
        "error under attack %": 100 * (1 - result.robust_accuracy),
        "failed sanity checks": float(len(result.warnings)),
    }
    if method != "interval":
        return row
    certified = certified_accuracy(model, test, ball, box=BOX, bounds="interval", batch_size=256)
    return row | {"not certified %": 100 * (1 - certified.accuracy)}


def _white_box_attacks(ball: Ball, steps: int, restarts: int) -> AttackEnsemble:
    """PGD with many short steps on two losses, APGD, and targeted APGD per class."""
    pgd = [
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
    apgd = APGD(untargeted(), ball, steps=steps, restarts=restarts, box=BOX)
    targeted = MultiTargeted(APGD(via_target(), ball, steps=steps, box=BOX))
    return AttackEnsemble(ball, *pgd, apgd, targeted, box=BOX)

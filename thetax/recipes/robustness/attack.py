"""Adversarial attacks (§13) on the network of a run, or on a ResNet-50 that classifies a
photograph.
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ...attack import PGD, MinimumNormAttack, margin_loss, perturb, robustness, untargeted
from ...core import Batch, Model
from ...layers import Chain
from ...threat import L1, L2, Ball, Linf
from ...threat.inputs import Box
from ...train import Run
from ..engine.job import Job, check_positive, recipe
from ..engine.outcome import Outcome, load_outcome
from ..engine.runs import begin, expect_recipe_run, finish
from ..shared.photograph import photograph

Norm = Literal["linf", "l2", "l1"]
BALLS: dict[str, type[Ball]] = {"linf": Linf, "l2": L2, "l1": L1}
DEFAULT_EPS_RUN = {"linf": 0.1, "l2": 1.0, "l1": 10.0}
DEFAULT_EPS_PHOTO = {"linf": 2 / 255, "l2": 2.0, "l1": 40.0}
N_CHECK_EXAMPLES = 128  # on which the sanity checks of the attacks run
MAX_DISTANCE_EXAMPLES = 128  # whose distance to the nearest adversarial example is measured
BINARY_SEARCH_STEPS = 12  # of that measurement


@recipe
def attack(
    job: Job,
    *,
    run: str | None = None,
    norm: Norm = "linf",
    eps: float | None = None,
    steps: int = 40,
    restarts: int = 1,
    n_test: int = 500,
    image: str | None = None,
    target_class: str | None = None,
) -> Outcome:
    """Adversarial attack on the network of a run, or on a ResNet-50 and a photograph.

    The network of a run is evaluated by PGD on the loss, by PGD towards each likely class, and by a
    black-box attack. Sanity checks of these attacks are printed, with a warning where the result is
    doubtful. For a photograph before.png, after.png, difference.png and attack.png (all three) are
    saved. The ResNet-50 is downloaded once, 95 MB.

    Parameters
    ----------
    run
        Folder of a finished run of a classifier with numeric inputs.
    norm
        Norm of the perturbation.
    eps
        Attack budget: radius of the norm ball; by default 0.1, 1 and 10 (linf, l2, l1) for a run,
        whose inputs often lie in [0, 1], and 2/255, 2 and 40 for a photograph.
    steps
        Steps of the attack.
    n_test
        Test examples of the run to attack.
    image
        Image file to attack, cropped to its central square; by default a photograph from
        scikit-learn.
    target_class
        ImageNet class of a targeted attack on the photograph; by default the attack is untargeted.
    """
    check_positive(steps=steps, restarts=restarts, n_test=n_test)
    eps = (DEFAULT_EPS_RUN if run else DEFAULT_EPS_PHOTO)[norm] if eps is None else eps
    check_positive(eps=eps)
    if run is None:
        return photograph(
            job, BALLS[norm](eps), image, target_class, steps=steps, restarts=restarts
        )
    for option, value in (("--image", image), ("--target-class", target_class)):
        if value is not None:
            raise ValueError(f"{option} is for a photograph, not for a run; leave it out.")
    outcome = load_outcome(open_finished_run(run).folder)
    model = as_classifier(outcome, run)
    test = tuple(part[:n_test] for part in outcome.test)
    box = input_range(outcome)
    begin(job, {"run": str(run)})
    result = job.cached(
        "attack",
        lambda: _robustness_row(
            job, model, test, norm, eps, box, steps=steps, restarts=restarts, key=job.key
        ),
    )
    for line in result["checks"]:
        job.note(line)
    name = (list(outcome.table) or ["network"])[-1]
    reason = (
        f"attacked within {norm} {eps:g}, inputs from {box[0]:.3g} to {box[1]:.3g}, "
        f"{len(test[1]):,} examples"
    )
    finish(job, reason)
    table = {name: result["row"]}
    return replace(outcome, table=table, reason=reason, seconds=0.0, measured=None)


def open_finished_run(folder: str) -> Run:
    """The run of a folder; raises if it is a study or not finished."""
    run = expect_recipe_run(Run.open(folder))
    unfinished = [
        path.parent
        for path in Path(folder).glob("**/fit.json")
        if not path.with_name("done.json").exists()
    ]
    if unfinished:
        raise ValueError(
            f"{unfinished[0]} is not finished; resume it first: thetax train --resume {folder}"
        )
    return run


def as_classifier(outcome: Outcome, run: str) -> Model:
    """The model of a run as a classifier with k logits; raises if it is not a classifier of
    floating-point inputs.
    """
    test: Any = outcome.test
    xs, ys = test if isinstance(test, tuple) and len(test) == 2 else (test, None)
    dtype: Any = getattr(xs, "dtype", np.dtype(object))
    if ys is None or outcome.tokens or not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(
            f"{run}: an attack needs floating-point inputs, which this run does not have; choose "
            "another run."
        )
    if (
        len(outcome.classes) < 2
        or np.ndim(ys) != 1
        or not np.issubdtype(np.asarray(ys).dtype, np.integer)
    ):
        raise ValueError(
            f"{run}: an attack needs a classifier with one label per example; choose another run."
        )
    out = jax.eval_shape(lambda x: outcome.model(x), jnp.asarray(xs[0]))
    if out.shape == (len(outcome.classes),):
        return outcome.model
    if out.size == 1 and len(outcome.classes) == 2:
        return Chain(outcome.model, binary_logits)
    raise ValueError(
        f"{run}: expected {len(outcome.classes)} logits per example, got outputs of shape "
        f"{out.shape}."
    )


def binary_logits(z: Float[Array, "..."]) -> Float[Array, " 2"]:
    """The two logits (0, z) of a binary classifier with the single logit z; same probabilities.

    >>> binary_logits(jnp.array([3.0])).tolist()
    [0.0, 3.0]
    """
    return jnp.concatenate([jnp.zeros(1, z.dtype), z.reshape(1)])


def input_range(outcome: Outcome) -> Box:
    """The range of valid inputs: [0, 1] if all inputs lie in it, else their minimum and maximum."""
    low = min(float(xs.min()) for xs, _ in (outcome.train, outcome.test))
    high = max(float(xs.max()) for xs, _ in (outcome.train, outcome.test))
    return (0.0, 1.0) if 0 <= low <= high <= 1 else (low, high)


def _robustness_row(
    job: Job,
    model: Model,
    test: Batch,
    norm: Norm,
    eps: float,
    box: Box,
    *,
    steps: int,
    restarts: int,
    key: PRNGKeyArray,
) -> dict[str, Any]:
    """The row of the table, and the results of the sanity checks of the attacks."""
    job.note(f"attacking {len(test[1]):,} test examples within {norm} {eps:g}")
    ball = BALLS[norm](eps)
    result = robustness(
        model,
        test,
        ball,
        box=box,
        steps=steps,
        restarts=restarts,
        n_check_examples=N_CHECK_EXAMPLES,
        key=key,
    )
    job.note("measuring the distance to the nearest adversarial examples")
    row = {
        "test error %": 100 * (1 - result.clean_accuracy),
        "error under attack %": 100 * (1 - result.robust_accuracy),
        **_median_distance(
            model,
            tuple(part[:MAX_DISTANCE_EXAMPLES] for part in test),
            ball,
            box,
            steps=steps,
            key=jr.fold_in(key, 1),
        ),
        "failed sanity checks": float(len(result.warnings)),
    }
    n_checked = min(N_CHECK_EXAMPLES, len(test[1]))
    heading = (
        f"sanity checks of the attacks, on the first {n_checked:,} of {len(test[1]):,} examples:"
    )
    return {"row": row, "checks": [heading, *map(str, result.checks)]}


def _median_distance(
    model: Model, test: Batch, ball: Ball, box: Box, *, steps: int, key: PRNGKeyArray
) -> dict[str, float]:
    """Median distance of correctly classified examples to their nearest adversarial example.

    It is left out if the attack succeeds for less than half of them.
    """
    xs, ys = (jnp.asarray(part) for part in test)
    # a ball around any point of the box that contains the box
    radius = (box[1] - box[0]) * {Linf: 1, L2: math.sqrt(xs[0].size), L1: xs[0].size}[type(ball)]
    pgd = PGD(
        untargeted(margin_loss),
        type(ball)(float(radius)),
        step_size=2.5 * radius / steps,
        steps=steps,
        box=box,
    )
    search = MinimumNormAttack(pgd, binary_search_steps=BINARY_SEARCH_STEPS)
    nearest = perturb(model, (xs, ys), search, key=key)
    classify = jax.jit(lambda xs: jnp.argmax(jax.vmap(model)(xs), axis=-1))
    correct = np.asarray(classify(xs)) == np.asarray(ys)
    distances = np.where(nearest.success, nearest.distance, np.inf)[correct]
    median = float(np.median(distances)) if len(distances) else math.inf
    return {"median distance": median} if math.isfinite(median) else {}

"""How little it takes to fool a network (§13): that of any run, or a trained one that looks at a
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

from ..attack import PGD, MinimumNormAttack, margin_loss, perturb, robustness, untargeted
from ..core import Batch, Model
from ..layers import Chain
from ..threat import L1, L2, Ball, Linf
from ..threat.inputs import Range
from ..train import Run
from .engine.job import Job, positive, recipe
from .engine.outcome import Outcome
from .engine.reopen import begin, finish, reopen
from .shared.photograph import photograph

Norm = Literal["linf", "l2", "l1"]
BALLS: dict[str, type[Ball]] = {"linf": Linf, "l2": L2, "l1": L1}
FAR = {"linf": 0.1, "l2": 1.0, "l1": 10.0}  # the radius for a run, if none is given
NEAR = {"linf": 2 / 255, "l2": 2.0, "l1": 40.0}  # and for a photograph
MEASURED, ROUNDS = (
    128,
    12,
)  # examples whose distance to a wrong input is measured, by so many halvings


@recipe
def attack(
    job: Job,
    *,
    of: str | None = None,
    norm: Norm = "linf",
    radius: float | None = None,
    steps: int = 40,
    restarts: int = 1,
    judged: int = 500,
    picture: str | None = None,
    target: str | None = None,
) -> Outcome:
    """The network of a run under attack; without --of, a ResNet-50 that knows ImageNet, and a
    photograph to fool it.

    A run's network is judged by ascent of the loss, towards each likely class too, and by an attack
    that sees no gradients; these are tried themselves, and what makes the result doubtful is
    printed. Of the photograph before.png, after.png, difference.png and all three in attack.png are
    kept. The weights are fetched once, 95 MB.

    Parameters
    ----------
    of
        The folder of a finished run that tells classes apart by numbers.
    norm
        What may be small: the largest change of a number, the Euclidean length of all changes, or
        their sum.
    radius
        How large it may be; by default 0.1, 1 and 10 for a run, whose inputs often go from 0 to 1,
        and for a photograph 2/255, 2 and 40.
    steps
        Of the ascent.
    restarts
        Starts of the ascent, at random.
    judged
        Test examples of a run that are attacked.
    picture
        A picture file, instead of a photograph of China that is at hand; its middle square is
        looked at.
    target
        The class that the photograph is to be taken for; by default any other.
    """
    positive(steps=steps, restarts=restarts, judged=judged)
    radius = (FAR if of else NEAR)[norm] if radius is None else radius
    positive(radius=radius)
    if of is None:
        return photograph(job, BALLS[norm](radius), picture, target, steps=steps, restarts=restarts)
    if odd := [
        f"--{name}"
        for name, given in (("picture", picture), ("target", target))
        if given is not None
    ]:
        raise ValueError(
            f"{odd[0]} is about a photograph, and --of about a run; leave out one of them."
        )
    outcome = reopen(finished(of), job.progress)
    model = as_classifier(outcome, of)
    some = tuple(part[:judged] for part in outcome.test)
    box = valid_range(outcome)
    begin(job, {"of": str(of)})
    found = job.remember(
        "attack",
        lambda: _judged(
            job, model, some, norm, radius, box, steps=steps, restarts=restarts, key=job.key
        ),
    )
    for line in found["said"]:
        job.say(line)
    row = (list(outcome.table) or ["network"])[-1]
    reason = (
        f"attacked within {norm} {radius:g}, inputs from {box[0]:.3g} to {box[1]:.3g}, "
        f"{len(some[1]):,} examples"
    )
    finish(job, reason)
    return replace(outcome, table={row: found["row"]}, reason=reason, measured=None)


def finished(folder: str) -> Run:
    """The run of a folder, to be looked at; refuses one that is still under way."""
    run = Run.open(folder, look_only=True)
    under_way = [
        path.parent
        for path in Path(folder).glob("**/fit.json")
        if not path.with_name("done.json").exists()
    ]
    if under_way:
        raise ValueError(
            f"{under_way[0]} is not finished; go on with it first: thetax train --resume {folder}"
        )
    return run


def as_classifier(outcome: Outcome, of: str) -> Model:
    """The model of a run with k logits an example; refuses what is no classifier of numbers."""
    test: Any = outcome.test
    xs, ys = test if isinstance(test, tuple) and len(test) == 2 else (test, None)
    kind: Any = getattr(xs, "dtype", np.dtype(object))
    if ys is None or outcome.tokens or not jnp.issubdtype(kind, jnp.floating):
        raise ValueError(
            f"{of}: its network reads no arrays of floats, which an attack moves a little; take "
            "another."
        )
    if (
        len(outcome.classes) < 2
        or np.ndim(ys) != 1
        or not np.issubdtype(np.asarray(ys).dtype, np.integer)
    ):
        raise ValueError(
            f"{of}: its network tells no classes apart, one for each example; an attack needs them."
        )
    out = jax.eval_shape(lambda x: outcome.model(x), jnp.asarray(xs[0]))
    if out.shape == (len(outcome.classes),):
        return outcome.model
    if out.size == 1 and len(outcome.classes) == 2:
        return Chain(outcome.model, both_logits)
    raise ValueError(
        f"{of}: expected {len(outcome.classes)} logits an example, got outputs of shape "
        f"{out.shape}."
    )


def both_logits(z: Float[Array, "..."]) -> Float[Array, " 2"]:
    """Of one logit those of two classes, 0 and the logit: the probabilities are the same.

    >>> both_logits(jnp.array([3.0])).tolist()
    [0.0, 3.0]
    """
    return jnp.concatenate([jnp.zeros(1, z.dtype), z.reshape(1)])


def valid_range(outcome: Outcome) -> Range:
    """From 0 to 1 where the inputs lie there, as pixels do; else what they span."""
    low = min(float(xs.min()) for xs, _ in (outcome.train, outcome.test))
    high = max(float(xs.max()) for xs, _ in (outcome.train, outcome.test))
    return (0.0, 1.0) if 0 <= low <= high <= 1 else (low, high)


def _judged(
    job: Job,
    model: Model,
    some: Batch,
    norm: Norm,
    radius: float,
    box: Range,
    *,
    steps: int,
    restarts: int,
    key: PRNGKeyArray,
) -> dict[str, Any]:
    """The row of the table, and what the trials of the attacks said."""
    job.say(f"attacking {len(some[1]):,} test examples within {norm} {radius:g}")
    ball = BALLS[norm](radius)
    found = robustness(model, some, ball, box=box, steps=steps, restarts=restarts, key=key)
    job.say("measuring the distance to wrong inputs")
    row = {
        "test error %": 100 * (1 - found.clean),
        "error under attack %": 100 * (1 - found.robust),
        **_distance(
            model,
            tuple(part[:MEASURED] for part in some),
            ball,
            box,
            steps=steps,
            key=jr.fold_in(key, 1),
        ),
        "doubts": float(len(found.warnings)),
    }
    return {"row": row, "said": [str(check) for check in found.checks]}


def _distance(
    model: Model, some: Batch, ball: Ball, box: Range, *, steps: int, key: PRNGKeyArray
) -> dict[str, float]:
    """The median over examples that are right of the distance to the nearest wrong input found, if
    most have one.
    """
    xs, ys = (jnp.asarray(part) for part in some)
    whole = (box[1] - box[0]) * {Linf: 1, L2: math.sqrt(xs[0].size), L1: xs[0].size}[type(ball)]
    ascent = PGD(
        untargeted(margin_loss),
        type(ball)(float(whole)),
        step_size=2.5 * whole / steps,
        steps=steps,
        box=box,
    )
    found = perturb(MinimumNormAttack(ascent, binary_search_steps=ROUNDS), model, (xs, ys), key=key)
    guess = lambda points: np.asarray(
        jax.jit(lambda xs: jnp.argmax(jax.vmap(model)(xs), axis=-1))(points)
    )
    right = guess(xs) == np.asarray(ys)
    fooled = guess(found) != np.asarray(ys)
    far = np.where(fooled, np.asarray(jax.vmap(ball.norm)(found - xs)), np.inf)[right]
    middle = float(np.median(far)) if len(far) else math.inf
    return {"median distance": middle} if math.isfinite(middle) else {}

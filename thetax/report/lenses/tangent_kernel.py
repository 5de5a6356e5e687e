"""Lenses on the tangent kernel: what a network learns easily, and whether it was lazy or learnt
features.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import explain
from ...core import Batch, apply, predict
from ...recipes.engine.outcome import Outcome
from ..registry import MIN_EXAMPLES, LensUnavailable, format_percent, is_classifier, lens, subsample

MAX_EXAMPLES = 300  # examples of the kernel, at most
MAX_KERNEL_ROWS = (
    800  # examples times outputs, where the kernel of all pairs of outputs is decomposed
)
MAX_STEPS, MIN_STEPS = 1000, 150  # of descent, at most, and such that something is learnt
MAX_KERNEL_OPERATIONS, MAX_TRAINING_OPERATIONS = (
    2e10,
    6e10,
)  # of a kernel and of a descent on a CPU: a few seconds
MAX_TEST_EXAMPLES = 200  # examples, of both trainings
ACCELERATOR_SPEEDUP = 100  # times as many on an accelerator


def _answer(outcome: Outcome) -> Any:
    """The form of the answer to one example, or None where it is not one row of numbers."""
    one = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), outcome.train[0])
    found = jax.eval_shape(lambda model, x: apply(model, x), outcome.model, one)
    row = hasattr(found, "ndim") and found.ndim < 2 and jnp.issubdtype(found.dtype, jnp.floating)
    return found if row else None


def answers(outcome: Outcome) -> bool:
    """Whether an example has one target and one row of outputs, not one at every time, that depend
    on parameters.
    """
    if not (isinstance(outcome.train, tuple) and len(outcome.train) == 2) or not jax.tree.leaves(
        outcome.model
    ):
        return False
    ys = outcome.train[1]
    if not hasattr(ys, "dtype") or (np.issubdtype(ys.dtype, np.integer) and ys.ndim > 1):
        return False
    return _answer(outcome) is not None


def _affordable(products: float) -> float:
    return products * (1 if jax.default_backend() == "cpu" else ACCELERATOR_SPEEDUP)


def examples(outcome: Outcome, data: Batch, most: int = MAX_EXAMPLES) -> Batch:
    """As many examples as their kernel can be afforded for; refuses where these are too few to tell
    anything.
    """
    one = jax.tree.map(lambda a: a[:1], data[0])
    slope = jax.grad(lambda model: predict(model, one).sum())(outcome.model)
    if not any(bool(jnp.any(leaf != 0)) for leaf in jax.tree.leaves(slope)):
        raise LensUnavailable(
            "its outputs do not change with its parameters, as those of a sign, so that the "
            "kernel is 0."
        )
    outputs = max(1, _answer(outcome).size)
    each = sum(explain.operations(predict, outcome.model, one).values()) * (1 + 2 * outputs)
    kernel = explain.ntk(outcome.model, form="trace")
    count = most
    while count >= MIN_EXAMPLES:
        chosen = subsample(data, count)
        held = len(jax.tree.leaves(chosen)[0])
        if kernel.plan(chosen[0]).products + held * each <= _affordable(MAX_KERNEL_OPERATIONS):
            return chosen
        count = min(count, held) * 2 // 3
    raise LensUnavailable(
        f"on this machine the kernel of {MIN_EXAMPLES} examples would take too long; look at it on "
        "an accelerator."
    )


def _bends(result: explain.TangentSpectrum) -> dict[str, str]:
    n = len(result.values)
    mean = float(result.values.mean())
    told = {
        "alignment with the targets": f"{result.alignment:.3f}",
        "half of the targets lies along": f"the first {result.needed(0.5)} of {n} eigenvectors",
        "nine tenths": f"the first {result.needed(0.9)}",
        "effective dimension at the mean eigenvalue": f"{float(result.dimension(mean)):.1f} of {n}",
    }
    if result.ridge:
        told["effective dimension at the weight decay"] = (
            f"{float(result.dimension(result.ridge)):.1f} of {n}"
        )
    return told | {"largest over mean eigenvalue": f"{result.values[0] / mean:.3g}"}


@lens(
    "What the tangent kernel finds easy",
    says=f"The eigenvalues of the tangent kernel on at most {MAX_EXAMPLES} training examples. Near "
    "its parameters the network learns what lies along an eigenvector at the rate of its "
    "eigenvalue. The effective dimension is how many directions a ridge leaves, or stopping at the "
    "time one over it. The steeper the curve of the targets, the sooner they are learnt; noise "
    "would follow the dashed line. Alignment is 1 if examples are as like one another as their "
    "targets are.",
    applies=answers,
    tells=_bends,
)
def _spectrum(outcome: Outcome) -> explain.TangentSpectrum:
    chosen = examples(outcome, outcome.train)
    return explain.tangent_spectrum(outcome.model, chosen, ridge=outcome.decay or None)


def _taught(result: explain.KernelMap) -> dict[str, str]:
    k = len(result.classes)
    told = {
        "mean within a class": f"{result.within:.3f}",
        "mean between classes": f"{result.between:.3f}",
    }
    off = np.where(np.eye(k, dtype=bool) | np.isnan(result.means), -np.inf, result.means)
    if k > 2 and np.isfinite(off.max()):
        i, j = np.unravel_index(off.argmax(), off.shape)
        told["most alike of two classes"] = (
            f"{result.classes[i]} and {result.classes[j]}, {off.max():.3f}"
        )
    return told


@lens(
    "The tangent kernel by class",
    says=f"Which examples teach one another, among at most {MAX_EXAMPLES} of training, sorted by "
    "class: the cosine between the gradients of two examples. Blue pairs are more alike than the "
    "mean of all, so that learning one teaches the other; orange ones are less. A network that has "
    "learnt its classes shows blue squares.",
    applies=lambda outcome: is_classifier(outcome) and answers(outcome),
    tells=_taught,
)
def _by_class(outcome: Outcome) -> explain.KernelMap:
    xs, ys = examples(outcome, outcome.train)
    ys = jnp.asarray(ys)
    return explain.kernel_map(outcome.model, (xs, ys), classes=outcome.classes)


def _turned(result: explain.Drift) -> dict[str, str]:
    return {
        "verdict": result.verdict,
        "change of the "
        "kernel": f"{format_percent(result.change)} (S = {result.drift[-1]:.3g}, centred)",
        "not centred": f"S = {result.plain[-1]:.3g}",
        "change of the parameters": format_percent(result.moved[-1]),
        "alignment with the targets": f"from {result.alignment[0]:.3f} to "
        f"{result.alignment[-1]:.3f}",
    }


def begun(outcome: Outcome) -> bool:
    """Whether the model before its training is known, and is of the same form."""
    shapes = lambda model: jax.tree.map(jnp.shape, model)
    return (
        answers(outcome)
        and outcome.start is not None
        and shapes(outcome.start) == shapes(outcome.model)
    )


@lens(
    "Lazy, or were features learnt?",
    says="The tangent kernel before and after training: that of pairs of examples, and how far "
    "each layer moved. On the dashed line nothing changed. A network whose kernel stays is lazy: "
    "it could as well have been a linear model of fixed features. One whose kernel turns towards "
    "the targets has learnt features of its own. Here it is called lazy if the centred, normalised "
    "kernel changed by less than 20 %, and said to have learnt features from 50 % on; these "
    "borders are a convention.",
    applies=begun,
    tells=_turned,
)
def _drift(outcome: Outcome) -> explain.Drift:
    return explain.drift([outcome.start, outcome.model], examples(outcome, outcome.train))


def _compared(result: explain.Laziness) -> dict[str, str]:
    straight, true = result.errors[:, -1]
    kind = "test error" if result.classes else "variance unexplained"
    return {
        f"{kind}, linearised": format_percent(straight),
        f"{kind}, true": format_percent(true),
        "missed by the linearised": f"{format_percent(result.gap[-1])} of what was learnt",
        "steps": f"{result.steps[-1]:,} at rate {result.rate:.3g}, on {result.examples} examples",
    }


@lens(
    "Linearised against true training",
    says="From the parameters it began with, the network is trained once more on a few examples, "
    "by descent of the squared error with momentum and without dropout, and beside it its "
    "linearisation, whose training is known in closed form. Outputs count from those of the start, "
    "which are chance. Where the two agree the network is lazy. What the true one does better on "
    "test examples is due to features that it learnt.",
    applies=begun,
    tells=_compared,
)
def _laziness(outcome: Outcome) -> explain.Laziness:
    outputs = max(1, _answer(outcome).size)
    one = jax.tree.map(lambda a: a[:1], outcome.train[0])
    affords = _affordable(MAX_TRAINING_OPERATIONS) / (
        3 * sum(explain.operations(predict, outcome.model, one).values())
    )
    most = min(MAX_EXAMPLES, MAX_KERNEL_ROWS // outputs, int(affords / MIN_STEPS))
    if most < MIN_EXAMPLES:
        raise LensUnavailable(
            f"{MIN_STEPS} steps on {MIN_EXAMPLES} examples would take too long here, or its "
            "outputs are too many."
        )
    train = examples(outcome, outcome.train, most)
    steps = int(min(MAX_STEPS, affords / len(train[1])))
    return explain.laziness(
        outcome.start, train, subsample(outcome.test, MAX_TEST_EXAMPLES), steps=steps
    )


def _powers(result: explain.Widths) -> dict[str, str]:
    names = "kernel from its limit", "kernel changed in training", "parameters moved"
    return {
        name: f"width to the power {power:.2f}".replace("-", "−")
        for name, power in zip(names, result.powers)
    }


@lens(
    "Against the width",
    says="How far the tangent kernel at the start is from that of infinite width, how far it "
    "changes in training, and how far the parameters move, each relative to what it was, for "
    "networks of several widths; a point is a network. Theory has the first fall as one over the "
    "root of the width, and the second at least as fast.",
    applies=lambda outcome: isinstance(outcome.measured, explain.Widths),
    tells=_powers,
)
def _widths(outcome: Outcome) -> explain.Widths:
    return outcome.measured


@lens(
    "Beside infinite width",
    says="What an ensemble of trained networks says of test examples, its mean and its deviation, "
    "against what all networks of infinite width say after as many steps, which is known in closed "
    "form. The narrower the networks, and the fewer, the farther from the dashed line.",
    applies=lambda outcome: isinstance(outcome.measured, explain.WideBeliefs),
    tells=lambda result: dict(
        zip(("correlation of means", "of deviations"), map("{:.3f}".format, result.agreement))
    ),
)
def _beside(outcome: Outcome) -> explain.WideBeliefs:
    return outcome.measured

"""The lenses of a report. To add one, write a function of an `Outcome` here and put `@lens(...)` on
it.

The function returns a result; `thetax.plot.draw` must know how to draw it. `tells` gives the
numbers a reader wants in words, `rows` a table, both optional. The model comes with its batch norms
folded.
"""

from typing import Any

import jax
import jax.random as jr
import numpy as np

from ... import explain
from ...core import Batch, predict
from ...layers import Attention
from ...models import BERTPretraining
from ...recipes.engine.outcome import Outcome
from ..registry import (
    CPU_REFUSAL_OPERATIONS,
    LONG_SEQUENCE_TARGETS,
    MAX_ACTIVATION_EXAMPLES,
    MAX_CPU_OPERATIONS,
    MAX_CURVATURE_EXAMPLES,
    MAX_LOGITS,
    MAX_MATRIX_CLASSES,
    MIN_EXAMPLES,
    LensUnavailable,
    _targets,
    format_percent,
    is_classifier,
    lens,
    subsample,
)
from .examples import example_rows


def _last(result: explain.Curves) -> dict[str, str]:
    told = {"epochs": str(result.epochs)}
    for quantity, lines in result.panels.items():
        for role, values in lines.items():
            told[f"last {role} {quantity}".replace("  ", " ")] = f"{values[-1]:.4g}"
    return told


@lens(
    "Learning curves",
    says="How the numbers of the fit moved from epoch to epoch. A validation curve that turns "
    "upwards while the training curve still falls is over-fitting.",
    applies=lambda outcome: bool(explain.curves(outcome.history).panels),
    tells=_last,
)
def _curves(outcome: Outcome) -> explain.Curves:
    return explain.curves(outcome.history)


def _confused(result: explain.Confusion) -> dict[str, str]:
    off = np.where(np.eye(len(result.classes), dtype=bool), 0, result.counts)
    truth, guess = np.unravel_index(off.argmax(), off.shape)
    hardest = int(np.nanargmax(result.errors))
    told = {"test error": f"{format_percent(result.error)} of {result.counts.sum():,}"}
    if off.any():
        told["hardest class"] = (
            f"{result.classes[hardest]} ({format_percent(result.errors[hardest])} wrong)"
        )
        often = "once" if off.max() == 1 else f"{off.max():,} times"
        told["commonest mistake"] = (
            f"{result.classes[truth]} taken for {result.classes[guess]}, {often}"
        )
    return told


@lens(
    "Confusion matrix",
    says="Each row is a true class and each column a guess, counted on the test set. Everything "
    f"off the diagonal, in orange, is a mistake. Of more than {MAX_MATRIX_CLASSES} classes those "
    "are shown that occur.",
    applies=is_classifier,
    tells=_confused,
)
def _confusion(outcome: Outcome) -> explain.Confusion:
    found = explain.confusion(outcome.model, outcome.test, outcome.classes)
    return found.met() if len(found.classes) > MAX_MATRIX_CLASSES else found


@lens(
    "Most confidently wrong",
    says="The test examples on which the network was surest of a wrong answer, the worst first. "
    "They are often mislabelled, ambiguous, or of a kind the training set lacks.",
    applies=is_classifier,
    tells=lambda result: {"mistakes": f"{result.mistakes:,} of {result.examples:,}"},
    rows=example_rows,
)
def _worst(outcome: Outcome) -> explain.Worst:
    return explain.worst(
        outcome.model, outcome.test, classes=outcome.classes, tokens=outcome.tokens
    )


def _trust(result: explain.Calibration) -> dict[str, str]:
    over = 100 * result.overconfidence
    return {
        "expected calibration error": format_percent(result.error),
        "on average": f"{abs(over):.2f} points too {'sure' if over > 0 else 'modest'}",
        "negative log-likelihood": f"{result.nll:.4f} nats",
        "Brier score": f"{result.brier:.4f}",
    }


@lens(
    "Calibration",
    says="Can its confidence be taken at its word? Test examples are grouped by how sure the "
    "network was; a point on "
    "the dashed line is right exactly as often as it claims. Larger points hold more examples.",
    applies=is_classifier,
    tells=_trust,
)
def _calibration(outcome: Outcome) -> explain.Calibration:
    return explain.calibration(outcome.model, outcome.test)


def _heaviest(result: explain.Weights) -> dict[str, str]:
    most = int(result.largest.argmax())
    return {
        "parameters": f"{sum(result.size):,}",
        "norm of θ": f"{np.linalg.norm(result.norm):.4g}",
        "largest": f"{result.largest[most]:.3g} in {result.layers[most]}",
    }


def _weight_rows(result: explain.Weights) -> list[dict[str, str]]:
    numbers = zip(result.layers, result.size, result.mean, result.std, result.largest, result.norm)
    return [
        {"layer": layer, "parameters": f"{size:,}", "mean": f"{mean:.3g}", "std": f"{std:.3g}"}
        | {"largest": f"{largest:.3g}", "norm": f"{norm:.3g}"}
        for layer, size, mean, std, largest, norm in numbers
    ]


@lens(
    "Weights",
    says="How the parameters of each layer are spread, each histogram scaled to its own height. σ "
    "is their standard deviation.",
    tells=_heaviest,
    rows=_weight_rows,
)
def _weights(outcome: Outcome) -> explain.Weights:
    return explain.weights(outcome.model)


@lens(
    "Activations",
    says=f"What each layer puts out on at most {MAX_ACTIVATION_EXAMPLES:,} test examples, from "
    "input to output. A dead unit is zero on all of them: it passes nothing on and learns nothing.",
    tells=lambda result: (
        {
            "dead units, at "
            "worst": f"{format_percent(result.dead.max())} of {_where(result, result.dead)}"
        }
        if result.dead.max() > 0
        else {"dead units": "none"}
    ),
)
def _activations(outcome: Outcome) -> explain.Activations:
    return explain.activations(outcome.model, seen(outcome)[0])


def _where(result: explain.Activations, values: np.ndarray) -> str:
    return result.layers[int(values.argmax())]


def _reach(result: explain.Gradients) -> dict[str, str]:
    first = result.outputs[0]
    last = result.outputs[-1]
    told = {"at the output": f"{last:.3g}"}
    if len(result.outputs) == 1:
        return told
    told["at the first layer"] = f"{first:.3g}"
    return told | ({"first over last": f"{first / last:.3g}"} if last > 0 else {})


@lens(
    "Gradient signal through depth",
    says="How strongly the loss pulls at each layer's output and at its parameters, on at most "
    f"{MAX_ACTIVATION_EXAMPLES:,} test examples. A norm that shrinks or grows steadily towards the "
    "input is a vanishing or an exploding gradient.",
    tells=_reach,
)
def _gradients(outcome: Outcome) -> explain.Gradients:
    if isinstance(outcome.model, BERTPretraining):
        raise LensUnavailable(
            "what is descended takes the network apart, so that its layers cannot be probed as a "
            "whole."
        )
    try:
        return explain.gradients(outcome.objective, outcome.model, seen(outcome))
    # of an objective that moves its inputs, which are not alone when layers are probed
    except ValueError as reason:
        raise LensUnavailable(f"its layers cannot be probed: {reason}") from None


def seen(outcome: Outcome) -> Batch:
    """The test examples for activations and gradients: so many that their logits can be held."""
    each = _targets(outcome.test) * max(1, len(outcome.classes))
    found = subsample(outcome.test, MAX_ACTIVATION_EXAMPLES)
    return jax.tree.map(lambda a: a[: max(1, MAX_LOGITS // each)], found)


def bent(outcome: Outcome, most: int = MAX_CURVATURE_EXAMPLES) -> Batch:
    """The training examples for curvature: at most `most`, and on a CPU no more than
    `MAX_CPU_OPERATIONS` allows.
    """
    return afforded(outcome.model, outcome.train, most, work=MAX_CPU_OPERATIONS)


def afforded(model: Any, data: Batch, most: int, *, work: int) -> Batch:
    """Some examples: on a CPU, of a model with convolutions, cells or attention, as many as so much
    work allows.
    """
    attends = lambda node: isinstance(node, Attention)
    slow = (
        explain.has_convolution(model)
        or explain.cells(model)
        or any(map(attends, jax.tree.leaves(model, attends)))
    )
    if not slow or jax.default_backend() != "cpu":
        return subsample(data, most)
    one = jax.tree.map(lambda a: a[:1], data[0])
    each = sum(explain.operations(predict, model, one).values())
    least = max(2, MIN_EXAMPLES // max(1, _targets(data) // LONG_SEQUENCE_TARGETS))
    if least * each > CPU_REFUSAL_OPERATIONS:
        raise LensUnavailable(
            "on this machine it would take many minutes for a network of this size; look on an "
            "accelerator."
        )
    return subsample(data, min(most, max(least, work // each)))


def _bends(result: explain.Curvature) -> dict[str, str]:
    sharp, trace = result.sharpness, result.trace
    top, bottom = result.spectrum.top, result.spectrum.bottom
    known = max(sharp.bound, 10.0 ** np.floor(np.log10(max(abs(sharp.eigenvalue), 1e-12)) - 3))
    return {
        "largest eigenvalue": f"{sharp.eigenvalue:.4g} ± {known:.1g}",
        "smallest seen": f"{bottom[0]:.3g}",
        "second over first": f"{top[1] / top[0]:.2f}" if len(top) > 1 and top[0] > 0 else "–",
        "trace": f"{trace.value:.4g} ± {trace.error:.2g}",
        f"loss can rise within {sharp.radius:g}": f"from {sharp.loss:.3g} by {sharp.rise:.3g}",
        "gradient norm": f"{sharp.slope:.3g}",
    }


@lens(
    "Curvature and sharpness",
    says="The eigenvalues of the Hessian of the training loss at the final parameters, on at most "
    f"{MAX_CURVATURE_EXAMPLES:,} training examples; a few if these are convolved, attended to or "
    "read in time on a CPU, so that it takes seconds and not minutes. Large ones are directions in "
    "which a small step costs much; a wide, flat minimum has few of them. The rise is the worst "
    "within that distance of θ, to second order.",
    tells=_bends,
)
def _curvature(outcome: Outcome) -> explain.Curvature:
    return explain.curvature(outcome.objective, outcome.model, bent(outcome), key=jr.key(0))

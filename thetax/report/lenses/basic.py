"""The lenses that apply to most models: training, mistakes, calibration, weights, activations,
gradients, curvature.

To add a lens, write a function of an `Outcome` and decorate it with `@lens(...)`. It returns a
result that `thetax.plot.draw` can draw. The optional `metrics` turn the result into named numbers,
and `rows` into a table. The model comes with its batch norms folded.
"""

from typing import Any

import jax
import jax.random as jr
import numpy as np

from ... import explain
from ...core import Batch, predict
from ...layers import Attention
from ...models import BERTPretraining
from ...plot.networks.training import QUANTITY_NAMES, SPLIT_NAMES
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
    format_percent,
    is_classifier,
    lens,
    subsample,
    targets_per_example,
)
from .examples import example_rows


def _final_metrics(result: explain.signal.TrainingCurves) -> dict[str, str]:
    metrics = {"epochs": str(result.epochs)}
    for quantity, lines in result.panels.items():
        for split, values in lines.items():
            words = "final", SPLIT_NAMES.get(split, split), QUANTITY_NAMES.get(quantity, quantity)
            metrics[" ".join(filter(None, words))] = f"{values[-1]:.4g}"
    return metrics


NO_LAYER_OUTPUTS = "no layer returns an array; for layers of graphs see the sections about graphs."


@lens(
    "Learning curves",
    description="Loss and metrics after each epoch of training. A validation loss that rises while "
    "the training loss still falls is a sign of overfitting.",
    applies=lambda outcome: bool(explain.training_curves(outcome.history).panels),
    metrics=_final_metrics,
)
def _curves(outcome: Outcome) -> explain.signal.TrainingCurves:
    return explain.training_curves(outcome.history)


def _confusion_metrics(result: explain.predictions.ConfusionMatrix) -> dict[str, str]:
    off = np.where(np.eye(len(result.classes), dtype=bool), 0, result.counts)
    truth, predicted = np.unravel_index(off.argmax(), off.shape)
    hardest = int(np.nanargmax(result.errors))
    metrics = {"test error": f"{format_percent(result.error)} of {result.counts.sum():,}"}
    if off.any():
        metrics["class with the highest error"] = (
            f"{result.classes[hardest]} ({format_percent(result.errors[hardest])} wrong)"
        )
        often = "once" if off.max() == 1 else f"{off.max():,} times"
        metrics["most frequent confusion"] = (
            f"{result.classes[truth]} predicted as {result.classes[predicted]}, {often}"
        )
    return metrics


@lens(
    "Confusion matrix",
    description="Counts of test examples by true class (row) and predicted class (column). Entries "
    f"off the diagonal, in orange, are mistakes. With more than {MAX_MATRIX_CLASSES} classes only "
    "those that occur are shown.",
    applies=is_classifier,
    metrics=_confusion_metrics,
)
def _confusion(outcome: Outcome) -> explain.predictions.ConfusionMatrix:
    matrix = explain.confusion_matrix(outcome.model, outcome.test, outcome.classes)
    if len(matrix.classes) <= MAX_MATRIX_CLASSES:
        return matrix
    return matrix.without_empty_classes()


@lens(
    "Most confident mistakes",
    description="The misclassified test examples with the highest predicted probability, most "
    "confident first. They are often mislabelled, ambiguous, or unlike the training set.",
    applies=is_classifier,
    metrics=lambda result: {"mistakes": f"{result.n_mistakes:,} of {result.n_examples:,}"},
    rows=example_rows,
)
def _confident_mistakes(outcome: Outcome) -> explain.predictions.ConfidentMistakes:
    return explain.confident_mistakes(
        outcome.model, outcome.test, classes=outcome.classes, vocab=outcome.tokens
    )


def _calibration_metrics(result: explain.predictions.Calibration) -> dict[str, str]:
    over = 100 * result.overconfidence
    return {
        "expected calibration error": format_percent(result.error),
        "mean confidence minus accuracy": f"{over:+.2f} percentage points, "
        f"{'overconfident' if over > 0 else 'underconfident'}",
        "negative log-likelihood": f"{result.nll:.4f} nats",
        "Brier score": f"{result.brier:.4f}",
    }


@lens(
    "Calibration",
    description="Reliability diagram: accuracy on the test set against predicted confidence. "
    "Examples are binned by confidence; a bin on the dashed line is perfectly calibrated, one "
    "below it is overconfident. Larger points hold more examples; the bars below count them.",
    applies=is_classifier,
    metrics=_calibration_metrics,
)
def _calibration(outcome: Outcome) -> explain.predictions.Calibration:
    return explain.calibration(outcome.model, outcome.test)


def _weight_metrics(result: explain.signal.WeightStatistics) -> dict[str, str]:
    largest = int(result.max_abs.argmax())
    return {
        "parameters": f"{sum(result.size):,}",
        "L2 norm of all parameters": f"{np.linalg.norm(result.norm):.4g}",
        "largest absolute value": f"{result.max_abs[largest]:.3g} in {result.layers[largest]}",
    }


def _weight_rows(result: explain.signal.WeightStatistics) -> list[dict[str, str]]:
    numbers = zip(result.layers, result.size, result.mean, result.std, result.max_abs, result.norm)
    return [
        {"layer": layer, "parameters": f"{size:,}", "mean": f"{mean:.3g}", "std": f"{std:.3g}"}
        | {"largest": f"{largest:.3g}", "norm": f"{norm:.3g}"}
        for layer, size, mean, std, largest, norm in numbers
    ]


@lens(
    "Weights",
    description="Histogram of the parameters of each layer, each scaled to its own height. σ is "
    "the standard deviation.",
    metrics=_weight_metrics,
    rows=_weight_rows,
)
def _weights(outcome: Outcome) -> explain.signal.WeightStatistics:
    return explain.weight_statistics(outcome.model)


@lens(
    "Activations",
    description="Mean and standard deviation of the outputs of each layer, and the share of zeros "
    f"and of dead units, on at most {MAX_ACTIVATION_EXAMPLES:,} test examples. A dead unit is zero "
    "on all of them: it passes no signal and receives no gradient.",
    metrics=lambda result: (
        {
            "largest share of dead units": f"{format_percent(result.dead.max())} of "
            f"{result.layers[int(result.dead.argmax())]}"
        }
        if result.dead.max() > 0
        else {"dead units": "none"}
    ),
)
def _activations(outcome: Outcome) -> explain.signal.ActivationStatistics:
    result = explain.activation_statistics(outcome.model, probe_examples(outcome)[0])
    if not result.layers:
        raise LensUnavailable(NO_LAYER_OUTPUTS)
    return result


def _gradient_metrics(result: explain.signal.GradientNorms) -> dict[str, str]:
    first = result.outputs[0]
    last = result.outputs[-1]
    metrics = {"gradient norm, last layer": f"{last:.3g}"}
    if len(result.outputs) == 1:
        return metrics
    metrics["gradient norm, first layer"] = f"{first:.3g}"
    return metrics | ({"ratio of first to last": f"{first / last:.3g}"} if last > 0 else {})


@lens(
    "Gradient norms by layer",
    description="Norms of the gradient of the loss with respect to each layer's output and "
    f"parameters, on at most {MAX_ACTIVATION_EXAMPLES:,} test examples. Norms that shrink steadily "
    "towards the input are vanishing gradients, norms that grow are exploding gradients.",
    metrics=_gradient_metrics,
)
def _gradients(outcome: Outcome) -> explain.signal.GradientNorms:
    if isinstance(outcome.model, BERTPretraining):
        raise LensUnavailable(
            "the training objective calls parts of the network separately, so the layers cannot be "
            "probed in one pass."
        )
    try:
        result = explain.gradient_norms(outcome.objective, outcome.model, probe_examples(outcome))
    # An objective that perturbs its inputs (adversarial training) cannot be probed by layers.
    except ValueError as reason:
        raise LensUnavailable(f"the layers cannot be probed: {reason}") from None
    if not result.layers:
        raise LensUnavailable(NO_LAYER_OUTPUTS)
    return result


def probe_examples(outcome: Outcome) -> Batch:
    """Test examples for activations and gradients; few enough that their logits fit in memory."""
    each = targets_per_example(outcome.test) * max(1, len(outcome.classes))
    data = subsample(outcome.test, MAX_ACTIVATION_EXAMPLES)
    return jax.tree.map(lambda a: a[: max(1, MAX_LOGITS // each)], data)


def curvature_examples(outcome: Outcome, max_examples: int = MAX_CURVATURE_EXAMPLES) -> Batch:
    """Training examples for curvature: at most `max_examples`, and on a CPU no more than
    `MAX_CPU_OPERATIONS` allow.
    """
    return affordable_examples(
        outcome.model, outcome.train, max_examples, max_operations=MAX_CPU_OPERATIONS
    )


def affordable_examples(
    model: Any, data: Batch, max_examples: int, *, max_operations: int
) -> Batch:
    """At most `max_examples` of the data; fewer on a CPU for models with convolutions, recurrent
    cells or attention, so that they take at most `max_operations`.
    """
    is_attention = lambda node: isinstance(node, Attention)
    is_slow = (
        explain.has_convolution(model)
        or explain.recurrent_cells(model)
        or any(map(is_attention, jax.tree.leaves(model, is_attention)))
    )
    if not is_slow or jax.default_backend() != "cpu":
        return subsample(data, max_examples)
    one = jax.tree.map(lambda a: a[:1], data[0])
    each = sum(explain.count_flops(predict, model, one).values())
    minimum = max(2, MIN_EXAMPLES // max(1, targets_per_example(data) // LONG_SEQUENCE_TARGETS))
    if minimum * each > CPU_REFUSAL_OPERATIONS:
        raise LensUnavailable(
            "it would take many minutes for a network of this size on this machine; run thetax "
            "look on an accelerator."
        )
    return subsample(data, min(max_examples, max(minimum, max_operations // each)))


def _curvature_metrics(result: explain.loss_surface.Curvature) -> dict[str, str]:
    sharp, trace = result.sharpness, result.trace
    top, bottom = result.spectrum.top, result.spectrum.bottom
    error = max(sharp.bound, 10.0 ** np.floor(np.log10(max(abs(sharp.eigenvalue), 1e-12)) - 3))
    return {
        "largest eigenvalue": f"{sharp.eigenvalue:.4g} ± {error:.1g}",
        "smallest eigenvalue found": f"{bottom[0]:.3g}",
        "ratio of second to first eigenvalue": f"{top[1] / top[0]:.2f}"
        if len(top) > 1 and top[0] > 0
        else "–",
        "trace": f"{trace.value:.4g} ± {trace.error:.2g}",
        f"worst-case loss increase within distance {sharp.radius:g}": f"{sharp.increase:.3g} "
        f"(loss {sharp.loss:.3g})",
        "gradient norm": f"{sharp.gradient_norm:.3g}",
    }


@lens(
    "Hessian eigenvalues and sharpness",
    description="Density of the eigenvalues of the Hessian of the training loss at the final "
    f"parameters, estimated by the Lanczos method on at most {MAX_CURVATURE_EXAMPLES:,} training "
    "examples (fewer for slow models on a CPU). Large eigenvalues are directions of high "
    "curvature; a flat minimum has few of them. The worst-case increase of the loss is to second "
    "order, within the given distance of the final parameters.",
    metrics=_curvature_metrics,
)
def _curvature(outcome: Outcome) -> explain.loss_surface.Curvature:
    return explain.curvature(
        outcome.objective, outcome.model, curvature_examples(outcome), key=jr.key(0)
    )

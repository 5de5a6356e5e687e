"""Lenses on the neural tangent kernel (NTK): eigenvalues, classes, lazy training against feature
learning, and infinite width.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import explain
from ...core import Batch, apply, predict
from ...recipes.engine.outcome import Outcome
from ..registry import MIN_EXAMPLES, LensUnavailable, format_percent, is_classifier, lens, subsample

MAX_EXAMPLES = 300  # examples of the kernel
MAX_KERNEL_ROWS = 800  # examples times outputs of a kernel over all pairs of outputs
MAX_STEPS, MIN_STEPS = 1000, 150  # training steps; fewer would learn nothing
MAX_KERNEL_OPERATIONS = 2e10  # operations of a kernel on a CPU: a few seconds
MAX_TRAINING_OPERATIONS = 6e10  # operations of a training on a CPU
MAX_TEST_EXAMPLES = 200  # test examples for both networks
ACCELERATOR_SPEEDUP = 100  # times as many operations are allowed on an accelerator


def _output(outcome: Outcome) -> Any:
    """Shape and dtype of the output for one example, or None if it is not a float vector."""
    one = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), outcome.train[0])
    out = jax.eval_shape(lambda model, x: apply(model, x), outcome.model, one)
    is_vector = hasattr(out, "ndim") and out.ndim < 2 and jnp.issubdtype(out.dtype, jnp.floating)
    return out if is_vector else None


def has_vector_output(outcome: Outcome) -> bool:
    """Whether the model has parameters and one output vector and one target per example, not one
    per time step.
    """
    if not (isinstance(outcome.train, tuple) and len(outcome.train) == 2) or not jax.tree.leaves(
        outcome.model
    ):
        return False
    ys = outcome.train[1]
    if not hasattr(ys, "dtype") or (np.issubdtype(ys.dtype, np.integer) and ys.ndim > 1):
        return False
    return _output(outcome) is not None


def _affordable(max_operations: float) -> float:
    return max_operations * (1 if jax.default_backend() == "cpu" else ACCELERATOR_SPEEDUP)


def examples(outcome: Outcome, data: Batch, max_examples: int = MAX_EXAMPLES) -> Batch:
    """As many examples as the kernel can be computed for in a few seconds; raises
    `LensUnavailable` if these are too few.
    """
    one = jax.tree.map(lambda a: a[:1], data[0])
    gradient = jax.grad(lambda model: predict(model, one).sum())(outcome.model)
    if not any(bool(jnp.any(leaf != 0)) for leaf in jax.tree.leaves(gradient)):
        raise LensUnavailable(
            "the gradient of the outputs with respect to the parameters is zero (as with a sign "
            "activation), so the kernel is 0."
        )
    outputs = max(1, _output(outcome).size)
    each = sum(explain.count_flops(predict, outcome.model, one).values()) * (1 + 2 * outputs)
    kernel = explain.ntk(outcome.model, form="trace")
    count = max_examples
    while count >= MIN_EXAMPLES:
        batch = subsample(data, count)
        n = len(jax.tree.leaves(batch)[0])
        if kernel.plan(batch[0]).multiplications + n * each <= _affordable(MAX_KERNEL_OPERATIONS):
            return batch
        count = min(count, n) * 2 // 3
    raise LensUnavailable(
        f"the kernel of {MIN_EXAMPLES} examples would take too long on this machine; run thetax "
        "look on an accelerator."
    )


def _spectrum_metrics(result: explain.TangentSpectrum) -> dict[str, str]:
    n = len(result.eigenvalues)
    mean = float(result.eigenvalues.mean())
    dimension = lambda ridge: f"{float(result.effective_dimension(ridge)):.1f} of {n}"
    metrics = {
        "kernel-target alignment": f"{result.alignment:.3f}",
        "50 % of the targets in": f"the first {result.n_eigenvectors(0.5)} of {n} eigenvectors",
        "90 % of the targets in": f"the first {result.n_eigenvectors(0.9)}",
        "effective dimension at the mean eigenvalue": dimension(mean),
    }
    if result.weight_decay:
        metrics["effective dimension at the weight decay"] = dimension(result.weight_decay)
    return metrics | {"ratio of largest to mean eigenvalue": f"{result.eigenvalues[0] / mean:.3g}"}


@lens(
    "Neural tangent kernel: eigenvalues and target alignment",
    description=f"Eigenvalues of the neural tangent kernel (NTK) on at most {MAX_EXAMPLES} "
    "training examples. Under gradient flow near these parameters, the component of the targets "
    "along an eigenvector is learnt at a rate equal to its eigenvalue. The effective dimension is "
    "the number of directions kept by a ridge penalty λ, or by early stopping at time 1/λ. The "
    "lower panel shows the share of the targets in the span of the leading eigenvectors: the "
    "steeper it rises, the sooner they are learnt; noise follows the dashed line. The "
    "kernel-target alignment is 1 if examples are as similar to each other as their targets are.",
    applies=has_vector_output,
    metrics=_spectrum_metrics,
)
def _spectrum(outcome: Outcome) -> explain.TangentSpectrum:
    batch = examples(outcome, outcome.train)
    return explain.tangent_spectrum(outcome.model, batch, weight_decay=outcome.decay or None)


def _class_metrics(result: explain.KernelMap) -> dict[str, str]:
    k = len(result.classes)
    metrics = {
        "mean cosine within a class": f"{result.within:.3f}",
        "mean cosine between classes": f"{result.between:.3f}",
    }
    off = np.where(
        np.eye(k, dtype=bool) | np.isnan(result.class_means), -np.inf, result.class_means
    )
    if k > 2 and np.isfinite(off.max()):
        i, j = np.unravel_index(off.argmax(), off.shape)
        metrics["most similar classes"] = (
            f"{result.classes[i]} and {result.classes[j]}, {off.max():.3f}"
        )
    return metrics


@lens(
    "Neural tangent kernel by class",
    description="Cosine similarity of the gradients of pairs of training examples (at most "
    f"{MAX_EXAMPLES}, sorted by class): the normalised NTK. Blue pairs are more similar than "
    "average, so a step on one improves the other; orange pairs are less similar. A network that "
    "has learnt its classes shows blue blocks on the diagonal.",
    applies=lambda outcome: is_classifier(outcome) and has_vector_output(outcome),
    metrics=_class_metrics,
)
def _by_class(outcome: Outcome) -> explain.KernelMap:
    xs, ys = examples(outcome, outcome.train)
    ys = jnp.asarray(ys)
    return explain.kernel_map(outcome.model, (xs, ys), classes=outcome.classes)


def _drift_metrics(result: explain.KernelDrift) -> dict[str, str]:
    return {
        "verdict": result.verdict,
        "change of the kernel": f"{format_percent(result.kernel_change)} "
        f"(S = {result.distance[-1]:.3g}, centred)",
        "distance of uncentred kernels": f"S = {result.uncentred_distance[-1]:.3g}",
        "relative change of the parameters": format_percent(result.parameter_change[-1]),
        "alignment with the targets": f"from {result.alignment[0]:.3f} to "
        f"{result.alignment[-1]:.3f}",
    }


def has_initial_model(outcome: Outcome) -> bool:
    """Whether the initial model is known and has the same parameter shapes."""
    shapes = lambda model: jax.tree.map(jnp.shape, model)
    return (
        has_vector_output(outcome)
        and outcome.start is not None
        and shapes(outcome.start) == shapes(outcome.model)
    )


@lens(
    "Lazy training or feature learning",
    description="Left: the neural tangent kernel of pairs of training examples, after against "
    "before training; on the dashed line nothing changed. Right: the relative change of each "
    "layer's parameters. A network whose kernel hardly changes is in the lazy regime and behaves "
    "like a linear model with fixed features; one whose kernel aligns with the targets has learnt "
    "features. By convention it is called lazy if the centred, normalised kernel changed by less "
    "than 20 %, and feature learning from 50 %.",
    applies=has_initial_model,
    metrics=_drift_metrics,
)
def _drift(outcome: Outcome) -> explain.KernelDrift:
    return explain.kernel_drift([outcome.start, outcome.model], examples(outcome, outcome.train))


def _comparison_metrics(result: explain.LinearisedComparison) -> dict[str, str]:
    linearised, full = result.errors[:, -1]
    kind = "test error" if result.is_classification else "unexplained variance"
    return {
        f"{kind}, linearised": format_percent(linearised),
        f"{kind}, full network": format_percent(full),
        "difference of the outputs": f"{format_percent(result.gap[-1])} of their change in "
        "training",
        "steps": f"{result.steps[-1]:,} with learning rate {result.learning_rate:.3g}, on "
        f"{result.n_examples} examples",
    }


@lens(
    "Linearised against full training",
    description="Training curves of the network and of its linearisation (first-order Taylor "
    "expansion) at the initial parameters: both are trained on the squared error on a few "
    "examples, the network by gradient descent with momentum and without dropout, the "
    "linearisation in closed form. Outputs are centred at their initial values. Where the curves "
    "agree, training is lazy; what the network does better on test examples is due to feature "
    "learning.",
    applies=has_initial_model,
    metrics=_comparison_metrics,
)
def _linearised(outcome: Outcome) -> explain.LinearisedComparison:
    outputs = max(1, _output(outcome).size)
    one = jax.tree.map(lambda a: a[:1], outcome.train[0])
    affordable = _affordable(MAX_TRAINING_OPERATIONS) / (
        3 * sum(explain.count_flops(predict, outcome.model, one).values())
    )
    n = min(MAX_EXAMPLES, MAX_KERNEL_ROWS // outputs, int(affordable / MIN_STEPS))
    if n < MIN_EXAMPLES:
        raise LensUnavailable(
            f"{MIN_STEPS} steps on {MIN_EXAMPLES} examples would take too long on this machine, or "
            "the model has too many outputs."
        )
    train = examples(outcome, outcome.train, n)
    steps = int(min(MAX_STEPS, affordable / len(train[1])))
    return explain.compare_linearised(
        outcome.start, train, subsample(outcome.test, MAX_TEST_EXAMPLES), steps=steps
    )


def _power_metrics(result: explain.WidthScaling) -> dict[str, str]:
    names = "distance to the infinite-width kernel", "kernel change", "parameter change"
    return {
        name: f"width to the power {power:.2f}".replace("-", "−")
        for name, power in zip(names, result.exponents)
    }


@lens(
    "Neural tangent kernel against width",
    description="Three relative distances against network width: initial NTK to its infinite-width "
    "limit, NTK before to after training, and parameters before to after training. Each point is a "
    "network, the lines are means with fitted powers. Theory predicts that the first decreases as "
    "1/√width and the second at least as fast.",
    applies=lambda outcome: isinstance(outcome.measured, explain.WidthScaling),
    metrics=_power_metrics,
)
def _widths(outcome: Outcome) -> explain.WidthScaling:
    return outcome.measured


@lens(
    "Trained networks against the infinite-width limit",
    description="Mean and standard deviation of the outputs of an ensemble of trained networks on "
    "test examples, against the closed-form prediction for infinitely wide networks after as many "
    "steps. Agreement is on the dashed line; narrow networks and small ensembles deviate from it.",
    applies=lambda outcome: isinstance(outcome.measured, explain.InfiniteWidthComparison),
    metrics=lambda result: dict(
        zip(
            ("correlation of means", "correlation of standard deviations"),
            map("{:.3f}".format, result.agreement),
        )
    ),
)
def _infinite_width(outcome: Outcome) -> explain.InfiniteWidthComparison:
    return outcome.measured

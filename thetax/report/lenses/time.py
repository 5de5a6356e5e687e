"""Lenses on sequence models: gradients through time, eigenvalues, attention alignment."""

import jax
import numpy as np

from ... import explain, tree
from ...layers import Ensemble
from ...recipes.engine.outcome import Outcome
from ..registry import lens, subsample

MAX_SEQUENCES = 4
MAX_LAG = 100  # time steps back from the last
FULL_COST_STATE_SIZE = 256  # with a larger state, fewer sequences and steps are used


def is_recurrent(outcome: Outcome) -> bool:
    """Whether the model has a recurrent cell with a float state, and is not an ensemble."""
    if isinstance(outcome.model, Ensemble):
        return False
    states = [jax.tree.leaves(cell.start) for cell in explain.recurrent_cells(outcome.model)]
    return bool(states) and all(
        np.issubdtype(z.dtype, np.inexact) for state in states for z in state
    )


def sequences_and_steps(size: int) -> tuple[int, int]:
    """Number of sequences and time steps to use for a state of this size; the cost grows with its
    cube.

    >>> sequences_and_steps(64), sequences_and_steps(1024)
    ((4, 100), (1, 10))
    """
    share = min(1.0, (FULL_COST_STATE_SIZE / max(size, 1)) ** 3)
    return max(1, round(MAX_SEQUENCES * share)), max(10, round(MAX_LAG * share))


def _gradient_metrics(result: explain.signal.GradientsThroughTime) -> dict[str, str]:
    steps = result.norms.shape[1]
    mean_norms = result.norms.mean(axis=0)
    rate = result.mean_factor
    trend = (
        "explodes"
        if rate > 1.02
        else "neither vanishes nor explodes"
        if rate > 0.98
        else "vanishes"
    )
    metrics = {"mean factor per step": f"{rate:.4g}: the gradient {trend}"}
    metrics |= {
        f"Jacobian norm after {n} step{'s' if n > 1 else ''}": f"{mean_norms[n - 1]:.3g}"
        for n in sorted({1, min(10, steps), steps})
    }
    if result.bound is not None:
        metrics["upper bound per step"] = f"{result.bound[0]:.4g}"
    return metrics | {"size of the state": str(result.state_size)}


@lens(
    "Gradients through time",
    description="Norm of the Jacobian of the last state with respect to the state some steps "
    f"earlier, on at most {MAX_SEQUENCES} test sequences and the last {MAX_LAG} steps. Gradients "
    "backpropagated through time shrink (vanish) or grow (explode) by this factor. The band goes "
    "from the smallest to the largest sequence; for a plain recurrent cell the dashed line is an "
    "upper bound from the weights.",
    applies=is_recurrent,
    metrics=_gradient_metrics,
)
def _through_time(outcome: Outcome) -> explain.signal.GradientsThroughTime:
    xs = subsample(outcome.test, MAX_SEQUENCES)[0]
    recurrence = explain.capture_recurrence(outcome.model, jax.tree.map(lambda a: a[:1], xs))
    n_sequences, n_steps = sequences_and_steps(tree.size(recurrence.start))
    return explain.gradients_through_time(
        outcome.model, jax.tree.map(lambda a: a[:n_sequences], xs), max_lag=n_steps
    )


def _eigenvalue_metrics(result: explain.signal.RecurrenceEigenvalues) -> dict[str, str]:
    size = np.abs(result.values)
    times = result.time_constants
    longest = "infinite" if np.isinf(times.max()) else f"{times.max():.3g} steps"
    return {
        "eigenvalues of": result.source,
        "spectral radius": f"{size.max():.4g}",
        "outside the unit disk": f"{int(result.is_unstable.sum())} of {len(size)}",
        "longest time constant": longest,
        "median time constant": f"{np.median(times):.3g} steps",
    }


@lens(
    "Eigenvalues of the recurrence",
    description="Eigenvalues of the Jacobian of one recurrent step in the complex plane. "
    "Directions with an eigenvalue inside the unit circle decay, those outside (orange) grow; the "
    "angle is the rotation per step. Right: the time constant of each direction, the number of "
    "steps until 1/e of it is left.",
    applies=is_recurrent,
    metrics=_eigenvalue_metrics,
)
def _eigenvalues(outcome: Outcome) -> explain.signal.RecurrenceEigenvalues:
    return explain.recurrence_eigenvalues(outcome.model, subsample(outcome.test, 1)[0])


def has_cross_attention(outcome: Outcome) -> bool:
    """Whether the model has attention from one sequence to another."""
    return (
        hasattr(outcome.model, "alignment")
        and getattr(outcome.model, "attention", True) is not None
    )


def _alignment_metrics(result: explain.attribution.AttentionAlignment) -> dict[str, str]:
    entropy = -(result.weights * np.log(np.maximum(result.weights, 1e-12))).sum(axis=1)
    return {
        "effective number of source tokens attended to": f"{np.exp(entropy).mean():.3g} of "
        f"{len(result.source)} on average"
    }


@lens(
    "Attention alignment",
    description="Attention weights from each target token (row) to the tokens of the source "
    "(columns), on the first test sequence. Each row sums to one; the last row is the model's own "
    "next token.",
    applies=has_cross_attention,
    metrics=_alignment_metrics,
)
def _alignment(outcome: Outcome) -> explain.attribution.AttentionAlignment:
    source, target = jax.tree.map(lambda a: a[0], outcome.test[0])
    return explain.attention_alignment(
        outcome.model, source, target, vocabs=(outcome.tokens, outcome.classes)
    )

"""Lenses on time: what a recurrent network keeps, why, and where an attentive one looks."""

import jax
import numpy as np

from ... import explain, tree
from ...layers import Ensemble
from ...recipes.engine.outcome import Outcome
from ..registry import lens, subsample

MAX_SEQUENCES = 4
MAX_LAG = 100  # steps back from the last
FULL_COST_STATE_SIZE = 256  # the size of a state up to which all of these are looked at


def recurs(outcome: Outcome) -> bool:
    """Whether there is a cell in the model, of a state that has slopes, and not one of several
    networks at once.
    """
    if isinstance(outcome.model, Ensemble):
        return False
    states = [jax.tree.leaves(cell.start) for cell in explain.cells(outcome.model)]
    return bool(states) and all(
        np.issubdtype(z.dtype, np.inexact) for state in states for z in state
    )


def sequences_and_steps(size: int) -> tuple[int, int]:
    """How many sequences and steps of a state of that size are looked at: the work grows with its
    cube.

    >>> sequences_and_steps(64), sequences_and_steps(1024)
    ((4, 100), (1, 10))
    """
    share = min(1.0, (FULL_COST_STATE_SIZE / max(size, 1)) ** 3)
    return max(1, round(MAX_SEQUENCES * share)), max(10, round(MAX_LAG * share))


def _kept(result: explain.ThroughTime) -> dict[str, str]:
    steps = result.norms.shape[1]
    left = result.norms.mean(axis=0)
    rate = result.rate
    fate = (
        "explodes"
        if rate > 1.02
        else "neither vanishes nor explodes"
        if rate > 0.98
        else "vanishes"
    )
    told = {"a step multiplies a change by": f"{rate:.4g}, on average: it {fate}"}
    told |= {
        f"left after {n} step{'s' if n > 1 else ''}": f"{left[n - 1]:.3g}"
        for n in sorted({1, min(10, steps), steps})
    }
    if result.bound is not None:
        told["at most a step, by the weights"] = f"{result.bound[0]:.4g}"
    return told | {"numbers in the state": str(result.size)}


@lens(
    "Signal through time",
    says="How much a small change of the state still matters so many steps later, on at most "
    f"{MAX_SEQUENCES} test sequences and over at most the last {MAX_LAG} steps: the exact norm of "
    "the product of the steps' Jacobians. The gradient that comes back shrinks or grows by as "
    "much. The band is from the least to the most. Of a plain recurrent cell the weights alone "
    "give a bound, the dashed line.",
    applies=recurs,
    tells=_kept,
)
def _through_time(outcome: Outcome) -> explain.ThroughTime:
    xs = subsample(outcome.test, MAX_SEQUENCES)[0]
    found = explain.recurrence(outcome.model, jax.tree.map(lambda a: a[:1], xs))
    count, times = sequences_and_steps(tree.size(found.start))
    return explain.through_time(outcome.model, jax.tree.map(lambda a: a[:count], xs), times=times)


def _spread(result: explain.Eigenvalues) -> dict[str, str]:
    size = np.abs(result.values)
    times = result.times
    longest = "for ever" if np.isinf(times.max()) else f"{times.max():.3g} steps"
    return {
        "eigenvalues of": result.of,
        "largest absolute value": f"{size.max():.4g}",
        "outside the unit disk": f"{int(result.outside.sum())} of {len(size)}",
        "the longest until 1/e is left": longest,
        "the median": f"{np.median(times):.3g} steps",
    }


@lens(
    "Eigenvalues of the recurrence",
    says="By what a step multiplies the state, along each of its own directions. Inside the unit "
    "disk a direction fades, at its edge it stays, outside, in orange, it grows; the angle is by "
    "how much it turns a step. Beside the disk, how many steps pass until 1/e of a direction is "
    "left.",
    applies=recurs,
    tells=_spread,
)
def _eigenvalues(outcome: Outcome) -> explain.Eigenvalues:
    return explain.eigenvalues(outcome.model, subsample(outcome.test, 1)[0])


def attends(outcome: Outcome) -> bool:
    """Whether the model looks from one sequence at another."""
    return (
        hasattr(outcome.model, "alignment")
        and getattr(outcome.model, "attention", True) is not None
    )


def _looks(result: explain.Alignment) -> dict[str, str]:
    entropy = -(result.weights * np.log(np.maximum(result.weights, 1e-12))).sum(axis=1)
    return {
        "looks, on average, at": f"{np.exp(entropy).mean():.3g} of {len(result.source)} tokens at "
        "once"
    }


@lens(
    "Alignment",
    says="Where the first test sequence is looked at while each token of its target is written: a "
    "row is the token that comes next, in the last row the model's own guess, and its shades, "
    "which sum to one, are the attention then given to the source.",
    applies=attends,
    tells=_looks,
)
def _alignment(outcome: Outcome) -> explain.Alignment:
    source, target = jax.tree.map(lambda a: a[0], outcome.test[0])
    return explain.alignment(outcome.model, source, target, names=(outcome.tokens, outcome.classes))

r"""What a cell remembers (§5, §5.1): two problems whose answer lies a hundred steps back.

An Elman cell with $\sigma_1(U) = s < 1$ and $|\varphi'| \le 1$ brings any two states together,
$\|z_T - z_T'\| \le s^{T}\|z_0 - z_0'\|$, whatever it reads after them; so it provably forgets.
Gates and linear recurrences need not.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import PRNGKeyArray

from ...core import Batch, Model, Objective
from ...layers import Elman, Ensemble
from ...train import Fit, descend, fit, restarts
from ..engine.job import Job, positive
from . import recurrent_encoders as cells

TESTED = 2000  # sequences
SHRINKS = 0.9  # the largest singular value that one of the Elman cells may have
CLIP = 1.0  # the longest gradient


class Entrant(NamedTuple):
    """A cell, how fast it learns beside the others, and the largest singular value its U may
    have.
    """

    draw: Callable[..., Any]
    pace: float = 1.0
    limit: float | None = None


ENTRANTS = {
    f"Elman, σ₁(U) ≤ {SHRINKS}": Entrant(cells.elman, 0.3, SHRINKS),
    "Elman": Entrant(cells.elman, 0.3),
    "GRU": Entrant(cells.gru),
    "LSTM": Entrant(cells.lstm),
    "LRU": Entrant(cells.lru, 0.2),
}


def contract(limit: float) -> optax.GradientTransformation:
    r"""Comes last in a chain: after the step no singular value of an Elman cell's $U$ is more than
    `limit`.
    """

    def update(updates, state, params=None):
        def one(step, cell):
            if not isinstance(cell, Elman):
                return step
            left, s, right = jnp.linalg.svd(cell.U + step.U)
            return Elman(
                (left * jnp.minimum(s, limit)[None]) @ right - cell.U,
                step.V,
                step.b,
                cell.activation,
            )

        return jax.tree.map(
            one, updates, params, is_leaf=lambda node: isinstance(node, Elman)
        ), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def race(
    job: Job,
    draw: Callable[..., Model],
    train: Batch,
    *,
    objective: Objective,
    times: int,
    members: int,
    rate: float,
    epochs: int,
    batch: int,
    key: PRNGKeyArray,
    entrants: dict[str, Entrant] = ENTRANTS,
) -> dict[str, Fit]:
    """Fits `members` networks of each cell at once, by Adam with clipped gradients, the rate
    falling to zero.
    """
    positive(times=times, members=members, rate=rate, epochs=epochs, batch=batch)
    found = {}
    steps = max(1, epochs * (len(train[1]) // batch))
    for place, (name, entrant) in enumerate(entrants.items()):
        job.say(name)
        key_init, key_fit = jr.split(jr.fold_in(key, place))
        nets = Ensemble.init(
            partial(draw, cell=partial(entrant.draw, times=times)), members, key=key_init
        )
        optimiser = optax.chain(
            optax.clip_by_global_norm(CLIP),
            optax.adam(optax.cosine_decay_schedule(entrant.pace * rate, steps)),
            *([] if entrant.limit is None else [contract(entrant.limit)]),
        )
        found[name] = fit(
            restarts(descend(objective, optimiser)),
            nets,
            train,
            epochs=epochs,
            batch_size=batch,
            key=key_fit,
            run=job.part(f"cell-{place}"),
            progress=job.progress,
        )
    return found


def judged(
    nets: Ensemble, test: Batch, name: str, metric: Objective, times: int
) -> dict[str, float]:
    """The metric, its mean over the networks and the worst; for Elman cells the bound on what is
    left of a state.
    """
    each = jax.jit(jax.vmap(lambda net: metric(net, test)))(nets.members)
    row = {name: float(each.mean()), "the worst": float(each.max())}
    if isinstance(nets.members.cell, Elman):
        s = float(jnp.linalg.norm(nets.members.cell.U, ord=2, axis=(1, 2)).mean())
        row |= {"σ₁(U)": s, f"σ₁(U)^{times}": s**times}
    return row


def first(nets: Ensemble) -> Any:
    """One network of several: the first, which is no better than another."""
    return jax.tree.map(lambda leaf: leaf[0], nets.members)

r"""Tasks that need a memory of many steps (§5, §5.1), for several recurrent cells.

An Elman cell with $\sigma_1(U) = s < 1$ and $|\varphi'| \le 1$ contracts any two states,
$\|z_T - z_T'\| \le s^{T}\|z_0 - z_0'\|$, for all later inputs; so it provably forgets. Gated cells
and linear recurrences need not.
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
from ...train import FitResult, descend, fit, per_member
from ..engine.job import Job, check_positive
from . import cells

N_TEST = 2000  # sequences
MAX_SINGULAR_VALUE = 0.9  # of one of the Elman cells
MAX_GRADIENT_NORM = 1.0


class CellSpec(NamedTuple):
    """The initialiser of a cell, a factor of the learning rate, and a bound on the singular values
    of U.
    """

    init: Callable[..., Any]
    learning_rate_factor: float = 1.0
    max_singular_value: float | None = None


CELL_SPECS = {
    f"Elman, σ₁(U) ≤ {MAX_SINGULAR_VALUE}": CellSpec(cells.elman, 0.3, MAX_SINGULAR_VALUE),
    "Elman": CellSpec(cells.elman, 0.3),
    "GRU": CellSpec(cells.gru),
    "LSTM": CellSpec(cells.lstm),
    "LRU": CellSpec(cells.lru, 0.2),
}


def clip_singular_values(max_singular_value: float) -> optax.GradientTransformation:
    """Clips the singular values of the U of Elman cells after the step; must be last in a chain."""

    def update(updates, state, params=None):
        def one(step, cell):
            if not isinstance(cell, Elman):
                return step
            left, s, right = jnp.linalg.svd(cell.U + step.U)
            return Elman(
                (left * jnp.minimum(s, max_singular_value)[None]) @ right - cell.U,
                step.V,
                step.b,
                cell.activation,
            )

        return jax.tree.map(
            one, updates, params, is_leaf=lambda node: isinstance(node, Elman)
        ), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def train_cells(
    job: Job,
    init: Callable[..., Model],
    train: Batch,
    *,
    objective: Objective,
    timescale: int,
    n_seeds: int,
    learning_rate: float,
    epochs: int,
    batch_size: int,
    key: PRNGKeyArray,
    cell_specs: dict[str, CellSpec] = CELL_SPECS,
) -> dict[str, FitResult]:
    """Fits `n_seeds` networks of each cell at once, by Adam with clipping and cosine decay."""
    check_positive(
        timescale=timescale,
        n_seeds=n_seeds,
        learning_rate=learning_rate,
        epochs=epochs,
        batch_size=batch_size,
    )
    results = {}
    steps = max(1, epochs * (len(train[1]) // batch_size))
    for i, (name, spec) in enumerate(cell_specs.items()):
        job.note(name)
        key_init, key_fit = jr.split(jr.fold_in(key, i))
        nets = Ensemble.init(
            partial(init, cell=partial(spec.init, timescale=timescale)), n_seeds, key=key_init
        )
        optimiser = optax.chain(
            optax.clip_by_global_norm(MAX_GRADIENT_NORM),
            optax.adam(
                optax.cosine_decay_schedule(spec.learning_rate_factor * learning_rate, steps)
            ),
            *(
                []
                if spec.max_singular_value is None
                else [clip_singular_values(spec.max_singular_value)]
            ),
        )
        results[name] = fit(
            per_member(descend(objective, optimiser)),
            nets,
            train,
            epochs=epochs,
            batch_size=batch_size,
            key=key_fit,
            run=job.part(f"cell-{i}"),
            progress=job.progress,
        )
    return results


def cell_row(
    nets: Ensemble, test: Batch, name: str, metric: Objective, timescale: int
) -> dict[str, float]:
    """Mean and maximum of the metric over the networks; for Elman cells the contraction factor of a
    state.
    """
    values = jax.jit(jax.vmap(lambda net: metric(net, test)))(nets.members)
    row = {name: float(values.mean()), "maximum": float(values.max())}
    if isinstance(nets.members.cell, Elman):
        s = float(jnp.linalg.norm(nets.members.cell.U, ord=2, axis=(1, 2)).mean())
        row |= {"σ₁(U)": s, f"σ₁(U)^{timescale}": s**timescale}
    return row


def first_member(nets: Ensemble) -> Any:
    """The first network of an ensemble."""
    return jax.tree.map(lambda leaf: leaf[0], nets.members)

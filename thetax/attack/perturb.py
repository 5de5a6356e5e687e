"""An attack on every example of a set: many at once, one compiled program, another radius no new
one.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..core import BATCH, Model
from ..progress import counted
from ..threat.inputs import check_attacked
from .base import Attack
from .continuous_batching import IterativeAttack, run_batched


def perturb(
    attack: Attack,
    model: Model,
    data: tuple[Any, Any],
    *,
    key: PRNGKeyArray | None = None,
    batch: int = 64,
) -> Float[Array, "n *s"]:
    """The attack's answer to every example of `(xs, ys)`, so many at once; with a key, a key for
    each.

    Where the attack is done with an example before its last step, the next one takes its place. On
    an accelerator a larger `batch` is faster; on a CPU it is not.

    >>> from thetax.attack import PGD, margin_loss

    >>> from thetax.threat import Linf
    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[0.0, 0.0], [1.0, -2.0]]), jnp.zeros(2))
    >>> perturb(
    ...     PGD(margin_loss, Linf(0.5), step_size=0.5, steps=1),
    ...     line,
    ...     (jnp.zeros((3, 2)), jnp.zeros(3, int)),
    ... ).tolist()
    [[0.5, -0.5], [0.5, -0.5], [0.5, -0.5]]
    """
    xs, ys = check_attacked("perturb", attack, model, data)
    if batch < 1:
        raise ValueError(f"perturb: batch must be at least 1; got {batch}.")
    n = len(xs)
    size = min(batch, len(xs))
    keys = None if key is None else jr.split(key, n)
    attack = jax.tree.map(
        lambda leaf: jnp.asarray(leaf) if isinstance(leaf, float | int) else leaf, attack
    )
    with counted(f"perturb, {type(attack).__name__}: examples", n) as update:
        if isinstance(attack, IterativeAttack):
            return jnp.asarray(run_batched(attack, model, xs, ys, keys, places=size, done=update))
        blocks = []
        for first in range(0, n, size):
            rows = np.minimum(
                np.arange(first, first + size), n - 1
            )  # the last block is as long as the others
            block = _compiled(
                attack, model, xs[rows], ys[rows], None if keys is None else keys[rows]
            )
            blocks.append(np.asarray(block)[: n - first])
            update(min(first + size, n))
    return jnp.asarray(np.concatenate(blocks))


def answers(attack: Attack, model: Model, xs: Array, ys: Array, keys: Any) -> Array:
    """What the attack makes of every example, side by side; `keys` one for each, or nothing."""
    call = lambda x, y, key: attack(model, x, y, key=key)
    return jax.vmap(call, in_axes=(0, 0, None if keys is None else 0), axis_name=BATCH)(
        xs, ys, keys
    )


_compiled = eqx.filter_jit(answers)

"""An attack on every example of a set: many at once, one compiled program, another radius no new one."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..core import BATCH, Model, expect_floats
from ..data.check import check_examples, check_labels
from ..data.progress import counted
from ..layers import has_batch_norm
from .attempt import Attack, check_input
from .search import Searching, search_all


def perturb(
    attack: Attack, model: Model, data: tuple[Any, Any], *, key: PRNGKeyArray | None = None, batch: int = 64
) -> Float[Array, "n *s"]:
    """The attack's answer to every example of `(xs, ys)`, so many at once; with a key, a key for each.

    Where the attack is done with an example before its last step, the next one takes its place. On an accelerator a
    larger `batch` is faster; on a CPU it is not.

    >>> from thetax.attack import PGD, Linf, margin
    >>> from thetax.layers import Linear
    >>> line = Linear(jnp.array([[0.0, 0.0], [1.0, -2.0]]), jnp.zeros(2))
    >>> perturb(PGD(margin, Linf(0.5), rate=0.5, steps=1), line, (jnp.zeros((3, 2)), jnp.zeros(3, int))).tolist()
    [[0.5, -0.5], [0.5, -0.5], [0.5, -0.5]]
    """
    xs, ys = check_attacked("perturb", attack, model, data)
    if batch < 1:
        raise ValueError(f"perturb: batch must be at least 1; got {batch}.")
    n, size = len(xs), min(batch, len(xs))
    keys = None if key is None else jr.split(key, n)
    attack = jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, float | int) else leaf, attack)
    with counted(f"perturb, {type(attack).__name__}: examples", n) as update:
        if isinstance(attack, Searching):
            return jnp.asarray(search_all(attack, model, xs, ys, keys, places=size, done=update))
        blocks = []
        for first in range(0, n, size):
            rows = np.minimum(np.arange(first, first + size), n - 1)  # the last block is as long as the others
            block = _compiled(attack, model, xs[rows], ys[rows], None if keys is None else keys[rows])
            blocks.append(np.asarray(block)[: n - first])
            update(min(first + size, n))
    return jnp.asarray(np.concatenate(blocks))


def answers(attack: Attack, model: Model, xs: Array, ys: Array, keys: Any) -> Array:
    """What the attack makes of every example, side by side; `keys` one for each, or nothing."""
    call = lambda x, y, key: attack(model, x, y, key=key)
    return jax.vmap(call, in_axes=(0, 0, None if keys is None else 0), axis_name=BATCH)(xs, ys, keys)


_compiled = eqx.filter_jit(answers)


def check_attacked(name: str, attack: Any, model: Model, data: Any) -> tuple[Array, Array]:
    """The examples and labels as arrays, once they are known to be what an attack can begin with."""
    if not (isinstance(data, tuple) and len(data) == 2):
        raise ValueError(f"{name}: expected data as a pair (xs, ys), got a {type(data).__name__}.")
    if has_batch_norm(model):
        raise ValueError(f"{name}: batch normalisation ties the examples together; fold it in: fold(model, xs).")
    expect_floats(f"{name}: xs", data[0]) if hasattr(data[0], "dtype") else None
    n = check_examples(data[0], name=f"{name}: xs")
    if (came := check_examples(data[1], name=f"{name}: ys")) != n:
        raise ValueError(f"{name}: expected a y for each x, but there are {n} xs and {came} ys.")
    xs, ys = jnp.asarray(data[0]), jnp.asarray(data[1])
    check_input(name, model, xs, jnp.zeros(0), getattr(attack, "box", None))
    out = jax.eval_shape(lambda x: model(x), xs[0])
    if attack is None and out.shape in ((), (1,)):  # where classes are compared
        cure = "give it the other one too: lambda x: jnp.concatenate([jnp.zeros(1), model(x).reshape(1)])."
        raise ValueError(f"{name}: expected a logit for each class, but the model gives a single one; {cure}")
    labels = jnp.issubdtype(ys.dtype, jnp.integer) and ys.ndim == 1
    if len(out.shape) == 1 and (labels or attack is None):
        check_labels(ys, out.shape[0], name=f"{name}: ys")
    return xs, ys

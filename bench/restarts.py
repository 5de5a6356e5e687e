"""Sixteen small networks trained in parallel, against the same networks one after another."""

import time
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from thetax.core import run
from thetax.layers import Ensemble
from thetax.models import MLP
from thetax.train import Silent, cross_entropy, descend, fit, per_member

from .mlp import expect_finished
from .row import Result, Row

MEMBERS, STEPS = 16, 20_000


@dataclass(frozen=True, eq=False)
class Small:
    """A small network, sixteen of them, and random training data."""

    name: str
    sizes: tuple[int, ...]
    batch: int

    @cached_property
    def many(self) -> Ensemble:
        """The sixteen initial networks."""
        return Ensemble.init(partial(MLP.init, *self.sizes), MEMBERS, key=jr.key(0))

    @cached_property
    def one(self) -> Any:
        """The first of them."""
        return jax.tree.map(lambda leaf: leaf[0], self.many.members)

    @cached_property
    def iteration(self) -> Any:
        """Adam."""
        return descend(cross_entropy, optax.adam(1e-3))

    @cached_property
    def at_once(self) -> Any:
        """Adam on all of them."""
        return per_member(self.iteration)

    @cached_property
    def data(self) -> tuple[jax.Array, jax.Array]:
        """A hundred batches."""
        rng = np.random.default_rng(0)
        xs = rng.standard_normal((100 * self.batch, self.sizes[0]), np.float32)
        return jnp.asarray(xs), jnp.asarray(rng.integers(0, self.sizes[-1], len(xs)), jnp.int32)

    def together(self) -> float:
        """Microseconds per step of all in parallel."""
        return self._cost(self.at_once, self.many)

    def apart(self) -> float:
        """Microseconds per step of one, times sixteen."""
        return MEMBERS * self._cost(self.iteration, self.one)

    def _cost(self, iteration: Any, model: Any) -> float:
        start = time.perf_counter()
        settings = {
            "epochs": STEPS // 100,
            "batch_size": self.batch,
            "key": jr.key(1),
            "progress": Silent(),
        }
        result = expect_finished(fit(iteration, model, self.data, **settings))
        return 1e6 * (time.perf_counter() - start) / result.steps

    def check(self) -> None:
        """Raises unless a member of the ensemble and a single network agree."""
        batches = jax.tree.map(lambda a: a.reshape(100, self.batch, *a.shape[1:]), self.data)
        single, _ = run(self.iteration, self.one, batches, key=jr.key(0))
        ensemble, _ = run(self.at_once, self.many, batches, key=jr.key(0))
        for a, b in zip(
            jax.tree.leaves(single.model), jax.tree.leaves(ensemble.model.members), strict=True
        ):
            np.testing.assert_allclose(a, b[0], rtol=1e-3, atol=1e-5)


def remark(result: Result) -> str:
    """The cost of all relative to one."""
    assert result.ratio is not None
    return (
        f"{MEMBERS} in parallel cost {MEMBERS / result.ratio:.2f} times one (target: less than 4)"
    )


def describe() -> str:
    """A description of the work."""
    return (
        f"Adam on {MEMBERS} networks at once by vmap, against the same networks one after another."
    )


def rows() -> list[Row]:
    """The networks of a toy problem and of the spam exercise."""
    smalls = [
        Small("2-16-2, batch 32", (2, 16, 2), 32),
        Small("57-10-2, batch 32", (57, 10, 2), 32),
    ]
    return [
        Row(
            s.name,
            "one by one",
            s.together,
            s.apart,
            "µs/step of 16",
            s.check,
            pairs=5,
            target=4.0,
            seconds=1e-6,
            remark=remark,
        )
        for s in smalls
    ]

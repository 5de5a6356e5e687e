"""Continuous batching: finished examples free their slots, and no example is lost, repeated or
changed.
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thetax.attack import APGD, PGD, DeepFool, perturb, untargeted
from thetax.attack.continuous_batching import AttackLoop, IterativeAttack, run_batched
from thetax.layers import Linear, tanh
from thetax.models import MLP
from thetax.threat import Linf


class Countdown(NamedTuple):
    """Takes as many steps as the label says, and returns x plus 1000 times their number."""

    def loop(self, model: Any, x: Any, y: Any, *, key: Any = None) -> AttackLoop:
        init = lambda: jnp.zeros((), int)
        return AttackLoop(init, lambda n: n < y, lambda n: n + 1, lambda n: model(x) + 1000 * n)

    def __call__(self, model: Any, x: Any, y: Any, *, key: Any = None) -> Any:
        return self.loop(model, x, y, key=key).run()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.sampled_from([1, 2, 5, 8]))
def test_every_example_has_one_result(steps, slots):
    """Examples take 0 to 9 steps each, with 1 to 8 slots; progress never decreases, and ends with
    all of them.
    """
    n = len(steps)
    progress = []
    xs = jnp.arange(n, dtype=float)[:, None]
    ys = jnp.asarray(steps)
    found = run_batched(
        Countdown(), lambda x: x, xs, ys, None, slots=slots, on_progress=progress.append
    )
    assert found[:, 0].tolist() == [i + 1000 * k for i, k in enumerate(steps)]
    assert progress == sorted(progress)
    assert progress[-1] == n


class Watched(Countdown):
    """Records every step."""

    seen: ClassVar[list] = []

    def loop(self, model: Any, x: Any, y: Any, *, key: Any = None) -> AttackLoop:
        loop = super().loop(model, x, y, key=key)

        def step(n):
            jax.debug.callback(lambda _: self.seen.append(1), n)
            return n + 1

        return loop._replace(step=step)


def test_finished_examples_take_no_steps():
    """Of 200 examples one in twenty takes 50 steps and the others 2, that is 880, or 110 rounds of
    8 slots. In 25 blocks of 8, each as long as its slowest, it would be 530 rounds.
    """
    ys = jnp.where(jnp.arange(200) % 20 == 7, 50, 2)
    Watched.seen.clear()
    run_batched(
        Watched(), lambda x: x, jnp.zeros((200, 1)), ys, None, slots=8, on_progress=lambda n: None
    )
    jax.effects_barrier()
    assert 110 <= len(Watched.seen) / 8 <= 200


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "attack",
    [
        PGD(untargeted(), Linf(0.4), step_size=0.1, steps=6, restarts=3),
        APGD(untargeted(), Linf(0.4), steps=6, restarts=2),
        DeepFool(steps=9),
        PGD(untargeted(), Linf(0.4), step_size=0.2, steps=4, output="last"),
    ],
    ids=["PGD", "APGD", "DeepFool", "the last point of PGD"],
)
def test_batched_equals_one_by_one(attack):
    """With fewer slots than examples, as many, and more; each with its own key."""
    net = MLP.init(5, 8, 3, activation=tanh, key=jr.key(0))
    xs = jr.normal(jr.key(1), (11, 5))
    ys = jnp.argmax(jax.vmap(net)(xs), axis=-1)
    assert isinstance(attack, IterativeAttack)
    one = jax.jit(lambda x, y, key: attack(net, x, y, key=key))
    alone = jnp.stack([one(*each) for each in zip(xs, ys, jr.split(jr.key(2), 11))])
    for batch_size in (3, 11, 40):
        together = perturb(net, (xs, ys), attack, key=jr.key(2), batch_size=batch_size).xs
        np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)


def test_another_number_of_examples_does_not_recompile():
    """The number of slots, and so all shapes, stay the same."""
    line = Linear(jnp.eye(3), jnp.zeros(3))
    traces = []

    def counted(x):
        traces.append(x.shape)
        return line(x)

    attack = PGD(untargeted(), Linf(0.1), step_size=0.05, steps=3)
    for n in (9, 20, 33):
        before = len(traces)
        perturb(counted, (jr.uniform(jr.key(n), (n, 3)), jnp.zeros(n, int)), attack, batch_size=4)
    assert len(traces) - before <= 2  # only the check of the shapes

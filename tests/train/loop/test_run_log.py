"""When a run log writes a checkpoint."""

from types import SimpleNamespace

import jax.numpy as jnp
import pytest

from thetax.train import Silent
from thetax.train.loop.run_log import RunLog


class Checkpoints:
    """Records the steps of the checkpoints."""

    def __init__(self):
        self.steps = []

    def save(self, step, arrays, position):
        self.steps.append(step)


def state(steps: int, weight: float = 1.0):
    return SimpleNamespace(
        steps=steps,
        state=SimpleNamespace(model=jnp.array(weight)),
        arrays=dict,
        position=dict,
        rows=(),
    )


@pytest.mark.usefixtures("unchecked")
def test_one_checkpoint_per_step_and_none_of_weights_that_are_not_finite():
    log = RunLog(None, Silent())
    log.checkpoints = Checkpoints()
    log.write_metrics = lambda fit_state: None
    for fit_state in (state(3), state(3), state(5, float("nan")), state(7)):
        log.save(fit_state)
    assert log.checkpoints.steps == [3, 7]

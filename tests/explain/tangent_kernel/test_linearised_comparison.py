"""The linearised network beside the true one: each is trained once more by Optax, and the numbers
are the same.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from thetax.core import predict
from thetax.explain import compare_linearised, linearise
from thetax.explain.tangent_kernel.linearised_comparison import MOMENTUM
from thetax.layers import ntk_parametrisation
from thetax.models import MLP
from thetax.train import squared_error

xs = jr.normal(jr.key(1), (10, 3))
others = jr.normal(jr.key(2), (20, 3))
labels = lambda xs: np.asarray((xs[:, 0] > 0).astype(int) + (xs[:, 1] > 1))
STEPS = 12


def descended(model, data, rate, steps):
    sgd = optax.sgd(rate, MOMENTUM)
    state = sgd.init(model)
    for _ in range(steps):
        change, state = sgd.update(jax.grad(squared_error)(model, data), state)
        model = optax.apply_updates(model, change)
    return model


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("kind", ["classes", "binary", "numbers"])
def test_both_agree_with_optax(kind):
    wide = lambda tree: jax.tree.map(lambda a: jnp.asarray(a, "float64"), tree)
    net = wide(MLP.init(3, 8, 3 if kind == "classes" else 1, key=jr.key(0)))
    a = wide(xs)
    b = wide(others)
    ys, zs = {
        "classes": (labels(a), labels(b)),
        "binary": (labels(a) % 2, labels(b) % 2),
        "numbers": (np.asarray(a[:, 0] * a[:, 1]), np.asarray(b[:, 0] * b[:, 1])),
    }[kind]
    found = compare_linearised(net, (a, ys), (b, zs), steps=STEPS)
    shape = {
        "classes": lambda ys: np.eye(3)[ys] - 1 / 3,
        "binary": lambda ys: 2.0 * ys[:, None] - 1,
    }
    Y, Z = (shape.get(kind, lambda ys: ys[:, None])(part) for part in (ys, zs))
    assert found.steps[0] == 0
    assert found.steps[-1] == STEPS
    hit = a, jnp.asarray(Y) + predict(net, a)
    ends = [descended(model, hit, found.learning_rate, STEPS) for model in (linearise(net), net)]
    outputs = [np.asarray(predict(end, b) - predict(net, b)) for end in ends]
    for row, (end, out) in enumerate(zip(ends, outputs)):
        assert found.losses[row, -1] == pytest.approx(float(squared_error(end, hit)), rel=1e-6)
        wrong = {
            "classes": lambda out: np.mean(out.argmax(1) != zs),
            "binary": lambda out: np.mean((out[:, 0] > 0) != zs),
        }
        spread = np.square(out - Z).mean() / Z.var()
        assert found.errors[row, -1] == pytest.approx(
            wrong[kind](out) if found.is_classification else spread, rel=1e-6
        )
    gap = np.linalg.norm(outputs[1] - outputs[0]) / np.linalg.norm(outputs[1])
    assert found.gap[-1] == pytest.approx(gap, rel=1e-5)
    assert found.gap[0] == 0
    assert found.is_classification == (kind != "numbers")


@pytest.mark.slow
def test_the_gap_closes_as_the_width_grows():
    gap = lambda width: compare_linearised(
        MLP.init(3, width, 3, initialiser=ntk_parametrisation(), key=jr.key(0)),
        (xs, labels(xs)),
        (others, labels(others)),
        steps=30,
    ).gap[-1]
    assert gap(4096) < gap(16) / 5


def test_invalid_arguments_are_rejected(unchecked):
    net = MLP.init(3, 8, 2, key=jr.key(0))
    data = (xs, labels(xs))
    with pytest.raises(ValueError, match="steps must be an integer >= 1; got 0"):
        compare_linearised(net, data, data, steps=0)
    with pytest.raises(ValueError, match="classes must lie in 0 to 1; got 0 to 2"):
        compare_linearised(net, data, data)
    with pytest.raises(ValueError, match=r"the model has 2 outputs, but ys has shape \(10, 3\)"):
        compare_linearised(net, (xs, np.ones((10, 3))), data)

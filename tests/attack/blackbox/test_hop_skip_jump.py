"""HopSkipJump: near the closed form, nearer with more steps, by predicted classes only."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.attack import HopSkipJump, targeted
from thetax.layers import Linear, tanh
from thetax.models import MLP
from thetax.threat import L1, L2, Linf

pytestmark = pytest.mark.usefixtures("x64")

BOX = (-3.0, 4.0)
with jax.enable_x64(True):
    XS = jr.uniform(jr.key(2), (8, 6))
    KEYS = jr.split(jr.key(0), 8)


def answers(attack, model, xs=XS, keys=KEYS):
    """Attacks a batch; the label of each input is its predicted class."""
    one = lambda x, key: attack(model, x, jnp.argmax(model(x)), key=key)
    return np.asarray(jax.jit(jax.vmap(one))(xs, keys))


@pytest.mark.slow
@pytest.mark.parametrize("norm", [L2, Linf])
def test_two_affine_classes(norm):
    """(z_0 − z_1) / ‖w_0 − w_1‖_q is the minimum; twenty steps come within 3 % of it, one step
    does not.
    """
    affine = Linear.init(6, 2, key=jr.key(1))
    w = np.asarray(affine.W[0] - affine.W[1])
    z = np.asarray(jax.vmap(affine)(XS))
    minimum = np.abs(z[:, 0] - z[:, 1]) / (np.linalg.norm(w) if norm is L2 else np.abs(w).sum())
    far = {}
    for steps in (1, 20):
        found = answers(HopSkipJump(norm, steps=steps, n_queries=100, box=BOX), affine)
        after = np.asarray(jax.vmap(affine)(jnp.asarray(found)))
        assert (after.argmax(axis=1) != z.argmax(axis=1)).all()
        far[steps] = np.array(
            [float(norm(1.0).norm(jnp.asarray(row))) for row in found - np.asarray(XS)]
        )
        assert (far[steps] >= minimum * (1 - 1e-9)).all()
    assert (far[20] <= 1.03 * minimum).all()
    assert (far[20] <= far[1]).all()
    assert far[1].max() > 1.1 * minimum[far[1].argmax()]


@pytest.mark.slow
@pytest.mark.parametrize("norm", [L2, Linf])
def test_only_predicted_classes_are_used(norm):
    net = MLP.init(6, 8, 3, activation=tanh, key=jr.key(0))
    decided = lambda x: jax.nn.one_hot(jnp.argmax(net(x)), 3)
    attack = HopSkipJump(norm, steps=3, n_queries=20, box=BOX)
    found = answers(attack, net, XS[:3], KEYS[:3])
    assert np.array_equal(found, answers(attack, decided, XS[:3], KEYS[:3]))
    assert (found >= BOX[0]).all()
    assert (found <= BOX[1]).all()


@pytest.mark.slow
def test_targeted_key_and_vmap():
    net = MLP.init(6, 8, 3, activation=tanh, key=jr.key(0))
    attack = HopSkipJump(Linf, steps=2, n_queries=10, box=BOX, goal=targeted())
    one = jax.jit(lambda x, key: attack(net, x, jnp.argmin(net(x)), key=key))
    alone = np.stack([one(x, key) for x, key in zip(XS, KEYS)])
    together = jax.jit(jax.vmap(lambda x, key: attack(net, x, jnp.argmin(net(x)), key=key)))(
        XS, KEYS
    )
    np.testing.assert_allclose(together, alone, atol=1e-12)
    assert np.array_equal(one(XS[0], KEYS[0]), alone[0])
    assert not np.allclose(one(XS[0], KEYS[1]), alone[0])
    wanted = jax.vmap(lambda x: jnp.argmin(net(x)))(XS)
    assert (jax.vmap(lambda x: jnp.argmax(net(x)))(jnp.asarray(alone)) == wanted).all()


def test_failure_or_a_misclassified_input_returns_x():
    attack = HopSkipJump(L2, steps=1, n_queries=5, n_starts=5, box=BOX)
    fixed = lambda x: jnp.array([1.0, 0.0]) + 0 * x[:2]
    found = jax.jit(jax.vmap(lambda y: attack(fixed, XS[0], y, key=KEYS[0])))(jnp.array([0, 1]))
    assert np.array_equal(found, jnp.stack([XS[0], XS[0]]))


def test_direction_where_most_points_are_misclassified():
    """Nine in ten points are misclassified; as the mean of the answers is subtracted, the estimate
    is still the normal.
    """
    n = jnp.ones(20) / jnp.sqrt(20)
    attack = HopSkipJump(L2, steps=1, n_queries=100, box=BOX)
    point = jnp.full(20, 0.5)
    wrong = lambda z: (z - point) @ n > -0.03  # probes are 0.1 long
    towards_n = [
        float(n @ attack._estimate_direction(wrong, point, jnp.array(0.1), key))
        for key in jr.split(jr.key(0), 20)
    ]
    assert np.mean(towards_n) > 0.70


@pytest.mark.slow
def test_more_steps_never_end_farther():
    """Even with one query per direction, where most steps fail."""
    net = MLP.init(6, 8, 3, activation=tanh, key=jr.key(0))
    hops = (
        answers(HopSkipJump(L2, steps=steps, n_queries=1, box=BOX), net) for steps in (1, 2, 4, 8)
    )
    far = np.array([np.linalg.norm(found - np.asarray(XS), axis=1) for found in hops])
    assert (np.diff(far, axis=0) <= 1e-12).all()
    assert (np.diff(far, axis=0) < -1e-3).any()


def test_bad_input(unchecked):
    with pytest.raises(ValueError, match="HopSkipJump: norm must be L2 or Linf; got L1"):
        HopSkipJump(L1, steps=1, box=BOX)
    with pytest.raises(ValueError, match="HopSkipJump: steps must be an integer >= 1; got 0"):
        HopSkipJump(L2, steps=0, box=BOX)
    with pytest.raises(ValueError, match=r"Pass box=, for instance \(0.0, 1.0\)"):
        HopSkipJump(L2, steps=1, box=None)
    with pytest.raises(
        ValueError,
        match=r"HopSkipJump: samples random points and directions\. Pass key=",
    ):
        HopSkipJump(L2, steps=1, box=BOX)(lambda x: x, XS[0], jnp.array(0))

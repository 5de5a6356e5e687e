"""Densely connected networks: the published size, a layer and a transition by hand, what they
refuse.
"""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import tree
from thetax.core import predict
from thetax.layers import Affine, Convolution, fold_batch_norm
from thetax.models import DenseNet


def test_parameters_and_depth_are_the_published_ones():
    net = jax.eval_shape(partial(DenseNet.init, 121, classes=1000), key=jr.key(0))
    assert tree.size(net) == 7_978_856
    parts = jax.tree.leaves(net, is_leaf=lambda node: isinstance(node, Convolution))
    assert sum(isinstance(part, Convolution) for part in parts) + 1 == 121
    assert net.head.W.shape == (1000, 1024)


@pytest.mark.parametrize(("small", "sizes"), [(False, [16, 8, 4]), (True, [64, 32, 16])])
def test_channels_grow_and_space_halves(small, sizes):
    make = partial(
        DenseNet.init, (2, 3, 1), classes=3, growth_rate=4, small=small, normalise=Affine.init
    )

    def seen(key):
        net = make(key=key)
        found = []
        x = net.stem(jnp.ones((3, 64, 64)))
        for number, stage in enumerate(net.stages):
            x = stage(x if number == 0 else net.transitions[number - 1](x))
            found.append(x)
        return found

    shapes = [y.shape for y in jax.eval_shape(seen, jr.key(0))]
    assert shapes == [(c, n, n) for c, n in zip([8 + 2 * 4, 8 + 3 * 4, 10 + 4], sizes)]


@pytest.mark.slow
def test_a_layer_appends_and_a_transition_halves():
    net = DenseNet.init((2, 1), classes=2, channels=1, growth_rate=2, small=True, key=jr.key(0))
    xs = jr.normal(jr.key(1), (6, 4, 4, 6))
    relu = lambda y: jnp.maximum(y, 0)
    folded = jax.jit(fold_batch_norm)(net.stages[0], xs)
    n1, _, narrow, n2, _, across = folded.layers[0].inner.layers
    x = xs[0]
    y = folded.layers[0](x)
    np.testing.assert_array_equal(y[:4], x)
    np.testing.assert_allclose(y[4:], across(relu(n2(narrow(relu(n1(x)))))), atol=1e-5)
    assert narrow.W.shape == (8, 4, 1, 1)
    assert across.W.shape == (2, 8, 3, 3)
    wide = jr.normal(jr.key(2), (6, 8, 4, 6))
    between = jax.jit(fold_batch_norm)(net.transitions[0], wide)
    norm, _, convolution, _ = between.layers
    z = convolution(relu(norm(wide[0])))
    np.testing.assert_allclose(
        between(wide[0]), z.reshape(4, 2, 2, 3, 2).mean(axis=(2, 4)), atol=1e-5
    )


def test_folding_changes_nothing_on_the_batch():
    net = DenseNet.init((1, 1), classes=2, channels=1, growth_rate=2, small=True, key=jr.key(0))
    xs = jr.normal(jr.key(1), (5, 1, 4, 4))
    found = jax.jit(predict)(jax.jit(fold_batch_norm)(net, xs), xs)
    np.testing.assert_allclose(jax.jit(predict)(net, xs), found, atol=1e-5)


def test_an_unknown_depth_is_refused():
    with pytest.raises(
        ValueError, match="layout must be the depth 121 or a tuple of layers per stage; got 50"
    ):
        DenseNet.init(50, classes=2, key=jr.key(0))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("layout", "sizes", "says"),
    [
        ("121", {}, "a tuple of layers per stage; got '121'"),
        ((), {}, r"every stage must have at least one layer; got \(\)"),
        ((2, 0), {}, r"every stage must have at least one layer; got \(2, 0\)"),
        ((1,), {"classes": 0}, "classes must be an integer >= 1; got 0"),
        ((1,), {"growth_rate": 0}, "growth_rate must be an integer >= 1; got 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(layout, sizes, says):
    with pytest.raises(ValueError, match=f"^DenseNet: .*{says}"):
        DenseNet.init(layout, **{"classes": 2, "key": jr.key(0), **sizes})

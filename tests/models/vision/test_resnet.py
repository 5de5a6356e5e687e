"""Residual networks: their sizes as published, their blocks by hand, what they refuse."""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import tree
from thetax.layers import Affine, BatchNorm, Convolution, Linear, fold_batch_norm
from thetax.models import ResNet, ResNetLayout


@pytest.mark.parametrize(
    ("depth", "parameters"), [(18, 11_689_512), (34, 21_797_672), (50, 25_557_032)]
)
def test_parameters_and_depth_are_the_published_ones(depth, parameters):
    """A thousand classes; weighted layers along the longest way: the stem, those of the blocks, the
    head.
    """
    net = jax.eval_shape(partial(ResNet.init, depth, classes=1000), key=jr.key(0))
    assert tree.size(net) == parameters
    bent = [block.layers[0].inner for stage in net.stages for block in stage.layers]
    weighted = sum(isinstance(layer, Convolution) for chain in bent for layer in chain.layers)
    assert 1 + weighted + isinstance(net.head, Linear) == depth
    for chain in bent:  # the ReLU after the last norm follows the sum with the skip
        kinds = "".join(type(layer).__name__[0] for layer in chain.layers)
        assert kinds == ("CBPCB" if depth < 50 else "CBPCBPCB")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("small", "sizes"), [(False, [16, 16, 8, 4, 2]), (True, [64, 64, 32, 16, 8])]
)
def test_space_halves_and_channels_double(small, sizes):
    plain = lambda m: Affine(jnp.ones(m), jnp.zeros(m))
    net = ResNet.init(18, classes=3, width=2, small=small, normalise=plain, key=jr.key(0))
    x = jnp.ones((3, 64, 64))
    seen = [net.stem(x)]
    for stage in net.stages:
        seen.append(stage(seen[-1]))
    assert [y.shape for y in seen] == [(c, n, n) for c, n in zip([2, 2, 4, 8, 16], sizes)]


@pytest.mark.slow
def test_a_block_is_its_equation():
    net = ResNet.init(
        ResNetLayout((1,), 2), classes=2, channels=1, width=2, small=True, key=jr.key(0)
    )
    xs = jr.normal(jr.key(1), (6, 2, 5, 5))
    (block,) = fold_batch_norm(net.stages[0], xs).layers
    narrow, n1, _, across, n2, _, widen, n3 = block.layers[0].inner.layers
    skip, n4 = block.layers[0].skip.layers
    x = xs[0]
    relu = lambda y: jnp.maximum(y, 0)
    bent = n3(widen(relu(n2(across(relu(n1(narrow(x))))))))
    np.testing.assert_allclose(block(x), relu(n4(skip(x)) + bent), atol=1e-5)


def test_norms_have_the_moments_of_images():
    """One pass over numbers far from 0 loses no digits."""
    xs = 1000 + jr.normal(jr.key(0), (64, 3, 5, 5))
    mean, variance = jax.vmap(BatchNorm.init(3).moments, axis_name="batch", out_axes=None)(xs)
    exact = np.asarray(xs, np.float64)
    np.testing.assert_allclose(mean, exact.mean(axis=(0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(variance, exact.var(axis=(0, 2, 3)), rtol=1e-4)


def test_an_unknown_depth_is_refused():
    with pytest.raises(
        ValueError, match="layout must be a depth \\(18, 34, 50\\) or a ResNetLayout; got 20"
    ):
        ResNet.init(20, classes=2, key=jr.key(0))


def test_a_tuple_of_blocks_is_a_layout():
    make = partial(ResNet.init, classes=3, width=2)
    form = lambda layout: jax.tree.structure(jax.eval_shape(partial(make, layout), key=jr.key(0)))
    assert form((2, 1)) == form(ResNetLayout((2, 1)))
    assert form((2, 1)) != form(ResNetLayout((1, 2)))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("layout", "sizes", "says"),
    [
        ("resnet18", {}, "or a ResNetLayout; got 'resnet18'"),
        ((), {}, "every stage must have at least one block"),
        (ResNetLayout((0, 1)), {}, r"at least one block, .*; got ResNetLayout\(blocks=\(0, 1\)"),
        (18, {"classes": 0}, "classes must be an integer >= 1; got 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(layout, sizes, says):
    with pytest.raises(ValueError, match=f"^ResNet: .*{says}"):
        ResNet.init(layout, **{"classes": 2, "key": jr.key(0), **sizes})


@pytest.mark.usefixtures("unchecked")
def test_what_is_no_image_is_told():
    net = ResNet.init((1,), classes=2, width=2, normalise=Affine.init, key=jr.key(0))
    for shape, says in (
        ((3, 0, 0), "the input is empty"),
        ((8, 8, 3), "channels come first"),
        ((5, 3, 8, 8), "jax.vmap"),
    ):
        with pytest.raises(ValueError, match=rf"shape \(3, h, w\), got .*{says}"):
            net(jnp.ones(shape))

"""The channels-last correlation has the same values and derivatives of every order as JAX's."""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.layers.convolution import channels_last
from thetax.layers.convolution.channels_last import correlate_last
from thetax.layers.convolution.convolution import AXES

SETTINGS = [
    (1, 3, 1, (1, 1), 1),
    (1, 4, 3, (0, 0), 2),
    (2, 3, 1, (1, 1), 1),
    (2, 3, 2, (1, 1), 1),
    (2, 2, 3, (2, 0), 1),
    (2, 3, 2, (4, 4), 2),
    (2, 3, 1, (2, 2), 2),
    (2, 1, 2, (0, 0), 1),
]


def channels_first(W, x, stride, padding, dilation):
    """JAX's convolution, channels first."""
    axes = AXES[len(stride)]
    return jax.lax.conv_general_dilated(
        x[None], W, stride, padding, rhs_dilation=dilation, dimension_numbers=axes
    )[0]


WAYS = {
    "as one operation": {"MAX_ROW_SIZE": 0},
    "by rows": {},
    "as sums": {"MIN_THIN_POSITIONS": 1},
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("space", "k", "stride", "pad", "dilation"), SETTINGS)
def test_values_and_derivatives_equal_channels_first(
    space, k, stride, pad, dilation, way, x64, monkeypatch
):
    for name, value in WAYS[way].items():
        monkeypatch.setattr(channels_last, name, value)
    xs = jr.normal(jr.key(0), (2, 2, *(9, 8)[:space]))
    W = jr.normal(jr.key(1), (3, 2, *(k,) * space))
    how = (stride,) * space, (pad,) * space, (dilation,) * space

    def seen(correlate, W, xs):
        loss = lambda W, xs: jnp.sin(jax.vmap(lambda x: correlate(W, x, *how))(xs)).sum()
        ys, onward = jax.jvp(jax.vmap(lambda x: correlate(W, x, *how)), (xs,), (jnp.cos(xs),))
        back = [
            jax.grad(loss, argnums) for argnums in ((0, 1), 1)
        ]  # at both, and at the input under a fixed kernel
        return ys, onward, [jax.jvp(slope, (W, xs), (jnp.cos(W), jnp.cos(xs))) for slope in back]

    both = (
        jax.tree.leaves(jax.jit(partial(seen, correlate))(W, xs))
        for correlate in (correlate_last, channels_first)
    )
    for ours, theirs in zip(*both):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_all_convolutions_are_channels_last():
    """The forward pass and both gradients are N H W C by H W I O to N H W C, under vmap too."""
    how = (2, 2), ((1, 1), (1, 1)), (1, 1)
    loss = lambda W, xs: jnp.square(jax.vmap(lambda x: correlate_last(W, x, *how))(xs)).sum()
    program = str(
        jax.make_jaxpr(jax.grad(loss, argnums=(0, 1)))(
            jnp.ones((3, 2, 3, 3)), jnp.ones((5, 2, 8, 8))
        )
    )
    layouts = [part.split("\n")[0] for part in program.split("dimension_numbers=")[1:]]
    fast = (
        "ConvDimensionNumbers(lhs_spec=(0, 3, 1, 2), rhs_spec=(3, 2, 0, 1), out_spec=(0, 3, 1, 2))"
    )
    assert len(layouts) == 3
    assert set(layouts) == {fast}


def test_thin_images_are_sums_of_products_under_differentiation():
    """And a single operation without differentiation."""
    how = (1, 1), ((1, 1), (1, 1)), (1, 1)
    total = lambda x: correlate_last(jnp.ones((3, 1, 3, 3)), x, *how).sum()
    assert str(jax.make_jaxpr(total)(jnp.ones((1, 16, 16)))).count("conv_general_dilated[") == 1
    assert "conv_general_dilated[" not in str(
        jax.make_jaxpr(jax.grad(total))(jnp.ones((1, 16, 16)))
    )


def test_small_images_are_computed_by_rows_with_a_constant_kernel(monkeypatch):
    """On a CPU; a single operation if the kernel is differentiated, the image is large, or on a
    GPU.
    """
    loss = lambda W, x: correlate_last(W, x, (1, 1), ((1, 1), (1, 1)), (1, 1)).sum()
    W = jnp.ones((8, 8, 3, 3))
    x = jnp.ones((8, 16, 16))
    seen = lambda argnums, x: str(jax.make_jaxpr(jax.grad(loss, argnums))(W, x))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert "conv_general_dilated[" in seen(1, x)
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert "conv_general_dilated[" not in seen(1, x)
    assert seen((0, 1), x).count("conv_general_dilated[") == 3
    assert "conv_general_dilated[" in seen(1, jnp.ones((8, 64, 64)))


def test_no_gradient_for_constant_arguments():
    """No work for the gradient of a constant image or a frozen kernel."""
    how = (1, 1), ((1, 1), (1, 1)), (1, 1)
    loss = lambda W, x: correlate_last(W, x, *how).sum()
    for argument in (0, 1):
        program = str(
            jax.make_jaxpr(partial(jax.grad(loss, argnums=argument)))(
                jnp.ones((3, 2, 3, 3)), jnp.ones((2, 8, 8))
            )
        )
        assert program.count("conv_general_dilated") <= 2

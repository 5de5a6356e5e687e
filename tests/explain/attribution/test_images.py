"""Kernels, maps and slopes against plain sums and finite differences; shifts against what theory
says of them.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.signal import correlate2d

from thetax import explain
from thetax.explain.attribution.receptive_field import receptive_fields
from thetax.layers import (
    AveragePool,
    BatchNorm,
    Chain,
    Convolution,
    Ensemble,
    Linear,
    MaxPool,
    Residual,
    global_mean,
    relu,
)
from thetax.models import CNN, MLP, ResNet
from thetax.models.vision.resnet import ResNetLayout


def conv(c, m, k=3, **how):
    return Convolution.init(c, m, (k, k), key=jr.key(c + m), **how)


def test_filters_and_maps_are_those_of_the_convolutions():
    first = conv(1, 2)
    second = conv(2, 3)
    net = Chain(first, relu, MaxPool((2, 2)), Residual(Chain(conv(2, 2))), second, global_mean)
    assert explain.filters(net).kernels.tolist() == first.W.tolist()
    x = jr.normal(jr.key(0), (1, 6, 8))
    found = explain.feature_maps(net, x)
    assert found.layers == ("Convolution 1", "Convolution 2", "Convolution 3")
    assert [h.shape for h in found.maps] == [(2, 6, 8), (2, 3, 4), (3, 3, 4)]
    by_scipy = [
        correlate2d(x[0], W[0], mode="same") + b for W, b in zip(first.W, np.asarray(first.b))
    ]
    assert found.maps[0] == pytest.approx(np.stack(by_scipy), abs=1e-5)
    assert found.maps[2] == pytest.approx(
        np.asarray(second(net.layers[3](net.layers[2](relu(first(x)))))), abs=1e-5
    )


def test_transposed_convolution_kernel_is_shown_as_applied():
    layer = Convolution(jnp.array([[[1.0, 2.0, 3.0]]]), flip=True)
    kernel = explain.filters(layer).kernels
    assert kernel.tolist() == [[[3.0, 2.0, 1.0]]]
    x = jnp.array([[5.0, 7.0, 11.0]])
    assert layer(x)[0, 1] == pytest.approx(float(kernel[0, 0] @ np.asarray(x[0])))


@pytest.mark.slow
@pytest.mark.parametrize(
    "net",
    [
        lambda: CNN.init((2,), classes=3, pool_size=2, key=jr.key(0)),
        lambda: Chain(jnp.ravel, MLP.init(16, 5, 3, activation=jnp.tanh, key=jr.key(0))),
        lambda: Chain(jnp.ravel, Linear.init(16, 1, key=jr.key(0))),
    ],
    ids=["images", "flat", "one logit"],
)
def test_saliency_is_the_gradient_of_the_predicted_class(net, x64):
    model = jax.tree.map(lambda a: a.astype(float), net())
    xs = jr.normal(jr.key(1), (3, 1, 4, 4))
    found = explain.saliency(model, xs)
    step = 1e-6
    ahead = lambda x, j: model(x)[j] if len(model(x)) > 1 else (-1, 1)[j] * model(x)[0]
    for x, guess, slopes in zip(xs, found.predicted, found.gradients):
        assert ahead(x, guess) >= max(ahead(x, j) for j in range(len(found.classes)))
        for at in [(0, 0, 0), (0, 1, 2), (0, 3, 3)]:
            e = jnp.zeros((1, 4, 4)).at[at].set(step)
            slope = (ahead(x + e, guess) - ahead(x - e, guess)) / (2 * step)
            assert slopes[at] == pytest.approx(float(slope), abs=1e-7)
    assert found.magnitude.shape == (3, 4, 4)
    assert found.magnitude == pytest.approx(np.abs(found.gradients[:, 0]))


def test_saliency_of_a_colour_pixel_is_the_maximum_over_channels():
    net = Chain(jnp.ravel, Linear(jnp.arange(-6.0, 6.0)[None]))
    assert explain.saliency(net, jnp.ones((1, 3, 2, 2))).magnitude.tolist() == [[[6, 5], [4, 5]]]


@pytest.mark.slow
def test_receptive_fields_by_brute_force(x64):
    """A position depends exactly on the pixels of its receptive field."""
    net = Chain(
        conv(1, 2),
        MaxPool((2, 2)),
        conv(2, 2, boundary="valid"),
        AveragePool((2, 2)),
        conv(2, 1, 1),
    )
    smooth = Chain(
        *[AveragePool((2, 2)) if isinstance(layer, MaxPool) else layer for layer in net.layers]
    )
    x = jr.normal(jr.key(0), (1, 24, 24))
    view = receptive_fields(net, x)["layers.4"]
    assert view == receptive_fields(smooth, x)["layers.4"]
    J = np.asarray(jax.jacobian(lambda x: smooth(x)[0, 2, 2])(x))[0]
    rows, columns = np.nonzero(J)
    r = view.stride[0]
    a = view.before[0]
    b = view.after[0]
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (
        2 * r - a,
        2 * r + b,
        2 * r - a,
        2 * r + b,
    )
    inside = view.interior((5, 5), (24, 24))[0]
    assert inside.tolist() == [r * i - a >= 0 and r * i + b < 24 for i in range(5)]


def test_circular_network_is_equivariant_everywhere_and_others_in_the_interior():
    xs = jr.normal(jr.key(0), (2, 1, 16, 16))
    for boundary in ("circular", "same", "valid"):
        net = Chain(conv(1, 3, boundary=boundary), relu, conv(3, 2, boundary=boundary), global_mean)
        found = explain.equivariance(net, xs, shifts=(1, 3))
        assert found.layers == ("Convolution 1", "relu 1", "Convolution 2")
        assert found.stride.tolist() == [1, 1, 1]
        assert found.interior.max() < 1e-5
        assert (found.everywhere.max() < 1e-5) == (boundary == "circular")
        assert (found.output.max() < 1e-5) == (boundary == "circular")


def test_between_the_strides_there_is_an_error_that_no_boundary_causes():
    net = Chain(
        conv(1, 3, boundary="circular"),
        relu,
        MaxPool((2, 2)),
        conv(3, 2, boundary="circular", stride=2),
    )
    xs = jr.normal(jr.key(0), (2, 1, 16, 16))
    found = explain.equivariance(net, xs, shifts=(1, 2, 4))
    assert found.stride.tolist() == [1, 1, 2, 4]
    assert found.is_multiple.tolist() == [
        [True] * 3,
        [True] * 3,
        [False, True, True],
        [False, False, True],
    ]
    assert found.everywhere[found.is_multiple].max() < 1e-5
    assert found.everywhere[~found.is_multiple].min() > 0.1
    by_hand = (
        net(jnp.roll(xs[0], 1, axis=2))[:, 1, 2] - net(xs[0])[:, 1, 2]
    )  # one pixel is a quarter of a place: none
    assert float(jnp.abs(by_hand).max()) > 0


def test_receptive_fields_in_residual_networks_and_signals():
    bare = {"small": True, "normalise": lambda d: Chain()}
    net = ResNet.init(ResNetLayout((1, 1)), classes=3, channels=1, width=2, key=jr.key(0), **bare)
    found = explain.equivariance(net, jr.normal(jr.key(1), (1, 1, 10, 10)), shifts=(4,))
    assert found.stride[-1] == 2
    assert np.isnan(found.interior[-1, 0])  # its places see more than there is
    assert found.interior[0, 0] < 1e-5
    assert "Residual 1" in found.layers
    line = Chain(Convolution.init(1, 2, (3,), key=jr.key(0)), relu)
    assert (
        explain.equivariance(line, jr.normal(jr.key(1), (2, 1, 9)), shifts=(2,)).interior.max()
        < 1e-5
    )


def test_units_that_are_kept_are_counted():
    net = Chain(lambda x: x[0, 0, :2])  # the class is where the light is
    xs = jnp.zeros((2, 1, 1, 4)).at[0, 0, 0, 0].set(1.0).at[1, 0, 0, 3].set(1.0)
    with pytest.raises(
        ValueError,
        match="no layer of the model has a feature map; this lens is for convolutional networks",
    ):
        explain.equivariance(net, xs, shifts=(1,))
    found = explain.equivariance(Chain(conv(1, 1, 1), lambda x: x[0, 0, :2]), xs, shifts=(0, 1))
    assert found.unchanged.tolist() == [1.0, 0.5]
    assert found.output[0] == 0


@pytest.mark.parametrize(
    ("lens", "says"),
    [
        (lambda net, xs: explain.saliency(net, xs), "saliency: the model has batch norms"),
        (
            lambda net, xs: explain.feature_maps(net, xs[0]),
            "feature_maps: the model has batch norms",
        ),
        (lambda net, xs: explain.equivariance(net, xs), "equivariance: the model has batch norms"),
        (lambda net, xs: explain.filters(jnp.ones(2)), "filters: the model has no Convolution"),
        (
            lambda net, xs: explain.feature_maps(Chain(jnp.sin), xs[0]),
            "feature_maps: the model has no Convolution",
        ),
        (
            lambda net, xs: explain.equivariance(conv(1, 1), xs, shifts=(9,)),
            r"shifts must be between 0 and the width minus 1, 4; got \(9,\)",
        ),
        (
            lambda net, xs: explain.saliency(conv(1, 1), xs.astype(int)),
            r"xs must be floats, which have gradients; got int32\. For tokens use token_saliency",
        ),
        (
            lambda net, xs: explain.saliency(conv(1, 1), xs[:0]),
            r"saliency: xs must have at least one example; got shape \(0, 1, 5, 5\)",
        ),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_invalid_arguments_are_rejected(lens, says):
    with pytest.raises(ValueError, match=says):
        lens(Chain(conv(1, 2), BatchNorm.init(2)), jnp.ones((2, 1, 5, 5)))


def test_has_convolution_looks_for_one_among_other_layers():
    assert explain.has_convolution(Chain(conv(1, 2), global_mean, Linear.init(2, 2, key=jr.key(0))))
    assert not explain.has_convolution(MLP.init(2, 3, 2, key=jr.key(0)))
    members = Ensemble.init(lambda key: Chain(conv(1, 2), global_mean), 2, key=jr.key(0))
    assert not explain.has_convolution(members)


@pytest.mark.parametrize(("boundary", "before"), [("valid", 0), ("same", 1), ("full", 2)])
def test_the_receptive_field_of_one_convolution(boundary, before):
    field = receptive_fields(conv(1, 2, boundary=boundary), jnp.ones((1, 8, 8)))[""]
    assert (field.before, field.after) == ((before,) * 2, (2 - before,) * 2)

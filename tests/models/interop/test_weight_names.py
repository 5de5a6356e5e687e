"""Weights under other libraries' names: the names, the layouts, norms with moments, and what does
not fit.
"""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import same_bits

from thetax import tree
from thetax.layers import Affine, BatchNorm, Linear, fold_batch_norm
from thetax.models import (
    DenseNet,
    Mixer,
    ResNet,
    ResNetLayout,
    WeightNames,
    WeightRule,
    keras_resnet,
    timm_mixer,
    torchvision_densenet,
    torchvision_resnet,
)

resnet = partial(ResNet.init, ResNetLayout((1, 2), 2), classes=3, channels=2, width=2, small=True)
densenet = partial(
    DenseNet.init, (1, 2), classes=3, channels=2, growth_rate=2, small=True, normalise=Affine.init
)
mixer = partial(
    Mixer.init, 2, classes=3, image_size=(2, 4), channels=2, patch_size=2, width=3, hidden=(4, 5)
)
folded = partial(resnet, normalise=Affine.init)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@jax.jit
def shaken(model):
    return tree.axpy(0.5, tree.normal_like(jr.key(9), model), model)


def a_norm(name: str) -> list[str]:
    return [f"{name}.{part}" for part in ("weight", "bias", "running_mean", "running_var")]


def test_torchvision_calls_them_so():
    """The names of one stage of one block and one of two, as torchvision's documentation of a state
    dict has them.
    """
    expected = ["conv1.weight", *a_norm("bn1"), "fc.weight", "fc.bias"]
    for block, skip in (("layer1.0", True), ("layer2.0", True), ("layer2.1", False)):
        for k in (1, 2, 3):
            expected += [f"{block}.conv{k}.weight", *a_norm(f"{block}.bn{k}")]
        expected += (
            [f"{block}.downsample.0.weight", *a_norm(f"{block}.downsample.1")] if skip else []
        )
    assert sorted(torchvision_resnet.write(folded(key=jr.key(0)))) == sorted(expected)


def test_each_has_a_name_of_its_own():
    dense = torchvision_densenet.write(densenet(key=jr.key(0)))
    layers = [
        f"denseblock{i}.denselayer{j}.{part}"
        for i, j in ((1, 1), (2, 1), (2, 2))
        for part in ("conv1", "conv2")
    ]
    convolutions = ["conv0", *layers, "transition1.conv"]
    assert {name for name in dense if "conv" in name} == {
        f"features.{name}.weight" for name in convolutions
    }
    assert len(dense) == len(convolutions) + 4 * (1 + 6 + 1 + 1) + 2
    mixed = timm_mixer.write(mixer(key=jr.key(0)))
    assert len(mixed) == 2 + 2 * 12 + 4
    assert mixed["blocks.1.mlp_tokens.fc1.weight"].shape == (4, 2)
    kept = keras_resnet.write(folded(key=jr.key(0)))
    assert kept["res3b_branch2c/kernel"].shape == (1, 1, 4, 8)
    assert {"conv1/bias", "bn_conv1/moving_variance", "bn2a_branch1/gamma", "fc1000/kernel"} <= set(
        kept
    )


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (folded, torchvision_resnet),
        (folded, keras_resnet),
        (densenet, torchvision_densenet),
        (mixer, timm_mixer),
    ],
    ids=["torchvision resnet", "keras resnet", "densenet", "mixer"],
)
def test_what_was_written_is_read(make, names):
    model = shaken(make(key=jr.key(0)))
    again = names.read(names.write(model), jax.eval_shape(make, key=jr.key(1)))
    for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(model)):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)  # a norm is divided by 1


def test_a_norm_arrives_as_the_affine_map_it_is():
    gamma = normal(0, 2)
    beta = normal(1, 2)
    mean = normal(2, 2)
    x = normal(3, 2)
    variance = np.array([0.5, 2e-5], np.float32)
    tensors = torchvision_resnet.write(folded(key=jr.key(0)))
    tensors |= dict(zip(a_norm("bn1"), (gamma, beta, mean, variance)))
    norm = torchvision_resnet.read(tensors, folded(key=jr.key(1))).stem.layers[1]
    exact = (x.astype(float) - mean) / np.sqrt(variance.astype(float) + 1e-5) * gamma + beta
    np.testing.assert_allclose(norm(jnp.asarray(x)), exact, rtol=1e-5, atol=1e-5)


def test_keras_kernels_and_offsets():
    """Height, width, inputs, outputs; the offset before the norm; epsilon 1/1000."""
    tensors = keras_resnet.write(shaken(folded(key=jr.key(0))))
    kernel = normal(0, 3, 3, 2, 2)
    offset = normal(1, 2)
    mean = normal(2, 2)
    gamma = normal(3, 2)
    beta = normal(4, 2)
    variance = np.array([0.002, 1.0], np.float32)
    tensors |= {"conv1/kernel": kernel, "conv1/bias": offset}
    parts = ("gamma", "beta", "moving_mean", "moving_variance")
    tensors |= {f"bn_conv1/{part}": v for part, v in zip(parts, (gamma, beta, mean, variance))}
    stem = keras_resnet.read(tensors, folded(key=jr.key(1))).stem
    x = normal(5, 2, 4, 5)
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, [(0, 0), (1, 1), (1, 1)]), (3, 3), axis=(1, 2)
    )
    y = np.einsum("chwab,abcm->hwm", windows, kernel) + offset
    y = gamma * (y - mean) / np.sqrt(variance + 1e-3) + beta
    np.testing.assert_allclose(
        stem(jnp.asarray(x)), np.maximum(y, 0).transpose(2, 0, 1), rtol=1e-4, atol=1e-4
    )


def test_a_norm_of_the_batch_stays_one():
    """It takes scale and offset, and the moments of other data; without moments it cannot be
    written.
    """
    model = shaken(folded(key=jr.key(0)))
    tensors = torchvision_resnet.write(model)
    tensors["bn1.running_mean"] = normal(0, 2)
    tensors["bn1.running_var"] = np.ones(2, np.float32)
    net = torchvision_resnet.read(tensors, resnet(key=jr.key(1)))
    assert isinstance(net.stem.layers[1], BatchNorm)
    assert same_bits(net.stem.layers[1].mu, model.stem.layers[1].mu)
    with pytest.raises(
        ValueError,
        match=r"12 norms such as stages\.0\..* are batch norms .* fold_batch_norm\(model, xs\)",
    ):
        torchvision_resnet.write(net)
    ready = jax.jit(fold_batch_norm)(net, jnp.asarray(normal(1, 4, 2, 4, 4)))
    assert "bn1.weight" in torchvision_resnet.write(ready)


def test_all_that_is_wrong_is_told_at_once():
    tensors = torchvision_resnet.write(folded(key=jr.key(0)))
    del tensors["conv1.weight"], tensors["layer2.1.bn3.running_var"]
    tensors |= {
        "fc.weight": np.zeros((3, 9), np.float32),
        "layer9.0.conv1.weight": np.zeros(1),
        "odd": np.zeros(1),
    }
    tensors["layer1.0.bn1.bias"] = np.zeros(2, np.int32)
    tensors["bn1.num_batches_tracked"] = np.array(7)  # holds no parameter
    with pytest.raises(ValueError, match="my file do not fit this model") as error:
        torchvision_resnet.read(tensors, folded(key=jr.key(0)), source="my file")
    assert str(error.value).split("\n")[1:-1] == [
        "  missing: conv1.weight, layer2.1.bn3.running_var",
        "  extra: layer9.0.conv1.weight, odd",
        "  misshapen: fc.weight is float32(3, 9); expected float32(3, 8), "
        "layer1.0.bn1.bias is int32(2,); expected float32(2,)",
    ]


def test_more_or_fewer_equal_layers_are_told():
    tensors = timm_mixer.write(mixer(key=jr.key(0)))
    tensors |= {name.replace("blocks.1.", "blocks.2."): tensor for name, tensor in tensors.items()}
    with pytest.raises(
        ValueError,
        match=r"extra: blocks\.2\.mlp_channels\.fc1\.bias, (\S+, "
        r"){6}blocks\.2\.mlp_tokens\.fc2\.weight and 4 more\n",
    ):
        timm_mixer.read(tensors, mixer(key=jr.key(0)))
    less = {
        name: tensor
        for name, tensor in tensors.items()
        if name[7] not in "12" or not name.startswith("blocks")
    }
    with pytest.raises(
        ValueError, match=r"missing: blocks\.1\.mlp_channels\.fc1\.bias, .* and 4 more\n"
    ):
        timm_mixer.read(less, mixer(key=jr.key(0)))


def test_names_of_another_library_are_suspected():
    like = Linear(jnp.zeros((2, 2)), jnp.zeros(2))
    with pytest.raises(
        ValueError, match=r"these look like the names of another library. Give names=\.\.\."
    ):
        WeightNames().read({"weight": np.eye(2), "bias": np.ones(2)}, like)
    with pytest.raises(ValueError, match="Give the tensors of this network"):
        WeightNames().read({"W": np.eye(2), "bias": np.ones(2)}, like)


@pytest.mark.usefixtures("unchecked")
def test_a_module_or_tensors_that_are_no_arrays_are_refused():
    class Module:
        state_dict = dict

    class Half:
        def __array__(self, *_, **__):
            raise TypeError("Got unsupported ScalarType BFloat16")

    like = {"b": jnp.ones(2)}
    with pytest.raises(ValueError, match=r"got Module. Give module\.state_dict\(\)"):
        WeightNames().read(Module(), like)  # pyright: ignore
    with pytest.raises(
        ValueError, match=r"b cannot become a NumPy array .*BFloat16\); call \.float\(\) on the"
    ):
        WeightNames().read({"b": Half()}, like)


def test_floats_of_another_width_are_converted():
    names = WeightNames((WeightRule.copy("W", "weight"), WeightRule.copy("b", "bias")))
    like = Linear(jnp.zeros((2, 2)), jnp.zeros(2))
    found = names.read(
        {"weight": np.eye(2, dtype=np.float16), "bias": jnp.ones(2, jnp.bfloat16)}, like
    )
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {jnp.dtype("float32")}


def test_the_model_does_not_hang_on_the_tensors():
    """Memory that begins at a multiple of 64 bytes is what JAX would share."""
    raw = np.zeros(128, np.uint8)
    start = -raw.ctypes.data % 64
    tensors = {"b": raw[start : start + 8].view(np.float32)}
    found = WeightNames().read(tensors, {"b": jnp.ones(2)})
    tensors["b"][:] = 7
    assert found["b"].tolist() == [0.0, 0.0]


def test_a_map_for_another_network_is_refused():
    with pytest.raises(ValueError, match=r"no rule names stem\.W, stem\.b, blocks"):
        torchvision_resnet.write(mixer(key=jr.key(0)))

"""The same numbers as torchvision and timm: networks for images, from their state dict and to
it.
"""

import importlib
from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.core import predict
from thetax.layers import Affine
from thetax.models import (
    DenseNet,
    Mixer,
    ResNet,
    timm_mixer,
    torchvision_densenet,
    torchvision_resnet,
)
from thetax.train import load_weights, save_weights

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def libraries():
    """A torchvision built for another torch lacks its own operators, which these networks do not
    use: declare them.
    """
    try:
        torchvision = pytest.importorskip("torchvision")
    except RuntimeError:
        own = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            own.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        torchvision = importlib.import_module("torchvision")
    return torchvision.models, pytest.importorskip("timm")


def shaken(theirs):
    """Random weights everywhere, the moments of norms too."""
    generator = torch.Generator().manual_seed(0)
    uniform = lambda t, low, high: t.copy_(
        torch.rand(t.shape, generator=generator) * (high - low) + low
    )
    with torch.no_grad():
        for module in theirs.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                uniform(module.running_mean, -0.3, 0.3), uniform(module.running_var, 0.5, 1.5)
            if isinstance(module, torch.nn.BatchNorm2d | torch.nn.LayerNorm):
                uniform(module.weight, 0.5, 1.0), uniform(module.bias, -0.3, 0.3)
            if isinstance(module, torch.nn.Linear):
                uniform(module.weight, -0.1, 0.1), uniform(module.bias, -0.3, 0.3)
    return theirs.eval()


def resnet(depth):
    make = partial(ResNet.init, depth, classes=1000, normalise=Affine.init)
    return (
        make,
        torchvision_resnet,
        lambda tv, timm: getattr(tv, f"resnet{depth}")(weights=None),
        (3, 65, 64),
    )


NETWORKS = {
    "resnet18": resnet(18),
    "resnet34": resnet(34),
    "resnet50": resnet(50),
    "densenet121": (
        partial(DenseNet.init, 121, classes=1000, normalise=Affine.init),
        torchvision_densenet,
        lambda tv, timm: tv.densenet121(weights=None),
        (3, 64, 65),
    ),
    "mixer_b16_224": (
        partial(Mixer.init, classes=1000),
        timm_mixer,
        lambda tv, timm: timm.create_model("mixer_b16_224", pretrained=False),
        (3, 224, 224),
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_from_their_weights_and_back(libraries, tmp_path, name):
    """Loaded from their file, the output is theirs; saved, and loaded by them, theirs is ours."""
    make, names, peer, shape = NETWORKS[name]
    theirs = shaken(peer(*libraries))
    like = jax.eval_shape(make, key=jr.key(0))
    tensors = {k: v.numpy() for k, v in theirs.state_dict().items()}
    model = names.read(tensors, like)
    xs = np.random.default_rng(0).normal(size=(2, *shape)).astype(np.float32)
    with torch.no_grad():
        expected = theirs(torch.tensor(xs)).numpy()
    found = np.asarray(jax.jit(predict)(model, jnp.asarray(xs)))
    assert expected.std() > 1e-2
    assert np.abs(found - expected).max() < 1e-4

    safetensors = pytest.importorskip("safetensors.torch")
    save_weights(tmp_path / "ours.safetensors", model, names=names)
    again = peer(*libraries)
    again.load_state_dict(safetensors.load_file(tmp_path / "ours.safetensors"), strict=True)
    with torch.no_grad():
        back = again.eval()(torch.tensor(xs)).numpy()
    assert np.abs(back - expected).max() < 1e-4

    safetensors.save_file(theirs.state_dict(), tmp_path / "theirs.safetensors")
    twice = load_weights(tmp_path / "theirs.safetensors", like, names=names)
    assert all((a == b).all() for a, b in zip(jax.tree.leaves(model), jax.tree.leaves(twice)))

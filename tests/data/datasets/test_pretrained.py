"""Weights in the format of TensorFlow.js, whole and damaged."""

import json

import numpy as np
import pytest

from thetax.data import load
from thetax.data.datasets.pretrained import read_tfjs
from thetax.data.io.bounded_read import Blob

WEIGHTS = [
    {"name": "a/kernel", "shape": [2, 3], "dtype": "float32"},
    {"name": "b", "shape": [], "dtype": "float32"},
]
NUMBERS = np.arange(7, dtype="<f4").tobytes()


def model(weights) -> Blob:
    return Blob("model.json", json.dumps({"weightsManifest": [{"weights": weights}]}).encode())


def test_tensors_lie_one_after_another():
    found = read_tfjs(
        model(WEIGHTS), [Blob("1", NUMBERS[:10]), Blob("2", NUMBERS[10:])]
    )  # cut within a number
    assert found["a/kernel"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (found["b"].shape, float(found["b"])) == ((), 6.0)


@pytest.mark.parametrize(
    ("weights", "numbers", "says"),
    [
        (WEIGHTS, NUMBERS[:-1], "announces more weights than the 27 bytes"),
        (WEIGHTS[:1], NUMBERS, "announces 24 bytes of weights, but the shards have 28"),
        ([{**WEIGHTS[0], "dtype": "uint8"}], NUMBERS, "a/kernel is not plain float32"),
        ([{**WEIGHTS[0], "quantization": {}}], NUMBERS, "a/kernel is not plain float32"),
        ([{**WEIGHTS[0], "shape": [-1, 3]}], NUMBERS, "announces more weights"),
        ([{**WEIGHTS[0], "shape": [10**30]}], NUMBERS, "announces more weights"),
        ([{"name": "a"}], NUMBERS, "not readable as a TensorFlow.js model"),
    ],
)
def test_what_does_not_fit_is_refused(weights, numbers, says):
    with pytest.raises(ValueError, match=rf"model\.json: .*{says}"):
        read_tfjs(model(weights), [Blob("1", numbers)])


def test_other_json_is_refused():
    with pytest.raises(ValueError, match=r"not readable as a TensorFlow\.js model"):
        read_tfjs(Blob("model.json", b"[]"), [])


def test_weights_are_no_examples():
    with pytest.raises(
        ValueError, match=r"'resnet-50' is not a labelled dataset. Use load_arrays\('resnet-50'\)"
    ):
        load("resnet-50")

"""θ on disk: what is not a whole file of this very model is a ValueError that says so."""

import json
import pickle
import struct
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import pytest
from contracts import same_bits
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from thetax.layers import Affine, BatchNorm, Chain
from thetax.models import MLP
from thetax.train import load_weights, save_weights


@pytest.fixture(scope="module")
def model():
    return MLP.init(3, 4, 2, key=jr.key(0))


@pytest.fixture(scope="module")
def whole(model, tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("weights") / "model.safetensors"
    save_weights(path, model)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "model.safetensors"


def test_names_and_numbers_are_the_leaves(path, model):
    """Any reader of safetensors finds each leaf under its dotted path; no temporary file stays
    behind.
    """
    save_weights(path, model)
    found = load_file(path)
    assert sorted(found) == sorted(
        ["body.layers.0.W", "body.layers.0.b", "body.layers.2.W", "body.layers.2.b"]
    )
    assert (found["body.layers.0.W"] == model.body.layers[0].W).all()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_odd_numbers_survive(path):
    """−0, infinities and denormals come back bit by bit."""
    odd = {"a": jnp.array([-0.0, jnp.inf, 1e-42])}
    save_weights(path, odd)
    assert same_bits(load_weights(path, odd), odd)


def test_nan_is_refused_unless_asked_for(path):
    """In a file and in a folder, by the name of the leaf; integers have none."""
    bad = {"a": jnp.ones(2), "b": jnp.array([0.0, jnp.nan]), "c": jnp.arange(2)}
    for where in (path, path.parent / "folder"):
        save_weights(where, bad, shard_bytes=None if where is path else 8)
        with pytest.raises(
            ValueError, match=r"has NaN in b\. Load earlier weights, or give allow_nan=True"
        ):
            load_weights(where, bad)
        assert same_bits(load_weights(where, bad, allow_nan=True), bad)


@pytest.mark.parametrize("shard_bytes", [None, 8], ids=["file", "folder"])
def test_a_folded_norm_is_no_norm_of_the_batch(tmp_path, shard_bytes):
    """Their leaves have the same names and shapes, but another meaning."""
    path = tmp_path / "weights"
    model = Chain(BatchNorm.init(2))
    folded = Chain(Affine(jnp.ones(2), jnp.zeros(2)))
    for saved, other, says in [
        (
            folded,
            model,
            "layers.0 is folded into an affine map in .*, but a BatchNorm in this model",
        ),
        (model, folded, "layers.0 is a BatchNorm in .*, but no BatchNorm in this model"),
    ]:
        save_weights(path, saved, shard_bytes=shard_bytes)
        assert same_bits(load_weights(path, saved), saved)
        with pytest.raises(ValueError, match=says):
            load_weights(path, other)


def test_one_number_stays_one_number(path):
    save_weights(path, {"c": jnp.array(2.0)})
    assert load_weights(path, {"c": jnp.array(0.0)})["c"].shape == ()


def test_half_precision_survives(path):
    half = {"b": jnp.arange(3, dtype=jnp.bfloat16)}
    save_weights(path, half)
    assert same_bits(load_weights(path, half), half)


def test_an_abstract_model_will_do(path, model):
    save_weights(path, model)
    like = jax.eval_shape(lambda: MLP.init(3, 4, 2, key=jr.key(1)))
    assert same_bits(load_weights(path, like), model)


def test_saving_replaces(path, model):
    """A second save leaves the second weights."""
    other = MLP.init(3, 4, 2, key=jr.key(1))
    save_weights(path, model)
    save_weights(path, other)
    assert same_bits(load_weights(path, model), other)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (
            (3, 4, 2, 2),
            r"do not fit this model:\n  missing: body\.layers\.4\.W, body\.layers\.4\.b\nGive",
        ),
        (
            (4, 2),
            r"extra: body\.layers\.2\.W, body\.layers\.2\.b\n  misshapen: .*0\.W is .*\(4, 3\); "
            r"expected .*\(2, 4\)",
        ),
        (
            (3, 5, 2),
            r"0\.W is float32\(4, 3\); expected float32\(5, 3\), body\.layers\.0\.b is .*, "
            r"body\.layers\.2\.W is ",
        ),
    ],
    ids=["missing names", "extra names", "other shapes"],
)
def test_another_model_is_refused(path, whole, sizes, message):
    """With all that differs."""
    path.write_bytes(whole)
    with pytest.raises(ValueError, match=message):
        load_weights(path, MLP.init(*sizes, key=jr.key(0)))


def test_another_dtype_is_refused(path, whole, model):
    path.write_bytes(whole)
    with pytest.raises(ValueError, match=r"float32.*bfloat16"):
        load_weights(path, jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), model))


def test_a_missing_file_is_said_to_be_missing(path, model):
    with pytest.raises(ValueError, match="does not exist"):
        load_weights(path, model)


def test_a_truncated_file_is_refused_at_every_length(path, whole, model):
    for length in [*range(0, len(whole), 7), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="not a complete safetensors file"):
            load_weights(path, model)


@pytest.mark.parametrize("kind", ["zip", "pickle", "old"])
def test_a_pickle_is_told_and_not_opened(path, model, kind):
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", b"\x80\x02}.")
    else:
        path.write_bytes(
            pickle.dumps({"a": [1.0] * 9}, 4)
            if kind == "pickle"
            else b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j"
        )
    with pytest.raises(
        ValueError, match=r"is a PyTorch pickle, which is never opened\. Save it as safetensors"
    ):
        load_weights(path, model)


def test_another_zip_is_no_pickle(path, model):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", b"words")
    with pytest.raises(ValueError, match="not a complete safetensors file"):
        load_weights(path, model)


HEADERS = [b"{", b"[]", b"null", b"{}", b'{"a": 1}', b'{"a": {"dtype": "F32"}}']
HEADERS += [b'{"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}}']


@pytest.mark.parametrize("header", HEADERS, ids=str)
def test_a_corrupted_header_is_refused(path, model, header):
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 4)
    with pytest.raises(ValueError, match="load_weights"):
        load_weights(path, model)


@pytest.mark.parametrize("size", [2**63, 2**64 - 1, 10**8])
def test_a_lying_header_length_is_refused(path, whole, model, size):
    path.write_bytes(struct.pack("<Q", size) + whole[8:])
    with pytest.raises(ValueError, match="load_weights"):
        load_weights(path, model)


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200))
def test_random_bytes_are_a_value_error(path, model, content):
    path.write_bytes(content)
    with pytest.raises(ValueError, match="load_weights"):
        load_weights(path, model)


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_with_changed_bytes_loads_or_is_a_value_error(path, whole, model, data):
    """A flipped header byte is refused or harmless; never another kind of error, never another
    shape.
    """
    size = struct.unpack("<Q", whole[:8])[0]
    place = data.draw(st.integers(0, 8 + size - 1))
    byte = data.draw(st.integers(0, 255))
    path.write_bytes(whole[:place] + bytes([byte]) + whole[place + 1 :])
    try:
        found = load_weights(path, model)
    except ValueError:
        return
    form = lambda t: jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), t)
    assert form(found) == form(model)


def test_the_file_says_what_made_it(whole):
    size = struct.unpack("<Q", whole[:8])[0]
    assert json.loads(whole[8 : 8 + size])["__metadata__"] == {
        "format": "thetax-2",
        "batch_norms": "",
    }

"""Folders of weights: what others write is read, what we write others read, and no index leads out
of its folder.
"""

import json
import tracemalloc

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import same_bits
from safetensors.numpy import load_file, save_file

from thetax import tree
from thetax.models import MLP
from thetax.train import load_weights, read_config, save_weights
from thetax.train.io import safetensors_io as shards

INDEX = "model.safetensors.index.json"


@pytest.fixture(scope="module")
def model():
    return MLP.init(3, 4, 2, key=jr.key(0))


@pytest.fixture(scope="module")
def tensors(model):
    return dict(zip(tree.leaf_names(model), map(np.asarray, jax.tree.leaves(model))))


@pytest.fixture
def folder(tmp_path, tensors):
    """Two shards and their index, as another library writes them."""
    names = list(tensors)
    for i, part in enumerate((names[:1], names[1:]), start=1):
        save_file(
            {name: tensors[name] for name in part}, tmp_path / f"model-0000{i}-of-00002.safetensors"
        )
    write_index(
        tmp_path,
        {name: f"model-0000{1 + (name != names[0])}-of-00002.safetensors" for name in names},
    )
    return tmp_path


def write_index(folder, where):
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": where}))


def where(folder) -> dict[str, str]:
    return json.loads((folder / INDEX).read_text())["weight_map"]


def test_shards_of_another_library(folder, model):
    assert same_bits(load_weights(folder, model), model)


def test_one_file_of_another_library_comes_first(folder, model, tensors):
    save_file({name: 2 * tensor for name, tensor in tensors.items()}, folder / "model.safetensors")
    assert same_bits(load_weights(folder, model), jax.tree.map(lambda leaf: 2 * leaf, model))


@pytest.mark.parametrize(("shard_bytes", "files"), [(1, 4), (48, 3), (56, 2), (64, 2), (103, 2)])
def test_what_is_written_others_read(tmp_path, model, tensors, shard_bytes, files):
    """Leaves of 48, 16, 32 and 8 bytes, in this order."""
    folder = tmp_path / "new" / "deep"
    save_weights(folder, model, shard_bytes=shard_bytes)
    names = [f"model-{i:05d}-of-{files:05d}.safetensors" for i in range(1, files + 1)]
    assert sorted(path.name for path in folder.iterdir()) == [*names, INDEX]
    found = {name: load_file(folder / name) for name in names}
    assert {tensor: name for name in names for tensor in found[name]} == where(folder)
    whole = {name: tensor for part in found.values() for name, tensor in part.items()}
    assert sorted(whole) == sorted(tensors)
    assert all((whole[name] == tensors[name]).all() for name in tensors)
    sizes = [sum(tensor.nbytes for tensor in part.values()) for part in found.values()]
    assert all(size <= shard_bytes or len(part) == 1 for size, part in zip(sizes, found.values()))
    assert json.loads((folder / INDEX).read_text())["metadata"] == {"total_size": 104}
    assert same_bits(load_weights(folder, model), model)


def test_a_model_that_fits_is_one_file(tmp_path, model, tensors):
    save_weights(tmp_path, model, shard_bytes=104)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    assert sorted(load_file(tmp_path / "model.safetensors")) == sorted(tensors)
    (tmp_path / "model.safetensors").unlink()
    save_weights(tmp_path, model)  # a folder that is there needs no size
    assert same_bits(load_weights(tmp_path, model), model)


def test_saving_replaces_whatever_was_there(tmp_path, model):
    """Each layout after each: always the last model, and nothing left over but files that are not
    ours.
    """
    (tmp_path / "config.json").write_text("{}")
    for i, size in enumerate((1, 64, None, 1, None)):
        now = jax.tree.map(lambda leaf, i=i: leaf + i, model)
        save_weights(tmp_path, now, shard_bytes=size)
        assert same_bits(load_weights(tmp_path, model), now)
        count = sum(path.suffix == ".safetensors" for path in tmp_path.iterdir())
        assert count == {1: 4, 64: 2, None: 1}[size]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


def test_a_crash_between_shards_leaves_no_mixture(tmp_path, model, monkeypatch):
    save_weights(tmp_path, model, shard_bytes=1)
    write = shards.disk.write
    calls = []

    def fail(path, content):
        calls.append(path)
        if len(calls) == 3:
            raise OSError("no space left")
        write(path, content)

    monkeypatch.setattr(shards.disk, "write", fail)
    with pytest.raises(OSError, match="no space left"):
        save_weights(tmp_path, jax.tree.map(jnp.zeros_like, model), shard_bytes=1)
    with pytest.raises(ValueError, match=r"has neither model\.safetensors nor model"):
        load_weights(tmp_path, model)


def test_no_size_for_a_shard(tmp_path, model):
    with pytest.raises(ValueError, match="shard_bytes must be an integer >= 1; got 0"):
        save_weights(tmp_path, model, shard_bytes=0)


def test_half_precision_and_empty_leaves(tmp_path):
    odd = {"a": jnp.arange(3, dtype=jnp.bfloat16), "b": jnp.zeros((0, 2)), "c": jnp.array(2.0)}
    save_weights(tmp_path, odd, shard_bytes=4)
    assert same_bits(load_weights(tmp_path, odd), odd)


NAMES = [
    "../a.safetensors",
    "/etc/passwd",
    "a/b.safetensors",
    "..",
    ".",
    "",
    "a\0b",
    "C:\\a",
    "a\\b",
]


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_an_index_that_leads_out_of_the_folder(folder, model, name):
    write_index(folder, dict.fromkeys(where(folder), name))
    with pytest.raises(ValueError, match=r"which is outside .*; it was not opened"):
        load_weights(folder, model)


def test_a_link_out_of_the_folder(folder, model, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "secret.safetensors"
    shard = folder / "model-00001-of-00002.safetensors"
    shard.rename(outside)
    shard.symlink_to(outside)
    with pytest.raises(ValueError, match=r"is outside .* copy the folder with the links resolved"):
        load_weights(folder, model)


def test_a_link_within_the_folder(folder, model):
    shard = folder / "model-00001-of-00002.safetensors"
    shard.symlink_to(shard.rename(folder / "kept.safetensors").name)
    assert same_bits(load_weights(folder, model), model)


def test_all_disagreements_at_once(folder, model):
    first, *rest = names = list(where(folder))
    wrong = where(folder) | {
        rest[0]: "model-00001-of-00002.safetensors",
        "ghost": "model-00002-of-00002.safetensors",
    }
    del wrong[rest[1]]
    body = json.dumps({"weight_map": wrong})
    body = body.replace(
        '{"weight_map": {', f'{{"weight_map": {{"{first}": "x.safetensors", "ghost": "y", '
    )
    (folder / INDEX).write_text(body)
    with pytest.raises(ValueError, match="disagree") as caught:
        load_weights(folder, model)
    lines = str(caught.value).splitlines()
    assert len(names) == 4
    assert lines[1] == f"  listed twice: {first}, ghost"
    assert lines[2] == (
        f"  missing from their shard: {rest[0]} (model-00001-of-00002.safetensors), "
        "ghost (model-00002-of-00002.safetensors)"
    )
    strange = ", ".join(f"{name} (model-00002-of-00002.safetensors)" for name in sorted(rest[:2]))
    assert lines[3] == f"  in another shard than the index says: {strange}"


def test_all_missing_shards_at_once(folder, model):
    for path in folder.glob("*.safetensors"):
        path.unlink()
    with pytest.raises(
        ValueError, match=r"lacks model-00001-of-00002\S+, model-00002-of-00002\S+, listed in"
    ):
        load_weights(folder, model)


def test_a_damaged_shard_is_named(folder, model):
    path = folder / "model-00002-of-00002.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        ValueError, match=r"model-00002-of-00002\.safetensors is not a complete safetensors file"
    ):
        load_weights(folder, model)


BAD = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"{}",
    b'{"weight_map": []}',
    b'{"weight_map": {}}',
    b'{"weight_map": {"a": 1}}',
]
BAD += [b"[" * 100_000, b"\xff\xfe"]


@pytest.mark.parametrize("content", BAD, ids=lambda content: str(content[:20]))
def test_an_index_that_is_none(folder, model, content):
    (folder / INDEX).write_bytes(content)
    with pytest.raises(ValueError, match=r"index\.json: "):
        load_weights(folder, model)


def test_a_huge_index_is_not_read(folder, model, monkeypatch):
    monkeypatch.setattr(shards, "_MAX_INDEX_BYTES", 50)
    with pytest.raises(ValueError, match=r"index\.json: unpacks to more than the 50 bytes allowed"):
        load_weights(folder, model)


def test_a_pickle_in_a_folder_is_not_looked_for(tmp_path, model):
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"has neither .* Give the folder of a complete model"):
        load_weights(tmp_path, model)


def test_loading_holds_the_tensors_once(tmp_path):
    """Besides the model itself: less than half of it again, where reading the files would be all of
    it.
    """
    big = {name: jnp.zeros(1 << 20) for name in "abcd"}
    save_weights(tmp_path, big, shard_bytes=1 << 22)
    like = jax.eval_shape(lambda: big)
    tracemalloc.start()
    load_weights(tmp_path, like)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * (4 << 22)


def test_config(tmp_path):
    (tmp_path / "config.json").write_text('{"hidden_size": 384, "layer_norm_eps": 1e-12}')
    assert read_config(tmp_path) == {"hidden_size": 384, "layer_norm_eps": 1e-12}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, r"config\.json does not exist. Give a folder in the layout of Hugging Face"),
        (b"[1]", r"config\.json: expected a JSON object; got list"),
        (b"{", r"config\.json: not readable as a JSON object"),
        (b'{"a":' * 100_000, r"config\.json: not readable as a JSON object"),
        (b" " * (3 << 20), r"config\.json: unpacks to more than the 2,097,152 bytes allowed"),
    ],
    ids=["none", "list", "cut", "deep", "huge"],
)
def test_a_config_that_is_none(tmp_path, content, says):
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ValueError, match=says):
        read_config(tmp_path)

"""Models, objectives and attacks are saved as data and built again, and nothing else is run."""

import json
from functools import partial
from pathlib import Path
from typing import NamedTuple

import contracts
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax import serialise
from thetax.data import augment
from thetax.models import MLP
from thetax.serialise import NotSerialisable, build, describe, load, save
from thetax.train import cross_entropy, smooth_labels, weight_decay


class Pair(NamedTuple):
    first: object
    second: object


def again(value):
    """The value described, written as JSON text, and built."""
    arrays: dict[str, np.ndarray] = {}
    return build(json.loads(json.dumps(describe(value, arrays))), arrays)


def local_part(row) -> bool:
    """Whether the row holds a function of the tests, which has no name in a module."""
    return "Linearised" in row.name  # its origin is no data: a key of the compilation cache


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "row", [row for row in contracts.MODELS if not local_part(row)], ids=lambda row: row.name
)
def test_a_model_is_the_same(row):
    model = contracts.generic(row)
    other = again(model)
    assert jax.tree.structure(model) == jax.tree.structure(other)
    assert eqx.tree_equal(model, other)


@pytest.mark.parametrize("row", contracts.ATTACKS, ids=lambda row: row.name)
def test_an_attack_is_the_same(row):
    assert again(again(row.attack)) == again(row.attack)
    assert type(again(row.attack)) is type(row.attack)


def test_an_objective_is_the_same():
    model = MLP.init(3, 4, 2, key=jr.key(0))
    batch = jr.normal(jr.key(1), (5, 3)), jnp.array([0, 1, 1, 0, 1])
    objective = weight_decay(smooth_labels(cross_entropy, 2, strength=0.1), strength=0.3)
    assert again(objective)(model, batch) == objective(model, batch)
    moved = augment.chain(augment.noise(scale=0.2), augment.one_of(jnp.negative, jnp.flip))
    assert jnp.array_equal(
        again(moved)(batch[0][0], key=jr.key(2)), moved(batch[0][0], key=jr.key(2))
    )


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -3,
        0.1,
        float("inf"),
        "θ",
        (1, [2.0, None]),
        {"a": (1,), 3: "b"},
        Pair(1, (2, 3)),
        np.float32(0.25),
        np.array(["cat", "goose"]),
        jnp.bfloat16,
        np.dtype("int8"),
        jax.nn.gelu,
        jnp.tanh,
        MLP,
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_plain_values_are_the_same(value):
    other = again(value)
    assert type(other) is type(value) or isinstance(value, type)
    assert np.array_equal(other, value) if isinstance(value, np.ndarray) else other == value


def test_arrays_keep_their_type_and_are_stored_once():
    here = np.arange(6.0).reshape(2, 3)
    there = jnp.arange(3, dtype=jnp.bfloat16)
    arrays: dict[str, np.ndarray] = {}
    described = describe([here, there, here, here.T], arrays)
    assert len(arrays) == 3
    first, second, third, turned = build(described, arrays)
    assert first is third
    assert isinstance(first, np.ndarray)
    assert isinstance(second, jax.Array)
    assert second.dtype == jnp.bfloat16
    assert np.array_equal(first, here)
    assert np.array_equal(turned, here.T)
    assert jnp.array_equal(second, there)


def test_partials_are_the_same():
    other = again(partial(jnp.clip, min=0.0))
    assert other.func is jnp.clip
    assert other.keywords == {"min": 0.0}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (lambda x: x, r"value: .*lambda.* define it at the top of a module"),
        (
            {"f": [MLP.init(2, 3, 2, activation=lambda z: z, key=jr.key(0))]},
            r"value\['f'\]\[0\].*lambda",
        ),
        (jr.key(0), "a random key cannot be saved"),
        (np.array([object()]), "Python objects"),
        (iter(()), "cannot be saved as data"),
    ],
    ids=["lambda", "lambda inside", "key", "objects", "iterator"],
)
def test_what_is_no_data_is_refused_with_its_place(value, says):
    with pytest.raises(NotSerialisable, match=says):
        describe(value, {})


@pytest.mark.parametrize(
    "node",
    [
        {"function": "os:system"},
        {"type": "subprocess:Popen"},
        {"class": "antigravity:X", "fields": {}},
        {"call": "thetax.train.loop.run:Run", "args": {"list": ["x"]}, "kwargs": {"dict": []}},
        {"call": "numpy:save", "args": {"list": ["x", 1]}, "kwargs": {"dict": []}},
        {"class": "numpy:ndarray", "fields": {}},
        {"class": "thetax.files:write", "fields": {}},
    ],
    ids=lambda node: next(iter(node.values())),
)
def test_a_hostile_file_runs_nothing(node, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"only names of thetax|may call|may build"):
        build(node, {})
    assert not list(tmp_path.iterdir())


def test_a_file_of_another_version_or_a_damaged_one_is_refused(tmp_path):
    path = tmp_path / "model"
    save(path, MLP.init(2, 3, 1, key=jr.key(0)))
    text = (tmp_path / "model.json").read_text()
    (tmp_path / "model.json").write_text(
        text.replace("thetax.models.mlp:MLP", "thetax.models.mlp:Gone")
    )
    with pytest.raises(ValueError, match="another version, or edited"):
        load(path)
    (tmp_path / "model.json").write_text(text[:-5])
    with pytest.raises(ValueError, match="cannot be read"):
        load(path)
    (tmp_path / "model.json").write_text(text)
    tensors = tmp_path / "model.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-4])
    with pytest.raises(ValueError, match="cannot be read"):
        load(path)
    with pytest.raises(ValueError, match="cannot be read"):
        load(tmp_path / "nothing")


def test_names_of_jax_are_public_ones():
    """JAX moves what lies under jax._src from version to version."""
    for function in (jax.nn.relu, jax.nn.gelu, jnp.sin, jnp.tanh, jax.lax.erf):
        assert "_src" not in describe(function, {})["function"]


def test_a_class_of_an_own_module_needs_its_import(monkeypatch):
    described = describe(Pair(1, 2), {})
    assert build(described, {}) == Pair(1, 2)
    monkeypatch.delitem(serialise.sys.modules, __name__)
    with pytest.raises(ValueError, match="import it first if it is yours"):
        build(described, {})


def test_it_is_two_whole_files(tmp_path):
    save(tmp_path / "x", {"a": np.ones(3)})
    assert sorted(path.name for path in Path(tmp_path).iterdir()) == ["x.json", "x.safetensors"]
    assert np.array_equal(load(tmp_path / "x")["a"], np.ones(3))

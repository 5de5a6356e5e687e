"""Whole networks that others trained, from the folder of their files; and folders that others can
open.

A folder is one of Hugging Face's: `config.json`, `model.safetensors` or shards, perhaps the files
of a tokeniser. Or it has a GGUF file, in which all of that is together. Nothing in it is run, and
no size in it is believed before it is held against what the files hold.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ... import files as disk
from ... import tree
from ...data import Tokeniser, load_tokeniser, read_gguf, save_tokeniser
from ...data.gguf.tokeniser import gguf_tokeniser
from ...data.io.bounded_read import contents, reading
from ...layers import Linear
from ...models import BERT, MaskedLM, ViT
from ...models.interop.from_config import AbstractModel, model_from_config
from ...models.interop.gguf import gguf_config, gguf_llama
from ...models.interop.huggingface import huggingface_pooler
from ...models.interop.to_config import config_from_model, expect_same_config
from . import safetensors_io as shards
from .weights import read_config

_WORDS = 4 << 20  # the most bytes of a file of settings
# so many times the numbers that are there may be announced; then it is told which are missing
_SLACK = 4
_OLD = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


@dataclass(frozen=True)
class Network:
    """A model, the settings it was made by, and the layer that reads the first token of a `BERT` or
    `ViT`, if the files have it: the `pool` of a `SentenceClassifier`.
    """

    model: Any
    config: dict[str, Any]
    path: Path
    pool: Linear | None = None

    @cached_property
    def tokeniser(self) -> Tokeniser:
        """What makes tokens of texts, read when it is first asked for."""
        if _is_gguf(self.path):
            return gguf_tokeniser(read_gguf(self.path).token_table())
        return load_tokeniser(self.path)

    @cached_property
    def chat(self) -> str:
        """The template for messages, as its makers wrote it; "" where there is none."""
        if _is_gguf(self.path):
            return read_gguf(self.path).token_table().chat
        if (own := self.path / "chat_template.jinja").is_file():
            return _text(own)
        settings = self.path / "tokenizer_config.json"
        found = (
            shards.read_object(settings, limit=_WORDS).get("chat_template")
            if settings.is_file()
            else ""
        )
        return found if isinstance(found, str) else ""


def load_pretrained(path: str | Path) -> Network:
    """The network in a folder of Hugging Face's layout, or in a GGUF file or the folder of one.

    `bert`, `vit`, `gpt2` and `llama` are read. Another kind, a setting these models do not have,
    and tensors that are missing, superfluous or misshapen are a `ValueError`. Dropout of attention
    weights, which matters only to further training, is not read.

    >>> import tempfile
    >>> import jax.random as jr
    >>> from thetax.models import GPT
    >>> folder = tempfile.mkdtemp()
    >>> model = GPT.init(11, 8, depth=2, heads=2, max_length=12, key=jr.key(0))
    >>> save_pretrained(folder, model)
    >>> network = load_pretrained(folder)
    >>> (
    ...     network.config["model_type"],
    ...     bool((network.model(jnp.arange(3)) == model(jnp.arange(3))).all()),
    ... )
    ('gpt2', True)
    """
    path = Path(path)
    if not path.exists():
        raise ValueError(f"load_pretrained: there is no folder {path}; check the path.")
    network = _from_gguf(path) if _is_gguf(path) else _from_folder(path)
    if bad := [
        name
        for name, leaf in zip(tree.names(network.model), jax.tree.leaves(network.model))
        if not _finite(leaf)
    ]:
        raise ValueError(
            f"load_pretrained: {path} has NaN or infinity in {', '.join(bad[:4])}; get it anew."
        )
    return network


def save_pretrained(
    folder: str | Path,
    model: Any,
    *,
    tokeniser: Tokeniser | None = None,
    config: Mapping[str, Any] | None = None,
    pool: Linear | None = None,
    shard_bytes: int | None = None,
) -> None:
    """Writes a folder that transformers opens: `config.json`, `model.safetensors` (or shards), the
    tokeniser's files.

    `config` adds settings that a model does not know, and may be those of the `Network` it was: the
    longest text, the numbers of special tokens, the names of classes.
    """
    folder = Path(folder)
    settings = config_from_model(model, config=config)
    tensors = expect_same_config(model, settings).names.write(_headless(model))
    if pool is not None:
        tensors |= _pooled(model, pool)
    folder.mkdir(parents=True, exist_ok=True)
    if tokeniser is not None:
        save_tokeniser(tokeniser, folder)
    settings.setdefault("dtype", str(next(iter(tensors.values())).dtype))
    disk.write(folder / "config.json", json.dumps(settings, indent=2) + "\n")
    shards.write_folder(folder, tensors, shard_bytes=shard_bytes)


def _finite(leaf: jax.Array) -> bool:
    return bool(jnp.isfinite(leaf).all())


def _is_gguf(path: Path) -> bool:
    if path.is_dir():
        return not (path / "config.json").is_file() and any(path.glob("*.gguf"))
    return path.suffix == ".gguf"


def _text(path: Path) -> str:
    name, data = contents(path, limit=_WORDS)
    with reading(name, "text"):
        return data.decode()


def _from_folder(folder: Path) -> Network:
    config = read_config(folder)
    blank = model_from_config(config)
    tensors = _today(shards.read_folder(folder))
    if (
        isinstance(blank.model, MaskedLM) and "cls.seq_relationship.weight" in tensors
    ):  # as BERT itself was published
        blank = model_from_config(config | {"architectures": ["BertForPreTraining"]})
    _bound(blank, sum(tensor.size for tensor in tensors.values()), folder)
    model = _read(blank, tensors, f"load_pretrained: the tensors of {folder}")
    return Network(model, config, folder, _pooler(model, tensors))


def _today(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors under the names of today; norms had others in the first files."""
    for old, new in _OLD.items():
        tensors = {
            name.removesuffix(old) + new if name.endswith(old) else name: t
            for name, t in tensors.items()
        }
    return tensors


def _bound(blank: AbstractModel, room: int, path: Path) -> None:
    count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(blank.model))
    if count > _SLACK * room:
        raise ValueError(
            f"load_pretrained: the settings of {path} are those of {count:,} numbers, but its "
            f"tensors hold {room:,}; they do not belong together."
        )


def _bare(model: Any) -> bool:
    """Whether it is a network for images without classes, whose files have no head."""
    return isinstance(model, ViT) and model.head.W.shape[0] == 0


def _headless(model: Any) -> Any:
    return eqx.tree_at(lambda m: m.head, model, None) if _bare(model) else model


def _read(blank: AbstractModel, tensors: Mapping[str, np.ndarray], source: str) -> Any:
    found = blank.names.read(tensors, _headless(blank.model), source=source)
    if not _bare(blank.model):
        return found
    empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), blank.model.head)
    return eqx.tree_at(lambda m: m.head, found, empty, is_leaf=lambda node: node is None)


def _pooled(model: Any, pool: Linear) -> dict[str, np.ndarray]:
    if not isinstance(model, BERT) and not _bare(model):
        raise ValueError(
            "save_pretrained: a pool belongs to a BERT or a ViT without classes; got a "
            f"{type(model).__name__}."
        )
    root = "" if isinstance(model, BERT) else "vit."
    return {root + name: tensor for name, tensor in huggingface_pooler.write(pool).items()}


def _pooler(model: Any, tensors: Mapping[str, np.ndarray]) -> Linear | None:
    ends = ("pooler.dense.weight", "pooler.dense.bias")
    found = [
        jnp.array(tensor, jnp.float32)
        for end in ends
        for name, tensor in tensors.items()
        if name.endswith(end)
    ]
    if not isinstance(model, BERT | ViT) or not found:
        return None
    if len(found) != 2:
        raise ValueError(
            f"load_pretrained: expected {ends[0]} and {ends[1]} once, got {len(found)} tensors."
        )
    return Linear(found[0], found[1])


def _from_gguf(path: Path) -> Network:
    metadata, tensors = read_gguf(path)
    config = gguf_config(metadata, tensors)
    blank = model_from_config(config)
    files = path.glob("*.gguf") if path.is_dir() else [path]
    _bound(
        blank, 8 * sum(file.stat().st_size for file in files), path
    )  # a number takes a bit or more
    attention = blank.model.trunk.blocks.layers.attention
    names = gguf_llama(heads=attention.heads, kv_heads=attention.groups)
    model = names.read(tensors, blank.model, source=f"load_pretrained: the tensors of {path}")
    return Network(model, config, path)

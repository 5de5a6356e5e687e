"""Loading and saving pretrained networks, in the folder layout of Hugging Face or from GGUF.

A Hugging Face folder has `config.json`, `model.safetensors` (or shards), and optionally the files
of a tokeniser; a GGUF file contains all of it. No code of a folder is executed, and sizes are
checked against the files before memory is allocated.
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

_MAX_SETTINGS_BYTES = 4 << 20
# config.json may describe at most so many times the weights in the files; below this limit the
# missing tensors are listed
_MAX_SIZE_RATIO = 4
_OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


@dataclass(frozen=True)
class PretrainedModel:
    """A pretrained model with its `config.json`.

    `pool` is the pooling layer of a `BERT` or `ViT` for the first token, if the files contain it:
    the `pool` of a `SentenceClassifier`.
    """

    model: Any
    config: dict[str, Any]
    path: Path
    pool: Linear | None = None

    @cached_property
    def tokeniser(self) -> Tokeniser:
        """The tokeniser, loaded on first access."""
        if _is_gguf(self.path):
            return gguf_tokeniser(read_gguf(self.path).token_table())
        return load_tokeniser(self.path)

    @cached_property
    def chat_template(self) -> str:
        """The Jinja template for chat messages; "" if there is none."""
        if _is_gguf(self.path):
            return read_gguf(self.path).token_table().chat_template
        file = self.path / "chat_template.jinja"
        if file.is_file():
            return _read_text(file)
        settings = self.path / "tokenizer_config.json"
        template = (
            shards.read_object(settings, limit=_MAX_SETTINGS_BYTES).get("chat_template")
            if settings.is_file()
            else ""
        )
        return template if isinstance(template, str) else ""


def load_pretrained(path: str | Path) -> PretrainedModel:
    """Loads a pretrained network from a Hugging Face folder or a GGUF file (or its folder).

    Supported model types are `bert`, `vit`, `gpt2` and `llama`. Other model types, unsupported
    settings, and missing, superfluous or misshapen tensors raise `ValueError`.

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
        raise ValueError(f"load_pretrained: {path} does not exist. Check the path.")
    network = _from_gguf(path) if _is_gguf(path) else _from_folder(path)
    names = tree.leaf_names(network.model)
    not_finite = [
        name
        for name, leaf in zip(names, jax.tree.leaves(network.model))
        if not bool(jnp.isfinite(leaf).all())
    ]
    if not_finite:
        raise ValueError(
            f"load_pretrained: {path} has NaN or infinity in {', '.join(not_finite[:4])}. Download "
            "it again."
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
    """Saves a model in the layout of Hugging Face's transformers: `config.json`,
    `model.safetensors` (or shards) and the files of the tokeniser.

    `config` adds settings that the model does not have, for instance those of the `PretrainedModel`
    it came from: maximal length, ids of special tokens, class names.
    """
    folder = Path(folder)
    settings = config_from_model(model, config=config)
    tensors = expect_same_config(model, settings).names.write(_without_head(model))
    if pool is not None:
        tensors |= _pool_tensors(model, pool)
    folder.mkdir(parents=True, exist_ok=True)
    if tokeniser is not None:
        save_tokeniser(tokeniser, folder)
    settings.setdefault("dtype", str(next(iter(tensors.values())).dtype))
    disk.write(folder / "config.json", json.dumps(settings, indent=2) + "\n")
    shards.write_folder(folder, tensors, shard_bytes=shard_bytes)


def _is_gguf(path: Path) -> bool:
    if path.is_dir():
        return not (path / "config.json").is_file() and any(path.glob("*.gguf"))
    return path.suffix == ".gguf"


def _read_text(path: Path) -> str:
    name, data = contents(path, limit=_MAX_SETTINGS_BYTES)
    with reading(name, "text"):
        return data.decode()


def _from_folder(folder: Path) -> PretrainedModel:
    config = read_config(folder)
    abstract = model_from_config(config)
    tensors = _current_names(shards.read_folder(folder))
    if isinstance(abstract.model, MaskedLM) and "cls.seq_relationship.weight" in tensors:
        # the published BERT has both pretraining heads
        abstract = model_from_config(config | {"architectures": ["BertForPreTraining"]})
    _check_size(abstract, sum(tensor.size for tensor in tensors.values()), folder)
    model = _read(abstract, tensors, f"load_pretrained: the tensors of {folder}")
    return PretrainedModel(model, config, folder, _read_pool(model, tensors))


def _current_names(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors with current names; early files have other names of norms."""
    for old, new in _OLD_NAMES.items():
        tensors = {
            name.removesuffix(old) + new if name.endswith(old) else name: t
            for name, t in tensors.items()
        }
    return tensors


def _check_size(abstract: AbstractModel, n_stored: int, path: Path) -> None:
    n_weights = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(abstract.model))
    if n_weights > _MAX_SIZE_RATIO * n_stored:
        raise ValueError(
            f"load_pretrained: the settings in {path} describe {n_weights:,} weights, but its "
            f"tensors have {n_stored:,}; they do not belong together."
        )


def _has_no_head(model: Any) -> bool:
    """Whether it is a `ViT` without classes, whose files contain no head."""
    return isinstance(model, ViT) and model.head.W.shape[0] == 0


def _without_head(model: Any) -> Any:
    return eqx.tree_at(lambda m: m.head, model, None) if _has_no_head(model) else model


def _read(abstract: AbstractModel, tensors: Mapping[str, np.ndarray], source: str) -> Any:
    model = abstract.names.read(tensors, _without_head(abstract.model), source=source)
    if not _has_no_head(abstract.model):
        return model
    empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), abstract.model.head)
    return eqx.tree_at(lambda m: m.head, model, empty, is_leaf=lambda node: node is None)


def _pool_tensors(model: Any, pool: Linear) -> dict[str, np.ndarray]:
    if not isinstance(model, BERT) and not _has_no_head(model):
        raise ValueError(
            "save_pretrained: pool needs a BERT or a ViT without classes as the model; got a "
            f"{type(model).__name__}."
        )
    root = "" if isinstance(model, BERT) else "vit."
    return {root + name: tensor for name, tensor in huggingface_pooler.write(pool).items()}


def _read_pool(model: Any, tensors: Mapping[str, np.ndarray]) -> Linear | None:
    suffixes = ("pooler.dense.weight", "pooler.dense.bias")
    layers = [
        jnp.array(tensor, jnp.float32)
        for suffix in suffixes
        for name, tensor in tensors.items()
        if name.endswith(suffix)
    ]
    if not isinstance(model, BERT | ViT) or not layers:
        return None
    if len(layers) != 2:
        raise ValueError(
            f"load_pretrained: expected one {suffixes[0]} and one {suffixes[1]}; got "
            f"{len(layers)} tensors."
        )
    return Linear(layers[0], layers[1])


def _from_gguf(path: Path) -> PretrainedModel:
    metadata, tensors = read_gguf(path)
    config = gguf_config(metadata, tensors)
    abstract = model_from_config(config)
    files = path.glob("*.gguf") if path.is_dir() else [path]
    # a quantised weight takes at least one bit
    _check_size(abstract, 8 * sum(file.stat().st_size for file in files), path)
    attention = abstract.model.trunk.blocks.layers.attention
    names = gguf_llama(heads=attention.heads, kv_heads=attention.kv_heads)
    model = names.read(tensors, abstract.model, source=f"load_pretrained: the tensors of {path}")
    return PretrainedModel(model, config, path)

"""The `config.json` of a model for Hugging Face; the inverse of `model_from_config`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax

from ...layers import (
    Activation,
    FeedForward,
    GatedFeedForward,
    LayerNorm,
    LearnedPositions,
    RMSNorm,
    Rotary,
)
from ..transformers.bert import (
    BERT,
    BERTPretraining,
    MaskedLM,
    SentenceClassifier,
    SpanPredictor,
    TokenClassifier,
)
from ..transformers.gpt import GPT
from ..transformers.vit import ViT
from .from_config import AbstractModel, model_from_config
from .hf_config import ACTIVATIONS

Config = dict[str, Any]
_TASKS = {
    BERTPretraining: "BertForPreTraining",
    MaskedLM: "BertForMaskedLM",
    SentenceClassifier: "BertForSequenceClassification",
    TokenClassifier: "BertForTokenClassification",
    SpanPredictor: "BertForQuestionAnswering",
}


def config_from_model(model: Any, *, config: Mapping[str, Any] | None = None) -> Config:
    """The `config.json` of a `BERT` (with or without a head), a `ViT` or a `GPT`.

    `config` adds settings that the model does not have, such as the maximal length of a model with
    `Rotary` positions, or the ids of special tokens.

    >>> import jax.random as jr
    >>> model = GPT.init(11, 8, depth=2, heads=2, max_length=12, key=jr.key(0))
    >>> found = config_from_model(model, config={"eos_token_id": 10})
    >>> found["model_type"], found["n_layer"], found["eos_token_id"]
    ('gpt2', 2, 10)
    """
    if isinstance(model, BERT):
        known = _bert(model) | {"architectures": ["BertModel"]}
    elif isinstance(model, tuple(_TASKS)):
        known = _bert(model.bert) | {"architectures": [_TASKS[type(model)]]} | _head(model)
    elif isinstance(model, ViT):
        known = _vit(model)
    elif isinstance(model, GPT):
        known = _gpt2(model) if isinstance(model.positions, LearnedPositions) else _llama(model)
    else:
        raise ValueError(
            f"config_from_model: transformers has no {type(model).__name__}; give a BERT, ViT or "
            "GPT."
        )
    given = config or {}
    if len(given.get("id2label") or ()) == len(
        known.get("id2label") or ()
    ):  # keep the given class names
        known = {
            name: value for name, value in known.items() if name not in ("id2label", "label2id")
        }
    whole = {**given, **known}
    expect_same_config(model, whole)
    return whole


def expect_same_config(model: Any, config: Mapping[str, Any]) -> AbstractModel:
    """The abstract model of the settings; raises `ValueError` if it differs from the model."""
    blank = model_from_config(config)
    if _form(blank.model) != _form(model):
        raise ValueError(
            f"config_from_model: this {type(model).__name__} cannot be written as a "
            "config.json: its norms, activations, attention or scales differ from those of "
            "transformers' network of that name."
        )
    return blank


def _form(model: Any) -> Any:
    """The structure and shapes of a model, ignoring weights and gradient checkpointing."""
    trunk = lambda m: m.trunk if hasattr(m, "trunk") else m.bert.trunk
    model = eqx.tree_at(lambda m: trunk(m).blocks, model, replace(trunk(model).blocks, remat=False))
    leaves, structure = jax.tree.flatten(model)
    return structure, [leaf.shape for leaf in leaves]


def _named(activation: Activation) -> str:
    for name, known in ACTIVATIONS.items():
        if known is activation:
            return name
    raise ValueError(
        f"config_from_model: transformers has no name for the activation {activation!r}."
    )


def _sizes(trunk: Any, feed: type, norm: type) -> Config:
    """The settings that BERT, ViT and Llama have in common."""
    block = trunk.blocks.layers
    if not isinstance(block.feed, feed) or not isinstance(block.norm, norm):
        raise ValueError(
            f"config_from_model: expected {feed.__name__} and {norm.__name__} in every block; got "
            f"{type(block.feed).__name__} and {type(block.norm).__name__}, which "
            "transformers does not have."
        )
    return {
        "hidden_size": block.attention.Q.W.shape[-1],
        "num_hidden_layers": len(trunk.blocks),
        "num_attention_heads": block.attention.heads,
        "intermediate_size": block.feed.up.W.shape[-2],
        "hidden_act": _named(block.feed.activation),
    }


def _encoder(trunk: Any) -> Config:
    block = trunk.blocks.layers
    dropout = {
        "hidden_dropout_prob": block.drop.p,
        "attention_probs_dropout_prob": block.attention.dropout,
    }
    return _sizes(trunk, FeedForward, LayerNorm) | {"layer_norm_eps": block.norm.eps} | dropout


def _labels(count: int) -> Config:
    return {
        "id2label": {str(i): f"LABEL_{i}" for i in range(count)},
        "label2id": {f"LABEL_{i}": i for i in range(count)},
    }


def _bert(model: BERT) -> Config:
    return _encoder(model.trunk) | {
        "model_type": "bert",
        "vocab_size": len(model.embed.E),
        "max_position_embeddings": len(model.positions.P),
        "type_vocab_size": len(model.segments.E),
        "tie_word_embeddings": True,
    }


def _head(model: Any) -> Config:
    dropout = {"classifier_dropout": model.drop.p} if hasattr(model, "drop") else {}
    return dropout | (_labels(len(model.head.W)) if hasattr(model, "head") else {})


def _vit(model: ViT) -> Config:
    _, channels, patch, _ = model.stem.W.shape
    classes = len(model.head.W)
    return (
        _encoder(model.trunk)
        | {
            "model_type": "vit",
            "architectures": ["ViTForImageClassification" if classes else "ViTModel"],
            "image_size": model.image_size[0]
            if model.image_size[0] == model.image_size[1]
            else list(model.image_size),
            "patch_size": patch,
            "num_channels": channels,
            "qkv_bias": True,
        }
        | (_labels(classes) if classes else {})
    )


def _gpt2(model: GPT) -> Config:
    block = model.trunk.blocks.layers
    sizes = _sizes(model.trunk, FeedForward, LayerNorm)
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": len(model.embed.E),
        "n_positions": len(model.positions.P) if model.positions is not None else 0,
        "n_embd": sizes["hidden_size"],
        "n_layer": sizes["num_hidden_layers"],
        "n_head": sizes["num_attention_heads"],
        "n_inner": sizes["intermediate_size"],
        "activation_function": sizes["hidden_act"],
        "layer_norm_epsilon": block.norm.eps,
        "resid_pdrop": block.drop.p,
        "embd_pdrop": model.drop.p,
        "attn_pdrop": block.attention.dropout,
        "tie_word_embeddings": model.readout is None,
    }


def _llama(model: GPT) -> Config:
    block = model.trunk.blocks.layers
    if not isinstance(block.attention.position_encoding, Rotary):
        raise ValueError(
            "config_from_model: transformers' GPT has learned or rotary "
            "positions; this model has neither."
        )
    return _sizes(model.trunk, GatedFeedForward, RMSNorm) | {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": len(model.embed.E),
        "num_key_value_heads": block.attention.kv_heads,
        "head_dim": block.attention.Q.W.shape[-2] // block.attention.heads,
        "rms_norm_eps": block.norm.eps,
        "rope_theta": block.attention.position_encoding.base,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": block.attention.position_encoding.base,
        },
        "tie_word_embeddings": model.readout is None,
    }

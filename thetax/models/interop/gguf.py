"""Llama models in GGUF files (llama.cpp): weight names and settings."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from ...data import deinterleave_rotary, interleave_rotary
from .weight_names import WeightNames, WeightRule

_BLOCK = "trunk.blocks.layers"
_SIZES = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
}
_UNSUPPORTED = ("rope.scaling.type", "expert_count", "attention.sliding_window")


def gguf_llama(*, heads: int, kv_heads: int) -> WeightNames:
    """The weight names of a Llama `GPT` in a GGUF file, with interleaved rows of queries and keys.

    >>> names = gguf_llama(heads=9, kv_heads=3)
    >>> names.rules[2].theirs
    ('blk.{*}.attn_q.weight',)
    """

    def interleaved(ours: str, theirs: str, heads: int) -> WeightRule:
        read = partial(deinterleave_rotary, heads=heads)
        write = partial(interleave_rotary, heads=heads)
        return WeightRule((ours,), (theirs,), lambda t: (read(t),), lambda w: (write(w),))

    return WeightNames(
        rules=(
            WeightRule.copy("embed.E", "token_embd.weight"),
            WeightRule.copy(f"{_BLOCK}.norm.gamma", "blk.{*}.attn_norm.weight"),
            interleaved(f"{_BLOCK}.attention.Q.W", "blk.{*}.attn_q.weight", heads),
            interleaved(f"{_BLOCK}.attention.K.W", "blk.{*}.attn_k.weight", kv_heads),
            WeightRule.copy(f"{_BLOCK}.attention.V.W", "blk.{*}.attn_v.weight"),
            WeightRule.copy(f"{_BLOCK}.attention.O.W", "blk.{*}.attn_output.weight"),
            WeightRule.copy(f"{_BLOCK}.feed_norm.gamma", "blk.{*}.ffn_norm.weight"),
            *[
                WeightRule.copy(f"{_BLOCK}.feed.{w}.W", f"blk.{{*}}.ffn_{w}.weight")
                for w in ("gate", "up", "down")
            ],
            WeightRule.copy("trunk.last.gamma", "output_norm.weight"),
            WeightRule.copy("readout.W", "output.weight"),
        ),
    )


def gguf_config(metadata: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata as settings of `config.json`; `names` are those of the stored tensors.

    >>> gguf_config({"general.architecture": "qwen2"}, {})
    Traceback (most recent call last):
    ValueError: gguf_config: general.architecture is 'qwen2'; only llama is supported.
    """
    kind = metadata.get("general.architecture")
    if kind != "llama":
        raise ValueError(f"gguf_config: general.architecture is {kind!r}; only llama is supported.")
    for name in _UNSUPPORTED:
        if metadata.get(f"llama.{name}") not in (None, 0, "none"):
            raise ValueError(
                f"gguf_config: llama.{name} is {metadata[f'llama.{name}']!r}, which is not "
                "supported."
            )
    values = {ours: metadata.get(f"llama.{theirs}") for ours, theirs in _SIZES.items()}
    config = {name: _shortest_float(value) for name, value in values.items() if value is not None}
    tokens = metadata.get("tokenizer.ggml.tokens")
    config["vocab_size"] = metadata.get(
        "llama.vocab_size", len(tokens) if isinstance(tokens, list) else None
    )
    special = {
        f"{name}_token_id": metadata.get(f"tokenizer.ggml.{name}_token_id")
        for name in ("bos", "eos")
    }
    config |= {name: i for name, i in special.items() if i is not None}
    _check_rotary_size(config, metadata)
    return config | {"model_type": "llama", "tie_word_embeddings": "output.weight" not in names}


def _shortest_float(value: Any) -> Any:
    """The shortest decimal of a float32: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(value))) if isinstance(value, float) else value


def _check_rotary_size(config: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    """Raises `ValueError` for partial rotary encoding; invalid sizes are checked later."""
    rotary_dim = metadata.get("llama.rope.dimension_count")
    d = config.get("hidden_size")
    heads = config.get("num_attention_heads")
    if rotary_dim is None or not isinstance(d, int) or not isinstance(heads, int) or not heads:
        return
    if rotary_dim != config.get("head_dim", d // heads):
        raise ValueError(
            "gguf_config: llama.rope.dimension_count must be "
            f"{config.get('head_dim', d // heads)}, the head dimension; got {rotary_dim}."
        )

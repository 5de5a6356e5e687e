"""A network of the kind of Llama as llama.cpp keeps it, in a GGUF file: how its parts are called,
and its settings.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from ...data import rotary_halves, rotary_pairs
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
_NEITHER = (
    "rope.scaling.type",
    "expert_count",
    "attention.sliding_window",
)  # what these models do not have


def gguf_llama(*, heads: int, kv_heads: int) -> WeightNames:
    """The names of a `GPT` of the kind of Llama in a GGUF file, whose queries and keys have their
    rows in pairs.

    >>> names = gguf_llama(heads=9, kv_heads=3)
    >>> names.rules[2].theirs
    ('blk.{*}.attn_q.weight',)
    """

    def paired(ours: str, theirs: str, heads: int) -> WeightRule:
        read = partial(rotary_halves, heads=heads)
        write = partial(rotary_pairs, heads=heads)
        return WeightRule((ours,), (theirs,), lambda t: (read(t),), lambda w: (write(w),))

    return WeightNames(
        rules=(
            WeightRule.copy("embed.E", "token_embd.weight"),
            WeightRule.copy(f"{_BLOCK}.norm.gamma", "blk.{*}.attn_norm.weight"),
            paired(f"{_BLOCK}.attention.Q.W", "blk.{*}.attn_q.weight", heads),
            paired(f"{_BLOCK}.attention.K.W", "blk.{*}.attn_k.weight", kv_heads),
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
    """The metadata in the words of `config.json`; `names` are those of the tensors that are there.

    >>> gguf_config({"general.architecture": "qwen2"}, {})
    Traceback (most recent call last):
    ValueError: gguf_config: general.architecture is 'qwen2'; llama can be read.
    """
    kind = metadata.get("general.architecture")
    if kind != "llama":
        raise ValueError(f"gguf_config: general.architecture is {kind!r}; llama can be read.")
    for name in _NEITHER:
        if metadata.get(f"llama.{name}") not in (None, 0, "none"):
            raise ValueError(
                f"gguf_config: llama.{name} is {metadata[f'llama.{name}']!r}, which this library "
                "does not have."
            )
    found = {ours: metadata.get(f"llama.{theirs}") for ours, theirs in _SIZES.items()}
    config = {name: _short(value) for name, value in found.items() if value is not None}
    tokens = metadata.get("tokenizer.ggml.tokens")
    config["vocab_size"] = metadata.get(
        "llama.vocab_size", len(tokens) if isinstance(tokens, list) else None
    )
    special = {
        f"{name}_token_id": metadata.get(f"tokenizer.ggml.{name}_token_id")
        for name in ("bos", "eos")
    }
    config |= {name: number for name, number in special.items() if number is not None}
    _expect_whole_turns(config, metadata)
    return config | {"model_type": "llama", "tie_word_embeddings": "output.weight" not in names}


def _short(value: Any) -> Any:
    """1e-5 rather than the float32 nearest to it, 9.999999747378752e-06."""
    return float(str(np.float32(value))) if isinstance(value, float) else value


def _expect_whole_turns(config: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    """Refuses heads of which only a part is turned; sizes that make no sense are told later."""
    turned = metadata.get("llama.rope.dimension_count")
    d = config.get("hidden_size")
    heads = config.get("num_attention_heads")
    if turned is None or not isinstance(d, int) or not isinstance(heads, int) or not heads:
        return
    if turned != config.get("head_dim", d // heads):
        raise ValueError(
            f"gguf_config: llama.rope.dimension_count is {turned}, but a head has "
            f"{config.get('head_dim', d // heads)} "
            "numbers; only heads that are turned as a whole can be read."
        )

"""What config.json says: the model of just that shape, the way back, and what is refused by
name.
"""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from thetax.layers import ALiBi, Embedding, FeedForward, LearnedPositions, Rotary, gelu_tanh, relu
from thetax.models import (
    BERT,
    GPT,
    MLP,
    BERTPretraining,
    MaskedLM,
    SentenceClassifier,
    SpanPredictor,
    TokenClassifier,
    Trunk,
    ViT,
    config_from_model,
    model_from_config,
)
from thetax.models.interop.gguf import gguf_config
from thetax.models.interop.hf_config import HFConfig

SIZES = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 6}
BERT_WORDS = {"model_type": "bert", "vocab_size": 5, "max_position_embeddings": 3, **SIZES}
VIT_WORDS = {"model_type": "vit", "image_size": 4, "patch_size": 2, "num_channels": 1, **SIZES}
LLAMA_WORDS = {"model_type": "llama", "vocab_size": 5, "num_key_value_heads": 1, **SIZES}
GPT2_WORDS = {
    "model_type": "gpt2",
    "vocab_size": 5,
    "n_positions": 3,
    "n_embd": 8,
    "n_layer": 2,
    "n_head": 2,
}

RELATIVES = {  # of Llama: Mistral, Granite, OLMo, Cohere, Gemma, Qwen, Mixtral
    "sliding_window": 4096,
    "embedding_multiplier": 12.0,
    "logits_scaling": 8.0,
    "residual_multiplier": 0.22,
    "attention_multiplier": 0.5,
    "attention_dropout": 0.1,
    "mlp_bias": True,
    "clip_qkv": 8.0,
    "logit_scale": 0.0625,
    "final_logit_softcapping": 30.0,
    "attn_logit_softcapping": 50.0,
    "query_pre_attn_scalar": 256,
    "partial_rotary_factor": 0.5,
    "use_qk_norm": True,
    "num_local_experts": 8,
}

bert = partial(BERT.init, 5, 8, depth=2, heads=2, hidden=6, max_length=3)


def strange(*arguments):
    return arguments[-1]


def trunk(*, activation=relu, key, **options):
    return Trunk.init(
        1, 8, 2, 6, feed=partial(FeedForward.init, activation=activation), key=key, **options
    )


def gpt(trunk, *, placed: bool = False) -> GPT:
    return GPT(
        Embedding(jnp.zeros((5, 8))), trunk, LearnedPositions(jnp.zeros((3, 8))) if placed else None
    )


MODELS = {
    "bert": bert,
    "pretraining": lambda *, key: BERTPretraining.init(bert(key=key), key=key),
    "masked": lambda *, key: MaskedLM.init(bert(key=key), key=key),
    "classifier": lambda *, key: SentenceClassifier.init(
        bert(dropout=0.1, key=key), 3, dropout=0.2, key=key
    ),
    "tagger": lambda *, key: TokenClassifier.init(bert(activation=relu, key=key), 4, key=key),
    "spans": lambda *, key: SpanPredictor.init(bert(remat=True, key=key), key=key),
    "vit": partial(
        ViT.init,
        3,
        image_size=(4, 2),
        channels=1,
        patch_size=2,
        d=8,
        depth=1,
        heads=2,
        eps=1e-6,
    ),
    "vit without classes": partial(
        ViT.init, 0, image_size=(4, 4), channels=1, patch_size=2, d=8, depth=1, heads=2
    ),
    "gpt2": partial(GPT.init, 5, 8, depth=2, heads=2, max_length=3, dropout=0.1),
    "gpt2, untied": partial(GPT.init, 5, 8, depth=2, heads=4, hidden=6, max_length=3, tied=False),
    "llama": partial(
        GPT.llama,
        5,
        8,
        depth=2,
        heads=2,
        kv_heads=1,
        hidden=6,
        rope_base=777.0,
        eps=1e-3,
        tied=False,
    ),
}


@pytest.mark.parametrize("case", MODELS)
def test_a_model_and_its_words_make_each_other(case):
    like = jax.eval_shape(partial(MODELS[case], key=jr.key(0)))
    again = model_from_config(config_from_model(like)).model
    assert jax.tree.map(lambda leaf: leaf.shape, again).__class__ is like.__class__
    assert [leaf.shape for leaf in jax.tree.leaves(again)] == [
        leaf.shape for leaf in jax.tree.leaves(like)
    ]
    if case != "spans":  # of which one computes again on the way back
        assert jax.tree.structure(again) == jax.tree.structure(like)


def test_names_of_classes_are_kept():
    like = jax.eval_shape(partial(MODELS["vit"], key=jr.key(0)))
    mine = {
        "id2label": {"0": "cat", "1": "dog", "2": "gnu"},
        "label2id": {"cat": 0, "dog": 1, "gnu": 2},
    }
    assert config_from_model(like, config=mine)["id2label"]["2"] == "gnu"
    assert config_from_model(like, config={"id2label": {"0": "cat"}})["id2label"]["2"] == "LABEL_2"


def test_how_many_classes_there_are():
    assert HFConfig({}).classes() == 2
    assert HFConfig({"num_labels": 5}).classes() == 5
    assert HFConfig({"id2label": {}, "num_labels": 4}).classes() == 4
    assert HFConfig({"id2label": {"0": "a", "1": "b", "2": "c"}, "num_labels": 5}).classes() == 3


def test_what_is_not_said_is_as_usual():
    block = model_from_config(GPT2_WORDS).model.trunk.blocks.layers
    assert (block.feed.up.W.shape, block.feed.activation, block.norm.eps) == (
        (2, 32, 8),
        gelu_tanh,
        1e-5,
    )
    model = model_from_config(LLAMA_WORDS).model
    assert model.readout.W.shape == (5, 8)
    attention = model.trunk.blocks.layers.attention
    assert (attention.position_encoding.base, attention.K.W.shape) == (1e4, (2, 4, 8))


@pytest.mark.parametrize(
    ("more", "base"),
    [
        ({"rope_theta": 5e5}, 5e5),
        ({"rope_theta": 5e5, "rope_scaling": None}, 5e5),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 7.0}}, 7.0),
    ],
)
def test_the_base_of_rotary_places(more, base):
    assert (
        model_from_config(
            LLAMA_WORDS | more
        ).model.trunk.blocks.layers.attention.position_encoding.base
        == base
    )


def test_settings_with_their_usual_values_are_read():
    """As Llama's and ViT's own files and those of its relatives say them, null included."""
    usual = dict.fromkeys(RELATIVES) | {"embedding_multiplier": 1.0, "mlp_bias": False}
    usual |= {"attention_dropout": 0.0, "layer_types": ["full_attention"] * 2, "pretraining_tp": 1}
    assert jax.tree.structure(model_from_config(LLAMA_WORDS | usual).model) == jax.tree.structure(
        model_from_config(LLAMA_WORDS).model
    )
    model_from_config(
        VIT_WORDS | {"pooler_act": "tanh", "pooler_output_size": 8, "pruned_heads": {}}
    )


def test_heads_of_another_size():
    attention = model_from_config(LLAMA_WORDS | {"head_dim": 6}).model.trunk.blocks.layers.attention
    assert (attention.Q.W.shape, attention.K.W.shape, attention.O.W.shape) == (
        (2, 12, 8),
        (2, 6, 8),
        (2, 8, 12),
    )


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({}, "model_type is None; bert, vit, gpt2 and llama are supported"),
        ({"model_type": ["bert"]}, r"model_type is \['bert'\]"),
        (
            BERT_WORDS | {"architectures": ["BertForNextSentencePrediction"]},
            "architectures is .*; expected one of BertM",
        ),
        (BERT_WORDS | {"architectures": [7]}, "architectures is"),
        (
            BERT_WORDS | {"position_embedding_type": "relative_key"},
            "position_embedding_type is 'relative_key'; expected",
        ),
        (BERT_WORDS | {"is_decoder": True}, "is_decoder is True; expected False"),
        (
            BERT_WORDS | {"hidden_act": "mish"},
            "hidden_act is 'mish'; expected one of gelu, gelu_new",
        ),
        (
            BERT_WORDS | {"hidden_dropout_prob": 1},
            r"hidden_dropout_prob is 1; expected a probability in \[0, 1\)",
        ),
        (BERT_WORDS | {"layer_norm_eps": 0}, "layer_norm_eps is 0; expected a number > 0"),
        (BERT_WORDS | {"layer_norm_eps": 10**400}, "layer_norm_eps is 1000"),
        (
            BERT_WORDS | {"vocab_size": None},
            "vocab_size is None; expected an integer from 1 to",
        ),
        (BERT_WORDS | {"vocab_size": True}, "vocab_size is True; expected an integer"),
        (
            BERT_WORDS | {"hidden_size": 1 << 40},
            "hidden_size is 1099511627776; expected an integer",
        ),
        (
            BERT_WORDS | {"num_hidden_layers": 10**6},
            "num_hidden_layers is 1000000; expected an integer from 1 to 1,024",
        ),
        (BERT_WORDS | {"num_attention_heads": 3}, "divisible by heads; got d=8, heads=3"),
        (VIT_WORDS | {"image_size": [4, 4, 4]}, r"image_size is \[4, 4, 4\]; expected one or two"),
        (
            VIT_WORDS | {"image_size": 5},
            "image_size is 5; expected .* divisible by the patch size 2",
        ),
        (VIT_WORDS | {"qkv_bias": False}, "qkv_bias is False"),
        (VIT_WORDS | {"pooler_act": "relu"}, "pooler_act is 'relu'; expected 'tanh'"),
        (VIT_WORDS | {"pooler_output_size": 4}, "pooler_output_size is 4; expected 8"),
        *[
            (words | {"pruned_heads": {"0": [1]}}, "pruned_heads is")
            for words in (BERT_WORDS, VIT_WORDS, GPT2_WORDS)
        ],
        *[
            (LLAMA_WORDS | {name: value}, f"{name} is {value!r}; expected")
            for name, value in RELATIVES.items()
        ],
        (LLAMA_WORDS | {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types is"),
        (
            GPT2_WORDS | {"scale_attn_by_inverse_layer_idx": True},
            "scale_attn_by_inverse_layer_idx is True",
        ),
        (
            GPT2_WORDS | {"tie_word_embeddings": "yes"},
            "tie_word_embeddings is 'yes'; expected true or false",
        ),
        (LLAMA_WORDS | {"attention_bias": True}, "attention_bias is True"),
        (
            LLAMA_WORDS | {"rope_scaling": {"rope_type": "llama3", "factor": 8}},
            "rope_scaling is .*; expected unscaled rotary position encoding",
        ),
        (LLAMA_WORDS | {"rope_scaling": "yarn"}, "rope_scaling is 'yarn'"),
        (LLAMA_WORDS | {"rope_parameters": {"rope_theta": 1e4, "factor": 2}}, "rope_parameters is"),
        (LLAMA_WORDS | {"head_dim": 3}, "head_dim is 3; expected an even number"),
        (
            LLAMA_WORDS | {"num_key_value_heads": 3},
            "heads must be a multiple of kv_heads; got 2 and 3",
        ),
    ],
)
def test_other_settings_are_refused_by_name(config, says):
    with pytest.raises(ValueError, match=says):
        model_from_config(config)


def test_the_largest_sizes_take_no_room():
    """Nothing is drawn: these would be 10^18 numbers."""
    most = BERT_WORDS | {
        "hidden_size": 1 << 22,
        "intermediate_size": 1 << 22,
        "num_hidden_layers": 1024,
    }
    assert model_from_config(most).model.trunk.blocks.layers.feed.up.W.shape == (
        1024,
        1 << 22,
        1 << 22,
    )


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (partial(MLP.init, 2, 3, 2), "transformers has no MLP; give a BERT, ViT or GPT"),
        (
            lambda *, key: gpt(GPT.init(5, 8, depth=1, heads=2, max_length=3, key=key).trunk),
            "rotary positions; this model has neither",
        ),
        (
            lambda *, key: gpt(trunk(position_encoding=ALiBi(), key=key)),
            "rotary positions; this model has neither",
        ),
        (
            lambda *, key: gpt(trunk(position_encoding=Rotary(), key=key)),
            "expected GatedFeedForward and RMSNorm in every block; got FeedF",
        ),
        (
            lambda *, key: gpt(trunk(activation=gelu_tanh, norms="after", key=key), placed=True),
            "cannot be written as a config.json",
        ),
        (
            lambda *, key: gpt(trunk(activation=gelu_tanh, kernel=strange, key=key), placed=True),
            "cannot be written as a config.json",
        ),
        (partial(bert, activation=strange), "no name for the activation"),
    ],
    ids=[
        "an MLP",
        "no places",
        "ALiBi",
        "rotary places in GPT-2",
        "norms after",
        "a kernel",
        "an activation",
    ],
)
def test_what_transformers_has_no_word_for_is_refused(make, says):
    like = jax.eval_shape(partial(make, key=jr.key(0)))
    with pytest.raises(ValueError, match=says):
        config_from_model(like)


METADATA = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.embedding_length": 8,
    "llama.feed_forward_length": 6,
    "llama.attention.head_count": 2,
    "llama.attention.head_count_kv": 1,
    "llama.vocab_size": 5,
    "llama.rope.freq_base": 1e5,
    "llama.rope.dimension_count": 4,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.eos_token_id": 4,
}


def test_the_metadata_of_a_gguf_file():
    config = gguf_config(METADATA, {"output.weight": None})
    assert (config["eos_token_id"], config["tie_word_embeddings"]) == (4, False)
    attention = model_from_config(config).model.trunk.blocks.layers.attention
    assert (attention.heads, attention.kv_heads, attention.position_encoding.base) == (2, 1, 1e5)
    assert gguf_config(METADATA, {})["tie_word_embeddings"] is True


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (
            {"general.architecture": "qwen2"},
            "general.architecture is 'qwen2'; only llama is supported",
        ),
        (
            {"llama.rope.scaling.type": "yarn"},
            "llama.rope.scaling.type is 'yarn', which is not supported",
        ),
        ({"llama.expert_count": 8}, "llama.expert_count is 8"),
        ({"llama.rope.dimension_count": 2}, "dimension_count must be 4, the head dimension; got 2"),
    ],
)
def test_other_gguf_networks_are_refused(more, says):
    with pytest.raises(ValueError, match=says):
        gguf_config(METADATA | more, {})

"""Transformers under the names of Hugging Face and llama.cpp: the names, the fused and turned
layouts, the roots.
"""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from contracts import same_bits

from thetax import tree
from thetax.models import (
    BERT,
    GPT,
    BERTPretraining,
    MaskedLM,
    SentenceClassifier,
    SpanPredictor,
    ViT,
    gguf_llama,
    huggingface_bert,
    huggingface_bert_masked_lm,
    huggingface_bert_question_answering,
    huggingface_bert_tasks,
    huggingface_gpt2,
    huggingface_llama,
    huggingface_vit,
)

bert = partial(BERT.init, 5, 4, depth=2, heads=2, hidden=6, max_length=3)
vit = partial(
    ViT.init, 3, image_size=(4, 2), channels=1, patch_size=2, d=4, depth=2, heads=2, hidden=6
)
gpt2 = partial(GPT.init, 5, 4, depth=2, heads=2, hidden=6, max_length=3)
llama = partial(GPT.llama, 5, 8, depth=2, heads=2, kv_heads=1, hidden=6)
in_gguf = gguf_llama(heads=2, kv_heads=1)


def on_bert(build):
    return lambda *, key: build(bert(key=key), key=key)


MODELS = {
    "bert": (bert, huggingface_bert),
    "pretraining": (on_bert(BERTPretraining.init), huggingface_bert_tasks),
    "masked": (on_bert(MaskedLM.init), huggingface_bert_masked_lm),
    "classifier": (
        on_bert(lambda b, key: SentenceClassifier.init(b, 3, key=key)),
        huggingface_bert_tasks,
    ),
    "spans": (on_bert(SpanPredictor.init), huggingface_bert_question_answering),
    "vit": (vit, huggingface_vit),
    "gpt2": (gpt2, huggingface_gpt2),
    "gpt2, untied": (partial(gpt2, tied=False), huggingface_gpt2),
    "llama": (llama, huggingface_llama),
    "llama, untied": (partial(llama, tied=False), huggingface_llama),
    "gguf": (llama, in_gguf),
}


def drawn(make, seed: int = 0):
    """Every leaf random, the norms too."""
    like = jax.eval_shape(make, key=jr.key(0))
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape), leaf.dtype), like)


@pytest.mark.parametrize("case", MODELS)
def test_what_was_written_is_read(case):
    make, names = MODELS[case]
    model = drawn(make)
    tensors = names.write(model)
    assert sum(tensor.size for tensor in tensors.values()) == tree.size(model)
    again = names.read(tensors, jax.eval_shape(make, key=jr.key(0)))
    assert jax.tree.all(jax.tree.map(same_bits, again, model))


def layers(*parts: str) -> set[str]:
    return {part.replace("*", str(i)) for part in parts for i in (0, 1)}


def both(*names: str) -> list[str]:
    return [f"{name}.{part}" for name in names for part in ("weight", "bias")]


def test_bert_is_called_so():
    layer = "encoder.layer.*"
    expected = layers(
        *both(*(f"{layer}.attention.self.{part}" for part in ("query", "key", "value")))
    )
    expected |= layers(
        *both(f"{layer}.attention.output.dense", f"{layer}.attention.output.LayerNorm")
    )
    expected |= layers(
        *both(f"{layer}.intermediate.dense", f"{layer}.output.dense", f"{layer}.output.LayerNorm")
    )
    tables = ("word_embeddings", "position_embeddings", "token_type_embeddings")
    expected |= {f"embeddings.{table}.weight" for table in tables} | set(
        both("embeddings.LayerNorm")
    )
    assert set(huggingface_bert.write(drawn(bert))) == expected
    heads = both(
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.seq_relationship",
    )
    found = set(huggingface_bert_tasks.write(drawn(MODELS["pretraining"][0])))
    assert found == {f"bert.{name}" for name in expected} | set(heads) | set(
        both("bert.pooler.dense")
    ) | {"cls.predictions.bias"}


def test_gpt2_is_called_so():
    parts = both("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj")
    expected = {f"transformer.{name}" for name in layers(*(f"h.*.{part}" for part in parts))}
    assert set(huggingface_gpt2.write(drawn(gpt2))) == expected | {
        *("transformer.wte.weight", "transformer.wpe.weight"),
        *both("transformer.ln_f"),
    }


def test_queries_keys_and_values_lie_side_by_side_and_turned():
    model = drawn(gpt2)
    tensors = huggingface_gpt2.write(model)
    attention = model.trunk.blocks.layers.attention
    fused = tensors["transformer.h.1.attn.c_attn.weight"]
    assert fused.shape == (4, 12)
    x = np.random.default_rng(1).normal(size=4).astype(np.float32)
    expected = np.concatenate(
        [np.asarray(part.W[1]) @ x + part.b[1] for part in (attention.Q, attention.K, attention.V)]
    )
    np.testing.assert_allclose(
        x @ fused + tensors["transformer.h.1.attn.c_attn.bias"], expected, rtol=1e-5
    )
    up = model.trunk.blocks.layers.feed.up
    np.testing.assert_array_equal(tensors["transformer.h.0.mlp.c_fc.weight"], np.asarray(up.W[0]).T)


def test_llama_cpp_pairs_the_rows_of_queries_and_keys():
    model = drawn(llama)
    tensors = in_gguf.write(model)
    attention = model.trunk.blocks.layers.attention
    Q = np.asarray(attention.Q.W[0])
    head = Q[4:]  # the second: rows 0, 1 | 2, 3 become 0, 2, 1, 3
    np.testing.assert_array_equal(tensors["blk.0.attn_q.weight"][4:], head[[0, 2, 1, 3]])
    np.testing.assert_array_equal(tensors["blk.1.attn_v.weight"], attention.V.W[1])


def test_the_token_of_the_class_and_the_places_have_an_axis_for_the_batch():
    tensors = huggingface_vit.write(drawn(vit))
    assert tensors["vit.embeddings.cls_token"].shape == (1, 1, 4)
    assert tensors["vit.embeddings.position_embeddings"].shape == (1, 3, 4)
    assert tensors["vit.embeddings.patch_embeddings.projection.weight"].shape == (4, 1, 2, 2)


@pytest.mark.parametrize("case", ["vit", "gpt2", "llama"])
def test_the_root_may_be_left_out(case):
    make, names = MODELS[case]
    model = drawn(make)
    bare = {name.removeprefix(names.root): tensor for name, tensor in names.write(model).items()}
    if case != "vit":  # which has a head, and a network with a head has the root
        assert jax.tree.all(jax.tree.map(same_bits, names.read(bare, model), model))
    with pytest.raises(ValueError, match=r"do not fit this model:\n  missing: "):
        names.read(dict(list(bare.items())[1:]), model)


def test_an_encoder_is_taken_out_of_a_larger_network():
    model = drawn(MODELS["pretraining"][0])
    tensors = huggingface_bert_tasks.write(model) | {
        "bert.embeddings.position_ids": np.arange(3)[None]
    }
    found = huggingface_bert.read(tensors, jax.eval_shape(bert, key=jr.key(0)))
    assert jax.tree.all(jax.tree.map(same_bits, found, model.bert))


def test_a_tensor_that_repeats_another_must_equal_it():
    model = drawn(gpt2)
    tensors = huggingface_gpt2.write(model)
    tensors["lm_head.weight"] = tensors["transformer.wte.weight"].copy()
    assert jax.tree.all(jax.tree.map(same_bits, huggingface_gpt2.read(tensors, model), model))
    tensors["lm_head.weight"][0, 0] += 1
    with pytest.raises(ValueError, match=r"extra: lm_head\.weight\n"):
        huggingface_gpt2.read(tensors, model)


def test_buffers_are_no_parameters_and_strangers_are_told():
    tensors = huggingface_gpt2.write(drawn(gpt2))
    tensors |= {
        f"transformer.h.{i}.attn.{name}": np.ones(1)
        for i in (0, 1)
        for name in ("bias", "masked_bias")
    }
    huggingface_gpt2.read(tensors, drawn(gpt2))
    tensors["transformer.h.0.attn.new"] = tensors.pop("transformer.h.1.ln_1.bias")
    with pytest.raises(
        ValueError,
        match=r"missing: transformer\.h\.1\.ln_1\.bias\n  extra: transformer\.h\.0\.attn\.new\n",
    ):
        huggingface_gpt2.read(tensors, drawn(gpt2))

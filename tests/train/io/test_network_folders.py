"""Whole networks from folders made on the fly: what comes back, what goes out, and files that
lie.
"""

import json
from functools import partial

import gguf
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import safetensors.numpy
from contracts import same_bits

from thetax.data import BytePairEncoding, WordPiece
from thetax.data.text.byte_pair_encoding import BYTE
from thetax.layers import Linear
from thetax.models import BERT, GPT, BERTPretraining, MaskedLM, ViT, gguf_llama
from thetax.train import load_pretrained, save_pretrained

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##b"]
bert = partial(BERT.init, len(PIECES), 4, depth=2, heads=2, hidden=6, max_length=7)
llama = partial(GPT.llama, 260, 8, depth=2, heads=2, kv_heads=1, hidden=32)


def drawn(make, seed: int = 0):
    like = jax.eval_shape(partial(make, key=jr.key(0)))
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape), leaf.dtype), like)


def same(a, b) -> bool:
    return jax.tree.structure(a) == jax.tree.structure(b) and jax.tree.all(
        jax.tree.map(same_bits, a, b)
    )


@pytest.fixture
def folder(tmp_path):
    """A BERT with its tokeniser and the layer that reads its first token."""
    save_pretrained(
        tmp_path,
        drawn(bert),
        tokeniser=WordPiece(PIECES),
        pool=drawn(partial(Linear.init, 4, 4), 1),
    )
    return tmp_path


def test_a_bert_comes_back_with_all_that_is_its_own(folder):
    network = load_pretrained(folder)
    assert same(network.model, drawn(bert))
    assert same(network.pool, drawn(partial(Linear.init, 4, 4), 1))
    assert network.tokeniser.tokens("ab a").tolist() == [5, 7, 5]
    assert network.chat_template == ""
    assert sorted(path.name for path in folder.iterdir()) == [
        *(
            "config.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
            "vocab.txt",
        )
    ]


def test_settings_that_a_model_does_not_know_go_on(folder, tmp_path):
    network = load_pretrained(folder)
    save_pretrained(
        tmp_path / "again",
        network.model,
        config=network.config | {"pad_token_id": 0},
        shard_bytes=200,
    )
    again = load_pretrained(tmp_path / "again")
    assert (again.config["pad_token_id"], again.pool) == (0, None)
    assert same(again.model, network.model)
    assert (tmp_path / "again" / "model.safetensors.index.json").is_file()


def test_a_vit_without_classes_has_no_head_in_its_file(tmp_path):
    model = drawn(
        partial(ViT.init, 0, image_size=(4, 4), channels=1, patch_size=2, d=4, depth=1, heads=2)
    )
    pool = drawn(partial(Linear.init, 4, 4), 1)
    save_pretrained(tmp_path, model, pool=pool)
    names = set(safetensors.numpy.load_file(tmp_path / "model.safetensors"))
    assert {"vit.pooler.dense.weight", "vit.layernorm.bias"} < names
    assert not {name for name in names if name.startswith("classifier")}
    network = load_pretrained(tmp_path)
    assert same(network.model, model)
    assert same(network.pool, pool)


def test_a_pool_belongs_to_an_encoder(tmp_path):
    with pytest.raises(
        ValueError, match="pool needs a BERT or a ViT without classes as the model; got a GPT"
    ):
        save_pretrained(tmp_path, drawn(llama), pool=drawn(partial(Linear.init, 8, 8)))


MASKED = {
    "model_type": "bert",
    "architectures": ["BertForMaskedLM"],
    "hidden_act": "gelu",
    "vocab_size": 5,
    "hidden_size": 4,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 6,
    "max_position_embeddings": 3,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}


def masked_tensors(*more: tuple[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """By name and shape as transformers writes a BertForMaskedLM: no pooler, and the decoder is the
    embedding.
    """
    both = lambda name, out, *into: [(f"{name}.weight", (out, *into)), (f"{name}.bias", (out,))]
    layer = "bert.encoder.layer.0"
    attention = ("self.query", "self.key", "self.value", "output.dense")
    shapes = [
        *[
            (f"bert.embeddings.{n}_embeddings.weight", (k, 4))
            for n, k in (("word", 5), ("position", 3), ("token_type", 2))
        ],
        *both("bert.embeddings.LayerNorm", 4),
        *[pair for name in attention for pair in both(f"{layer}.attention.{name}", 4, 4)],
        *both(f"{layer}.attention.output.LayerNorm", 4),
        *both(f"{layer}.intermediate.dense", 6, 4),
        *both(f"{layer}.output.dense", 4, 6),
        *both(f"{layer}.output.LayerNorm", 4),
        *both("cls.predictions.transform.dense", 4, 4),
        *both("cls.predictions.transform.LayerNorm", 4),
        ("cls.predictions.bias", (5,)),
        *more,
    ]
    random = np.random.default_rng(0)
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes}


@pytest.mark.parametrize("kind", ["of today", "with copies", "with a pooler", "with both heads"])
def test_a_masked_language_model(tmp_path, kind):
    """As written today, with the tied tensors beside what they repeat, with a pooler, and as BERT
    was published.
    """
    pooler = [("bert.pooler.dense.weight", (4, 4)), ("bert.pooler.dense.bias", (4,))]
    follow = [("cls.seq_relationship.weight", (2, 4)), ("cls.seq_relationship.bias", (2,))]
    more = {"with a pooler": pooler, "with both heads": pooler + follow}
    tensors = masked_tensors(*more.get(kind, []))
    if kind == "with copies":
        tensors["cls.predictions.decoder.weight"] = tensors[
            "bert.embeddings.word_embeddings.weight"
        ]
        tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"]
    save(tmp_path, tensors)
    (tmp_path / "config.json").write_text(json.dumps(MASKED))
    network = load_pretrained(tmp_path)
    assert type(network.model) is (BERTPretraining if kind == "with both heads" else MaskedLM)
    np.testing.assert_array_equal(
        network.model.transform.W, tensors["cls.predictions.transform.dense.weight"]
    )
    np.testing.assert_array_equal(network.model.b, tensors["cls.predictions.bias"])
    save_pretrained(tmp_path / "again", network.model, config=network.config)
    assert same(load_pretrained(tmp_path / "again").model, network.model)


def test_norms_under_their_first_names(folder):
    rewrite(
        folder,
        lambda name: name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"),
    )
    assert same(load_pretrained(folder).model, drawn(bert))


def test_halves_become_floats(folder):
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    save(folder, {name: tensor.astype(np.float16) for name, tensor in tensors.items()})
    model = load_pretrained(folder).model
    assert {leaf.dtype for leaf in jax.tree.leaves(model)} == {jnp.dtype("float32")}
    np.testing.assert_allclose(model.embed.E, drawn(bert).embed.E, rtol=1e-3)


def save(folder, tensors):
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")


def rewrite(folder, rename=lambda name: name, **settings):
    save(
        folder,
        {
            rename(n): t
            for n, t in safetensors.numpy.load_file(folder / "model.safetensors").items()
        },
    )
    config = json.loads((folder / "config.json").read_text()) | settings
    (folder / "config.json").write_text(json.dumps(config))


def cut(folder, name):
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: len(data) // 2])


def poison(folder):
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    tensors["encoder.layer.1.output.dense.bias"][2] = np.nan
    save(folder, tensors)


@pytest.mark.parametrize(
    ("hurt", "says"),
    [
        (lambda folder: cut(folder, "model.safetensors"), "is not a complete safetensors file"),
        (lambda folder: cut(folder, "config.json"), r"config\.json: not readable as a JSON object"),
        (
            lambda folder: (folder / "config.json").unlink(),
            "config.json does not exist. Give a folder",
        ),
        (
            lambda folder: (folder / "model.safetensors").unlink(),
            "has neither model.safetensors nor",
        ),
        (
            partial(rewrite, model_type="t5"),
            "model_type is 't5'; bert, vit, gpt2 and llama are supported",
        ),
        (
            partial(
                rewrite, model_type="vit", architectures=["ViTModel"], image_size=4, patch_size=2
            ),
            "the tensors of .* do not fit this model",
        ),
        (
            partial(rewrite, hidden_size=8),
            r"misshapen: embeddings\.LayerNorm\.bias is float32\(4,\); expected",
        ),
        (
            partial(rewrite, hidden_size=1 << 22),
            r"describe [\d,]+ weights, but its tensors have \d+",
        ),
        (partial(rewrite, num_hidden_layers=1024), r"describe [\d,]+ weights"),
        (
            partial(rewrite, vocab_size=1 << 60),
            "vocab_size is 1152921504606846976; expected an integer from 1",
        ),
        (partial(rewrite, num_hidden_layers=3), r"missing: encoder\.layer\.2\..* and 8 more"),
        (
            partial(rewrite, rename=lambda name: name.replace("pooler.dense.b", "odd.b")),
            r"extra: odd\.bias",
        ),
        (poison, r"has NaN or infinity in trunk\.blocks\.layers\.feed\.down\.b. Download it again"),
    ],
    ids=[
        *(
            "cut tensors",
            "cut settings",
            "no settings",
            "no tensors",
            "another kind",
            "wrong kind",
            "wrong width",
        ),
        *(
            "absurd width",
            "absurd depth",
            "absurd vocabulary",
            "a layer too many",
            "half a pooler",
            "NaN",
        ),
    ],
)
def test_a_folder_that_lies_is_refused(folder, hurt, says):
    hurt(folder)
    with pytest.raises(ValueError, match=says):
        load_pretrained(folder)


def test_no_folder_and_no_tokeniser(folder, tmp_path):
    with pytest.raises(ValueError, match=r"nowhere does not exist. Check the path"):
        load_pretrained("nowhere")
    for name in ("tokenizer.json", "vocab.txt"):
        (folder / name).unlink()
    network = load_pretrained(folder)
    with pytest.raises(ValueError, match=r"has neither tokenizer\.json nor vocab\.txt"):
        _ = network.tokeniser


@pytest.mark.parametrize("where", ["chat_template.jinja", "tokenizer_config.json"])
def test_the_template_for_chat(folder, where):
    template = "{{ messages }}"
    text = json.dumps({"chat_template": template}) if where.endswith("json") else template
    (folder / where).write_text(text)
    assert load_pretrained(folder).chat_template == template


SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def write_gguf(path, model, **more):
    """As llama.cpp's converter would."""
    writer = gguf.GGUFWriter(path, more.pop("architecture", "llama"))
    sizes = {
        "block_count": 2,
        "embedding_length": 8,
        "feed_forward_length": 32,
        "context_length": 64,
    }
    heads = {
        "attention.head_count": 2,
        "attention.head_count_kv": 1,
        "rope.dimension_count": 4,
        "vocab_size": 260,
    }
    for name, value in (sizes | heads | more).items():
        writer.add_uint32(f"llama.{name}", value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([*SPECIAL, *sorted(BYTE), "lo"])
    writer.add_token_types([3] * 3 + [1] * 257)
    writer.add_token_merges(["l o"])
    writer.add_eos_token_id(2)
    writer.add_chat_template("<|im_start|>system\nBe kind<|im_end|>")
    for name, tensor in gguf_llama(heads=2, kv_heads=1).write(model).items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("tied", [True, False])
def test_a_gguf_file_has_all_of_it(tmp_path, tied):
    model = drawn(partial(llama, tied=tied))
    path = write_gguf(tmp_path / "tiny.gguf", model)
    for place in (path, tmp_path):
        network = load_pretrained(place)
        assert same(network.model, model)
    assert isinstance(network.tokeniser, BytePairEncoding)
    assert network.tokeniser.tokens("lo1<|im_end|>").tolist()[0::2] == [259, 2]
    assert (network.chat_template, network.config["eos_token_id"]) == (
        "<|im_start|>system\nBe kind<|im_end|>",
        2,
    )


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"architecture": "gptneox"}, "general.architecture is 'gptneox'; only llama is supported"),
        (
            {"embedding_length": 1 << 22, "rope.dimension_count": 1 << 21},
            r"describe [\d,]+ weights",
        ),
        ({"block_count": 3}, r"missing: blk\.2\.attn_k\.weight"),
        ({"attention.head_count": 0}, "num_attention_heads is 0; expected an integer"),
    ],
)
def test_a_gguf_file_that_lies_is_refused(tmp_path, more, says):
    path = write_gguf(tmp_path / "tiny.gguf", drawn(llama), **more)
    with pytest.raises(ValueError, match=says):
        load_pretrained(path)


def test_a_gguf_file_cut_off(tmp_path):
    path = write_gguf(tmp_path / "tiny.gguf", drawn(llama))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="is truncated"):
        load_pretrained(path)

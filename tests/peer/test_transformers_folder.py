"""A folder of weights as transformers reads and writes it, and the rows of a GGUF file as it puts
them right.
"""

import importlib
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thetax.data import deinterleave_rotary, interleave_rotary, read_gguf
from thetax.train import load_weights, read_config, save_weights

torch = pytest.importorskip("torch")
gguf = pytest.importorskip("gguf")
pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def transformers():
    """It imports torchvision where there is one; if that was built for another torch, declare what
    it lacks.
    """
    own = torch.library.Library("torchvision", "FRAGMENT")
    try:
        importlib.import_module("torchvision")
    except ImportError:
        pass
    except RuntimeError:
        for name in ("nms", "qnms"):
            own.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library = pytest.importorskip("transformers")
    for name in ("BertModel", "LlamaForCausalLM"):
        getattr(library, name)  # imported while the declaration stands
    return library


@pytest.fixture
def bert(transformers):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=11,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
    )
    return transformers.BertModel(config).eval()


def nested(state: dict) -> dict:
    """The tensors as a tree whose dotted paths are their names."""
    root: dict = {}
    for name, tensor in state.items():
        *path, leaf = name.split(".")
        node = root
        for part in path:
            node = node.setdefault(part, {})
        node[leaf] = jnp.asarray(tensor.numpy())
    return root


def test_transformers_reads_our_shards(transformers, bert, tmp_path):
    ours = nested(bert.state_dict())
    save_weights(tmp_path, ours, shard_bytes=1000)
    assert len(list(tmp_path.glob("model-*-of-*.safetensors"))) > 2
    bert.config.save_pretrained(tmp_path)
    assert read_config(tmp_path)["hidden_size"] == 8
    theirs, info = transformers.BertModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info[what] for what in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert theirs.state_dict().keys() == bert.state_dict().keys()
    for name, tensor in bert.state_dict().items():
        np.testing.assert_array_equal(theirs.state_dict()[name].numpy(), tensor.numpy())


@pytest.mark.parametrize("size", ["2KB", "1GB"], ids=["shards", "one file"])
def test_we_read_its_folder(bert, tmp_path, size):
    bert.save_pretrained(tmp_path, max_shard_size=size)
    ours = nested(bert.state_dict())
    found = load_weights(tmp_path, jax.tree.map(jnp.zeros_like, ours))
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), found, ours))
    if size == "2KB":
        assert json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]


PLACES = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output"}
PLACES |= {"gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}
PLACES |= {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}


def test_rows_for_rotary_positions(transformers, tmp_path):
    """A Llama written with its queries and keys in pairs comes back through transformers as it
    was.
    """
    sizes = {
        "block_count": 1,
        "context_length": 16,
        "embedding_length": 32,
        "feed_forward_length": 32,
    }
    sizes |= {
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "vocab_size": 32,
        "rope.dimension_count": 8,
    }
    config = transformers.LlamaConfig(
        vocab_size=32,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=False,
    )
    llama = transformers.LlamaForCausalLM(config)
    names = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
    }
    names |= {"lm_head.weight": "output.weight"}
    writer = gguf.GGUFWriter(tmp_path / "tiny.gguf", "llama")
    for name, size in sizes.items():
        writer.add_uint32(f"llama.{name}", size)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-6)
    for name, tensor in llama.state_dict().items():
        W = tensor.numpy()
        part = name.split(".")[-2]
        heads = {"q_proj": 4, "k_proj": 2}.get(part)
        theirs = names.get(name) or f"blk.0.{PLACES[part]}.weight"
        writer.add_tensor(theirs, interleave_rotary(W, heads=heads) if heads else W)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    reader = importlib.import_module("transformers.modeling_gguf_pytorch_utils")
    read = reader.load_gguf_checkpoint(
        tmp_path / "tiny.gguf", return_tensors=True, model_to_load=llama
    )["tensors"]
    tensors = read_gguf(tmp_path).tensors
    for name, tensor in llama.state_dict().items():
        np.testing.assert_array_equal(read[name].numpy(), tensor.numpy())
    ours = deinterleave_rotary(tensors["blk.0.attn_k.weight"], heads=2)
    np.testing.assert_array_equal(ours, read["model.layers.0.self_attn.k_proj.weight"].numpy())

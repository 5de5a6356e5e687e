"""The same numbers as transformers, from its folders and to them."""

import importlib
from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from thetax.layers import FeedForward, GatedFeedForward
from thetax.models import GPT, BERTPretraining, ViT
from thetax.train import load_pretrained, save_pretrained

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("ignore")]

SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 24,
}
TOKENS = np.random.default_rng(0).integers(
    1, 23, (2, 9)
)  # 0 is padding to torch, and gets no gradient


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
    yield pytest.importorskip("transformers")
    del own  # what it declares ends with it


def shaken(theirs):
    """Weights that are no special numbers, norms and offsets too."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in theirs.parameters():
            weight += 0.2 * torch.randn(weight.shape, generator=generator)
    return theirs.eval()


def bert(transformers, kind, **more):
    config = {**SMALL, "vocab_size": 23, "max_position_embeddings": 12, "num_labels": 5, **more}
    return shaken(getattr(transformers, kind)(transformers.BertConfig(**config)))


def vit(transformers, kind, **more):
    config = {**SMALL, "image_size": 8, "patch_size": 4, "num_labels": 5, **more}
    return shaken(getattr(transformers, kind)(transformers.ViTConfig(**config)))


def gpt2(transformers, **more):
    config = {"vocab_size": 23, "n_embd": 16, "n_layer": 3, "n_head": 4, "n_positions": 12, **more}
    special = {"bos_token_id": 0, "eos_token_id": 0}
    return shaken(transformers.GPT2LMHeadModel(transformers.GPT2Config(**config, **special)))


def llama(transformers, **more):
    config = {
        **SMALL,
        "vocab_size": 23,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        **more,
    }
    return shaken(transformers.LlamaForCausalLM(transformers.LlamaConfig(**config)))


def folder_of(theirs, path):
    theirs.save_pretrained(path)
    return path


def opens_again(theirs, network, path):
    """What we write, they read: nothing missing or unexpected, and all numbers equal."""
    save_pretrained(path, network.model, config=network.config, pool=network.pool)
    again, info = type(theirs).from_pretrained(path, output_loading_info=True)
    assert not any(info[what] for what in ("missing_keys", "unexpected_keys", "mismatched_keys")), (
        info
    )
    for name, tensor in theirs.state_dict().items():
        np.testing.assert_array_equal(
            again.state_dict()[name].numpy(), tensor.numpy(), err_msg=name
        )


def gradients_agree(theirs, loss, network, ours, path):
    """The gradient of a loss, leaf by leaf, by writing a step along it into their weights."""
    theirs.zero_grad()
    loss.backward()
    gradient = jax.grad(ours)(network.model)
    save_pretrained(path, gradient, config=network.config)
    found = type(theirs).from_pretrained(path).state_dict()
    checked = 0
    for name, weight in theirs.named_parameters():
        if weight.grad is not None and "pooler" not in name:
            np.testing.assert_allclose(
                found[name].numpy(), weight.grad.numpy(), rtol=2e-3, atol=2e-4, err_msg=name
            )
            checked += 1
    assert checked > 10


def test_bert(transformers, tmp_path):
    theirs = bert(transformers, "BertModel")
    network = load_pretrained(folder_of(theirs, tmp_path / "theirs"))
    segments = np.array([0, 0, 0, 0, 1, 1, 1, 1, 1])
    there = np.array([1] * 7 + [0] * 2)
    out = theirs(
        torch.tensor(TOKENS),
        attention_mask=torch.tensor(np.stack([there] * 2)),
        token_type_ids=torch.tensor(np.stack([segments] * 2)),
    )
    rows = jnp.asarray(np.where(there, TOKENS, -1))
    found = jax.vmap(lambda row: network.model((row, jnp.asarray(segments))))(rows)
    np.testing.assert_allclose(
        found[:, :7], out.last_hidden_state.detach().numpy()[:, :7], atol=1e-4
    )
    pooled = jnp.tanh(jax.vmap(network.pool)(found[:, 0]))
    np.testing.assert_allclose(pooled, out.pooler_output.detach().numpy(), atol=1e-4)
    opens_again(theirs, network, tmp_path / "ours")
    loss = theirs(torch.tensor(TOKENS)).last_hidden_state.square().sum()
    ours = lambda model: jnp.square(jax.vmap(model)(jnp.asarray(TOKENS))).sum()
    gradients_agree(theirs, loss, network, ours, tmp_path / "gradient")


@pytest.mark.parametrize("act", ["gelu", "gelu_new", "relu", "silu"])
def test_bert_for_pretraining(transformers, tmp_path, act):
    theirs = bert(transformers, "BertForPreTraining", hidden_act=act)
    network = load_pretrained(folder_of(theirs, tmp_path / "theirs"))
    assert isinstance(network.model, BERTPretraining)
    out = theirs(torch.tensor(TOKENS))
    found = jax.vmap(network.model)(jnp.asarray(TOKENS))
    np.testing.assert_allclose(found.tokens, out.prediction_logits.detach().numpy(), atol=1e-4)
    np.testing.assert_allclose(
        found.next_sentence, out.seq_relationship_logits.detach().numpy(), atol=1e-4
    )
    opens_again(theirs, network, tmp_path / "ours")
    loss = out.prediction_logits.square().mean() + out.seq_relationship_logits.square().sum()

    def ours(model):
        guesses = jax.vmap(model)(jnp.asarray(TOKENS))
        return jnp.square(guesses.tokens).mean() + jnp.square(guesses.next_sentence).sum()

    gradients_agree(theirs, loss, network, ours, tmp_path / "gradient")


@pytest.mark.parametrize(
    "task", ["SequenceClassification", "TokenClassification", "QuestionAnswering"]
)
def test_bert_for_a_task(transformers, tmp_path, task):
    theirs = bert(
        transformers, f"BertFor{task}", num_labels=2 if task == "QuestionAnswering" else 5
    )
    network = load_pretrained(folder_of(theirs, tmp_path / "theirs"))
    out = theirs(torch.tensor(TOKENS), token_type_ids=torch.ones(TOKENS.shape, dtype=torch.long))
    pair = (jnp.asarray(TOKENS[0]), jnp.ones(9, int))
    found = network.model(pair)
    if task == "QuestionAnswering":
        expected = torch.stack([out.start_logits[0], out.end_logits[0]]).detach().numpy()
        expected[:, -1] = -np.inf  # no answer ends at the mark that closes the passage
    else:
        expected = out.logits[0].detach().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-4)
    opens_again(theirs, network, tmp_path / "ours")


@pytest.mark.parametrize("kind", ["ViTModel", "ViTForImageClassification"])
@pytest.mark.parametrize("size", [8, (8, 12)])
def test_vit(transformers, tmp_path, kind, size):
    theirs = vit(transformers, kind, image_size=size)
    network = load_pretrained(folder_of(theirs, tmp_path / "theirs"))
    assert isinstance(network.model, ViT)
    xs = np.random.default_rng(1).normal(size=(2, 3, *network.model.size)).astype(np.float32)
    out = theirs(torch.tensor(xs))
    if kind == "ViTModel":
        f = lambda model, x: model.last_hidden(x)
        expected = out.last_hidden_state
        pooled = jnp.tanh(network.pool(network.model.last_hidden(jnp.asarray(xs[0]))[0]))
        np.testing.assert_allclose(pooled, out.pooler_output[0].detach().numpy(), atol=1e-4)
    else:
        f = lambda model, x: model(x)
        expected = out.logits
    found = jax.vmap(partial(f, network.model))(jnp.asarray(xs))
    np.testing.assert_allclose(found, expected.detach().numpy(), atol=1e-4)
    opens_again(theirs, network, tmp_path / "ours")
    ours = lambda model: jnp.square(jax.vmap(partial(f, model))(jnp.asarray(xs))).sum()
    gradients_agree(theirs, expected.square().sum(), network, ours, tmp_path / "gradient")


@pytest.mark.parametrize(
    "more",
    [
        {},
        {
            "tie_word_embeddings": False,
            "n_inner": 24,
            "activation_function": "relu",
            "layer_norm_epsilon": 1e-3,
        },
    ],
    ids=["as published", "otherwise"],
)
def test_gpt2(transformers, tmp_path, more):
    theirs = gpt2(transformers, **more)
    network = load_pretrained(folder_of(theirs, tmp_path / "theirs"))
    assert isinstance(network.model.trunk.blocks.layers.feed, FeedForward)
    out = theirs(torch.tensor(TOKENS)).logits
    found = jax.vmap(network.model)(jnp.asarray(TOKENS))
    np.testing.assert_allclose(found, out.detach().numpy(), atol=1e-4)
    opens_again(theirs, network, tmp_path / "ours")
    ours = lambda model: jnp.square(jax.vmap(model)(jnp.asarray(TOKENS))).mean()
    gradients_agree(theirs, out.square().mean(), network, ours, tmp_path / "gradient")


@pytest.mark.parametrize(
    "more",
    [
        {},
        {
            "tie_word_embeddings": True,
            "head_dim": 6,
            "num_key_value_heads": 1,
            "rms_norm_eps": 1e-3,
        },
        {"rope_parameters": {"rope_type": "default", "rope_theta": 321.0}, "hidden_act": "gelu"},
    ],
    ids=["as published", "tied, other heads", "other turns"],
)
def test_llama(transformers, tmp_path, more):
    theirs = llama(transformers, **more)
    network = load_pretrained(folder_of(theirs, tmp_path / "theirs"))
    assert isinstance(network.model.trunk.blocks.layers.feed, GatedFeedForward)
    out = theirs(torch.tensor(TOKENS)).logits
    found = jax.vmap(network.model)(jnp.asarray(TOKENS))
    np.testing.assert_allclose(found, out.detach().numpy(), atol=1e-4)
    opens_again(theirs, network, tmp_path / "ours")
    ours = lambda model: jnp.square(jax.vmap(model)(jnp.asarray(TOKENS))).mean()
    gradients_agree(theirs, out.square().mean(), network, ours, tmp_path / "gradient")


def test_what_a_model_of_ours_writes_they_compute(transformers, tmp_path):
    model = GPT.llama(23, 16, depth=2, heads=4, kv_heads=2, hidden=24, key=jr.key(0))
    save_pretrained(tmp_path, model, config={"max_position_embeddings": 64})
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    expected = theirs(torch.tensor(TOKENS)).logits.detach().numpy()
    np.testing.assert_allclose(jax.vmap(model)(jnp.asarray(TOKENS)), expected, atol=1e-4)

"""MiniLM and SmolLM2, as they are fetched: the same numbers and words as in sentence-transformers
and transformers.
"""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thetax.cli.generate import encode_prompt
from thetax.data import fetch_model
from thetax.models import SentenceEncoder, stream
from thetax.train import load_pretrained, save_pretrained

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.peer, pytest.mark.network, pytest.mark.filterwarnings("ignore")]


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


SENTENCES = [
    *("A man is eating food.", "Someone is having a meal.", "Stocks fell sharply on Monday."),
    *(
        "",
        "!",
        "?!...",
        "42",
        "3.14159 and 2.71828",
        "naïve café, Zürich",
        "ÀÉÎÕÜ",
        "東京は大きい都市です。",
        "Привет, мир",
    ),
    *(
        "😀 emoji 🎉 here",
        "e\u0301 combined",
        "A" * 150,
        "antidisestablishmentarianism",
        "x = y ** 2 + 3",
    ),
    *(
        "http://example.org/a?b=c",
        "user@example.org",
        "tabs\tand\nnew lines",
        "  spaces   around  ",
        "[MASK] and [SEP]",
    ),
    *(
        "UPPER and lower",
        "don't can't won't",
        "“quoted” – dashes — here",
        "zero\u200bwidth",
        "50% of $100 is €50",
    ),
    *(
        f"The {animal} sat on the {thing}."
        for animal in ("cat", "horse", "gnu", "axolotl")
        for thing in ("mat", "sofa")
    ),
    *(
        f"{verb} the door before {time}."
        for verb in ("Open", "Close", "Paint", "Break")
        for time in ("noon", "midnight")
    ),
    "It was the best of times, it was the worst of times, it was the age of wisdom. " * 4,
    "word " * 400,
    *(
        "What is the capital of France?",
        "Paris is the capital of France.",
        "Gradient descent converges slowly.",
        "a",
    ),
    "The quick brown fox jumps over the lazy dog while the sun sets behind the mountains.",
]


def test_minilm_is_that_of_sentence_transformers(transformers):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    folder = fetch_model("minilm")
    theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    theirs.max_seq_length = 256
    expected = theirs.encode(SENTENCES, normalize_embeddings=True)
    network = load_pretrained(folder)
    tokeniser = network.tokeniser
    model = SentenceEncoder(network.model)
    assert len(SENTENCES) >= 50
    rows = np.full((len(SENTENCES), 256), -1, np.int32)
    for text, row in zip(SENTENCES, rows):
        inside = tokeniser.tokens(text)[:254]
        row[: len(inside) + 2] = [101, *inside, 102]
    found = jax.jit(jax.vmap(lambda model, row: model(row), (None, 0)))(model, jnp.asarray(rows))
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    assert (found * expected).sum(axis=1).min() > 0.9999


@pytest.fixture(scope="module")
def smol(transformers):
    """SmolLM2 as transformers itself reads it out of the GGUF file, and as we do."""
    folder = fetch_model("smollm2")
    file = next(folder.glob("*.gguf"))
    reader = importlib.import_module(
        "transformers.modeling_gguf_pytorch_utils"
    ).load_gguf_checkpoint
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**reader(str(file))["config"]))
    found = theirs.load_state_dict(
        reader(str(file), return_tensors=True, model_to_load=theirs)["tensors"], strict=False
    )
    assert (found.missing_keys, found.unexpected_keys) == (["lm_head.weight"], [])
    assert theirs.config.rope_parameters["rope_theta"] == 1e5
    tokeniser = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file.name)
    return theirs.eval(), tokeniser, load_pretrained(folder)


def test_smollm2_has_the_same_logits(smol):
    theirs, their_tokeniser, network = smol
    text = (
        "The history of Zürich in 1848 begins with 3 small towns, doesn't it? Naïve 😀 readers "
        "disagree."
    )
    tokens = network.tokeniser.tokens(text)
    assert tokens.tolist() == their_tokeniser(text)["input_ids"]
    with torch.no_grad():
        expected = theirs(torch.tensor(tokens[None].astype(int))).logits[0].numpy()
    found = jax.jit(lambda model, tokens: model(tokens))(network.model, jnp.asarray(tokens))
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_smollm2_says_the_same(smol):
    theirs, their_tokeniser, network = smol
    prompt = their_tokeniser.apply_chat_template(
        [{"role": "user", "content": "Write a short poem about rain."}],
        tokenize=False,
        add_generation_prompt=True,
    )
    tokens = network.tokeniser.tokens(prompt)
    with torch.no_grad():
        said = theirs.generate(
            torch.tensor(tokens[None].astype(int)), max_new_tokens=64, do_sample=False
        )
    expected = said[0, len(tokens) :].tolist()
    assert list(stream(network.model, tokens, max_new_tokens=64, end_tokens=(2,))) == expected


def test_the_command_asks_as_the_template_says(smol):
    _, their_tokeniser, network = smol
    messages = [{"role": "user", "content": "Why is the sky blue?"}]
    text = their_tokeniser.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    tokens, ends = encode_prompt(network, "Why is the sky blue?", plain=False)
    assert tokens == network.tokeniser.tokens(text).tolist()
    assert ends == (0, 2)


def test_smollm2_as_a_folder_of_theirs(smol, transformers, tmp_path):
    """Out of the GGUF file into a folder that they open, with its tokeniser."""
    theirs, _, network = smol
    save_pretrained(tmp_path, network.model, tokeniser=network.tokeniser, config=network.config)
    again, info = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not any(info[what] for what in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    for name, tensor in theirs.state_dict().items():
        np.testing.assert_array_equal(
            again.state_dict()[name].numpy(), tensor.numpy(), err_msg=name
        )
    tokeniser = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert (
        tokeniser("Hello 42 worlds")["input_ids"]
        == network.tokeniser.tokens("Hello 42 worlds").tolist()
    )

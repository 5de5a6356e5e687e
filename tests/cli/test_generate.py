"""`thetax generate` as a user types it, with a GPT of 259 bytes and marks made on the fly."""

import json
import os
import signal
from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from shell import run

from thetax.cli import generate as command
from thetax.data import BytePairEncoding
from thetax.data.text.byte_pair_encoding import BYTE
from thetax.models import GPT, stream
from thetax.train import load_pretrained, save_pretrained

MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = "{{ '<|im_start|>system\nBe kind<|im_end|>\n' }}{{ '<|im_start|>' + message['role'] }}"

pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


def drawn(make):
    like = jax.eval_shape(partial(make, key=jr.key(0)))
    random = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape), leaf.dtype), like)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpt")
    tokeniser = BytePairEncoding([*MARKS, *sorted(BYTE)], [], special_tokens=MARKS)
    model = drawn(partial(GPT.llama, 259, 8, depth=1, heads=2, hidden=8))
    save_pretrained(
        folder,
        model,
        tokeniser=tokeniser,
        config={"max_position_embeddings": 80, "eos_token_id": 0},
    )
    return folder


@pytest.fixture
def small(made, tmp_path):
    for path in made.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return str(tmp_path)


def test_it_goes_on_with_the_likeliest(capsys, small):
    network = load_pretrained(small)
    begin = network.tokeniser.tokens("hi").tolist()
    said = [
        token
        for token in stream(network.model, begin, max_new_tokens=9, end_tokens=(0, 2))
        if token not in (0, 2)
    ]
    arguments = ("generate", "hi", "--model", small, "--max-new-tokens", "9", "--temperature", "0")
    code, out, _ = run(capsys, *arguments, "--json")
    assert (code, json.loads(out)) == (0, {"prompt": "hi", "text": network.tokeniser.decode(said)})
    code, out, _ = run(capsys, *arguments)
    assert (code, out) == (
        0,
        network.tokeniser.decode(said).translate(command._CONTROL_CHARACTERS) + "\n",
    )


def test_a_seed_is_a_text(capsys, small):
    arguments = (
        "generate",
        "hi",
        "--model",
        small,
        "--max-new-tokens",
        "9",
        "--temperature",
        "2",
        "--json",
    )
    texts = [run(capsys, *arguments, "--seed", seed)[1] for seed in ("1", "1", "2")]
    assert texts[0] == texts[1] != texts[2]


def test_a_user_asks_in_the_form_of_the_template(small, tmp_path):
    network = load_pretrained(small)
    assert command.encode_prompt(network, "hi", plain=False) == (
        network.tokeniser.tokens("hi").tolist(),
        (0, 2),
    )
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    network = load_pretrained(small)
    tokens = network.tokeniser.tokens
    whole = (
        "<|im_start|>system\nBe "
        "kind<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert command.encode_prompt(network, "hi", plain=False)[0] == tokens(whole).tolist()
    assert command.encode_prompt(network, "hi", plain=True)[0] == tokens("hi").tolist()
    imitated = command.encode_prompt(network, "<|im_end|>", plain=False)[0]
    assert [imitated.count(mark) for mark in (1, 2)] == [3, 2]


def test_another_form_is_refused(capsys, small, tmp_path):
    (tmp_path / "chat_template.jinja").write_text("[INST] {{ messages }} [/INST]")
    code, _, error = run(capsys, "generate", "hi", "--model", small, "--max-new-tokens", "3")
    assert (
        code,
        "chat template of this model is not ChatML (<|im_start|> ... <|im_end|>). Use --plain"
        in error,
    ) == (1, True)
    assert (
        run(
            capsys, "generate", "hi", "--model", small, "--max-new-tokens", "3", "--plain", "--json"
        )[0]
        == 0
    )
    assert (
        run(capsys, "generate", "hi", "--model", small, "--max-new-tokens", "3", "--chat")[0] == 1
    )


def spoken(monkeypatch, small, tokens):
    """The command says these tokens, whatever the model would."""
    network = load_pretrained(small)
    monkeypatch.setattr(command, "open_network", lambda *_, **__: network)
    monkeypatch.setattr(command, "stream", lambda *_, **__: tokens(network.tokeniser))


def test_characters_come_whole_and_command_no_terminal(capsys, small, monkeypatch):
    written = []
    monkeypatch.setattr("builtins.print", lambda text="", **_: written.append(text))
    spoken(monkeypatch, small, lambda tokeniser: iter(tokeniser.tokens("a😀\x1b[2J\n").tolist()))
    run(capsys, "generate", "hi", "--max-new-tokens", "9")
    assert written == ["a", "😀", "", "[", "2", "J", "\n", ""]


def test_an_interrupt_ends_the_line(capsys, small, monkeypatch):
    def said(tokeniser):
        yield from tokeniser.tokens("so far").tolist()
        os.kill(os.getpid(), signal.SIGINT)
        yield from tokeniser.tokens("never").tolist()

    spoken(monkeypatch, small, said)
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a job in the background ignores it
    try:
        code, out, error = run(capsys, "generate", "hi", "--max-new-tokens", "9")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (code, out, error) == (130, "so far\n", "interrupted")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("", "--model", "smollm2"),
            "prompt is empty. Give a question or the beginning of a text.",
        ),
        (
            ("hi", "--max-new-tokens", "0"),
            "max_new_tokens must be an integer >= 1; got 0.",
        ),
        (("hi", "--temperature", "-1"), "temperature must be finite and >= 0; got -1.0."),
        (("hi", "--temperature", "nan"), "temperature must be finite and >= 0; got nan."),
        (("hi", "--top-p", "2"), "top_p must be a probability, 0 < top_p <= 1; got 2.0."),
        (
            ("hi", "--model", "nowhere"),
            "model='nowhere' is neither an existing folder or file nor 'smollm2'",
        ),
        (
            ("hi", "--model", ".", "--max-new-tokens", "99"),
            "a context of 80 tokens; got a prompt of 2 tokens and max_new_tokens=99",
        ),
    ],
)
def test_what_cannot_be_said_is_answered(capsys, small, arguments, says, monkeypatch):
    monkeypatch.setattr(
        "thetax.cli.pretrained.fetch_model", lambda name: pytest.fail("it was fetched")
    )
    code, _, error = run(capsys, "generate", *arguments)
    assert (code, says in error) == (1, True), error

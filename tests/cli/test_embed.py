"""`thetax embed` as a user types it, with a BERT of two letters made on the fly."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from shell import run

from thetax.cli import embed as command
from thetax.data import WordPiece
from thetax.models import BERT, GPT
from thetax.train import load_pretrained, save_pretrained

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##b"]

pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


def drawn(make):
    like = jax.eval_shape(partial(make, key=jr.key(0)))
    random = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape), leaf.dtype), like)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    save_pretrained(
        folder,
        drawn(partial(BERT.init, 8, 4, depth=1, heads=2, hidden=4, max_length=8)),
        tokeniser=WordPiece(PIECES),
    )
    return folder


@pytest.fixture
def small(made, tmp_path):
    """A copy that a test may change."""
    for path in made.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return str(tmp_path)


@pytest.mark.slow
def test_vectors_and_cosines(capsys, small):
    code, out, _ = run(capsys, "embed", "ab a", "b", "AB  a", "--model", small, "--json")
    *rows, last = map(json.loads, out.splitlines())
    assert (code, [row["text"] for row in rows]) == (0, ["ab a", "b", "AB  a"])
    bert = load_pretrained(small).model
    vectors = jax.jit(jax.vmap(BERT.__call__, (None, 0)))(
        bert, jnp.array([[2, 5, 7, 5, 3], [2, 6, 3, -1, -1]])
    )
    for row, there in ((0, 5), (1, 3)):
        mean = np.asarray(vectors[row, :there]).mean(axis=0)
        np.testing.assert_allclose(rows[row]["vector"], mean / np.linalg.norm(mean), atol=1e-5)
    found = np.array([row["vector"] for row in rows])
    np.testing.assert_allclose(last["cosines"], found @ found.T, atol=1e-5)
    assert last["cosines"][0][2] == pytest.approx(1, abs=1e-5)


def test_alone_it_is_a_list_and_with_others_a_table(capsys, small):
    code, out, _ = run(capsys, "embed", "a", "--model", small)
    assert (code, len(json.loads(out))) == (0, 4)
    code, out, _ = run(capsys, "embed", "a", "[bold]b[/]", "--model", small)
    assert (code, "1.000" in out, "[bold]b[/]" in out) == (0, True, True)


def test_what_is_too_long_is_cut_and_told(capsys, small):
    _, long, error = run(capsys, "embed", "a " * 20, "--model", small)
    assert "text 1 has 22 tokens; it is truncated to 8" in error
    _, cut, error = run(capsys, "embed", "a " * 6, "--model", small)
    assert (json.loads(long), error) == (json.loads(cut), "")


def test_marks_in_a_text_are_text(small):
    tokeniser = load_pretrained(small).tokeniser
    assert command._tokens(tokeniser, "[SEP]", 8, 1) == [2, 1, 1, 1, 3]


def test_the_folder_may_say_how_long_and_how(small, tmp_path):
    network = load_pretrained(small)
    assert (
        command.max_sentence_length(network),
        command.max_sentence_length(network, 5),
        command.max_sentence_length(network, 256),
    ) == (8, 5, 8)
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 6}')
    assert command.max_sentence_length(network, 5) == 6
    (tmp_path / "1_Pooling").mkdir()
    pooling = tmp_path / "1_Pooling" / "config.json"
    pooling.write_text('{"pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true}')
    assert command.max_sentence_length(network) == 6
    pooling.write_text('{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}')
    with pytest.raises(
        ValueError, match="sets pooling_mode_cls_token; only pooling_mode_mean_tokens is supported"
    ):
        command.max_sentence_length(network)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("a", " ", "--model", "minilm"), "text 2 of 2 is empty. Give a sentence."),
        (
            ("a", "--model", "bert-large"),
            "model='bert-large' is neither an existing folder or file nor 'minilm'",
        ),
        (("\u200b\u200b", "--model", "."), "text 1 has no tokens"),
    ],
)
def test_what_cannot_be_embedded_is_answered(capsys, small, arguments, says, monkeypatch):
    monkeypatch.setattr(
        "thetax.cli.pretrained.fetch_model", lambda name: pytest.fail("it was fetched")
    )
    code, _, error = run(capsys, "embed", *arguments)
    assert (code, says in error) == (1, True), error


def test_a_folder_that_does_not_fit_is_answered(capsys, small, tmp_path):
    for name in ("vocab.txt", "tokenizer.json"):
        (tmp_path / name).unlink()
    code, _, error = run(capsys, "embed", "a", "--model", small)
    assert (code, "has neither tokenizer.json nor vocab.txt" in error) == (1, True), error
    (tmp_path / "vocab.txt").write_text("\n".join([*PIECES, "c", ""]))
    code, _, error = run(capsys, "embed", "a", "--model", small)
    assert (code, "the tokeniser has 9 pieces, but the model has only 8 embeddings" in error) == (
        1,
        True,
    ), error
    save_pretrained(
        tmp_path / "gpt", drawn(partial(GPT.init, 8, 4, depth=1, heads=2, max_length=8))
    )
    code, _, error = run(capsys, "embed", "a", "--model", "gpt")
    assert (
        code,
        "contains a GPT (model_type 'gpt2'). To embed sentences, give a BERT" in error,
    ) == (
        1,
        True,
    ), error

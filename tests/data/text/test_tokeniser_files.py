"""Vocabularies on disk: what was written comes back, and bad files are refused by name."""

import copy
import json

import pytest
from tokenizers import Tokenizer

from thetax.data import BytePairEncoding, WordPiece, load_tokeniser, save_tokeniser
from thetax.data.io.bounded_read import Blob
from thetax.data.text import tokeniser_files as files

TEXTS = ["the hat, the cat: naïve 東京 😀 [MASK] 2024", "THE <|endoftext|> end isn't near"]
PIECES = WordPiece.fit(TEXTS, vocab_size=90)
KINDS = {
    "uncased": PIECES,
    "cased": WordPiece(PIECES.pieces, lowercase=False),
    "few special": WordPiece(PIECES.pieces, special_tokens=["[UNK]", "[MASK]"]),
    "pairs": BytePairEncoding.fit(TEXTS, vocab_size=270),
    "digits": BytePairEncoding.fit(
        TEXTS, vocab_size=270, split_digits=True, special_tokens=("<s>", "</s>")
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_written_comes_back(kind, tmp_path):
    known = KINDS[kind]
    save_tokeniser(known, tmp_path / "a" / "b")
    found = load_tokeniser(tmp_path / "a" / "b")
    assert type(found) is type(known)
    assert (found.pieces, found.special_ids) == (known.pieces, known.special_ids)
    if isinstance(known, WordPiece):
        assert found.lowercase == known.lowercase
    else:
        assert (found.merges, found.split_digits) == (known.merges, known.split_digits)
    other = Tokenizer.from_file(str(tmp_path / "a" / "b" / "tokenizer.json"))
    for text in TEXTS:
        assert found.tokens(text).tolist() == known.tokens(text).tolist()
        assert found.tokens(text).tolist() == other.encode(text, add_special_tokens=False).ids
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("kind", ["uncased", "cased"])
def test_lines_alone_are_enough(kind, tmp_path):
    known = KINDS[kind]
    save_tokeniser(known, tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    found = load_tokeniser(tmp_path)
    assert (found.pieces, found.special_ids, found.lowercase) == (
        known.pieces,
        known.special_ids,
        known.lowercase,
    )
    (tmp_path / "tokenizer_config.json").unlink()
    assert load_tokeniser(tmp_path).lowercase
    assert files.read_vocab(Blob("v", b"[UNK]\r\na\r\n")).pieces == ("[UNK]", "a")
    assert files.read_vocab(Blob("v", "[UNK]\n\u2028\n".encode())).pieces == ("[UNK]", "\u2028")


def written(known):
    return json.loads(known._engine.to_str())


PAIRS = written(KINDS["pairs"])
WORDS = written(KINDS["uncased"])


def changed(whole, *path, to):
    whole = copy.deepcopy(whole)
    place = whole
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return whole


def test_merges_as_text_and_what_is_not_said(tmp_path):
    """The older way to write a merge; and options that are left out have their usual values."""
    whole = changed(
        PAIRS, "model", "merges", to=[" ".join(merge) for merge in PAIRS["model"]["merges"]]
    )
    for option in ("dropout", "unk_token", "byte_fallback", "type"):
        del whole["model"][option]
    del whole["pre_tokenizer"]["use_regex"]
    found = files.read_tokenizer_json(Blob("t", json.dumps(whole).encode()))
    assert isinstance(found, BytePairEncoding)
    assert found.merges == KINDS["pairs"].merges


@pytest.mark.parametrize(
    ("whole", "message"),
    [
        (
            changed(PAIRS, "model", "vocab", "a", to=10**9),
            "gives 'a' the id 1000000000; the ids of 270 pieces must be 0 to 269",
        ),
        (changed(PAIRS, "model", "vocab", "a", to=-1), "gives 'a' the id -1"),
        (changed(PAIRS, "model", "vocab", "a", to="7"), "gives 'a' the id '7'"),
        (changed(PAIRS, "model", "vocab", "a", to=True), "gives 'a' the id True"),
        (changed(PAIRS, "model", "vocab", "a", to=8), "the same id 8"),
        (changed(PAIRS, "model", "vocab", to=[1]), "no table of pieces"),
        (changed(PAIRS, "model", "merges", 0, to=["a", "b", "c"]), "a merge that is not a pair"),
        (changed(PAIRS, "model", "merges", 0, to="a"), "a merge that is not a pair"),
        (
            changed(PAIRS, "model", "merges", 0, to=["?", "¿"]),
            "merge 0 joins .* is not in the vocabulary",
        ),
        (
            changed(PAIRS, "model", "type", to="Unigram"),
            "is a Unigram model; only WordPiece and byte-level BPE are supported",
        ),
        (changed(PAIRS, "model", "byte_fallback", to=True), "sets byte_fallback to True"),
        (
            changed(PAIRS, "pre_tokenizer", "add_prefix_space", to=True),
            "add_prefix_space to True; only False",
        ),
        (
            changed(PAIRS, "pre_tokenizer", to={"type": "Split"}),
            "sets type to 'Split'; only 'ByteLevel' is supported",
        ),
        (changed(PAIRS, "pre_tokenizer", to=None), "not readable as a tokeniser"),
        (
            changed(PAIRS, "normalizer", to={"type": "NFC"}),
            "sets a normalizer, which is not supported",
        ),
        (
            changed(PAIRS, "added_tokens", 0, "id", to=5),
            "gives '<|endoftext|>' two ids, 0 and 5",
        ),
        (changed(PAIRS, "added_tokens", 0, "lstrip", to=True), "sets lstrip to True"),
        (
            changed(WORDS, "normalizer", "strip_accents", to=False),
            "sets strip_accents differently from lowercase",
        ),
        (changed(WORDS, "normalizer", "lowercase", to="yes"), "sets lowercase to 'yes'"),
        (changed(WORDS, "model", "unk_token", to="<unk>"), "sets unk_token to '<unk>'"),
        (changed(WORDS, "model", to=7), "not readable as a tokeniser"),
        ({}, "not readable as a tokeniser: 'model'"),
        ([1], "does not hold a JSON object"),
    ],
)
def test_bad_json(whole, message, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    with pytest.raises(ValueError, match=rf"^\S*tokenizer.json: .*{message}"):
        load_tokeniser(tmp_path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (json.dumps(PAIRS).encode()[:-40], "not readable as JSON"),
        (b"", "not readable as JSON"),
        (b"\xff\xfe", "not readable as JSON"),
        (b"[" * 100_000, "not readable as JSON"),
        (b'{"a":' * 100_000, "not readable as JSON"),
        (b"[" + b"[]," * 2_000_001, "has more than 2,000,000 brackets"),
        (b'{"model": NaN}', "not readable as a tokeniser"),
        (b" " * (files.MAX_BYTES + 1), "more than the 33,554,432 bytes allowed"),
    ],
    ids=["cut", "empty", "bytes", "deep lists", "deep objects", "many lists", "nan", "large"],
)
def test_hostile_json(data, message, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(data)
    with pytest.raises(ValueError, match=message):
        load_tokeniser(tmp_path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[UNK]\na\n##", "does not end with a newline"),
        (b"[UNK]\na\na\n", "pieces must be distinct; 'a' is given twice"),
        (b"a\n", r"there is no piece '\[UNK\]'"),
        (b"", r"there is no piece '\[UNK\]'"),
        (b"[UNK]\n\xff\n", "not readable as a list of pieces"),
    ],
)
def test_bad_lines(data, message, tmp_path):
    (tmp_path / "vocab.txt").write_bytes(data)
    with pytest.raises(ValueError, match=rf"^\S*vocab.txt: .*{message}"):
        load_tokeniser(tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"do_lower_case": 1}, "sets do_lower_case to 1"),
        ({"strip_accents": False}, "sets strip_accents differently from do_lower_case"),
        ({"tokenize_chinese_chars": False}, "turns off the splitting of Chinese characters"),
        ([], "does not hold a JSON object"),
    ],
)
def test_bad_settings(config, message, tmp_path):
    (tmp_path / "vocab.txt").write_bytes(b"[UNK]\n")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        load_tokeniser(tmp_path)


def test_nothing_there(tmp_path):
    with pytest.raises(ValueError, match=r"has neither tokenizer.json nor vocab.txt"):
        load_tokeniser(tmp_path)
    with pytest.raises(ValueError, match="contains a line break"):
        save_tokeniser(WordPiece(["[UNK]", "a\nb"]), tmp_path)
    assert not list(tmp_path.iterdir())

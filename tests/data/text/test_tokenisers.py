"""Pieces of words: round trips, greedy cutting against brute force, and the same bytes from every
run.
"""

import builtins
import os
import subprocess
import sys
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from thetax.data import BytePairEncoding, WordPiece, save_tokeniser
from thetax.data.text.byte_pair_encoding import BYTE

TEXTS = [
    "The rain in Spain stays mainly in the plain; the train strains the brain.",
    "In 1984 the main train ran 12 times, and it's said: they're 'n vain' again!",
    "Naïve café, straße 東京 😀  two  blanks\n\n\tand a tab.",
]
PAIRS = BytePairEncoding.fit(TEXTS, vocab_size=320)
DIGITS = BytePairEncoding.fit(
    TEXTS, vocab_size=300, split_digits=True, special_tokens=("<|im_start|>", "<|im_end|>")
)
PIECES = WordPiece.fit(TEXTS, vocab_size=110)


@pytest.mark.parametrize("known", [PAIRS, DIGITS], ids=["gpt-2", "digits"])
@settings(deadline=None)
@given(text=st.text(max_size=40))
@example(text="<|endoftext|>a <|im_start|> b\x00\x1c\x85\u3000 '' 's 12 ")
def test_byte_pairs_give_every_text_back(known, text):
    tokens = known.tokens(text)
    assert known.decode(tokens) == text
    assert known.decode(known.tokens(text, parse_special=False)) == text
    assert not set(known.special_ids) & set(known.tokens(text, parse_special=False).tolist())
    assert tokens.dtype == np.int32
    assert tokens.size == 0 or 0 <= tokens.min() <= tokens.max() < len(known)


@settings(deadline=None)
@given(st.lists(st.integers(-1, 330), max_size=12))
def test_spelling_is_decoding_without_half_characters(tokens):
    """Tokens that no text has, such as half a character, become what Python makes of such bytes."""
    raw = [PAIRS.pieces[t] if 0 <= t < len(PAIRS) else None for t in tokens if t != -1]
    spelled = [
        b"\xef\xbf\xbd"
        if p is None
        else p.encode()
        if p == "<|endoftext|>"
        else bytes(BYTE[letter] for letter in p)
        for p in raw
    ]
    whole = b"".join(spelled).decode("utf-8", "replace")
    assert "".join(PAIRS.decode_stream(tokens)) == PAIRS.decode(np.array(tokens, int)) == whole
    assert all(PAIRS.decode_stream(tokens))


def test_a_stream_is_spelled_as_it_comes():
    """What has been said never changes, and is said as soon as its last byte is there."""
    text = "a😀é東"
    said = []
    seen = []
    known = BytePairEncoding(sorted(BYTE), [])
    stream = (seen.append(token) or token for token in known.tokens(text))
    for part in known.decode_stream(stream):
        said.append((part, len(seen)))
    assert said == [("a", 1), ("😀", 5), ("é", 7), ("東", 10)]
    assert list(known.decode_stream(known.tokens("😀")[:3])) == ["\ufffd"]


def test_letters_for_bytes_are_those_of_the_library():
    from tokenizers.pre_tokenizers import ByteLevel

    assert sorted(BYTE) == sorted(ByteLevel.alphabet())
    assert sorted(BYTE.values()) == list(range(256))
    for text in ("é", " ", "\n", "~", "¡"):
        (written, _), *_ = ByteLevel(add_prefix_space=False).pre_tokenize_str(text)
        assert bytes(BYTE[letter] for letter in written) == text.encode()


def test_merges_are_applied_in_order():
    """Against a loop that merges the earliest learned pair first, in every word."""
    from tokenizers.pre_tokenizers import ByteLevel

    place = {pair: i for i, pair in enumerate(PAIRS.merges)}
    for text in TEXTS:
        expected = []
        for word, _ in ByteLevel(add_prefix_space=False).pre_tokenize_str(text):
            row = list(word)
            while pairs := [
                (place[pair], i) for i, pair in enumerate(pairwise(row)) if pair in place
            ]:
                _, i = min(pairs)
                row[i : i + 2] = [row[i] + row[i + 1]]
            expected += row
        assert [PAIRS.pieces[token] for token in PAIRS.tokens(text)] == expected


def test_digits_stand_alone():
    assert [DIGITS.pieces[t] for t in DIGITS.tokens("a 1984")][-4:] == ["1", "9", "8", "4"]
    assert all(len(piece) == 1 for piece in DIGITS.pieces if set(piece) & set("0123456789"))
    assert any(
        len(piece) > 1 for piece in BytePairEncoding.fit(["1984 1984"], vocab_size=260).pieces[257:]
    )


def longest_first(word, pieces):
    """The pieces of a word by trying every end of each, or [UNK] where none fits."""
    row = []
    start = 0
    while start < len(word):
        fits = [
            e
            for e in range(start + 1, len(word) + 1)
            if ("##" if start else "") + word[start:e] in pieces
        ]
        if not fits:
            return ["[UNK]"]
        row.append(("##" if start else "") + word[start : max(fits)])
        start = max(fits)
    return row


@settings(deadline=None)
@given(
    st.sets(
        st.builds(
            "{}{}".format, st.sampled_from(["", "##"]), st.text("ab", min_size=1, max_size=3)
        ),
        max_size=8,
    ),
    st.lists(st.text("ab", min_size=1, max_size=9), max_size=4),
)
def test_greedy_is_the_longest_prefix(pieces, words):
    known = WordPiece(["[UNK]", *sorted(pieces)])
    cut = [longest_first(word, pieces) for word in words]
    assert [known.pieces[token] for token in known.tokens(" ".join(words))] == list(
        chain.from_iterable(cut)
    )
    if not any("[UNK]" in row for row in cut):
        assert known.decode(known.tokens(" ".join(words))) == " ".join(words)


@settings(deadline=None)
@given(st.lists(st.text("thersaind", min_size=1, max_size=9), max_size=5))
def test_covered_words_come_back(words):
    """All letters are pieces at the beginning and inside of a word, so that every word of them is
    covered.
    """
    known = WordPiece(
        [
            "[UNK]",
            *"thersaind",
            *("##" + letter for letter in "thersaind"),
            "the",
            "##rs",
            "th",
            "##in",
        ]
    )
    assert known.decode(known.tokens(" ".join(words))) == " ".join(words)
    parts = [known.tokens(word).tolist() for word in words]
    assert known.tokens(" ".join(words)).tolist() == list(
        chain.from_iterable(parts)
    )  # no piece crosses from word to word


def test_plain_text():
    names = lambda text, known=PIECES: [known.pieces[token] for token in known.tokens(text)]
    assert names("[MASK] [CLS]") == ["[MASK]", "[CLS]"]
    assert "[MASK]" not in [
        PIECES.pieces[token] for token in PIECES.tokens("[MASK]", parse_special=False)
    ]
    assert names("THE\x00 rAin") == names("the rain")
    assert names("Naïve") == names("naive")
    assert names("x" * 101) == ["[UNK]"]
    cased = WordPiece(["[UNK]", "A", "a", "é"], lowercase=False)
    assert names("A a é Ä", cased) == ["A", "a", "é", "[UNK]"]


def test_one_face():
    for known in (PAIRS, PIECES):
        rows = known.encode(np.array([TEXTS[0], ""], np.dtypes.StringDType()), length=9)
        assert rows.shape == (2, 9)
        assert rows.dtype == np.int32
        assert rows[0].tolist() == known.tokens(TEXTS[0])[:9].tolist()
        assert rows[1].tolist() == [-1] * 9
        assert known.decode(rows[1]) == ""
        assert "�" in known.decode([len(known), 3])
        assert known.piece_id(known.pieces[7]) == 7
    assert [PIECES.pieces[i] for i in PIECES.special_ids] == [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
    ]
    assert len(PIECES) == 110
    assert len(PAIRS) == 320


FIT = """
import sys
from thetax.data import BytePairEncoding, WordPiece, save_tokeniser
texts = [line + "\\n" for line in open(sys.argv[1], encoding="utf-8").read().split("\\n")]
texts.reverse()
save_tokeniser(WordPiece.fit(texts, vocab_size=150), sys.argv[2] + "/pieces")
save_tokeniser(BytePairEncoding.fit(texts, vocab_size=330), sys.argv[2] + "/pairs")
"""


def test_every_run_writes_the_same_bytes(tmp_path):
    """Other seeds of Python's hashes, another order of the texts, one thread or several."""
    book = tmp_path / "book.txt"
    book.write_text("\n".join(TEXTS * 2 + ["ab cd ef gh ij kl mn op"]), encoding="utf-8")
    texts = [line + "\n" for line in book.read_text(encoding="utf-8").split("\n")]
    save_tokeniser(WordPiece.fit(texts, vocab_size=150), tmp_path / "here" / "pieces")
    save_tokeniser(BytePairEncoding.fit(texts, vocab_size=330), tmp_path / "here" / "pairs")
    environment = os.environ | {
        "PYTHONHASHSEED": "77",
        "TOKENIZERS_PARALLELISM": "false",
        "JAX_PLATFORMS": "cpu",
    }
    subprocess.run(
        [sys.executable, "-c", FIT, str(book), str(tmp_path / "there")], check=True, env=environment
    )
    here, there = (
        sorted(path for path in (tmp_path / f).rglob("*") if path.is_file())
        for f in ("here", "there")
    )
    assert [path.name for path in here] == ["tokenizer.json", "tokenizer_config.json"] * 2 + [
        "vocab.txt"
    ]
    assert [path.read_bytes() for path in here] == [path.read_bytes() for path in there]


def test_counting_chunks_is_counting_texts():
    """Texts are cut at blanks before they are cut into words; that must not move a word."""
    from tokenizers import pre_tokenizers

    from thetax.data.text import byte_pair_encoding, wordpiece

    for split_digits in (False, True):
        counts = {}
        splitter = byte_pair_encoding._pre_tokeniser(split_digits)
        for text in (*TEXTS, "a  b \n c\x1c d\x85 e 12 '3 's  "):
            for word, _ in splitter.pre_tokenize_str(text):
                counts[word] = counts.get(word, 0) + 1
        texts = (*TEXTS, "a  b \n c\x1c d\x85 e 12 '3 's  ")
        assert byte_pair_encoding._count_words(texts, split_digits) == counts
    normaliser = wordpiece._normaliser(True)
    splitter = pre_tokenizers.BertPreTokenizer()
    for text in (*TEXTS, "a\x1cb \x85c e\u0301 \u0301 x"):
        counts = {}
        for word, _ in splitter.pre_tokenize_str(normaliser.normalize_str(text)):
            split = (word[0], *("##" + letter for letter in word[1:]))
            counts[split] = counts.get(split, 0) + 1
        assert wordpiece._count_words([text], True) == counts


def test_the_library_is_asked_for_only_when_needed(monkeypatch, tmp_path):
    real = builtins.__import__

    def without(name, *arguments, **settings):
        if name.startswith("tokenizers"):
            raise ImportError(name)
        return real(name, *arguments, **settings)

    monkeypatch.setattr(builtins, "__import__", without)
    known = WordPiece(["[UNK]", "a"])
    assert known.decode([1, 1]) == "a a"
    for need in (
        lambda: known.tokens("a"),
        lambda: WordPiece.fit(["a"]),
        lambda: save_tokeniser(known, tmp_path),
    ):
        with pytest.raises(ImportError, match=r"pip install 'thetax\[text\]'"):
            need()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: WordPiece(["[UNK]", "a", "a"]),
            "WordPiece: pieces must be distinct; 'a' is given twice",
        ),
        (
            lambda: WordPiece(["a"]),
            r"WordPiece: there is no piece '\[UNK\]' in the vocabulary of 1 pieces",
        ),
        (
            lambda: WordPiece.fit(TEXTS, vocab_size=20),
            "vocab_size must be at least .*, the number of distinct letters .*; got 20",
        ),
        (lambda: WordPiece.fit("one text"), "expected a list of texts; got one string"),
        (
            lambda: BytePairEncoding.fit(TEXTS, vocab_size=256),
            "vocab_size must be at least 257, .* got 256",
        ),
        (
            lambda: BytePairEncoding(["a", "b"], [("a", "b")]),
            "merge 0 joins 'a' and 'b', but 'ab' is not in the vocabulary",
        ),
        (
            lambda: BytePairEncoding(["a", "東"], []),
            "piece 1, '東', is neither a special token nor a string of byte characters",
        ),
        (lambda: BytePairEncoding(["a"], [], special_tokens=["<s>"]), "there is no piece '<s>'"),
        (lambda: BytePairEncoding(["a"], []).tokens("ab"), "no piece for a byte of 'b'"),
        (lambda: PAIRS.tokens("a\ud800"), "index 0 holds an unpaired surrogate"),
        (lambda: PAIRS.encode(["a", 3], length=2), "expected texts; got int at index 1"),
        (
            lambda: PAIRS.encode(["a"], length=0),
            "encode: length must be an integer >= 1; got 0",
        ),
        (lambda: PAIRS.decode([[1]]), "expected one row of token ids"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()

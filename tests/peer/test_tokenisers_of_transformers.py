"""The same tokens as transformers, on a thousand lines of everything; and it reads the files we
write.
"""

import random
import re
import unicodedata

import pytest

from thetax.data import BytePairEncoding, WordPiece, load_tokeniser, save_tokeniser

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.peer
WORDS = re.split(
    " ",
    "the unbelievable Ångström naïve café résumé STRASSE Straße don't it's 3.14 1984 x²+y² ﬁne ½ "
    "İstanbul ǅ ΣΊΣΥΦΟΣ "
    "Привет мир שלום مرحبا नमस्ते สวัสดี 東京 日本語 한국어 漢字かな 𝔘𝔫𝔦 𠀀 😀 🇩🇪 👨\u200d👩\u200d👧 "
    "e\u0301 a\u0308\u0323 ‘quoted’ “so” — … zero\u200bwidth soft\u00adhyphen tab\there nul\x00l "
    "bell\x07 "
    "file\x1csep next\x85line nb\u00a0space wide\u3000space \ufffd \ufeffbom \u2028 "
    "[MASK] [CLS] [mask] <|endoftext|> ''' !!! a_b C++ #tag @me <b> &amp; http://x.y/z?q=1 ",
)


def lines():
    draw = random.Random(0)
    blocks = (0x20, 0x250), (0x250, 0xD800), (0x1F300, 0x1F650)
    anything = lambda: chr(draw.randrange(*draw.choice(blocks)))
    made = [" ".join(draw.choices(WORDS, k=draw.randint(0, 12))) for _ in range(600)]
    made += ["".join(anything() for _ in range(draw.randint(1, 40))) for _ in range(300)]
    made += [
        draw.choice("abé") * draw.randint(95, 105) + draw.choice(["", " ", "!"]) for _ in range(60)
    ]
    made += [
        "  ".join(draw.choices(WORDS, k=3)) + draw.choice(["\n", "\n\n ", "\t"]) for _ in range(40)
    ]
    return made


LINES = lines()


@pytest.mark.parametrize("lower", [True, False], ids=["uncased", "cased"])
def test_word_pieces(lower, tmp_path):
    known = WordPiece.fit(LINES[::3], vocab_size=3000, lowercase=lower)
    save_tokeniser(known, tmp_path)
    peers = [
        transformers.BertTokenizer(vocab=str(tmp_path / "vocab.txt"), do_lower_case=lower),
        transformers.AutoTokenizer.from_pretrained(tmp_path),
    ]
    assert len(LINES) == 1000
    unknown = known.piece_id("[UNK]")
    rows = [known.tokens(line).tolist() for line in LINES]
    assert 0.01 < sum(row.count(unknown) for row in rows) / sum(map(len, rows)) < 0.5
    for peer in peers:
        assert [peer.encode(line, add_special_tokens=False) for line in LINES] == rows
    (tmp_path / "tokenizer.json").unlink()
    assert [load_tokeniser(tmp_path).tokens(line).tolist() for line in LINES] == rows


def disputed(c):
    new = unicodedata.ucd_3_2_0.category(c) == "Cn"
    return c == "Σ" or (new and unicodedata.category(c)[0] in "CM")


def test_word_pieces_in_plain_python(tmp_path):
    """An independent route: the older tokeniser of BERT, written in Python.

    Lines are left out that have a Σ, which it writes as ς at the end of a word, or characters of no
    old standing, which may be marks for one edition of Unicode and unknown to the other.
    """
    legacy = pytest.importorskip("transformers.models.bert.tokenization_bert_legacy")
    known = WordPiece.fit(LINES[::3], vocab_size=3000)
    save_tokeniser(known, tmp_path)
    peer = legacy.BertTokenizerLegacy(str(tmp_path / "vocab.txt"))
    plain = [line for line in LINES if not any(map(disputed, line))]
    different = [
        line
        for line in plain
        if peer.encode(line, add_special_tokens=False) != known.tokens(line).tolist()
    ]
    assert len(plain) > 700
    assert not different


@pytest.mark.parametrize("digits", [False, True])
def test_byte_pairs(digits, tmp_path):
    known = BytePairEncoding.fit(LINES[::3], vocab_size=2000, split_digits=digits)
    save_tokeniser(known, tmp_path)
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for line in LINES:
        assert peer.encode(line, add_special_tokens=False) == known.tokens(line).tolist()
        assert known.decode(known.tokens(line)) == line == peer.decode(known.tokens(line).tolist())


def test_gpt_2(tmp_path):
    """Its own class cuts as we do, given the same pieces and merges."""
    known = BytePairEncoding.fit(LINES[::3], vocab_size=2000)
    merges = [tuple(merge) for merge in known.merges]
    peer = transformers.GPT2Tokenizer(vocab=known.piece_ids, merges=merges)
    for line in LINES:
        assert peer.encode(line, add_special_tokens=False) == known.tokens(line).tolist()

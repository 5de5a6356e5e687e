"""Sentences, their pairs and the form in which they are read."""

from itertools import chain

import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, chisquare

from thetax.data import pack_sentences, sentence_pairs, split_sentences, unpack_sentences

ROWS = st.lists(st.integers(5, 40), max_size=9)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("It cost 3.5 pounds. 7 men paid.", ["It cost 3.5 pounds.", "7 men paid."]),
        ("Mr. Weston and Mrs. E. Bates met Dr. No. They spoke.", None),
        (
            "He said, “Go!” and went. “Why?”  Nobody knew.",
            ["He said, “Go!” and went.", "“Why?”", "Nobody knew."],
        ),
        ("It was I. Then he left.", ["It was I.", "Then he left."]),
        (
            "A line\nbroken in two.\n \nA heading\n\n\nThe end...  \n",
            ["A line broken in two.", "A heading", "The end..."],
        ),
        ("Wait... what? no, e.g. this.", ["Wait... what? no, e.g. this."]),
        ("", []),
        (" \n\n ", []),
    ],
)
def test_sentences(text, found):
    expected = (
        found if found is not None else ["Mr. Weston and Mrs. E. Bates met Dr. No. They spoke."]
    )
    assert split_sentences(text) == expected


@given(st.text(alphabet=st.sampled_from("Aab .!?\n\"'”Mr1"), max_size=60))
def test_no_word_is_lost(text):
    found = split_sentences(text)
    assert " ".join(found).split() == text.split()
    assert all(sentence == " ".join(sentence.split()) and sentence for sentence in found)


DOCUMENTS = [
    [f"{d} {i % 7}" for i in range(40)] for d in range(100)
]  # a sentence comes back within its document


def test_pairs_of_sentences():
    """Half follow, chosen by chance; the others are any sentence but one that reads like the true
    successor.
    """
    pairs = sentence_pairs(DOCUMENTS, key=jr.key(5))
    flat = list(chain.from_iterable(DOCUMENTS))
    n = 100 * 39
    np.testing.assert_array_equal(pairs.first, [40 * d + i for d in range(100) for i in range(39)])
    assert binomtest(int(pairs.follows.sum()), n, 0.5).pvalue > 1e-3
    for first, second, follows in zip(*pairs):
        assert (second == first + 1) if follows else (flat[second] != flat[first + 1])
    others = pairs.second[~pairs.follows]
    assert chisquare(np.bincount(others // 40, minlength=100)).pvalue > 1e-3
    assert chisquare(np.bincount(others % 40, minlength=40)).pvalue > 1e-3


def test_pairs_are_a_function_of_the_key():
    documents = [[np.array([1, 2]), np.array([3])], [[4, 5], [3], [6]], [[7]]]
    first, again = (sentence_pairs(documents, key=jr.key(1)) for _ in range(2))
    for a, b in zip(first, again):
        np.testing.assert_array_equal(a, b)
    assert first.first.tolist() == [0, 2, 3]
    drawn = [sentence_pairs(documents, key=jr.key(seed)) for seed in range(200)]
    never = {int(p.second[0]) for p in drawn if not p.follows[0]}
    assert never == {0, 2, 4, 5}  # 1 follows, and 3 reads the same


@pytest.mark.parametrize("documents", [[], [["a"], ["b"]], [["a", "a"], ["a"]]])
def test_no_pair(documents):
    with pytest.raises(ValueError, match="expected a document of at least two sentences"):
        sentence_pairs(documents, key=jr.key(0))


def taken_off(first, second, room):
    """One token after the other off the longer one."""
    first = list(first)
    second = list(second)
    while len(first) + len(second) > room:
        (first if len(first) > len(second) else second).pop()
    return first, second


@settings(deadline=None)
@given(ROWS, st.none() | ROWS, st.integers(5, 25))
def test_join_and_part(first, second, length):
    row = pack_sentences(first, second, cls_id=1, sep_id=2, length=length)
    kept = (first[: length - 2], None) if second is None else taken_off(first, second, length - 3)
    body = [1, *kept[0], 2] + ([] if second is None else [*kept[1], 2])
    assert row.tokens.tolist() == body + [-1] * (length - len(body))
    one = len(kept[0]) + 2
    assert row.segments.tolist() == [0] * one + [1] * (len(body) - one) + [-1] * (
        length - len(body)
    )
    assert row.tokens.dtype == row.segments.dtype == np.int32
    back = unpack_sentences(row.tokens, cls_id=1, sep_id=2)
    assert back[0].tolist() == kept[0]
    assert back[1] is None if second is None else back[1].tolist() == kept[1]


def test_what_is_filled_up_is_no_sentence():
    row = pack_sentences(np.array([5, 6, -1, -1]), np.array([7, -1]), cls_id=1, sep_id=2, length=7)
    assert row.tokens.tolist() == [1, 5, 6, 2, 7, 2, -1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: pack_sentences([5, 2], cls_id=1, sep_id=2, length=9),
            "contains cls_id=1 or sep_id=2 itself",
        ),
        (
            lambda: pack_sentences([[5]], cls_id=1, sep_id=2, length=9),
            r"must be one row of token ids; got shape \(1, 1\)",
        ),
        (
            lambda: pack_sentences([5], [6], cls_id=1, sep_id=2, length=4),
            "length must be at least 5 for 2 sentences .* got 4",
        ),
        (lambda: unpack_sentences([5, 2], cls_id=1, sep_id=2), "unpack_sentences: expected 1 … 2"),
        (
            lambda: unpack_sentences([1, 5, 2, 6], cls_id=1, sep_id=2),
            "unpack_sentences: expected 1 … 2",
        ),
        (
            lambda: unpack_sentences([1, 5, 2, 2, 2], cls_id=1, sep_id=2),
            "unpack_sentences: expected 1 … 2",
        ),
        (
            lambda: unpack_sentences([-1, -1], cls_id=1, sep_id=2),
            "unpack_sentences: expected 1 … 2",
        ),
    ],
)
def test_bad_rows(make, message):
    with pytest.raises(ValueError, match=message):
        make()

"""Texts as numbers: words against a regular expression, counts against scikit-learn's."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

from thetax.data import Vocabulary, split_words

WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")  # letters and digits, single apostrophes between them
TEXTS = [
    "The cat sat on the mat; the cat slept.",
    "A dog's life isn't a cat's life!",
    "the end<br /><br />THE END",
    "",
]


@given(st.text(alphabet=st.sampled_from("aB9é'’_ -.<>br/\n\tß中"), max_size=40))
def test_words_are_what_the_expression_says(text):
    plain = re.sub(r"<br\s*/?>", " ", text.lower()).replace("’", "'")
    assert split_words(text) == WORD.findall(plain)


@given(st.text(max_size=30))
def test_words_of_anything(text):
    found = split_words(text)
    assert all(word == word.strip("'") and word and not word.isspace() for word in found)
    assert split_words(" ".join(found)) == found


def test_counts_agree_with_scikit_learn():
    """The vocabulary and the bags are those of its CountVectorizer with the same words."""
    peer = CountVectorizer(analyzer=split_words, binary=True)
    known = Vocabulary.fit(TEXTS)
    hot = peer.fit_transform(TEXTS).toarray()
    assert sorted(known.words) == sorted(peer.vocabulary_)
    mine = np.zeros((len(TEXTS), len(known)), int)
    for row, bag in zip(mine, known.bag(TEXTS)):
        row[bag[bag >= 0]] = 1
    np.testing.assert_array_equal(mine, hot[:, [peer.vocabulary_[word] for word in known.words]])


def test_the_most_frequent_come_first_and_equals_by_the_alphabet():
    known = Vocabulary.fit(["b a c b", "d b a"])
    assert known.words == ("b", "a", "c", "d")
    assert Vocabulary.fit(["b a c b", "d b a"], vocab_size=2).words == ("b", "a")
    assert known.word_ids["c"] == 2


def test_encode_keeps_order_and_marks_the_unknown():
    known = Vocabulary(["the", "cat"])
    found = known.encode(np.array(TEXTS[:1] + [""], np.dtypes.StringDType()), length=4)
    assert found.tolist() == [[0, 1, 2, 2], [-1, -1, -1, -1]]
    assert found.dtype == np.int32
    back = [known.words[j] if j < 2 else "?" for j in found[0]]
    assert back == ["the", "cat", "?", "?"]


def test_a_bag_that_is_too_small_keeps_the_rarest():
    known = Vocabulary(["the", "cat", "sat"])
    assert known.bag(["the cat sat the", "cat"], length=2).tolist() == [[1, 2], [1, -1]]
    assert known.bag(["the cat sat the"], length=9).shape == (1, 3)
    assert known.bag(["", "none of them"]).tolist() == [[-1], [-1]]


def test_bad_arguments():
    known = Vocabulary(["a"])
    with pytest.raises(ValueError, match="vocab_size must be an integer >= 1; got 0"):
        Vocabulary.fit(TEXTS, vocab_size=0)
    with pytest.raises(ValueError, match="length must be an integer >= 1; got 0"):
        known.encode(TEXTS, length=0)
    with pytest.raises(ValueError, match="length must be an integer >= 1; got -3"):
        known.bag(TEXTS, length=-3)
    with pytest.raises(ValueError, match="expected a list of texts; got one string"):
        known.bag("a text")
    with pytest.raises(ValueError, match="words must be distinct; a word is given twice"):
        Vocabulary(["a", "b", "a"])

"""Merging by incremental counts against counting everything anew before each merge."""

import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thetax.data import learn_merges, pair_association, pair_frequency

WORDS = st.dictionaries(
    st.text("abc", min_size=1, max_size=7), st.integers(1, 9), min_size=1, max_size=12
)
SCORES = {pair_frequency: lambda ab, a, b: ab, pair_association: lambda ab, a, b: ab / (a * b)}


def brute_force(words, size, score, join, least=1):
    """The same rule with nothing kept between the merges."""
    rows = {tuple(word): (list(word), count) for word, count in words.items()}
    pieces = sorted({letter for word in rows for letter in word})
    merges = []
    while len(pieces) < size:
        ones = Counter()
        twos = Counter()
        for row, count in rows.values():
            for piece in row:
                ones[piece] += count
            for pair in pairwise(row):
                twos[pair] += count
        scores = {(a, b): score(n, ones[a], ones[b]) for (a, b), n in twos.items() if n >= least}
        if not scores:
            break
        best = min(scores, key=lambda pair: (-scores[pair], pair))
        merges.append(best)
        if (new := join(*best)) not in pieces:
            pieces.append(new)
        for word, (row, count) in rows.items():
            rows[word] = (merged(row, best, new), count)
    return pieces, merges


def merged(row, pair, new):
    if len(row) < 2:
        return row
    if tuple(row[:2]) == pair:
        return [new, *merged(row[2:], pair, new)]
    return [row[0], *merged(row[1:], pair, new)]


@pytest.mark.parametrize("score", SCORES, ids=["frequency", "association"])
@settings(max_examples=150, deadline=None)
@given(words=WORDS, extra=st.integers(0, 14), least=st.integers(1, 3))
def test_every_merge_is_that_of_brute_force(score, words, extra, least):
    size = len(set("".join(words))) + extra
    found = learn_merges(words, vocab_size=size, score=score, join=str.__add__, min_frequency=least)
    assert tuple(found) == brute_force(words, size, SCORES[score], str.__add__, least)


def test_two_hundred_words():
    """With the mark of WordPiece, so that a letter inside a word is not the one at its
    beginning.
    """
    draw = random.Random(0)
    words = {}
    while len(words) < 200:
        first, *rest = draw.choices("etaoinshr", [9, 8, 7, 6, 5, 4, 3, 2, 1], k=draw.randint(1, 9))
        words[(first, *("##" + letter for letter in rest))] = draw.randint(1, 50)
    join = lambda a, b: a + b.removeprefix("##")
    found = learn_merges(words, vocab_size=150, score=pair_association, join=join)
    assert tuple(found) == brute_force(words, 150, SCORES[pair_association], join)
    assert len(found.pieces) == 150
    assert not any("##" in piece[2:] for piece in found.pieces)


@given(WORDS, st.randoms())
def test_the_order_of_the_words_does_not_matter(words, draw):
    shuffled = list(words.items())
    draw.shuffle(shuffled)
    first, second = (
        learn_merges(w, vocab_size=12, score=pair_frequency, join=str.__add__)
        for w in (words, dict(shuffled))
    )
    assert first == second


def test_letters_are_there_without_being_met_and_a_piece_has_one_number():
    found = learn_merges(
        {"abc": 3, "bcd": 2, "xab": 9},
        vocab_size=99,
        score=pair_frequency,
        join=str.__add__,
        letters=["z"],
    )
    assert found.pieces[:6] == ["a", "b", "c", "d", "x", "z"]
    twice = learn_merges(
        {"Ab": 5, "ab": 4}, vocab_size=99, score=pair_frequency, join=lambda a, b: (a + b).lower()
    )
    assert twice == (["A", "a", "b", "ab"], [("A", "b"), ("a", "b")])

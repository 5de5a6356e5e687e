"""BLEU against its definition, counted by hand on text that is tokenised already."""

import math
import sys
from collections import Counter

import pytest

from thetax.train import bleu

MEANT = [
    "the quick brown fox jumps over the lazy dog .",
    "a man is eating some food at the long table .",
    "and god said , let there be light : and there was light .",
]
SAID = [
    "the quick brown dog jumps over the the lazy fox .",
    "a man eats food at the long table .",
    "and god said , let there be light , and there was light , light .",
]


def by_hand(said, meant) -> float:
    right = [0] * 4
    total = [0] * 4
    for one, other in zip(said, meant):
        for n in range(1, 5):
            grams = lambda text, n=n: Counter(
                tuple(text.split()[i : i + n]) for i in range(len(text.split()) - n + 1)
            )
            right[n - 1] += (
                grams(one) & grams(other)
            ).total()  # each at most as often as it is meant
            total[n - 1] += grams(one).total()
    c, r = (sum(len(text.split()) for text in texts) for texts in (said, meant))
    precision = math.prod(a / b for a, b in zip(right, total)) ** 0.25
    return 100 * min(1.0, math.exp(1 - r / c)) * precision


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (SAID, MEANT),
        (MEANT, SAID),
        (SAID[:2], MEANT[:2]),
        ([text.rsplit(" ", 4)[0] for text in MEANT], MEANT),  # too short: only the penalty counts
    ],
    ids=["long", "turned", "two", "short"],
)
def test_as_defined(said, meant):
    score = bleu(said, meant)
    assert 1 < score < 99
    assert score == pytest.approx(by_hand(said, meant), rel=1e-9)


def test_the_ends_of_the_scale():
    assert bleu(MEANT, MEANT) == 100
    assert bleu(["nothing at all of it"], ["a b c d e f"]) == 0


def test_order_of_sentences_does_not_matter():
    assert bleu(SAID[::-1], MEANT[::-1]) == bleu(SAID, MEANT)


@pytest.mark.parametrize(
    ("said", "meant", "says"),
    [
        ("one", ["one"], "expected lists of sentences; got a string"),
        (["one"], "one", "expected lists of sentences; got a string"),
        (
            ["one"],
            ["one", "two"],
            "expected one reference per hypothesis; got 2 references and 1 hypotheses",
        ),
        ([], [], "got 0 references and 0 hypotheses"),
    ],
)
def test_what_is_refused(said, meant, says):
    with pytest.raises(ValueError, match=says):
        bleu(said, meant)


def test_without_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics.bleu", None)
    with pytest.raises(ImportError, match=r"bleu requires sacrebleu: pip install 'thetax\[text\]'"):
        bleu(["a"], ["a"])

"""§6.5: what BERT reads: pieces of words, sentences with their marks, and texts with gaps."""

from collections import Counter
from fractions import Fraction
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from ... import data
from ...data import WordPiece, cloze, join_sentences, part_sentences
from ...models import BERT, SentenceClassifier
from ..engine.chance import chance
from ..engine.check import close, equal, likely, refuted
from ..engine.claim import Verdict, claim, erratum
from .bert_learning import CLS, MASK, SEP, SPECIAL, joined
from .by_loop import EXACT, linear, norm, spread

DEVLIN = "Devlin et al. 2019"
INSIDE = "##"


def join(a: str, b: str) -> str:
    """Two pieces as one."""
    return a + b.removeprefix(INSIDE)


def corpus(rng: np.random.Generator, count: int) -> list[str]:
    """Words that differ, of syllables, some of which are frequent."""
    syllables = [
        "".join(rng.choice(list("aeioklmnst"), size=n)) for n in rng.integers(1, 4, size=30)
    ]
    share = 1 / np.arange(1.0, 31)
    words = {}
    while len(words) < count:
        words["".join(rng.choice(syllables, size=rng.integers(1, 5), p=share / share.sum()))] = None
    return list(words)


def merged(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    """The word with every such pair as one piece, from left to right."""
    if len(word) < 2:
        return word
    if word[:2] == pair:
        return (join(*pair), *merged(word[2:], pair))
    return (word[0], *merged(word[1:], pair))


def merges(words: dict[tuple[str, ...], int], size: int) -> tuple[list[str], list[tuple[str, str]]]:
    """Pieces and pairs by the rule itself: all counted anew each time, scores as fractions, equals
    by the alphabet.
    """
    pieces = dict.fromkeys(sorted({letter for word in words for letter in word}))
    found = []
    while len(pieces) < size:
        one = Counter()
        two = Counter()
        for word, times in words.items():
            for piece in word:
                one[piece] += times
            for pair in pairwise(word):
                two[pair] += times
        found.append(min(two, key=lambda ab: (-Fraction(two[ab], one[ab[0]] * one[ab[1]]), ab)))
        pieces[join(*found[-1])] = None
        words = {merged(word, found[-1]): times for word, times in words.items()}
    return list(pieces), found


def longest_first(word: str, pieces: set[str]) -> list[str]:
    """The longest piece that a word begins with, then of what is left, and so on; all or
    nothing.
    """
    cut = []
    mark = ""
    while word:
        ends = [n for n in range(1, len(word) + 1) if mark + word[:n] in pieces]
        if not ends:
            return ["[UNK]"]
        cut = [*cut, mark + word[: max(ends)]]
        word = word[max(ends) :]
        mark = INSIDE
    return cut


@claim(
    "6.5-wordpiece",
    title="Pieces of words",
    kind="algorithm",
    of=("data.WordPiece", "data.learn_merges", "data.association"),
    cites="Schuster & Nakajima 2012; Wu et al. 2016",
)
def pieces_of_words(key):
    r"""Letters first, then again and again the pair that maximises $n(ab) / (n(a)\,n(b))$ becomes a
    piece. A word is cut into the longest piece it begins with, then the longest that goes on,
    marked ##; where none does the whole word is [UNK], though another way to cut it may exist.
    """
    rng = chance(key)
    words = corpus(rng, 200)
    times = dict(zip(words, (1 + rng.poisson(100 / np.arange(1, 201))).tolist()))
    spelled = {(word[0], *(INSIDE + letter for letter in word[1:])): n for word, n in times.items()}
    letters = {letter for word in spelled for letter in word}
    size = len(letters) + 120
    made, by_rule = merges(spelled, size)
    learn = lambda score: data.learn_merges(spelled, size=size, score=score, join=join).merges
    text = " ".join(word for word, n in times.items() for _ in range(n))
    known = WordPiece.fit([text], size=len(SPECIAL) + size)
    new = ["".join(rng.choice(list("aeioklmnstx"), size=rng.integers(1, 9))) for _ in range(300)]
    asked = [*words, *new]
    cuts = [[known.pieces[token] for token in known.tokens(word)] for word in asked]
    covered = [word for word, cut in zip(asked, cuts) if cut != ["[UNK]"]]
    greedy = WordPiece(["[UNK]", "a", "ab", "##bc"])
    return Verdict(
        equal(
            "merges for 120 pieces, each the best by counting anew",
            learn(data.association) == by_rule,
            True,
        ),
        refuted(equal("were the most frequent pair taken", learn(data.frequency) == by_rule, True)),
        equal(
            "a vocabulary: the letters, and what these merges make",
            known.pieces[len(SPECIAL) :],
            made,
        ),
        equal(
            "500 words, against the longest piece in a loop",
            [" ".join(cut) for cut in cuts],
            [" ".join(longest_first(word, set(known.pieces))) for word in asked],
        ),
        equal(
            "cut and joined again: the words",
            [known.decode(known.tokens(word)) for word in covered],
            covered,
        ),
        equal(
            "a text of them",
            known.decode(known.tokens(" ".join(covered))) == " ".join(covered),
            True,
        ),
        equal(
            "no piece crosses words: a text is cut as its words are",
            known.tokens(" ".join(asked)),
            np.concatenate([known.tokens(word) for word in asked]),
        ),
        equal(
            "abc of a, ab, ##bc: the longest first finds no end", greedy.tokens("abc").tolist(), [0]
        ),
    )


def sentences(rng: np.random.Generator, count: int) -> list[np.ndarray]:
    """Of one to six words, by number."""
    return [rng.integers(len(SPECIAL), 11, size=n) for n in rng.integers(1, 7, size=count)]


@claim(
    "6.5-input-format",
    title="Marks, places and segments",
    kind="definition",
    of=("data.join_sentences", "data.part_sentences", "models.BERT"),
    cites=DEVLIN,
)
def input_format(key):
    r"""$[\mathrm{CLS}]\, s_1\, [\mathrm{SEP}]\, (s_2\, [\mathrm{SEP}])$, whose tokens up to the
    first [SEP] are segment 0 and those after it segment 1. What goes in is the sum of three
    vectors, of the token, its place and its segment, normalised.
    """
    rng = chance(key)
    first = sentences(rng, 100)
    second = [*sentences(rng, 50), *[None] * 50]
    rows = [join_sentences(a, b, cls=CLS, sep=SEP, length=15) for a, b in zip(first, second)]
    parts = [part_sentences(row.tokens, cls=CLS, sep=SEP) for row in rows]
    back = [(a.tolist(), None if b is None else b.tolist()) for a, b in parts]
    by_hand = []
    for row in rows:
        tokens = [int(token) for token in row.tokens if token >= 0]
        by_hand.append(
            [int(SEP in tokens[:t]) for t in range(len(tokens))] + [-1] * (15 - len(tokens))
        )
    model = spread(BERT.init(11, 4, depth=1, heads=2, max_length=15, key=key), key)
    tokens, segments = (np.asarray(a) for a in rows[0])
    there = int((tokens >= 0).sum())
    E, P, S = (np.asarray(table) for table in (model.embed.E, model.positions.P, model.segments.E))
    total = np.array([E[tokens[t]] + P[t] + S[segments[t]] for t in range(there)])
    plain = np.array([E[tokens[t]] + P[t] + S[0] for t in range(there)])
    enter = model.input_embeddings((jnp.asarray(tokens), jnp.asarray(segments)))[:there]
    return Verdict(
        equal(
            "100 rows, parted again",
            back
            == [(a.tolist(), None if b is None else b.tolist()) for a, b in zip(first, second)],
            True,
        ),
        equal("[CLS] at the first place of each", [row.tokens[0] for row in rows], [CLS] * 100),
        equal(
            "segments: whether a [SEP] stood before",
            np.stack([row.segments for row in rows]),
            np.array(by_hand),
        ),
        equal(
            "[SEP] in a row, for two sentences and for one",
            [int((row.tokens == SEP).sum()) for row in rows],
            [2] * 50 + [1] * 50,
        ),
        close("token, place and segment, normalised", enter, norm(model.norm, total), **EXACT),
        refuted(close("without the segment", enter, norm(model.norm, plain), tolerance=1e-3)),
    )


@erratum(
    "6.5-input-format",
    title="[CLS] comes first",
    printed=r"[\mathrm{CLS}] \text{ is appended to the tokens}",
    corrected=r"[\mathrm{CLS}] \text{ is prepended to the tokens}",
    of=("data.join_sentences", "models.SentenceClassifier"),
    cites=DEVLIN,
    slip=True,
)
def comes_first(key):
    r"""One word: [CLS] is said to be appended where the pretraining is described, and to be
    prepended before, which is right. The class is read at the place of [CLS], which is then the
    same for all sentences, of whatever length."""
    rng = chance(key)
    bert = spread(BERT.init(11, 4, depth=1, heads=2, max_length=15, key=key), key)
    model = spread(SentenceClassifier.init(bert, 2, key=key), key)
    before, _ = joined(sentences(rng, 20), sentences(rng, 20), length=15)
    behind = np.stack([np.roll(row, -1) for row in before])
    for row in behind:
        row[-1], row[(row[:-1] >= 0).sum()] = -1, CLS
    logits = jax.jit(jax.vmap(lambda tokens: (model(tokens), model.bert(tokens))))

    def checks(rows: np.ndarray) -> list[Any]:
        found, vectors = logits(jnp.asarray(rows))
        places = (rows == CLS).argmax(axis=1)
        at = np.asarray(vectors)[np.arange(len(rows)), places]
        return [
            equal("the place of [CLS] in 20 rows", places, np.full(20, places[0])),
            close(
                "logits, read at [CLS]",
                found,
                linear(model.head, np.tanh(linear(model.pool, at))),
                **EXACT,
            ),
        ]

    return Verdict(*checks(before), printed=checks(behind))


ORDINARY = 6  # words there are, besides the marks


@claim(
    "6.5-mlm-mask",
    title="Which tokens are hidden",
    kind="algorithm",
    of=("data.cloze",),
    cites=DEVLIN,
)
def hidden(key):
    r"""Each token but the marks is asked for with probability 0.15; of those that are, 0.8 become
    [MASK], 0.1 any word, all alike, and 0.1 stay. Any of $V$ words may be the one that stood there:
    seen are $0.1(1 - 1/V)$ that changed and $0.1(1 + 1/V)$ that did not.
    """
    rng = chance(key)
    V = ORDINARY
    tokens = rng.integers(len(SPECIAL), len(SPECIAL) + V, size=(26_000, 10))
    tokens[:, 0], tokens[:, 9], tokens[:5000, 8] = CLS, SEP, -1
    gaps = jax.jit(
        lambda tokens, key: cloze(
            tokens, mask=MASK, size=len(SPECIAL) + V, special=SPECIAL, key=key
        )
    )
    inputs, targets = map(np.asarray, gaps(jnp.asarray(tokens), key))
    asked = targets >= 0
    word = tokens >= len(SPECIAL)
    kinds = [((inputs == MASK) & asked).sum(), 0, ((inputs == tokens) & asked).sum()]
    kinds[1] = asked.sum() - sum(kinds)
    fits = lambda seen, p: float(stats.chisquare(seen, np.asarray(p) * np.sum(seen)).pvalue)
    changed = asked & (inputs != tokens) & (inputs != MASK)
    steps = np.bincount((inputs - tokens)[changed] % V, minlength=V)[1:]
    became = np.bincount(inputs[changed] - len(SPECIAL), minlength=V)
    by_place = [[side[:, t].sum() for t in range(1, 8)] for side in (asked, ~asked)]
    share = stats.binomtest(int(asked.sum()), int(word.sum()), 0.15)
    alike: Any = stats.chi2_contingency(by_place)
    rate = {"false_alarm": 1e-3}
    return Verdict(
        likely("asked for: 0.15 of 203,000, binomial", float(share.pvalue), **rate),
        likely(
            "hidden, changed and the same: χ²",
            fits(kinds, [0.8, 0.1 * (1 - 1 / V), 0.1 * (1 + 1 / V)]),
            **rate,
        ),
        refuted(likely("0.8, 0.1 and 0.1 exactly: χ²", fits(kinds, [0.8, 0.1, 0.1]), **rate)),
        likely("asked for alike at 7 places: χ²", float(alike.pvalue), **rate),
        likely(
            "what a word becomes, all others alike: χ²",
            fits(steps, np.full(V - 1, 1 / (V - 1))),
            **rate,
        ),
        likely(
            "all words alike become of words that are: χ²", fits(became, np.full(V, 1 / V)), **rate
        ),
        equal("no mark and nothing empty is asked for", (asked & ~word).sum(), 0),
        equal("what is asked for is what stood there", targets[asked], tokens[asked]),
        equal("all else is as it was", inputs[~asked], tokens[~asked]),
    )

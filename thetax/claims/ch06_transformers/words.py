"""§6.5: the input of BERT: WordPiece tokens, sentence pairs with special tokens, and masking."""

from collections import Counter
from fractions import Fraction
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from ... import data
from ...data import WordPiece, mask_tokens, pack_sentences, unpack_sentences
from ...models import BERT, SentenceClassifier
from ..engine.check import close, equal, not_rejected, refuted
from ..engine.claim import Verdict, claim, erratum
from .bert_learning import CLS, MASK, SEP, SPECIAL, encode_sentences
from .by_loop import EXACT, linear, norm, perturbed

INSIDE = "##"


def join(a: str, b: str) -> str:
    """Two pieces merged into one."""
    return a + b.removeprefix(INSIDE)


def corpus(rng: np.random.Generator, count: int) -> list[str]:
    """Distinct words made of syllables, some of which are frequent."""
    syllables = [
        "".join(rng.choice(list("aeioklmnst"), size=n)) for n in rng.integers(1, 4, size=30)
    ]
    share = 1 / np.arange(1.0, 31)
    words = {}
    while len(words) < count:
        words["".join(rng.choice(syllables, size=rng.integers(1, 5), p=share / share.sum()))] = None
    return list(words)


def merge_pair(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    """The word with every such pair merged, from left to right."""
    if len(word) < 2:
        return word
    if word[:2] == pair:
        return (join(*pair), *merge_pair(word[2:], pair))
    return (word[0], *merge_pair(word[1:], pair))


def merges(words: dict[tuple[str, ...], int], size: int) -> tuple[list[str], list[tuple[str, str]]]:
    """Pieces and merges by the rule itself: recounted each time, scores as fractions, ties in
    alphabetical order.
    """
    pieces = dict.fromkeys(sorted({letter for word in words for letter in word}))
    results = []
    while len(pieces) < size:
        one = Counter()
        two = Counter()
        for word, times in words.items():
            for piece in word:
                one[piece] += times
            for pair in pairwise(word):
                two[pair] += times
        results.append(min(two, key=lambda ab: (-Fraction(two[ab], one[ab[0]] * one[ab[1]]), ab)))
        pieces[join(*results[-1])] = None
        words = {merge_pair(word, results[-1]): times for word, times in words.items()}
    return list(pieces), results


def longest_first(word: str, pieces: set[str]) -> list[str]:
    """Greedy longest-match encoding: the longest piece at the start, then of the rest, and so on;
    [UNK] if it fails.
    """
    pieces_found = []
    mark = ""
    while word:
        ends = [n for n in range(1, len(word) + 1) if mark + word[:n] in pieces]
        if not ends:
            return ["[UNK]"]
        pieces_found = [*pieces_found, mark + word[: max(ends)]]
        word = word[max(ends) :]
        mark = INSIDE
    return pieces_found


@claim(
    "6.5-wordpiece",
    title="WordPiece tokenisation",
    kind="algorithm",
    of=("data.WordPiece", "data.learn_merges", "data.pair_association"),
    cites="Schuster & Nakajima 2012; Wu et al. 2016",
)
def pieces_of_words(rng):
    r"""The vocabulary starts with the letters; then repeatedly the pair that maximises
    $n(ab) / (n(a)\,n(b))$ becomes a piece. A word is encoded by the longest piece at its start,
    then the longest continuation, marked ##; if there is none the whole word is [UNK], although
    another segmentation may exist.
    """
    words = corpus(rng, 200)
    times = dict(zip(words, (1 + rng.poisson(100 / np.arange(1, 201))).tolist()))
    spelled = {(word[0], *(INSIDE + letter for letter in word[1:])): n for word, n in times.items()}
    letters = {letter for word in spelled for letter in word}
    size = len(letters) + 120
    expected_pieces, by_rule = merges(spelled, size)
    learn = lambda score: data.learn_merges(spelled, vocab_size=size, score=score, join=join).merges
    text = " ".join(word for word, n in times.items() for _ in range(n))
    fitted = WordPiece.fit([text], vocab_size=len(SPECIAL) + size)
    new = ["".join(rng.choice(list("aeioklmnstx"), size=rng.integers(1, 9))) for _ in range(300)]
    all_words = [*words, *new]
    cuts = [[fitted.pieces[token] for token in fitted.tokens(word)] for word in all_words]
    covered = [word for word, encoding in zip(all_words, cuts) if encoding != ["[UNK]"]]
    greedy = WordPiece(["[UNK]", "a", "ab", "##bc"])
    return Verdict(
        equal(
            "merges for 120 pieces, against recounting each time",
            learn(data.pair_association) == by_rule,
            True,
        ),
        refuted(
            equal(
                "with the most frequent pair instead", learn(data.pair_frequency) == by_rule, True
            )
        ),
        equal(
            "the vocabulary: the letters and the merged pieces",
            fitted.pieces[len(SPECIAL) :],
            expected_pieces,
        ),
        equal(
            "500 words, against the longest piece in a loop",
            [" ".join(encoding) for encoding in cuts],
            [" ".join(longest_first(word, set(fitted.pieces))) for word in all_words],
        ),
        equal(
            "encoded and decoded: the words",
            [fitted.decode(fitted.tokens(word)) for word in covered],
            covered,
        ),
        equal(
            "a text of them",
            fitted.decode(fitted.tokens(" ".join(covered))) == " ".join(covered),
            True,
        ),
        equal(
            "no piece crosses words: a text is encoded word by word",
            fitted.tokens(" ".join(all_words)),
            np.concatenate([fitted.tokens(word) for word in all_words]),
        ),
        equal(
            "abc with the pieces a, ab, ##bc: the longest match fails",
            greedy.tokens("abc").tolist(),
            [0],
        ),
    )


def sentences(rng: np.random.Generator, count: int) -> list[np.ndarray]:
    """Sentences of one to six word ids."""
    return [rng.integers(len(SPECIAL), 11, size=n) for n in rng.integers(1, 7, size=count)]


@claim(
    "6.5-input-format",
    title="Special tokens, positions and segments",
    kind="definition",
    of=("data.pack_sentences", "data.unpack_sentences", "models.BERT"),
    cites="Devlin et al. 2019",
)
def input_format(key, rng):
    r"""$[\mathrm{CLS}]\, s_1\, [\mathrm{SEP}]\, (s_2\, [\mathrm{SEP}])$, whose tokens up to the
    first [SEP] are segment 0 and those after it segment 1. The input is the normalised sum of
    token, position and segment embeddings.
    """
    first = sentences(rng, 100)
    second = [*sentences(rng, 50), *[None] * 50]
    rows = [pack_sentences(a, b, cls_id=CLS, sep_id=SEP, length=15) for a, b in zip(first, second)]
    parts = [unpack_sentences(row.tokens, cls_id=CLS, sep_id=SEP) for row in rows]
    back = [(a.tolist(), None if b is None else b.tolist()) for a, b in parts]
    by_hand = []
    for row in rows:
        tokens = [int(token) for token in row.tokens if token >= 0]
        by_hand.append(
            [int(SEP in tokens[:t]) for t in range(len(tokens))] + [-1] * (15 - len(tokens))
        )
    model = perturbed(BERT.init(11, 4, depth=1, heads=2, max_length=15, key=key), key)
    tokens, segments = (np.asarray(a) for a in rows[0])
    there = int((tokens >= 0).sum())
    E, P, S = (np.asarray(table) for table in (model.embed.E, model.positions.P, model.segments.E))
    total = np.array([E[tokens[t]] + P[t] + S[segments[t]] for t in range(there)])
    plain = np.array([E[tokens[t]] + P[t] + S[0] for t in range(there)])
    enter = model.input_embeddings((jnp.asarray(tokens), jnp.asarray(segments)))[:there]
    return Verdict(
        equal(
            "100 rows, unpacked again",
            back
            == [(a.tolist(), None if b is None else b.tolist()) for a, b in zip(first, second)],
            True,
        ),
        equal("[CLS] at the first position of each", [row.tokens[0] for row in rows], [CLS] * 100),
        equal(
            "segments: whether a [SEP] came before",
            np.stack([row.segments for row in rows]),
            np.array(by_hand),
        ),
        equal(
            "number of [SEP], for two sentences and for one",
            [int((row.tokens == SEP).sum()) for row in rows],
            [2] * 50 + [1] * 50,
        ),
        close("token, position and segment, normalised", enter, norm(model.norm, total), **EXACT),
        refuted(close("without the segment", enter, norm(model.norm, plain), tolerance=1e-3)),
    )


@erratum(
    "6.5-input-format",
    title="[CLS] comes first",
    printed=r"[\mathrm{CLS}] \text{ is appended to the tokens}",
    corrected=r"[\mathrm{CLS}] \text{ is prepended to the tokens}",
    of=("data.pack_sentences", "models.SentenceClassifier"),
    cites="Devlin et al. 2019",
    slip=True,
)
def comes_first(key, rng):
    r"""One word: [CLS] is said to be appended where the pretraining is described, but prepended
    before, which is right. The class is predicted from the position of [CLS], which is then the
    same for sentences of all lengths.
    """
    bert = perturbed(BERT.init(11, 4, depth=1, heads=2, max_length=15, key=key), key)
    model = perturbed(SentenceClassifier.init(bert, 2, key=key), key)
    before, _ = encode_sentences(sentences(rng, 20), sentences(rng, 20), length=15)
    behind = np.stack([np.roll(row, -1) for row in before])
    for row in behind:
        row[-1], row[(row[:-1] >= 0).sum()] = -1, CLS
    logits = jax.jit(jax.vmap(lambda tokens: (model(tokens), model.bert(tokens))))

    def checks(rows: np.ndarray) -> list[Any]:
        result, vectors = logits(jnp.asarray(rows))
        places = (rows == CLS).argmax(axis=1)
        at = np.asarray(vectors)[np.arange(len(rows)), places]
        return [
            equal("the position of [CLS] in 20 rows", places, np.full(20, places[0])),
            close(
                "logits, computed at [CLS]",
                result,
                linear(model.head, np.tanh(linear(model.pool, at))),
                **EXACT,
            ),
        ]

    return Verdict(*checks(before), printed=checks(behind))


ORDINARY = 6  # number of words, without the special tokens


@claim(
    "6.5-mlm-mask",
    title="Which tokens are masked",
    kind="algorithm",
    of=("data.mask_tokens",),
    cites="Devlin et al. 2019",
)
def hidden(key, rng):
    r"""Each token except the special ones is selected with probability 0.15; of these, 0.8 become
    [MASK], 0.1 a uniformly random word, and 0.1 stay. The random word may be the original one:
    $0.1(1 - 1/V)$ are changed and $0.1(1 + 1/V)$ are not.
    """
    V = ORDINARY
    tokens = rng.integers(len(SPECIAL), len(SPECIAL) + V, size=(26_000, 10))
    tokens[:, 0], tokens[:, 9], tokens[:5000, 8] = CLS, SEP, -1
    gaps = jax.jit(
        lambda tokens, key: mask_tokens(
            tokens, mask_id=MASK, vocab_size=len(SPECIAL) + V, special_ids=SPECIAL, key=key
        )
    )
    inputs, targets = map(np.asarray, gaps(jnp.asarray(tokens), key))
    selected = targets >= 0
    word = tokens >= len(SPECIAL)
    kinds = [((inputs == MASK) & selected).sum(), 0, ((inputs == tokens) & selected).sum()]
    kinds[1] = selected.sum() - sum(kinds)
    fits = lambda counts, p: float(stats.chisquare(counts, np.asarray(p) * np.sum(counts)).pvalue)
    changed = selected & (inputs != tokens) & (inputs != MASK)
    steps = np.bincount((inputs - tokens)[changed] % V, minlength=V)[1:]
    became = np.bincount(inputs[changed] - len(SPECIAL), minlength=V)
    by_place = [[side[:, t].sum() for t in range(1, 8)] for side in (selected, ~selected)]
    share = stats.binomtest(int(selected.sum()), int(word.sum()), 0.15)
    alike: Any = stats.chi2_contingency(by_place)
    rate = {"false_alarm": 1e-3}
    return Verdict(
        not_rejected("selected: 0.15 of 203,000, binomial test", float(share.pvalue), **rate),
        not_rejected(
            "masked, changed and the same: χ²",
            fits(kinds, [0.8, 0.1 * (1 - 1 / V), 0.1 * (1 + 1 / V)]),
            **rate,
        ),
        refuted(not_rejected("0.8, 0.1 and 0.1 exactly: χ²", fits(kinds, [0.8, 0.1, 0.1]), **rate)),
        not_rejected("selected uniformly at 7 positions: χ²", float(alike.pvalue), **rate),
        not_rejected(
            "replacements of a word, uniform over the others: χ²",
            fits(steps, np.full(V - 1, 1 / (V - 1))),
            **rate,
        ),
        not_rejected(
            "all replacements, uniform over the words: χ²", fits(became, np.full(V, 1 / V)), **rate
        ),
        equal("no special token and no padding is selected", (selected & ~word).sum(), 0),
        equal("the targets are the original tokens", targets[selected], tokens[selected]),
        equal("all other tokens are unchanged", inputs[~selected], tokens[~selected]),
    )

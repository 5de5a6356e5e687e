"""The part of speech of every word (§6.5): an encoder that sees the sentence, beside the commonest
tag of the word.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Literal

import jax.random as jr
import numpy as np
from jaxtyping import Bool, PRNGKeyArray

from .. import data
from ..core import Batch
from ..data import UNIVERSAL, WordPiece
from ..models import TokenClassifier
from ..train import token_cross_entropy, token_error_rate
from .engine.job import Job, positive, recipe
from .engine.outcome import Outcome
from .shared.encoder import DROPOUT, Plan, Sizes, Speller, Task, check_starts, judge, tune_each

METRICS = {"error": token_error_rate, "loss": token_cross_entropy}
EVERY = 10  # of so many texts of a genre one is to test on, and one for validation
VALID = 500  # sentences for validation, at most
WRONG = "words tagged wrongly, %"

Sentences = Sequence[tuple[Sequence[str], Sequence[str]]]  # words, and their tags


def rows(sentences: Sentences, known: WordPiece, *, length: int) -> Batch:
    """`(tokens, targets)`: [CLS], the pieces of the words, [SEP]; the target of a word stands at
    its first piece.

    A sentence with more pieces goes on in another row, so that no word is lost. Targets are places
    in `UNIVERSAL`.

    >>> known = WordPiece(["[UNK]", "[CLS]", "[SEP]", "run", "##s", "he"])
    >>> xs, ys = rows([(["he", "runs"], ["PRON", "VERB"])], known, length=6)
    >>> xs.tolist(), ys.tolist()
    ([[1, 5, 3, 4, 2, -1]], [[-1, 4, 1, -1, -1, -1]])
    """
    spell = Speller(known)
    room = length - 2
    if room < 1:
        raise ValueError(
            f"length counts tokens, two of them marks, and must be at least 3; got {length}."
        )
    tokens = []
    targets = []
    for words, tags in sentences:
        left = 0
        for word, tag in zip(words, tags):
            pieces = spell(word)[:room].tolist()
            if len(pieces) > left:
                tokens.append([])
                targets.append([])
                left = room
            tokens[-1] += pieces
            targets[-1] += [UNIVERSAL.index(tag), *[-1] * (len(pieces) - 1)]
            left -= len(pieces)
    return _framed(tokens, targets, known, length)


def _framed(
    tokens: list[list[int]], targets: list[list[int]], known: WordPiece, length: int
) -> Batch:
    cls = known.number("[CLS]")
    sep = known.number("[SEP]")
    xs, ys = (np.full((len(tokens), length), -1, np.int32) for _ in range(2))
    for x, y, row, aims in zip(xs, ys, tokens, targets):
        x[: len(row) + 2] = [cls, *row, sep]
        y[1 : len(row) + 1] = aims
    return xs, ys


def held_out(brown: data.Brown, place: int) -> Bool[np.ndarray, " n"]:
    """Which sentences are of the text at that place of each ten of its genre."""
    chosen = []
    for genre in range(len(brown.genres)):
        texts = np.unique(brown.document[brown.genre == genre])
        chosen += texts[place % max(1, min(EVERY, len(texts))) :: EVERY].tolist()
    return np.isin(brown.document, chosen)


def commonest_tag(train: Sentences, test: Sentences) -> float:
    """The share of words that are tagged wrongly by the tag each had most often; one not met is
    what new words are.

    That is the commonest tag among the words that were met once. Capitals count.

    >>> train = [(["a", "run", "run", "Bo"], ["DET", "NOUN", "NOUN", "NOUN"])]
    >>> round(commonest_tag(train, [(["a", "run"], ["DET", "VERB"])]), 2)
    0.5
    """
    seen: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for words, tags in train:
        for word, tag in zip(words, tags):
            seen[word][tag] += 1
    once = Counter(tag for tags in seen.values() if tags.total() == 1 for tag in tags)
    best = {word: tags.most_common(1)[0][0] for word, tags in seen.items()}
    new = once.most_common(1)[0][0] if once else UNIVERSAL[0]
    wrong = [best.get(word, new) != tag for words, tags in test for word, tag in zip(words, tags)]
    return sum(wrong) / len(wrong)


@recipe
def tagging(
    job: Job,
    *,
    start: tuple[str, ...] = ("scratch",),
    sentences: int = 40_000,
    tests: int = 6000,
    length: int = 64,
    pieces: int = 10_000,
    width: int = 64,
    depth: int = 2,
    heads: int = 4,
    rate: float = 2e-4,
    epochs: int = 2,
    fresh_rate: float = 2e-3,
    fresh_epochs: int = 4,
    batch: int = 32,
    precision: Literal["float32", "bfloat16"] = "float32",
) -> Outcome:
    """The part of speech of each word of the Brown corpus, by an encoder drawn anew, pre-trained on
    books, or MiniLM.

    Whole texts are held out: of each genre every tenth to test on, and every tenth for validation.
    MiniLM needs fewer sentences, and more time for each: `--start minilm --sentences 6000`. Batches
    have sentences of similar length.

    Parameters
    ----------
    start
        What to begin with, a row of the table each: scratch, minilm, or the folder of a run of
        bert.
    sentences
        Sentences to learn from, at most; the table of the commonest tags has the same.
    tests
        Sentences to test on, at most.
    length
        Tokens of a row; a longer sentence goes on in another.
    pieces
        Size of the vocabulary of an encoder drawn anew.
    width
        Numbers that stand for a token in an encoder drawn anew.
    depth
        Blocks of attention in an encoder drawn anew.
    heads
        Heads of each attention in an encoder drawn anew.
    rate
        Highest learning rate of AdamW where the encoder has learned before.
    epochs
        Passes over the sentences, there.
    fresh_rate
        Highest learning rate where all is drawn anew.
    fresh_epochs
        Passes over the sentences, there.
    batch
        Sentences in a batch.
    precision
        In what the network is computed; weights, norms and losses stay float32.
    """
    positive(
        sentences=sentences,
        tests=tests,
        batch=batch,
        rate=rate,
        epochs=epochs,
        fresh_rate=fresh_rate,
    )
    check_starts(start)
    key_few, *keys = jr.split(job.key, 1 + len(start))
    job.say("loading brown")
    train, valid, test = _parts(sentences, tests, key=key_few)
    table = {"the commonest tag of each word": {WRONG: 100 * commonest_tag(train, test)}}
    task = Task(
        [" ".join(words) for words, _ in train],
        (train, valid, test),
        lambda part, known: rows(part, known, length=length),
        lambda begun, key: TokenClassifier.init(
            begun.bert, len(UNIVERSAL), dropout=DROPOUT, key=key
        ),
        token_cross_entropy,
        METRICS,
        lambda found: {
            WRONG: 100 * judge(found.fit.model, found.test, {"error": token_error_rate})["error"]
        },
        UNIVERSAL,
    )
    return tune_each(
        job,
        start,
        task,
        table,
        sizes=Sizes(width, depth, heads, pieces),
        length=length,
        fresh=Plan(fresh_rate, fresh_epochs, batch, precision),
        tuned=Plan(rate, epochs, batch, precision),
        keys=keys,
    )


def _parts(
    sentences: int, tests: int, *, key: PRNGKeyArray
) -> tuple[Sentences, Sentences, Sentences]:
    """Sentences to train on, for validation and to test on, so many of each, drawn from their
    texts.
    """
    brown = data.load_brown()
    test = held_out(brown, EVERY - 1)
    valid = held_out(brown, 4)
    keys = jr.split(key, 3)

    def few(there: np.ndarray, count: int, key: PRNGKeyArray) -> Sentences:
        places = np.flatnonzero(there)
        return [
            (brown.words[i], brown.universal[i])
            for i in places[np.asarray(jr.permutation(key, len(places)))[:count]]
        ]

    return (
        few(~(test | valid), sentences, keys[0]),
        few(valid, VALID, keys[1]),
        few(test, tests, keys[2]),
    )

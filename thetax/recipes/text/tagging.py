"""Part-of-speech tagging (§6.5): an encoder of the sentence against the most frequent tag of each
word.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Literal

import jax.random as jr
import numpy as np
from jaxtyping import Bool, PRNGKeyArray

from ... import data
from ...core import Batch
from ...data import UNIVERSAL_TAGS, WordPiece
from ...models import TokenClassifier
from ...train import token_cross_entropy, token_error_rate
from ..engine.job import Job, check_positive, recipe
from ..engine.outcome import Outcome
from ..shared.fine_tuning import (
    DROPOUT,
    MIN_LENGTH,
    EncoderConfig,
    FineTuningTask,
    TrainingPlan,
    WordTokeniser,
    check_encoders,
    evaluate_in_blocks,
    fine_tune_each,
)

METRICS = {"error": token_error_rate, "loss": token_cross_entropy}
TEXTS_PER_SPLIT = 10  # of every ten texts of a genre one is for the test set and one for validation
TEST_TEXT, VALID_TEXT = 9, 4  # which of them
MAX_VALID_SENTENCES = 500
BASELINE, WORD_ERROR = "most frequent tag of each word", "test word error %"

Sentences = Sequence[tuple[Sequence[str], Sequence[str]]]  # words, and their tags


def encode_sentences(sentences: Sentences, tokeniser: WordPiece, *, max_length: int) -> Batch:
    """Rows `(tokens, targets)`: [CLS], the tokens of the words, [SEP], and padding.

    The target of a word is at its first token, an index into `UNIVERSAL_TAGS`; the other targets
    are -1. A sentence that is longer than a row continues in another row.

    >>> tokeniser = WordPiece(["[UNK]", "[CLS]", "[SEP]", "run", "##s", "he"])
    >>> sentences = [(["he", "runs"], ["PRON", "VERB"])]
    >>> xs, ys = encode_sentences(sentences, tokeniser, max_length=6)
    >>> xs.tolist(), ys.tolist()
    ([[1, 5, 3, 4, 2, -1]], [[-1, 4, 1, -1, -1, -1]])
    """
    if max_length < MIN_LENGTH:
        raise ValueError(f"max_length: must be at least {MIN_LENGTH}; got {max_length}.")
    tokenise = WordTokeniser(tokeniser)
    room = max_length - 2
    tokens = []
    targets = []
    for words, tags in sentences:
        left = 0
        for word, tag in zip(words, tags):
            word_tokens = tokenise(word)[:room].tolist()
            if len(word_tokens) > left:
                tokens.append([])
                targets.append([])
                left = room
            tokens[-1] += word_tokens
            targets[-1] += [UNIVERSAL_TAGS.index(tag), *[-1] * (len(word_tokens) - 1)]
            left -= len(word_tokens)
    return _pad(tokens, targets, tokeniser, max_length)


def _pad(
    tokens: list[list[int]], targets: list[list[int]], tokeniser: WordPiece, max_length: int
) -> Batch:
    cls = tokeniser.piece_id("[CLS]")
    sep = tokeniser.piece_id("[SEP]")
    xs, ys = (np.full((len(tokens), max_length), -1, np.int32) for _ in range(2))
    for x, y, row_tokens, row_targets in zip(xs, ys, tokens, targets):
        x[: len(row_tokens) + 2] = [cls, *row_tokens, sep]
        y[1 : len(row_tokens) + 1] = row_targets
    return xs, ys


def held_out_mask(brown: data.Brown, index: int) -> Bool[np.ndarray, " n"]:
    """Marks the sentences of the texts at `index` among each ten texts of their genre."""
    held_out = []
    for genre in range(len(brown.genres)):
        texts = np.unique(brown.document[brown.genre == genre])
        first = index % max(1, min(TEXTS_PER_SPLIT, len(texts)))
        held_out += texts[first::TEXTS_PER_SPLIT].tolist()
    return np.isin(brown.document, held_out)


def most_frequent_tag_error(train: Sentences, test: Sentences) -> float:
    """The error of a baseline that gives each word its most frequent tag in the training set.

    A word that is not in the training set gets the most frequent tag of the words that occur once.
    Words are compared with their capital letters.

    >>> train = [(["a", "run", "run", "Bo"], ["DET", "NOUN", "NOUN", "NOUN"])]
    >>> round(most_frequent_tag_error(train, [(["a", "run"], ["DET", "VERB"])]), 2)
    0.5
    """
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for words, tags in train:
        for word, tag in zip(words, tags):
            counts[word][tag] += 1
    rare = Counter(tag for tags in counts.values() if tags.total() == 1 for tag in tags)
    best = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
    default = rare.most_common(1)[0][0] if rare else UNIVERSAL_TAGS[0]
    wrong = [
        best.get(word, default) != tag for words, tags in test for word, tag in zip(words, tags)
    ]
    return sum(wrong) / len(wrong)


@recipe
def tagging(
    job: Job,
    *,
    encoder: tuple[str, ...] = ("scratch",),
    n_train: int = 40_000,
    n_test: int = 6000,
    max_length: int = 64,
    vocab_size: int = 10_000,
    width: int = 64,
    depth: int = 2,
    heads: int = 4,
    learning_rate: float = 2e-4,
    epochs: int = 2,
    scratch_learning_rate: float = 2e-3,
    scratch_epochs: int = 4,
    batch_size: int = 32,
    precision: Literal["float32", "bfloat16"] = "float32",
) -> Outcome:
    """Part-of-speech tagging by an encoder: from scratch, pre-trained on books, or MiniLM.

    The data are the Brown corpus. Whole texts are held out: of each genre every tenth for the test,
    and every tenth for validation. MiniLM needs fewer sentences and more time for each: `--encoder
    minilm --n-train 6000`. Batches have sentences of similar length.

    Parameters
    ----------
    n_train
        Maximum number of training sentences; the most-frequent-tag baseline uses the same.
    n_test
        Maximum number of test sentences.
    max_length
        Maximum length of a row in tokens; a longer sentence continues in another row.
    vocab_size
        Vocabulary size of an encoder trained from scratch.
    width
        Embedding dimension of an encoder trained from scratch.
    depth
        Layers of an encoder trained from scratch.
    heads
        Attention heads per layer of an encoder trained from scratch.
    learning_rate
        Peak learning rate of AdamW for a pre-trained encoder.
    epochs
        Passes over the training set for a pre-trained encoder.
    """
    check_positive(
        n_train=n_train,
        n_test=n_test,
        batch_size=batch_size,
        learning_rate=learning_rate,
        epochs=epochs,
        scratch_learning_rate=scratch_learning_rate,
    )
    check_encoders(encoder)
    key_data, *keys = jr.split(job.key, 1 + len(encoder))
    job.note("loading brown")
    train, valid, test = _splits(n_train, n_test, key=key_data)
    table = {BASELINE: {WORD_ERROR: 100 * most_frequent_tag_error(train, test)}}
    task = FineTuningTask(
        texts=[" ".join(words) for words, _ in train],
        splits=(train, valid, test),
        encode=lambda split, tokeniser: encode_sentences(split, tokeniser, max_length=max_length),
        head=lambda base, key: TokenClassifier.init(
            base.bert, len(UNIVERSAL_TAGS), dropout=DROPOUT, key=key
        ),
        objective=token_cross_entropy,
        metrics=METRICS,
        table_row=lambda tuned: {
            WORD_ERROR: 100 * evaluate_in_blocks(tuned.fit.model, tuned.test, METRICS)["error"]
        },
        classes=UNIVERSAL_TAGS,
    )
    return fine_tune_each(
        job,
        encoder,
        task,
        table,
        config=EncoderConfig(width=width, depth=depth, heads=heads, vocab_size=vocab_size),
        max_length=max_length,
        scratch=TrainingPlan(
            learning_rate=scratch_learning_rate,
            epochs=scratch_epochs,
            batch_size=batch_size,
            precision=precision,
        ),
        pretrained=TrainingPlan(
            learning_rate=learning_rate, epochs=epochs, batch_size=batch_size, precision=precision
        ),
        keys=keys,
    )


def _splits(
    n_train: int, n_test: int, *, key: PRNGKeyArray
) -> tuple[Sentences, Sentences, Sentences]:
    """Random training, validation and test sentences, from different texts."""
    brown = data.load_brown()
    test = held_out_mask(brown, TEST_TEXT)
    valid = held_out_mask(brown, VALID_TEXT)
    keys = jr.split(key, 3)

    def sample(mask: np.ndarray, n: int, key: PRNGKeyArray) -> Sentences:
        indices = np.flatnonzero(mask)
        indices = indices[np.asarray(jr.permutation(key, len(indices)))[:n]]
        return [(brown.words[i], brown.universal[i]) for i in indices]

    return (
        sample(~(test | valid), n_train, keys[0]),
        sample(valid, MAX_VALID_SENTENCES, keys[1]),
        sample(test, n_test, keys[2]),
    )

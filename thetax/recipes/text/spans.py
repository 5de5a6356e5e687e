"""Extractive question answering (§6.5): an encoder predicts where the answer begins and ends."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Bool, Int, PRNGKeyArray

from ... import data
from ...core import Batch
from ...data import WordPiece
from ...models import SpanPredictor, best_span
from ...train import span_cross_entropy, span_error_rate
from ..engine.job import Job, check_positive, recipe
from ..engine.outcome import Outcome
from ..shared.fine_tuning import (
    EVALUATION_BLOCK,
    EncoderConfig,
    FineTuned,
    FineTuningTask,
    TrainingPlan,
    WordTokeniser,
    check_encoders,
    fine_tune_each,
)
from ..shared.squad import (
    MASK,
    Question,
    cloze_questions,
    most_frequent_name,
    name_words,
    read_squad,
    replace_names,
    squad_scores,
    word_spans,
)

METRICS = {"error": span_error_rate, "loss": span_cross_entropy}
TEST_BOOKS = ("austen-persuasion", "chesterton-thursday")
VALID_BOOKS = ("carroll-alice", "chesterton-ball")
ARTICLES_PER_SPLIT = 10  # of every ten articles one is for the test set and one for validation
TEST_ARTICLE, VALID_ARTICLE = 9, 4  # which of them
MAX_VALID_QUESTIONS = 500
LENGTH_QUANTILE = 0.99  # of the training answers; a predicted answer is not longer
BASELINE = "most frequent name in the passage"


class EncodedQuestions(NamedTuple):
    """Rows of [CLS] question [SEP] passage [SEP], and the word of the passage at each token."""

    batch: Batch  # ((tokens, segments), spans)
    word: Int[np.ndarray, "n t"]  # index of the word; -1 outside the passage
    answerable: Bool[np.ndarray, " n"]  # whether the row contains the answer


def encode_questions(
    questions: Sequence[Question], tokeniser: WordPiece, *, max_length: int
) -> EncodedQuestions:
    """Encodes each question in a row of `max_length` tokens.

    The question takes at most half of the row. A passage that is too long is cut at its end.

    >>> tokeniser = WordPiece(["[UNK]", "[CLS]", "[SEP]", "[MASK]", "bo", "##b", "ran", "."])
    >>> question = Question("[MASK] ran.", "Bob ran.", 0, 3, ("Bob",))
    >>> rows = encode_questions([question], tokeniser, max_length=10)
    >>> [part.tolist() for part in (*rows.batch[0], rows.batch[1])]
    [[[1, 3, 6, 7, 2, 4, 5, 6, 7, 2]], [[0, 0, 0, 0, 0, 1, 1, 1, 1, 1]], [[5, 6]]]
    """
    tokenise = WordTokeniser(tokeniser)
    rows = []
    for question in questions:
        text = _question_tokens(question.text, tokenise)[: (max_length - 3) // 2]
        spans = word_spans(question.passage)
        tokens = [tokenise(question.passage[i:j]) for i, j in spans]
        word = np.repeat(np.arange(len(tokens)), [len(part) for part in tokens])
        word = word[: max_length - 3 - len(text)]
        passage = np.concatenate([np.zeros(0, np.int32), *tokens])[: len(word)]
        row = data.pack_sentences(
            text,
            passage,
            cls_id=tokeniser.piece_id("[CLS]"),
            sep_id=tokeniser.piece_id("[SEP]"),
            length=max_length,
        )
        word_at = np.full(max_length, -1)
        word_at[len(text) + 2 : len(text) + 2 + len(word)] = word
        rows.append((*row, word_at, _answer_span(question, spans, word_at)))
    tokens, segments, word_at, span = (np.stack(part) for part in zip(*rows))
    answerable = span.min(axis=1) >= 0
    return EncodedQuestions(((tokens, segments), np.maximum(span, 0)), word_at, answerable)


def _question_tokens(text: str, tokenise: WordTokeniser) -> list[int]:
    """The tokens of a question, with the mask token for the hidden name."""
    before, mask, after = text.partition(MASK)
    encode = lambda text: [int(token) for i, j in word_spans(text) for token in tokenise(text[i:j])]
    return encode(before) + ([tokenise.tokeniser.piece_id(MASK)] if mask else []) + encode(after)


def _answer_span(
    question: Question, spans: list[tuple[int, int]], word_at: np.ndarray
) -> np.ndarray:
    """The first and the last token of the answer; -1 where the row does not contain all of it."""
    words = [k for k, (i, j) in enumerate(spans) if i < question.end and j > question.begin]
    ends = [np.flatnonzero(word_at == k) for k in (words[:1] + words[-1:])]
    if len(ends) < 2 or not all(map(len, ends)):
        return np.full(2, -1, np.int32)
    return np.array([ends[0][0], ends[1][-1]], np.int32)


def answer_length_limit(spans: Int[np.ndarray, "n 2"]) -> int:
    """The 99% quantile of the answer lengths in tokens.

    The model predicts the beginning and the end of an answer independently; without a limit a span
    can begin with one name and end with another.

    >>> answer_length_limit(np.array([[3, 3], [7, 8], [5, 5]]))
    2
    """
    return int(np.quantile(spans[:, 1] - spans[:, 0] + 1, LENGTH_QUANTILE, method="higher"))


def predict_answers(
    model: SpanPredictor, rows: EncodedQuestions, questions: Sequence[Question], *, max_answer: int
) -> list[str]:
    """The predicted answer to each question: the words of the passage in the best span."""
    predict = jax.jit(jax.vmap(lambda x: best_span(model(x), max_length=max_answer)))
    answers = []
    for i in range(0, len(questions), EVALUATION_BLOCK):
        block = slice(i, i + EVALUATION_BLOCK)
        ends = predict(jax.tree.map(lambda a, block=block: a[block], rows.batch[0]))
        for word_at, question, begin, end in zip(rows.word[block], questions[block], *ends):
            spans = word_spans(question.passage)
            first = spans[int(word_at[int(begin)])]
            last = spans[int(word_at[int(end)])]
            answers.append(question.passage[first[0] : last[1]])
    return answers


@recipe
def spans(
    job: Job,
    *,
    encoder: tuple[str, ...] = ("minilm",),
    squad: str = "",
    n_train: int = 2000,
    renamed_copies: int = 0,
    n_test: int = 800,
    max_length: int = 128,
    vocab_size: int = 6000,
    width: int = 64,
    depth: int = 2,
    heads: int = 4,
    learning_rate: float = 2e-4,
    epochs: int = 2,
    scratch_learning_rate: float = 1e-3,
    scratch_epochs: int = 2,
    batch_size: int = 32,
    precision: Literal["float32", "bfloat16"] = "float32",
) -> Outcome:
    """Extractive question answering: a masked name in a book, or questions of SQuAD 1.1.

    The question is a sentence of a Gutenberg book with a name masked; the passage is the about 80
    words before it, which contain the name and at least one other. Whole books are held out; of a
    SQuAD file every tenth article is. An answer is right if its text matches. Three in four names
    of the test set are new, so questions can be augmented with other names; on a GPU, `--n-train
    12000 --renamed-copies 3 --precision bfloat16`. From scratch, an encoder is no better than the
    most frequent name. SQuAD needs a larger `--max-length`.

    Parameters
    ----------
    squad
        JSON file of SQuAD 1.1, such as train-v1.1.json, to use instead of the books.
    n_train
        Maximum number of training questions.
    renamed_copies
        Copies of each training question from books with other names, as data augmentation.
    n_test
        Maximum number of test questions.
    max_length
        Maximum length of question and passage in tokens; a longer passage is cut at its end.
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
    if renamed_copies < 0:
        raise ValueError(f"renamed_copies: must be an integer >= 0; got {renamed_copies}.")
    check_encoders(encoder)
    key_data, key_names, *keys = jr.split(job.key, 2 + len(encoder))
    job.note(f"reading {squad or 'gutenberg'}")
    splits = _from_squad(squad) if squad else _from_books()
    sizes = (n_train, MAX_VALID_QUESTIONS, n_test)
    train, valid, test = (
        _sample(split, n, key) for split, n, key in zip(splits, sizes, jr.split(key_data, 3))
    )
    table = {BASELINE: _row(map(most_frequent_name, test), test)}
    task = FineTuningTask(
        texts=[text for question in train for text in (question.text, question.passage)],
        splits=(
            train if squad else _with_renamed_copies(train, renamed_copies, key_names),
            valid,
            test,
        ),
        encode=lambda split, tokeniser: _answerable(
            encode_questions(split, tokeniser, max_length=max_length)
        ),
        head=lambda base, key: SpanPredictor.init(base.bert, key=key),
        objective=span_cross_entropy,
        metrics=METRICS,
        table_row=lambda tuned: _row(_predictions(tuned, test, max_length), test),
    )
    return fine_tune_each(
        job,
        encoder,
        task,
        table,
        config=EncoderConfig(
            width=width, depth=depth, heads=heads, vocab_size=vocab_size, lowercase=False
        ),
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


def _predictions(tuned: FineTuned, test: Sequence[Question], max_length: int) -> list[str]:
    return predict_answers(
        tuned.fit.model,
        encode_questions(test, tuned.tokeniser, max_length=max_length),
        test,
        max_answer=answer_length_limit(tuned.train[1]),
    )


def _row(answers: Iterable[str], test: Sequence[Question]) -> dict[str, float]:
    exact, f1 = squad_scores(answers, test)
    return {"exact match %": exact, "word F1 %": f1}


def _answerable(rows: EncodedQuestions) -> Batch:
    """The rows that contain the answer."""
    return jax.tree.map(lambda a: a[rows.answerable], rows.batch)


def _sample(questions: Sequence[Question], n: int, key: PRNGKeyArray) -> list[Question]:
    return [questions[i] for i in np.asarray(jr.permutation(key, len(questions)))[:n]]


def _with_renamed_copies(
    questions: list[Question], copies: int, key: PRNGKeyArray
) -> list[Question]:
    """The questions, and copies of each with random names from all of them."""
    rng = np.random.default_rng(np.asarray(jr.key_data(key)).ravel())
    pool = name_words(text for question in questions for text in (question.passage, question.text))
    return questions + [
        replace_names(question, pool, rng=rng) for _ in range(copies) for question in questions
    ]


def _from_books() -> tuple[list[Question], list[Question], list[Question]]:
    full = data.load("gutenberg")
    questions = {
        book: list(cloze_questions(data.split_sentences(str(text))))
        for book, text in zip(full.classes, full.train[0])
    }
    of = lambda books: [question for book in books for question in questions.get(book, ())]
    train_books = [book for book in questions if book not in (*TEST_BOOKS, *VALID_BOOKS)]
    return of(train_books), of(VALID_BOOKS), of(TEST_BOOKS)


def _from_squad(file: str) -> tuple[list[Question], list[Question], list[Question]]:
    articles = list(read_squad(file).values())
    if len(articles) < ARTICLES_PER_SPLIT:
        raise ValueError(
            f"squad: expected a file of at least {ARTICLES_PER_SPLIT} articles, since some are "
            f"held out; got {len(articles)}."
        )
    train, valid, test = [], [], []
    for i, article in enumerate(articles):
        split = {VALID_ARTICLE: valid, TEST_ARTICLE: test}.get(i % ARTICLES_PER_SPLIT, train)
        split += article
    return train, valid, test
